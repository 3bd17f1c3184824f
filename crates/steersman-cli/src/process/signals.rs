//! Handles SIGTERM, SIGINT and SIGHUP, which a closed terminal sends; and SIGXFSZ, which a write beyond the limit of
//! file sizes causes.

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Makes a write beyond the limit of file sizes (`ulimit -f`) an error from now on, instead of the end of the process.
/// Must be called within a runtime.
pub(crate) fn outlive_file_size_limit() {
    // The handler stays when its stream is dropped.
    if let Err(error) = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw())) {
        tracing::warn!(%error, "SIGXFSZ cannot be handled: a limit of file sizes ends this process when it is reached");
    }
}

/// The signals that ask the process to end.
#[derive(Debug)]
pub(crate) struct Signals {
    hangup: Signal,
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Listens from now on; the signals no longer kill the process.
    pub(crate) fn new() -> anyhow::Result<Signals> {
        let listen = |kind| signal(kind).context("signals cannot be listened for");
        Ok(Signals {
            hangup: listen(SignalKind::hangup())?,
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    /// Resolves at the next signal.
    ///
    /// # Cancel safety
    /// A signal that was not returned is returned by the next call.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.hangup.recv() => "SIGHUP",
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}
