//! The choice of the member that is asked: a state machine without IO.
//!
//! One member is preferred and asked as long as it answers. One that did not is suspected for a while, and another is
//! preferred. A suspected member is asked only if all are.

use std::time::Duration;
use tokio::time::Instant;

/// How long a member that failed is left alone while others answer.
const SUSPECTED_FOR: Duration = Duration::from_secs(5);
/// How long no member may answer before etcd counts as away.
const AWAY_AFTER: Duration = Duration::from_secs(5);
/// How long a failure counts. After that, a lack of answers only means that there were no calls.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(15);

/// The state of each member, by its number.
#[derive(Debug)]
pub(crate) struct Endpoints {
    preferred: usize,
    /// When the suspicion ends; never empty.
    suspected: Vec<Option<Instant>>,
    silence: Option<Silence>,
}

/// The failures since a member answered last.
#[derive(Clone, Copy, Debug)]
struct Silence {
    first: Instant,
    last: Instant,
}

impl Endpoints {
    pub(crate) fn new(n_members: usize) -> Endpoints {
        assert!(0 < n_members, "there is a member");
        Endpoints { preferred: 0, suspected: vec![None; n_members], silence: None }
    }

    pub(crate) fn count(&self) -> usize {
        self.suspected.len()
    }

    /// The member to ask.
    pub(crate) fn pick(&mut self, now: Instant) -> usize {
        let n_members = self.count();
        let from_preferred = (0..n_members).map(|n| (self.preferred + n) % n_members);
        let trusted = from_preferred.clone().find(|member| self.suspected[*member].is_none_or(|until| until <= now));
        self.preferred = match trusted {
            Some(member) => member,
            None => from_preferred.min_by_key(|member| self.suspected[*member]).unwrap_or(self.preferred),
        };
        self.preferred
    }

    /// Records that a member answered.
    pub(crate) fn answered(&mut self, member: usize) {
        self.suspected[member] = None;
        self.silence = None;
    }

    /// Makes a member the next one that is asked.
    pub(crate) fn prefer(&mut self, member: usize) {
        self.preferred = member;
    }

    /// Records that a member did not answer, or said that it cannot.
    pub(crate) fn failed(&mut self, member: usize, now: Instant) {
        self.suspected[member] = Some(now + SUSPECTED_FOR);
        let first = self.silence.map_or(now, |silence| silence.first);
        self.silence = Some(Silence { first, last: now });
    }

    /// For how long no member has answered, if that is so long that etcd counts as away.
    pub(crate) fn away(&self, now: Instant) -> Option<Duration> {
        let silence = self.silence.filter(|silence| now < silence.last + FORGOTTEN_AFTER)?;
        Some(now - silence.first).filter(|length| AWAY_AFTER <= *length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_member_that_fails_is_left_alone_while_another_answers() {
        let start = Instant::now();
        let mut endpoints = Endpoints::new(3);
        assert_eq!((endpoints.pick(start), endpoints.pick(start)), (0, 0));
        endpoints.failed(0, start);
        assert_eq!(endpoints.pick(start), 1);
        let later = start + SUSPECTED_FOR;
        assert_eq!(endpoints.pick(later), 1, "the one that answers stays preferred");
        endpoints.failed(1, later);
        assert_eq!(endpoints.pick(later), 2);
        endpoints.failed(2, later);
        assert_eq!(endpoints.pick(later), 0, "its suspicion has ended");
        endpoints.answered(1);
        endpoints.prefer(1);
        assert_eq!(endpoints.pick(later), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn etcd_is_away_when_no_member_has_answered_for_a_while() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut endpoints = Endpoints::new(2);
        endpoints.failed(0, start);
        endpoints.failed(1, after(2));
        assert_eq!((endpoints.away(after(4)), endpoints.away(after(6))), (None, Some(Duration::from_secs(6))));
        assert_eq!(endpoints.away(after(17)), None, "nobody has asked since");
        endpoints.failed(0, after(18));
        endpoints.answered(1);
        assert_eq!(endpoints.away(after(19)), None, "one member is enough");
    }

    #[tokio::test(start_paused = true)]
    async fn when_all_fail_the_one_that_failed_first_is_asked() {
        let start = Instant::now();
        let mut endpoints = Endpoints::new(2);
        endpoints.failed(1, start);
        endpoints.failed(0, start + Duration::from_secs(1));
        assert_eq!(endpoints.pick(start + Duration::from_secs(2)), 1);
        endpoints.failed(1, start + Duration::from_secs(2));
        assert_eq!(endpoints.pick(start + Duration::from_secs(2)), 0);
        endpoints.answered(1);
        assert_eq!(endpoints.pick(start + Duration::from_secs(2)), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_only_member_is_asked_however_it_fails() {
        let mut endpoints = Endpoints::new(1);
        endpoints.failed(0, Instant::now());
        assert_eq!(endpoints.pick(Instant::now()), 0);
    }
}
