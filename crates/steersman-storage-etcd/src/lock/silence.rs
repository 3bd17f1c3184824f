//! How long the holder of a lock has been silent, as a process sees it that waits: a state machine without IO.

use std::time::Duration;
use tokio::time::Instant;

/// The revisions at which the holder and its last heartbeat were written; 0 if a key has no value.
pub(super) type Signs = [i64; 2];

/// The time during which the signs of a holder's life have been the same.
#[derive(Debug)]
pub(super) struct Silence {
    /// The longest pause between two looks in which the holder cannot have missed a heartbeat unseen.
    gap_max: Duration,
    last: Option<Look>,
}

#[derive(Debug)]
struct Look {
    signs: Signs,
    /// The time of the first look since which the signs have been the same.
    since: Instant,
    at: Instant,
}

impl Silence {
    pub(super) fn new(gap_max: Duration) -> Silence {
        Silence { gap_max, last: None }
    }

    /// Adds a look, and returns how long the holder has been silent.
    ///
    /// After a long pause between two looks the silence begins anew: etcd was away for the holder too, or this process was paused, so the
    /// holder must have the time to write a heartbeat.
    pub(super) fn look(&mut self, signs: Signs, now: Instant) -> Duration {
        let since = match &self.last {
            Some(last) if last.signs == signs && now <= last.at + self.gap_max => last.since,
            _ => now,
        };
        self.last = Some(Look { signs, since, at: now });
        now - since
    }

    /// Begins anew: the signs could not be read.
    pub(super) fn forget(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The silences that a process sees which looks at these seconds, and finds these heartbeats.
    fn silences(looks: &[(u64, i64)]) -> Vec<u64> {
        let begin = Instant::now();
        let mut silence = Silence::new(Duration::from_secs(2));
        let look = |&(at, beat)| silence.look([1, beat], begin + Duration::from_secs(at)).as_secs();
        looks.iter().map(look).collect()
    }

    #[test]
    fn a_silence_lasts_while_nothing_is_written() {
        assert_eq!(silences(&[(0, 5), (1, 5), (3, 5), (4, 5)]), [0, 1, 3, 4]);
    }

    #[test]
    fn a_heartbeat_ends_a_silence() {
        assert_eq!(silences(&[(0, 5), (2, 5), (3, 6), (4, 6)]), [0, 2, 0, 1]);
    }

    #[test]
    fn a_look_after_a_long_pause_begins_a_silence() {
        assert_eq!(silences(&[(0, 5), (2, 5), (5, 5), (6, 5)]), [0, 2, 0, 1]);
    }

    #[test]
    fn another_holder_ends_the_silence_of_the_one_before() {
        let begin = Instant::now();
        let mut silence = Silence::new(Duration::from_secs(2));
        silence.look([1, 5], begin);
        assert_eq!(silence.look([6, 5], begin + Duration::from_secs(1)), Duration::ZERO);
    }

    #[test]
    fn a_silence_that_could_not_be_followed_begins_anew() {
        let begin = Instant::now();
        let mut silence = Silence::new(Duration::from_secs(2));
        silence.look([1, 5], begin);
        silence.forget();
        assert_eq!(silence.look([1, 5], begin + Duration::from_secs(1)), Duration::ZERO);
    }
}
