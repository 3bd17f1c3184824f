//! The requests of one priority level, executing and waiting: a state machine without locks, tasks or a clock.
//!
//! A level has a limit of seats. A request that finds no free seat waits in a queue, chosen by shuffle sharding: its
//! flow is dealt a hand of the level's queues, and the one with the least work takes the request. A flow that floods
//! fills its own hand, and any other flow most likely has a queue that it does not share.
//!
//! Queues are served by fair queueing, as in apiserver's `flowcontrol/fairqueuing`, counted in seat-seconds. Virtual
//! time passes at the rate at which every active queue is served. The request that would finish first in virtual time
//! is next; when it starts, its queue is charged for a guessed duration, and the charge is corrected when it ends. A
//! queue exists only while requests wait or execute in it, so the cost does not depend on the number of configured
//! queues.

use crate::http::flowcontrol::demand::{Demand, Period};
use crate::http::flowcontrol::work::{WorkEstimate, guess_seconds};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use tokio::time::Instant;

/// The largest hand; beyond 20 cards a hash has too few bits to deal from as many queues.
const HAND_MAX: usize = 32;

/// The treatment of requests beyond the limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Policy {
    /// There is no limit.
    Exempt,
    /// Requests beyond the limit wait.
    Queue(Queueing),
    /// Requests beyond the limit are rejected.
    Reject,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Queueing {
    pub(super) queues: u32,
    /// The number of queues that a flow may use.
    pub(super) hand: u32,
    /// The most requests that may wait in one queue.
    pub(super) length_max: usize,
}

/// The reason why a request is rejected.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Reason {
    /// Its client disconnected while it waited.
    Cancelled,
    /// The level does not queue.
    ConcurrencyLimit,
    QueueFull,
    /// It waited too long.
    TimeOut,
}

/// The result of a request's arrival.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Arrival {
    /// It executes.
    Executing(QueueIndex),
    Rejected(Reason),
    /// It waits until [`Queues::next`] returns the value that wakes it.
    Waiting(QueueIndex, Id),
}

/// The queue to which a request is accounted; `None` if its level has no queues.
pub(super) type QueueIndex = Option<u32>;

/// The id of a waiting request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Id(u64);

/// The requests of a level. `W` wakes a waiting request.
#[derive(Debug)]
pub(super) struct Queues<W> {
    policy: Policy,
    /// The level's seats.
    limit: u32,
    /// The queues in which requests wait or execute.
    active: BTreeMap<u32, Queue<W>>,
    /// Seats kept after the end of their requests, and the time until which they are kept.
    kept: BinaryHeap<Reverse<(Instant, u32)>>,
    /// The seats of executing requests and those kept after their end.
    seats_in_use: u32,
    seats_waiting: u32,
    n_executing: usize,
    n_waiting: usize,
    /// The seat-seconds that each active queue has been offered.
    virtual_time: f64,
    advanced_at: Instant,
    /// The queue whose request started last: among equal queues those after it go first.
    last: u32,
    next_id: u64,
    demand: Demand,
}

#[derive(Debug)]
struct Queue<W> {
    waiting: VecDeque<Waiting<W>>,
    n_executing: usize,
    seats_in_use: u32,
    /// The guessed seat-seconds of the waiting requests.
    work_waiting: f64,
    /// The virtual time at which the next request starts.
    next_start: f64,
}

#[derive(Debug)]
struct Waiting<W> {
    id: Id,
    work: WorkEstimate,
    arrived: f64,
    wake: W,
}

impl Reason {
    /// The value of the metric's label.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Reason::Cancelled => "cancelled",
            Reason::ConcurrencyLimit => "concurrency-limit",
            Reason::QueueFull => "queue-full",
            Reason::TimeOut => "time-out",
        }
    }
}

// === impl Queues ===

impl<W> Queues<W> {
    pub(super) fn new(policy: Policy, limit: u32, now: Instant) -> Queues<W> {
        Queues {
            policy,
            limit,
            active: BTreeMap::new(),
            kept: BinaryHeap::new(),
            seats_in_use: 0,
            seats_waiting: 0,
            n_executing: 0,
            n_waiting: 0,
            virtual_time: 0.0,
            advanced_at: now,
            last: 0,
            next_id: 0,
            demand: Demand::new(now),
        }
    }

    /// Adds a request. `flow` is the hash of its flow; `wake` is called only if it waits. Afterwards the caller must
    /// call [`Queues::next`] until it returns `None`.
    pub(super) fn arrive(&mut self, flow: u64, work: WorkEstimate, now: Instant, wake: impl FnOnce() -> W) -> Arrival {
        self.advance(now);
        let queueing = match self.policy {
            Policy::Queue(queueing) => queueing,
            Policy::Exempt => {
                self.start(None, work, now);
                return Arrival::Executing(None);
            }
            Policy::Reject => {
                if !self.has_room(work.seats) {
                    return Arrival::Rejected(Reason::ConcurrencyLimit);
                }
                self.start(None, work, now);
                return Arrival::Executing(None);
            }
        };
        let number = self.choose(flow, queueing);
        if self.n_waiting == 0 && self.has_room(work.seats) {
            self.queue(number);
            self.start(Some(number), work, now);
            return Arrival::Executing(Some(number));
        }
        let is_full = self.active.get(&number).is_some_and(|queue| queueing.length_max <= queue.waiting.len());
        if is_full {
            return Arrival::Rejected(Reason::QueueFull);
        }
        let id = Id(self.next_id);
        self.next_id += 1;
        let arrived = self.virtual_time;
        let queue = self.queue(number);
        queue.work_waiting += work.guessed_seconds();
        queue.waiting.push_back(Waiting { id, work, arrived, wake: wake() });
        self.n_waiting += 1;
        self.seats_waiting += work.seats;
        self.note_demand(now);
        Arrival::Waiting(Some(number), id)
    }

    /// Starts the next waiting request, if there is room for it, and returns the value that wakes it.
    pub(super) fn next(&mut self, now: Instant) -> Option<W> {
        self.advance(now);
        if self.n_waiting == 0 {
            return None;
        }
        // Round robin, so that none of several equal queues is always first.
        let after = self.active.range(self.last.saturating_add(1)..);
        let in_turn = after.chain(self.active.range(..=self.last));
        let finishes = in_turn.filter_map(|(number, queue)| {
            let head = queue.waiting.front()?;
            // Service cannot begin before arrival.
            let start = queue.next_start.max(head.arrived);
            Some((*number, start + head.work.guessed_seconds(), head.work.seats))
        });
        let (number, _, seats) = finishes.reduce(|first, one| if one.1 < first.1 { one } else { first })?;
        if !self.has_room(seats) {
            return None;
        }
        let queue = self.active.get_mut(&number)?;
        let head = queue.waiting.pop_front()?;
        queue.next_start = queue.next_start.max(head.arrived);
        self.forget_waiting(number, head.work);
        self.last = number;
        self.start(Some(number), head.work, now);
        Some(head.wake)
    }

    /// Ends a request that executed since `began`. Afterwards the caller must call [`Queues::next`] until it returns
    /// `None`.
    pub(super) fn finish(&mut self, place: QueueIndex, work: WorkEstimate, began: Instant, now: Instant) {
        self.advance(now);
        self.seats_in_use -= work.seats;
        self.n_executing -= 1;
        if let Some(number) = place
            && let Some(queue) = self.active.get_mut(&number)
        {
            queue.n_executing -= 1;
            queue.seats_in_use -= work.seats;
            queue.next_start += work.seconds(now.saturating_duration_since(began)) - work.guessed_seconds();
        }
        self.remove_if_idle(place);
        if work.final_seats > 0 && self.policy != Policy::Exempt {
            self.seats_in_use += work.final_seats;
            self.kept.push(Reverse((now + work.final_duration, work.final_seats)));
        }
        self.note_demand(now);
    }

    /// Removes a waiting request. False if it no longer waits: then it executes.
    pub(super) fn cancel(&mut self, place: QueueIndex, id: Id, now: Instant) -> bool {
        self.advance(now);
        let Some(queue) = place.and_then(|number| self.active.get_mut(&number)) else { return false };
        let Some(at) = queue.waiting.iter().position(|waiting| waiting.id == id) else { return false };
        let Some(waiting) = queue.waiting.remove(at) else { return false };
        self.forget_waiting(place.unwrap_or_default(), waiting.work);
        self.remove_if_idle(place);
        self.note_demand(now);
        true
    }

    /// The time at which [`Queues::next`] must be called even if nothing else happens: kept seats become free while a
    /// request waits.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.kept.peek().filter(|_| self.n_waiting > 0).map(|Reverse((until, _))| *until)
    }

    /// Changes the policy. Waiting requests stay in their queues.
    pub(super) fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    pub(super) fn set_limit(&mut self, limit: u32, now: Instant) {
        self.advance(now);
        self.limit = limit;
    }

    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    pub(super) fn seats_in_use(&self) -> u32 {
        self.seats_in_use
    }

    pub(super) fn n_executing(&self) -> usize {
        self.n_executing
    }

    pub(super) fn n_waiting(&self) -> usize {
        self.n_waiting
    }

    pub(super) fn n_active(&self) -> usize {
        self.active.len()
    }

    /// Ends a period and returns its demand.
    pub(super) fn end_period(&mut self, now: Instant) -> Period {
        self.advance(now);
        self.demand.end_period(now)
    }

    /// Whether a request may start. One that wants more seats than the limit executes alone.
    fn has_room(&self, seats: u32) -> bool {
        self.policy == Policy::Exempt || self.seats_in_use == 0 || self.seats_in_use + seats <= self.limit
    }

    /// Advances virtual time, and frees seats that were kept long enough.
    fn advance(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.advanced_at);
        if !passed.is_zero() {
            self.advanced_at = now;
            self.virtual_time += passed.as_secs_f64() * self.rate();
        }
        while let Some(Reverse((until, seats))) = self.kept.peek().copied()
            && until <= now
        {
            self.kept.pop();
            self.seats_in_use -= seats;
            self.note_demand(now);
        }
    }

    /// The rate of seats offered to each active queue.
    fn rate(&self) -> f64 {
        if self.active.is_empty() {
            return 0.0;
        }
        let served = (self.seats_in_use + self.seats_waiting).min(self.limit);
        f64::from(served) / self.active.len() as f64
    }

    /// Accounts for a request that begins to execute.
    fn start(&mut self, place: QueueIndex, work: WorkEstimate, now: Instant) {
        self.seats_in_use += work.seats;
        self.n_executing += 1;
        let virtual_time = self.virtual_time;
        if let Some(queue) = place.and_then(|number| self.active.get_mut(&number)) {
            // A queue gets no credit for time in which it was idle. Nor does its advance charge for requests that still
            // execute give it a lead.
            let charged = f64::from(queue.seats_in_use) * guess_seconds();
            queue.next_start = queue.next_start.max(virtual_time + charged) + work.guessed_seconds();
            queue.seats_in_use += work.seats;
            queue.n_executing += 1;
        }
        self.note_demand(now);
    }

    fn forget_waiting(&mut self, number: u32, work: WorkEstimate) {
        self.n_waiting -= 1;
        self.seats_waiting -= work.seats;
        if let Some(queue) = self.active.get_mut(&number) {
            queue.work_waiting -= work.guessed_seconds();
        }
    }

    fn remove_if_idle(&mut self, place: QueueIndex) {
        let Some(number) = place else { return };
        let is_idle = |queue: &Queue<W>| queue.n_executing == 0 && queue.waiting.is_empty();
        if self.active.get(&number).is_some_and(is_idle) {
            self.active.remove(&number);
        }
    }

    fn note_demand(&mut self, now: Instant) {
        self.demand.set(self.seats_in_use + self.seats_waiting, now);
    }

    fn queue(&mut self, number: u32) -> &mut Queue<W> {
        let next_start = self.virtual_time;
        self.active.entry(number).or_insert_with(|| Queue {
            waiting: VecDeque::new(),
            n_executing: 0,
            seats_in_use: 0,
            work_waiting: 0.0,
            next_start,
        })
    }

    /// The queue with the least work among those that a flow may use.
    fn choose(&self, flow: u64, queueing: Queueing) -> u32 {
        let mut chosen: Option<(u32, f64)> = None;
        deal(flow, queueing.queues, queueing.hand, |number| {
            let work = self
                .active
                .get(&number)
                .map_or(0.0, |queue| queue.work_waiting + f64::from(queue.seats_in_use) * guess_seconds());
            if chosen.is_none_or(|(_, least)| work < least) {
                chosen = Some((number, work));
            }
        });
        chosen.map_or(0, |(number, _)| number)
    }
}

/// Deals a hand of different numbers below `queues`. A hash always gives the same hand, and all hands are equally
/// likely.
fn deal(hash: u64, queues: u32, hand: u32, mut take: impl FnMut(u32)) {
    // The dealt numbers, ascending.
    let mut dealt = [0_u32; HAND_MAX];
    let n_cards = usize::try_from(hand.min(queues)).map_or(HAND_MAX, |hand| hand.min(HAND_MAX));
    let mut hash = hash;
    for (n_dealt, left) in (0..n_cards).zip((1..=queues).rev()) {
        // The index of the card among the remaining ones, which is below `left`.
        let mut card = (hash % u64::from(left)) as u32;
        hash /= u64::from(left);
        let mut at = 0;
        while at < n_dealt && dealt[at] <= card {
            card += 1;
            at += 1;
        }
        dealt.copy_within(at..n_dealt, at + 1);
        dealt[at] = card;
        take(card);
    }
}

#[cfg(test)]
mod tests;
