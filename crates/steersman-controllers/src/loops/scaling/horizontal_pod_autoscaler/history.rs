//! The past recommendations and scalings of a target, and how they limit a new recommendation.
//!
//! Follows upstream's `normalizeDesiredReplicas` and `normalizeDesiredReplicasWithBehaviors`: the recommendations of a
//! window are considered together so that a target does not flap, and the number of replicas may not change faster than
//! policies allow.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::autoscaling::v2::{HPAScalingRules, HorizontalPodAutoscalerBehavior};

/// The default window in which a higher recommendation keeps a target from being scaled down.
const DOWNSCALE_WINDOW_SECONDS: i32 = 300;
/// Without a behavior, a target may grow in one step to twice its size or to this number.
const SCALE_UP_MINIMUM: i32 = 4;

/// The history of one target.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// `None` before the first evaluation.
    recommendations: Option<Vec<Recommendation>>,
    ups: Vec<Change>,
    downs: Vec<Change>,
}

#[derive(Clone, Copy, Debug)]
struct Recommendation {
    replicas: i32,
    at: Timestamp,
}

/// A past scaling of a target, by this many replicas.
#[derive(Clone, Copy, Debug)]
struct Change {
    replicas: i32,
    at: Timestamp,
}

/// The current size of a target, and the limits of its autoscaler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) current: i32,
    pub(crate) min: i32,
    pub(crate) max: i32,
}

/// The size that a target may get, and the reasons for it.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Allowed {
    pub(crate) replicas: i32,
    /// The reason and message of `AbleToScale`.
    pub(crate) able: (&'static str, &'static str),
    /// The reason and message of `ScalingLimited`.
    pub(crate) limited: (&'static str, &'static str),
    pub(crate) is_limited: bool,
}

const READY: (&str, &str) = ("ReadyForNewScale", "recommended size matches current size");
const DOWN_STABILIZED: (&str, &str) = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
);
const UP_STABILIZED: (&str, &str) = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);
const WITHIN: (&str, &str) = ("DesiredWithinRange", "the desired count is within the acceptable range");
const UP_LIMIT: (&str, &str) =
    ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
const DOWN_LIMIT: (&str, &str) =
    ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate");
const TOO_MANY: (&str, &str) = ("TooManyReplicas", "the desired replica count is more than the maximum replica count");
const TOO_FEW: (&str, &str) = ("TooFewReplicas", "the desired replica count is less than the minimum replica count");

// === impl History ===

impl History {
    /// Begins an evaluation. At the first one, the current size counts as a recommendation.
    pub(crate) fn begin(&mut self, current: i32, now: Timestamp) {
        self.recommendations.get_or_insert_with(|| vec![Recommendation { replicas: current, at: now }]);
    }

    /// Records the recommendation and returns how much of it is allowed.
    pub(crate) fn allow(
        &mut self,
        recommended: i32,
        bounds: Bounds,
        behavior: Option<&HorizontalPodAutoscalerBehavior>,
        now: Timestamp,
    ) -> Allowed {
        let (stable, stabilized, (replicas, limited)) = match behavior {
            None => {
                let stable = self.stabilize(recommended, now);
                (stable, DOWN_STABILIZED, within_rules(stable, bounds))
            }
            Some(behavior) => {
                let stable = self.stabilize_by(behavior, recommended, bounds.current, now);
                let stabilized = if recommended >= bounds.current { UP_STABILIZED } else { DOWN_STABILIZED };
                (stable, stabilized, self.within_rates(behavior, stable, bounds, now))
            }
        };
        let able = if stable == recommended { READY } else { stabilized };
        Allowed { replicas, able, limited, is_limited: replicas != stable }
    }

    /// Records that the target has been scaled.
    pub(crate) fn scaled(
        &mut self,
        from: i32,
        to: i32,
        behavior: Option<&HorizontalPodAutoscalerBehavior>,
        now: Timestamp,
    ) {
        let Some(behavior) = behavior else { return };
        let (changes, rules) =
            if to > from { (&mut self.ups, &behavior.scale_up) } else { (&mut self.downs, &behavior.scale_down) };
        let periods = rules.iter().flat_map(|rules| &rules.policies).flatten().map(|policy| policy.period_seconds);
        let longest = periods.max().unwrap_or_default();
        changes.retain(|change| change.at >= before(now, longest));
        changes.push(Change { replicas: to.saturating_sub(from).saturating_abs(), at: now });
    }

    /// The highest recommendation of the window.
    fn stabilize(&mut self, recommended: i32, now: Timestamp) -> i32 {
        let cutoff = before(now, DOWNSCALE_WINDOW_SECONDS);
        let known = self.recommendations.get_or_insert_default();
        known.retain(|one| one.at >= cutoff);
        let highest = known.iter().map(|one| one.replicas).fold(recommended, i32::max);
        known.push(Recommendation { replicas: recommended, at: now });
        highest
    }

    /// The current size, moved no further than the recommendations of the windows for scaling up and down agree on.
    fn stabilize_by(
        &mut self,
        behavior: &HorizontalPodAutoscalerBehavior,
        recommended: i32,
        current: i32,
        now: Timestamp,
    ) -> i32 {
        let window = |rules: &Option<HPAScalingRules>, default: i32| {
            rules.as_ref().and_then(|rules| rules.stabilization_window_seconds).unwrap_or(default)
        };
        let up_cutoff = before(now, window(&behavior.scale_up, 0));
        let down_cutoff = before(now, window(&behavior.scale_down, DOWNSCALE_WINDOW_SECONDS));
        let known = self.recommendations.get_or_insert_default();
        let since = |cutoff: Timestamp| known.iter().filter(move |one| one.at > cutoff).map(|one| one.replicas);
        let lowest = since(up_cutoff).fold(recommended, i32::min);
        let highest = since(down_cutoff).fold(recommended, i32::max);
        known.retain(|one| one.at >= up_cutoff || one.at >= down_cutoff);
        known.push(Recommendation { replicas: recommended, at: now });
        current.max(lowest).min(highest)
    }

    fn within_rates(
        &self,
        behavior: &HorizontalPodAutoscalerBehavior,
        wanted: i32,
        bounds: Bounds,
        now: Timestamp,
    ) -> (i32, (&'static str, &'static str)) {
        if wanted > bounds.current {
            let limit = self.limit(behavior.scale_up.as_ref(), bounds.current, now, Direction::Up).max(bounds.current);
            let (most, why) = if bounds.max > limit { (limit, UP_LIMIT) } else { (bounds.max, TOO_MANY) };
            if wanted > most {
                return (most, why);
            }
        } else if wanted < bounds.current {
            let limit =
                self.limit(behavior.scale_down.as_ref(), bounds.current, now, Direction::Down).min(bounds.current);
            let (least, why) = if bounds.min < limit { (limit, DOWN_LIMIT) } else { (bounds.min, TOO_FEW) };
            if wanted < least {
                return (least, why);
            }
        }
        (wanted, WITHIN)
    }

    /// How far the policies let a target go in one direction.
    fn limit(&self, rules: Option<&HPAScalingRules>, current: i32, now: Timestamp, direction: Direction) -> i32 {
        let select = rules.and_then(|rules| rules.select_policy.as_deref()).unwrap_or("Max");
        if select == "Disabled" {
            return current;
        }
        let policies = rules.and_then(|rules| rules.policies.as_deref()).unwrap_or_default();
        let proposals = policies.iter().map(|policy| {
            let cutoff = before(now, policy.period_seconds);
            let of = |changes: &[Change]| -> i64 {
                changes.iter().filter(|change| change.at > cutoff).map(|change| i64::from(change.replicas)).sum()
            };
            let start = i64::from(current) - of(&self.ups) + of(&self.downs);
            let value = i64::from(policy.value);
            let share = start as f64 * value as f64 / 100.0;
            let proposal = match (&*policy.type_, direction) {
                ("Percent", Direction::Up) => (start as f64 + share).ceil() as i64,
                ("Percent", Direction::Down) => (start as f64 - share) as i64,
                (_, Direction::Up) => start.saturating_add(value),
                (_, Direction::Down) => start.saturating_sub(value),
            };
            i32::try_from(proposal).unwrap_or(if proposal < 0 { i32::MIN } else { i32::MAX })
        });
        // The largest change is the highest proposal when scaling up, and the lowest when scaling down.
        match (direction, select) {
            (Direction::Up, "Min") => proposals.min().unwrap_or(i32::MAX),
            (Direction::Up, _) => proposals.max().unwrap_or(i32::MIN),
            (Direction::Down, "Min") => proposals.max().unwrap_or(i32::MIN),
            (Direction::Down, _) => proposals.min().unwrap_or(i32::MAX),
        }
    }
}

#[derive(Clone, Copy)]
enum Direction {
    Down,
    Up,
}

/// Limits the size of a target without a behavior.
fn within_rules(wanted: i32, bounds: Bounds) -> (i32, (&'static str, &'static str)) {
    let limit = bounds.current.saturating_mul(2).max(SCALE_UP_MINIMUM);
    let (most, why) = if bounds.max > limit { (limit, UP_LIMIT) } else { (bounds.max, TOO_MANY) };
    if wanted < bounds.min {
        return (bounds.min, TOO_FEW);
    }
    if wanted > most {
        return (most, why);
    }
    (wanted, WITHIN)
}

/// The time this many seconds ago.
fn before(now: Timestamp, seconds: i32) -> Timestamp {
    now.checked_sub(SignedDuration::from_secs(i64::from(seconds.max(0)))).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + seconds).unwrap()
    }

    fn behavior(value: Value) -> HorizontalPodAutoscalerBehavior {
        serde_json::from_value(value).unwrap()
    }

    const BOUNDS: Bounds = Bounds { current: 3, min: 2, max: 100 };

    #[test]
    fn without_a_behavior_a_target_at_most_doubles_and_shrinks_after_five_minutes() {
        let mut history = History::default();
        history.begin(3, at(0));
        let allowed = history.allow(50, BOUNDS, None, at(15));
        assert_eq!((allowed.replicas, allowed.is_limited, allowed.limited.0), (6, true, "ScaleUpLimit"));
        let bounds = Bounds { current: 6, ..BOUNDS };
        let allowed = history.allow(1, bounds, None, at(30));
        assert_eq!((allowed.replicas, allowed.able.0), (12, "ScaleDownStabilized"));
        let allowed = history.allow(1, bounds, None, at(331));
        assert_eq!((allowed.replicas, allowed.able.0, allowed.limited.0), (2, "ReadyForNewScale", "TooFewReplicas"));
        let tight = Bounds { max: 5, ..BOUNDS };
        let allowed = History::default().allow(50, tight, None, at(0));
        assert_eq!((allowed.replicas, allowed.limited.0), (5, "TooManyReplicas"));
    }

    #[test]
    fn policies_limit_the_change_of_a_period() {
        let one = behavior(json!({
            "scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": "Min", "policies": [
                {"type": "Pods", "value": 4, "periodSeconds": 60}, {"type": "Percent", "value": 50, "periodSeconds": 60}]},
            "scaleDown": {"stabilizationWindowSeconds": 0, "selectPolicy": "Disabled", "policies": []}}));
        let mut history = History::default();
        history.begin(10, at(0));
        let bounds = Bounds { current: 10, min: 1, max: 100 };
        let allowed = history.allow(50, bounds, Some(&one), at(1));
        assert_eq!((allowed.replicas, allowed.limited.0), (14, "ScaleUpLimit"));
        history.scaled(10, 14, Some(&one), at(1));
        let bounds = Bounds { current: 14, ..bounds };
        assert_eq!(history.allow(50, bounds, Some(&one), at(30)).replicas, 14, "nothing is left of this minute");
        assert_eq!(history.allow(50, bounds, Some(&one), at(62)).replicas, 18);
        assert_eq!(history.allow(1, bounds, Some(&one), at(63)).replicas, 14, "scaling down is off");
    }

    #[test]
    fn windows_hold_back_in_both_directions() {
        let one = behavior(json!({
            "scaleUp": {"stabilizationWindowSeconds": 60, "selectPolicy": "Max", "policies": [{"type": "Pods", "value": 50, "periodSeconds": 60}]},
            "scaleDown": {"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}}));
        let mut history = History::default();
        history.begin(3, at(0));
        let allowed = history.allow(9, BOUNDS, Some(&one), at(30));
        assert_eq!((allowed.replicas, allowed.able.0), (3, "ScaleUpStabilized"));
        assert_eq!(history.allow(9, BOUNDS, Some(&one), at(91)).replicas, 9);
        let bounds = Bounds { current: 9, ..BOUNDS };
        assert_eq!(history.allow(2, bounds, Some(&one), at(100)).replicas, 9, "the default window is five minutes");
        assert_eq!(history.allow(2, bounds, Some(&one), at(500)).replicas, 2);
    }

    #[test]
    fn absurd_numbers_stay_numbers() {
        let one = behavior(json!({
            "scaleUp": {"policies": [{"type": "Percent", "value": i32::MAX, "periodSeconds": i32::MAX}]},
            "scaleDown": {"policies": [{"type": "Percent", "value": i32::MAX, "periodSeconds": i32::MAX}]}}));
        let mut history = History::default();
        let bounds = Bounds { current: i32::MAX - 1, min: 0, max: i32::MAX };
        assert_eq!(history.allow(i32::MAX, bounds, Some(&one), at(0)).replicas, i32::MAX);
        history.scaled(0, i32::MAX, Some(&one), at(0));
        history.scaled(i32::MIN, i32::MAX, Some(&one), at(0));
        assert!(history.allow(i32::MIN, bounds, None, Timestamp::MIN).replicas >= 0);
        history.allow(5, bounds, Some(&one), Timestamp::MAX);
    }
}
