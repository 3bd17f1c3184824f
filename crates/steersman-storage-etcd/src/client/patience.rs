//! How long the answer to a write is waited for at one member.
//!
//! A member that has lost its leader keeps a write for seven seconds before it says that it does not know what became of it, and one that
//! stands still says nothing. So a write is given up soon, ruled out by the fence and made at another member. Where etcd is merely slow
//! that would make it slower, since every fence makes all writes begin anew: after each write that was given up the next ones are waited for
//! twice as long, until one is answered quickly.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Patience {
    least: Duration,
    most: Duration,
    milliseconds: AtomicU64,
}

impl Patience {
    pub(crate) fn new(least: Duration, most: Duration) -> Patience {
        let least = least.min(most);
        Patience { least, most, milliseconds: AtomicU64::new(in_milliseconds(least)) }
    }

    /// How long a write that is sent now is waited for.
    pub(crate) fn now(&self) -> Duration {
        Duration::from_millis(self.milliseconds.load(Ordering::Relaxed))
    }

    /// Records how long a write took that was answered.
    pub(crate) fn answered(&self, after: Duration) {
        if after < self.least / 4 {
            self.milliseconds.store(in_milliseconds(self.least), Ordering::Relaxed);
        }
    }

    /// Records that a write was not answered. Of several that were waited for equally long, one counts.
    pub(crate) fn missed(&self, waited: Duration) {
        let longer = in_milliseconds(self.most.min(2 * waited));
        let waited = in_milliseconds(waited);
        // If it fails, another one has counted.
        let _ = self.milliseconds.compare_exchange(waited, longer, Ordering::Relaxed, Ordering::Relaxed);
    }
}

fn in_milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_with_each_write_that_is_missed_and_ends_with_a_quick_one() {
        let [second, two, eight] = [1, 2, 8].map(Duration::from_secs);
        let patience = Patience::new(two, eight);
        // They were sent at the same time.
        for _ in 0..5 {
            patience.missed(two);
        }
        assert_eq!(patience.now(), 2 * two);
        patience.missed(2 * two);
        patience.missed(4 * two);
        assert_eq!(patience.now(), eight);
        patience.answered(second);
        assert_eq!(patience.now(), eight, "etcd is slow");
        patience.answered(second / 10);
        assert_eq!(patience.now(), two);
    }
}
