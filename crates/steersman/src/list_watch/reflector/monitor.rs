//! The state of watches: whether each is up, since when it is down, and why.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::list_watch::reflector::failure::{Failure, Kind};
use crate::shared::selection::{Scope, Target};

/// Shared between a reflector, which writes, and its informer, which reads.
#[derive(Debug)]
pub(crate) struct Monitor {
    /// The state of each watch.
    parts: Mutex<Vec<Part>>,
}

/// The state of one watch.
#[derive(Debug)]
struct Part {
    scope: Scope,
    /// `None` while the watch is up.
    away_since: Option<Instant>,
    /// Why it is down, or was down before it came up.
    last_error: Option<String>,
    /// When the last event, bookmark or list came; before the first, when the watch was started.
    heard: Option<Instant>,
    /// The number of lists after the first, by the cause of the relist.
    relists: BTreeMap<&'static str, u64>,
    is_stopped: bool,
}

impl Monitor {
    /// A monitor of the watches of `target`, none of which has begun.
    pub(crate) fn new(target: &Target) -> Self {
        let targets = if target.parts.is_empty() { std::slice::from_ref(target) } else { &target.parts };
        let parts = targets.iter().map(|target| Part {
            scope: target.selection.scope.clone(),
            away_since: None,
            last_error: None,
            heard: None,
            relists: BTreeMap::new(),
            is_stopped: false,
        });
        Self { parts: Mutex::new(parts.collect()) }
    }

    /// Starts the clock of [`Monitor::staleness`].
    pub(crate) fn started(&self) {
        let now = Instant::now();
        for part in &mut *self.parts.lock() {
            part.away_since.get_or_insert(now);
            part.heard.get_or_insert(now);
        }
    }

    /// Records that the server has sent an event, a bookmark, or a whole list.
    pub(crate) fn heard(&self, target: &Target) {
        if let Some(part) = of(&mut self.parts.lock(), target) {
            part.heard = Some(Instant::now());
        }
    }

    /// Records that a relist begins.
    pub(crate) fn relisting(&self, target: &Target, why: Kind) {
        if let Some(part) = of(&mut self.parts.lock(), target) {
            *part.relists.entry(why.as_str()).or_insert(0) += 1;
        }
    }

    pub(crate) fn connected(&self, target: &Target) {
        let mut parts = self.parts.lock();
        let Some(part) = of(&mut parts, target) else { return };
        part.away_since = None;
        if part.last_error.take().is_some() {
            tracing::info!(watch = %target, "watching again");
        }
    }

    /// Logs `failure` unless it is the one logged last.
    pub(crate) fn failed(&self, target: &Target, failure: &Failure) {
        let mut parts = self.parts.lock();
        let Some(part) = of(&mut parts, target) else { return };
        part.away_since.get_or_insert_with(Instant::now);
        if matches!(failure.kind, Kind::Expired | Kind::Idle) {
            // These failures are routine: a relist or a new connection follows at once.
            tracing::debug!(watch = %target, error = %failure, "starting over");
            return;
        }
        if failure.kind == Kind::Stale {
            tracing::warn!(watch = %target, "{}: listing anew", failure.message);
            return;
        }
        if part.last_error.as_deref() == Some(&failure.message) {
            tracing::debug!(watch = %target, error = %failure, "cannot list or watch, still");
            return;
        }
        match failure.kind {
            Kind::NotServed => {
                tracing::info!(watch = %target, "the server does not serve this type yet: waiting for it");
            }
            _ => tracing::warn!(watch = %target, error = %failure, "cannot list or watch, trying again until it works"),
        }
        part.last_error = Some(failure.message.clone());
    }

    pub(crate) fn stopped(&self, target: &Target) {
        if let Some(part) = of(&mut self.parts.lock(), target) {
            part.is_stopped = true;
            part.away_since.get_or_insert_with(Instant::now);
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.parts.lock().iter().all(|part| part.is_stopped)
    }

    /// Why watches are down; with several watches, each error has its namespace.
    pub(crate) fn last_error(&self) -> Option<String> {
        let parts = self.parts.lock();
        if let [part] = &**parts {
            return part.last_error.clone();
        }
        let errors = parts.iter().filter_map(|part| Some(format!("{}: {}", part.scope, part.last_error.as_ref()?)));
        let errors: Vec<String> = errors.collect();
        (!errors.is_empty()).then(|| errors.join("; "))
    }

    /// How long ago the server last sent something; with several watches, that of the one silent longest; `None` before
    /// the start.
    pub(crate) fn since_heard(&self) -> Option<Duration> {
        self.parts.lock().iter().filter_map(|part| part.heard).min().map(|heard| heard.elapsed())
    }

    /// The number of lists after the first, by the cause of the relist.
    pub(crate) fn relists(&self) -> BTreeMap<&'static str, u64> {
        let mut sum = BTreeMap::new();
        for part in &*self.parts.lock() {
            for (why, n_relists) in &part.relists {
                *sum.entry(*why).or_insert(0) += n_relists;
            }
        }
        sum
    }

    /// How long the watch has been down; with several watches, that of the one down longest; `None` while all are up.
    pub(crate) fn staleness(&self) -> Option<Duration> {
        self.parts.lock().iter().filter_map(|part| part.away_since).min().map(|since| since.elapsed())
    }
}

fn of<'a>(parts: &'a mut [Part], target: &Target) -> Option<&'a mut Part> {
    parts.iter_mut().find(|part| part.scope == target.selection.scope)
}
