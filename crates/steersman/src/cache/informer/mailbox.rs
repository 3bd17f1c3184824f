//! The queue of events that wait for one handler.
//!
//! Every event is kept, in order. Workers read the cache, which is ahead of a slow handler: a reconciler may have acted
//! on a state that the handler has not received yet, and only the handler knows which keys that state concerns. Memory
//! is bounded because the informer takes no more from its watch while too many events wait.
//!
//! A mailbox is full when `excess_max` events wait in addition to one for each object that exists, whose state the
//! cache holds anyway. So the initial state of many objects does not block the informer, however slow a handler is. A
//! mailbox never holds more than `excess_max` events, one for each object, and the changes of one batch; when the
//! informer stops, also the rest of the events that it had read.
//!
//! While `excess_max` events wait, states that came and went within one batch are left out: the cache changed under one
//! lock, so no reader can have seen them. The further the informer falls behind, the larger its batches are, so a
//! handler that is slower than the changes of a few objects gets fewer changes instead of delaying the cache without
//! end.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::cache::outcome::Outcome;
use crate::shared::key::ObjectKey;
use crate::shared::sparse::is_sparse;

/// How many events may wait for one handler, besides one for each object that exists, before the cache waits for it.
pub const MAILBOX_MAX: usize = 4_096;

/// The most events that a handler's task takes at once.
const BATCH_MAX: usize = 64;

/// The queue of one handler: any number of senders, one consumer.
#[derive(Debug)]
pub(crate) struct Mailbox<K> {
    state: Mutex<State<K>>,
    /// Notified when an event was added or the mailbox was closed.
    bell: Notify,
    /// Too many events wait. Written under the lock.
    is_full: AtomicBool,
    /// Notified when `is_full` has changed.
    room: Notify,
    synced: watch::Sender<bool>,
    /// Becomes true when the handler's task has ended.
    ended: watch::Sender<bool>,
}

#[derive(Debug)]
struct State<K> {
    events: VecDeque<Outcome<K>>,
    /// The number of the first event; numbers only rise.
    first: u64,
    excess_max: usize,
    /// Kept once `excess_max` events wait, until half as many wait.
    tallies: Option<Tallies>,
    is_closed: bool,
}

/// The waiting events, counted by object.
#[derive(Debug, Default)]
struct Tallies {
    by_key: HashMap<ObjectKey, Tally>,
    /// The number of these objects that exist, according to their newest events.
    n_existing: usize,
}

#[derive(Debug)]
struct Tally {
    n_waiting: usize,
    /// The newest event is a deletion.
    is_gone: bool,
    /// The number of the newest event, and the batch with which it came.
    newest: u64,
    batch: u64,
}

// === impl Mailbox ===

impl<K> Mailbox<K> {
    pub(crate) fn new(excess_max: usize) -> Self {
        let state =
            State { events: VecDeque::new(), first: 0, excess_max: excess_max.max(1), tallies: None, is_closed: false };
        Self {
            state: Mutex::new(state),
            bell: Notify::new(),
            is_full: AtomicBool::new(false),
            room: Notify::new(),
            synced: watch::Sender::new(false),
            ended: watch::Sender::new(false),
        }
    }

    /// Appends the changes of one batch in the cache. Batches are numbered upwards.
    pub(crate) fn push(&self, batch: u64, events: impl Iterator<Item = Outcome<K>>) {
        {
            let mut state = self.state.lock();
            if state.is_closed {
                return;
            }
            let mut is_nothing = true;
            for event in events {
                state.push(batch, event);
                is_nothing = false;
            }
            if is_nothing {
                // The batch has no event for this handler.
                return;
            }
            self.is_full.fetch_or(state.excess() >= state.excess_max, Ordering::Relaxed);
        }
        self.bell.notify_one();
    }

    /// Moves waiting events into `batch`, and waits for the first. False: the mailbox is closed and empty.
    ///
    /// Cancel safe: a cancelled call has taken nothing.
    pub(crate) async fn pop(&self, batch: &mut Vec<Outcome<K>>) -> bool {
        loop {
            if let Some(has_events) = self.pop_at_most(BATCH_MAX, batch) {
                return has_events;
            }
            // A push after the lock was released leaves a permit in `bell`, so that this returns at once.
            self.bell.notified().await;
        }
    }

    /// As [`Mailbox::pop`], with at most `n_max` events; returns `None` instead of waiting.
    pub(super) fn pop_at_most(&self, n_max: usize, batch: &mut Vec<Outcome<K>>) -> Option<bool> {
        let mut state = self.state.lock();
        state.pop(n_max, batch);
        if state.excess() <= state.excess_max / 2 && self.is_full.swap(false, Ordering::Relaxed) {
            self.room.notify_waiters();
        }
        match (batch.is_empty(), state.is_closed) {
            (false, _) => Some(true),
            (true, true) => Some(false),
            (true, false) => None,
        }
    }

    /// Whether too many events wait, so that the cache must wait for [`Mailbox::room`].
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// Waits until the handler has caught up halfway, or has ended.
    pub(crate) async fn room(&self) {
        loop {
            let mut room = std::pin::pin!(self.room.notified());
            // Registered before the flag is read, so that a change in between ends the wait.
            room.as_mut().enable();
            if !self.is_full() {
                return;
            }
            room.await;
        }
    }

    /// Accepts no more events; those that wait are still delivered.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
        self.bell.notify_one();
    }

    /// Accepts no more events and drops those that wait.
    pub(crate) fn discard(&self) {
        {
            let mut state = self.state.lock();
            state.is_closed = true;
            state.events.clear();
            state.tallies = None;
            self.is_full.store(false, Ordering::Relaxed);
        }
        self.room.notify_waiters();
        self.bell.notify_one();
    }

    #[cfg(test)]
    pub(super) fn set_excess_max(&self, excess_max: usize) {
        self.state.lock().excess_max = excess_max;
    }

    pub(crate) fn n_waiting(&self) -> usize {
        self.state.lock().events.len()
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

// === impl State ===

impl<K> State<K> {
    fn push(&mut self, batch: u64, event: Outcome<K>) {
        if self.tallies.is_none() && self.events.len() >= self.excess_max {
            self.start_tallies();
        }
        let number = self.first + self.events.len() as u64;
        let Some(tallies) = &mut self.tallies else { return self.events.push_back(event) };
        let Some(key) = event.key() else { return self.events.push_back(event) };
        let Some(tally) = tallies.by_key.get(key) else {
            tallies.add(&event, number, batch);
            return self.events.push_back(event);
        };
        if event.is_resync() {
            // Another event about the object waits anyway.
            return;
        }
        let unseen = if tally.batch == batch { tally.newest.checked_sub(self.first) } else { None };
        let unseen = unseen.and_then(|index| self.events.get_mut(usize::try_from(index).ok()?));
        let event = match unseen {
            None => Some(event),
            Some(earlier) => earlier.absorb(event),
        };
        let Some(event) = event else { return };
        tallies.add(&event, number, batch);
        self.events.push_back(event);
    }

    fn start_tallies(&mut self) {
        let tallies = self.tallies.insert(Tallies::default());
        for (number, event) in (self.first..).zip(&self.events) {
            // Batch 0 stands for no batch: readers may have seen the states of events that wait already.
            tallies.add(event, number, 0);
        }
    }

    fn pop(&mut self, n_max: usize, batch: &mut Vec<Outcome<K>>) {
        while batch.len() < n_max
            && let Some(event) = self.events.pop_front()
        {
            self.first += 1;
            if let (Some(tallies), Some(key)) = (&mut self.tallies, event.key()) {
                tallies.subtract(key);
            }
            batch.push(event);
        }
        if self.events.len() <= self.excess_max / 2 {
            self.tallies = None;
        }
        if is_sparse(self.events.len(), self.events.capacity()) {
            self.events.shrink_to(2 * self.events.len());
        }
    }

    /// How many events wait beyond one for each object that exists.
    fn excess(&self) -> usize {
        self.tallies.as_ref().map_or(0, |tallies| self.events.len() - tallies.n_existing)
    }
}

// === impl Tallies ===

impl Tallies {
    fn add<K>(&mut self, event: &Outcome<K>, number: u64, batch: u64) {
        let Some(key) = event.key() else { return };
        let is_gone = matches!(event, Outcome::Deleted { .. });
        match self.by_key.get_mut(key) {
            Some(tally) => {
                self.n_existing -= usize::from(!tally.is_gone);
                *tally = Tally { n_waiting: tally.n_waiting + 1, is_gone, newest: number, batch };
            }
            None => drop(self.by_key.insert(key.clone(), Tally { n_waiting: 1, is_gone, newest: number, batch })),
        }
        self.n_existing += usize::from(!is_gone);
    }

    fn subtract(&mut self, key: &ObjectKey) {
        let Some(tally) = self.by_key.get_mut(key) else { return };
        tally.n_waiting -= 1;
        if tally.n_waiting == 0 {
            self.n_existing -= usize::from(!tally.is_gone);
            self.by_key.remove(key);
        }
    }
}

#[cfg(test)]
mod tests;
