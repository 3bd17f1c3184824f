//! The rules of the work queue as a state machine: no clock, no lock, no waiting.
//!
//! A key has one entry in a slab from its first add until nothing is left to know about it. Ready keys form one linked
//! list per priority through the entries, delayed keys a heap of places. In steady state nothing is allocated, and one
//! round of add, take and done hashes the key once.

use std::fmt::Debug;
use std::hash::{BuildHasher, Hash, RandomState};
use std::time::Duration;

use hashbrown::HashTable;
use tokio::time::Instant;

use crate::clock;
use crate::metrics::histogram::{Histogram, QUEUE_BUCKETS};
use crate::queue::limiter::RateLimiter;

/// How often a waiting class may be passed over before it gets a turn.
const PASSES_MAX: u32 = 16;

/// No entry: the end of a list, or a key that is not in the heap.
const NOWHERE: u32 = u32::MAX;

/// Which keys come first. Also says, roughly, why a key runs.
///
/// None waits for ever: while a priority has keys and has been passed over 16 times in favor of higher ones, the next turn is
/// its. So of the turns of a queue that is never empty, about one in 17 goes to each lower priority that has keys.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum Priority {
    /// Work that is not urgent: the initial list, resyncs.
    Low,
    /// Events.
    #[default]
    Normal,
    /// Work that must not queue behind events.
    High,
}

/// What a queue holds and has done.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Stats {
    /// Keys ready to be taken.
    pub depth: usize,
    /// Keys that wait for their time.
    pub delayed: usize,
    /// Keys being processed.
    pub processing: usize,
    /// Adds that made a key ready, ever.
    pub adds_total: u64,
    /// Rate-limited adds, ever.
    pub retries_total: u64,
}

/// The state of a queue.
#[derive(Debug)]
pub(crate) struct Core<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
    /// Places by key. Every place here is an occupied entry.
    places: HashTable<u32>,
    hasher: RandomState,
    /// By priority, lowest first.
    ready: [List; 3],
    /// Places of delayed keys, a binary heap by due time.
    delayed: Vec<u32>,
    n_ready: usize,
    n_processing: usize,
    is_closed: bool,
    limiter: RateLimiter,
    adds_total: u64,
    retries_total: u64,
    /// Only while metrics are on: reading the clock costs as much as the rest.
    times: Option<Box<Times>>,
}

/// How long keys wait and take.
#[derive(Clone, Debug)]
pub(crate) struct Times {
    /// The time of the present call.
    now: Instant,
    /// From the first add to the taking.
    pub(crate) waited: Histogram,
    /// From the taking to Done.
    pub(crate) worked: Histogram,
}

/// What a measured queue has to report.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) stats: Stats,
    /// Ready keys by priority, lowest first.
    pub(crate) depths: [usize; 3],
    pub(crate) times: Times,
    /// For how long the keys being processed have been processed: all together, and the one that was longest.
    pub(crate) unfinished: Duration,
    pub(crate) longest: Duration,
}

/// Which workers must check the queue again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Wake {
    /// Everybody: the time of the next delayed key has changed.
    All,
    Nobody,
    /// One more key is ready.
    One,
}

/// What a worker gets when it asks for a key.
#[derive(Debug)]
pub(crate) enum Taken<T> {
    /// Shut down, and nothing ready.
    Closed,
    /// Nothing ready before `next_due`, or before the next add.
    Empty { next_due: Option<Instant> },
    /// A key, the place to name when it is done, and the priority that it had.
    Key(T, u32, Priority),
}

#[derive(Debug)]
struct Entry<T> {
    /// `None` while the place is free.
    key: Option<T>,
    hash: u64,
    state: State,
    priority: Priority,
    /// Neighbors in the list of ready keys.
    previous: u32,
    next: u32,
    /// Position in the heap of delayed keys.
    heap_at: u32,
    /// Meaningful while in the heap.
    due: Option<Instant>,
    /// The priority that the delayed add asked for, if it did. Set only while in the heap.
    asked: Option<Priority>,
    n_failures: u32,
    /// Until then, further failures do not count.
    window_end: Option<Instant>,
    /// Since when it is to be taken, and since when it is being processed, if that is measured.
    added: Option<Instant>,
    taken: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// Neither ready nor being processed; perhaps delayed, perhaps only its failures are remembered.
    Idle,
    Processing,
    /// Being processed, and to run once more.
    ProcessingDirty,
    Ready,
}

#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
    len: usize,
    /// How often this class was passed over since it last had a turn.
    n_passes: u32,
}

impl Report {
    /// Adds what a queue of the same name reports.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.stats.adds_total += other.stats.adds_total;
        self.stats.retries_total += other.stats.retries_total;
        for (mine, theirs) in self.depths.iter_mut().zip(other.depths) {
            *mine += theirs;
        }
        self.times.waited.merge(&other.times.waited);
        self.times.worked.merge(&other.times.worked);
        self.unfinished += other.unfinished;
        self.longest = self.longest.max(other.longest);
    }
}

impl<T: Clone + Debug + Eq + Hash> Core<T> {
    pub(crate) fn new(limiter: RateLimiter) -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            places: HashTable::new(),
            hasher: RandomState::new(),
            ready: [List { first: NOWHERE, last: NOWHERE, len: 0, n_passes: 0 }; 3],
            delayed: Vec::new(),
            n_ready: 0,
            n_processing: 0,
            is_closed: false,
            limiter,
            adds_total: 0,
            retries_total: 0,
            times: None,
        }
    }

    /// Measures from now on.
    pub(crate) fn measure(&mut self, now: Instant) {
        self.times.get_or_insert_with(|| {
            let histogram = Histogram::new(QUEUE_BUCKETS);
            Box::new(Times { now, waited: histogram.clone(), worked: histogram })
        });
    }

    pub(crate) fn is_measured(&self) -> bool {
        self.times.is_some()
    }

    /// Tells a measured queue the time of the calls that follow.
    pub(crate) fn set_now(&mut self, now: Instant) {
        if let Some(times) = &mut self.times {
            times.now = now;
        }
    }

    /// `None` unless measured.
    pub(crate) fn report(&self) -> Option<Report> {
        let times = self.times.as_deref()?.clone();
        let taken = self.entries.iter().filter_map(|entry| entry.taken).take(self.n_processing);
        let (mut unfinished, mut longest) = (Duration::ZERO, Duration::ZERO);
        for since in taken.map(|taken| times.now.saturating_duration_since(taken)) {
            unfinished += since;
            longest = longest.max(since);
        }
        let depths = [self.ready[0].len, self.ready[1].len, self.ready[2].len];
        Some(Report { stats: self.stats(), depths, times, unfinished, longest })
    }

    pub(crate) fn set_limiter(&mut self, limiter: RateLimiter) {
        self.limiter = limiter;
    }

    pub(crate) fn add(&mut self, key: T, priority: Priority) -> Wake {
        if self.is_closed {
            return Wake::Nobody;
        }
        let place = self.place_of(key);
        self.make_ready(place, priority)
    }

    /// Adds `key` at `due`. Without a priority, it runs with the one that it had last.
    pub(crate) fn add_at(&mut self, key: T, due: Instant, priority: Option<Priority>) -> Wake {
        if self.is_closed {
            return Wake::Nobody;
        }
        let place = self.place_of(key);
        self.delay(place, due, priority)
    }

    /// Counts a failure and delays the key; says until when.
    pub(crate) fn fail_key(&mut self, key: T, now: Instant) -> (Instant, Wake) {
        if self.is_closed {
            return (now, Wake::Nobody);
        }
        let place = self.place_of(key);
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
        let entry = &mut self.entries[place as usize];
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
        if let Some(place) = self.find(key) {
            self.forget_at(place);
        }
    }

    pub(crate) fn forget_at(&mut self, place: u32) {
        let entry = &mut self.entries[place as usize];
        entry.n_failures = 0;
        entry.window_end = None;
        self.release_if_unused(place);
    }

    pub(crate) fn n_failures(&self, key: &T) -> u32 {
        self.find(key).map_or(0, |place| self.n_failures_at(place))
    }

    pub(crate) fn n_failures_at(&self, place: u32) -> u32 {
        self.entries[place as usize].n_failures
    }

    pub(crate) fn has_delayed(&self) -> bool {
        !self.delayed.is_empty()
    }

    /// Takes the next key. `now` may be `None` while nothing is delayed.
    pub(crate) fn take(&mut self, now: Option<Instant>) -> Taken<T> {
        if let Some(now) = now {
            self.promote_due(now);
        }
        let Some(class) = self.next_class() else {
            return match self.delayed.first() {
                _ if self.is_closed => Taken::Closed,
                next => Taken::Empty { next_due: next.and_then(|&place| self.entries[place as usize].due) },
            };
        };
        let place = self.ready[class].first;
        self.unlink(place);
        self.n_ready -= 1;
        self.n_processing += 1;
        let entry = &mut self.entries[place as usize];
        entry.state = State::Processing;
        if let Some(times) = &mut self.times {
            entry.taken = Some(times.now);
            if let Some(added) = entry.added.take() {
                times.waited.observe(times.now.saturating_duration_since(added).as_secs_f64());
            }
        }
        let priority = entry.priority;
        let key = entry.key.clone().expect("invariant: a ready entry has a key");
        Taken::Key(key, place, priority)
    }

    /// Ends the processing of a key, which makes it ready again if it was added meanwhile.
    pub(crate) fn done(&mut self, place: u32) -> Wake {
        self.n_processing -= 1;
        let entry = &mut self.entries[place as usize];
        let is_dirty = entry.state == State::ProcessingDirty;
        if let Some(times) = &mut self.times
            && let Some(taken) = entry.taken.take()
        {
            times.worked.observe(times.now.saturating_duration_since(taken).as_secs_f64());
        }
        entry.state = State::Idle;
        if is_dirty {
            let priority = entry.priority;
            return self.make_ready(place, priority);
        }
        self.release_if_unused(place);
        Wake::Nobody
    }

    pub(crate) fn close(&mut self) {
        self.is_closed = true;
        while let Some(&place) = self.delayed.last() {
            self.remove_delayed(place);
            self.release_if_unused(place);
        }
    }

    pub(crate) fn drop_ready(&mut self) {
        for class in 0..self.ready.len() {
            while self.ready[class].first != NOWHERE {
                let place = self.ready[class].first;
                self.unlink(place);
                self.n_ready -= 1;
                let entry = &mut self.entries[place as usize];
                entry.state = State::Idle;
                entry.added = None;
                self.release_if_unused(place);
            }
        }
        for entry in &mut self.entries {
            if entry.state == State::ProcessingDirty {
                entry.state = State::Processing;
                entry.added = None;
            }
        }
    }

    /// Drops the keys that `keep` rejects, wherever they wait.
    pub(crate) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        for index in 0..self.entries.len() {
            let entry = &self.entries[index];
            if entry.key.as_ref().is_none_or(&keep) {
                continue;
            }
            let place = index_to_place(index);
            match entry.state {
                State::Idle | State::Processing => {}
                State::ProcessingDirty => {
                    self.entries[index].state = State::Processing;
                    self.entries[index].added = None;
                }
                State::Ready => {
                    self.unlink(place);
                    self.n_ready -= 1;
                    self.entries[index].state = State::Idle;
                    self.entries[index].added = None;
                }
            }
            self.remove_delayed(place);
            self.forget_at(place);
        }
    }

    /// The keys in processing, in no order.
    pub(crate) fn processing(&self) -> Vec<T> {
        let is_processing = |entry: &&Entry<T>| matches!(entry.state, State::Processing | State::ProcessingDirty);
        self.entries.iter().filter(is_processing).filter_map(|entry| entry.key.clone()).collect()
    }

    /// Closed, and nothing ready or in processing.
    pub(crate) fn is_drained(&self) -> bool {
        self.is_closed && self.n_ready == 0 && self.n_processing == 0
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats {
            depth: self.n_ready,
            delayed: self.delayed.len(),
            processing: self.n_processing,
            adds_total: self.adds_total,
            retries_total: self.retries_total,
        }
    }

    /// How many keys something is known about.
    #[cfg(test)]
    pub(crate) fn n_entries(&self) -> usize {
        self.places.len()
    }

    // --- ready keys

    fn make_ready(&mut self, place: u32, priority: Priority) -> Wake {
        // What consumes a delayed add also does what that asked for.
        let priority = self.remove_delayed(place).map_or(priority, |asked| asked.max(priority));
        let now = self.times.as_ref().map(|times| times.now);
        let entry = &mut self.entries[place as usize];
        match entry.state {
            State::Idle => {
                entry.state = State::Ready;
                entry.priority = priority;
                // A key that was added while it was processed waits since then.
                entry.added = entry.added.or(now);
                self.n_ready += 1;
                self.adds_total += 1;
                self.link(place);
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
                self.unlink(place);
                self.entries[place as usize].priority = priority;
                self.link(place);
                Wake::Nobody
            }
            State::Ready => Wake::Nobody,
        }
    }

    /// The class whose turn it is: the highest, unless a lower one was passed over too often.
    fn next_class(&mut self) -> Option<usize> {
        let highest = (0..self.ready.len()).rev().find(|&class| self.ready[class].first != NOWHERE)?;
        let mut turn = highest;
        for class in (0..highest).rev() {
            let list = &mut self.ready[class];
            if list.first == NOWHERE {
                continue;
            }
            list.n_passes += 1;
            if list.n_passes > PASSES_MAX && turn == highest {
                turn = class;
            }
        }
        self.ready[turn].n_passes = 0;
        Some(turn)
    }

    fn link(&mut self, place: u32) {
        let list = &mut self.ready[self.entries[place as usize].priority as usize];
        let last = std::mem::replace(&mut list.last, place);
        list.len += 1;
        if last == NOWHERE {
            list.first = place;
        } else {
            self.entries[last as usize].next = place;
        }
        let entry = &mut self.entries[place as usize];
        entry.previous = last;
        entry.next = NOWHERE;
    }

    fn unlink(&mut self, place: u32) {
        let entry = &self.entries[place as usize];
        let (previous, next, class) = (entry.previous, entry.next, entry.priority as usize);
        self.ready[class].len -= 1;
        match previous {
            NOWHERE => self.ready[class].first = next,
            previous => self.entries[previous as usize].next = next,
        }
        match next {
            NOWHERE => self.ready[class].last = previous,
            next => self.entries[next as usize].previous = previous,
        }
    }

    // --- delayed keys

    fn delay(&mut self, place: u32, due: Instant, priority: Option<Priority>) -> Wake {
        let entry = &mut self.entries[place as usize];
        match entry.state {
            // It runs sooner anyway, and may be delayed again then.
            State::Ready | State::ProcessingDirty => return Wake::Nobody,
            State::Idle | State::Processing => {}
        }
        if entry.heap_at == NOWHERE {
            entry.due = Some(due);
            entry.asked = priority;
            entry.heap_at = index_to_place(self.delayed.len());
            self.delayed.push(place);
            return self.moved_forward(place);
        }
        if let Some(priority) = priority {
            entry.asked = Some(priority.max(entry.asked.unwrap_or(entry.priority)));
        }
        if entry.due.is_some_and(|known| known <= due) {
            return Wake::Nobody;
        }
        entry.due = Some(due);
        self.moved_forward(place)
    }

    /// Restores the order of the heap after the time of `place` was set or came closer.
    fn moved_forward(&mut self, place: u32) -> Wake {
        let at = self.entries[place as usize].heap_at as usize;
        self.sift_up(at);
        if self.delayed.first() == Some(&place) { Wake::All } else { Wake::Nobody }
    }

    fn promote_due(&mut self, now: Instant) {
        while let Some(&place) = self.delayed.first() {
            let entry = &mut self.entries[place as usize];
            if entry.due.is_some_and(|due| due > now) {
                return;
            }
            if self.times.is_some() && entry.state == State::Idle {
                // Nobody need have looked at the moment when its time came.
                entry.added = entry.due;
            }
            let priority = entry.asked.unwrap_or(entry.priority);
            self.make_ready(place, priority);
        }
    }

    /// Returns the priority that the delayed add asked for.
    fn remove_delayed(&mut self, place: u32) -> Option<Priority> {
        let entry = &mut self.entries[place as usize];
        let at = std::mem::replace(&mut entry.heap_at, NOWHERE);
        if at == NOWHERE {
            return None;
        }
        let asked = entry.asked.take();
        self.delayed.swap_remove(at as usize);
        if let Some(&moved) = self.delayed.get(at as usize) {
            self.entries[moved as usize].heap_at = at;
            self.sift_up(at as usize);
            self.sift_down(self.entries[moved as usize].heap_at as usize);
        }
        asked
    }

    fn due_at(&self, at: usize) -> Option<Instant> {
        self.entries[self.delayed[at] as usize].due
    }

    fn sift_up(&mut self, mut at: usize) {
        while at > 0 {
            let parent = (at - 1) / 2;
            if self.due_at(parent) <= self.due_at(at) {
                return;
            }
            self.swap_delayed(at, parent);
            at = parent;
        }
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let children = [2 * at + 1, 2 * at + 2].into_iter().filter(|&child| child < self.delayed.len());
            let Some(least) = children.min_by_key(|&child| self.due_at(child)) else { return };
            if self.due_at(at) <= self.due_at(least) {
                return;
            }
            self.swap_delayed(at, least);
            at = least;
        }
    }

    fn swap_delayed(&mut self, a: usize, b: usize) {
        self.delayed.swap(a, b);
        for at in [a, b] {
            self.entries[self.delayed[at] as usize].heap_at = index_to_place(at);
        }
    }

    // --- entries

    fn find(&self, key: &T) -> Option<u32> {
        let hash = self.hasher.hash_one(key);
        let entries = &self.entries;
        self.places.find(hash, |&place| entries[place as usize].key.as_ref() == Some(key)).copied()
    }

    /// The place of `key`, a new one if need be.
    fn place_of(&mut self, key: T) -> u32 {
        let hash = self.hasher.hash_one(&key);
        let entries = &self.entries;
        let known = self.places.find(hash, |&place| entries[place as usize].key.as_ref() == Some(&key));
        if let Some(&place) = known {
            return place;
        }
        let entry = Entry {
            key: Some(key),
            hash,
            state: State::Idle,
            priority: Priority::Normal,
            previous: NOWHERE,
            next: NOWHERE,
            heap_at: NOWHERE,
            due: None,
            asked: None,
            n_failures: 0,
            window_end: None,
            added: None,
            taken: None,
        };
        let place = match self.free.pop() {
            Some(place) => {
                self.entries[place as usize] = entry;
                place
            }
            None => {
                self.entries.push(entry);
                index_to_place(self.entries.len() - 1)
            }
        };
        let entries = &self.entries;
        self.places.insert_unique(hash, place, |&place| entries[place as usize].hash);
        place
    }

    /// Frees the entry unless something is left to know about its key.
    fn release_if_unused(&mut self, place: u32) {
        let entry = &mut self.entries[place as usize];
        let is_used = entry.state != State::Idle || entry.heap_at != NOWHERE || entry.n_failures > 0;
        if is_used || entry.key.is_none() {
            return;
        }
        entry.key = None;
        if let Ok(found) = self.places.find_entry(entry.hash, |&other| other == place) {
            found.remove();
        }
        self.free.push(place);
    }
}

fn index_to_place(index: usize) -> u32 {
    u32::try_from(index).expect("invariant: four billion keys do not fit into memory")
}
