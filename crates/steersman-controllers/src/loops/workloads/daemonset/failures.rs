//! The back-off for replacing failed Pods on a Node: the first one is replaced at once, and its successors later each
//! time while they fail too.
//!
//! Follows the `flowcontrol.Backoff` that upstream's DaemonSet controller uses. The kubelet may reject every Pod at
//! once, and without a back-off the two would create and reject Pods as fast as they can.

use hashbrown::HashMap;
use jiff::Timestamp;
use parking_lot::Mutex;
use std::time::Duration;

const FIRST: Duration = Duration::from_secs(1);
const MAX: Duration = Duration::from_secs(15 * 60);
/// After this time without a failure, the back-off starts over.
const FORGET_AFTER: Duration = Duration::from_secs(30 * 60);
/// How often expired entries are removed.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// The failures of the Pods of all DaemonSets. Bounded by the Nodes on which Pods have failed within half an hour.
#[derive(Default)]
pub(crate) struct Failures {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    last: HashMap<BackoffKey, Failure>,
    swept: Option<Timestamp>,
}

/// The DaemonSet and the Node of a failed Pod.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct BackoffKey {
    /// The uid of the DaemonSet.
    pub(crate) uid: String,
    /// The generation of the DaemonSet: a change of the DaemonSet starts the back-off over.
    pub(crate) generation: i64,
    pub(crate) node: String,
}

struct Failure {
    at: Timestamp,
    wait: Duration,
}

// === impl Failures ===

impl Failures {
    /// Decides whether a failed Pod may be deleted now. If so, the failure is counted.
    ///
    /// # Errors
    /// How long the Pod has to stay.
    pub(crate) fn may_replace(&self, place: BackoffKey, now: Timestamp) -> Result<(), Duration> {
        let mut inner = self.inner.lock();
        if inner.swept.is_none_or(|swept| since(swept, now) >= SWEEP_INTERVAL) {
            inner.swept = Some(now);
            inner.last.retain(|_, failure| since(failure.at, now) <= FORGET_AFTER);
        }
        let known = inner.last.get(&place).filter(|failure| since(failure.at, now) <= FORGET_AFTER);
        let wait = match known {
            None => FIRST,
            Some(failure) => match failure.wait.checked_sub(since(failure.at, now)) {
                None | Some(Duration::ZERO) => failure.wait.saturating_mul(2).min(MAX),
                Some(left) => return Err(left),
            },
        };
        inner.last.insert(place, Failure { at: now, wait });
        Ok(())
    }
}

/// The elapsed time; zero if the clock was set back.
fn since(then: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(then)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_and_are_forgotten() {
        let failures = Failures::default();
        let place = |node: &str| BackoffKey { uid: "u".to_owned(), generation: 1, node: node.to_owned() };
        let at = |seconds: i64| Timestamp::from_second(1_000_000 + seconds).unwrap();
        let try_at = |seconds| failures.may_replace(place("n"), at(seconds));
        assert_eq!(try_at(0), Ok(()));
        assert_eq!(try_at(0), Err(Duration::from_secs(1)));
        assert_eq!(failures.may_replace(place("m"), at(0)), Ok(()));
        assert_eq!(try_at(1), Ok(()));
        assert_eq!(try_at(2), Err(Duration::from_secs(1)));
        assert_eq!(try_at(3), Ok(()));
        assert_eq!(try_at(4), Err(Duration::from_secs(3)));
        assert_eq!(try_at(3 + 1801), Ok(()));
        assert_eq!(try_at(3 + 1802), Ok(()), "the first wait again");
        assert_eq!(failures.inner.lock().last.len(), 1, "what has long passed is not kept");
    }
}
