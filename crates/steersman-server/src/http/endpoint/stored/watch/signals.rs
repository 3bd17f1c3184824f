//! The signals that wake a watch besides its events: the end of the server, another catalog, a permission that must be checked again, the clock.
//!
//! A watch is woken for every event, but signals are rare. They are polled with a separate waker, so that an event does
//! not cost a poll of each signal and the locks behind it.

use crate::http::endpoint::stored::watch::permission::Permission;
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

/// The signal that has occurred.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Signal {
    CatalogChanged,
    PermissionDue,
    Stopping,
    Time,
}

/// A future that resolves to the next signal. It must not be polled again after that.
pub(super) struct Signals {
    signal: Pin<Box<dyn Future<Output = Signal> + Send>>,
    wake_up: Arc<WakeUp>,
}

/// The waker of the signals: remembers that it was woken, and wakes the watch.
struct WakeUp {
    is_due: AtomicBool,
    watch: AtomicWaker,
}

impl Signals {
    /// Never resolves.
    pub(super) fn none() -> Signals {
        Signals::of(std::future::pending())
    }

    /// The first of the server's end, a change of the catalog if that is asked for, a permission that is due, and a time.
    pub(super) fn new(
        state: Arc<State>,
        changes: Option<watch::Receiver<()>>,
        permission: Option<&Permission>,
        at: Instant,
    ) -> Signals {
        let permission = permission.map(Permission::due);
        Signals::of(async move {
            // Every arm is cancel-safe: none has consumed anything before it is done.
            tokio::select! {
                biased;
                () = state.stopping() => Signal::Stopping,
                () = changed(changes) => Signal::CatalogChanged,
                () = due(permission) => Signal::PermissionDue,
                () = tokio::time::sleep_until(at) => Signal::Time,
            }
        })
    }

    fn of(signal: impl Future<Output = Signal> + Send + 'static) -> Signals {
        // A future does nothing before its first poll, so the first poll is due.
        let wake_up = WakeUp { is_due: AtomicBool::new(true), watch: AtomicWaker::new() };
        Signals { signal: Box::pin(signal), wake_up: Arc::new(wake_up) }
    }
}

async fn changed(changes: Option<watch::Receiver<()>>) {
    match changes {
        // The sender lives as long as the server, which ends the watch by other means.
        Some(mut changes) => drop(changes.changed().await),
        None => std::future::pending().await,
    }
}

async fn due(permission: Option<impl Future<Output = ()>>) {
    match permission {
        Some(due) => due.await,
        None => std::future::pending().await,
    }
}

impl Future for Signals {
    type Output = Signal;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Signal> {
        // Registered before the flag is read: a wake-up in between causes another poll.
        self.wake_up.watch.register(cx.waker());
        if !self.wake_up.is_due.swap(false, Ordering::AcqRel) {
            return Poll::Pending;
        }
        let waker = Waker::from(self.wake_up.clone());
        self.signal.as_mut().poll(&mut Context::from_waker(&waker))
    }
}

impl Wake for WakeUp {
    fn wake(self: Arc<WakeUp>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<WakeUp>) {
        self.is_due.store(true, Ordering::Release);
        self.watch.wake();
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
