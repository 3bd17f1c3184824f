//! The contract of every engine, as checks that panic where one breaks it: run [`kv`] over a new engine, and
//! [`durable`] over one that can be reopened.
//!
//! Part of the crate and not of its tests, so that the same suite checks engines in other crates. Revisions count from the
//! one that a new engine has, so it may have any; nobody else may write to it meanwhile.

use crate::kv::{
    Batch, BoxFuture, Change, Changes, Compare, Damaged, Entry, Error, Event, Expect, Kv, Limits, Op, Outcome, Part,
    Past, Range, SCAN_BYTES, Scan, Snapshot, Take, Txn, Volume, Watch,
};
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use steersman_machinery::Revision;

/// Runs every check, each on an engine of its own.
///
/// # Panics
/// Where the engine breaks the contract.
pub async fn kv<F: AsyncFn() -> Arc<dyn Kv>>(new: F) {
    a_scan_is_the_state_at_one_revision(Rebased::at_newest(new().await).await).await;
    transforming(new).await;
}

/// Runs every check but that of [`Kv::scan`], which has values as they are stored, for an engine that gives them another form than
/// that in which they are read.
///
/// # Panics
/// Where the engine breaks the contract.
pub async fn transforming<F: AsyncFn() -> Arc<dyn Kv>>(new: F) {
    let new = async || Rebased::at_newest(new().await).await;
    revisions_count_changes(new().await).await;
    compares_guard_the_whole_transaction(new().await).await;
    unacceptable_transactions_change_nothing(new().await).await;
    a_snapshot_is_in_key_order(new().await).await;
    a_watch_sees_every_change_once_in_order(new().await).await;
    a_waiting_watch_is_woken(new().await).await;
    compaction_takes_history_and_nothing_else(new().await).await;
    concurrent_writers_get_distinct_revisions(new().await).await;
    a_range_is_the_state_at_its_revision(new().await).await;
    an_entry_is_found_by_its_revision(new().await).await;
    history_says_what_was_before(new().await).await;
    what_is_superseded_is_weighed(new().await).await;
    a_closed_engine_says_so(new().await).await;
}

/// The changes that advance an engine's revision.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Counter {
    /// Only transactions.
    Own,
    /// Other things too: an opening or a closing may.
    Shared,
}

/// Checks that everything acknowledged is present after a reopen, and that the revision does not decrease.
///
/// # Panics
/// Where the engine breaks the contract.
pub async fn durable<F: AsyncFn() -> Arc<dyn Kv>>(counter: Counter, reopen: F) {
    let kv = reopen().await;
    let base = kv.revision().await.expect("revision");
    let kv = Rebased::at(base, kv);
    let reopen = async || Rebased::at(base, reopen().await);
    let is_newest = |revision: Revision, last: Revision| match counter {
        Counter::Own => revision == last,
        Counter::Shared => last <= revision,
    };
    put(&*kv, "a", "1").await;
    put(&*kv, "b", "1").await;
    put(&*kv, "a", "2").await;
    let last = delete(&*kv, "b").await;
    let before = kv.read().await.expect("read");
    kv.close().await.expect("close");
    drop(kv);

    let kv = reopen().await;
    assert_eq!(kv.read().await.expect("read").entries, before.entries, "everything is there after a reopen");
    assert!(is_newest(kv.revision().await.expect("revision"), last), "the revision does not decrease");
    let history = pull(&*kv, Revision::ZERO, 4).await;
    assert_eq!(history.last(), Some(&change("b", last.0, None)), "history is there after a reopen");
    // After compaction of the newest change, only the counter remembers its revision.
    kv.compact(last).await.expect("compact");
    kv.close().await.expect("close");
    drop(kv);

    let kv = reopen().await;
    assert!(is_newest(kv.revision().await.expect("revision"), last), "a compacted revision is not given twice");
    assert_eq!(kv.read().await.expect("read").entries, before.entries);
    let error = kv.watch(Revision::ZERO).next().await.expect_err("history is gone");
    assert!(matches!(error, Error::Compacted { oldest, .. } if oldest == last), "{error}");
    let next = put(&*kv, "c", "1").await;
    assert!(last < next && is_newest(next, last.next()), "{next} follows {last}");
    kv.close().await.expect("close");
}

async fn revisions_count_changes(kv: Arc<dyn Kv>) {
    assert_eq!(kv.revision().await.expect("revision"), Revision::ZERO, "a new engine is at zero");
    assert_eq!(put(&*kv, "a", "1").await, Revision(1));
    assert_eq!(put(&*kv, "b", "1").await, Revision(2), "one counter for all keys");
    let two = Txn { compares: Vec::new(), ops: vec![op("a", Some("2")), op("c", Some("1"))] };
    assert_eq!(committed(kv.txn(two).await), Revision(3), "one revision for a transaction");
    assert_eq!(delete(&*kv, "nothing").await, Revision(3), "no change, no revision");
    assert_eq!(committed(kv.txn(Txn::default()).await), Revision(3), "no change, no revision");
    assert_eq!(delete(&*kv, "a").await, Revision(4));
    assert_eq!(kv.revision().await.expect("revision"), Revision(4));
}

async fn compares_guard_the_whole_transaction(kv: Arc<dyn Kv>) {
    let create = || Txn::single(Expect::Absent, op("a", Some("1")));
    assert_eq!(committed(kv.txn(create()).await), Revision(1));
    let failed = |found| Outcome::Failed { revision: Revision(1), found };
    assert_eq!(kv.txn(create()).await.expect("txn"), failed(vec![Some(Revision(1))]));
    let update = Txn::single(Expect::At(Revision(9)), op("a", Some("2")));
    assert_eq!(kv.txn(update).await.expect("txn"), failed(vec![Some(Revision(1))]));
    let half = Txn {
        compares: vec![compare("a", Expect::At(Revision(1))), compare("b", Expect::At(Revision(1)))],
        ops: vec![op("a", Some("2")), op("b", Some("2"))],
    };
    assert_eq!(kv.txn(half).await.expect("txn"), failed(vec![Some(Revision(1)), None]));
    assert_eq!(values(&*kv).await, [("a".to_owned(), 1, "1".to_owned())], "nothing was changed");
    let both = Txn {
        compares: vec![compare("a", Expect::At(Revision(1))), compare("b", Expect::Absent)],
        ops: vec![op("a", None), op("b", Some("2"))],
    };
    assert_eq!(committed(kv.txn(both).await), Revision(2));
    assert_eq!(values(&*kv).await, [("b".to_owned(), 2, "2".to_owned())]);
    assert_eq!(committed(kv.txn(create()).await), Revision(3), "a deleted key is absent");
}

async fn unacceptable_transactions_change_nothing(kv: Arc<dyn Kv>) {
    let limits = kv.limits();
    let twice = Txn { compares: Vec::new(), ops: vec![op("a", Some("1")), op("a", None)] };
    assert!(matches!(kv.txn(twice).await, Err(Error::Duplicate { .. })));
    let large = Op::Put { key: bytes("a"), value: vec![0; limits.value_bytes + 1].into() };
    let large = Txn { compares: Vec::new(), ops: vec![op("b", Some("1")), large] };
    assert!(matches!(kv.txn(large).await, Err(Error::TooLarge { actual, .. }) if actual == limits.value_bytes + 1));
    let long = Op::Delete { key: vec![b'a'; limits.key_bytes + 1].into() };
    let long = Txn { compares: Vec::new(), ops: vec![op("b", Some("1")), long] };
    assert!(matches!(kv.txn(long).await, Err(Error::TooLarge { actual, .. }) if actual == limits.key_bytes + 1));
    let ops = (0..=limits.txn_ops).map(|n| op(&n.to_string(), Some("1"))).collect();
    assert!(matches!(kv.txn(Txn { compares: Vec::new(), ops }).await, Err(Error::TooLarge { .. })));
    assert_eq!(kv.revision().await.expect("revision"), Revision::ZERO);
    let largest = Op::Put { key: bytes("a"), value: vec![7; limits.value_bytes].into() };
    committed(kv.txn(Txn { compares: Vec::new(), ops: vec![largest] }).await);
    assert_eq!(kv.read().await.expect("read").entries[0].value.len(), limits.value_bytes);
    let keys = || (0..limits.txn_ops).map(|n| n.to_string());
    let compares = keys().map(|key| compare(&key, Expect::Absent)).collect();
    let ops = keys().map(|key| op(&key, Some("1"))).collect();
    let last = committed(kv.txn(Txn { compares, ops }).await);
    assert_eq!(last, Revision(2), "as many operations as the engine takes");
}

async fn a_snapshot_is_in_key_order(kv: Arc<dyn Kv>) {
    for key in ["b", "a/", "a", "a0", "a-", "c"] {
        put(&*kv, key, key).await;
    }
    put(&*kv, "a", "").await;
    delete(&*kv, "c").await;
    let keys: Vec<String> = values(&*kv).await.into_iter().map(|(key, ..)| key).collect();
    assert_eq!(keys, ["a", "a-", "a/", "a0", "b"]);
    assert_eq!(kv.read().await.expect("read").revision, Revision(8));
    assert_eq!(values(&*kv).await[0], ("a".to_owned(), 7, String::new()), "an empty value is a value");
    let loaded = Arc::new(Mutex::new(Vec::new()));
    let taken = loaded.clone();
    let revision = kv.load(Arc::new(move |part| taken.lock().extend(part))).await.expect("load");
    let mut loaded = std::mem::take(&mut *loaded.lock());
    loaded.sort_unstable_by(|a: &Entry, b: &Entry| a.key.cmp(&b.key));
    assert_eq!((loaded, revision), (kv.read().await.expect("read").entries, Revision(8)), "a load has the same");
}

/// All entries of a scan, in key order, and the number of its parts.
async fn scanned(mut scan: Box<dyn Scan>) -> (Snapshot, usize) {
    let (mut entries, mut n_parts) = (Vec::new(), 0);
    loop {
        let part = scan.next().await.expect("next");
        if part.is_empty() {
            break;
        }
        let bytes: usize = part.iter().map(|entry| entry.value.len()).sum();
        assert!(part.len() == 1 || bytes < 8 * SCAN_BYTES, "a part is bounded: {bytes} bytes");
        entries.extend(part);
        n_parts += 1;
    }
    entries.sort_by(|a: &Entry, b: &Entry| a.key.cmp(&b.key));
    (Snapshot { entries, revision: scan.revision() }, n_parts)
}

async fn a_scan_is_the_state_at_one_revision(kv: Arc<dyn Kv>) {
    let (nothing, n_parts) = scanned(kv.scan().await.expect("scan")).await;
    assert_eq!((nothing, n_parts), (Snapshot { entries: Vec::new(), revision: Revision::ZERO }, 0));
    for n in 0..40 {
        let value = vec![b'a' + n; SCAN_BYTES / 4];
        let put = Op::Put { key: bytes(&format!("key-{n:02}")), value: value.into() };
        committed(kv.txn(Txn { compares: Vec::new(), ops: vec![put] }).await);
    }
    put(&*kv, "key-03", "again").await;
    delete(&*kv, "key-05").await;
    delete(&*kv, "key-06").await;
    put(&*kv, "key-06", "anew").await;
    let before = kv.read().await.expect("read");
    let scan = kv.scan().await.expect("scan");
    put(&*kv, "key-01", "later").await;
    delete(&*kv, "key-39").await;
    put(&*kv, "key-40", "later").await;
    let newest = kv.revision().await.expect("revision");
    kv.compact(scan.revision()).await.expect("compact");
    let (state, n_parts) = scanned(scan).await;
    assert!(2 <= n_parts, "{n_parts}");
    assert_eq!((&state.entries, state.revision), (&before.entries, before.revision));
    kv.compact(newest).await.expect("compact");
    let (state, _) = scanned(kv.scan().await.expect("scan")).await;
    assert_eq!(state, kv.read().await.expect("read"));
    assert_eq!(state.revision, newest);
}

async fn a_watch_sees_every_change_once_in_order(kv: Arc<dyn Kv>) {
    put(&*kv, "a", "1").await;
    let two = Txn { compares: Vec::new(), ops: vec![op("b", Some("1")), op("a", Some("2"))] };
    committed(kv.txn(two).await);
    delete(&*kv, "a").await;
    let all = [change("a", 1, Some("1")), change("b", 2, Some("1")), change("a", 2, Some("2")), change("a", 3, None)];
    for (after, from) in [(0, 0), (1, 1), (2, 3)] {
        assert_eq!(pull(&*kv, Revision(after), all.len() - from).await, all[from..], "after {after}");
    }
    // More than any one pull returns; a transaction is never split.
    let many = |n: u64| (0..100).map(|key| op(&format!("n{key}"), Some(&n.to_string()))).collect();
    for n in 4..16 {
        assert_eq!(committed(kv.txn(Txn { compares: Vec::new(), ops: many(n) }).await), Revision(n));
    }
    let mut watch = kv.watch(Revision(3));
    let mut revisions = Vec::new();
    while revisions.len() < 1_200 {
        let pulled = watch.next().await.expect("watch").events;
        assert!(pulled.len() % 100 == 0, "{} changes of transactions of 100", pulled.len());
        revisions.extend(pulled.iter().map(|event| event.revision.0));
    }
    assert_eq!(revisions, (4..16).flat_map(|n| [n; 100]).collect::<Vec<_>>());
}

async fn a_waiting_watch_is_woken(kv: Arc<dyn Kv>) {
    let mut future = kv.watch(Revision(1));
    let mut present = kv.watch(Revision::ZERO);
    {
        // A dropped pull has consumed nothing.
        let mut given_up = present.next();
        std::future::poll_fn(|context| {
            assert!(given_up.as_mut().poll(context).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
    }
    let (woken, _) = tokio::join!(present.next(), put(&*kv, "a", "1"));
    assert_eq!(woken.expect("watch").events, [change("a", 1, Some("1"))]);
    let (woken, _) = tokio::join!(future.next(), put(&*kv, "a", "2"));
    assert_eq!(woken.expect("watch").events, [change("a", 2, Some("2"))], "a watch from the future waits for it");
}

async fn compaction_takes_history_and_nothing_else(kv: Arc<dyn Kv>) {
    for n in 1..=10 {
        put(&*kv, if n % 2 == 0 { "even" } else { "odd" }, &n.to_string()).await;
    }
    delete(&*kv, "odd").await;
    let before = kv.read().await.expect("read");
    let mut slow = kv.watch(Revision(2));
    kv.compact(Revision(7)).await.expect("compact");
    assert_eq!(kv.read().await.expect("read"), before, "what is current stays");
    assert!(matches!(slow.next().await, Err(Error::Compacted { .. })), "a watch that needs what is gone ends");
    let error = kv.watch(Revision(6)).next().await.expect_err("history is gone");
    assert!(matches!(error, Error::Compacted { requested: Revision(6), oldest: Revision(7) }), "{error}");
    assert_eq!(pull(&*kv, Revision(7), 4).await[0], change("even", 8, Some("8")), "later history stays");
    kv.compact(Revision(3)).await.expect("compact");
    kv.compact(Revision(99)).await.expect("a revision of the future means the newest");
    assert_eq!(kv.read().await.expect("read"), before);
    assert_eq!(put(&*kv, "odd", "12").await, Revision(12));
    assert_eq!(pull(&*kv, Revision(11), 1).await, [change("odd", 12, Some("12"))]);
}

async fn an_entry_is_found_by_its_revision(kv: Arc<dyn Kv>) {
    let puts = ["a", "ab"].map(|key| Op::Put { key: bytes(key), value: bytes(key) });
    let both = Txn { compares: Vec::new(), ops: puts.into() };
    assert!(matches!(kv.txn(both).await.expect("txn"), Outcome::Committed { revision: Revision(1) }));
    put(&*kv, "b", "2").await;
    put(&*kv, "b", "3").await;
    let found = async |key: &str, at| {
        let entry = kv.entry(bytes(key), Revision(at)).await.expect("entry");
        texts(entry.as_slice()).pop()
    };
    let entry = |key: &str, at, value: &str| Some((key.to_owned(), at, value.to_owned()));
    for compacted in [0, 3] {
        kv.compact(Revision(compacted)).await.expect("compact");
        assert_eq!((found("a", 1).await, found("ab", 1).await), (entry("a", 1, "a"), entry("ab", 1, "ab")));
        assert_eq!(
            (found("b", 3).await, found("b", 1).await, found("none", 1).await),
            (entry("b", 3, "3"), None, None)
        );
    }
    assert_eq!(delete(&*kv, "a").await, Revision(4));
    assert_eq!((found("a", 4).await, found("a", 5).await), (None, None));
}

/// The content of the keys with a prefix at each revision, computed by hand.
async fn a_range_is_the_state_at_its_revision(kv: Arc<dyn Kv>) {
    let steps = [
        ("a/1", Some("1")),
        ("a/2", Some("1")),
        ("b", Some("1")),
        ("a/1", Some("2")),
        ("a/2", None),
        ("a", Some("1")),
        ("a/3", Some("1")),
        ("a/2", Some("2")),
        ("a/1", None),
        ("a/0", Some("1")),
    ];
    let mut states = vec![std::collections::BTreeMap::new()];
    for (n, (key, value)) in (1u64..).zip(steps) {
        let mut state = states.last().cloned().unwrap_or_default();
        match value {
            Some(value) => {
                state.insert(key.to_owned(), (n, value.to_owned()));
                assert_eq!(put(&*kv, key, value).await, Revision(n));
            }
            None => {
                state.remove(key);
                assert_eq!(delete(&*kv, key).await, Revision(n));
            }
        }
        states.push(state);
    }
    for compacted in [0, 4, 7, 10] {
        kv.compact(Revision(compacted)).await.expect("compact");
        assert_eq!(kv.oldest().await.expect("oldest"), Revision(compacted));
        for prefix in ["", "a/", "b", "none"] {
            for (at, state) in (0u64..).zip(&states) {
                let ask = |limit, start_after: Option<&str>| Range {
                    at: Some(Revision(at)),
                    limit,
                    prefix: bytes(prefix),
                    start_after: start_after.map(bytes),
                };
                if at < compacted {
                    let error = kv.range(ask(None, None)).await.expect_err("it is compacted");
                    assert!(
                        matches!(error, Error::Compacted { oldest, .. } if oldest == Revision(compacted)),
                        "{error}"
                    );
                    continue;
                }
                let want: Vec<_> = state
                    .iter()
                    .filter(|(key, _)| key.starts_with(prefix))
                    .map(|(key, (n, value))| (key.clone(), *n, value.clone()))
                    .collect();
                let whole = kv.range(ask(None, None)).await.expect("range");
                assert_eq!((texts(&whole.entries), whole.more, whole.revision), (want.clone(), false, Revision(at)));
                let mut paged = Vec::new();
                loop {
                    let after = paged.last().map(|(key, ..): &(String, u64, String)| key.clone());
                    let page = kv.range(ask(Some(2), after.as_deref())).await.expect("range");
                    paged.extend(texts(&page.entries));
                    assert_eq!(page.more, paged.len() < want.len(), "whether others follow");
                    if !page.more {
                        break;
                    }
                }
                assert_eq!(paged, want);
            }
        }
    }
    let newest = kv.range(Range::default()).await.expect("range");
    assert_eq!((newest.entries, newest.revision), (kv.read().await.expect("read").entries, Revision(10)));
}

async fn history_says_what_was_before(kv: Arc<dyn Kv>) {
    put(&*kv, "a/1", "1").await;
    let two = Txn { compares: Vec::new(), ops: vec![op("a/1", Some("2")), op("b", Some("1"))] };
    committed(kv.txn(two).await);
    delete(&*kv, "a/1").await;
    put(&*kv, "a/1", "3").await;
    put(&*kv, "b", "2").await;
    let ask =
        |after, through, limit| Past { after: Revision(after), limit, prefix: bytes("a/"), through: Revision(through) };
    let entry = |revision, value| Some(Entry { key: bytes("a/1"), revision: Revision(revision), value: bytes(value) });
    let all = [
        Change { event: change("a/1", 1, Some("1")), previous: None },
        Change { event: change("a/1", 2, Some("2")), previous: entry(1, "1") },
        Change { event: change("a/1", 3, None), previous: entry(2, "2") },
        Change { event: change("a/1", 4, Some("3")), previous: None },
    ];
    let found = kv.history(ask(0, 9, 100)).await.expect("history");
    assert_eq!((&found.changes[..], found.progress), (&all[..], Revision(5)));
    let found = kv.history(ask(1, 3, 100)).await.expect("history");
    assert_eq!((&found.changes[..], found.progress), (&all[1..3], Revision(3)));
    let mut after = 0;
    for change in &all {
        let found = kv.history(ask(after, 4, 1)).await.expect("history");
        assert_eq!(found.changes, std::slice::from_ref(change));
        assert!(Revision(after) < found.progress && change.event.revision <= found.progress);
        after = found.progress.0;
    }
    kv.compact(Revision(2)).await.expect("compact");
    let error = kv.history(ask(1, 9, 100)).await.expect_err("it is compacted");
    assert!(matches!(error, Error::Compacted { oldest: Revision(2), .. }), "{error}");
    assert_eq!(kv.history(ask(2, 9, 100)).await.expect("history").changes, all[2..]);
}

async fn what_is_superseded_is_weighed(kv: Arc<dyn Kv>) {
    // Random letters, so that an engine that compresses cannot shorten the value much.
    let mut random = 1u64;
    let mut letter = |_| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from(b'!' + (random >> 57) as u8 % 90)
    };
    let large: String = (0..30_000).map(&mut letter).collect();
    let Some(new) = kv.volume() else { return };
    assert_eq!(new, Volume::default());
    let volume = || kv.volume().expect("the engine knows its volume");
    let first = put(&*kv, "a", &large).await;
    let held = volume();
    assert_eq!((held.revision, held.superseded), (first, 0));
    assert!((15_000..60_000).contains(&held.live), "{held:?}");
    put(&*kv, "a", "small").await;
    let small = volume();
    assert!(small.live < 1_000 && held.live <= small.superseded, "{small:?}");
    let last = delete(&*kv, "a").await;
    let nothing = volume();
    assert!(nothing.live == 0 && small.superseded + small.live <= nothing.superseded, "{nothing:?}");
    assert_eq!(nothing.revision, last);
    // Compaction does not lower the volume: the caller subtracts the size superseded at the revision of the compaction.
    kv.compact(last).await.expect("compact");
    assert_eq!(volume(), nothing);
}

async fn concurrent_writers_get_distinct_revisions(kv: Arc<dyn Kv>) {
    const N_WRITERS: u64 = 32;
    const N_WRITES: u64 = 25;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..N_WRITERS {
        let kv = kv.clone();
        writers.spawn(async move {
            let mut revisions = Vec::new();
            for n in 0..N_WRITES {
                let revision = put(&*kv, &format!("{writer}"), &n.to_string()).await;
                let now = kv.revision().await.expect("revision");
                assert!(revision <= now, "what is acknowledged is committed");
                revisions.push(revision.0);
            }
            assert!(revisions.is_sorted_by(|a, b| a < b), "one writer's revisions ascend");
            revisions
        });
    }
    let mut all: Vec<u64> = writers.join_all().await.into_iter().flatten().collect();
    all.sort_unstable();
    assert_eq!(all, (1..=N_WRITERS * N_WRITES).collect::<Vec<_>>());
    let seen: Vec<u64> = pull(&*kv, Revision::ZERO, all.len()).await.iter().map(|event| event.revision.0).collect();
    assert_eq!(seen, all, "a watch sees every change once, in order");
}

async fn a_closed_engine_says_so(kv: Arc<dyn Kv>) {
    let mut watch = kv.watch(Revision::ZERO);
    put(&*kv, "a", "1").await;
    assert!(kv.health().is_ok());
    kv.close().await.expect("close");
    kv.close().await.expect("closing twice is closing once");
    assert!(matches!(kv.health(), Err(Error::Closed)));
    assert!(matches!(kv.txn(Txn::single(Expect::Absent, op("b", Some("1")))).await, Err(Error::Closed)));
    assert_eq!(watch.next().await.expect("what was committed is still seen").events, [change("a", 1, Some("1"))]);
    assert!(matches!(watch.next().await, Err(Error::Closed)));
}

// === helpers of the checks ===

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn op(key: &str, value: Option<&str>) -> Op {
    match value {
        Some(value) => Op::Put { key: bytes(key), value: bytes(value) },
        None => Op::Delete { key: bytes(key) },
    }
}

fn compare(key: &str, expect: Expect) -> Compare {
    Compare { key: bytes(key), expect }
}

fn change(key: &str, revision: u64, value: Option<&str>) -> Event {
    Event { key: bytes(key), revision: Revision(revision), value: value.map(bytes) }
}

#[track_caller]
fn committed(outcome: Result<Outcome, Error>) -> Revision {
    match outcome {
        Ok(Outcome::Committed { revision }) => revision,
        other => panic!("not committed: {other:?}"),
    }
}

async fn put(kv: &dyn Kv, key: &str, value: &str) -> Revision {
    committed(kv.txn(Txn { compares: Vec::new(), ops: vec![op(key, Some(value))] }).await)
}

async fn delete(kv: &dyn Kv, key: &str) -> Revision {
    committed(kv.txn(Txn { compares: Vec::new(), ops: vec![op(key, None)] }).await)
}

async fn values(kv: &dyn Kv) -> Vec<(String, u64, String)> {
    texts(&kv.read().await.expect("read").entries)
}

fn texts(entries: &[Entry]) -> Vec<(String, u64, String)> {
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    entries.iter().map(|entry| (text(&entry.key), entry.revision.0, text(&entry.value))).collect()
}

/// Pulls this many changes after a revision.
async fn pull(kv: &dyn Kv, after: Revision, n_events: usize) -> Vec<Event> {
    let mut watch = kv.watch(after);
    let mut events = Vec::new();
    while events.len() < n_events {
        let batch = watch.next().await.expect("watch");
        assert!(
            batch.events.iter().all(|event| event.revision <= batch.progress),
            "progress is behind what is handed out"
        );
        events.extend(batch.events);
    }
    assert_eq!(events.len(), n_events);
    events
}

// === an engine seen from a base ===

/// An engine seen from a base, which counts as revision zero, so that the suite can say revisions as numbers. History from
/// before the base does not exist for the suite.
#[derive(Debug)]
struct Rebased {
    base: u64,
    kv: Arc<dyn Kv>,
}

struct RebasedWatch {
    base: u64,
    watch: Box<dyn Watch>,
}

struct RebasedScan {
    base: u64,
    scan: Box<dyn Scan>,
}

impl Rebased {
    /// Counts from the newest revision of an engine.
    async fn at_newest(kv: Arc<dyn Kv>) -> Arc<dyn Kv> {
        let base = kv.revision().await.expect("revision");
        Rebased::at(base, kv)
    }

    /// Counts from a revision.
    fn at(base: Revision, kv: Arc<dyn Kv>) -> Arc<dyn Kv> {
        Arc::new(Rebased { base: base.0, kv })
    }
}

fn down(base: u64, revision: Revision) -> Revision {
    Revision(revision.0.saturating_sub(base))
}

fn up(base: u64, revision: Revision) -> Revision {
    Revision(base + revision.0)
}

fn entry_below(base: u64, entry: Entry) -> Entry {
    Entry { revision: down(base, entry.revision), ..entry }
}

fn event_below(base: u64, event: Event) -> Event {
    Event { revision: down(base, event.revision), ..event }
}

fn change_below(base: u64, change: Change) -> Change {
    Change {
        event: event_below(base, change.event),
        previous: change.previous.map(|previous| entry_below(base, previous)),
    }
}

fn error_below(base: u64, error: Error) -> Error {
    match error {
        Error::Compacted { requested, oldest } => {
            Error::Compacted { requested: down(base, requested), oldest: down(base, oldest) }
        }
        error => error,
    }
}

fn compare_above(base: u64, compare: Compare) -> Compare {
    let expect = match compare.expect {
        Expect::Absent => Expect::Absent,
        Expect::At(revision) => Expect::At(up(base, revision)),
    };
    Compare { expect, ..compare }
}

impl Kv for Rebased {
    fn is_shared(&self) -> bool {
        self.kv.is_shared()
    }

    fn limits(&self) -> Limits {
        self.kv.limits()
    }

    fn revision(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        Box::pin(async { Ok(down(self.base, self.kv.revision().await?)) })
    }

    fn read(&self) -> BoxFuture<'_, Result<Snapshot, Error>> {
        Box::pin(async {
            let Snapshot { entries, revision } = self.kv.read().await?;
            let entries = entries.into_iter().map(|held| entry_below(self.base, held)).collect();
            Ok(Snapshot { entries, revision: down(self.base, revision) })
        })
    }

    fn load(&self, take: Take) -> BoxFuture<'_, Result<Revision, Error>> {
        let base = self.base;
        let take =
            Arc::new(move |part: Vec<Entry>| take(part.into_iter().map(|held| entry_below(base, held)).collect()));
        Box::pin(async { Ok(down(self.base, self.kv.load(take).await?)) })
    }

    fn scan(&self) -> BoxFuture<'_, Result<Box<dyn Scan>, Error>> {
        Box::pin(async {
            let scan = self.kv.scan().await.map_err(|found| error_below(self.base, found))?;
            Ok(Box::new(RebasedScan { base: self.base, scan }) as Box<dyn Scan>)
        })
    }

    fn range(&self, request: Range) -> BoxFuture<'_, Result<Part, Error>> {
        let request = Range { at: request.at.map(|at| up(self.base, at)), ..request };
        Box::pin(async {
            let part = self.kv.range(request).await.map_err(|found| error_below(self.base, found))?;
            let entries = part.entries.into_iter().map(|held| entry_below(self.base, held)).collect();
            Ok(Part { entries, revision: down(self.base, part.revision), ..part })
        })
    }

    fn entry(&self, key: Bytes, at: Revision) -> BoxFuture<'_, Result<Option<Entry>, Error>> {
        let found = self.kv.entry(key, up(self.base, at));
        Box::pin(async { Ok(found.await?.map(|found| entry_below(self.base, found))) })
    }

    fn history(&self, request: Past) -> BoxFuture<'_, Result<Changes, Error>> {
        let request = Past { after: up(self.base, request.after), through: up(self.base, request.through), ..request };
        Box::pin(async {
            let found = self.kv.history(request).await.map_err(|found| error_below(self.base, found))?;
            let changes = found.changes.into_iter().map(|found| change_below(self.base, found)).collect();
            Ok(Changes { changes, progress: down(self.base, found.progress) })
        })
    }

    fn damaged(&self) -> Vec<Damaged> {
        self.kv.damaged()
    }

    fn volume(&self) -> Option<Volume> {
        self.kv.volume().map(|volume| Volume { revision: down(self.base, volume.revision), ..volume })
    }

    fn oldest(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        Box::pin(async { Ok(down(self.base, self.kv.oldest().await?)) })
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<Outcome, Error>> {
        let compares = txn.compares.into_iter().map(|given| compare_above(self.base, given)).collect();
        let running = self.kv.txn(Txn { compares, ..txn });
        Box::pin(async {
            Ok(match running.await? {
                Outcome::Committed { revision } => Outcome::Committed { revision: down(self.base, revision) },
                Outcome::Failed { revision, found } => Outcome::Failed {
                    revision: down(self.base, revision),
                    found: found.into_iter().map(|found| found.map(|found| down(self.base, found))).collect(),
                },
            })
        })
    }

    fn watch(&self, after: Revision) -> Box<dyn Watch> {
        Box::new(RebasedWatch { base: self.base, watch: self.kv.watch(up(self.base, after)) })
    }

    fn compact(&self, through: Revision) -> BoxFuture<'_, Result<(), Error>> {
        self.kv.compact(up(self.base, through))
    }

    fn health(&self) -> Result<(), Error> {
        self.kv.health()
    }

    fn reachable(&self) -> Result<(), Error> {
        self.kv.reachable()
    }

    fn close(&self) -> BoxFuture<'_, Result<(), Error>> {
        self.kv.close()
    }
}

impl Watch for RebasedWatch {
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, Error>> {
        let base = self.base;
        Box::pin(async move {
            let batch = self.watch.next().await.map_err(|found| error_below(base, found))?;
            let events = batch.events.into_iter().map(|found| event_below(base, found)).collect();
            Ok(Batch { events, progress: down(base, batch.progress) })
        })
    }
}

impl Scan for RebasedScan {
    fn revision(&self) -> Revision {
        down(self.base, self.scan.revision())
    }

    fn next(&mut self) -> BoxFuture<'_, Result<Vec<Entry>, Error>> {
        let base = self.base;
        Box::pin(async move {
            let part = self.scan.next().await.map_err(|found| error_below(base, found))?;
            Ok(part.into_iter().map(|held| entry_below(base, held)).collect())
        })
    }
}
