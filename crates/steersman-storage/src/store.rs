//! Objects over a key-value engine: optimistic writes, linearizable reads, lists at a revision, watches.
//!
//! Writes go to the engine only. Reads, lists and watches are answered from the cache, which one task feeds from the engine's
//! log (`feeder`). A read that must be current first waits until the cache has everything that was committed before it.

pub(crate) mod check;
mod error;
mod lag;

use crate::backup::Backup;
use crate::cache::feeder::{Feeder, Retention, volume};
use crate::cache::interest::Interest;
use crate::cache::resource::{At, List, Miss, Newest, Page, Scope, Visibility};
use crate::cache::ring::Limits;
use crate::cache::watcher::{Log, Watcher};
use crate::cache::{Cache, Loading};
use crate::key;
use crate::kv::transformed::SEALED;
use crate::kv::{self, Compare, Expect, Kv, Op, Outcome, Txn};
use crate::store::check::{Unreadable, unreadable_at};
use crate::store::lag::Lag;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use steersman_machinery::{Draft, GroupResource, Object, ObjectKey, Revision};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

pub use crate::cache::feeder::HistorySize;
pub use crate::store::error::{OpenError, ReadError, WaitError, WriteError};

/// Objects that [`Store::list_where`] takes from the cache at a time.
const CHUNK_OBJECTS: usize = 4_096;

/// The most attempts to load all entries before they are compacted.
const LOADS_MAX: usize = 3;

/// The time that the task which feeds the cache has once the engine is closed.
const FEEDER_ENDS_WITHIN: Duration = Duration::from_secs(10);

/// The default age of history. Longer than the 75 s that clients count on, shorter than the 10 minutes within which a
/// continue token must expire.
const HISTORY: Duration = Duration::from_secs(300);

/// The options of a store's history.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The store that compacts the engine.
    pub compactor: Compactor,
    /// The age to which the engine keeps history: lists at an old revision and watches from one reach back this far.
    /// The age of history from before a reopen counts from the reopen. Checked every 15 seconds.
    pub history: Duration,
    /// The size to which the engine keeps history: beyond it the oldest is removed, however young. Checked with every
    /// change. The history from before a reopen is removed as a whole.
    pub history_size: HistorySize,
    /// The history of each resource that is kept in memory; older history is read from the engine.
    pub ring: Limits,
}

/// The store that compacts an engine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Compactor {
    /// Another store on the same engine.
    Another,
    /// This store.
    This,
}

/// Figures of a store, for metrics.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Stats {
    /// The number of objects of all resources.
    pub objects: usize,
    /// History after this revision is kept, as far as this store knows.
    pub oldest: Revision,
    /// The newest revision in the cache.
    pub revision: Revision,
    /// The number of stored entries that are damaged or no objects: they are skipped, and each is logged once.
    pub unreadable: usize,
}

/// The objects. Cheap to clone; all clones are one store.
#[derive(Clone, Debug)]
pub struct Store(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    cache: Arc<Cache>,
    /// The newest revision of a transaction of this store.
    committed: AtomicU64,
    feeder: Mutex<Option<JoinHandle<()>>>,
    kv: Arc<dyn Kv>,
    /// The oldest revision of which the engine has history, as far as this store knows.
    oldest: Arc<AtomicU64>,
    /// Since when the cache lacks a committed change.
    lag: Lag,
    /// The newest revision of the engine that was read, for [`Store::sync_since`].
    synced: Mutex<Option<Synced>>,
}

/// A read of the engine's newest revision.
#[derive(Clone, Copy, Debug)]
struct Synced {
    begun: Instant,
    revision: Revision,
}

/// Another object that a write depends on: unless it is as expected, nothing is written.
#[derive(Clone, Debug)]
pub struct Guard {
    /// Its resource.
    pub resource: GroupResource,
    /// Its key.
    pub key: ObjectKey,
    /// The revision at which the writer read it; `None` if it must not exist.
    pub expected: Option<Revision>,
    /// The change of this object in the same transaction.
    pub change: GuardChange,
}

/// The change of a guarding object.
#[derive(Clone, Debug)]
pub enum GuardChange {
    /// It is deleted.
    Delete,
    /// It stays as it is.
    Nothing,
    /// It gets this content.
    Put(Draft),
}

/// A completed deletion.
#[derive(Clone, Debug)]
pub struct Deleted {
    /// The last content, at the revision at which it was written.
    pub object: Arc<Object>,
    /// The revision of the deletion.
    pub revision: Revision,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            compactor: Compactor::This,
            history: HISTORY,
            history_size: HistorySize::DEFAULT,
            ring: Limits::default(),
        }
    }
}

// === impl Store: life ===

impl Store {
    /// Reads all entries of the engine and starts to follow its log. Must be called within a tokio runtime. Entries that are not
    /// objects are skipped, logged, and counted by [`Store::stats`].
    ///
    /// # Errors
    /// When the engine cannot be read.
    pub async fn open(kv: Arc<dyn Kv>, options: Options) -> Result<Store, OpenError> {
        let (loading, revision) = load(&*kv).await.map_err(OpenError::Kv)?;
        for kv::Damaged { key, revision, fault } in kv.damaged() {
            tracing::error!(key = %String::from_utf8_lossy(&key), %revision, "a stored entry is damaged: {fault}");
            loading.leave_out(key, revision);
        }
        let oldest = Arc::new(AtomicU64::new(kv.oldest().await.map_err(OpenError::Kv)?.0));
        let decoded = tokio::task::spawn_blocking(move || Cache::new(&loading, revision, options.ring)).await;
        // Only a runtime that is shutting down drops its blocking tasks.
        let cache = Arc::new(decoded.map_err(|_| OpenError::Kv(kv::Error::Closed))?);
        let retention = (options.compactor == Compactor::This)
            .then(|| Retention::new(options.history, options.history_size, Instant::now(), volume(&*kv, revision)));
        let feeder = Feeder {
            cache: cache.clone(),
            kv: kv.clone(),
            oldest: oldest.clone(),
            retention,
            watch: kv.watch(revision),
        };
        let feeder = Mutex::new(Some(tokio::spawn(feeder.run())));
        Ok(Store(Arc::new(Inner {
            cache,
            committed: AtomicU64::new(0),
            feeder,
            kv,
            oldest,
            lag: Lag::default(),
            synced: Mutex::default(),
        })))
    }

    /// Figures for metrics.
    pub fn stats(&self) -> Stats {
        let cache = &self.0.cache;
        Stats {
            objects: cache.count(),
            oldest: self.oldest(),
            revision: self.revision(),
            unreadable: self.unreadable_keys().len(),
        }
    }

    /// The stored entries that are damaged or no objects. With them are those that are damaged in the engine only, and about to be
    /// written again.
    pub fn unreadable(&self) -> Vec<Unreadable> {
        self.unreadable_keys().iter().map(|(key, revision)| unreadable_at(key, *revision)).collect()
    }

    fn unreadable_keys(&self) -> BTreeMap<Bytes, Revision> {
        let damaged = self.0.kv.damaged().into_iter().map(|damaged| (damaged.key, damaged.revision));
        damaged.chain(self.0.cache.unreadable()).collect()
    }

    fn oldest(&self) -> Revision {
        Revision(self.0.oldest.load(Ordering::Acquire))
    }

    /// Begins a backup of the newest state. `seconds` is the time, in seconds since 1970.
    ///
    /// # Errors
    /// When the engine cannot be read.
    pub async fn backup(&self, seconds: Option<u64>) -> Result<Backup, kv::Error> {
        Backup::begin(&*self.0.kv, seconds).await
    }

    /// Closes the engine, which first finishes queued writes; then the cache, once it has applied them; then the
    /// watches, each after its last event. A second call does nothing.
    ///
    /// # Errors
    /// When the engine could not finish cleanly. It is closed nevertheless.
    pub async fn close(&self) -> Result<(), kv::Error> {
        let closed = self.0.kv.close().await;
        let feeder = self.0.feeder.lock().take();
        if let Some(mut feeder) = feeder {
            match timeout(FEEDER_ENDS_WITHIN, &mut feeder).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::error!("the task that feeds the cache ended: {error}"),
                Err(_) => {
                    tracing::error!("the task that feeds the cache has not ended in time, and is ended");
                    feeder.abort();
                }
            }
        }
        closed
    }

    /// Whether the store was closed, or can no longer follow its log.
    pub fn is_closed(&self) -> bool {
        self.0.cache.applied().closed
    }

    /// Whether writes are accepted. Fails with the error that every write would get, if it is a permanent one.
    ///
    /// # Errors
    /// The engine's, or [`kv::Error::Closed`] when the cache no longer follows it.
    pub fn health(&self) -> Result<(), kv::Error> {
        self.0.kv.health()?;
        if self.is_closed() { Err(kv::Error::Closed) } else { Ok(()) }
    }

    /// Whether reads and writes are answered now: like [`Store::health`], and fails while the engine is away, or the cache is behind it for longer than
    /// some seconds.
    ///
    /// # Errors
    /// The errors of [`Store::health`], or [`kv::Error::Unavailable`].
    pub fn readiness(&self) -> Result<(), kv::Error> {
        self.health()?;
        self.0.kv.reachable()?;
        self.0.lag.check(self.revision()).map_err(|lagging| kv::Error::Unavailable { source: Arc::new(lagging) })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(feeder) = self.feeder.get_mut() {
            feeder.abort();
        }
    }
}

// === impl Store: writes ===

impl Store {
    /// Stores a new object, given as JSON without `metadata.resourceVersion`; the returned object has one. The JSON is
    /// parsed: a caller that already has a tree makes a [`Draft`] of it and calls [`Store::create_with`].
    ///
    /// # Errors
    /// See [`WriteError`]; `AlreadyExists` when the key is taken.
    pub async fn create(
        &self,
        resource: &GroupResource,
        key: &ObjectKey,
        json: Bytes,
    ) -> Result<Arc<Object>, WriteError> {
        self.create_with(resource, key, Draft::read(json).map_err(WriteError::Object)?, &[]).await
    }

    /// Stores a new object, if the guards hold when it is written.
    ///
    /// # Errors
    /// See [`WriteError`]; `AlreadyExists` when the key is taken, otherwise `Guard` when a guard does not hold.
    pub async fn create_with(
        &self,
        resource: &GroupResource,
        key: &ObjectKey,
        draft: Draft,
        guards: &[Guard],
    ) -> Result<Arc<Object>, WriteError> {
        let stored = draft.encode();
        loop {
            match self.put(resource, key, Expect::Absent, &stored, guards).await? {
                Ok(object) => return Ok(object),
                Err(seen) => {
                    // If the object was deleted before this read, the key is free, and the creation is retried.
                    if let Some(current) = self.read_at_least(resource, key, seen).await? {
                        return Err(WriteError::AlreadyExists { current });
                    }
                }
            }
        }
    }

    /// Stores new content of an object last written at `expected`. The JSON is parsed, as by [`Store::create`].
    ///
    /// # Errors
    /// See [`WriteError`]; `Conflict` when it was written since then or is gone.
    pub async fn update(
        &self,
        resource: &GroupResource,
        key: &ObjectKey,
        expected: Revision,
        json: Bytes,
    ) -> Result<Arc<Object>, WriteError> {
        self.update_with(resource, key, expected, Draft::read(json).map_err(WriteError::Object)?, &[]).await
    }

    /// Stores new content of an object last written at `expected`, if the guards hold when it is written.
    ///
    /// # Errors
    /// See [`WriteError`]; `Conflict` when it was written since then or is gone, otherwise `Guard` when a guard does
    /// not hold.
    pub async fn update_with(
        &self,
        resource: &GroupResource,
        key: &ObjectKey,
        expected: Revision,
        draft: Draft,
        guards: &[Guard],
    ) -> Result<Arc<Object>, WriteError> {
        match self.put(resource, key, Expect::At(expected), &draft.encode(), guards).await? {
            Ok(object) => Ok(object),
            Err(seen) => Err(WriteError::Conflict { current: self.read_at_least(resource, key, seen).await? }),
        }
    }

    /// Removes an object last written at `expected`.
    ///
    /// # Errors
    /// See [`WriteError`]; `Conflict` when it was written since then or is gone.
    pub async fn delete(
        &self,
        resource: &GroupResource,
        key: &ObjectKey,
        expected: Revision,
    ) -> Result<Deleted, WriteError> {
        self.delete_with(resource, key, expected, &[]).await
    }

    /// Removes an object last written at `expected`, if the guards hold when it is removed.
    ///
    /// # Errors
    /// See [`WriteError`]; `Conflict` when it was written since then or is gone, otherwise `Guard` when a guard does
    /// not hold.
    pub async fn delete_with(
        &self,
        resource: &GroupResource,
        key: &ObjectKey,
        expected: Revision,
        guards: &[Guard],
    ) -> Result<Deleted, WriteError> {
        let stored_key = key::encode(resource, key).map_err(WriteError::Key)?;
        // The engine does not return what it deletes. Content at a revision never changes, so the cache has the same.
        let object = match self.get(resource, key).await {
            Ok(Some(object)) if object.revision == expected => object,
            Ok(current) => return Err(WriteError::Conflict { current }),
            Err(error) => return Err(error.into()),
        };
        let expect = Expect::At(expected);
        match self.commit(guarded(expect, Op::Delete { key: stored_key }, guards)?).await? {
            Outcome::Committed { revision } => Ok(Deleted { object, revision }),
            Outcome::Failed { revision, found } => match broken(expect, guards, &found) {
                Some(guard) => Err(self.broken(guard, revision).await?),
                None => Err(WriteError::Conflict { current: self.read_at_least(resource, key, revision).await? }),
            },
        }
    }

    /// Removes the stored entry of a key if it cannot be read, which frees the key. Returns the revision of the
    /// deletion, or `None` if the key has no unreadable entry.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn delete_unreadable(
        &self,
        resource: &GroupResource,
        key: &ObjectKey,
    ) -> Result<Option<Revision>, WriteError> {
        let stored_key = key::encode(resource, key).map_err(WriteError::Key)?;
        self.sync().await?;
        let Some(revision) = self.0.cache.unreadable_at(&stored_key) else { return Ok(None) };
        match self.commit(Txn::single(Expect::At(revision), Op::Delete { key: stored_key })).await? {
            Outcome::Committed { revision } => {
                self.reach(revision).await?;
                Ok(Some(revision))
            }
            // Another writer has written or deleted the entry.
            Outcome::Failed { revision, .. } => {
                self.reach(revision).await?;
                Ok(None)
            }
        }
    }

    /// Writes an object again as it is, if the engine would store it in another form now (see [`Kv::is_stale`]). Returns the object at
    /// its newest revision.
    ///
    /// # Errors
    /// See [`WriteError`]; `Conflict` when it was written since then or is gone.
    pub async fn refresh(&self, resource: &GroupResource, object: &Arc<Object>) -> Result<Arc<Object>, WriteError> {
        let stored_key = key::encode(resource, &object.key).map_err(WriteError::Key)?;
        if !self.0.kv.is_stale(stored_key, object.revision).await? {
            return Ok(object.clone());
        }
        match self.put(resource, &object.key, Expect::At(object.revision), &object.stored(), &[]).await? {
            Ok(object) => Ok(object),
            Err(seen) => Err(WriteError::Conflict { current: self.read_at_least(resource, &object.key, seen).await? }),
        }
    }

    /// [`Store::refresh`] for all objects of a resource.
    ///
    /// # Errors
    /// See [`WriteError`]. Objects that are written at the same time are no error: they have the newest form.
    pub async fn refresh_all(&self, resource: &GroupResource) -> Result<(), WriteError> {
        let listed = self.list(resource, &Scope::All, At::Latest, Page::ALL)?;
        for object in &listed.objects {
            match self.refresh(resource, object).await {
                Ok(_) | Err(WriteError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads again what could not be read, and writes each that can be read by now as it is, so that it comes to everybody as a change.
    /// Returns how many there were. To be called when an engine may open more than before.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn read_again(&self) -> Result<usize, WriteError> {
        let mut n_written = 0;
        let mut newest = Revision::ZERO;
        for (stored_key, revision) in self.0.cache.unreadable() {
            let found = self.0.kv.entry(stored_key.clone(), revision).await?;
            let (Some(kv::Entry { value, .. }), Some((_, _, printed))) = (found, key::split(&stored_key)) else {
                continue;
            };
            if Object::decode(ObjectKey::parse(printed), revision, &value).is_err() {
                continue;
            }
            // Another server on the same engine may be faster: then there is nothing to do here.
            let put = Op::Put { key: stored_key, value };
            if let Outcome::Committed { revision } = self.commit(Txn::single(Expect::At(revision), put)).await? {
                newest = newest.max(revision);
                n_written += 1;
            }
        }
        self.reach(newest).await?;
        Ok(n_written)
    }

    /// Runs a transaction. Reads that come later include it.
    async fn commit(&self, txn: Txn) -> Result<Outcome, kv::Error> {
        let outcome = self.0.kv.txn(txn).await?;
        if let Outcome::Committed { revision } = outcome {
            self.0.committed.fetch_max(revision.0, Ordering::AcqRel);
        }
        Ok(outcome)
    }

    /// Writes, or returns the revision at which the condition on the object's own key did not hold.
    async fn put(
        &self,
        resource: &GroupResource,
        key: &ObjectKey,
        expect: Expect,
        stored: &Bytes,
        guards: &[Guard],
    ) -> Result<Result<Arc<Object>, Revision>, WriteError> {
        let stored_key = key::encode(resource, key).map_err(WriteError::Key)?;
        let put = Op::Put { key: stored_key, value: stored.clone() };
        match self.commit(guarded(expect, put, guards)?).await? {
            Outcome::Committed { revision } => match Object::decode(key.clone(), revision, stored) {
                Ok(object) => Ok(Ok(Arc::new(object))),
                Err(error) => Err(WriteError::Object(error)),
            },
            Outcome::Failed { revision, found } => match broken(expect, guards, &found) {
                Some(guard) => Err(self.broken(guard, revision).await?),
                None => Ok(Err(revision)),
            },
        }
    }

    /// The error of a guard that did not hold at a revision.
    async fn broken(&self, guard: &Guard, revision: Revision) -> Result<WriteError, WriteError> {
        Ok(WriteError::Guard {
            resource: guard.resource.clone(),
            key: guard.key.clone(),
            current: self.read_at_least(&guard.resource, &guard.key, revision).await?,
        })
    }

    async fn read_at_least(
        &self,
        resource: &GroupResource,
        key: &ObjectKey,
        revision: Revision,
    ) -> Result<Option<Arc<Object>>, WriteError> {
        self.reach(revision).await?;
        let stored_key = key::encode(resource, key).map_err(WriteError::Key)?;
        if let Some(revision) = self.0.cache.unreadable_at(&stored_key) {
            // The cache has the value before the unreadable one, so retries would never end.
            return Err(WriteError::Unreadable { key: key.clone(), revision });
        }
        Ok(self.get_cached(resource, key))
    }
}

// === impl Store: reads ===

impl Store {
    /// The newest revision in the cache.
    pub fn revision(&self) -> Revision {
        self.0.cache.applied().revision
    }

    /// Waits until the cache has everything that was committed before the call, and returns its revision. A list or watch after
    /// this is consistent.
    ///
    /// # Errors
    /// When the engine fails or the store is closed.
    pub async fn sync(&self) -> Result<Revision, ReadError> {
        let begun = self.is_shared().then(Instant::now);
        let committed = self.0.kv.revision().await.map_err(ReadError::Kv)?;
        if let Some(begun) = begun {
            let mut synced = self.0.synced.lock();
            if synced.is_none_or(|synced| synced.begun < begun) {
                *synced = Some(Synced { begun, revision: committed });
            }
            drop(synced);
            self.0.lag.note(committed, self.revision(), begun);
        }
        self.reach(committed).await?;
        Ok(self.revision())
    }

    /// Whether other processes may write while this one does, so that the cache may lag behind what they have acknowledged.
    pub fn is_shared(&self) -> bool {
        self.0.kv.is_shared()
    }

    /// Waits until the cache has everything that was committed before an instant in the past, and everything that this store has
    /// committed since. Several waits of one request read the engine's revision once.
    ///
    /// # Errors
    /// When the engine fails or the store is closed.
    pub async fn sync_since(&self, instant: Instant) -> Result<Revision, ReadError> {
        let synced = if self.is_shared() { *self.0.synced.lock() } else { None };
        match synced.filter(|synced| instant < synced.begun) {
            Some(synced) => {
                let committed = Revision(self.0.committed.load(Ordering::Acquire));
                self.reach(synced.revision.max(committed)).await?;
                Ok(self.revision())
            }
            None => self.sync().await,
        }
    }

    /// Waits until the cache has a revision, at most until a deadline.
    ///
    /// # Errors
    /// When it was not reached in time, or the store is closed.
    pub async fn wait_for(&self, revision: Revision, deadline: Instant) -> Result<(), WaitError> {
        match tokio::time::timeout_at(deadline, self.reach(revision)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(WaitError::Closed),
            Err(_) => Err(WaitError::TooLarge { requested: revision, current: self.revision() }),
        }
    }

    /// The current object: the read includes every write acknowledged before the call.
    ///
    /// # Errors
    /// When the engine fails or the store is closed; `Unreadable` when the stored entry is damaged or no object.
    pub async fn get(&self, resource: &GroupResource, key: &ObjectKey) -> Result<Option<Arc<Object>>, ReadError> {
        self.sync().await?;
        self.get_readable(resource, key)
    }

    /// The object in the cache, which may lag behind.
    ///
    /// # Errors
    /// `Unreadable` when the stored entry is damaged or no object.
    pub fn get_readable(&self, resource: &GroupResource, key: &ObjectKey) -> Result<Option<Arc<Object>>, ReadError> {
        if self.0.cache.has_unreadable()
            && let Ok(stored_key) = key::encode(resource, key)
            && let Some(revision) = self.0.cache.unreadable_at(&stored_key)
        {
            return Err(ReadError::Unreadable { key: key.clone(), revision });
        }
        Ok(self.get_cached(resource, key))
    }

    /// Like [`Store::get_readable`], without the check.
    pub fn get_cached(&self, resource: &GroupResource, key: &ObjectKey) -> Option<Arc<Object>> {
        self.0.cache.resource(resource).ok()?.get(key)
    }

    /// A handle to the revision of the newest change of a resource that can be read. A follower that has applied every
    /// change up to this revision has also applied each object that was read before it asked.
    pub fn newest(&self, resource: &GroupResource) -> Newest {
        self.0.cache.newest(resource)
    }

    /// Whether the stored entry of a key cannot be read at present, and may be with something else: it is encrypted, or of a later release.
    ///
    /// # Errors
    /// When the engine fails.
    pub async fn is_sealed(&self, resource: &GroupResource, key: &ObjectKey) -> Result<bool, ReadError> {
        let Ok(stored_key) = key::encode(resource, key) else { return Ok(false) };
        let Some(revision) = self.0.cache.unreadable_at(&stored_key) else { return Ok(false) };
        let entry = self.0.kv.entry(stored_key, revision).await.map_err(ReadError::Kv)?;
        Ok(entry.is_some_and(|entry| entry.value.starts_with(SEALED)))
    }

    /// Number of objects of a resource in the cache.
    pub fn count(&self, resource: &GroupResource) -> usize {
        self.0.cache.resource(resource).map_or(0, |cache| cache.count())
    }

    /// Number of objects of a resource in a scope.
    pub fn count_in(&self, resource: &GroupResource, scope: &Scope) -> usize {
        self.0.cache.resource(resource).map_or(0, |cache| cache.count_in(scope))
    }

    /// A page of a resource's objects, in the order of their keys.
    ///
    /// # Errors
    /// `Compacted` or `TooLarge` when the revision no longer exists or does not exist yet.
    pub fn list(&self, resource: &GroupResource, scope: &Scope, at: At, page: Page<'_>) -> Result<List, ReadError> {
        self.list_visible(resource, scope, at, page, Visibility::All)
    }

    /// [`Store::list`] restricted to visible objects. While nothing is hidden it costs the same; otherwise every object
    /// of the scope is examined, so that the number of remaining objects is exact.
    ///
    /// # Errors
    /// `Compacted` or `TooLarge` when the revision no longer exists or does not exist yet.
    pub fn list_visible(
        &self,
        resource: &GroupResource,
        scope: &Scope,
        at: At,
        page: Page<'_>,
        visibility: Visibility,
    ) -> Result<List, ReadError> {
        // Read first: the resource's cache has every event up to this revision.
        let applied = self.revision();
        let listed = match self.0.cache.resource(resource) {
            Ok(cache) => cache.list(scope, at, page, visibility, applied),
            Err(floor) => nothing(at, floor, applied),
        };
        listed.map_err(|miss| {
            let requested = match at {
                At::Exact(revision) => revision,
                At::Latest => applied,
            };
            match miss {
                Miss::Compacted(oldest) => ReadError::Compacted { requested, oldest },
                Miss::Future(current) => ReadError::TooLarge { requested, current },
            }
        })
    }

    /// A page of a resource's objects at a revision, from the engine if the cache no longer has its history; the
    /// remaining objects are not counted then.
    ///
    /// # Errors
    /// `Compacted` or `TooLarge` when the revision no longer exists or does not exist yet.
    pub async fn list_at(
        &self,
        resource: &GroupResource,
        scope: &Scope,
        revision: Revision,
        page: Page<'_>,
    ) -> Result<List, ReadError> {
        match self.list(resource, scope, At::Exact(revision), page) {
            Err(ReadError::Compacted { .. }) if self.oldest() <= revision => {}
            listed => return listed,
        }
        let mut start_after = page.start_after.map(|after| {
            let prefix = key::prefix(resource, &Scope::All);
            Bytes::from([&*prefix, after.to_string().as_bytes()].concat())
        });
        loop {
            let prefix = key::prefix(resource, scope);
            let request = kv::Range { at: Some(revision), limit: page.limit, prefix, start_after };
            let part = self.0.kv.range(request).await.map_err(|error| match error {
                kv::Error::Compacted { requested, oldest } => ReadError::Compacted { requested, oldest },
                error => ReadError::Kv(error),
            })?;
            let last = part.entries.last().map(|entry| entry.key.clone());
            let objects = readable(part.entries);
            // Without an object the caller would have no key to continue after, and would request the same page for
            // ever.
            if objects.is_empty() && part.more {
                start_after = last;
                continue;
            }
            return Ok(List { more: part.more, objects, remaining: (!part.more).then_some(0), revision });
        }
    }

    /// [`Store::list_at`] restricted to visible objects.
    ///
    /// # Errors
    /// `Compacted` or `TooLarge` when the revision no longer exists or does not exist yet.
    pub async fn list_visible_at(
        &self,
        resource: &GroupResource,
        scope: &Scope,
        revision: Revision,
        page: Page<'_>,
        visibility: Visibility,
    ) -> Result<List, ReadError> {
        if visibility == Visibility::All {
            return self.list_at(resource, scope, revision, page).await;
        }
        match self.list_visible(resource, scope, At::Exact(revision), page, visibility) {
            Err(ReadError::Compacted { .. }) if self.oldest() <= revision => {
                let is_visible = |object: &Object| !object.meta().is_uninitialized();
                self.list_where_at(resource, scope, revision, page, is_visible).await
            }
            listed => listed,
        }
    }

    /// The objects in the cache that are not initialized, by resource. Visits each resource, but not each object.
    pub fn uninitialized(&self) -> Vec<(GroupResource, Vec<Arc<Object>>)> {
        self.0.cache.uninitialized()
    }

    /// A page of the objects that `keep` accepts. It is called without locks and, once the page is full, only until it
    /// has accepted one more object, which shows that more follow; the remaining objects are not counted.
    ///
    /// # Errors
    /// `Compacted` or `TooLarge` when the revision no longer exists or does not exist yet.
    pub fn list_where(
        &self,
        resource: &GroupResource,
        scope: &Scope,
        at: At,
        page: Page<'_>,
        mut keep: impl FnMut(&Object) -> bool,
    ) -> Result<List, ReadError> {
        match self.list_in_chunks(resource, scope, at, page, CHUNK_OBJECTS, &mut keep) {
            // The ring has dropped the revision between two chunks. A single chunk needs no history.
            Err(ReadError::Compacted { .. }) if at == At::Latest => {
                self.list_in_chunks(resource, scope, at, page, usize::MAX, &mut keep)
            }
            listed => listed,
        }
    }

    /// [`Store::list_where`] at a revision, which reaches as far back as [`Store::list_at`].
    ///
    /// # Errors
    /// `Compacted` or `TooLarge` when the revision no longer exists or does not exist yet.
    pub async fn list_where_at(
        &self,
        resource: &GroupResource,
        scope: &Scope,
        revision: Revision,
        page: Page<'_>,
        mut keep: impl FnMut(&Object) -> bool,
    ) -> Result<List, ReadError> {
        let mut filtered = Filtered::new(page.limit, revision);
        let mut start_after = page.start_after.cloned();
        loop {
            let chunk = Page { limit: Some(CHUNK_OBJECTS), start_after: start_after.as_ref() };
            let chunk = self.list_at(resource, scope, revision, chunk).await?;
            start_after = chunk.objects.last().map(|last| last.key.clone()).or(start_after);
            if filtered.take(chunk.objects, &mut keep).is_break() || !chunk.more {
                return Ok(filtered.list);
            }
        }
    }

    fn list_in_chunks(
        &self,
        resource: &GroupResource,
        scope: &Scope,
        at: At,
        page: Page<'_>,
        chunk_objects: usize,
        keep: &mut impl FnMut(&Object) -> bool,
    ) -> Result<List, ReadError> {
        let mut chunk = self.list(resource, scope, at, Page { limit: Some(chunk_objects), ..page })?;
        let mut filtered = Filtered::new(page.limit, chunk.revision);
        loop {
            let last = chunk.objects.last().cloned().filter(|_| chunk.more);
            let taken = filtered.take(chunk.objects, keep);
            let Some(last) = last.filter(|_| taken.is_continue()) else { return Ok(filtered.list) };
            let next = Page { limit: Some(chunk_objects), start_after: Some(&last.key) };
            chunk = self.list(resource, scope, At::Exact(filtered.list.revision), next)?;
        }
    }

    /// The events of a resource strictly after a revision. With the revision of a list, there is no gap and no duplicate.
    ///
    /// # Errors
    /// `Compacted` when history does not reach back that far.
    pub fn watch(&self, resource: &GroupResource, scope: Scope, after: Revision) -> Result<Watcher, ReadError> {
        self.watch_for(resource, scope, &Interest::ALL, after)
    }

    /// Like [`Store::watch`], but not woken for events that cannot match `interest`. Some events that do not match are
    /// returned nevertheless, so the caller must still apply its selectors.
    ///
    /// # Errors
    /// `Compacted` when history does not reach back that far.
    pub fn watch_for(
        &self,
        resource: &GroupResource,
        scope: Scope,
        interest: &Interest,
        after: Revision,
    ) -> Result<Watcher, ReadError> {
        let cache = self.0.cache.clone();
        let resource_cache = cache.resource_or_new(resource);
        let log = Log { kv: self.0.kv.clone(), oldest: self.oldest(), prefix: key::prefix(resource, &scope) };
        Watcher::new(cache, resource_cache, log, scope, interest.clone(), after)
            .map_err(|oldest| ReadError::Compacted { requested: after, oldest })
    }

    /// Removes history up to and including a revision, here and in the engine.
    ///
    /// # Errors
    /// When the engine fails.
    pub async fn compact(&self, through: Revision) -> Result<(), kv::Error> {
        let through = through.min(self.revision());
        self.0.cache.drop_through(through);
        self.0.oldest.fetch_max(through.0, Ordering::AcqRel);
        self.0.kv.compact(through).await
    }

    /// Waits until the cache has a revision.
    async fn reach(&self, revision: Revision) -> Result<(), ReadError> {
        if revision <= self.revision() {
            return Ok(());
        }
        let mut applied = self.0.cache.subscribe();
        match applied.wait_for(|applied| revision <= applied.revision || applied.closed).await {
            Ok(applied) if revision <= applied.revision => Ok(()),
            _ => Err(ReadError::Closed),
        }
    }
}

/// The transaction of a write with guards. The write comes first.
fn guarded(expect: Expect, op: Op, guards: &[Guard]) -> Result<Txn, WriteError> {
    let mut txn = Txn::single(expect, op);
    for guard in guards {
        let key = key::encode(&guard.resource, &guard.key).map_err(WriteError::Key)?;
        let expect = guard.expected.map_or(Expect::Absent, Expect::At);
        match &guard.change {
            GuardChange::Delete => txn.ops.push(Op::Delete { key: key.clone() }),
            GuardChange::Nothing => {}
            GuardChange::Put(draft) => txn.ops.push(Op::Put { key: key.clone(), value: draft.encode() }),
        }
        txn.compares.push(Compare { key, expect });
    }
    Ok(txn)
}

/// The first guard that did not hold, if the condition of the write itself did. `found` has the revision of each key.
fn broken<'a>(expect: Expect, guards: &'a [Guard], found: &[Option<Revision>]) -> Option<&'a Guard> {
    let (own, others) = found.split_first()?;
    let wanted = match expect {
        Expect::Absent => None,
        Expect::At(expected) => Some(expected),
    };
    if *own != wanted {
        return None;
    }
    guards.iter().zip(others).find(|(guard, found)| guard.expected != **found).map(|(guard, _)| guard)
}

/// Loads all entries. Others may compact the engine meanwhile: then it starts over, a bounded number of times.
async fn load(kv: &dyn Kv) -> Result<(Arc<Loading>, Revision), kv::Error> {
    let mut n_loads = 1;
    loop {
        let loading = Arc::new(Loading::default());
        let take = loading.clone();
        match kv.load(Arc::new(move |entries| take.take(entries))).await {
            Err(kv::Error::Compacted { .. }) if n_loads < LOADS_MAX => n_loads += 1,
            loaded => return loaded.map(|revision| (loading, revision)),
        }
    }
}

/// A page of the objects that a filter accepts.
struct Filtered {
    limit: usize,
    list: List,
}

impl Filtered {
    fn new(limit: Option<usize>, revision: Revision) -> Filtered {
        let list = List { more: false, objects: Vec::new(), remaining: None, revision };
        Filtered { limit: limit.unwrap_or(usize::MAX), list }
    }

    /// Adds the next objects. Breaks off when the page is full and one more object was accepted, which shows that more
    /// follow.
    fn take(&mut self, objects: Vec<Arc<Object>>, keep: &mut impl FnMut(&Object) -> bool) -> ControlFlow<()> {
        for object in objects {
            if !keep(&object) {
                continue;
            }
            if self.list.objects.len() == self.limit {
                self.list.more = true;
                return ControlFlow::Break(());
            }
            self.list.objects.push(object);
        }
        ControlFlow::Continue(())
    }
}

/// The objects among stored entries. Others are logged and left out.
fn readable(entries: Vec<kv::Entry>) -> Vec<Arc<Object>> {
    let mut objects = Vec::with_capacity(entries.len());
    for kv::Entry { key, revision, value } in entries {
        let Some((_, _, printed)) = key::split(&key) else { continue };
        match Object::decode(ObjectKey::parse(printed), revision, &value) {
            Ok(object) => objects.push(Arc::new(object)),
            Err(error) => tracing::warn!(?key, %revision, "a stored entry is not an object: {error}"),
        }
    }
    objects
}

/// The list of a resource that has had no objects since `floor`.
fn nothing(at: At, floor: Revision, applied: Revision) -> Result<List, Miss> {
    let revision = match at {
        At::Exact(revision) if revision < floor => return Err(Miss::Compacted(floor)),
        At::Exact(revision) if applied < revision => return Err(Miss::Future(applied)),
        At::Exact(revision) => revision,
        // Objects that it had at a revision before the floor are no longer known.
        At::Latest => applied.max(floor),
    };
    Ok(List { more: false, objects: Vec::new(), remaining: Some(0), revision })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_list_does_not_name_a_revision_at_which_there_may_have_been_objects() {
        let latest = |floor, applied| nothing(At::Latest, Revision(floor), Revision(applied)).ok().unwrap().revision.0;
        assert_eq!((latest(11, 10), latest(9, 10)), (11, 10));
    }
}
