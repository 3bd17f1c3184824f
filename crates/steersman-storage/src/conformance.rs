//! The contract of every engine, as checks that panic where one breaks it: run [`kv`] over a new engine, and
//! [`durable`] over one that can be reopened.
//!
//! Part of the crate and not of its tests, so that the same suite checks engines in other crates.

use crate::kv::{
    Change, Compare, Entry, Error, Event, Expect, Kv, Op, Outcome, Past, Range, TXN_OPS_MAX, Txn, VALUE_BYTES_MAX,
    Volume,
};
use bytes::Bytes;
use std::sync::Arc;
use steersman_machinery::Revision;

/// Runs every check, each on an engine of its own.
///
/// # Panics
/// Where the engine breaks the contract.
pub async fn kv<F: AsyncFn() -> Arc<dyn Kv>>(new: F) {
    revisions_count_changes(new().await).await;
    compares_guard_the_whole_transaction(new().await).await;
    unacceptable_transactions_change_nothing(new().await).await;
    a_snapshot_is_in_key_order(new().await).await;
    a_watch_sees_every_change_once_in_order(new().await).await;
    a_waiting_watch_is_woken(new().await).await;
    compaction_takes_history_and_nothing_else(new().await).await;
    concurrent_writers_get_distinct_revisions(new().await).await;
    a_range_is_the_state_at_its_revision(new().await).await;
    history_says_what_was_before(new().await).await;
    what_is_superseded_is_weighed(new().await).await;
    a_closed_engine_says_so(new().await).await;
}

/// Checks that everything acknowledged is present after a reopen, and that the revision does not decrease.
///
/// # Panics
/// Where the engine breaks the contract.
pub async fn durable<F: AsyncFn() -> Arc<dyn Kv>>(reopen: F) {
    let kv = reopen().await;
    put(&*kv, "a", "1").await;
    put(&*kv, "b", "1").await;
    put(&*kv, "a", "2").await;
    let last = delete(&*kv, "b").await;
    let before = kv.read().await.expect("read");
    kv.close().await.expect("close");
    drop(kv);

    let kv = reopen().await;
    assert_eq!(kv.read().await.expect("read"), before, "everything is there after a reopen");
    assert_eq!(kv.revision().await.expect("revision"), last);
    let history = pull(&*kv, Revision::ZERO, 4).await;
    assert_eq!(history.last(), Some(&change("b", last.0, None)), "history is there after a reopen");
    // After compaction of the newest change, only the counter remembers its revision.
    kv.compact(last).await.expect("compact");
    kv.close().await.expect("close");
    drop(kv);

    let kv = reopen().await;
    assert_eq!(kv.revision().await.expect("revision"), last, "a compacted revision is not given twice");
    assert_eq!(kv.read().await.expect("read"), before);
    let error = kv.watch(Revision::ZERO).next().await.expect_err("history is gone");
    assert!(matches!(error, Error::Compacted { oldest, .. } if oldest == last), "{error}");
    assert_eq!(put(&*kv, "c", "1").await, last.next());
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
    let twice = Txn { compares: Vec::new(), ops: vec![op("a", Some("1")), op("a", None)] };
    assert!(matches!(kv.txn(twice).await, Err(Error::Duplicate { .. })));
    let large = Op::Put { key: bytes("a"), value: vec![0; VALUE_BYTES_MAX + 1].into() };
    let large = Txn { compares: Vec::new(), ops: vec![op("b", Some("1")), large] };
    assert!(matches!(kv.txn(large).await, Err(Error::TooLarge { actual, .. }) if actual == VALUE_BYTES_MAX + 1));
    let ops = (0..=TXN_OPS_MAX).map(|n| op(&n.to_string(), Some("1"))).collect();
    assert!(matches!(kv.txn(Txn { compares: Vec::new(), ops }).await, Err(Error::TooLarge { .. })));
    assert_eq!(kv.revision().await.expect("revision"), Revision::ZERO);
    let largest = Op::Put { key: bytes("a"), value: vec![7; VALUE_BYTES_MAX].into() };
    committed(kv.txn(Txn { compares: Vec::new(), ops: vec![largest] }).await);
    assert_eq!(kv.read().await.expect("read").entries[0].value.len(), VALUE_BYTES_MAX);
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
    assert_eq!(kv.volume(), Volume::default());
    let first = put(&*kv, "a", &large).await;
    let held = kv.volume();
    assert_eq!((held.revision, held.superseded), (first, 0));
    assert!((15_000..60_000).contains(&held.live), "{held:?}");
    put(&*kv, "a", "small").await;
    let small = kv.volume();
    assert!(small.live < 1_000 && held.live <= small.superseded, "{small:?}");
    let last = delete(&*kv, "a").await;
    let nothing = kv.volume();
    assert!(nothing.live == 0 && small.superseded + small.live <= nothing.superseded, "{nothing:?}");
    assert_eq!(nothing.revision, last);
    // Compaction does not lower the volume: the caller subtracts the size superseded at the revision of the compaction.
    kv.compact(last).await.expect("compact");
    assert_eq!(kv.volume(), nothing);
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
