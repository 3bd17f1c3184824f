//! What waits for one handler.
//!
//! Below its bound, a mailbox keeps every event in order. At the bound it stops growing with the number of events and
//! starts to grow, at most, with the number of objects: an event about an object that has one waiting is merged into
//! that one, so that the handler hears of the object once, from the state it knows to the newest. Nothing is lost that
//! matters to a handler, nobody is held up, and memory stays within twice the number of objects.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::cached::Cached;
use crate::delta::DecodeError;
use crate::handler::Arrival;
use crate::indexer::Finality;
use crate::key::ObjectKey;

/// How many events wait for one handler before events about one object are merged.
pub const MAILBOX_MAX: usize = 4_096;

/// How many events a handler's task takes at once.
const BATCH_MAX: usize = 64;

/// One event on its way to one handler.
#[derive(Debug)]
pub(crate) enum Notice<K> {
    Added(Cached<K>, Arrival),
    Deleted {
        object: Option<Cached<K>>,
        finality: Finality,
    },
    /// Everything that was there when the handler started has been delivered.
    Synced,
    Undecodable(Arc<DecodeError>),
    Updated {
        old: Cached<K>,
        new: Cached<K>,
    },
}

/// The queue of one handler: any number of pushes, one consumer.
#[derive(Debug)]
pub(crate) struct Mailbox<K> {
    state: Mutex<State<K>>,
    bell: Notify,
    synced: watch::Sender<bool>,
    /// Becomes true when the handler's task has ended.
    ended: watch::Sender<bool>,
}

#[derive(Debug)]
struct State<K> {
    /// `None` where an event was merged away.
    slots: VecDeque<Option<Waiting<K>>>,
    /// Number of the first slot; numbers only rise.
    first: u64,
    n_waiting: usize,
    n_waiting_max: usize,
    /// While merging: the number of the newest slot about each object. Every number here is a filled slot.
    newest: Option<HashMap<ObjectKey, u64>>,
    is_closed: bool,
}

/// One event and what it is about.
#[derive(Debug)]
pub(crate) struct Waiting<K> {
    /// `None` for what is about no object, which is never merged.
    pub(crate) key: Option<ObjectKey>,
    pub(crate) notice: Notice<K>,
}

impl<K> Mailbox<K> {
    pub(crate) fn new(n_waiting_max: usize) -> Self {
        let state = State {
            slots: VecDeque::new(),
            first: 0,
            n_waiting: 0,
            n_waiting_max: n_waiting_max.max(1),
            newest: None,
            is_closed: false,
        };
        Self {
            state: Mutex::new(state),
            bell: Notify::new(),
            synced: watch::Sender::new(false),
            ended: watch::Sender::new(false),
        }
    }

    pub(crate) fn push(&self, key: Option<ObjectKey>, notice: Notice<K>) {
        {
            let mut state = self.state.lock();
            if state.is_closed {
                return;
            }
            state.push(key, notice);
        }
        self.bell.notify_one();
    }

    /// Moves what waits into `batch`, waiting for the first. False: closed, and everything has been taken.
    ///
    /// Cancelled, it has taken nothing.
    pub(crate) async fn pop(&self, batch: &mut Vec<Waiting<K>>) -> bool {
        loop {
            {
                let mut state = self.state.lock();
                state.pop(batch);
                if !batch.is_empty() {
                    return true;
                }
                if state.is_closed {
                    return false;
                }
            }
            // A push between the lock and here leaves its permit in the bell.
            self.bell.notified().await;
        }
    }

    /// Takes no more; what waits is still delivered.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
        self.bell.notify_one();
    }

    /// Takes no more and drops what waits.
    pub(crate) fn discard(&self) {
        {
            let mut state = self.state.lock();
            state.is_closed = true;
            state.slots.clear();
            state.newest = None;
            state.n_waiting = 0;
        }
        self.bell.notify_one();
    }

    pub(crate) fn n_waiting(&self) -> usize {
        self.state.lock().n_waiting
    }

    pub(crate) fn mark_synced(&self) {
        self.synced.send_replace(true);
    }

    pub(crate) fn synced(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }

    pub(crate) fn mark_ended(&self) {
        self.ended.send_replace(true);
    }

    pub(crate) fn ended(&self) -> watch::Receiver<bool> {
        self.ended.subscribe()
    }
}

impl<K> State<K> {
    fn push(&mut self, key: Option<ObjectKey>, notice: Notice<K>) {
        if self.newest.is_none() && self.n_waiting >= self.n_waiting_max {
            self.start_merging();
        }
        let waiting = Waiting { key, notice };
        let Some(waiting) = self.merge(waiting) else { return };
        let number = self.first + self.slots.len() as u64;
        if let (Some(newest), Some(key)) = (&mut self.newest, &waiting.key) {
            newest.insert(key.clone(), number);
        }
        self.slots.push_back(Some(waiting));
        self.n_waiting += 1;
    }

    fn start_merging(&mut self) {
        let numbered = (self.first..).zip(&self.slots);
        let keys = numbered.filter_map(|(number, slot)| Some((slot.as_ref()?.key.clone()?, number)));
        self.newest = Some(keys.collect());
    }

    /// Merges `later` into the newest event about the same object, or hands it back to be appended.
    fn merge(&mut self, later: Waiting<K>) -> Option<Waiting<K>> {
        let (Some(newest), Some(key)) = (&mut self.newest, &later.key) else { return Some(later) };
        let Some(&number) = newest.get(key) else { return Some(later) };
        let index = usize::try_from(number - self.first).unwrap_or(usize::MAX);
        let Some(slot) = self.slots.get_mut(index) else { return Some(later) };
        let Some(earlier) = slot.take() else { return Some(later) };
        let merged = match (earlier.notice, later.notice) {
            // The handler has not seen the object, so it needs no deletion either.
            (Notice::Added(..), Notice::Deleted { .. }) => {
                newest.remove(key);
                self.n_waiting -= 1;
                self.compact();
                return None;
            }
            // A deletion must be delivered before later events.
            (deleted @ Notice::Deleted { .. }, notice @ (Notice::Added(..) | Notice::Undecodable(_))) => {
                *slot = Some(Waiting { key: earlier.key, notice: deleted });
                return Some(Waiting { key: later.key, notice });
            }
            (Notice::Added(_, arrival), Notice::Added(new, _) | Notice::Updated { new, .. }) => {
                Notice::Added(new, arrival)
            }
            (Notice::Updated { old, .. }, Notice::Updated { new, .. } | Notice::Added(new, _)) => {
                Notice::Updated { old, new }
            }
            (Notice::Undecodable(_), notice) | (Notice::Updated { .. }, notice @ Notice::Deleted { .. }) => notice,
            // The handler will look at the object anyway.
            (notice, Notice::Undecodable(_) | Notice::Updated { .. } | Notice::Deleted { .. } | Notice::Synced)
            | (notice @ Notice::Synced, Notice::Added(..)) => notice,
        };
        *slot = Some(Waiting { key: earlier.key, notice: merged });
        None
    }

    /// Drops merged-away slots once they outnumber the filled ones.
    fn compact(&mut self) {
        if self.slots.len() < 2 * self.n_waiting + 64 {
            return;
        }
        self.slots.retain(Option::is_some);
        if self.newest.is_some() {
            self.start_merging();
        }
    }

    fn pop(&mut self, batch: &mut Vec<Waiting<K>>) {
        while batch.len() < BATCH_MAX
            && let Some(slot) = self.slots.pop_front()
        {
            let number = self.first;
            self.first += 1;
            let Some(waiting) = slot else { continue };
            self.n_waiting -= 1;
            if let (Some(newest), Some(key)) = (&mut self.newest, &waiting.key)
                && newest.get(key) == Some(&number)
            {
                newest.remove(key);
            }
            batch.push(waiting);
        }
        if self.n_waiting <= self.n_waiting_max / 2 {
            self.newest = None;
        }
    }
}

#[cfg(test)]
mod tests;
