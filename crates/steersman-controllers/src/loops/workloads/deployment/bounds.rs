//! The arithmetic of a rollout: how many Pods may exist, how many may be unavailable, and the share of each ReplicaSet
//! when a Deployment is scaled in the middle of one.
//!
//! Follows upstream's `pkg/controller/deployment/util`. Sums saturate, so that no user input makes them overflow.

use crate::loops::scaling::scaled::{self, Round};
use crate::loops::workloads::deployment::revision::{self, MAX_REPLICAS};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// How a Deployment moves from one template to the next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Strategy {
    Recreate,
    RollingUpdate,
}

/// The desired replicas of a Deployment.
pub(crate) fn wanted(deployment: &Deployment) -> i32 {
    deployment.spec.replicas.unwrap_or(1)
}

/// The desired replicas of a ReplicaSet.
pub(crate) fn size(set: &ReplicaSet) -> i32 {
    set.spec.replicas.unwrap_or(1)
}

pub(crate) fn strategy(deployment: &Deployment) -> Strategy {
    let strategy = deployment.spec.strategy.as_ref().and_then(|strategy| strategy.type_.as_deref());
    match strategy {
        Some("Recreate") => Strategy::Recreate,
        _ => Strategy::RollingUpdate,
    }
}

/// How many Pods above the desired number may exist during an update.
pub(crate) fn max_surge(deployment: &Deployment) -> i32 {
    match strategy(deployment) {
        Strategy::Recreate => 0,
        Strategy::RollingUpdate => fenceposts(deployment).map_or(0, |(surge, _)| surge),
    }
}

/// How many of the desired Pods may be unavailable during an update.
pub(crate) fn max_unavailable(deployment: &Deployment) -> i32 {
    if strategy(deployment) == Strategy::Recreate || wanted(deployment) == 0 {
        return 0;
    }
    fenceposts(deployment).map_or(0, |(_, unavailable)| unavailable.min(wanted(deployment)))
}

/// The most Pods that may exist.
pub(crate) fn max_total(deployment: &Deployment) -> i32 {
    wanted(deployment).saturating_add(max_surge(deployment))
}

/// The surge and the number of unavailable Pods. At least one of the two is 1 or more, or nothing would ever move.
/// `None` for a value that is not a number, which validation rejects.
fn fenceposts(deployment: &Deployment) -> Option<(i32, i32)> {
    let rolling = deployment.spec.strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
    let surge = scaled(rolling.and_then(|rolling| rolling.max_surge.as_ref()), wanted(deployment), Round::Up)?;
    let unavailable =
        scaled(rolling.and_then(|rolling| rolling.max_unavailable.as_ref()), wanted(deployment), Round::Down)?;
    Some(if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) })
}

fn scaled(value: Option<&IntOrString>, total: i32, round: Round) -> Option<i32> {
    value.map_or(Some(0), |value| scaled::number(value, total.into(), round).map(saturated))
}

/// The sum of the desired replicas of ReplicaSets.
pub(crate) fn total<'a>(sets: impl IntoIterator<Item = &'a ReplicaSet>) -> i32 {
    saturated(sets.into_iter().map(|set| i64::from(size(set))).sum())
}

/// The size of the newest template's ReplicaSet, given its current `size` and the `total` of all ReplicaSets.
pub(crate) fn new_size(deployment: &Deployment, size: i32, total: i32) -> i32 {
    if strategy(deployment) == Strategy::Recreate {
        return wanted(deployment);
    }
    let rolling = deployment.spec.strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
    let surge = scaled(rolling.and_then(|rolling| rolling.max_surge.as_ref()), wanted(deployment), Round::Up);
    let room = wanted(deployment).saturating_add(surge.unwrap_or(0)).saturating_sub(total);
    if room <= 0 {
        return size;
    }
    size.saturating_add(room.min(wanted(deployment).saturating_sub(size)))
}

/// The change of a ReplicaSet's size, out of `to_add` (which may be negative), of which `added` are already
/// distributed.
pub(crate) fn proportion(deployment: &Deployment, set: &ReplicaSet, to_add: i32, added: i32) -> i32 {
    if size(set) == 0 || to_add == 0 || to_add == added {
        return 0;
    }
    let allowed = to_add.saturating_sub(added);
    let fraction = fraction(deployment, set);
    if to_add > 0 { fraction.min(allowed) } else { fraction.max(allowed) }
}

/// The change of a ReplicaSet's size that keeps its share of the whole.
fn fraction(deployment: &Deployment, set: &ReplicaSet) -> i32 {
    if wanted(deployment) == 0 {
        return size(set).saturating_neg();
    }
    let before = match revision::number_in(set, MAX_REPLICAS) {
        Some(before @ 1..) => before,
        // Somebody removed the annotation, so the present size is used.
        _ => match deployment.status.as_ref().and_then(|status| status.replicas) {
            Some(before @ 1..) => before,
            _ => return 0,
        },
    };
    let (size, before) = (i64::from(size(set)), i64::from(before));
    let numerator = size * i64::from(max_total(deployment));
    // Rounds halves away from zero; nothing here is negative.
    let rounded = (2 * numerator + before) / (2 * before);
    saturated(rounded - size)
}

fn saturated(number: i64) -> i32 {
    i32::try_from(number).unwrap_or(if number < 0 { i32::MIN } else { i32::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn deployment(replicas: i32, surge: serde_json::Value, unavailable: serde_json::Value) -> Deployment {
        let value = json!({"spec": {
            "replicas": replicas, "selector": {}, "template": {},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}},
        }});
        serde_json::from_value(value).expect("a Deployment")
    }

    #[track_caller]
    fn check(replicas: i32, surge: serde_json::Value, unavailable: serde_json::Value, expected: (i32, i32)) {
        let deployment = deployment(replicas, surge, unavailable);
        assert_eq!((max_surge(&deployment), max_unavailable(&deployment)), expected);
    }

    #[test]
    fn surge_is_rounded_up_and_what_may_be_missing_down_and_one_of_them_is_at_least_one() {
        check(3, json!("25%"), json!("25%"), (1, 0));
        check(4, json!("25%"), json!("25%"), (1, 1));
        check(10, json!(3), json!(2), (3, 2));
        check(2, json!(0), json!("1%"), (0, 1));
        check(1, json!(0), json!(0), (0, 1));
        check(0, json!("25%"), json!("25%"), (0, 0));
        check(2, json!(0), json!(5), (0, 2));
        check(i32::MAX, json!("100%"), json!("100%"), (i32::MAX, i32::MAX));
        check(3, json!("some"), json!("25%"), (0, 0));
    }

    #[test]
    fn shares_stay_within_what_is_to_be_given_out() {
        let set = |replicas: i32, max: &str| -> ReplicaSet {
            let annotations = json!({"deployment.kubernetes.io/max-replicas": max});
            let value =
                json!({"metadata": {"annotations": annotations}, "spec": {"replicas": replicas, "selector": {}}});
            serde_json::from_value(value).expect("a ReplicaSet")
        };
        let six = deployment(6, json!("25%"), json!("25%"));
        assert_eq!(max_total(&six), 8);
        assert_eq!(proportion(&six, &set(3, "4"), 4, 0), 3);
        assert_eq!(proportion(&six, &set(1, "4"), 4, 3), 1);
        assert_eq!(proportion(&six, &set(3, "nonsense"), 4, 0), 0);
        let none = deployment(0, json!("25%"), json!("25%"));
        assert_eq!(proportion(&none, &set(3, "4"), -3, 0), -3);
        assert_eq!(proportion(&deployment(i32::MAX, json!("100%"), json!(1)), &set(i32::MAX, "1"), 1, 0), 1);
    }
}
