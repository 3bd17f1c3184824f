//! What wakes a watch beside its events: the end of the server, another catalog, the clock.
//!
//! A watch is woken for every event, its signals hardly ever. They keep a waker of their own, so that an event does not cost a
//! look at each of them, nor at the locks behind them.

use crate::state::State;
use futures::task::AtomicWaker;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use tokio::sync::watch;
use tokio::time::Instant;

/// What happened.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Signal {
    CatalogChanged,
    Stopping,
    Time,
}

/// Resolves to the next signal, once.
pub(super) struct Signals {
    signal: Pin<Box<dyn Future<Output = Signal> + Send>>,
    bell: Arc<Bell>,
}

/// Passes a wake-up on and remembers it.
struct Bell {
    has_rung: AtomicBool,
    waker: AtomicWaker,
}

impl Signals {
    /// No signal at all.
    pub(super) fn none() -> Signals {
        Signals::of(std::future::pending())
    }

    /// The first of the server's end, a change of the catalog if that is asked for, and a time.
    pub(super) fn new(state: Arc<State>, changes: Option<watch::Receiver<()>>, at: Instant) -> Signals {
        Signals::of(async move {
            // Every arm is cancel-safe: none has taken anything before it is done.
            tokio::select! {
                biased;
                () = state.stopping() => Signal::Stopping,
                () = changed(changes) => Signal::CatalogChanged,
                () = tokio::time::sleep_until(at) => Signal::Time,
            }
        })
    }

    fn of(signal: impl Future<Output = Signal> + Send + 'static) -> Signals {
        // The first look is due.
        let bell = Bell { has_rung: AtomicBool::new(true), waker: AtomicWaker::new() };
        Signals { signal: Box::pin(signal), bell: Arc::new(bell) }
    }
}

async fn changed(changes: Option<watch::Receiver<()>>) {
    match changes {
        // The sender lives as long as the server, which ends the watch by other means.
        Some(mut changes) => drop(changes.changed().await),
        None => std::future::pending().await,
    }
}

impl Future for Signals {
    type Output = Signal;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Signal> {
        // Registered first: who rings from now on wakes this reader.
        self.bell.waker.register(cx.waker());
        if !self.bell.has_rung.swap(false, Ordering::AcqRel) {
            return Poll::Pending;
        }
        let waker = Waker::from(self.bell.clone());
        self.signal.as_mut().poll(&mut Context::from_waker(&waker))
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Bell>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Bell>) {
        self.has_rung.store(true, Ordering::Release);
        self.waker.wake();
    }
}

impl fmt::Debug for Signals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signals").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::poll;
    use std::sync::atomic::AtomicUsize;

    #[tokio::test]
    async fn what_waits_is_looked_at_when_it_was_woken_and_not_before() {
        let (looks, waker) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicWaker::new()));
        let (counted, kept) = (looks.clone(), waker.clone());
        let mut signals = Signals::of(std::future::poll_fn(move |cx| {
            kept.register(cx.waker());
            match counted.fetch_add(1, Ordering::Relaxed) {
                0 => Poll::Pending,
                _ => Poll::Ready(Signal::Time),
            }
        }));
        for _ in 0..100 {
            assert!(poll!(&mut signals).is_pending());
        }
        assert_eq!(looks.load(Ordering::Relaxed), 1);
        let waiting = tokio::spawn(signals);
        tokio::task::yield_now().await;
        waker.wake();
        assert_eq!(waiting.await.unwrap(), Signal::Time);
    }
}
