//! Computes when a Pod is evicted because of the taints of its Node.

use crate::shared::tolerations;
use k8s_openapi::api::core::v1::{Taint, Toleration};
use std::time::Duration;
use tokio::time::Instant;

/// Tolerations longer than this count as unlimited. No process runs that long, and the clock can represent it.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);

/// A planned eviction.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Eviction {
    pub(super) at: Instant,
    /// The uid of the Pod.
    pub(super) uid: Option<String>,
}

/// The action due for a Pod.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Plan {
    /// The Pod is evicted after this time, counted from now.
    After(Duration),
    /// The Pod stays.
    Keep,
    /// The Pod is evicted at once, because it does not tolerate a taint.
    Now,
}

/// How long a Pod may stay on a Node with these NoExecute taints.
pub(super) fn plan(taints: &[Taint], tolerations: &[Toleration]) -> Plan {
    if taints.is_empty() {
        return Plan::Keep;
    }
    let Some(used) = tolerations::matching(taints, tolerations) else { return Plan::Now };
    match used.iter().filter_map(|toleration| toleration.toleration_seconds).min() {
        None => Plan::Keep,
        Some(..=0) => Plan::After(Duration::ZERO),
        Some(seconds) => {
            let time = Duration::from_secs(seconds.unsigned_abs());
            if time < FOREVER { Plan::After(time) } else { Plan::Keep }
        }
    }
}

/// The taints with the effect NoExecute.
pub(super) fn evicting(taints: Option<&[Taint]>) -> Vec<Taint> {
    taints.unwrap_or_default().iter().filter(|taint| taint.effect == "NoExecute").cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(taints: &[&str], tolerations: &[(&str, Option<i64>)], want: Plan) {
        let taints: Vec<Taint> = taints
            .iter()
            .map(|key| Taint { effect: "NoExecute".to_owned(), key: (*key).to_owned(), ..Taint::default() })
            .collect();
        let tolerations: Vec<Toleration> = tolerations
            .iter()
            .map(|(key, seconds)| Toleration {
                key: Some((*key).to_owned()),
                operator: Some("Exists".to_owned()),
                toleration_seconds: *seconds,
                ..Toleration::default()
            })
            .collect();
        assert_eq!(plan(&taints, &tolerations), want);
    }

    #[test]
    fn the_shortest_of_the_tolerations_that_are_used_counts() {
        let secs = |secs| Plan::After(Duration::from_secs(secs));
        check(&[], &[("a", Some(1))], Plan::Keep);
        check(&["a"], &[], Plan::Now);
        check(&["a", "b"], &[("a", None)], Plan::Now);
        check(&["a"], &[("a", None), ("a", Some(1))], Plan::Keep);
        check(&["a", "b"], &[("a", Some(9)), ("b", Some(5)), ("c", Some(1))], secs(5));
        check(&["a"], &[("a", Some(0))], secs(0));
        check(&["a"], &[("a", Some(i64::MIN))], secs(0));
        check(&["a"], &[("a", Some(i64::MAX))], Plan::Keep);
    }
}
