//! Heavy requests: they are computed on separate threads, a bounded number at a time, so that small requests stay fast.
//!
//! A request begins on the worker that polls it. Before a long computation it announces it ([`Load::expect`]); from
//! then on its future is polled on a blocking thread, and holds one of few slots during each poll. While it waits for a
//! webhook or the store it holds neither. Slots are shared fairly between users ([`queue`]), after priority and
//! fairness has admitted the request: its seat is charged for the time that it waits here.
//!
//! Blocking threads of the runtime keep a paused clock from advancing while they compute, so tests with a paused clock
//! see a request take no time. The binary has a separate runtime for this, whose threads yield to all others.

mod exposition;
mod load;
mod queue;

use crate::shared::compute::queue::{Bounds, Full, Queue};
use crate::shared::request::memory::UserMemory;
use crate::shared::status::Failure;
use futures::task::AtomicWaker;
use parking_lot::Mutex;
use std::future::{Future, poll_fn};
use std::num::NonZeroUsize;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use std::{fmt, thread};
use steersman_kinds::user::User;
use steersman_machinery::budget::Interrupt;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinError;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

pub(crate) use crate::shared::compute::load::{HEAVY_BYTES, LIGHT, Load, REQUIREMENT_BYTES, body_bytes, text_bytes};

/// A time limit that does not pass, and that a clock can represent.
pub(crate) const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The options of heavy requests.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Compute {
    runtime: Option<Handle>,
    slots: Option<NonZeroUsize>,
    freed: Option<fn()>,
}

/// The executor of heavy requests.
pub(crate) struct Pool {
    queue: Mutex<Queue<oneshot::Sender<()>>>,
    options: Compute,
    /// The number of requests refused because too many were waiting.
    refused: AtomicU64,
    /// The number of requests whose deadline passed before they were done.
    interrupted: AtomicU64,
}

/// A request that may become heavy.
pub(crate) struct Job {
    pub(crate) user: Arc<User>,
    /// The deadline of the request.
    pub(crate) deadline: Instant,
    pub(crate) load: Load,
    /// The memory of answers, in which its user must have room before it computes. `None` for the rest of an answer that was begun.
    pub(crate) answers: Option<Arc<UserMemory>>,
}

/// Computes parts of an answer that is being sent, after its request has ended.
#[derive(Clone, Debug)]
pub(crate) struct AnswerCompute {
    pool: Arc<Pool>,
    user: Arc<User>,
}

/// The place of a request in the queue, until it ends.
struct QueueEntry {
    pool: Arc<Pool>,
    id: u64,
}

/// A slot that a request has or waits for.
struct Slot(Arc<QueueEntry>);

/// Wakes a waiting request.
#[derive(Default)]
struct Woken {
    is_woken: AtomicBool,
    waker: AtomicWaker,
}

/// A request between two polls. Once it has begun it may hold much memory: if it is dropped, that is freed on a thread
/// of the pool.
struct Parked<F: Send + 'static> {
    future: Option<Pin<Box<F>>>,
    entry: Arc<QueueEntry>,
    /// Whether it ends by itself when its load is interrupted: it has been polled on a thread of the pool, or has stored something before.
    has_begun: bool,
}

// === impl Compute ===

impl Compute {
    /// Uses the blocking threads of this runtime instead of those of the runtime that calls the service.
    #[must_use]
    pub fn on(self, runtime: Handle) -> Compute {
        Compute { runtime: Some(runtime), ..self }
    }

    /// Limits how many requests compute at a time. By default one processor is left to small requests, and at least one
    /// request computes.
    #[must_use]
    pub fn slots(self, slots: NonZeroUsize) -> Compute {
        Compute { slots: Some(slots), ..self }
    }

    /// Calls this on the thread of a heavy request when the request has ended and its memory is freed: the allocator
    /// may return it to the system.
    #[must_use]
    pub fn freed(self, freed: fn()) -> Compute {
        Compute { freed: Some(freed), ..self }
    }

    fn n_slots(&self) -> usize {
        let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        self.slots.map_or_else(|| processors.saturating_sub(1).max(1), NonZeroUsize::get)
    }
}

// === impl Pool ===

impl Pool {
    pub(crate) fn new(options: Compute) -> Pool {
        let queue = Mutex::new(Queue::new(Bounds::of(options.n_slots())));
        Pool { queue, options, refused: AtomicU64::new(0), interrupted: AtomicU64::new(0) }
    }

    /// Carries out a request: on the calling task, and once it is heavy on threads of the pool.
    ///
    /// # Errors
    /// 429 if too many heavy requests are waiting, 504 if the deadline passes before one has its first slot. One that
    /// has begun, or has stored something before it became heavy, ends by itself when its load is interrupted.
    ///
    /// # Cancel safety
    /// Dropping the future abandons the request at its next `await`, and interrupts its computation.
    pub(crate) async fn carry_out<F>(self: &Arc<Pool>, job: Job, mut future: Pin<Box<F>>) -> Result<F::Output, Failure>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let light = poll_fn(|cx| {
            if job.load.is_heavy() {
                return Poll::Ready(None);
            }
            match future.as_mut().poll(cx) {
                Poll::Ready(output) => Poll::Ready(Some(output)),
                Poll::Pending if job.load.is_heavy() => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        });
        match light.await {
            Some(output) => Ok(output),
            // In a box, so that small requests do not pay for its size.
            None => Box::pin(self.compute(job, future)).await,
        }
    }

    async fn compute<F>(self: &Arc<Pool>, job: Job, future: Pin<Box<F>>) -> Result<F::Output, Failure>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let (user, bytes, must_go_on) = (&job.user.name, job.load.bytes(), job.load.has_written());
        let id = if must_go_on {
            self.queue.lock().admit(user, bytes)
        } else {
            let entered = self.queue.lock().enter(user, bytes);
            entered.map_err(|full| {
                self.refused.fetch_add(1, Ordering::Relaxed);
                refusal(full, user)
            })?
        };
        job.load.begin();
        let entry = Arc::new(QueueEntry { pool: self.clone(), id });
        let mut parked = Parked { future: Some(future), entry: entry.clone(), has_begun: must_go_on };
        let interrupts = job.load.clone().interrupting();
        let woken = Arc::new(Woken { is_woken: AtomicBool::new(true), waker: AtomicWaker::new() });
        loop {
            woken.wait().await;
            let slot = if parked.has_begun {
                Slot::of(&entry).await
            } else {
                let slot = tokio::time::timeout_at(job.deadline, Slot::of(&entry)).await;
                slot.map_err(|_| self.late(&job.load))?
            };
            if job.deadline <= Instant::now() {
                let failure = self.late(&job.load);
                if !parked.has_begun {
                    return Err(failure);
                }
            }
            if let Some(answers) = job.answers.as_ref().filter(|_| !parked.has_begun) {
                answers.check(&job.user, job.load.bytes())?;
            }
            parked.has_begun = true;
            let Some(future) = parked.future.take() else { return Err(ended()) };
            let mut polled = pin!(self.poll(future, slot, woken.clone()));
            // Both arms are cancel-safe: the timer can be polled again, and `polled` is kept.
            let polled = tokio::select! {
                polled = &mut polled => polled,
                () = tokio::time::sleep_until(job.deadline) => {
                    self.late(&job.load);
                    polled.await
                }
            };
            match polled? {
                Ok(output) => {
                    interrupts.disarm();
                    return Ok(output);
                }
                Err(future) => {
                    self.queue.lock().grow(id, job.load.bytes());
                    parked.future = Some(future);
                }
            }
        }
    }

    /// Polls a request once, on a thread of the pool. Returns its output, or the request if it is still pending.
    async fn poll<F>(
        self: &Arc<Pool>,
        mut future: Pin<Box<F>>,
        slot: Slot,
        woken: Arc<Woken>,
    ) -> Result<Result<F::Output, Pin<Box<F>>>, Failure>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let (caller, freed) = (Handle::current(), self.options.freed);
        let compute = move || {
            let slot = slot;
            // Timers and tasks of the request belong to the caller's runtime.
            let _entered = caller.enter();
            let waker = Waker::from(woken);
            let polled =
                std::panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut Context::from_waker(&waker))));
            let outcome = match polled {
                Ok(Poll::Pending) => Ok(Err(future)),
                Ok(Poll::Ready(output)) => {
                    drop(future);
                    Ok(Ok(output))
                }
                Err(panic) => {
                    drop(future);
                    Err(panic)
                }
            };
            if !matches!(outcome, Ok(Err(_))) {
                freed.into_iter().for_each(|freed| freed());
            }
            drop(slot);
            outcome
        };
        match self.runtime().spawn_blocking(compute).await {
            Ok(Ok(polled)) => Ok(polled),
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            // Only a runtime that is shutting down drops its tasks.
            Err(_) => Err(ended()),
        }
    }

    /// The runtime whose threads compute.
    fn runtime(&self) -> Handle {
        self.options.runtime.clone().unwrap_or_else(Handle::current)
    }

    /// Interrupts a request whose deadline has passed.
    fn late(&self, load: &Load) -> Failure {
        if load.interrupt() {
            self.interrupted.fetch_add(1, Ordering::Relaxed);
        }
        too_late()
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

// === impl AnswerCompute ===

impl AnswerCompute {
    pub(crate) fn new(pool: &Arc<Pool>, user: &Arc<User>) -> AnswerCompute {
        AnswerCompute { pool: pool.clone(), user: user.clone() }
    }

    /// Computes a part that reads so many bytes of objects. A large one waits for its turn among the requests of all users, and is computed on a
    /// thread of the pool. No full queue refuses it, since its answer has begun; an answer has one part at a time. A large part goes on
    /// although its answer is not polled meanwhile, so that it holds no slot for a client that does not read.
    ///
    /// # Errors
    /// 503 when the server is shutting down.
    ///
    /// # Cancel safety
    /// Dropping the future abandons the part.
    pub(crate) async fn carry_out<F>(&self, bytes: usize, part: F) -> Result<F::Output, Failure>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        if bytes < HEAVY_BYTES {
            return Ok(part.await);
        }
        let load = Load::of_request(bytes, Interrupt::default());
        load.write();
        let job = Job { user: self.user.clone(), deadline: Instant::now() + NEVER, load, answers: None };
        let pool = self.pool.clone();
        let computed = tokio::spawn(async move { pool.carry_out(job, Box::pin(part)).await });
        match AbortOnDropHandle::new(computed).await.map_err(JoinError::try_into_panic) {
            Ok(computed) => computed,
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            // Only a runtime that is shutting down drops its tasks.
            Err(Err(_)) => Err(ended()),
        }
    }
}

/// The answer to a request whose deadline has passed.
pub(crate) fn too_late() -> Failure {
    Failure::timeout("Timeout: request did not complete within the allotted timeout")
}

fn ended() -> Failure {
    Failure::unavailable("the server is shutting down")
}

fn refusal(full: Full, user: &str) -> Failure {
    let message = match full {
        Full::Server { waiting_max } => format!(
            "the server has {waiting_max} large requests waiting for their turn to be computed, which is the most that it keeps; try again later"
        ),
        Full::User { waiting_max } => format!(
            "{waiting_max} large requests of the user {user:?} are waiting for their turn to be computed, which is the most for one user; wait for their answers, or send smaller ones"
        ),
    };
    Failure::too_many_requests(message, 1)
}

// === impl Slot ===

impl Slot {
    /// Waits for a slot.
    ///
    /// # Cancel safety
    /// Dropping the future ends the wait; the place stays.
    async fn of(entry: &Arc<QueueEntry>) -> Slot {
        let (sender, receiver) = oneshot::channel();
        let slot = Slot(entry.clone());
        let granted = entry.pool.queue.lock().wait(entry.id, sender);
        granted.into_iter().for_each(wake);
        // The sender is dropped only together with the queue, which the place keeps alive.
        let _granted = receiver.await;
        slot
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let granted = self.0.pool.queue.lock().release(self.0.id);
        granted.into_iter().for_each(wake);
    }
}

impl Drop for QueueEntry {
    fn drop(&mut self) {
        let granted = self.pool.queue.lock().leave(self.id);
        granted.into_iter().for_each(wake);
    }
}

/// Notifies a request of its slot. If the request is gone, it returns the slot itself.
fn wake(sender: oneshot::Sender<()>) {
    let _ = sender.send(());
}

// === impl Woken ===

impl Woken {
    /// Waits until the request has been woken since the last call.
    async fn wait(&self) {
        poll_fn(|cx| {
            // Registered before the check, so that a wake-up in between is not lost.
            self.waker.register(cx.waker());
            if self.is_woken.swap(false, Ordering::AcqRel) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Woken>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Woken>) {
        self.is_woken.store(true, Ordering::Release);
        self.waker.wake();
    }
}

// === impl Parked ===

impl<F: Send + 'static> Drop for Parked<F> {
    fn drop(&mut self) {
        let Some(future) = self.future.take().filter(|_| self.has_begun) else { return };
        let entry = self.entry.clone();
        let Compute { runtime, freed, .. } = entry.pool.options.clone();
        // Without a runtime the process ends.
        let Some(runtime) = runtime.or_else(|| Handle::try_current().ok()) else { return };
        drop(runtime.spawn_blocking(move || {
            drop(future);
            freed.into_iter().for_each(|freed| freed());
            drop(entry);
        }));
    }
}

#[cfg(test)]
mod tests;
