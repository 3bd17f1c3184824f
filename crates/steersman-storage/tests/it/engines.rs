//! The contract for every engine, and the special properties of the one on a disk.

use crate::faulty::{Fault, Faulty};
use rand::distr::Alphanumeric;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use steersman_machinery::{GroupResource, ObjectKey, Revision};
use steersman_storage::conformance::{self, Counter};
use steersman_storage::disk::{self, Intercepted, Operation};
use steersman_storage::kv::{self, Expect, Kv, Op, Outcome, Txn};
use steersman_storage::{
    At, Compactor, Disk, HistorySize, Kind, Memory, Options, Page, ReadError, Scope, Stats, Store, WatchError,
    WriteError,
};

#[tokio::test]
async fn memory_keeps_the_contract() {
    conformance::kv(async || Arc::new(Memory::new()) as Arc<dyn Kv>).await;
}

#[tokio::test]
async fn disk_keeps_the_contract() {
    let scratch = tempfile::tempdir().unwrap();
    let n = std::cell::Cell::new(0);
    conformance::kv(async || {
        n.set(n.get() + 1);
        Arc::new(Disk::open(&scratch.path().join(n.get().to_string())).unwrap()) as Arc<dyn Kv>
    })
    .await;
}

#[tokio::test]
async fn disk_keeps_everything_over_a_reopen() {
    let scratch = tempfile::tempdir().unwrap();
    conformance::durable(Counter::Own, async || Arc::new(Disk::open(scratch.path()).unwrap()) as Arc<dyn Kv>).await;
}

fn random_letters(seed: u64, length: usize) -> String {
    StdRng::seed_from_u64(seed).sample_iter(Alphanumeric).take(length).map(char::from).collect()
}

fn put(key: &str, value: impl Into<bytes::Bytes>) -> Txn {
    Txn { compares: Vec::new(), ops: vec![Op::Put { key: key.to_owned().into(), value: value.into() }] }
}

#[tokio::test]
async fn a_log_that_is_scanned_in_parts_shows_each_key_as_it_was_last_written() {
    const N_KEYS: usize = 64;
    let scratch = tempfile::tempdir().unwrap();
    let disk = Disk::open(scratch.path()).unwrap();
    // More revisions than the minimum of two parts, so that keys are put, changed and deleted across the edges of
    // parts.
    for round in 0..40 {
        let write = |n: usize| {
            let key = format!("k{n:02}");
            let is_deletion = n.is_multiple_of(3) && round == 20 || n.is_multiple_of(5) && round == 39;
            let delete = Txn { compares: Vec::new(), ops: vec![Op::Delete { key: key.clone().into() }] };
            disk.txn(if is_deletion { delete } else { put(&key, format!("{round}")) })
        };
        let written: Vec<_> = (0..N_KEYS).map(write).collect();
        for written in written {
            written.await.unwrap();
        }
    }
    let before = disk.read().await.unwrap();
    disk.close().await.unwrap();
    let disk = Disk::open(scratch.path()).unwrap();
    let after = disk.read().await.unwrap();
    assert_eq!((after.revision, after.entries.len()), (Revision(40 * N_KEYS as u64), N_KEYS - N_KEYS.div_ceil(5)));
    assert!(after.entries.iter().all(|entry| entry.value == "39"));
    assert_eq!((after.revision, after.entries), (before.revision, before.entries));
}

#[tokio::test]
async fn a_held_directory_is_refused_and_free_after_close() {
    let scratch = tempfile::tempdir().unwrap();
    let disk = Disk::open(scratch.path()).unwrap();
    let error = Disk::open(scratch.path()).unwrap_err();
    assert!(matches!(&error, disk::OpenError::Held { dir } if dir == scratch.path()));
    assert!(error.to_string().starts_with(&format!("another process holds {:?}", scratch.path())), "{error}");
    disk.close().await.unwrap();
    // `disk` still exists: closing it is enough.
    Disk::open(scratch.path()).unwrap();
}

#[tokio::test]
async fn a_file_of_another_format_is_refused_by_number() {
    let scratch = tempfile::tempdir().unwrap();
    drop(Disk::open(scratch.path()).unwrap());
    let path = scratch.path().join("store.redb");
    let database = redb::Database::open(&path).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(redb::TableDefinition::<&str, u64>::new("meta")).unwrap().insert("format", 4).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let error = Disk::open(scratch.path()).unwrap_err();
    assert!(matches!(error, disk::OpenError::Format { found: 4, want: disk::FORMAT, .. }), "{error}");
}

#[tokio::test]
async fn a_file_that_is_no_store_is_refused_and_left_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("store.redb");
    for content in ["precious text".repeat(1_000), String::from("x")] {
        std::fs::write(&path, &content).unwrap();
        let error = Disk::open(scratch.path()).unwrap_err();
        assert!(matches!(error, disk::OpenError::Damaged { .. }), "{error:?}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
    }
    std::fs::remove_file(&path).unwrap();
    drop(redb::Database::create(&path).unwrap());
    assert!(matches!(Disk::open(scratch.path()).unwrap_err(), disk::OpenError::Damaged { .. }));
}

#[tokio::test]
async fn a_creation_that_was_cut_short_is_started_anew() {
    let scratch = tempfile::tempdir().unwrap();
    std::fs::write(scratch.path().join("store.redb.new"), "half a file").unwrap();
    let disk = Disk::open(scratch.path()).unwrap();
    assert_eq!(disk.revision().await.unwrap(), Revision::ZERO);
}

#[tokio::test]
async fn a_dropped_store_has_written_what_was_queued() {
    let scratch = tempfile::tempdir().unwrap();
    let disk = Disk::open(scratch.path()).unwrap();
    let queued: Vec<_> = (0..100).map(|n| disk.txn(put(&format!("{n:03}"), "x"))).collect();
    drop(queued);
    drop(disk);
    let disk = Disk::open(scratch.path()).unwrap();
    assert_eq!(disk.read().await.unwrap().entries.len(), 100);
}

#[tokio::test]
async fn a_file_stays_small_however_much_is_written_within_its_history() {
    const SIZE: u64 = 256 * 1024;
    let scratch = tempfile::tempdir().unwrap();
    let disk = Arc::new(Disk::open(scratch.path()).unwrap());
    let options = Options { history_size: HistorySize { at_least: SIZE, times_live: 0 }, ..Options::default() };
    let store = Store::open(disk.clone(), options).await.unwrap();
    let (configs, key) = (GroupResource::new("", "configmaps"), ObjectKey::cluster("x"));
    let json = |n: u64| {
        let text = random_letters(n, 24_000);
        bytes::Bytes::from(format!(r#"{{"metadata":{{"name":"x"}},"data":{{"x":"{text}"}}}}"#))
    };
    let mut revision = store.create(&configs, &key, json(0)).await.unwrap().revision;
    for n in 1..300 {
        revision = store.update(&configs, &key, revision, json(n)).await.unwrap().revision;
    }
    // Half of the written values would take 3.6 MB.
    let length = std::fs::metadata(scratch.path().join("store.redb")).unwrap().len();
    assert!(length < 12 * SIZE, "{length} bytes");
    let Stats { oldest, .. } = store.stats();
    assert!(Revision(280) < oldest && oldest < Revision(297), "{oldest}");
    store.close().await.unwrap();
    // The size at the next open counts.
    let disk = Arc::new(Disk::open(scratch.path()).unwrap());
    let before = disk.volume().unwrap();
    // The last removals may not have been made before the close.
    assert!((SIZE / 2..2 * SIZE).contains(&before.superseded), "{before:?}");
    let smaller = HistorySize { at_least: SIZE / 4, times_live: 0 };
    let store = Store::open(disk, Options { history_size: smaller, ..options }).await.unwrap();
    store.update(&configs, &key, revision, json(0)).await.unwrap();
    let compacted = async {
        while store.stats().oldest < before.revision {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), compacted).await.unwrap();
    store.close().await.unwrap();
}

/// A disk that does not finish a sync while the test holds the gate.
fn gated() -> (Disk, Arc<parking_lot::Mutex<()>>) {
    let gate = Arc::new(parking_lot::Mutex::new(()));
    let held = gate.clone();
    let backend = Intercepted::new(Faulty::new(Vec::new(), Fault::None), move |operation| {
        let _open = (operation == Operation::Sync).then(|| held.lock());
        Ok(())
    });
    (Disk::open_backend(backend, std::path::Path::new("gated")).unwrap(), gate)
}

/// Queues writes until one is refused; returns the number of accepted ones, which must all be done in the end.
async fn fill(disk: &Disk, gate: &parking_lot::Mutex<()>, value: bytes::Bytes) -> usize {
    let closed = gate.lock();
    let mut answers = Vec::new();
    // Queued by the call, not by the first poll.
    let refused = loop {
        let mut answer = disk.txn(put(&answers.len().to_string(), value.clone()));
        match ready(&mut answer) {
            Some(refused) => break refused,
            None => answers.push(answer),
        }
    };
    assert!(matches!(refused, Err(kv::Error::Busy)), "{refused:?}");
    let shown = ready(&mut disk.revision()).unwrap().unwrap();
    assert_eq!(shown, Revision::ZERO, "nothing is shown before it is on the disk");
    drop(closed);
    let n_taken = answers.len();
    for answer in answers {
        assert!(matches!(answer.await, Ok(Outcome::Committed { .. })));
    }
    assert_eq!(disk.read().await.unwrap().entries.len(), n_taken);
    assert!(matches!(disk.txn(put("again", "x")).await, Ok(Outcome::Committed { .. })));
    n_taken
}

/// The future's output if it is ready.
fn ready<T>(future: &mut kv::BoxFuture<'_, T>) -> Option<T> {
    match future.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
        std::task::Poll::Ready(output) => Some(output),
        std::task::Poll::Pending => None,
    }
}

#[tokio::test]
async fn a_full_queue_says_try_again_and_loses_nothing() {
    let (disk, gate) = gated();
    let n_taken = fill(&disk, &gate, "x".into()).await;
    let with_one_batch = disk::WRITES_QUEUED_MAX + disk::BATCH_WRITES_MAX;
    assert!((disk::WRITES_QUEUED_MAX..=with_one_batch).contains(&n_taken), "{n_taken}");
}

#[tokio::test]
async fn a_queue_of_large_writes_is_full_by_its_bytes() {
    let (disk, gate) = gated();
    let n_taken = fill(&disk, &gate, vec![0; kv::VALUE_BYTES_MAX - 100].into()).await;
    assert_eq!(n_taken, disk::WRITE_BYTES_QUEUED_MAX / kv::VALUE_BYTES_MAX);
}

#[tokio::test]
async fn compaction_keeps_the_file_within_bounds() {
    let scratch = tempfile::tempdir().unwrap();
    let disk = Disk::open(scratch.path()).unwrap();
    // Incompressible, so that the size is the stored size.
    let value = |n: u64| -> bytes::Bytes {
        let mut state = n;
        let mut step = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        (0..4_000).map(|_| step()).collect::<Vec<_>>().into()
    };
    let length = |path: &std::path::Path| std::fs::metadata(path.join("store.redb")).unwrap().len();
    let mut sizes = Vec::new();
    for round in 0..6 {
        let writes: Vec<_> =
            (0..1_000).map(|n| disk.txn(put(&(n % 50).to_string(), value(round * 1_000 + n)))).collect();
        for write in writes {
            write.await.unwrap();
        }
        disk.compact(disk.revision().await.unwrap()).await.unwrap();
        sizes.push(length(scratch.path()));
    }
    assert!(*sizes.last().unwrap() <= 2 * sizes[0], "{sizes:?}");
    assert_eq!(disk.read().await.unwrap().entries.len(), 50);
}

#[tokio::test]
async fn objects_are_there_after_a_reopen_with_their_revisions() {
    let scratch = tempfile::tempdir().unwrap();
    let (pods, nodes) = (GroupResource::new("", "pods"), GroupResource::new("x.io", "nodes"));
    let json = |text: &str| bytes::Bytes::from(format!(r#"{{"metadata":{{"name":"{text}"}}}}"#));
    let open = async || Store::open(Arc::new(Disk::open(scratch.path()).unwrap()), Options::default()).await.unwrap();
    let store = open().await;
    let web = store.create(&pods, &ObjectKey::namespaced("a", "web"), json("web")).await.unwrap();
    let one = store.create(&nodes, &ObjectKey::cluster("one"), json("one")).await.unwrap();
    store.close().await.unwrap();
    drop(store);

    let store = open().await;
    assert_eq!(store.revision(), one.revision);
    assert_eq!(store.get_cached(&pods, &web.key).unwrap().json(), web.json());
    assert_eq!(store.get_cached(&nodes, &one.key).unwrap().json(), one.json());
    assert!(store.watch(&pods, Scope::All, one.revision).is_ok());
    // Events from before the reopen are in the log.
    let mut watcher = store.watch(&pods, Scope::All, Revision::ZERO).unwrap();
    let events = watcher.next_batch(9).await.unwrap();
    assert_eq!(
        events.iter().map(|event| (event.kind, event.revision)).collect::<Vec<_>>(),
        [(Kind::Added, web.revision)]
    );
    let past = store.list_at(&nodes, &Scope::All, web.revision, Page::ALL).await.unwrap();
    assert!(past.objects.is_empty());
    store.close().await.unwrap();
}

/// Writes directly to the engine, as a bug or another program would.
async fn write_raw(kv: &dyn Kv, key: &str, value: &str) -> Revision {
    match kv.txn(put(key, value.to_owned())).await.unwrap() {
        Outcome::Committed { revision } => revision,
        other => panic!("{other:?}"),
    }
}

async fn what_is_no_object_is_left_out_and_the_rest_lives_on(kv: Arc<dyn Kv>) {
    let pods = GroupResource::new("", "pods");
    let (web, db) = (ObjectKey::namespaced("a", "web"), ObjectKey::namespaced("a", "db"));
    write_raw(&*kv, "nonsense", "{}").await;
    let bad = write_raw(&*kv, "/pods/a/web", "no json").await;
    write_raw(&*kv, "/pods/a/db", r#"{"metadata":{}}"#).await;
    let store = Store::open(kv.clone(), Options::default()).await.unwrap();
    assert_eq!((store.stats().unreadable, store.stats().objects), (2, 1));
    let json = || bytes::Bytes::from(r#"{"metadata":{}}"#);
    let refused = store.create(&pods, &web, json()).await;
    assert!(
        matches!(&refused, Err(WriteError::Unreadable { key, revision }) if *key == web && *revision == bad),
        "{refused:?}"
    );

    // A value written while the store runs: its change is left out, the others are not.
    write_raw(&*kv, "/pods/a/db", "\u{1}").await;
    let more = store.create(&pods, &ObjectKey::namespaced("a", "more"), json()).await.unwrap();
    assert!(store.get(&pods, &more.key).await.unwrap().is_some());
    let read = store.get(&pods, &db).await;
    assert!(matches!(&read, Err(ReadError::Unreadable { key, .. }) if *key == db), "{read:?}");
    assert!(store.get_cached(&pods, &db).is_some(), "what was there before is still shown in lists");
    assert_eq!(store.stats().unreadable, 3);
    assert!(store.health().is_ok());
    // A valid value makes it an object again.
    let good = write_raw(&*kv, "/pods/a/web", r#"{"metadata":{}}"#).await;
    assert_eq!(store.get(&pods, &web).await.unwrap().unwrap().revision, good);
    assert_eq!(store.stats().unreadable, 2);
    store.update(&pods, &web, good, json()).await.unwrap();
    // Its deletion frees the key for a new object.
    assert!(store.delete_unreadable(&pods, &web).await.unwrap().is_none(), "it can be read");
    assert!(store.delete_unreadable(&pods, &db).await.unwrap().is_some());
    assert_eq!((store.stats().unreadable, store.get(&pods, &db).await.unwrap().is_none()), (1, true));
    store.create(&pods, &db, json()).await.unwrap();
    store.close().await.unwrap();
}

#[tokio::test]
async fn what_is_no_object_is_left_out_and_the_rest_lives_on_both_engines() {
    what_is_no_object_is_left_out_and_the_rest_lives_on(Arc::new(Memory::new())).await;
    let scratch = tempfile::tempdir().unwrap();
    what_is_no_object_is_left_out_and_the_rest_lives_on(Arc::new(Disk::open(scratch.path()).unwrap())).await;
}

#[tokio::test]
async fn a_page_of_the_past_reaches_beyond_entries_that_are_no_objects() {
    let scratch = tempfile::tempdir().unwrap();
    let pods = GroupResource::new("", "pods");
    let disk = Arc::new(Disk::open(scratch.path()).unwrap());
    for name in ["a", "b", "c"] {
        write_raw(&*disk, &format!("/pods/x/{name}"), "no json").await;
    }
    let then = write_raw(&*disk, "/pods/x/d", r#"{"metadata":{"name":"d"}}"#).await;
    write_raw(&*disk, "/pods/x/e", r#"{"metadata":{"name":"e"}}"#).await;
    // The cache has no history from before it was opened.
    let store = Store::open(disk, Options::default()).await.unwrap();
    let page = Page { limit: Some(2), start_after: None };
    let listed = store.list_at(&pods, &Scope::All, then, page).await.unwrap();
    assert_eq!(listed.objects.len(), 1);
    let kept = store.list_where_at(&pods, &Scope::All, then, page, |_| true).await.unwrap();
    assert_eq!(kept.objects[0].key, ObjectKey::namespaced("x", "d"));
    store.close().await.unwrap();
}

/// A watch from before the ring meets a value that was no object.
async fn a_watch_of_the_past_does_not_leave_out_what_it_cannot_tell(kv: Arc<dyn Kv>) {
    let pods = GroupResource::new("", "pods");
    let json = r#"{"metadata":{}}"#;
    write_raw(&*kv, "/pods/a/web", json).await;
    let readable = write_raw(&*kv, "/pods/a/db", json).await;
    write_raw(&*kv, "/pods/a/web", "no json").await;
    let both = vec![Op::Put { key: "/pods/a/db".into(), value: json.into() }, Op::Delete { key: "/pods/a/web".into() }];
    kv.txn(Txn { compares: Vec::new(), ops: both }).await.unwrap();
    let then = write_raw(&*kv, "/pods/a/web", json).await;
    let store = Store::open(kv, Options::default()).await.unwrap();
    let mut watcher = store.watch(&pods, Scope::All, Revision::ZERO).unwrap();
    let mut seen = Vec::new();
    let end = loop {
        match watcher.next_batch(1).await {
            Ok(events) => seen.extend(events.iter().map(|event| event.revision)),
            Err(end) => break end,
        }
    };
    assert_eq!(seen, [Revision(1), readable], "what is before it, once");
    assert_eq!(end, WatchError::Lagged { oldest: Revision(4) });
    // A watch from a list does not meet it.
    let list = store.list(&pods, &Scope::All, At::Latest, Page::ALL).unwrap();
    assert_eq!((list.objects.len(), list.revision), (2, then));
    let mut watcher = store.watch(&pods, Scope::All, list.revision).unwrap();
    assert!(watcher.try_next_batch(1).unwrap().is_empty());
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_watch_of_the_past_does_not_leave_out_what_it_cannot_tell_on_both_engines() {
    a_watch_of_the_past_does_not_leave_out_what_it_cannot_tell(Arc::new(Memory::new())).await;
    let scratch = tempfile::tempdir().unwrap();
    a_watch_of_the_past_does_not_leave_out_what_it_cannot_tell(Arc::new(Disk::open(scratch.path()).unwrap())).await;
}

#[tokio::test]
async fn few_read_the_past_at_once_and_all_get_it() {
    const AT_ONCE: usize = 4;
    const N_READS: usize = 20;
    // More than redb keeps in its cache.
    let image = {
        let storage = Faulty::new(Vec::new(), Fault::None);
        let disk = Disk::open_backend(storage.clone(), std::path::Path::new("past")).unwrap();
        for n in 0..100 {
            disk.txn(put(&format!("{n:04}"), random_letters(n, 80_000))).await.unwrap();
        }
        disk.close().await.unwrap();
        storage.image_after_crash(0)
    };
    let reading = Arc::new(tokio::sync::watch::Sender::new((0usize, 0usize)));
    // Reads pass while the store opens, wait when the test begins, and pass again.
    let gate = Arc::new((parking_lot::Mutex::new(true), parking_lot::Condvar::new()));
    let before = {
        let (reading, gate) = (reading.clone(), gate.clone());
        move |operation| {
            if operation == Operation::Read {
                reading.send_modify(|(now, most)| {
                    *now += 1;
                    *most = (*most).max(*now);
                });
                gate.1.wait_while(&mut gate.0.lock(), |is_open| !*is_open);
                reading.send_modify(|(now, _)| *now -= 1);
            }
            Ok(())
        }
    };
    let backend = Intercepted::new(Faulty::new(image, Fault::None), before);
    let disk = Arc::new(Disk::open_backend(backend, std::path::Path::new("past")).unwrap());
    *gate.0.lock() = false;
    reading.send_replace((0, 0));
    let mut reads = tokio::task::JoinSet::new();
    for _ in 0..N_READS {
        let disk = disk.clone();
        let past = kv::Past { after: Revision::ZERO, limit: 5_000, prefix: "00".into(), through: Revision(100) };
        reads.spawn(async move { disk.history(past).await.unwrap().changes.len() });
    }
    reading.subscribe().wait_for(|(now, _)| *now == AT_ONCE).await.unwrap();
    *gate.0.lock() = true;
    gate.1.notify_all();
    assert_eq!(reads.join_all().await, [100; N_READS]);
    assert_eq!(*reading.borrow(), (0, AT_ONCE));
}

#[tokio::test]
async fn a_long_history_is_read_in_parts_also_where_nothing_is_found() {
    let disk = Disk::open_backend(Faulty::new(Vec::new(), Fault::None), std::path::Path::new("long")).unwrap();
    for _ in 0..200 {
        let ops = (0..100).map(|n| Op::Put { key: format!("a{n}").into(), value: "1".into() }).collect();
        disk.txn(Txn { compares: Vec::new(), ops }).await.unwrap();
    }
    let last = disk.txn(put("b", "1")).await.unwrap();
    let mut past = kv::Past { after: Revision::ZERO, limit: 1, prefix: "b".into(), through: Revision(201) };
    let first = disk.history(past.clone()).await.unwrap();
    assert!(first.changes.is_empty() && (Revision(100)..Revision(200)).contains(&first.progress), "{first:?}");
    past.after = first.progress;
    let second = disk.history(past).await.unwrap();
    assert_eq!((second.changes.len(), second.progress), (1, Revision(201)), "{last:?}");
}

/// The disk has a limited size; later it has room again.
#[tokio::test]
async fn a_full_disk_refuses_writes_keeps_what_was_acknowledged_and_recovers_with_room() {
    let storage = Faulty::new(Vec::new(), Fault::None);
    let is_full = |limit: u64| {
        move |operation| match operation {
            Operation::Write(end) | Operation::SetLength(end) if limit < end => {
                Err(std::io::ErrorKind::StorageFull.into())
            }
            _ => Ok(()),
        }
    };
    let path = std::path::Path::new("full");
    let disk = Disk::open_backend(Intercepted::new(storage.clone(), is_full(3_000_000)), path).unwrap();
    let values: Vec<String> = (0..100).map(|n| random_letters(n, 40_000)).collect();
    let mut n_held = 0;
    let refused = loop {
        match disk.txn(put(&format!("{n_held:03}"), values[n_held].clone())).await {
            Ok(_) => n_held += 1,
            Err(refused) => break refused,
        }
    };
    assert!(0 < n_held);
    assert_eq!(
        refused.to_string(),
        "the store takes no writes after one failed: its disk is full, so make room and restart to recover"
    );
    assert_eq!(disk.health().unwrap_err().to_string(), refused.to_string());
    assert!(matches!(disk.txn(put("small", "x")).await, Err(kv::Error::Poisoned { .. })));
    assert_eq!(disk.read().await.unwrap().entries.len(), n_held, "reads go on");
    assert!(disk.close().await.is_err());
    drop(disk);
    for seed in 0..4 {
        // The same holds when the machine crashes then, and when the disk is still full.
        let storage = Faulty::new(storage.image_after_crash(seed), Fault::None);
        if let Ok(full) = Disk::open_backend(Intercepted::new(storage.clone(), is_full(3_000_000)), path) {
            let found = full.read().await.unwrap().entries.len();
            assert!((n_held..=n_held + 1).contains(&found), "seed {seed}: {found}");
        }
        let disk = Disk::open_backend(storage, path).unwrap();
        let before = disk.read().await.unwrap().entries;
        assert!((n_held..=n_held + 1).contains(&before.len()), "seed {seed}");
        assert!(before.iter().zip(&values).all(|(entry, value)| entry.value == value), "seed {seed}");
        disk.txn(put("small", "x")).await.unwrap();
        disk.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_panic_of_the_writer_poisons_the_store_and_answers_everyone() {
    let backend = Faulty::new(Vec::new(), Fault::None);
    let disk = Arc::new(Disk::open_backend(backend.clone(), std::path::Path::new("panics")).unwrap());
    let store = Store::open(disk.clone(), Options::default()).await.unwrap();
    disk.txn(put("a", "1")).await.unwrap();
    backend.panic_from_now_on();
    let waiting: Vec<_> = (0..2_000).map(|n| disk.txn(put(&n.to_string(), "x"))).collect();
    for answer in waiting {
        let error = answer.await.unwrap_err();
        assert!(
            matches!(&error, kv::Error::Poisoned { source, .. } if source.to_string().contains("panicked")),
            "{error:?}"
        );
    }
    assert!(matches!(disk.health(), Err(kv::Error::Poisoned { .. })));
    assert!(matches!(store.health(), Err(kv::Error::Poisoned { .. })));
    assert!(matches!(disk.txn(put("b", "1")).await, Err(kv::Error::Poisoned { .. })));
    assert!(matches!(disk.compact(Revision(1)).await, Err(kv::Error::Poisoned { .. })));
    assert!(matches!(store.close().await, Err(kv::Error::Poisoned { .. })));
}

/// An engine with keys of others that we do not see: its revision advances without changes of ours.
#[derive(Debug)]
struct SharedWithOthers(Memory);

struct Ours(Box<dyn kv::Watch>);

fn is_ours(key: &[u8]) -> bool {
    !key.starts_with(b"others/")
}

impl kv::Watch for Ours {
    fn next(&mut self) -> kv::BoxFuture<'_, Result<kv::Batch, kv::Error>> {
        Box::pin(async {
            let mut batch = self.0.next().await?;
            batch.events.retain(|event| is_ours(&event.key));
            Ok(batch)
        })
    }
}

impl Kv for SharedWithOthers {
    fn is_shared(&self) -> bool {
        true
    }

    fn revision(&self) -> kv::BoxFuture<'_, Result<Revision, kv::Error>> {
        self.0.revision()
    }
    fn read(&self) -> kv::BoxFuture<'_, Result<kv::Snapshot, kv::Error>> {
        Box::pin(async {
            let mut snapshot = self.0.read().await?;
            snapshot.entries.retain(|entry| is_ours(&entry.key));
            Ok(snapshot)
        })
    }
    fn range(&self, request: kv::Range) -> kv::BoxFuture<'_, Result<kv::Part, kv::Error>> {
        self.0.range(request)
    }
    fn history(&self, request: kv::Past) -> kv::BoxFuture<'_, Result<kv::Changes, kv::Error>> {
        self.0.history(request)
    }
    fn volume(&self) -> Option<kv::Volume> {
        let own = self.0.volume()?;
        Some(kv::Volume { revision: Revision(2 * own.revision.0), ..own })
    }

    fn oldest(&self) -> kv::BoxFuture<'_, Result<Revision, kv::Error>> {
        self.0.oldest()
    }
    fn txn(&self, txn: Txn) -> kv::BoxFuture<'_, Result<Outcome, kv::Error>> {
        self.0.txn(txn)
    }
    fn watch(&self, after: Revision) -> Box<dyn kv::Watch> {
        Box::new(Ours(self.0.watch(after)))
    }
    fn compact(&self, through: Revision) -> kv::BoxFuture<'_, Result<(), kv::Error>> {
        self.0.compact(through)
    }
    fn health(&self) -> Result<(), kv::Error> {
        self.0.health()
    }
    fn close(&self) -> kv::BoxFuture<'_, Result<(), kv::Error>> {
        self.0.close()
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_waits_for_no_change_of_others() {
    let kv = Arc::new(SharedWithOthers(Memory::new()));
    let options = Options { compactor: Compactor::Another, ..Options::default() };
    let store = Store::open(kv.clone(), options).await.unwrap();
    let pods = GroupResource::new("", "pods");
    let mut watcher = store.watch(&pods, Scope::All, Revision::ZERO).unwrap();
    for n in 1..=3 {
        let others = write_raw(&*kv, "others/x", "something").await;
        assert_eq!((store.sync().await.unwrap(), others), (Revision(n), Revision(n)));
    }
    assert_eq!(watcher.advance(), Revision(3), "a bookmark too");
    assert_eq!(store.stats(), Stats { objects: 0, oldest: Revision::ZERO, revision: Revision(3), unreadable: 0 });
    // Far beyond this store's limit: another store compacts.
    tokio::time::sleep(std::time::Duration::from_secs(3_600)).await;
    assert_eq!(kv.oldest().await.unwrap(), Revision::ZERO);
}

#[tokio::test(start_paused = true)]
async fn the_engine_is_compacted_by_age() {
    let kv = Arc::new(Memory::new());
    let history = std::time::Duration::from_secs(60);
    let store = Store::open(kv.clone(), Options { history, ..Options::default() }).await.unwrap();
    for _ in 0..3 {
        write_raw(&*kv, "/pods/a/web", r#"{"metadata":{}}"#).await;
    }
    store.sync().await.unwrap();
    tokio::time::sleep(history - std::time::Duration::from_secs(20)).await;
    assert_eq!(kv.oldest().await.unwrap(), Revision::ZERO);
    write_raw(&*kv, "/pods/a/web", r#"{"metadata":{}}"#).await;
    tokio::time::sleep(std::time::Duration::from_secs(40)).await;
    assert_eq!((kv.oldest().await.unwrap(), store.stats().oldest), (Revision(3), Revision(3)));
    tokio::time::sleep(history).await;
    assert_eq!(kv.oldest().await.unwrap(), Revision(4));
}

/// An engine in which a key turns out to be damaged after it was loaded and before it is watched.
#[derive(Debug)]
struct DamagedMeanwhile {
    damaged: kv::Damaged,
    memory: Memory,
    /// Whether it is watched, and so the damage is known.
    is_watched: AtomicBool,
}

impl Kv for DamagedMeanwhile {
    fn is_shared(&self) -> bool {
        false
    }

    fn revision(&self) -> kv::BoxFuture<'_, Result<Revision, kv::Error>> {
        self.memory.revision()
    }
    fn read(&self) -> kv::BoxFuture<'_, Result<kv::Snapshot, kv::Error>> {
        self.memory.read()
    }
    fn range(&self, request: kv::Range) -> kv::BoxFuture<'_, Result<kv::Part, kv::Error>> {
        self.memory.range(request)
    }
    fn history(&self, request: kv::Past) -> kv::BoxFuture<'_, Result<kv::Changes, kv::Error>> {
        self.memory.history(request)
    }
    fn damaged(&self) -> Vec<kv::Damaged> {
        self.is_watched.load(Ordering::Relaxed).then(|| self.damaged.clone()).into_iter().collect()
    }
    fn volume(&self) -> Option<kv::Volume> {
        self.memory.volume()
    }
    fn oldest(&self) -> kv::BoxFuture<'_, Result<Revision, kv::Error>> {
        self.memory.oldest()
    }
    fn txn(&self, txn: Txn) -> kv::BoxFuture<'_, Result<Outcome, kv::Error>> {
        self.memory.txn(txn)
    }
    fn watch(&self, after: Revision) -> Box<dyn kv::Watch> {
        self.is_watched.store(true, Ordering::Relaxed);
        self.memory.watch(after)
    }
    fn compact(&self, through: Revision) -> kv::BoxFuture<'_, Result<(), kv::Error>> {
        self.memory.compact(through)
    }
    fn health(&self) -> Result<(), kv::Error> {
        self.memory.health()
    }
    fn close(&self) -> kv::BoxFuture<'_, Result<(), kv::Error>> {
        self.memory.close()
    }
}

/// An engine with one object, whose change at a revision will be damaged, and the store that has just opened it.
async fn damaged_meanwhile(revision: Revision) -> (Arc<DamagedMeanwhile>, Store) {
    let memory = Memory::new();
    write_raw(&memory, "/pods/a/web", r#"{"metadata":{}}"#).await;
    let damaged = kv::Damaged { key: "/pods/a/web".into(), revision, fault: "its value is lost".to_owned() };
    let kv = Arc::new(DamagedMeanwhile { damaged, memory, is_watched: AtomicBool::new(false) });
    let store = Store::open(kv.clone(), Options::default()).await.unwrap();
    (kv, store)
}

/// Waits until the object is written again at a revision.
async fn is_written_again(store: &Store, revision: Revision) {
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
    store.wait_for(revision, deadline).await.unwrap();
    let object = store.get(&GroupResource::new("", "pods"), &ObjectKey::namespaced("a", "web")).await.unwrap().unwrap();
    assert_eq!(object.revision, revision);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_damaged_while_the_store_opens_is_written_again_from_memory() {
    let (_kv, store) = damaged_meanwhile(Revision(1)).await;
    is_written_again(&store, Revision(2)).await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_damaged_before_the_cache_has_it_is_written_again_once_it_has() {
    let (kv, store) = damaged_meanwhile(Revision(2)).await;
    // The store looks at the damage, and has not seen the change.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!(write_raw(&*kv, "/pods/a/web", r#"{"metadata":{}}"#).await, Revision(2));
    is_written_again(&store, Revision(3)).await;
}

fn copy_of_format(format: u64, scratch: &std::path::Path) -> String {
    let testdata = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("testdata/format-{format}"));
    std::fs::copy(testdata.join("store.redb"), scratch.join("store.redb")).unwrap();
    std::fs::read_to_string(testdata.join("expected.txt")).unwrap()
}

/// The format of `expected.txt`: the revision, then an entry per line.
fn print(snapshot: &kv::Snapshot) -> String {
    let mut text = format!("revision {}\n", snapshot.revision);
    for kv::Entry { key, revision, value } in &snapshot.entries {
        let (key, value) = (String::from_utf8_lossy(key), String::from_utf8_lossy(value));
        text += &format!("{revision} {key} {value}\n");
    }
    text
}

#[tokio::test]
async fn a_file_of_an_older_format_is_read_and_is_of_this_format_from_then_on() {
    for format in 1..disk::FORMAT {
        a_file_of_a_format_is_read_and_is_of_this_format_from_then_on(format).await;
    }
}

async fn a_file_of_a_format_is_read_and_is_of_this_format_from_then_on(format: u64) {
    let scratch = tempfile::tempdir().unwrap();
    let want = copy_of_format(format, scratch.path());
    let report = disk::check(scratch.path(), |_| {}).unwrap();
    assert_eq!((report.format, report.faults.len(), report.damaged.len()), (format, 0, 0));
    let disk = Disk::open(scratch.path()).unwrap();
    let before = disk.read().await.unwrap();
    assert_eq!(print(&before), want);
    assert_eq!(disk.oldest().await.unwrap(), before.revision, "its history is gone");
    let name = before.entries[0].key.clone();
    let txn = Txn::single(Expect::At(before.entries[0].revision), Op::Delete { key: name.clone() });
    assert!(matches!(disk.txn(txn).await, Ok(Outcome::Committed { .. })));
    disk.close().await.unwrap();
    drop(disk);

    let path = scratch.path().join("store.redb");
    let database = redb::Database::open(&path).unwrap();
    let meta = redb::ReadableDatabase::begin_read(&database).unwrap();
    let meta = meta.open_table(redb::TableDefinition::<&str, u64>::new("meta")).unwrap();
    assert_eq!(redb::ReadableTable::get(&meta, "format").unwrap().unwrap().value(), disk::FORMAT);
    drop((meta, database));

    let disk = Arc::new(Disk::open(scratch.path()).unwrap());
    let after = disk.read().await.unwrap();
    assert_eq!(after.entries[..], before.entries[1..]);
    let past = disk.history(kv::Past { after: before.revision, limit: 9, prefix: name, through: after.revision }).await;
    assert_eq!(past.unwrap().changes[0].previous.as_ref(), before.entries.first());
    let store = Store::open(disk, Options::default()).await.unwrap();
    let networks = GroupResource::new("samplecrd.k8s.io", "networks");
    let list = store.list(&networks, &Scope::All, At::Latest, Page::ALL).unwrap();
    let n_networks = want.lines().filter(|line| line.contains(" samplecrd.k8s.io/networks/")).count();
    assert_eq!((list.objects.len(), store.stats().unreadable), (n_networks, 0));
    let meta = list.objects[0].meta();
    assert!(meta.has_finalizer("example.com/hold") && meta.label("app") == Some("fixture"));
    assert_eq!(meta.owner_references().next().unwrap().name, "one");
}

#[tokio::test]
async fn an_upgrade_that_loses_power_is_done_again() {
    for format in 1..disk::FORMAT {
        an_upgrade_of_a_format_that_loses_power_is_done_again(format).await;
    }
}

async fn an_upgrade_of_a_format_that_loses_power_is_done_again(format: u64) {
    let scratch = tempfile::tempdir().unwrap();
    let want = copy_of_format(format, scratch.path());
    let image = std::fs::read(scratch.path().join("store.redb")).unwrap();
    let calm = Faulty::new(image.clone(), Fault::None);
    drop(Disk::open_backend(calm.clone(), std::path::Path::new("calm")).unwrap());
    for at_operation in 1..=calm.counts().0 {
        let backend = Faulty::new(image.clone(), Fault::Power { at_operation });
        drop(Disk::open_backend(backend.clone(), std::path::Path::new("faulty")));
        let after = Faulty::new(backend.image_after_crash(at_operation), Fault::None);
        let disk = Disk::open_backend(after, std::path::Path::new("after")).unwrap();
        assert_eq!(print(&disk.read().await.unwrap()), want, "power lost at operation {at_operation}");
    }
}

#[test]
fn a_damaged_file_of_an_older_format_is_refused_since_it_has_no_checksums() {
    let scratch = tempfile::tempdir().unwrap();
    copy_of_format(2, scratch.path());
    let path = scratch.path().join("store.redb");
    let image = std::fs::read(&path).unwrap();
    // A byte in the value of a Secret.
    let at = image.windows(10).rposition(|bytes| bytes == b"\"kind\":\"Se").unwrap();
    let mut damaged = image.clone();
    damaged[at + 40] ^= 4;
    std::fs::write(&path, &damaged).unwrap();
    let error = Disk::open(scratch.path()).unwrap_err();
    assert!(matches!(error, disk::OpenError::Damaged { .. }), "{error:?}");
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(
        source.starts_with("it is of an older format, whose changes have no checksums: the page at byte"),
        "{source}"
    );
    assert_eq!(std::fs::read(&path).unwrap(), damaged);
}

#[cfg(unix)]
#[tokio::test]
async fn what_is_stored_is_readable_by_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("a/b");
    let _disk = Disk::open(&dir).unwrap();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    assert_eq!(mode(&dir.join("store.redb")), 0o600);
}

#[tokio::test]
async fn a_watch_far_behind_reads_on_from_the_file() {
    let scratch = tempfile::tempdir().unwrap();
    let disk = Disk::open(scratch.path()).unwrap();
    // More than is kept in memory.
    let value = bytes::Bytes::from(vec![b'x'; 16 * 1024]);
    let mut watch = disk.watch(Revision::ZERO);
    for n in 0..3u64 {
        let writes: Vec<_> = (0..200).map(|m| disk.txn(put(&format!("{n}-{m}"), value.clone()))).collect();
        for write in writes {
            write.await.unwrap();
        }
    }
    let mut revisions = Vec::new();
    while revisions.len() < 600 {
        for event in watch.next().await.unwrap().events {
            assert_eq!(event.value.as_ref(), Some(&value));
            revisions.push(event.revision.0);
        }
    }
    assert_eq!(revisions, (1..=600).collect::<Vec<_>>());
}
