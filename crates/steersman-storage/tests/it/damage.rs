//! Damage to the file: any bit flipped, any page torn. No read returns anything that was not written, nothing panics,
//! every unreadable key is reported, and all other keys can be read.
//!
//! Some hundred random cases; with `STEERSMAN_LONG=1` 10,000 bits and 1,000 pages.

use bytes::Bytes;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use redb::StorageBackend;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use steersman_machinery::{GroupResource, ObjectKey, Revision};
use steersman_storage::disk::{self, Intercepted, OpenError, Operation};
use steersman_storage::kv::{Kv, Op, Past, Range, Txn};
use steersman_storage::{At, Disk, Options, Page, ReadError, Scope, Store, WriteError};
use twox_hash::XxHash3_64;

const PAGE: usize = 4_096;

fn is_long() -> bool {
    std::env::var_os("STEERSMAN_LONG").is_some()
}

/// The files of a store, and the acknowledged changes.
struct Made {
    /// The file after a clean close, and after a crash.
    images: [Vec<u8>; 2],
    /// Earlier versions of the file.
    older: Vec<Vec<u8>>,
    /// The file `store.newest` after a clean close.
    newest: Vec<u8>,
    /// The revision and value of each key.
    held: BTreeMap<Bytes, (Revision, Bytes)>,
    /// Every change.
    changes: BTreeMap<(Revision, Bytes), Option<Bytes>>,
    revision: Revision,
}

/// Counts of damaged files by their outcome.
#[derive(Debug, Default)]
struct Outcomes {
    n_no_effect: usize,
    n_refused: usize,
    /// The file was rewritten without a loss.
    n_repaired: usize,
    /// Some keys were lost.
    n_with_loss: usize,
    n_keys_lost: usize,
    /// The reasons for refused files.
    refusals: BTreeMap<String, usize>,
}

fn text(random: &mut StdRng, length: usize) -> String {
    (0..length).map(|_| char::from(random.random_range(b'A'..=b'Z'))).collect()
}

/// An object of any kind, large or small, whose value lz4 shortens or not.
fn object(random: &mut StdRng, kind: &str, name: &str) -> Bytes {
    let length = match random.random_range(0..40) {
        0 => 120_000,
        1..4 => 5_000,
        4..10 => 800,
        _ => 60,
    };
    let text = if random.random_bool(0.5) { text(random, length) } else { "a text that repeats ".repeat(length / 20) };
    let labels = format!(r#"{{"n":"{}","app":"damage"}}"#, random.random_range(0..9));
    format!(
        r#"{{"apiVersion":"v1","kind":"{kind}","metadata":{{"name":"{name}","namespace":"default","labels":{labels}}},"data":{{"text":"{text}"}}}}"#
    )
    .into()
}

/// A store with every kind of entry: new, changed, deleted, compacted, of many resources, in transactions of one change
/// and of many.
async fn make(n_rounds: usize) -> Made {
    const KINDS: [(&str, &str, &str); 7] = [
        ("", "configmaps", "ConfigMap"),
        ("", "pods", "Pod"),
        ("", "secrets", "Secret"),
        ("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition"),
        ("coordination.k8s.io", "leases", "Lease"),
        ("rbac.authorization.k8s.io", "clusterroles", "ClusterRole"),
        ("samplecrd.k8s.io", "networks", "Network"),
    ];
    let mut random = StdRng::seed_from_u64(7);
    let scratch = tempfile::tempdir().unwrap();
    let disk = Arc::new(Disk::open(scratch.path()).unwrap());
    let store = Store::open(disk.clone(), Options::default()).await.unwrap();
    let path = scratch.path().join("store.redb");
    let (mut held, mut changes, mut older) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    let stored = |group: &str, resource: &str, name: &str| Bytes::from(format!("{group}/{resource}/default/{name}"));
    for round in 0..n_rounds {
        for (group, resource, kind) in KINDS {
            for n in 0..6 {
                let name = format!("object-{n}");
                let (names, key) =
                    (GroupResource::new(group, resource), ObjectKey::namespaced("default", name.as_str()));
                let json = object(&mut random, kind, &name);
                let current = store.get(&names, &key).await.unwrap();
                match current {
                    None => drop(store.create(&names, &key, json).await.unwrap()),
                    Some(current) if random.random_bool(0.2) => {
                        store.delete(&names, &key, current.revision).await.unwrap();
                    }
                    Some(current) if random.random_bool(0.5) => {
                        drop(store.update(&names, &key, current.revision, json).await.unwrap());
                    }
                    Some(_) => {}
                }
            }
        }
        let ops = (0..5).map(|n| match random.random_bool(0.2) {
            true => Op::Delete { key: stored("", "events", &format!("event-{n}")) },
            false => Op::Put {
                key: stored("", "events", &format!("event-{n}")),
                value: object(&mut random, "Event", &format!("event-{n}")),
            },
        });
        let txn = Txn { compares: Vec::new(), ops: ops.collect() };
        disk.txn(txn).await.unwrap();
        note(&disk, &mut changes).await;
        if round * 4 / n_rounds != (round + 1) * 4 / n_rounds {
            older.push(std::fs::read(&path).unwrap());
        }
        if round % 3 == 1 {
            let newest = disk.revision().await.unwrap();
            disk.compact(Revision(newest.0.saturating_sub(30))).await.unwrap();
        }
    }
    let snapshot = disk.read().await.unwrap();
    for entry in snapshot.entries {
        held.insert(entry.key, (entry.revision, entry.value));
    }
    let crashed = std::fs::read(&path).unwrap();
    store.close().await.unwrap();
    let newest = std::fs::read(scratch.path().join("store.newest")).unwrap();
    let images = [std::fs::read(&path).unwrap(), crashed];
    let made = Made { images, older, newest, held, changes, revision: snapshot.revision };
    // Checks the model itself: reads return the acknowledged changes.
    assert!(made.held == made.held_at(made.revision));
    made
}

impl Made {
    /// The revision and value of each key at an earlier revision.
    fn held_at(&self, at: Revision) -> BTreeMap<Bytes, (Revision, Bytes)> {
        let mut held = BTreeMap::new();
        for ((revision, key), value) in self.changes.range(..(at.next(), Bytes::new())) {
            match value {
                Some(value) => held.insert(key.clone(), (*revision, value.clone())),
                None => held.remove(key),
            };
        }
        held
    }
}

/// Adds new changes to the model.
async fn note(disk: &Disk, changes: &mut BTreeMap<(Revision, Bytes), Option<Bytes>>) {
    let noted = changes.keys().next_back().map_or(Revision::ZERO, |(revision, _)| *revision);
    let through = disk.revision().await.unwrap();
    let past = Past { after: noted, limit: usize::MAX, prefix: Bytes::new(), through };
    for change in disk.history(past).await.unwrap().changes {
        changes.insert((change.event.revision, change.event.key), change.event.value);
    }
}

/// Opens a damaged file and compares its content with the acknowledged changes.
async fn hold(made: &Made, dir: &Path, image: &[u8], context: &str, outcomes: &mut Outcomes) {
    for entry in std::fs::read_dir(dir).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    std::fs::write(dir.join("store.redb"), image).unwrap();
    std::fs::write(dir.join("store.newest"), &made.newest).unwrap();
    let disk = match Disk::open(dir) {
        Ok(disk) => disk,
        Err(
            error @ (OpenError::Behind { .. }
            | OpenError::Damaged { .. }
            | OpenError::Format { .. }
            | OpenError::Incomplete { .. }),
        ) => {
            assert!(error.to_string().contains("store.redb"), "{context}: {error}");
            assert_eq!(std::fs::read(dir.join("store.redb")).unwrap(), image, "{context}: refused and changed");
            outcomes.n_refused += 1;
            let why = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            let why = why.replace(&*dir.to_string_lossy(), "").chars().filter(|c| !c.is_ascii_digit()).collect();
            *outcomes.refusals.entry(why).or_default() += 1;
            return;
        }
        Err(error) => panic!("{context}: {error:?}"),
    };
    assert_eq!(disk.revision().await.unwrap(), made.revision, "{context}");
    let n_lost = compare(made, &disk, context).await;
    let is_renewed = dir.join("store.redb.damaged").exists();
    match (is_renewed, n_lost) {
        (false, 0) => outcomes.n_no_effect += 1,
        (true, 0) => outcomes.n_repaired += 1,
        (_, _) => outcomes.n_with_loss += 1,
    }
    outcomes.n_keys_lost += n_lost;
    let oldest = disk.oldest().await.unwrap();
    let past = Past { after: oldest, limit: usize::MAX, prefix: Bytes::new(), through: made.revision };
    for change in disk.history(past).await.unwrap().changes {
        let want = made.changes.get(&(change.event.revision, change.event.key.clone()));
        assert_eq!(Some(&change.event.value), want, "{context}: history");
    }
    disk.close().await.unwrap();
    drop(disk);
    // Lost keys are still reported.
    if is_renewed {
        let disk = Disk::open(dir).unwrap();
        assert_eq!(compare(made, &disk, context).await, n_lost, "{context}: after another start");
        disk.close().await.unwrap();
    }
}

/// Checks that every entry was acknowledged, and that every other key is reported. Returns the number of the latter.
async fn compare(made: &Made, disk: &Disk, context: &str) -> usize {
    let snapshot = disk.read().await.unwrap();
    let mut missing: BTreeSet<&Bytes> = made.held.keys().collect();
    for entry in &snapshot.entries {
        let want = made.held.get(&entry.key);
        assert_eq!(Some(&(entry.revision, entry.value.clone())), want, "{context}: {:?} is served", entry.key);
        missing.remove(&entry.key);
    }
    let damaged = disk.damaged();
    let named: BTreeSet<&Bytes> = damaged.iter().map(|damaged| &damaged.key).collect();
    assert_eq!(named, missing, "{context}: what is not served is named, and nothing else");
    for damaged in &damaged {
        assert_eq!(damaged.revision, made.held[&damaged.key].0, "{context}");
    }
    missing.len()
}

/// Damages a page as a torn, a lost or a misplaced write does.
fn tear(made: &Made, image: &mut [u8], random: &mut StdRng) -> String {
    let n_pages = image.len() / PAGE;
    let page = random.random_range(0..n_pages);
    let at = page * PAGE;
    let other = random.random_range(0..n_pages) * PAGE;
    let half = PAGE / 2;
    match random.random_range(0..5) {
        0 => {
            image[at..at + PAGE].fill(0);
            format!("page {page} is zeroed")
        }
        1 => {
            image[at + half..at + PAGE].fill(0);
            format!("page {page} is half written")
        }
        2 => {
            let copy = image[other..other + PAGE].to_vec();
            let page_bytes = image[at..at + PAGE].to_vec();
            image[other..other + PAGE].copy_from_slice(&page_bytes);
            image[at..at + PAGE].copy_from_slice(&copy);
            format!("page {page} and the one at byte {other} are swapped")
        }
        n => {
            let older = made.older.choose(random).unwrap();
            let length = if n == 3 { PAGE } else { half };
            if let Some(bytes) = older.get(at..at + length) {
                image[at..at + length].copy_from_slice(bytes);
            }
            format!("{length} bytes of page {page} are of an older version")
        }
    }
}

#[tokio::test]
async fn nothing_damaged_is_served_and_everything_else_is() {
    let (n_rounds, n_bits, n_torn) = if is_long() { (24, 10_000, 1_000) } else { (4, 120, 80) };
    let made = make(n_rounds).await;
    let scratch = tempfile::tempdir().unwrap();
    let started = tokio::time::Instant::now();
    let (mut bits, mut torn) = (Outcomes::default(), Outcomes::default());
    for seed in 0..n_bits {
        let mut random = StdRng::seed_from_u64(seed);
        let crashed = usize::from(random.random_bool(0.3));
        let mut image = made.images[crashed].clone();
        let bit = random.random_range(0..image.len() * 8);
        image[bit / 8] ^= 1 << (bit % 8);
        let context = format!("seed {seed}, image {crashed}: bit {} of byte {} is flipped", bit % 8, bit / 8);
        hold(&made, scratch.path(), &image, &context, &mut bits).await;
    }
    for seed in 0..n_torn {
        let mut random = StdRng::seed_from_u64(seed);
        let crashed = usize::from(random.random_bool(0.3));
        let mut image = made.images[crashed].clone();
        let what = tear(&made, &mut image, &mut random);
        hold(&made, scratch.path(), &image, &format!("seed {seed}, image {crashed}: {what}"), &mut torn).await;
    }
    let (n_keys, n_kib) = (made.held.len(), made.images[0].len() / 1024);
    println!("{n_keys} keys in {n_kib} KiB, {} s", started.elapsed().as_secs());
    println!("{n_bits} bits: {bits:#?}\n{n_torn} torn pages: {torn:#?}");
    assert!(0 < bits.n_repaired + torn.n_repaired && 0 < bits.n_with_loss + torn.n_with_loss);
}

#[tokio::test]
async fn a_damaged_header_is_repaired_or_refused() {
    let made = make(3).await;
    let scratch = tempfile::tempdir().unwrap();
    let mut outcomes = Outcomes::default();
    let step = if is_long() { 1 } else { 29 };
    for bit in (0..320 * 8).step_by(step) {
        let mut image = made.images[bit % 2].clone();
        image[bit / 8] ^= 1 << (bit % 8);
        let context = format!("image {}: bit {} of byte {} is flipped", bit % 2, bit % 8, bit / 8);
        hold(&made, scratch.path(), &image, &context, &mut outcomes).await;
    }
    println!("{outcomes:#?}");
}

#[tokio::test]
async fn a_first_page_that_is_an_older_version_of_itself_is_refused_or_noticed_in_the_pages() {
    let made = make(8).await;
    let scratch = tempfile::tempdir().unwrap();
    let mut outcomes = Outcomes::default();
    for (n, older) in made.older.iter().enumerate() {
        let mut image = made.images[0].clone();
        image[..PAGE].copy_from_slice(&older[..PAGE]);
        hold(&made, scratch.path(), &image, &format!("the first page of version {n}"), &mut outcomes).await;
    }
    // A complete older file is a valid store. Only the acknowledged revision shows that it is old.
    let older = made.older.first().unwrap();
    std::fs::write(scratch.path().join("store.redb"), older).unwrap();
    std::fs::write(scratch.path().join("store.newest"), &made.newest).unwrap();
    let error = Disk::open(scratch.path()).unwrap_err();
    assert!(matches!(error, OpenError::Behind { acknowledged, .. } if acknowledged == made.revision), "{error:?}");
    std::fs::remove_file(scratch.path().join("store.newest")).unwrap();
    Disk::open(scratch.path()).unwrap();
}

#[tokio::test]
async fn a_store_newest_that_cannot_be_read_although_the_disk_is_well_refuses_the_start_and_changes_nothing() {
    let made = make(4).await;
    let scratch = tempfile::tempdir().unwrap();
    let (path, newest) = (scratch.path().join("store.redb"), scratch.path().join("store.newest"));
    std::fs::write(&path, &made.images[0]).unwrap();
    std::fs::create_dir(&newest).unwrap();
    for refused in [Disk::open(scratch.path()).map(drop), disk::check(scratch.path(), |_| {}).map(drop)] {
        assert!(matches!(&refused, Err(OpenError::Io { path, .. }) if *path == newest), "{refused:?}");
    }
    assert!(std::fs::read(&path).unwrap() == made.images[0]);
}

#[tokio::test]
async fn a_store_whose_file_is_gone_is_refused_instead_of_begun_anew() {
    let made = make(4).await;
    let scratch = tempfile::tempdir().unwrap();
    let (path, newest) = (scratch.path().join("store.redb"), scratch.path().join("store.newest"));
    place(scratch.path(), &made.images[0], made.revision);
    std::fs::remove_file(&path).unwrap();
    let want = format!(
        "{path:?} does not exist, but revision {} was acknowledged: restore the file, or remove {newest:?} to start with an empty store",
        made.revision
    );
    assert_eq!(Disk::open(scratch.path()).unwrap_err().to_string(), want);
    assert_eq!(disk::check(scratch.path(), |_| {}).unwrap_err().to_string(), want);
    assert!(!path.exists() && std::fs::read(&newest).unwrap() == made.newest, "refused and changed");
    std::fs::remove_file(&newest).unwrap();
    assert_eq!(Disk::open(scratch.path()).unwrap().revision().await.unwrap(), Revision(0));
}

#[tokio::test]
async fn a_damaged_store_newest_is_named_by_a_check_and_written_again_at_a_start() {
    let made = make(4).await;
    let scratch = tempfile::tempdir().unwrap();
    let (path, newest) = (scratch.path().join("store.redb"), scratch.path().join("store.newest"));
    let mut flipped = made.newest.clone();
    flipped[3] ^= 1;
    let longer = [&made.newest[..], b"x"].concat();
    let damages: [(&[u8], &str); 4] = [
        (&flipped, "its checksum is wrong"),
        (&longer, "it has 17 bytes instead of 16"),
        (&made.newest[..9], "it has 9 bytes instead of 16"),
        (b"", "it has 0 bytes instead of 16"),
    ];
    for (damaged, fault) in damages {
        std::fs::write(&path, &made.images[0]).unwrap();
        std::fs::write(&newest, damaged).unwrap();
        let named = format!("store.newest is damaged ({fault}): an older copy of the store would not be noticed");
        assert_eq!(disk::check(scratch.path(), |_| {}).unwrap().faults, [named]);
        let disk = Disk::open(scratch.path()).unwrap();
        assert_eq!(disk.revision().await.unwrap(), made.revision);
        drop(disk);
        assert_eq!(std::fs::read(&newest).unwrap(), made.newest, "{fault}");
        assert!(disk::check(scratch.path(), |_| {}).unwrap().faults.is_empty(), "{fault}");
        // An older copy is noticed again.
        std::fs::write(&path, made.older.first().unwrap()).unwrap();
        let error = Disk::open(scratch.path()).unwrap_err();
        assert!(matches!(error, OpenError::Behind { acknowledged, .. } if acknowledged == made.revision), "{error:?}");
    }
    // A missing one is not damaged: an operator removes it to go back to a copy. A start that is refused does not make it.
    std::fs::remove_file(&newest).unwrap();
    std::fs::write(&path, "no store").unwrap();
    Disk::open(scratch.path()).unwrap_err();
    std::fs::write(&path, &made.images[0]).unwrap();
    assert!(disk::check(scratch.path(), |_| {}).unwrap().faults.is_empty());
    Disk::open(scratch.path()).unwrap();
}

#[tokio::test]
async fn a_page_that_is_an_older_version_of_itself_is_noticed_wherever_it_is() {
    let made = make(if is_long() { 24 } else { 4 }).await;
    let scratch = tempfile::tempdir().unwrap();
    let mut outcomes = Outcomes::default();
    for (n, older) in made.older.iter().enumerate() {
        for at in (PAGE..older.len().min(made.images[0].len())).step_by(PAGE) {
            let mut image = made.images[0].clone();
            if image[at..at + PAGE] == older[at..at + PAGE] {
                continue;
            }
            image[at..at + PAGE].copy_from_slice(&older[at..at + PAGE]);
            let context = format!("the page at byte {at} is of version {n}");
            hold(&made, scratch.path(), &image, &context, &mut outcomes).await;
        }
    }
    println!("{outcomes:#?}");
}

#[tokio::test]
async fn two_pages_that_are_in_each_others_places_are_noticed_wherever_they_are() {
    let made = make(if is_long() { 12 } else { 3 }).await;
    let scratch = tempfile::tempdir().unwrap();
    let mut outcomes = Outcomes::default();
    let image = &made.images[0];
    // Pages of trees: all others are free, or the middle of a large value.
    let trees: Vec<usize> = (PAGE..image.len()).step_by(PAGE).filter(|at| (1..3).contains(&image[*at])).collect();
    let step = if is_long() { 1 } else { 3 };
    for (n, first) in trees.iter().enumerate() {
        for second in trees[n + 1..].iter().skip(n % step).step_by(step * if image[*first] == 2 { 1 } else { 40 }) {
            let mut image = image.clone();
            let page = image[*first..first + PAGE].to_vec();
            image.copy_within(*second..second + PAGE, *first);
            image[*second..second + PAGE].copy_from_slice(&page);
            let context = format!("the pages at bytes {first} and {second} are swapped");
            hold(&made, scratch.path(), &image, &context, &mut outcomes).await;
        }
    }
    println!("{outcomes:#?}");
}

/// Flips two bits in the value of a key of which lz4 has left the text as it is: one alone is put right.
fn flip_value(image: &mut [u8], text: &str) {
    let at = image.windows(text.len()).rposition(|bytes| bytes == text.as_bytes()).unwrap();
    image[at + 2] ^= 6;
}

#[tokio::test]
async fn an_object_whose_value_is_damaged_is_an_error_by_name_and_left_out_of_lists_until_it_is_deleted() {
    let scratch = tempfile::tempdir().unwrap();
    let secrets = GroupResource::new("", "secrets");
    let key = |name: &str| ObjectKey::namespaced("default", name);
    let json = |name: &str, text: &str| {
        Bytes::from(format!(r#"{{"metadata":{{"name":"{name}","namespace":"default"}},"data":{{"text":"{text}"}}}}"#))
    };
    let text = text(&mut StdRng::seed_from_u64(1), 300);
    let store = Store::open(Arc::new(Disk::open(scratch.path()).unwrap()), Options::default()).await.unwrap();
    for name in ["one", "three"] {
        store.create(&secrets, &key(name), json(name, "short")).await.unwrap();
    }
    // The log has an undamaged older value before the damaged one.
    let first = store.create(&secrets, &key("two"), json("two", "short")).await.unwrap();
    let last = store.update(&secrets, &key("two"), first.revision, json("two", &text)).await.unwrap();
    store.close().await.unwrap();
    drop(store);
    let path = scratch.path().join("store.redb");
    let mut image = std::fs::read(&path).unwrap();
    flip_value(&mut image, &text);
    std::fs::write(&path, image).unwrap();

    let report = disk::check(scratch.path(), |_| {}).unwrap();
    assert_eq!(report.damaged.len(), 1);
    assert_eq!((&*report.damaged[0].key, report.damaged[0].revision), (&b"/secrets/default/two"[..], last.revision));
    assert!(report.faults[0].starts_with("the page at byte "), "{:?}", report.faults);
    let store = Store::open(Arc::new(Disk::open(scratch.path()).unwrap()), Options::default()).await.unwrap();
    let read = store.get(&secrets, &key("two")).await;
    assert!(matches!(&read, Err(ReadError::Unreadable { revision, .. }) if *revision == last.revision), "{read:?}");
    let list = store.list(&secrets, &Scope::All, At::Latest, Page::ALL).unwrap();
    assert_eq!(list.objects.iter().map(|object| &*object.key.name).collect::<Vec<_>>(), ["one", "three"]);
    assert_eq!(store.stats().unreadable, 1);
    assert_eq!(store.unreadable()[0].object, Some((secrets.clone(), key("two"))));
    let refused = store.create(&secrets, &key("two"), json("two", "new")).await;
    assert!(matches!(refused, Err(WriteError::Unreadable { .. })), "{refused:?}");
    let refused = store.update(&secrets, &key("two"), first.revision, json("two", "new")).await;
    assert!(matches!(refused, Err(WriteError::Unreadable { .. })), "{refused:?}");
    let refused = store.delete(&secrets, &key("two"), first.revision).await;
    assert!(matches!(refused, Err(WriteError::Unreadable { .. })), "{refused:?}");
    store.delete_unreadable(&secrets, &key("two")).await.unwrap().unwrap();
    assert!(store.get(&secrets, &key("two")).await.unwrap().is_none());
    store.create(&secrets, &key("two"), json("two", "new")).await.unwrap();
    store.close().await.unwrap();
    drop(store);
    let report = disk::check(scratch.path(), |_| {}).unwrap();
    assert_eq!((report.damaged.len(), report.faults.len()), (0, 0));
}

#[tokio::test]
async fn a_check_changes_nothing() {
    let made = make(2).await;
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("store.redb");
    for seed in 0..20 {
        let mut image = made.images[seed % 2].clone();
        let bit = StdRng::seed_from_u64(seed as u64).random_range(0..image.len() * 8);
        image[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, &image).unwrap();
        drop(disk::check(scratch.path(), |_| {}));
        assert_eq!(std::fs::read(&path).unwrap(), image, "bit {bit}");
    }
}

/// A storage in memory that returns one wrong bit from some moment on.
#[derive(Clone, Debug, Default)]
struct Rotten(Arc<Mutex<(Vec<u8>, Option<usize>)>>);

impl StorageBackend for Rotten {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().0.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.0.lock();
        let offset = offset as usize;
        out.copy_from_slice(state.0.get(offset..offset + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?);
        if let Some(bit) = state.1
            && let Some(byte) = (bit / 8).checked_sub(offset).and_then(|at| out.get_mut(at))
        {
            *byte ^= 1 << (bit % 8);
        }
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.0.lock().0.resize(length as usize, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.lock().0[offset as usize..][..data.len()].copy_from_slice(data);
        Ok(())
    }
}

#[tokio::test]
async fn what_goes_bad_while_the_store_is_open_is_not_served_from_the_past_either() {
    let made = make(4).await;
    let n_seeds = if is_long() { 1_000 } else { 10 };
    let filling: Bytes = text(&mut StdRng::seed_from_u64(7), 2_500_000).into();
    let (mut n_refused, mut n_answered) = (0, 0);
    for seed in 0..n_seeds {
        let mut random = StdRng::seed_from_u64(seed);
        let storage = Rotten::default();
        storage.0.lock().0 = made.images[0].clone();
        let disk = Disk::open_backend(storage.clone(), Path::new("rotten")).unwrap();
        // More than redb keeps in memory, so that pages are read from the disk.
        for n in 0..2 {
            let op = Op::Put { key: format!("filling-{n}").into(), value: filling.clone() };
            disk.txn(Txn { compares: Vec::new(), ops: vec![op] }).await.unwrap();
        }
        let bit = random.random_range(0..made.images[0].len() * 8);
        storage.0.lock().1 = Some(bit);
        let oldest = disk.oldest().await.unwrap();
        let at = Revision(random.random_range(oldest.0..=made.revision.0));
        match disk.range(Range { at: Some(at), ..Range::default() }).await {
            Ok(part) => {
                n_answered += 1;
                let found: BTreeMap<Bytes, (Revision, Bytes)> =
                    part.entries.into_iter().map(|entry| (entry.key, (entry.revision, entry.value))).collect();
                // Not even a right value of an earlier time, nor a list without the key.
                assert!(found == made.held_at(at), "seed {seed}, bit {bit}: the list at revision {at} is another one");
            }
            Err(_) => n_refused += 1,
        }
        let past = Past { after: oldest, limit: usize::MAX, prefix: Bytes::new(), through: made.revision };
        match disk.history(past).await {
            Ok(past) => {
                let found: Vec<_> = past.changes.into_iter().map(|change| change.event).collect();
                let want = made.changes.iter().filter(|((revision, _), _)| oldest < *revision);
                assert_eq!(found.len(), want.count(), "seed {seed}, bit {bit}");
                for event in found {
                    let want = made.changes.get(&(event.revision, event.key));
                    assert_eq!(Some(&event.value), want, "seed {seed}, bit {bit}");
                }
            }
            Err(_) => n_refused += 1,
        }
        // It may fail and poison the store, but must not end the process.
        drop(disk.compact(made.revision).await);
        drop(disk.close().await);
    }
    println!("{n_answered} lists of the past answered, {n_refused} reads refused");
    assert!(0 < n_answered && 0 < n_refused);
}

/// Where the record of the commit in force is.
fn slot_at(image: &[u8]) -> usize {
    64 + 128 * usize::from(image[9] & 1)
}

/// Where the list of tables of the commit in force is.
fn tables_at(image: &[u8]) -> usize {
    let page = u64::from_le_bytes(*image[slot_at(image) + 8..].first_chunk().unwrap());
    assert_eq!(page >> 20, 0, "a small page of the first region");
    PAGE + page as usize * PAGE
}

#[tokio::test]
async fn a_lost_newest_commit_is_put_together_from_the_one_before_and_what_was_written_since() {
    let made = make(6).await;
    let scratch = tempfile::tempdir().unwrap();
    let [closed, crashed] = &made.images;
    let (slot, crashed_slot, tables) = (slot_at(closed), slot_at(crashed), tables_at(crashed));
    let losses = [
        (closed, slot..slot + 128, "the record"),
        (crashed, crashed_slot..crashed_slot + 128, "the record after a crash"),
        (crashed, tables..tables + PAGE, "the list of tables after a crash"),
    ];
    for (image, lost, what) in losses {
        let mut image = image.clone();
        image[lost].fill(0);
        let mut outcomes = Outcomes::default();
        hold(&made, scratch.path(), &image, what, &mut outcomes).await;
        assert_eq!((outcomes.n_repaired, outcomes.n_keys_lost), (1, 0), "{what}: {outcomes:#?}");
        // Nothing says what was acknowledged since the commit before.
        std::fs::write(scratch.path().join("store.redb"), &image).unwrap();
        std::fs::remove_file(scratch.path().join("store.newest")).unwrap();
        let error = Disk::open(scratch.path()).unwrap_err();
        assert!(error.to_string().contains("store.newest is missing or damaged"), "{error}");
    }
}

#[tokio::test]
async fn one_flipped_bit_in_a_small_page_or_in_the_header_costs_nothing() {
    let made = make(3).await;
    let scratch = tempfile::tempdir().unwrap();
    let mut outcomes = Outcomes::default();
    for image in &made.images {
        let (slot, tables) = (slot_at(image), tables_at(image));
        for at in [9, 14, slot, slot + 20, slot + 127, tables, tables + 2, tables + 40] {
            let mut image = image.clone();
            image[at] ^= 1;
            hold(&made, scratch.path(), &image, &format!("a bit of byte {at}"), &mut outcomes).await;
        }
    }
    assert_eq!((outcomes.n_refused, outcomes.n_keys_lost), (0, 0), "{outcomes:#?}");
}

/// The file of a store after a crash, whose newest commit has several transactions: each puts a key that is named by its number.
struct Batched {
    image: Vec<u8>,
    /// The newest revision of the commit before.
    before: Revision,
    newest: Revision,
}

async fn batched(n_writes: u64) -> Batched {
    let storage = Rotten::default();
    let (entered, is_held) = sync_channel(1);
    let (release, released) = sync_channel(1);
    let (is_holding, released) = (Arc::new(AtomicBool::new(false)), Mutex::new(released));
    let holding = is_holding.clone();
    let held = Intercepted::new(storage.clone(), move |operation| {
        if operation == Operation::Sync && holding.swap(false, Ordering::Relaxed) {
            entered.send(()).unwrap();
            released.lock().recv().unwrap();
        }
        Ok(())
    });
    let disk = Disk::open_backend(held, Path::new("batched")).unwrap();
    let put = |key: String| {
        disk.txn(Txn { compares: Vec::new(), ops: vec![Op::Put { key: key.into(), value: "value".into() }] })
    };
    put("number-0".to_owned()).await.unwrap();
    is_holding.store(true, Ordering::Relaxed);
    let before = put("before".to_owned());
    is_held.recv().unwrap();
    // They wait for the commit that is held up, and are then in one.
    let writes: Vec<_> = (0..n_writes).map(|n| put(format!("number-{n}"))).collect();
    release.send(()).unwrap();
    before.await.unwrap();
    for write in writes {
        write.await.unwrap();
    }
    let newest = disk.revision().await.unwrap();
    let image = storage.0.lock().0.clone();
    Batched { image, before: Revision(newest.0 - n_writes), newest }
}

/// Puts a file into a directory, with the revision that was written beside it.
fn place(dir: &Path, image: &[u8], newest: Revision) {
    let number = newest.0.to_le_bytes();
    std::fs::write(dir.join("store.redb"), image).unwrap();
    std::fs::write(dir.join("store.newest"), [number, XxHash3_64::oneshot(&number).to_le_bytes()].concat()).unwrap();
}

#[tokio::test]
async fn a_lost_newest_commit_is_put_together_even_if_store_newest_is_behind_it() {
    let Batched { mut image, before, newest } = batched(6).await;
    let slot = slot_at(&image);
    image[slot..slot + 128].fill(0);
    for known in [1, before.0, before.0 + 2, newest.0] {
        let scratch = tempfile::tempdir().unwrap();
        place(scratch.path(), &image, Revision(known));
        let faults = disk::check(scratch.path(), |_| {}).unwrap().faults;
        let named = format!(
            "store.newest has revision {known}, and there are changes up to revision {newest}: all of them are taken up"
        );
        assert_eq!(faults.contains(&named), known < newest.0, "{faults:?}");
        let disk = Disk::open(scratch.path()).unwrap();
        assert_eq!(disk.revision().await.unwrap(), newest, "revision {known} is known");
        let entries = disk.read().await.unwrap().entries;
        let found: Vec<(Bytes, u64)> = entries.into_iter().map(|entry| (entry.key, entry.revision.0)).collect();
        let mut want = vec![(Bytes::from("before"), before.0)];
        want.extend((0..6).map(|n| (Bytes::from(format!("number-{n}")), before.0 + 1 + n)));
        assert_eq!(found, want, "revision {known} is known");
    }
}

#[tokio::test]
async fn a_lost_newest_commit_of_which_a_change_is_gone_is_refused_even_if_store_newest_is_behind_it() {
    let Batched { mut image, before, newest } = batched(6).await;
    let slot = slot_at(&image);
    image[slot..slot + 128].fill(0);
    // The fourth of the commit, in both tables.
    let places: Vec<usize> = memchr::memmem::find_iter(&image, b"number-3").collect();
    assert!(2 <= places.len(), "{places:?}");
    places.into_iter().for_each(|at| image[at..at + 8].fill(b'#'));
    for known in [1, before.0, before.0 + 2, newest.0] {
        let scratch = tempfile::tempdir().unwrap();
        place(scratch.path(), &image, Revision(known));
        let error = Disk::open(scratch.path()).unwrap_err();
        let want = format!(
            "{:?} is damaged: its newest commit is lost, the one before it ends at revision {before}, and the changes since then \
             end at revision {newest}, but the one at revision {} is gone; restore it from a copy, or move it and \
             store.newest away to start anew",
            scratch.path().join("store.redb"),
            before.0 + 4
        );
        assert_eq!(error.to_string(), want, "revision {known} is known");
        assert_eq!(std::fs::read(scratch.path().join("store.redb")).unwrap(), image, "refused and changed");
    }
}
