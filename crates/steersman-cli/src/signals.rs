//! SIGTERM, SIGINT and SIGHUP, which a closed terminal sends.

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that ask the process to end.
#[derive(Debug)]
pub(crate) struct Signals {
    hangup: Signal,
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Listens from now on; the process is no longer killed by them.
    pub(crate) fn new() -> anyhow::Result<Signals> {
        let listen = |kind| signal(kind).context("signals cannot be listened for");
        Ok(Signals {
            hangup: listen(SignalKind::hangup())?,
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    /// Resolves at the next of them.
    ///
    /// # Cancel safety
    /// A signal that was not returned comes with the next call.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.hangup.recv() => "SIGHUP",
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}
