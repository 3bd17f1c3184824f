//! How fast Nodes are tainted with NoExecute, by failure zone: the more Nodes of a zone are not ready, the more likely
//! the network is to blame and not the Nodes. When no zone has a ready Node, none is tainted.
//!
//! Follows upstream's `handleDisruption` and its rate-limited queues: one Node per zone in ten seconds. With more than
//! half of its Nodes not ready, a large zone has one Node tainted in a hundred seconds, and a small one none.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use tokio::time::Instant;

/// The pause before the next Node of a zone may be tainted.
const PERIOD: Duration = Duration::from_secs(10);
const PERIOD_SLOW: Duration = Duration::from_secs(100);
/// The most Nodes of a small zone.
const SMALL_NODES_MAX: usize = 50;
/// The fraction of not ready Nodes from which a zone is disrupted.
const DISRUPTED: f64 = 0.55;
/// The fewest not ready Nodes of a disrupted zone.
const DISRUPTED_NODES_MIN: usize = 3;
/// How long a Node waits in any case, so that Nodes that fail together are judged together.
const SETTLE: Duration = Duration::from_millis(100);

/// The number of Nodes in a zone.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Count {
    pub(super) ready: usize,
    pub(super) not_ready: usize,
}

/// The failure zones of the cluster.
#[derive(Debug, Default)]
pub(super) struct Zones {
    zones: BTreeMap<String, Zone>,
    is_all_disrupted: bool,
}

/// The actions due after a change of the zones.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Turn {
    /// A Node is ready again: the grace periods of all Nodes start over, and all Nodes are reconciled.
    Leaves,
    /// No Node is ready any more: the NoExecute taints are removed from all Nodes, and all Nodes are reconciled.
    Enters,
    /// These Nodes, which wait to be tainted, are reconciled.
    Wake(Vec<String>),
}

/// Whether a Node may be tainted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Permit {
    After(Duration),
    /// Not before the zone's state changes.
    Never,
    Now,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Full,
    Initial,
    Normal,
    Partial,
}

#[derive(Debug)]
struct Zone {
    state: State,
    limiter: Limiter,
    waiting: Waiting,
}

/// A rate limiter that lets one through per period.
#[derive(Clone, Copy, Debug)]
struct Limiter {
    /// `None` lets none through.
    period: Option<Duration>,
    taken: Option<Instant>,
}

/// The waiting Nodes, in order of arrival.
#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    nodes: BTreeMap<u64, (String, Instant)>,
    numbers: HashMap<String, u64>,
}

// === impl Zones ===

impl Zones {
    /// Whether no zone has a ready Node.
    pub(super) fn is_all_disrupted(&self) -> bool {
        self.is_all_disrupted
    }

    /// Updates the zones with the current Nodes.
    pub(super) fn update(&mut self, counts: &BTreeMap<String, Count>, now: Instant) -> Option<Turn> {
        let states: BTreeMap<&str, State> = counts.iter().map(|(zone, count)| (zone.as_str(), count.state())).collect();
        self.zones.retain(|name, zone| states.contains_key(name.as_str()) || !zone.waiting.nodes.is_empty());
        for name in states.keys() {
            self.zones.entry((*name).to_owned()).or_insert_with(Zone::new);
        }
        let are_all = states.values().all(|state| *state == State::Full);
        let mut known = self.zones.iter().filter(|(name, _)| states.contains_key(name.as_str()));
        let were_all = known.all(|(_, zone)| zone.state == State::Full);
        self.is_all_disrupted = are_all && !states.is_empty();
        if are_all && were_all {
            return None;
        }
        if are_all {
            for zone in self.zones.values_mut() {
                zone.state = State::Full;
                zone.limiter.swap(None, now);
            }
            return Some(Turn::Enters);
        }
        let mut woken = Vec::new();
        for (name, state) in states {
            let (Some(zone), Some(count)) = (self.zones.get_mut(name), counts.get(name)) else { continue };
            if !were_all && zone.state == state {
                continue;
            }
            zone.state = state;
            zone.limiter.swap(state.period(*count), now);
            woken.extend(zone.waiting.numbers.keys().cloned());
        }
        match (were_all, woken.is_empty()) {
            (true, _) => Some(Turn::Leaves),
            (false, true) => None,
            (false, false) => Some(Turn::Wake(woken)),
        }
    }

    /// Asks whether a Node may be tainted. A permitted Node waits no longer.
    pub(super) fn permit(&mut self, zone: &str, node: &str, now: Instant) -> Permit {
        let zone = self.zones.entry(zone.to_owned()).or_insert_with(Zone::new);
        let (is_first, since) = zone.waiting.join(node, now);
        let Some(wait) = zone.limiter.wait(now) else { return Permit::Never };
        let settling = SETTLE.saturating_sub(now.saturating_duration_since(since));
        let wait = match is_first {
            true => wait.max(settling),
            // Another Node is ahead.
            false => wait.max(settling).max(SETTLE),
        };
        if !wait.is_zero() {
            return Permit::After(wait);
        }
        zone.waiting.leave(node);
        zone.limiter.taken = Some(now);
        Permit::Now
    }

    /// Gives back the permit of a Node that was not tainted after all, so that the next is permitted.
    pub(super) fn give_back(&mut self, zone: &str) {
        if let Some(zone) = self.zones.get_mut(zone) {
            zone.limiter.taken = None;
        }
    }

    /// Removes a Node that need not be tainted any more.
    pub(super) fn forget(&mut self, zone: &str, node: &str) {
        if let Some(zone) = self.zones.get_mut(zone) {
            zone.waiting.leave(node);
        }
    }
}

impl Count {
    fn state(self) -> State {
        let part = self.not_ready as f64 / (self.not_ready + self.ready).max(1) as f64;
        match self {
            Count { ready: 0, not_ready: 1.. } => State::Full,
            Count { not_ready: DISRUPTED_NODES_MIN.., .. } if part >= DISRUPTED => State::Partial,
            _ => State::Normal,
        }
    }
}

impl State {
    /// The pause between the taints of two Nodes of a zone.
    fn period(self, count: Count) -> Option<Duration> {
        match self {
            State::Full | State::Initial | State::Normal => Some(PERIOD),
            State::Partial => (count.ready + count.not_ready > SMALL_NODES_MAX).then_some(PERIOD_SLOW),
        }
    }
}

impl Zone {
    fn new() -> Zone {
        let limiter = Limiter { period: Some(PERIOD), taken: None };
        Zone { state: State::Initial, limiter, waiting: Waiting::default() }
    }
}

impl Limiter {
    /// How long until the next is let through; `None` if none will be.
    fn wait(&self, now: Instant) -> Option<Duration> {
        let period = self.period?;
        let elapsed = self.taken.map(|taken| now.saturating_duration_since(taken));
        Some(elapsed.map_or(Duration::ZERO, |elapsed| period.saturating_sub(elapsed)))
    }

    /// Changes the period. A Node that still had to wait, waits for the whole new period from now on.
    fn swap(&mut self, period: Option<Duration>, now: Instant) {
        if self.period == period {
            return;
        }
        let is_waiting = self.wait(now).is_none_or(|wait| !wait.is_zero());
        *self = Limiter { period, taken: is_waiting.then_some(now) };
    }
}

impl Waiting {
    /// Adds the Node unless it waits already. Returns whether it is the first, and since when it has waited.
    fn join(&mut self, node: &str, now: Instant) -> (bool, Instant) {
        let number = *self.numbers.entry(node.to_owned()).or_insert_with(|| {
            self.nodes.insert(self.next, (node.to_owned(), now));
            self.next += 1;
            self.next - 1
        });
        let is_first = self.nodes.first_key_value().is_some_and(|(first, _)| *first == number);
        (is_first, self.nodes.get(&number).map_or(now, |(_, since)| *since))
    }

    fn leave(&mut self, node: &str) {
        if let Some(number) = self.numbers.remove(node) {
            self.nodes.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(zones: &[(&str, usize, usize)]) -> BTreeMap<String, Count> {
        let count = |(name, ready, not_ready): &(&str, usize, usize)| {
            ((*name).to_owned(), Count { ready: *ready, not_ready: *not_ready })
        };
        zones.iter().map(count).collect()
    }

    proptest::proptest! {
        /// Nodes ask, leave and ask again in any order and at any time.
        #[test]
        fn two_nodes_of_a_zone_are_never_tainted_within_ten_seconds_and_whoever_keeps_asking_is(
            asks in proptest::collection::vec((0_u8..4, proptest::bool::weighted(0.2), 0_u64..5_000), 1..80),
        ) {
            let start = Instant::now();
            let (mut zones, mut now, mut last) = (Zones::default(), start, None::<Instant>);
            for (node, leaves, millis) in asks {
                now += Duration::from_millis(millis);
                if leaves {
                    zones.forget("z", &node.to_string());
                } else if zones.permit("z", &node.to_string(), now) == Permit::Now {
                    proptest::prop_assert!(last.is_none_or(|last| now >= last + PERIOD));
                    last = Some(now);
                }
            }
            let zone = zones.zones.get("z");
            let mut waiting: Vec<String> = zone.into_iter().flat_map(|zone| zone.waiting.numbers.keys().cloned()).collect();
            while !waiting.is_empty() {
                now += PERIOD;
                let before = waiting.len();
                waiting.retain(|node| zones.permit("z", node, now) != Permit::Now);
                proptest::prop_assert_eq!(waiting.len(), before - 1);
            }
        }
    }

    #[track_caller]
    fn check(ready: usize, not_ready: usize, want: State) {
        assert_eq!(Count { ready, not_ready }.state(), want);
    }

    #[test]
    fn a_zone_is_disrupted_from_three_nodes_and_fifty_five_percent_on() {
        check(0, 0, State::Normal);
        check(1, 2, State::Normal);
        check(3, 3, State::Normal);
        check(2, 3, State::Partial);
        check(45, 55, State::Partial);
        check(46, 54, State::Normal);
        check(0, 1, State::Full);
    }

    #[tokio::test]
    async fn one_node_in_ten_seconds_is_tainted_and_the_first_comes_first() {
        let start = Instant::now();
        let at = |millis: u64| start + Duration::from_millis(millis);
        let mut zones = Zones::default();
        assert_eq!(zones.update(&counts(&[("a", 5, 2)]), at(0)), None);
        assert_eq!(zones.permit("a", "x", at(0)), Permit::After(SETTLE));
        assert_eq!(zones.permit("a", "y", at(0)), Permit::After(SETTLE));
        assert_eq!(zones.permit("a", "y", at(200)), Permit::After(SETTLE), "x is first");
        assert_eq!(zones.permit("a", "x", at(200)), Permit::Now);
        assert_eq!(zones.permit("a", "y", at(200)), Permit::After(PERIOD));
        assert_eq!(zones.permit("b", "z", at(200)), Permit::After(SETTLE), "another zone has a limit of its own");
        assert_eq!(zones.permit("a", "y", at(10_200)), Permit::Now);
    }

    #[tokio::test]
    async fn who_waits_no_more_does_not_hold_up_others() {
        let start = Instant::now();
        let later = start + Duration::from_secs(1);
        let mut zones = Zones::default();
        zones.permit("a", "x", start);
        zones.permit("a", "y", start);
        zones.forget("a", "x");
        assert_eq!(zones.permit("a", "y", later), Permit::Now);
    }

    #[tokio::test]
    async fn no_node_is_tainted_while_none_is_ready() {
        let now = Instant::now();
        let at = |secs: u64| now + Duration::from_secs(secs);
        let mut zones = Zones::default();
        let all = counts(&[("a", 0, 3), ("b", 0, 1)]);
        assert_eq!(zones.update(&all, now), Some(Turn::Enters));
        assert!(zones.is_all_disrupted());
        assert_eq!(zones.permit("a", "x", now), Permit::Never);
        assert_eq!(zones.update(&all, now), None);
        assert_eq!(zones.update(&counts(&[("a", 1, 2), ("b", 0, 1)]), at(1)), Some(Turn::Leaves));
        assert!(!zones.is_all_disrupted());
        assert_eq!(zones.permit("a", "x", at(1)), Permit::After(PERIOD), "not at once");
        assert_eq!(zones.permit("a", "x", at(11)), Permit::Now);
        assert_eq!(zones.update(&counts(&[]), at(1)), None);
    }

    #[tokio::test]
    async fn a_small_zone_that_is_disrupted_loses_no_node_and_a_large_one_few() {
        let now = Instant::now();
        let mut zones = Zones::default();
        zones.update(&counts(&[("a", 9, 1), ("b", 90, 1)]), now);
        zones.permit("a", "x", now);
        let turn = zones.update(&counts(&[("a", 2, 8), ("b", 9, 80)]), now);
        assert_eq!(turn, Some(Turn::Wake(vec!["x".to_owned()])));
        assert_eq!(zones.permit("a", "x", now), Permit::Never);
        zones.permit("b", "y", now);
        assert_eq!(zones.permit("b", "y", now + SETTLE), Permit::Now);
        assert_eq!(zones.permit("b", "z", now + SETTLE), Permit::After(PERIOD_SLOW));
    }
}
