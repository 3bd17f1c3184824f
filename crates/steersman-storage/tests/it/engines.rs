//! Every engine against the contract, and what is particular to the one on a disk.

use crate::faulty::{Fault, Faulty, Gated};
use std::sync::Arc;
use steersman_machinery::{GroupResource, ObjectKey, Revision};
use steersman_storage::kv::{self, Expect, Kv, Op, Outcome, Txn};
use steersman_storage::{Disk, Memory, Options, Scope, Store, conformance, disk};

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
    conformance::durable(async || Arc::new(Disk::open(scratch.path()).unwrap()) as Arc<dyn Kv>).await;
}

fn put(key: &str, value: impl Into<bytes::Bytes>) -> Txn {
    Txn { compares: Vec::new(), ops: vec![Op::Put { key: key.to_owned().into(), value: value.into() }] }
}

#[tokio::test]
async fn a_held_directory_is_refused_and_free_after_close() {
    let scratch = tempfile::tempdir().unwrap();
    let disk = Disk::open(scratch.path()).unwrap();
    let error = Disk::open(scratch.path()).unwrap_err();
    assert!(matches!(&error, disk::OpenError::Held { dir } if dir == scratch.path()));
    assert!(error.to_string().starts_with(&format!("another process holds {:?}", scratch.path())), "{error}");
    disk.close().await.unwrap();
    // `disk` is still there: closing is what frees.
    Disk::open(scratch.path()).unwrap();
}

#[tokio::test]
async fn a_file_of_another_format_is_refused_by_number() {
    let scratch = tempfile::tempdir().unwrap();
    drop(Disk::open(scratch.path()).unwrap());
    let path = scratch.path().join("store.redb");
    let database = redb::Database::open(&path).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(redb::TableDefinition::<&str, u64>::new("meta")).unwrap().insert("format", 2).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let error = Disk::open(scratch.path()).unwrap_err();
    assert!(matches!(error, disk::OpenError::Format { found: 2, want: disk::FORMAT, .. }), "{error}");
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

fn gated() -> (Disk, Arc<parking_lot::Mutex<()>>) {
    let gate = Arc::new(parking_lot::Mutex::new(()));
    let backend = Gated { disk: Faulty::new(Vec::new(), Fault::None), gate: gate.clone() };
    (Disk::open_backend(backend, std::path::Path::new("gated")).unwrap(), gate)
}

/// Queues writes until one is refused; how many were taken, all of which must be done in the end.
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

/// The future's output if it is there already.
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
    // Not compressible, so that the size is what is stored.
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
    assert!(store.watch(&pods, Scope::All, web.revision).is_err(), "history begins anew");
    assert!(store.watch(&pods, Scope::All, one.revision).is_ok());
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_stored_thing_that_is_no_object_is_named_at_open() {
    for (key, value) in [("nonsense", "{}"), ("/pods/a/b", "no json")] {
        let memory = Memory::new();
        memory.txn(Txn::single(Expect::Absent, put(key, value).ops.remove(0))).await.unwrap();
        let error = Store::open(Arc::new(memory), Options::default()).await.unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains(key), "{cause}");
    }
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
        for event in watch.next().await.unwrap() {
            assert_eq!(event.value.as_ref(), Some(&value));
            revisions.push(event.revision.0);
        }
    }
    assert_eq!(revisions, (1..=600).collect::<Vec<_>>());
}
