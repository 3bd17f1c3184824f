//! Creates whose answer was lost: they may still be carried out for a while.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;
use steersman_neutron::Error;
use tokio::time::Instant;

/// How long after its answer was lost a create may still be carried out.
pub(crate) const SETTLE: Duration = Duration::from_secs(10);
/// The most objects remembered; the oldest are dropped. Dropping one risks a duplicate, which the next reconcile
/// removes.
const OBJECTS_MAX: usize = 10_000;

/// When an answer was last lost, by uid.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    lost: Mutex<HashMap<String, Instant>>,
}

/// A create under way. Dropped without an outcome, as when its reconcile is cut off, its answer counts as lost.
#[derive(Debug)]
#[must_use = "a create is over when its outcome is known"]
pub(crate) struct InFlight<'a> {
    pending: &'a Pending,
    uid: &'a str,
    is_answered: bool,
}

impl InFlight<'_> {
    /// Records how the create ended: only an error that leaves its effect open is remembered.
    pub(crate) fn outcome<T>(mut self, outcome: Result<T, Error>) -> Result<T, Error> {
        self.is_answered = !outcome.as_ref().is_err_and(Error::is_uncertain);
        outcome
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.pending.note(self.uid);
        }
    }
}

impl Pending {
    /// Begins a create for the object.
    pub(crate) fn in_flight<'a>(&'a self, uid: &'a str) -> InFlight<'a> {
        InFlight { pending: self, uid, is_answered: false }
    }

    /// Records that an answer was lost now.
    pub(crate) fn note(&self, uid: &str) {
        let mut lost = self.lost.lock();
        if lost.len() >= OBJECTS_MAX {
            let oldest = lost.iter().min_by_key(|(_, since)| **since).map(|(uid, _)| uid.clone());
            if let Some(oldest) = oldest {
                lost.remove(&oldest);
            }
        }
        lost.insert(uid.to_owned(), Instant::now());
    }

    /// How long to wait before the absence of the object's network is certain.
    pub(crate) fn wait(&self, uid: &str) -> Option<Duration> {
        let mut lost = self.lost.lock();
        let left = SETTLE.checked_sub(lost.get(uid)?.elapsed()).filter(|left| !left.is_zero());
        if left.is_none() {
            lost.remove(uid);
        }
        left
    }

    /// Drops the object, because its network was found.
    pub(crate) fn forget(&self, uid: &str) {
        self.lost.lock().remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lost_answer_is_waited_for_and_then_believed() {
        let pending = Pending::default();
        assert_eq!(pending.wait("u"), None);
        pending.note("u");
        assert_eq!(pending.wait("u"), Some(SETTLE));
        tokio::time::advance(SETTLE).await;
        assert_eq!(pending.wait("u"), None);
        pending.note("u");
        pending.forget("u");
        assert_eq!(pending.wait("u"), None);
    }
}
