//! The taints of nodes that a Pod does not tolerate, or prefers to avoid.

use crate::shared::tolerations::NodeTaint;
use k8s_openapi::api::core::v1::{Taint, Toleration};
use std::sync::LazyLock;

/// The taint that stands for `spec.unschedulable`.
static UNSCHEDULABLE: LazyLock<NodeTaint> = LazyLock::new(|| {
    let (key, effect) = ("node.kubernetes.io/unschedulable".to_owned(), "NoSchedule".to_owned());
    NodeTaint::of(&Taint { key, effect, ..Taint::default() })
});

/// The tolerations of a Pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tolerations {
    all: Vec<Toleration>,
}

impl Tolerations {
    pub(crate) fn read(tolerations: &[Toleration]) -> Tolerations {
        Tolerations { all: tolerations.to_vec() }
    }

    /// The number of tolerations, which may grow during a Pod's life, but not shrink.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether the Pod tolerates all taints that would exclude it.
    pub(crate) fn allow(&self, taints: &[NodeTaint]) -> bool {
        let keeps_away = |taint: &&NodeTaint| matches!(taint.effect.as_str(), "NoExecute" | "NoSchedule");
        taints.iter().filter(keeps_away).all(|taint| taint.is_tolerated(&self.all))
    }

    /// Whether the Pod tolerates cordoned nodes.
    pub(crate) fn allow_unschedulable(&self) -> bool {
        UNSCHEDULABLE.is_tolerated(&self.all)
    }

    /// The number of a node's `PreferNoSchedule` taints that the Pod does not tolerate.
    pub(crate) fn count_avoided(&self, taints: &[NodeTaint]) -> i64 {
        let is_avoided = |taint: &&NodeTaint| taint.effect == "PreferNoSchedule" && !taint.is_tolerated(&self.all);
        i64::try_from(taints.iter().filter(is_avoided).count()).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[track_caller]
    fn check(tolerations: Value, taint: Value, allows: bool, avoided: i64) {
        let tolerations = Tolerations::read(&serde_json::from_value::<Vec<Toleration>>(tolerations).unwrap());
        let taints = [NodeTaint::of(&serde_json::from_value(taint).unwrap())];
        assert_eq!((tolerations.allow(&taints), tolerations.count_avoided(&taints)), (allows, avoided));
    }

    #[test]
    fn a_taint_keeps_pods_away_that_do_not_tolerate_it() {
        let taint = |effect: &str| json!({"key": "team", "value": "blue", "effect": effect});
        check(json!([]), taint("NoSchedule"), false, 0);
        check(json!([]), taint("NoExecute"), false, 0);
        check(json!([]), taint("PreferNoSchedule"), true, 1);
        check(json!([{"key": "team", "value": "blue"}]), taint("NoSchedule"), true, 0);
        check(json!([{"key": "team", "value": "blue"}]), taint("PreferNoSchedule"), true, 0);
        check(json!([{"key": "team", "operator": "Exists", "effect": "NoExecute"}]), taint("NoSchedule"), false, 0);
        check(json!([{"key": "team", "operator": "Lt", "value": "7"}]), taint("NoSchedule"), false, 0);
    }

    #[test]
    fn cordoned_nodes_are_for_pods_that_tolerate_the_taint_that_stands_for_it() {
        let of = |tolerations: Value| Tolerations { all: serde_json::from_value(tolerations).unwrap() };
        assert!(of(json!([{"operator": "Exists"}])).allow_unschedulable());
        assert!(
            of(json!([{"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}]))
                .allow_unschedulable()
        );
        assert!(!of(json!([{"key": "team", "operator": "Exists"}])).allow_unschedulable());
    }
}
