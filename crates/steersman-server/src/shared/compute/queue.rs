//! Chooses the heavy request that computes next: a state machine without threads and without a clock.
//!
//! A request enters, waits for a slot, has one while it computes, is away while it waits for something else, waits
//! again, and leaves. Requests that have begun are resumed first, since they hold memory. Among the others, users take
//! turns. The memory of all requests that have begun is bounded, so a request may wait although a slot is free.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The memory of a tree for each byte of its text. A Pod takes eleven times as much as its JSON.
const TREE_BYTES_PER_BYTE: usize = 16;
/// The estimated memory that the trees of all requests that have begun may take together. The budget of each request
/// bounds its own.
const TREES_BYTES_MAX: usize = 128 << 20;
/// The additional memory for each slot beyond the first.
const TREES_BYTES_PER_SLOT: usize = 96 << 20;
/// The most requests that have not begun: of all users, and of one.
const WAITING_MAX: usize = 512;
const WAITING_OF_USER_MAX: usize = 128;

/// The bounds of a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) slots: usize,
    /// The bytes that requests that have begun may read together: of all users, and of one.
    pub(super) bytes_max: usize,
    pub(super) bytes_of_user_max: usize,
    /// The requests that have not begun, of all users. Beyond it a user may have one, up to twice as many of all users together, so that a few
    /// users who send as many as they may do not keep out all others.
    pub(super) waiting_max: usize,
    pub(super) waiting_of_user_max: usize,
}

/// The requests, each with its waker while it waits for a slot.
#[derive(Debug)]
pub(super) struct Queue<W> {
    bounds: Bounds,
    jobs: HashMap<u64, Job<W>>,
    /// Users with requests that have not left. The key comes from clients, so the hasher resists collisions.
    users: HashMap<Arc<str>, User>,
    /// Users with waiting requests that have not begun, each once; the next is in front.
    turns: VecDeque<Arc<str>>,
    /// Requests that have begun and wait for a slot.
    resuming: VecDeque<u64>,
    slots_free: usize,
    /// The bytes that requests that have begun read.
    bytes: usize,
    /// The number of requests that have not begun, without those that were admitted.
    n_waiting: usize,
    /// The number of admitted requests that have not begun.
    n_admitted: usize,
    next_id: u64,
}

#[derive(Debug)]
struct Job<W> {
    user: Arc<str>,
    bytes: usize,
    has_begun: bool,
    entry: Entry,
    phase: Phase<W>,
}

/// The way in which a request came into the queue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Entry {
    /// It could have been refused, and counts until it begins.
    Counted,
    /// It had to go on.
    Admitted,
}

#[derive(Debug)]
enum Phase<W> {
    /// It needs no slot.
    Away,
    Running,
    Waiting(W),
}

#[derive(Debug, Default)]
struct User {
    /// Waiting requests that have not begun, in the order of their arrival.
    waiting: VecDeque<u64>,
    /// The number of requests that have not begun, waiting or not, without those that were admitted.
    n_waiting: usize,
    /// The number of all requests.
    n_jobs: usize,
    /// The bytes that requests that have begun read.
    bytes: usize,
}

/// The reason why a request cannot enter.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Full {
    Server { waiting_max: usize },
    User { waiting_max: usize },
}

/// The numbers of requests, for metrics.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Figures {
    pub(super) computing: usize,
    pub(super) waiting: usize,
    /// Requests that have begun, and wait for something other than a slot.
    pub(super) away: usize,
}

impl Bounds {
    /// The default bounds for this many slots.
    pub(super) fn of(slots: usize) -> Bounds {
        let trees = TREES_BYTES_MAX + slots.saturating_sub(1).saturating_mul(TREES_BYTES_PER_SLOT);
        let bytes_max = trees / TREE_BYTES_PER_BYTE;
        Bounds {
            slots,
            bytes_max,
            bytes_of_user_max: bytes_max / 2,
            waiting_max: WAITING_MAX,
            waiting_of_user_max: WAITING_OF_USER_MAX,
        }
    }
}

impl<W> Queue<W> {
    pub(super) fn new(bounds: Bounds) -> Queue<W> {
        Queue {
            bounds,
            jobs: HashMap::new(),
            users: HashMap::new(),
            turns: VecDeque::new(),
            resuming: VecDeque::new(),
            slots_free: bounds.slots,
            bytes: 0,
            n_waiting: 0,
            n_admitted: 0,
            next_id: 0,
        }
    }

    /// Adds a request of a user that reads this many bytes, unless too many are waiting.
    pub(super) fn enter(&mut self, user: &str, bytes: usize) -> Result<u64, Full> {
        let Bounds { waiting_max, waiting_of_user_max, .. } = self.bounds;
        let known = self.users.get_key_value(user);
        let has_waiting = known.is_some_and(|(_, of)| of.n_waiting > 0);
        let n_max = if has_waiting { waiting_max } else { waiting_max.saturating_mul(2) };
        if n_max <= self.n_waiting {
            return Err(Full::Server { waiting_max });
        }
        if known.is_some_and(|(_, of)| waiting_of_user_max <= of.n_waiting) {
            return Err(Full::User { waiting_max: waiting_of_user_max });
        }
        Ok(self.add(user, bytes, Entry::Counted))
    }

    /// Adds a request that must go on, however many are waiting. It does not count as one that waits, so that others are not refused for it.
    pub(super) fn admit(&mut self, user: &str, bytes: usize) -> u64 {
        self.add(user, bytes, Entry::Admitted)
    }

    fn add(&mut self, user: &str, bytes: usize, entry: Entry) -> u64 {
        let known = self.users.get_key_value(user);
        let user: Arc<str> = known.map_or_else(|| user.into(), |(user, _)| user.clone());
        let of = self.users.entry(user.clone()).or_default();
        of.n_jobs += 1;
        match entry {
            Entry::Counted => {
                of.n_waiting += 1;
                self.n_waiting += 1;
            }
            Entry::Admitted => self.n_admitted += 1,
        }
        let id = self.next_id;
        self.next_id += 1;
        // The budget of the request bounds what it may really take. So a share has room for each, and nobody fills those of others.
        let bytes = bytes.min(self.bounds.bytes_of_user_max);
        self.jobs.insert(id, Job { user, bytes, has_begun: false, entry, phase: Phase::Away });
        id
    }

    /// Counts what a request reads beyond what it announced when it entered. Requests that have begun may
    /// therefore read more than the bounds together, and then no other begins.
    pub(super) fn grow(&mut self, id: u64, bytes: usize) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let more = bytes.min(self.bounds.bytes_of_user_max).saturating_sub(job.bytes);
        job.bytes += more;
        if let Some(of) = self.users.get_mut(&job.user).filter(|_| job.has_begun) {
            of.bytes += more;
            self.bytes += more;
        }
    }

    /// Makes a request wait for a slot. Returns the wakers of the requests that have one now.
    pub(super) fn wait(&mut self, id: u64, waiter: W) -> Vec<W> {
        let Some(job) = self.jobs.get_mut(&id) else { return Vec::new() };
        job.phase = Phase::Waiting(waiter);
        if job.has_begun {
            self.resuming.push_back(id);
        } else if let Some(of) = self.users.get_mut(&job.user) {
            if of.waiting.is_empty() {
                self.turns.push_back(job.user.clone());
            }
            of.waiting.push_back(id);
        }
        self.grant()
    }

    /// Releases the slot of a request, or ends its wait for one.
    pub(super) fn release(&mut self, id: u64) -> Vec<W> {
        let Some(job) = self.jobs.get_mut(&id) else { return Vec::new() };
        match std::mem::replace(&mut job.phase, Phase::Away) {
            Phase::Away => return Vec::new(),
            Phase::Running => self.slots_free += 1,
            Phase::Waiting(_) if job.has_begun => self.resuming.retain(|other| *other != id),
            Phase::Waiting(_) => {
                if let Some(of) = self.users.get_mut(&job.user) {
                    of.waiting.retain(|other| *other != id);
                    if of.waiting.is_empty() {
                        self.turns.retain(|user| *user != job.user);
                    }
                }
            }
        }
        self.grant()
    }

    /// Removes a request that has ended.
    pub(super) fn leave(&mut self, id: u64) -> Vec<W> {
        let mut granted = self.release(id);
        let Some(job) = self.jobs.remove(&id) else { return granted };
        if let Some(of) = self.users.get_mut(&job.user) {
            of.n_jobs -= 1;
            if job.has_begun {
                of.bytes -= job.bytes;
                self.bytes -= job.bytes;
            } else if job.entry == Entry::Counted {
                of.n_waiting -= 1;
                self.n_waiting -= 1;
            } else {
                self.n_admitted -= 1;
            }
            if of.n_jobs == 0 {
                self.users.remove(&job.user);
            }
        }
        granted.extend(self.grant());
        granted
    }

    pub(super) fn figures(&self) -> Figures {
        let computing = self.bounds.slots - self.slots_free;
        let waiting = self.n_waiting + self.n_admitted + self.resuming.len();
        Figures { computing, waiting, away: self.jobs.len().saturating_sub(computing + waiting) }
    }

    /// Gives free slots to the next requests.
    fn grant(&mut self) -> Vec<W> {
        let mut granted = Vec::new();
        while self.slots_free > 0 {
            let Some(id) = self.resuming.pop_front().or_else(|| self.begin()) else { break };
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            if let Phase::Waiting(waiter) = std::mem::replace(&mut job.phase, Phase::Running) {
                self.slots_free -= 1;
                granted.push(waiter);
            }
        }
        granted
    }

    /// Removes the next request that may begin from its queue.
    fn begin(&mut self) -> Option<u64> {
        let Bounds { bytes_max, bytes_of_user_max, .. } = self.bounds;
        for turn in 0..self.turns.len() {
            let user = self.turns.get(turn)?.clone();
            let of = self.users.get_mut(&user)?;
            let id = *of.waiting.front()?;
            let job = self.jobs.get_mut(&id)?;
            // A user whose share is full is passed over. If there is no room at all, nobody else may take what becomes free first,
            // so that large requests are not passed for ever.
            if bytes_of_user_max < of.bytes.saturating_add(job.bytes) {
                continue;
            }
            if bytes_max < self.bytes.saturating_add(job.bytes) {
                return None;
            }
            job.has_begun = true;
            of.bytes += job.bytes;
            self.bytes += job.bytes;
            match job.entry {
                Entry::Counted => {
                    of.n_waiting -= 1;
                    self.n_waiting -= 1;
                }
                Entry::Admitted => self.n_admitted -= 1,
            }
            of.waiting.pop_front();
            self.turns.remove(turn);
            if !of.waiting.is_empty() {
                self.turns.push_back(user);
            }
            return Some(id);
        }
        None
    }
}

#[cfg(test)]
mod tests;
