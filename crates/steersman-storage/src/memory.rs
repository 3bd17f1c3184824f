//! The engine without a disk: for tests, and for `--in-memory`. Everything is gone with the process.

use crate::kv::{BoxFuture, Entry, Error, Event, Kv, Op, Outcome, Snapshot, Txn, Watch, hold};
use crate::tail::{Cursor, Tail};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::future::ready;
use std::sync::Arc;
use steersman_machinery::Revision;

/// Keys and values in memory. History is kept until [`Kv::compact`].
#[derive(Debug)]
pub struct Memory {
    /// Taken before the tail's own lock, never after it.
    state: Mutex<State>,
    tail: Arc<Tail>,
}

#[derive(Debug, Default)]
struct State {
    closed: bool,
    current: BTreeMap<Bytes, (Revision, Bytes)>,
    revision: Revision,
}

impl Memory {
    /// An empty store at revision zero.
    pub fn new() -> Memory {
        Memory { state: Mutex::default(), tail: Arc::new(Tail::new(Revision::ZERO)) }
    }

    fn run(&self, txn: Txn) -> Result<Outcome, Error> {
        txn.validate()?;
        let mut state = self.state.lock();
        if state.closed {
            return Err(Error::Closed);
        }
        let written_at = |key: &[u8]| state.current.get(key).map(|(revision, _)| *revision);
        if let Err(found) = hold(&txn.compares, written_at) {
            return Ok(Outcome::Failed { revision: state.revision, found });
        }
        let revision = state.revision.next();
        let mut events = Vec::with_capacity(txn.ops.len());
        for op in txn.ops {
            match op {
                Op::Delete { key } => {
                    if state.current.remove(&key).is_some() {
                        events.push(Event { key, revision, value: None });
                    }
                }
                Op::Put { key, value } => {
                    state.current.insert(key.clone(), (revision, value.clone()));
                    events.push(Event { key, revision, value: Some(value) });
                }
            }
        }
        if !events.is_empty() {
            state.revision = revision;
            self.tail.publish(events);
        }
        Ok(Outcome::Committed { revision: state.revision })
    }
}

impl Default for Memory {
    fn default() -> Memory {
        Memory::new()
    }
}

impl Kv for Memory {
    fn revision(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        Box::pin(ready(Ok(self.tail.revision())))
    }

    fn read(&self) -> BoxFuture<'_, Result<Snapshot, Error>> {
        let state = self.state.lock();
        let entry = |(key, (revision, value)): (&Bytes, &(Revision, Bytes))| Entry {
            key: key.clone(),
            revision: *revision,
            value: value.clone(),
        };
        let snapshot = Snapshot { entries: state.current.iter().map(entry).collect(), revision: state.revision };
        Box::pin(ready(Ok(snapshot)))
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<Outcome, Error>> {
        Box::pin(ready(self.run(txn)))
    }

    fn watch(&self, after: Revision) -> Box<dyn Watch> {
        Box::new(Cursor::new(self.tail.clone(), after))
    }

    fn compact(&self, through: Revision) -> BoxFuture<'_, Result<(), Error>> {
        let state = self.state.lock();
        self.tail.drop_through(through.min(state.revision));
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
