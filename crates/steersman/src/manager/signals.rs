//! The signals that ask a process to end.

use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::chain::Chain;

/// SIGINT and SIGTERM, listened for from the start; `None` where that is not possible.
struct Signals {
    listening: Option<(Signal, Signal)>,
}

impl Signals {
    fn new() -> Self {
        let (interrupt, terminate) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
        let listening = match (interrupt, terminate) {
            (Ok(interrupt), Ok(terminate)) => Some((interrupt, terminate)),
            (Err(error), _) | (_, Err(error)) => {
                tracing::error!(error = %Chain(&error), "cannot listen to signals");
                None
            }
        };
        Self { listening }
    }

    async fn next(&mut self) {
        let Some((interrupt, terminate)) = &mut self.listening else { return std::future::pending().await };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}

/// Completes when the process is asked to end: SIGINT or SIGTERM.
///
/// # Panics
/// Never; where signals cannot be listened to, it says so in the log and never completes.
pub async fn shutdown_signal() {
    Signals::new().next().await;
}

/// The first and the second of the signals. The second counts only once the first has been waited for.
pub(crate) fn two() -> (impl Future<Output = ()>, impl Future<Output = ()> + Send + 'static) {
    let signals = Arc::new(Mutex::new(Signals::new()));
    let seen = CancellationToken::new();
    let first = {
        let (signals, seen) = (Arc::clone(&signals), seen.clone());
        async move {
            signals.lock().await.next().await;
            tracing::info!("asked to end; a second signal ends at once");
            seen.cancel();
        }
    };
    let second = async move {
        seen.cancelled().await;
        signals.lock().await.next().await;
    };
    (first, second)
}
