//! The power fails at any operation; afterwards every acknowledged transaction is present, and every other one as a
//! whole or not at all.
//!
//! 50 seeds; with `STEERSMAN_LONG=1` 1,000, and a failed sync at each sync of a run.

use crate::faulty::{Fault, Faulty};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::path::Path;
use steersman_machinery::Revision;
use steersman_storage::Disk;
use steersman_storage::kv::{Change, Entry, Error, Event, Kv, Op, Outcome, Past, Range, Txn};

const N_WRITES: u64 = 60;

fn is_long() -> bool {
    std::env::var_os("STEERSMAN_LONG").is_some()
}

fn open(backend: &Faulty) -> Result<Disk, steersman_storage::disk::OpenError> {
    Disk::open_backend(backend.clone(), Path::new("faulty"))
}

/// The transactions of one run, by the revision that they got or would have got.
#[derive(Default)]
struct Written {
    /// The acknowledged transactions.
    acknowledged: BTreeMap<Revision, Vec<Op>>,
    /// The transactions whose fate was unknown when the power failed, in the order in which they were queued.
    unknown: Vec<Vec<Op>>,
}

/// Writes in groups, with a compaction from time to time, until done or until the power fails.
async fn work(disk: &Disk, seed: u64) -> Written {
    let mut random = StdRng::seed_from_u64(seed);
    let mut written = Written::default();
    let mut n = 0;
    while n < N_WRITES {
        let mut group = Vec::new();
        for _ in 0..random.random_range(1..8) {
            n += 1;
            // Both keys of a pair get the same number, so that a half-written pair is noticed.
            let value = bytes::Bytes::from(format!("{n}").repeat(random.random_range(1..800)));
            let pair = random.random_range(0..6);
            let is_deletion = random.random_bool(0.3);
            let op = |side: &str| match (bytes::Bytes::from(format!("{side}/{pair}")), is_deletion) {
                (key, true) => Op::Delete { key },
                (key, false) => Op::Put { key, value: value.clone() },
            };
            // Deleting an absent key is no change, so every transaction writes another key as well.
            let seen = Op::Put { key: "seen".into(), value: format!("{n}").into() };
            let ops = vec![op("left"), seen, op("right")];
            group.push((ops.clone(), disk.txn(Txn { compares: Vec::new(), ops })));
        }
        for (ops, answer) in group {
            match answer.await {
                Ok(Outcome::Committed { revision }) => {
                    assert!(written.unknown.is_empty(), "nothing is acknowledged after a failure");
                    written.acknowledged.insert(revision, ops);
                }
                Ok(other) => panic!("{other:?}"),
                Err(Error::Poisoned { .. }) => written.unknown.push(ops),
                Err(error) => panic!("{error}"),
            }
        }
        if random.random_bool(0.3) {
            let through = Revision(random.random_range(0..=n));
            match disk.compact(through).await {
                Ok(()) | Err(Error::Poisoned { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
    if !written.unknown.is_empty() {
        assert!(matches!(disk.health(), Err(Error::Poisoned { .. })));
        let after = disk.txn(Txn { compares: Vec::new(), ops: Vec::new() }).await;
        assert!(matches!(after, Err(Error::Poisoned { .. })), "poisoned until reopened");
    }
    written
}

/// Checks that a reopened store has all acknowledged transactions and a prefix of the unknown ones, each as a whole.
async fn verify(disk: &Disk, written: &Written, context: &str) {
    let snapshot = disk.read().await.unwrap();
    let last = written.acknowledged.keys().next_back().copied().unwrap_or_default();
    assert!(last <= snapshot.revision, "{context}: revision {} after {last} was acknowledged", snapshot.revision);
    let n_survivors = usize::try_from(snapshot.revision.0 - last.0).unwrap();
    assert!(n_survivors <= written.unknown.len(), "{context}: more than was written");
    let mut want = BTreeMap::new();
    let survivors = (last.0 + 1..).map(Revision).zip(written.unknown.iter().take(n_survivors));
    for (revision, ops) in written.acknowledged.iter().map(|(revision, ops)| (*revision, ops)).chain(survivors) {
        for op in ops {
            match op {
                Op::Delete { key } => want.remove(key),
                Op::Put { key, value } => want.insert(key.clone(), (revision, value.clone())),
            };
        }
    }
    let found: BTreeMap<_, _> =
        snapshot.entries.into_iter().map(|entry| (entry.key, (entry.revision, entry.value))).collect();
    assert_eq!(found.keys().collect::<Vec<_>>(), want.keys().collect::<Vec<_>>(), "{context}");
    assert!(found == want, "{context}: contents differ");
    verify_history(disk, written, context).await;
}

/// Checks that the remaining history has the written changes, each with the previous value that the change before it
/// wrote.
async fn verify_history(disk: &Disk, written: &Written, context: &str) {
    let (oldest, newest) = (disk.oldest().await.unwrap(), disk.revision().await.unwrap());
    let past = Past { after: oldest, limit: usize::MAX, prefix: bytes::Bytes::new(), through: newest };
    let mut held: BTreeMap<_, _> = disk
        .range(Range { at: Some(oldest), ..Range::default() })
        .await
        .unwrap()
        .entries
        .into_iter()
        .map(|entry| (entry.key.clone(), entry))
        .collect();
    for Change { event, previous } in disk.history(past).await.unwrap().changes {
        let Event { key, revision, value } = event;
        if let Some(ops) = written.acknowledged.get(&revision) {
            let op = ops.iter().find(|op| *op.key() == key).unwrap();
            let want = match op {
                Op::Delete { .. } => None,
                Op::Put { value, .. } => Some(value),
            };
            assert_eq!(value.as_ref(), want, "{context}: revision {revision}");
        }
        let before = match value {
            Some(value) => held.insert(key.clone(), Entry { key, revision, value }),
            None => held.remove(&key),
        };
        assert_eq!(previous, before, "{context}: revision {revision}");
    }
    assert_eq!(held.into_values().collect::<Vec<_>>(), disk.read().await.unwrap().entries, "{context}");
}

/// Checks that the store accepts writes after a recovery, and keeps them too.
async fn write_on(disk: &Disk, context: &str) {
    let before = disk.revision().await.unwrap();
    let op = Op::Put { key: "after".into(), value: "the crash".into() };
    let outcome = disk.txn(Txn { compares: Vec::new(), ops: vec![op] }).await.unwrap();
    assert_eq!(outcome, Outcome::Committed { revision: before.next() }, "{context}");
    let events = disk.watch(before).next().await.unwrap();
    let want = Event { key: "after".into(), revision: before.next(), value: Some("the crash".into()) };
    assert_eq!(events.events, [want], "{context}");
    disk.close().await.unwrap();
}

/// An image of a new store that was closed cleanly.
async fn fresh() -> Vec<u8> {
    let backend = Faulty::new(Vec::new(), Fault::None);
    open(&backend).unwrap().close().await.unwrap();
    backend.image_after_crash(0)
}

async fn run(image: &[u8], fault: Fault, seed: u64) -> (Faulty, Option<Written>) {
    let backend = Faulty::new(image.to_vec(), fault);
    // The power may fail while the store opens.
    let Ok(disk) = open(&backend) else { return (backend, None) };
    let written = work(&disk, seed).await;
    // Closing a poisoned store fails, closing any other succeeds.
    assert_eq!(
        disk.close().await.is_err(),
        !written.unknown.is_empty() || disk.health().is_err_and(|error| matches!(error, Error::Poisoned { .. }))
    );
    (backend, Some(written))
}

#[tokio::test]
async fn a_crash_anywhere_loses_nothing_acknowledged() {
    let image = fresh().await;
    let (calm, written) = run(&image, Fault::None, 0).await;
    assert_eq!(written.unwrap().acknowledged.len() as u64, calm_writes());
    let (n_operations, _) = calm.counts();
    let n_seeds = if is_long() { 1_000 } else { 50 };
    let (mut n_unknown, mut n_survived) = (0, 0);
    for seed in 0..n_seeds {
        let at_operation = StdRng::seed_from_u64(seed).random_range(1..=n_operations);
        let (backend, written) = run(&image, Fault::Power { at_operation }, seed).await;
        let context = format!("seed {seed}, power lost at operation {at_operation}");
        let written = written.unwrap_or_default();
        // The same crash may leave the disk in several states; the second one crashes again right after recovery.
        let after = Faulty::new(backend.image_after_crash(seed), Fault::None);
        let disk = open(&after).unwrap_or_else(|error| panic!("{context}: {error:?}"));
        verify(&disk, &written, &context).await;
        n_unknown += written.unknown.len();
        let last = written.acknowledged.keys().next_back().copied().unwrap_or_default();
        n_survived += disk.revision().await.unwrap().0 - last.0;
        write_on(&disk, &context).await;

        let interrupted = Fault::Power { at_operation: 1 + seed % 12 };
        let second = Faulty::new(backend.image_after_crash(seed + 1), interrupted);
        drop(open(&second));
        let third = Faulty::new(second.image_after_crash(seed), Fault::None);
        let disk = open(&third).unwrap_or_else(|error| panic!("{context}, again while recovering: {error:?}"));
        verify(&disk, &written, &format!("{context}, again while recovering")).await;
        write_on(&disk, &context).await;
    }
    assert!(0 < n_unknown, "the power was never lost in the middle of a write");
    println!("{n_seeds} crashes: {n_unknown} transactions of unknown fate, {n_survived} of them survived");
}

fn calm_writes() -> u64 {
    // The last group may exceed the number.
    let mut random = StdRng::seed_from_u64(0);
    let mut n = 0;
    while n < N_WRITES {
        for _ in 0..random.random_range(1..8) {
            n += 1;
            random.random_range(1..800);
            random.random_range(0..6);
            random.random_bool(0.3);
        }
        if random.random_bool(0.3) {
            random.random_range(0..=n);
        }
    }
    n
}

#[tokio::test]
async fn a_failed_sync_poisons_and_loses_nothing_acknowledged() {
    let image = fresh().await;
    let (calm, _) = run(&image, Fault::None, 7).await;
    let (_, n_syncs) = calm.counts();
    let step = if is_long() { 1 } else { (n_syncs / 12).max(1) };
    let mut n_poisoned = 0;
    for at_sync in (1..=n_syncs).step_by(usize::try_from(step).unwrap()) {
        let (backend, written) = run(&image, Fault::Sync { at_sync }, 7).await;
        let written = written.unwrap_or_default();
        n_poisoned += usize::from(!written.unknown.is_empty());
        let context = format!("sync {at_sync} failed");
        let after = Faulty::new(backend.image_after_crash(at_sync), Fault::None);
        let disk = open(&after).unwrap_or_else(|error| panic!("{context}: {error:?}"));
        verify(&disk, &written, &context).await;
        write_on(&disk, &context).await;
    }
    assert!(0 < n_poisoned);
}
