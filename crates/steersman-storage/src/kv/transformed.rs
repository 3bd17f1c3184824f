//! An engine whose values have another form where they are stored than where they are used, such as an encrypted one.
//!
//! [`Transformed`] implements the contract over any engine. Keys, revisions and history are the engine's; each value that is
//! written passes a [`Transformer`], and so does each that is read. The transformer alone knows which keys it covers and what
//! the forms mean.
//!
//! A value that the transformer cannot open is replaced by [`SEALED`], or by [`UNREADABLE`] if nothing will ever open it. Neither is an
//! object, so that the store leaves the value out, counts it and names it like any other that it cannot read. The stored value is left as it is.

use crate::kv::{
    BoxFuture, Cause, Change, Changes, Damaged, Entry, Error, Event, Kv, Limits, Op, Outcome, Part, Past, Range, Scan,
    Snapshot, Take, Txn, Volume, Watch,
};
use crate::parallel;
use bytes::Bytes;
use parking_lot::Mutex;
use std::fmt::Debug;
use std::sync::Arc;
use steersman_machinery::Revision;

/// The first bytes of every encrypted value. It also stands in the place of a value that may be opened by other means, such as another key. No
/// object begins like this.
pub const SEALED: &[u8] = b"k8s:enc:";

/// Stands in the place of a value that is damaged. No object begins like this.
pub const UNREADABLE: &[u8] = b"\0unreadable";

/// The bytes that a transformer usually adds to a value. The largest value is smaller by this.
const OVERHEAD_BYTES: usize = 4 * 1024;

/// The bytes of values that are opened before other tasks have their turn.
const YIELD_AFTER_BYTES: usize = 64 * 1024;

/// The entries that one thread opens at a time when all are loaded.
const OPENED_AT_ONCE: usize = 256;

/// Changes the form of values on their way to an engine, and back.
pub trait Transformer: Debug + Send + Sync + 'static {
    /// The stored form of a value; the value itself if the key is not covered.
    ///
    /// # Errors
    /// When it cannot be made at present. Nothing is written then.
    fn seal(&self, key: &[u8], value: &Bytes) -> Result<Bytes, Cause>;

    /// The value of a stored form.
    ///
    /// # Errors
    /// See [`Unopened`].
    fn open(&self, key: &[u8], stored: &Bytes) -> Result<Opened, Unopened>;

    /// Whether the value of a key may have another form than it would be given now. Unchanged writes of other keys read nothing.
    fn may_be_stale(&self, _key: &[u8]) -> bool {
        true
    }

    /// The prefix of the keys whose values tell how others are opened: they are opened first when all are loaded.
    fn opened_first(&self) -> Option<Bytes> {
        None
    }

    /// Obtains what opening these keys and stored values lacked. It ends in bounded time; what it could not obtain is still
    /// lacking then.
    fn fetch(&self, lacking: Vec<(Bytes, Bytes)>) -> BoxFuture<'_, ()>;
}

/// An opened value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Opened {
    /// The value.
    pub value: Bytes,
    /// Whether it would be stored in another form now.
    pub form: Form,
}

/// Whether a stored form is the one that a write would make.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Form {
    /// A write makes this form.
    Current,
    /// A write makes another form.
    Stale,
}

/// Why a stored value was not opened.
#[derive(Clone, Debug)]
pub enum Unopened {
    /// It takes something that [`Transformer::fetch`] obtains.
    Lacking,
    /// It cannot be opened with what there is, but with something else: another key, a later release.
    Sealed(Cause),
    /// It is damaged.
    Unreadable(Cause),
}

/// Values in another form over an engine.
#[derive(Debug)]
pub struct Transformed {
    kv: Arc<dyn Kv>,
    opener: Opener,
}

#[derive(Clone, Debug)]
struct Opener(Arc<dyn Transformer>);

/// A value in its place.
struct Slot<'a> {
    key: &'a Bytes,
    revision: Revision,
    value: &'a mut Bytes,
}

/// The watch of the engine, with opened values.
struct Opening {
    opener: Opener,
    /// The changes that come next, until they are opened.
    pending: Option<crate::kv::Batch>,
    watch: Box<dyn Watch>,
}

/// The key of a value could not be obtained.
#[derive(Debug, thiserror::Error)]
#[error("what it takes to open the value could not be obtained")]
struct StillLacking;

impl Transformed {
    /// The values of `kv`, in the form that `transformer` gives them.
    pub fn new(kv: Arc<dyn Kv>, transformer: Arc<dyn Transformer>) -> Transformed {
        Transformed { kv, opener: Opener(transformer) }
    }

    fn sealed(&self, mut txn: Txn) -> Result<Txn, Error> {
        txn.validate(&self.limits())?;
        for op in &mut txn.ops {
            if let Op::Put { key, value } = op {
                *value = self.opener.0.seal(key, value).map_err(|source| Error::Unsealed { source })?;
            }
        }
        Ok(txn)
    }

    async fn stale(&self, key: Bytes, at: Revision) -> Result<bool, Error> {
        if self.kv.is_stale(key.clone(), at).await? {
            return Ok(true);
        }
        if !self.opener.0.may_be_stale(&key) {
            return Ok(false);
        }
        let Some(entry) = self.kv.entry(key.clone(), at).await? else { return Ok(false) };
        let open = || self.opener.0.open(&key, &entry.value);
        let opened = match open() {
            Err(Unopened::Lacking) => {
                self.opener.0.fetch(vec![(key.clone(), entry.value.clone())]).await;
                open()
            }
            opened => opened,
        };
        Ok(opened.is_ok_and(|opened| opened.form == Form::Stale))
    }

    async fn load_all(&self, take: Take) -> Result<Revision, Error> {
        let lacking: Arc<Mutex<Vec<Entry>>> = Arc::default();
        let (opener, later, passed) = (self.opener.clone(), lacking.clone(), take.clone());
        let open = move |entries: Vec<Entry>| {
            let mut slots: Vec<Option<Entry>> = entries.into_iter().map(Some).collect();
            parallel::each(slots.chunks_mut(OPENED_AT_ONCE).collect(), |slots| {
                for slot in slots {
                    let Some(entry) = slot else { continue };
                    match opener.0.open(&entry.key, &entry.value) {
                        Ok(Opened { value, .. }) => entry.value = value,
                        Err(Unopened::Lacking) => later.lock().extend(slot.take()),
                        Err(unopened) => entry.value = unopened.mark(&entry.key, entry.revision),
                    }
                }
            });
            passed(slots.into_iter().flatten().collect());
        };
        if let Some(prefix) = self.opener.0.opened_first() {
            // Whatever cannot be opened is named below.
            self.kv.range(Range { prefix, ..Range::default() }).await?.entries.iter().for_each(|entry| {
                let _opened = self.opener.0.open(&entry.key, &entry.value);
            });
        }
        let revision = self.kv.load(Arc::new(open)).await?;
        let mut rest = std::mem::take(&mut *lacking.lock());
        if !rest.is_empty() {
            self.opener.open(rest.iter_mut().map(slot).collect()).await;
            take(rest);
        }
        Ok(revision)
    }
}

fn slot(entry: &mut Entry) -> Slot<'_> {
    Slot { key: &entry.key, revision: entry.revision, value: &mut entry.value }
}

/// The slot of an event's value; `None` for a deletion.
fn slot_of_event(event: &mut Event) -> Option<Slot<'_>> {
    event.value.as_mut().map(|value| Slot { key: &event.key, revision: event.revision, value })
}

impl Unopened {
    /// Logs a value that is not opened, and returns the mark that takes its place.
    fn mark(self, key: &Bytes, revision: Revision) -> Bytes {
        let (cause, mark): (Cause, _) = match self {
            Unopened::Lacking => (Arc::new(StillLacking), SEALED),
            Unopened::Sealed(cause) => (cause, SEALED),
            Unopened::Unreadable(cause) => (cause, UNREADABLE),
        };
        let causes = std::iter::successors(Some(&*cause as &dyn std::error::Error), |error| error.source());
        let why: Vec<String> = causes.map(ToString::to_string).collect();
        tracing::error!(key = %String::from_utf8_lossy(key), %revision, "a stored value cannot be read: {}", why.join(": "));
        Bytes::from_static(mark)
    }
}

impl Opener {
    /// Opens values in their places.
    ///
    /// # Cancel safety
    /// A dropped future has changed no value.
    async fn open(&self, slots: Vec<Slot<'_>>) {
        let mut opened: Vec<Result<Bytes, Unopened>> = Vec::with_capacity(slots.len());
        let mut n_bytes = 0;
        for slot in &slots {
            n_bytes += slot.value.len();
            if YIELD_AFTER_BYTES < n_bytes {
                n_bytes = 0;
                // Opening may be work, and others wait for this thread.
                tokio::task::yield_now().await;
            }
            opened.push(self.value(slot));
        }
        let is_lacking = |value: &Result<Bytes, Unopened>| matches!(value, Err(Unopened::Lacking));
        if opened.iter().any(is_lacking) {
            let lacking = slots.iter().zip(&opened).filter(|(_, value)| is_lacking(value));
            let lacking = lacking.map(|(slot, _)| (slot.key.clone(), slot.value.clone())).collect();
            self.0.fetch(lacking).await;
            for (slot, value) in slots.iter().zip(&mut opened).filter(|(_, value)| is_lacking(value)) {
                *value = self.value(slot);
            }
        }
        for (slot, value) in slots.into_iter().zip(opened) {
            *slot.value = match value {
                Ok(value) => value,
                Err(unopened) => unopened.mark(slot.key, slot.revision),
            };
        }
    }

    fn value(&self, slot: &Slot<'_>) -> Result<Bytes, Unopened> {
        self.0.open(slot.key, slot.value).map(|opened| opened.value)
    }
}

impl Kv for Transformed {
    fn engine(&self) -> &'static str {
        self.kv.engine()
    }

    fn limits(&self) -> Limits {
        let limits = self.kv.limits();
        Limits { value_bytes: limits.value_bytes.saturating_sub(OVERHEAD_BYTES), ..limits }
    }

    fn is_shared(&self) -> bool {
        self.kv.is_shared()
    }

    fn revision(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        self.kv.revision()
    }

    fn read(&self) -> BoxFuture<'_, Result<Snapshot, Error>> {
        Box::pin(async {
            let mut snapshot = self.kv.read().await?;
            self.opener.open(snapshot.entries.iter_mut().map(slot).collect()).await;
            Ok(snapshot)
        })
    }

    /// The entries as they are stored: a backup takes no key, holds nothing that the store does not, and has what cannot be opened.
    fn scan(&self) -> BoxFuture<'_, Result<Box<dyn Scan>, Error>> {
        self.kv.scan()
    }

    fn load(&self, take: Take) -> BoxFuture<'_, Result<Revision, Error>> {
        Box::pin(self.load_all(take))
    }

    fn range(&self, request: Range) -> BoxFuture<'_, Result<Part, Error>> {
        Box::pin(async {
            let mut part = self.kv.range(request).await?;
            self.opener.open(part.entries.iter_mut().map(slot).collect()).await;
            Ok(part)
        })
    }

    fn history(&self, request: Past) -> BoxFuture<'_, Result<Changes, Error>> {
        Box::pin(async {
            let mut found = self.kv.history(request).await?;
            let slots = found.changes.iter_mut().flat_map(|Change { event, previous }| {
                slot_of_event(event).into_iter().chain(previous.as_mut().map(slot))
            });
            self.opener.open(slots.collect()).await;
            Ok(found)
        })
    }

    fn damaged(&self) -> Vec<Damaged> {
        self.kv.damaged()
    }

    fn volume(&self) -> Option<Volume> {
        self.kv.volume()
    }

    fn oldest(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        self.kv.oldest()
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<Outcome, Error>> {
        match self.sealed(txn) {
            Ok(txn) => self.kv.txn(txn),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn entry(&self, key: Bytes, at: Revision) -> BoxFuture<'_, Result<Option<Entry>, Error>> {
        Box::pin(async move {
            let mut entry = self.kv.entry(key, at).await?;
            self.opener.open(entry.iter_mut().map(slot).collect()).await;
            Ok(entry)
        })
    }

    fn is_stale(&self, key: Bytes, at: Revision) -> BoxFuture<'_, Result<bool, Error>> {
        Box::pin(self.stale(key, at))
    }

    fn watch(&self, after: Revision) -> Box<dyn Watch> {
        Box::new(Opening { opener: self.opener.clone(), pending: None, watch: self.kv.watch(after) })
    }

    fn compact(&self, through: Revision) -> BoxFuture<'_, Result<(), Error>> {
        self.kv.compact(through)
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

impl Watch for Opening {
    fn next(&mut self) -> BoxFuture<'_, Result<crate::kv::Batch, Error>> {
        Box::pin(async {
            // Kept here while its values are opened, so that a dropped future has consumed nothing.
            let pending = match &mut self.pending {
                Some(pending) => pending,
                empty => empty.insert(self.watch.next().await?),
            };
            self.opener.open(pending.events.iter_mut().filter_map(slot_of_event).collect()).await;
            self.pending.take().ok_or(Error::Closed)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::{Batch, Expect};
    use crate::{Memory, Options, Store, conformance};
    use std::sync::atomic::{AtomicU8, Ordering};
    use steersman_machinery::{GroupResource, ObjectKey};

    /// Stores `k8s:enc:N:` and the value with each byte changed by N, which is the generation; of a generation beyond `known` it
    /// lacks something.
    #[derive(Debug)]
    struct Shift {
        generation: AtomicU8,
        known: AtomicU8,
        fetched: AtomicU8,
    }

    impl Shift {
        fn new(generation: u8) -> Arc<Shift> {
            Arc::new(Shift { generation: generation.into(), known: generation.into(), fetched: 0.into() })
        }
    }

    impl Transformer for Shift {
        fn seal(&self, _key: &[u8], value: &Bytes) -> Result<Bytes, Cause> {
            let generation = self.generation.load(Ordering::Relaxed);
            let shifted: Vec<u8> = value.iter().map(|byte| byte.wrapping_add(generation)).collect();
            Ok([SEALED, &[generation], shifted.as_slice()].concat().into())
        }

        fn open(&self, _key: &[u8], stored: &Bytes) -> Result<Opened, Unopened> {
            let Some([generation, shifted @ ..]) = stored.strip_prefix(SEALED) else {
                return Err(Unopened::Unreadable(Arc::new(StillLacking)));
            };
            if self.known.load(Ordering::Relaxed) < *generation {
                return Err(Unopened::Lacking);
            }
            let value: Vec<u8> = shifted.iter().map(|byte| byte.wrapping_sub(*generation)).collect();
            let is_current = *generation == self.generation.load(Ordering::Relaxed);
            Ok(Opened { value: value.into(), form: if is_current { Form::Current } else { Form::Stale } })
        }

        fn fetch(&self, _lacking: Vec<(Bytes, Bytes)>) -> BoxFuture<'_, ()> {
            Box::pin(async {
                // A turn of the runtime, so that a caller can be dropped in between.
                tokio::task::yield_now().await;
                let fetched = self.fetched.load(Ordering::Relaxed);
                self.known.fetch_max(fetched, Ordering::Relaxed);
            })
        }
    }

    fn put(key: &str, expect: Expect, value: &str) -> Txn {
        let key = Bytes::from(key.to_owned());
        Txn::single(expect, Op::Put { key, value: value.to_owned().into() })
    }

    #[tokio::test]
    async fn it_keeps_the_contract_of_engines() {
        conformance::transforming(async || {
            Arc::new(Transformed::new(Arc::new(Memory::new()), Shift::new(3))) as Arc<dyn Kv>
        })
        .await;
    }

    #[tokio::test]
    async fn an_engine_holds_no_value_as_it_was_written_and_every_read_has_it_so() {
        let memory = Arc::new(Memory::new());
        let kv = Transformed::new(memory.clone(), Shift::new(1));
        kv.txn(put("/pods/a/b", Expect::Absent, "first")).await.unwrap();
        kv.txn(put("/pods/a/b", Expect::At(Revision(1)), "second")).await.unwrap();
        let stored = memory.read().await.unwrap().entries.remove(0).value;
        assert_eq!(stored, b"k8s:enc:\x01tfdpoe".as_slice());
        assert_eq!(kv.read().await.unwrap().entries[0].value, "second");
        assert_eq!(kv.range(Range::default()).await.unwrap().entries[0].value, "second");
        let past = Past { limit: 9, through: Revision(2), ..Past::default() };
        let change = kv.history(past).await.unwrap().changes.remove(1);
        assert_eq!((change.event.value.unwrap(), change.previous.unwrap().value), ("second".into(), "first".into()));
        let Batch { events, .. } = kv.watch(Revision(1)).next().await.unwrap();
        assert_eq!(events[0].value.as_ref().unwrap(), "second");
    }

    #[tokio::test]
    async fn a_backup_has_the_values_as_they_are_stored_readable_or_not() {
        let memory = Arc::new(Memory::new());
        Transformed::new(memory.clone(), Shift::new(2)).txn(put("/pods/a/b", Expect::Absent, "x")).await.unwrap();
        for known in [1, 2] {
            let mut scan = Transformed::new(memory.clone(), Shift::new(known)).scan().await.unwrap();
            assert_eq!(scan.next().await.unwrap()[0].value, b"k8s:enc:\x02z".as_slice());
        }
    }

    #[tokio::test]
    async fn a_value_in_an_earlier_form_is_stale_until_it_is_written_again() {
        let shift = Shift::new(1);
        let kv = Transformed::new(Arc::new(Memory::new()), shift.clone());
        kv.txn(put("/pods/a/b", Expect::Absent, "x")).await.unwrap();
        kv.txn(put("/pods/a/bc", Expect::Absent, "x")).await.unwrap();
        let is_stale = async |key: &'static str, at: u64| kv.is_stale(key.into(), Revision(at)).await.unwrap();
        assert!(!is_stale("/pods/a/b", 1).await);
        shift.generation.store(0, Ordering::Relaxed);
        assert_eq!((is_stale("/pods/a/b", 1).await, is_stale("/pods/a", 1).await), (true, false));
        kv.txn(put("/pods/a/b", Expect::At(Revision(1)), "x")).await.unwrap();
        assert_eq!((is_stale("/pods/a/b", 3).await, is_stale("/pods/a/bc", 2).await), (false, true));
    }

    #[tokio::test]
    async fn a_watch_that_is_dropped_while_it_opens_values_has_consumed_nothing() {
        let (memory, shift) = (Arc::new(Memory::new()), Shift::new(2));
        Transformed::new(memory.clone(), shift.clone()).txn(put("/pods/a/b", Expect::Absent, "x")).await.unwrap();
        let lacks = Shift::new(1);
        lacks.fetched.store(2, Ordering::Relaxed);
        let mut watch = Transformed::new(memory, lacks).watch(Revision(0));
        let mut dropped = watch.next();
        assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(dropped.as_mut().poll(cx))).await.is_pending());
        drop(dropped);
        assert_eq!(watch.next().await.unwrap().events[0].value.as_ref().unwrap(), "x");
    }

    fn resource() -> GroupResource {
        GroupResource::new("", "secrets")
    }

    async fn create(store: &Store, name: &str) {
        let json = Bytes::from_static(br#"{"metadata":{"name":"a"}}"#);
        store.create(&resource(), &ObjectKey::namespaced("default", name), json).await.unwrap();
    }

    #[tokio::test]
    async fn a_store_leaves_out_what_cannot_be_opened_and_takes_it_up_when_it_can() {
        let memory = Arc::new(Memory::new());
        let open = async |shift: Arc<Shift>| {
            let kv = Arc::new(Transformed::new(memory.clone(), shift));
            Store::open(kv, Options::default()).await.unwrap()
        };
        let store = open(Shift::new(1)).await;
        create(&store, "a").await;
        let other = open(Shift::new(2)).await;
        create(&other, "b").await;
        let shift = Shift::new(1);
        let lacking = open(shift.clone()).await;
        let key = ObjectKey::namespaced("default", "b");
        assert_eq!((lacking.stats().objects, lacking.stats().unreadable), (1, 1));
        assert!(lacking.get(&resource(), &key).await.is_err());
        assert!(lacking.is_sealed(&resource(), &key).await.unwrap());
        assert_eq!(lacking.read_again().await.unwrap(), 0);
        shift.fetched.store(2, Ordering::Relaxed);
        assert_eq!(lacking.read_again().await.unwrap(), 1);
        let object = lacking.get(&resource(), &key).await.unwrap().unwrap();
        assert_eq!((object.revision, lacking.stats().unreadable), (Revision(3), 0));
    }

    #[tokio::test]
    async fn an_object_in_an_earlier_form_is_written_again_and_no_other() {
        let (memory, shift) = (Arc::new(Memory::new()), Shift::new(1));
        let kv = Arc::new(Transformed::new(memory.clone(), shift.clone()));
        let store = Store::open(kv, Options::default()).await.unwrap();
        create(&store, "a").await;
        let key = ObjectKey::namespaced("default", "a");
        let object = store.get(&resource(), &key).await.unwrap().unwrap();
        assert_eq!(store.refresh(&resource(), &object).await.unwrap().revision, Revision(1));
        shift.generation.store(0, Ordering::Relaxed);
        assert_eq!(store.refresh(&resource(), &object).await.unwrap().revision, Revision(2));
        let stored = memory.read().await.unwrap().entries.remove(0).value;
        assert!(stored.starts_with(b"k8s:enc:\0"));
        assert!(store.refresh(&resource(), &object).await.is_ok_and(|object| object.revision == Revision(1)));
    }
}
