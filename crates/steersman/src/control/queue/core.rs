//! The rules of the work queue as a state machine: no clock, no lock, no waiting.
//!
//! [`crate::control::queue::entries`] has the state of each key, [`crate::control::queue::ready`] and [`crate::control::queue::delayed`] the
//! orders in which keys wait. Only this file moves keys between them. One round of add, take and done hashes the key
//! once.

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

use crate::control::queue::delayed::Delayed;
use crate::control::queue::entries::{Entries, Entry, State};
use crate::control::queue::limiter::RateLimiter;
use crate::control::queue::priority::Priority;
use crate::control::queue::ready::Ready;
use crate::control::queue::report::{Report, Stats, Times};
use crate::shared::clock;

/// The state of a queue.
#[derive(Debug)]
pub(crate) struct Core<T> {
    entries: Entries<T>,
    ready: Ready,
    delayed: Delayed,
    n_processing: usize,
    is_closed: bool,
    limiter: RateLimiter,
    adds_total: u64,
    retries_total: u64,
    /// `None` unless the queue is measured: reading the clock costs as much as the rest.
    times: Option<Box<Times>>,
}

/// The workers that must check the queue again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Wake {
    /// All workers: the time of the next delayed key has changed.
    All,
    Nobody,
    /// One worker: one more key is ready.
    One,
}

/// The result of a worker's request for a key.
#[derive(Debug)]
pub(crate) enum Taken<T> {
    /// The queue is shut down, and no key is ready.
    Closed,
    /// No key is ready before `next_due`, or before the next add.
    Empty { next_due: Option<Instant> },
    /// A key, its place, which [`Core::done`] needs, and its priority.
    Key(T, u32, Priority),
}

impl<T: Clone + Debug + Eq + Hash> Core<T> {
    pub(crate) fn new(limiter: RateLimiter) -> Self {
        Self {
            entries: Entries::new(),
            ready: Ready::new(),
            delayed: Delayed::new(),
            n_processing: 0,
            is_closed: false,
            limiter,
            adds_total: 0,
            retries_total: 0,
            times: None,
        }
    }

    /// Starts measuring.
    pub(crate) fn measure(&mut self, now: Instant) {
        self.times.get_or_insert_with(|| Box::new(Times::new(now)));
    }

    pub(crate) fn is_measured(&self) -> bool {
        self.times.is_some()
    }

    /// Sets the time of the calls that follow, if the queue is measured.
    pub(crate) fn set_now(&mut self, now: Instant) {
        if let Some(times) = &mut self.times {
            times.now = now;
        }
    }

    /// The values of the queue; `None` unless it is measured.
    pub(crate) fn report(&self) -> Option<Report> {
        let times = self.times.as_deref()?.clone();
        let taken = self.entries.iter().filter_map(|entry| entry.taken).take(self.n_processing);
        let (mut unfinished, mut longest) = (Duration::ZERO, Duration::ZERO);
        for since in taken.map(|taken| times.now.saturating_duration_since(taken)) {
            unfinished += since;
            longest = longest.max(since);
        }
        Some(Report { stats: self.stats(), depths: self.ready.depths(), times, unfinished, longest })
    }

    pub(crate) fn set_limiter(&mut self, limiter: RateLimiter) {
        self.limiter = limiter;
    }

    pub(crate) fn add(&mut self, key: T, priority: Priority) -> Wake {
        if self.is_closed {
            return Wake::Nobody;
        }
        let place = self.entries.place_of(key);
        self.make_ready(place, priority)
    }

    /// Adds `key` at `due`. Without a priority, it runs with its last one.
    pub(crate) fn add_at(&mut self, key: T, due: Instant, priority: Option<Priority>) -> Wake {
        if self.is_closed {
            return Wake::Nobody;
        }
        let place = self.entries.place_of(key);
        self.delay(place, due, priority)
    }

    /// Counts a failure and delays the key; returns until when.
    pub(crate) fn fail_key(&mut self, key: T, now: Instant) -> (Instant, Wake) {
        if self.is_closed {
            return (now, Wake::Nobody);
        }
        let place = self.entries.place_of(key);
        self.fail_at(place, now, Duration::ZERO, None)
    }

    pub(crate) fn fail_at(
        &mut self,
        place: u32,
        now: Instant,
        wait_min: Duration,
        priority: Option<Priority>,
    ) -> (Instant, Wake) {
        if self.is_closed {
            return (now, Wake::Nobody);
        }
        self.retries_total += 1;
        let entry = &mut self.entries[place];
        let due = match entry.window_end {
            Some(end) if now < end => end.max(clock::after(now, wait_min)),
            _ => {
                let end = clock::after(now, self.limiter.wait(entry.n_failures, now).max(wait_min));
                entry.n_failures = entry.n_failures.saturating_add(1);
                entry.window_end = Some(end);
                end
            }
        };
        if due <= now {
            let priority = priority.unwrap_or(entry.priority);
            return (due, self.make_ready(place, priority));
        }
        (due, self.delay(place, due, priority))
    }

    pub(crate) fn forget_key(&mut self, key: &T) {
        if let Some(place) = self.entries.find(key) {
            self.forget_at(place);
        }
    }

    pub(crate) fn forget_at(&mut self, place: u32) {
        let entry = &mut self.entries[place];
        entry.n_failures = 0;
        entry.window_end = None;
        self.entries.release_if_unused(place);
    }

    pub(crate) fn n_failures(&self, key: &T) -> u32 {
        self.entries.find(key).map_or(0, |place| self.n_failures_at(place))
    }

    pub(crate) fn n_failures_at(&self, place: u32) -> u32 {
        self.entries[place].n_failures
    }

    pub(crate) fn has_delayed(&self) -> bool {
        !self.delayed.is_empty()
    }

    /// Takes the next key. `now` may be `None` while nothing is delayed.
    pub(crate) fn take(&mut self, now: Option<Instant>) -> Taken<T> {
        if let Some(now) = now {
            self.promote_due(now);
        }
        let Some(place) = self.ready.pop(&mut self.entries) else {
            return match self.is_closed {
                true => Taken::Closed,
                false => Taken::Empty { next_due: self.delayed.next_due(&self.entries) },
            };
        };
        self.n_processing += 1;
        let entry = &mut self.entries[place];
        entry.state = State::Processing;
        if let Some(times) = &mut self.times {
            entry.taken = Some(times.now);
            times.observe_wait(entry.added.take());
        }
        let priority = entry.priority;
        let key = entry.key.clone().expect("invariant: a ready entry has a key");
        Taken::Key(key, place, priority)
    }

    /// Ends the processing of a key, which makes it ready again if it was added meanwhile.
    pub(crate) fn done(&mut self, place: u32) -> Wake {
        self.n_processing -= 1;
        let entry = &mut self.entries[place];
        let is_dirty = entry.state == State::ProcessingDirty;
        if let Some(times) = &mut self.times {
            times.observe_work(entry.taken.take());
        }
        entry.state = State::Idle;
        if is_dirty {
            let priority = entry.priority;
            return self.make_ready(place, priority);
        }
        self.entries.release_if_unused(place);
        Wake::Nobody
    }

    pub(crate) fn close(&mut self) {
        self.is_closed = true;
        while let Some(place) = self.delayed.last() {
            self.delayed.remove(&mut self.entries, place);
            self.entries.release_if_unused(place);
        }
    }

    pub(crate) fn drop_ready(&mut self) {
        while let Some(place) = self.ready.any() {
            self.ready.remove(&mut self.entries, place);
            let entry = &mut self.entries[place];
            entry.state = State::Idle;
            entry.added = None;
            self.entries.release_if_unused(place);
        }
        for entry in self.entries.iter_mut() {
            if entry.state == State::ProcessingDirty {
                entry.state = State::Processing;
                entry.added = None;
            }
        }
    }

    /// Drops the keys that `keep` rejects, wherever they wait.
    pub(crate) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        for place in self.entries.places() {
            // The places behind the last key are cut off when it is released.
            let Some(entry) = self.entries.get_mut(place) else { break };
            if entry.key.as_ref().is_none_or(&keep) {
                continue;
            }
            match entry.state {
                State::Idle | State::Processing => {}
                State::ProcessingDirty => {
                    entry.state = State::Processing;
                    entry.added = None;
                }
                State::Ready => {
                    entry.state = State::Idle;
                    entry.added = None;
                    self.ready.remove(&mut self.entries, place);
                }
            }
            self.delayed.remove(&mut self.entries, place);
            self.forget_at(place);
        }
    }

    /// The keys that are being processed, in no order.
    pub(crate) fn processing(&self) -> Vec<T> {
        let is_processing = |entry: &&Entry<T>| matches!(entry.state, State::Processing | State::ProcessingDirty);
        self.entries.iter().filter(is_processing).filter_map(|entry| entry.key.clone()).collect()
    }

    /// Whether the queue is closed, and no key is ready or being processed.
    pub(crate) fn is_drained(&self) -> bool {
        self.is_closed && self.ready.len() == 0 && self.n_processing == 0
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats {
            depth: self.ready.len(),
            delayed: self.delayed.len(),
            processing: self.n_processing,
            adds_total: self.adds_total,
            retries_total: self.retries_total,
        }
    }

    /// The number of keys with an entry.
    #[cfg(test)]
    pub(crate) fn n_entries(&self) -> usize {
        self.entries.len()
    }

    // --- ready keys

    fn make_ready(&mut self, place: u32, priority: Priority) -> Wake {
        // The delayed add is consumed, and its priority still counts.
        let asked = self.delayed.remove(&mut self.entries, place);
        let priority = asked.map_or(priority, |asked| asked.max(priority));
        let now = self.times.as_ref().map(|times| times.now);
        let entry = &mut self.entries[place];
        match entry.state {
            State::Idle => {
                entry.state = State::Ready;
                entry.priority = priority;
                // A key that was added while it was processed has waited since then.
                entry.added = entry.added.or(now);
                self.adds_total += 1;
                self.ready.push(&mut self.entries, place);
                Wake::One
            }
            State::Processing => {
                entry.state = State::ProcessingDirty;
                entry.priority = priority;
                entry.added = now;
                Wake::Nobody
            }
            State::ProcessingDirty => {
                entry.priority = entry.priority.max(priority);
                Wake::Nobody
            }
            State::Ready if priority > entry.priority => {
                self.ready.remove(&mut self.entries, place);
                self.entries[place].priority = priority;
                self.ready.push(&mut self.entries, place);
                Wake::Nobody
            }
            State::Ready => Wake::Nobody,
        }
    }

    // --- delayed keys

    fn delay(&mut self, place: u32, due: Instant, priority: Option<Priority>) -> Wake {
        let entry = &mut self.entries[place];
        match entry.state {
            // The key runs sooner anyway, and may be delayed again then.
            State::Ready | State::ProcessingDirty => return Wake::Nobody,
            State::Idle | State::Processing => {}
        }
        let is_first = if !entry.is_delayed() {
            entry.due = Some(due);
            entry.asked = priority;
            self.delayed.push(&mut self.entries, place)
        } else {
            if let Some(priority) = priority {
                entry.asked = Some(priority.max(entry.asked.unwrap_or(entry.priority)));
            }
            if entry.due.is_some_and(|known| known <= due) {
                return Wake::Nobody;
            }
            entry.due = Some(due);
            self.delayed.moved_forward(&mut self.entries, place)
        };
        if is_first { Wake::All } else { Wake::Nobody }
    }

    fn promote_due(&mut self, now: Instant) {
        while let Some(place) = self.delayed.first() {
            let entry = &mut self.entries[place];
            if entry.due.is_some_and(|due| due > now) {
                return;
            }
            if self.times.is_some() && entry.state == State::Idle {
                // No worker need have looked when the key became due, so it waits since then.
                entry.added = entry.due;
            }
            let priority = entry.asked.unwrap_or(entry.priority);
            self.make_ready(place, priority);
        }
    }
}
