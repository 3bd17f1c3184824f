//! How a watch is doing, for those who ask: connected or since when not, and why.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::reflector::failure::{Failure, Kind};
use crate::selection::Target;

/// Shared between a reflector, which writes, and its informer, which reads.
#[derive(Debug)]
pub(crate) struct Monitor {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// `None` while the watch is up.
    away_since: Option<Instant>,
    /// Why it is not up, or was not before it came up.
    last_error: Option<String>,
    is_stopped: bool,
}

impl Default for Monitor {
    fn default() -> Self {
        Self { state: Mutex::new(State { away_since: None, last_error: None, is_stopped: false }) }
    }
}

impl Monitor {
    /// Starts the clock of [`Monitor::staleness`].
    pub(crate) fn started(&self) {
        self.state.lock().away_since.get_or_insert_with(Instant::now);
    }

    pub(crate) fn connected(&self, target: &Target) {
        let mut state = self.state.lock();
        state.away_since = None;
        if state.last_error.take().is_some() {
            tracing::info!(watch = %target, "watching again");
        }
    }

    /// Logs `failure` unless it is the one logged last.
    pub(crate) fn failed(&self, target: &Target, failure: &Failure) {
        let mut state = self.state.lock();
        state.away_since.get_or_insert_with(Instant::now);
        if matches!(failure.kind, Kind::Expired | Kind::Idle) {
            // All in a day's work: a relist or a new connection follows at once.
            tracing::debug!(watch = %target, error = %failure, "starting over");
            return;
        }
        if state.last_error.as_deref() == Some(&failure.message) {
            tracing::debug!(watch = %target, error = %failure, "cannot list or watch, still");
            return;
        }
        match failure.kind {
            Kind::NotServed => {
                tracing::info!(watch = %target, "the server does not serve this type yet: waiting for it");
            }
            _ => tracing::warn!(watch = %target, error = %failure, "cannot list or watch, trying again until it works"),
        }
        state.last_error = Some(failure.message.clone());
    }

    pub(crate) fn stopped(&self) {
        let mut state = self.state.lock();
        state.is_stopped = true;
        state.away_since.get_or_insert_with(Instant::now);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.state.lock().is_stopped
    }

    pub(crate) fn last_error(&self) -> Option<String> {
        self.state.lock().last_error.clone()
    }

    /// How long the watch has been down; `None` while it is up.
    pub(crate) fn staleness(&self) -> Option<Duration> {
        self.state.lock().away_since.map(|since| since.elapsed())
    }
}
