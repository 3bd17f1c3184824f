//! Tracks up to which revision the stored definitions are in force, so that a write of one is answered only when the
//! next request can use it.
//!
//! The task that follows the definitions reports its progress here, and writes of definitions wait for it here.

use crate::shared::follower::Progress;
use crate::shared::status::Failure;
use std::sync::atomic::{AtomicU64, Ordering};
use steersman_machinery::Revision;
use tokio::sync::watch;

/// The most failures that are remembered for writers that wait; the oldest are forgotten first.
const FAILURES_MAX: usize = 1024;

/// Up to which revision the stored definitions are in force.
#[derive(Debug, Default)]
pub(crate) struct AppliedRevision {
    reported: watch::Sender<Reported>,
    progress: Progress,
    parsed: AtomicU64,
    compiled: AtomicU64,
}

/// The work of the follower since it started. The cost of one change does not depend on the number of definitions.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct DefinitionWork {
    /// The number of schemas compiled.
    pub compiled: u64,
    /// The number of definitions parsed.
    pub parsed: u64,
}

#[derive(Debug, Default)]
struct Reported {
    /// All writes up to this revision have been processed.
    applied: Revision,
    /// Writes that were processed but are not in force, because that failed.
    failures: Vec<NotInForce>,
    /// Whether the follower has ended.
    has_ended: bool,
}

/// A write of a definition that is not in force.
#[derive(Clone, Debug)]
pub(crate) struct NotInForce {
    pub(crate) definition: Box<str>,
    pub(crate) revision: Revision,
    pub(crate) why: String,
}

/// Held by the follower: when it is dropped, even by a panic, waiting writes fail instead of waiting for ever.
#[derive(Debug)]
pub(crate) struct Reporting<'a>(pub(crate) &'a AppliedRevision);

// === impl AppliedRevision ===

impl AppliedRevision {
    /// Waits, without a limit, until a definition written at a revision is in force.
    ///
    /// # Errors
    /// When it could not be put in force.
    pub(crate) async fn wait_for(&self, revision: Revision) -> Result<(), Failure> {
        let mut reported = self.reported.subscribe();
        let reported = reported.wait_for(|reported| reported.applied >= revision || reported.has_ended).await;
        let Ok(reported) = reported else { return Err(AppliedRevision::ended()) };
        if reported.applied < revision {
            return Err(AppliedRevision::ended());
        }
        match reported.failures.iter().find(|failure| failure.revision == revision) {
            None => Ok(()),
            Some(NotInForce { definition, why, .. }) => {
                Err(Failure::internal(format!("the definition {definition} was stored, but is not in force: {why}")))
            }
        }
    }

    /// Up to which revision definitions were processed, in force or not.
    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The work done since the start.
    pub(crate) fn work(&self) -> DefinitionWork {
        DefinitionWork { compiled: self.compiled.load(Ordering::Relaxed), parsed: self.parsed.load(Ordering::Relaxed) }
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

    /// Reports that all writes up to a revision were processed, with these failures.
    pub(crate) fn report(&self, revision: Revision, failures: Vec<NotInForce>) {
        self.reported.send_modify(|reported| {
            reported.applied = reported.applied.max(revision);
            reported.failures.extend(failures);
            let surplus = reported.failures.len().saturating_sub(FAILURES_MAX);
            reported.failures.drain(..surplus);
        });
        self.progress.report(revision);
    }

    /// Removes the failures of a definition that is in force now, or deleted.
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
        self.0.progress.end();
    }
}
