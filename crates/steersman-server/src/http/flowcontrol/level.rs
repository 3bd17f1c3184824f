//! A priority level at work: the state machine of its [`Queues`] behind one short lock, and tasks that wait.
//!
//! An admitted request holds a [`Seat`]. Dropping it returns the seats, whatever happened to the request: an answer, a
//! panic, a timeout, or a disconnected client. A waiting request holds a [`Ticket`], which gives up the place when it
//! is dropped.

use crate::http::flowcontrol::counts::Counts;
use crate::http::flowcontrol::demand::{Period, Smoothed};
use crate::http::flowcontrol::queues::{Arrival, Id, Policy, QueueIndex, Queues, Reason};
use crate::http::flowcontrol::work::{WorkEstimate, seats_max};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// A priority level.
#[derive(Debug)]
pub(super) struct Level {
    pub(super) name: Box<str>,
    /// Locked for one step of the state machine. Nothing else is locked in the meantime.
    queues: Mutex<Queues<oneshot::Sender<Instant>>>,
    /// The most seats of one request.
    seats_max: AtomicU32,
    /// Whether a task waits for seats that are kept for a while after their requests.
    has_timer: AtomicBool,
}

/// The figures of a level at a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    pub(super) limit: u32,
    pub(super) seats_in_use: u32,
    pub(super) n_executing: usize,
    pub(super) n_waiting: usize,
    pub(super) n_active_queues: usize,
}

/// Seats in use. They are returned when it is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    level: Arc<Level>,
    counts: Arc<Counts>,
    place: QueueIndex,
    work: WorkEstimate,
    began: Instant,
}

/// A place in a queue. It is given up when it is dropped.
struct Ticket {
    level: Arc<Level>,
    counts: Arc<Counts>,
    place: QueueIndex,
    id: Id,
    work: WorkEstimate,
    arrived: Instant,
    /// The reason that is reported if it is dropped; `None` when the request has its seats.
    reason: Option<Reason>,
}

// === impl Level ===

impl Level {
    pub(super) fn new(name: &str, policy: Policy, limit: u32) -> Level {
        Level {
            name: name.into(),
            queues: Mutex::new(Queues::new(policy, limit, Instant::now())),
            seats_max: AtomicU32::new(seats_max(limit)),
            has_timer: AtomicBool::new(false),
        }
    }

    /// The most seats that one request may take.
    pub(super) fn seats_max(&self) -> u32 {
        self.seats_max.load(Ordering::Relaxed)
    }

    /// Admits a request, at once or when it is its turn, but never later than after `wait_max`.
    ///
    /// # Errors
    /// With the reason of the rejection.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the queue.
    pub(super) async fn admit(
        self: &Arc<Level>,
        counts: &Arc<Counts>,
        flow: u64,
        work: WorkEstimate,
        wait_max: Duration,
    ) -> Result<Seat, Reason> {
        let now = Instant::now();
        let mut turn = None;
        let arrival = self.queues.lock().arrive(flow, work, now, || {
            let (sender, receiver) = oneshot::channel();
            turn = Some(receiver);
            sender
        });
        let seat = |place, began| {
            counts.dispatched.fetch_add(1, Ordering::Relaxed);
            counts.executing.fetch_add(1, Ordering::Relaxed);
            counts.seats.fetch_add(i64::from(work.seats), Ordering::Relaxed);
            counts.waited.observe(began - now);
            Seat { level: self.clone(), counts: counts.clone(), place, work, began }
        };
        match (arrival, turn) {
            (Arrival::Executing(place), _) => Ok(seat(place, now)),
            (Arrival::Rejected(reason), _) => {
                counts.reject(reason);
                counts.waited_in_vain.observe(Duration::ZERO);
                Err(reason)
            }
            (Arrival::Waiting(place, id), Some(turn)) => {
                counts.waiting.fetch_add(1, Ordering::Relaxed);
                let (level, reason) = (self.clone(), Some(Reason::Cancelled));
                let mut ticket = Ticket { level, counts: counts.clone(), place, id, work, arrived: now, reason };
                self.wake_next(now);
                match tokio::time::timeout(wait_max, turn).await {
                    Ok(Ok(began)) => {
                        ticket.reason = None;
                        drop(ticket);
                        Ok(seat(place, began))
                    }
                    // The ticket is still in the queue, or was started at this very moment: dropping it handles both
                    // cases.
                    Ok(Err(_)) | Err(_) => {
                        ticket.reason = Some(Reason::TimeOut);
                        Err(Reason::TimeOut)
                    }
                }
            }
            (Arrival::Waiting(..), None) => unreachable!("a request that waits has made its channel"),
        }
    }

    /// Changes policy and nominal limit; the current limit follows by [`Level::set_limit`].
    pub(super) fn configure(self: &Arc<Level>, policy: Policy, nominal: u32) {
        self.seats_max.store(seats_max(nominal), Ordering::Relaxed);
        self.queues.lock().set_policy(policy);
        self.wake_next(Instant::now());
    }

    /// Changes the current limit.
    pub(super) fn set_limit(self: &Arc<Level>, limit: u32) {
        let now = Instant::now();
        self.queues.lock().set_limit(limit, now);
        self.wake_next(now);
    }

    /// The demand since the last call.
    pub(super) fn end_period(&self) -> Period {
        self.queues.lock().end_period(Instant::now())
    }

    pub(super) fn figures(&self) -> Figures {
        let queues = self.queues.lock();
        Figures {
            limit: queues.limit(),
            seats_in_use: queues.seats_in_use(),
            n_executing: queues.n_executing(),
            n_waiting: queues.n_waiting(),
            n_active_queues: queues.n_active(),
        }
    }

    fn finish(self: &Arc<Level>, place: QueueIndex, work: WorkEstimate, began: Instant, now: Instant) {
        let is_waited_for = {
            let mut queues = self.queues.lock();
            queues.finish(place, work, began, now);
            queues.n_waiting() > 0
        };
        if is_waited_for {
            self.wake_next(now);
        }
    }

    /// Wakes the waiting requests that now have room.
    fn wake_next(self: &Arc<Level>, now: Instant) {
        loop {
            let (next, wake_at) = {
                let mut queues = self.queues.lock();
                (queues.next(now), queues.wake_at())
            };
            match next {
                // If the receiver is gone, its ticket is being dropped, which returns the seats.
                Some(waiting) => drop(waiting.send(now)),
                None => {
                    if let Some(at) = wake_at {
                        self.wake_later(at);
                    }
                    return;
                }
            }
        }
    }

    /// Wakes waiting requests when kept seats become free. There is at most one such task for a level.
    fn wake_later(self: &Arc<Level>, at: Instant) {
        if self.has_timer.swap(true, Ordering::AcqRel) {
            return;
        }
        let level = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep_until(at).await;
            level.has_timer.store(false, Ordering::Release);
            level.wake_next(Instant::now());
        });
    }
}

// === impl Seat ===

impl Drop for Seat {
    fn drop(&mut self) {
        let now = Instant::now();
        self.counts.executing.fetch_sub(1, Ordering::Relaxed);
        self.counts.seats.fetch_sub(i64::from(self.work.seats), Ordering::Relaxed);
        self.counts.executed.observe(now.saturating_duration_since(self.began));
        self.level.finish(self.place, self.work, self.began, now);
    }
}

// === impl Ticket ===

impl Drop for Ticket {
    fn drop(&mut self) {
        self.counts.waiting.fetch_sub(1, Ordering::Relaxed);
        let Some(reason) = self.reason else { return };
        let now = Instant::now();
        let was_waiting = self.level.queues.lock().cancel(self.place, self.id, now);
        if was_waiting {
            self.level.wake_next(now);
        } else {
            self.level.finish(self.place, self.work, now, now);
        }
        self.counts.reject(reason);
        self.counts.waited_in_vain.observe(now.saturating_duration_since(self.arrived));
    }
}

/// A level with its demand, for the division of seats.
#[derive(Debug)]
pub(super) struct Tracked {
    pub(super) level: Arc<Level>,
    pub(super) demand: Smoothed,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::flowcontrol::queues::Queueing;
    use std::panic::AssertUnwindSafe;
    use tokio::task::yield_now;

    const LONG: Duration = Duration::from_secs(15);

    fn level(limit: u32) -> (Arc<Level>, Arc<Counts>) {
        let queueing = Queueing { queues: 8, hand: 2, length_max: 3 };
        (Arc::new(Level::new("l", Policy::Queue(queueing), limit)), Arc::default())
    }

    async fn admit(level: &Arc<Level>, counts: &Arc<Counts>) -> Seat {
        level.admit(counts, 1, WorkEstimate::ONE, LONG).await.unwrap()
    }

    #[track_caller]
    fn check_idle(level: &Arc<Level>, counts: &Counts) {
        let Figures { seats_in_use, n_executing, n_waiting, n_active_queues, .. } = level.figures();
        assert_eq!((seats_in_use, n_executing, n_waiting, n_active_queues), (0, 0, 0, 0));
        let figures = [&counts.waiting, &counts.executing, &counts.seats];
        assert!(figures.iter().all(|figure| figure.load(Ordering::Relaxed) == 0), "{counts:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_seat_comes_back_however_its_request_ends() {
        let (level, counts) = level(1);
        drop(admit(&level, &counts).await);
        let seat = admit(&level, &counts).await;
        let panic = std::panic::catch_unwind(AssertUnwindSafe(move || {
            let _held = seat;
            panic!("as a handler might");
        }));
        assert!(panic.is_err());
        let seat = admit(&level, &counts).await;
        let execution = tokio::time::timeout(Duration::from_secs(1), async move {
            let _held = seat;
            std::future::pending::<()>().await;
        });
        assert!(execution.await.is_err());
        check_idle(&level, &counts);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_leaves_gives_up_its_place() {
        let (level, counts) = level(1);
        let held = admit(&level, &counts).await;
        let (waiter, its_counts) = (level.clone(), counts.clone());
        let waits = tokio::spawn(async move { drop(admit(&waiter, &its_counts).await) });
        yield_now().await;
        assert_eq!(level.figures().n_waiting, 1);
        waits.abort();
        assert!(waits.await.is_err());
        assert_eq!(level.figures().n_waiting, 0);
        drop(held);
        check_idle(&level, &counts);
        assert_eq!(counts.rejections().collect::<Vec<_>>(), [("cancelled", 1)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_leaves_just_when_it_is_its_turn_gives_up_its_seat() {
        let (level, counts) = level(1);
        let held = admit(&level, &counts).await;
        let (waiter, its_counts) = (level.clone(), counts.clone());
        let waits = tokio::spawn(async move { drop(admit(&waiter, &its_counts).await) });
        yield_now().await;
        // It is woken here, and aborted before it runs.
        drop(held);
        assert_eq!(level.figures().n_executing, 1);
        waits.abort();
        assert!(waits.await.is_err());
        check_idle(&level, &counts);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_longer_than_the_limit() {
        let (level, counts) = level(1);
        let held = admit(&level, &counts).await;
        let begun = Instant::now();
        assert_eq!(level.admit(&counts, 2, WorkEstimate::ONE, LONG).await.unwrap_err(), Reason::TimeOut);
        assert_eq!(begun.elapsed(), LONG);
        drop(held);
        check_idle(&level, &counts);
        assert_eq!(counts.rejections().collect::<Vec<_>>(), [("time-out", 1)]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_goes_on_when_kept_seats_are_free() {
        let (level, counts) = level(1);
        let write = WorkEstimate { final_seats: 1, final_duration: Duration::from_millis(50), ..WorkEstimate::ONE };
        drop(level.admit(&counts, 1, write, LONG).await.unwrap());
        let begun = Instant::now();
        drop(admit(&level, &counts).await);
        assert_eq!(begun.elapsed(), Duration::from_millis(50));
        check_idle(&level, &counts);
    }

    #[tokio::test(start_paused = true)]
    async fn a_level_that_gets_more_seats_wakes_those_that_wait() {
        let (level, counts) = level(1);
        let held = admit(&level, &counts).await;
        let (waiter, its_counts) = (level.clone(), counts.clone());
        let waits = tokio::spawn(async move { drop(admit(&waiter, &its_counts).await) });
        yield_now().await;
        level.set_limit(2);
        waits.await.unwrap();
        drop(held);
        check_idle(&level, &counts);
    }
}
