//! The engine without a disk: for tests, and for `--in-memory`. Its data ends with the process.

use crate::kv::tail::{Cursor, Tail};
use crate::kv::{
    BoxFuture, Change, Changes, Entry, Error, Event, Kv, Limits, Op, Outcome, Part, Past, Range, Snapshot, Txn, Volume,
    Watch, hold,
};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::future::ready;
use std::ops::Bound;
use std::sync::Arc;
use steersman_machinery::Revision;

/// Keys and values in memory. History is kept until [`Kv::compact`].
#[derive(Debug)]
pub struct Memory {
    /// Locked before the tail's own lock, never after it.
    state: Mutex<State>,
    tail: Arc<Tail>,
}

#[derive(Debug, Default)]
struct State {
    closed: bool,
    compacted: Revision,
    /// The bytes of the current entries, keys included, and of all superseded ones.
    live: u64,
    superseded: u64,
    /// Every change after `compacted`, in order: revision and key.
    log: VecDeque<(Revision, Bytes)>,
    revision: Revision,
    /// The values of each key, ascending by revision; `None` for a deletion. No list is empty, and only the first of a
    /// list may be from before `compacted`.
    versions: BTreeMap<Bytes, VecDeque<(Revision, Option<Bytes>)>>,
}

impl Memory {
    /// An empty store at revision zero.
    pub fn new() -> Memory {
        Memory { state: Mutex::default(), tail: Arc::new(Tail::new(Revision::ZERO)) }
    }

    /// A store with these entries at a revision, and without history before it. Of several entries of one key the last one counts.
    ///
    /// # Panics
    /// When an entry is of a later revision.
    pub fn filled(entries: impl IntoIterator<Item = Entry>, at: Revision) -> Memory {
        let mut state = State { compacted: at, revision: at, ..State::default() };
        for Entry { key, revision, value } in entries {
            assert!(revision <= at, "the entry {key:?} is of revision {revision}, which is after {at}");
            state.versions.insert(key, VecDeque::from([(revision, Some(value))]));
        }
        let weights = state.versions.iter().map(|(key, versions)| {
            let values = versions.iter().flat_map(|(_, value)| value);
            (key.len() + values.map(Bytes::len).sum::<usize>()) as u64
        });
        state.live = weights.sum();
        Memory { state: Mutex::new(state), tail: Arc::new(Tail::new(at)) }
    }

    fn run(&self, txn: Txn) -> Result<Outcome, Error> {
        txn.validate(&Limits::MAX)?;
        let mut state = self.state.lock();
        if state.closed {
            return Err(Error::Closed);
        }
        let written_at = |key: &[u8]| state.current(key).map(|(revision, _)| revision);
        if let Err(found) = hold(&txn.compares, written_at) {
            return Ok(Outcome::Failed { revision: state.revision, found });
        }
        let revision = state.revision.next();
        let mut events = Vec::with_capacity(txn.ops.len());
        for op in txn.ops {
            let (key, value) = match op {
                Op::Delete { key } if state.current(&key).is_none() => continue,
                Op::Delete { key } => (key, None),
                Op::Put { key, value } => (key, Some(value)),
            };
            let weight = |value: &Bytes| (key.len() + value.len()) as u64;
            let before = state.current(&key).map_or(0, |(_, value)| weight(value));
            // The entry that marks a deletion counts as superseded from the start.
            let marker = if value.is_none() { key.len() as u64 } else { 0 };
            state.live = state.live - before + value.as_ref().map_or(0, weight);
            state.superseded += before + marker;
            state.versions.entry(key.clone()).or_default().push_back((revision, value.clone()));
            state.log.push_back((revision, key.clone()));
            events.push(Event { key, revision, value });
        }
        if !events.is_empty() {
            state.revision = revision;
            self.tail.publish(events);
        }
        Ok(Outcome::Committed { revision: state.revision })
    }
}

impl State {
    fn current(&self, key: &[u8]) -> Option<(Revision, &Bytes)> {
        let (revision, value) = self.versions.get(key)?.back()?;
        Some((*revision, value.as_ref()?))
    }

    /// The entry of a key at a revision.
    fn held(&self, key: &Bytes, at: Revision) -> Option<Entry> {
        let versions = self.versions.get(key)?;
        let (revision, value) = versions.iter().rev().find(|(revision, _)| *revision <= at)?;
        Some(Entry { key: key.clone(), revision: *revision, value: value.clone()? })
    }

    fn check_kept(&self, requested: Revision) -> Result<(), Error> {
        let oldest = self.compacted;
        if requested < oldest { Err(Error::Compacted { requested, oldest }) } else { Ok(()) }
    }

    fn range(&self, request: &Range) -> Result<Part, Error> {
        let revision = request.at.unwrap_or(self.revision).min(self.revision);
        self.check_kept(revision)?;
        let lower = match &request.start_after {
            Some(after) if request.prefix < *after => Bound::Excluded(after),
            _ => Bound::Included(&request.prefix),
        };
        let keys = self.versions.range::<Bytes, _>((lower, Bound::Unbounded)).map(|(key, _)| key);
        let keys = keys.take_while(|key| key.starts_with(&request.prefix));
        let mut held = keys.filter_map(|key| self.held(key, revision));
        let entries: Vec<Entry> = held.by_ref().take(request.limit.unwrap_or(usize::MAX)).collect();
        Ok(Part { entries, more: held.next().is_some(), revision })
    }

    fn history(&self, request: &Past) -> Result<Changes, Error> {
        self.check_kept(request.after)?;
        let through = request.through.min(self.revision);
        let mut changes: Vec<Change> = Vec::new();
        let start = self.log.partition_point(|(revision, _)| *revision <= request.after);
        for (revision, key) in self.log.range(start..).take_while(|(revision, _)| *revision <= through) {
            if let Some(last) = changes.last().filter(|last| last.event.revision != *revision)
                && request.limit <= changes.len()
            {
                let progress = last.event.revision;
                return Ok(Changes { changes, progress });
            }
            if key.starts_with(&request.prefix) {
                let value = self.held(key, *revision).map(|entry| entry.value);
                let event = Event { key: key.clone(), revision: *revision, value };
                changes.push(Change { event, previous: self.held(key, Revision(revision.0 - 1)) });
            }
        }
        Ok(Changes { changes, progress: through.max(request.after) })
    }

    /// Removes entries that were superseded up to a revision.
    fn compact(&mut self, through: Revision) {
        self.compacted = self.compacted.max(through.min(self.revision));
        let compacted = self.compacted;
        while let Some((_, key)) = self.log.pop_front_if(|(revision, _)| *revision <= compacted) {
            let Some(versions) = self.versions.get_mut(&key) else { continue };
            while versions.get(1).is_some_and(|(revision, _)| *revision <= compacted) {
                versions.pop_front();
            }
            versions.shrink_to_fit();
            if versions.len() == 1
                && versions.front().is_some_and(|(revision, held)| *revision <= compacted && held.is_none())
            {
                self.versions.remove(&key);
            }
        }
    }
}

impl Default for Memory {
    fn default() -> Memory {
        Memory::new()
    }
}

impl Kv for Memory {
    fn is_shared(&self) -> bool {
        false
    }

    fn engine(&self) -> &'static str {
        "memory"
    }

    fn revision(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        Box::pin(ready(Ok(self.tail.revision())))
    }

    fn read(&self) -> BoxFuture<'_, Result<Snapshot, Error>> {
        let part = self.state.lock().range(&Range::default());
        Box::pin(ready(part.map(|Part { entries, revision, .. }| Snapshot { entries, revision })))
    }

    fn range(&self, request: Range) -> BoxFuture<'_, Result<Part, Error>> {
        Box::pin(ready(self.state.lock().range(&request)))
    }

    fn history(&self, request: Past) -> BoxFuture<'_, Result<Changes, Error>> {
        Box::pin(ready(self.state.lock().history(&request)))
    }

    fn oldest(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        Box::pin(ready(Ok(self.state.lock().compacted)))
    }

    fn volume(&self) -> Option<Volume> {
        let state = self.state.lock();
        Some(Volume { live: state.live, revision: state.revision, superseded: state.superseded })
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<Outcome, Error>> {
        Box::pin(ready(self.run(txn)))
    }

    fn watch(&self, after: Revision) -> Box<dyn Watch> {
        Box::new(Cursor::new(self.tail.clone(), after))
    }

    fn compact(&self, through: Revision) -> BoxFuture<'_, Result<(), Error>> {
        let mut state = self.state.lock();
        state.compact(through);
        self.tail.drop_through(state.compacted);
        Box::pin(ready(Ok(())))
    }

    fn health(&self) -> Result<(), Error> {
        if self.state.lock().closed { Err(Error::Closed) } else { Ok(()) }
    }

    fn close(&self) -> BoxFuture<'_, Result<(), Error>> {
        self.state.lock().closed = true;
        self.tail.close();
        Box::pin(ready(Ok(())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::{Compare, Expect};

    fn entry(key: &'static str, revision: u64, value: &'static str) -> Entry {
        Entry { key: key.into(), revision: Revision(revision), value: value.into() }
    }

    #[tokio::test]
    async fn a_filled_store_has_its_entries_at_their_revisions_and_goes_on_behind_the_last() {
        let given = [entry("b", 7, "old"), entry("a", 3, "1"), entry("b", 9, "2")];
        let memory = Memory::filled(given, Revision(12));
        let read = memory.read().await.unwrap();
        assert_eq!((read.entries, read.revision), (vec![entry("a", 3, "1"), entry("b", 9, "2")], Revision(12)));
        assert_eq!(memory.volume().unwrap().live, 4);
        let before = memory.range(Range { at: Some(Revision(11)), ..Range::default() }).await;
        assert!(matches!(before, Err(Error::Compacted { oldest: Revision(12), .. })));
        let put = Op::Put { key: "c".into(), value: "3".into() };
        let expect = Compare { key: "a".into(), expect: Expect::At(Revision(3)) };
        let written = memory.txn(Txn { compares: vec![expect], ops: vec![put] }).await.unwrap();
        assert_eq!(written, Outcome::Committed { revision: Revision(13) });
        assert_eq!(memory.watch(Revision(12)).next().await.unwrap().events.len(), 1);
    }
}
