//! The store on an engine that others use too: it is compacted by others, is away for a while, and may lose an answer.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use steersman_machinery::{GroupResource, ObjectKey, Revision};
use steersman_storage::kv::{
    Batch, BoxFuture, Changes, Error, Kv, Limits, Outcome, Part, Past, Range, Snapshot, Take, Txn, Volume, Watch,
};
use steersman_storage::{Memory, Options, Scope, Store, WatchError, WriteError};
use tokio::time::Instant;

/// An engine whose failures a test decides. It does not know its volume.
#[derive(Debug, Default)]
struct Shared {
    /// How many of the next loads fail, and how.
    failing_loads: Mutex<Vec<Error>>,
    /// The number of next reads of the log that fail.
    failing_reads: Arc<AtomicUsize>,
    /// Whether the engine takes no writes.
    is_unwell: AtomicBool,
    /// Whether the answers to transactions are lost.
    is_losing: Mutex<bool>,
    is_compacted: Arc<Mutex<bool>>,
    memory: Memory,
    n_loads: AtomicUsize,
}

struct Followed {
    failing_reads: Arc<AtomicUsize>,
    is_compacted: Arc<Mutex<bool>>,
    watch: Box<dyn Watch>,
}

fn away() -> Error {
    Error::Unavailable { source: Arc::new(std::io::Error::other("it is away")) }
}

/// The error of a read when the disk cannot read a sector.
fn unreadable() -> Error {
    Error::Read { source: Arc::new(std::io::Error::from_raw_os_error(5)) }
}

fn compacted() -> Error {
    Error::Compacted { requested: Revision(1), oldest: Revision(2) }
}

impl Shared {
    /// Others compact what was not followed yet: the watch ends before what is written next.
    fn compact_unread(&self) {
        *self.is_compacted.lock() = true;
    }
}

impl Watch for Followed {
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, Error>> {
        Box::pin(async {
            if self.failing_reads.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
                return Err(unreadable());
            }
            let batch = self.watch.next().await;
            // The next changes are gone.
            if std::mem::take(&mut *self.is_compacted.lock()) { Err(compacted()) } else { batch }
        })
    }
}

impl Kv for Shared {
    fn is_shared(&self) -> bool {
        true
    }

    fn limits(&self) -> Limits {
        self.memory.limits()
    }
    fn revision(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        self.memory.revision()
    }
    fn read(&self) -> BoxFuture<'_, Result<Snapshot, Error>> {
        self.memory.read()
    }
    fn load(&self, take: Take) -> BoxFuture<'_, Result<Revision, Error>> {
        self.n_loads.fetch_add(1, Ordering::Relaxed);
        let failure = self.failing_loads.lock().pop();
        Box::pin(async move {
            let Some(failure) = failure else { return self.memory.load(take).await };
            // A part was passed on already.
            take(self.memory.read().await?.entries);
            Err(failure)
        })
    }
    fn range(&self, request: Range) -> BoxFuture<'_, Result<Part, Error>> {
        self.memory.range(request)
    }
    fn history(&self, request: Past) -> BoxFuture<'_, Result<Changes, Error>> {
        self.memory.history(request)
    }
    fn volume(&self) -> Option<Volume> {
        None
    }
    fn oldest(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        self.memory.oldest()
    }
    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<Outcome, Error>> {
        let is_lost = *self.is_losing.lock();
        Box::pin(async move {
            let outcome = self.memory.txn(txn).await?;
            let lost = || Error::Unknown { source: Arc::new(std::io::Error::other("the answer is lost")) };
            if is_lost { Err(lost()) } else { Ok(outcome) }
        })
    }
    fn watch(&self, after: Revision) -> Box<dyn Watch> {
        let watch = self.memory.watch(after);
        let (failing_reads, is_compacted) = (self.failing_reads.clone(), self.is_compacted.clone());
        Box::new(Followed { failing_reads, is_compacted, watch })
    }
    fn compact(&self, through: Revision) -> BoxFuture<'_, Result<(), Error>> {
        self.memory.compact(through)
    }
    fn health(&self) -> Result<(), Error> {
        if self.is_unwell.load(Ordering::Relaxed) { Err(unreadable()) } else { self.memory.health() }
    }
    fn close(&self) -> BoxFuture<'_, Result<(), Error>> {
        self.memory.close()
    }
}

fn configs() -> GroupResource {
    GroupResource::new("", "configmaps")
}

fn json(name: &str) -> bytes::Bytes {
    format!(r#"{{"metadata":{{"name":"{name}"}}}}"#).into()
}

#[tokio::test(start_paused = true)]
async fn a_store_reads_anew_what_others_compacted_however_long_the_engine_is_away() {
    let kv = Arc::new(Shared::default());
    let store = Store::open(kv.clone(), Options::default()).await.unwrap();
    store.create(&configs(), &ObjectKey::cluster("a"), json("a")).await.unwrap();
    let before = store.sync().await.unwrap();
    let mut watcher = store.watch(&configs(), Scope::All, before).unwrap();
    *kv.failing_loads.lock() = vec![away(), compacted(), away()];
    kv.compact_unread();
    let created = store.create(&configs(), &ObjectKey::cluster("b"), json("b")).await.unwrap();
    let read = store.get(&configs(), &ObjectKey::cluster("b")).await.unwrap().unwrap();
    assert_eq!(read.revision, created.revision);
    assert_eq!(kv.n_loads.load(Ordering::Relaxed), 5, "one at the start, three in vain, one at last");
    let ended = loop {
        match watcher.next_batch(8).await {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(ended, WatchError::Lagged { .. }), "{ended:?}");
    assert!(!store.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_store_opens_once_even_if_others_compact_while_it_loads() {
    let kv = Arc::new(Shared::default());
    let first = Store::open(kv.clone(), Options::default()).await.unwrap();
    first.create(&configs(), &ObjectKey::cluster("a"), json("a")).await.unwrap();
    *kv.failing_loads.lock() = vec![compacted(), compacted()];
    let second = Store::open(kv.clone(), Options::default()).await.unwrap();
    assert_eq!(second.count(&configs()), 1, "what was loaded in vain is not there twice");
    *kv.failing_loads.lock() = vec![compacted(); 3];
    assert!(Store::open(kv, Options::default()).await.is_err(), "it does not try for ever");
}

#[tokio::test]
async fn a_write_whose_outcome_is_unknown_is_neither_a_conflict_nor_done() {
    let kv = Arc::new(Shared::default());
    let store = Store::open(kv.clone(), Options::default()).await.unwrap();
    *kv.is_losing.lock() = true;
    let key = ObjectKey::cluster("a");
    let error = store.create(&configs(), &key, json("a")).await.unwrap_err();
    assert!(matches!(error, WriteError::Kv(Error::Unknown { .. })), "{error:?}");
    let held = store.get(&configs(), &key).await.unwrap().unwrap();
    let error = store.update(&configs(), &key, held.revision, json("a")).await.unwrap_err();
    assert!(matches!(error, WriteError::Kv(Error::Unknown { .. })), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_store_follows_a_log_that_could_not_be_read_for_a_while_and_ends_if_only_the_log_stays_unreadable() {
    for (is_unwell, n_failing, goes_on) in [(false, 9, true), (false, 10, false), (true, 100, true)] {
        let kv = Arc::new(Shared::default());
        kv.failing_reads.store(n_failing, Ordering::Relaxed);
        kv.is_unwell.store(is_unwell, Ordering::Relaxed);
        let store = Store::open(kv.clone(), Options::default()).await.unwrap();
        let created = store.create(&configs(), &ObjectKey::cluster("a"), json("a")).await.unwrap();
        let reached = store.wait_for(created.revision, Instant::now() + Duration::from_secs(200)).await;
        assert_eq!((reached.is_ok(), store.is_closed()), (goes_on, !goes_on), "{n_failing} reads fail, {is_unwell}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_reads_anew_however_often_a_sector_was_unreadable_if_it_is_readable_in_the_end() {
    let kv = Arc::new(Shared::default());
    let store = Store::open(kv.clone(), Options::default()).await.unwrap();
    kv.failing_loads.lock().extend([unreadable(), unreadable()]);
    kv.compact_unread();
    let created = store.create(&configs(), &ObjectKey::cluster("a"), json("a")).await.unwrap();
    store.wait_for(created.revision, Instant::now() + Duration::from_secs(10)).await.unwrap();
    assert_eq!(store.stats().objects, 1);
}
