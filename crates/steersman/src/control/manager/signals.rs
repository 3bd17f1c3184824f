//! The signals that end a process: SIGINT and SIGTERM, or the console events of Windows.

use std::io;
use std::sync::Arc;

use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::shared::chain::Chain;

/// The signals, listened for from the start; `None` where that is not possible.
struct Signals {
    listening: Option<Listening>,
}

#[cfg(unix)]
struct Listening {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(windows)]
struct Listening {
    interrupt: tokio::signal::windows::CtrlC,
    stop: tokio::signal::windows::CtrlBreak,
    close: tokio::signal::windows::CtrlClose,
    shutdown: tokio::signal::windows::CtrlShutdown,
}

#[cfg(unix)]
impl Listening {
    fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(windows)]
impl Listening {
    fn new() -> io::Result<Self> {
        use tokio::signal::windows;
        Ok(Self {
            interrupt: windows::ctrl_c()?,
            stop: windows::ctrl_break()?,
            close: windows::ctrl_close()?,
            shutdown: windows::ctrl_shutdown()?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.stop.recv() => {}
            _ = self.close.recv() => {}
            _ = self.shutdown.recv() => {}
        }
    }
}

impl Signals {
    fn new() -> Self {
        let listening = Listening::new().inspect_err(|error| {
            tracing::error!(error = %Chain(error), "cannot listen to signals");
        });
        Self { listening: listening.ok() }
    }

    async fn next(&mut self) {
        match &mut self.listening {
            None => std::future::pending().await,
            Some(listening) => listening.next().await,
        }
    }
}

/// Completes when the process is asked to end: SIGINT or SIGTERM; on Windows Ctrl-C, Ctrl-Break, or the end of the console or
/// of the system.
///
/// # Panics
/// Never; where signals cannot be listened for, it logs that and never completes.
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
