//! How far the definitions in the store are in force, so that the writer of one is answered when the next request can use it.
//!
//! The task that follows the definitions reports here; writers wait here.

use crate::status::Failure;
use std::sync::atomic::{AtomicU64, Ordering};
use steersman_machinery::Revision;
use tokio::sync::watch;

/// Failures that writers may still ask about; older ones are forgotten.
const FAILURES_MAX: usize = 1024;

/// How far the definitions in the store are in force.
#[derive(Debug, Default)]
pub(crate) struct InForce {
    reported: watch::Sender<Reported>,
    parsed: AtomicU64,
    compiled: AtomicU64,
}

/// What the follower has done since it started. A change of one definition adds the same however many there are.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Work {
    /// Schemas of versions compiled.
    pub compiled: u64,
    /// Definitions parsed.
    pub parsed: u64,
}

#[derive(Debug, Default)]
struct Reported {
    /// Everything that was written up to here has been looked at.
    applied: Revision,
    /// Writes that were looked at and could not be put in force yet.
    failures: Vec<NotInForce>,
    /// Nobody puts definitions in force any more.
    has_ended: bool,
}

/// A write of a definition that is not in force.
#[derive(Clone, Debug)]
pub(crate) struct NotInForce {
    pub(crate) definition: Box<str>,
    pub(crate) revision: Revision,
    pub(crate) why: String,
}

/// Held by the follower: when it ends, however it ends, those who wait for it are told.
#[derive(Debug)]
pub(crate) struct Reporting<'a>(pub(crate) &'a InForce);

// === impl InForce ===

impl InForce {
    /// Waits until a definition that was written at a revision is in force, for as long as that takes.
    ///
    /// # Errors
    /// When it was seen that it cannot be put in force for now.
    pub(crate) async fn wait_for(&self, revision: Revision) -> Result<(), Failure> {
        let mut reported = self.reported.subscribe();
        let reported = reported.wait_for(|reported| reported.applied >= revision || reported.has_ended).await;
        let Ok(reported) = reported else { return Err(InForce::ended()) };
        if reported.applied < revision {
            return Err(InForce::ended());
        }
        match reported.failures.iter().find(|failure| failure.revision == revision) {
            None => Ok(()),
            Some(NotInForce { definition, why, .. }) => {
                Err(Failure::internal(format!("the definition {definition} was stored, but is not in force: {why}")))
            }
        }
    }

    /// The work done so far.
    pub(crate) fn work(&self) -> Work {
        Work { compiled: self.compiled.load(Ordering::Relaxed), parsed: self.parsed.load(Ordering::Relaxed) }
    }

    fn ended() -> Failure {
        Failure::unavailable("the definition was stored, but the server stops and does not put it in force")
    }

    pub(crate) fn count_parsed(&self) {
        self.parsed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_compiled(&self) {
        self.compiled.fetch_add(1, Ordering::Relaxed);
    }

    /// Everything up to a revision has been looked at, with these failures.
    pub(crate) fn report(&self, revision: Revision, failures: Vec<NotInForce>) {
        self.reported.send_modify(|reported| {
            reported.applied = reported.applied.max(revision);
            reported.failures.extend(failures);
            let surplus = reported.failures.len().saturating_sub(FAILURES_MAX);
            reported.failures.drain(..surplus);
        });
    }

    /// A definition is in force after all.
    pub(crate) fn forgive(&self, definition: &str) {
        self.reported.send_if_modified(|reported| {
            reported.failures.retain(|failure| *failure.definition != *definition);
            false
        });
    }
}

// === impl Reporting ===

impl Drop for Reporting<'_> {
    fn drop(&mut self) {
        self.0.reported.send_modify(|reported| reported.has_ended = true);
    }
}
