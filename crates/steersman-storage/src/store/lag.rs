//! How long the cache has lacked changes that are known to be committed.

use parking_lot::Mutex;
use std::time::Duration;
use steersman_machinery::Revision;
use tokio::time::Instant;

/// How long the cache may lack a committed change while the store counts as ready.
const LAG_MAX: Duration = Duration::from_secs(5);

/// The first committed revision that the cache was seen to lack.
#[derive(Debug, Default)]
pub(super) struct Lag(Mutex<Option<Lacking>>);

#[derive(Clone, Copy, Debug)]
struct Lacking {
    committed: Revision,
    since: Instant,
}

/// The cache lacks changes that were committed a while ago.
#[derive(Debug, thiserror::Error)]
#[error("revision {committed} was committed {seconds} s ago, and this process is still at {applied}")]
pub(super) struct Lagging {
    applied: Revision,
    committed: Revision,
    seconds: u64,
}

impl Lag {
    /// Records that a revision was committed before an instant, at which the cache had another one.
    pub(super) fn note(&self, committed: Revision, applied: Revision, at: Instant) {
        let mut lacking = self.0.lock();
        if lacking.is_some_and(|lacking| lacking.committed <= applied) {
            *lacking = None;
        }
        if applied < committed {
            lacking.get_or_insert(Lacking { committed, since: at });
        }
    }

    /// Fails if the cache, which is at `applied`, has lacked a committed change for too long.
    pub(super) fn check(&self, applied: Revision) -> Result<(), Lagging> {
        let lacking = *self.0.lock();
        match lacking.filter(|lacking| applied < lacking.committed && LAG_MAX <= lacking.since.elapsed()) {
            None => Ok(()),
            Some(Lacking { committed, since }) => {
                Err(Lagging { applied, committed, seconds: since.elapsed().as_secs() })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_cache_that_stays_behind_is_told_from_one_that_follows() {
        let lag = Lag::default();
        let [one, two, three] = [1, 2, 3].map(Revision);
        lag.note(one, one, Instant::now());
        lag.note(two, one, Instant::now());
        tokio::time::advance(Duration::from_secs(4)).await;
        // Later readings do not begin the time anew.
        lag.note(three, one, Instant::now());
        assert!(lag.check(one).is_ok());
        tokio::time::advance(Duration::from_secs(2)).await;
        let said = lag.check(one).unwrap_err().to_string();
        assert_eq!(said, "revision 2 was committed 6 s ago, and this process is still at 1");
        assert!(lag.check(two).is_ok());
        lag.note(three, two, Instant::now());
        tokio::time::advance(Duration::from_secs(4)).await;
        assert!(lag.check(two).is_ok(), "another change, since not as long");
    }
}
