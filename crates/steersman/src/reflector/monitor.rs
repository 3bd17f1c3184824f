//! How a watch is doing, for those who ask: connected or since when not, and why.

use std::collections::BTreeMap;
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
    /// When the server said something last; before that, when the watch was started.
    heard: Option<Instant>,
    /// Lists after the first, by what made them necessary.
    relists: BTreeMap<&'static str, u64>,
    is_stopped: bool,
}

impl Default for Monitor {
    fn default() -> Self {
        let state =
            State { away_since: None, last_error: None, heard: None, relists: BTreeMap::new(), is_stopped: false };
        Self { state: Mutex::new(state) }
    }
}

impl Monitor {
    /// Starts the clock of [`Monitor::staleness`].
    pub(crate) fn started(&self) {
        let mut state = self.state.lock();
        let now = Instant::now();
        state.away_since.get_or_insert(now);
        state.heard.get_or_insert(now);
    }

    /// The server has told what the state is: an event, a bookmark, or a whole list.
    pub(crate) fn heard(&self) {
        self.state.lock().heard = Some(Instant::now());
    }

    /// Another list is asked for.
    pub(crate) fn relisting(&self, why: Kind) {
        *self.state.lock().relists.entry(why.as_str()).or_insert(0) += 1;
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

    /// How long ago the server said something last; `None` before the start.
    pub(crate) fn since_heard(&self) -> Option<Duration> {
        self.state.lock().heard.map(|heard| heard.elapsed())
    }

    /// Lists after the first, by what made them necessary.
    pub(crate) fn relists(&self) -> BTreeMap<&'static str, u64> {
        self.state.lock().relists.clone()
    }

    /// How long the watch has been down; `None` while it is up.
    pub(crate) fn staleness(&self) -> Option<Duration> {
        self.state.lock().away_since.map(|since| since.elapsed())
    }
}
