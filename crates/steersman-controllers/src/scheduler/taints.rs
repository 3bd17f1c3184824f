//! Which taints of nodes keep a Pod away, and which it would rather avoid.

use crate::tolerations::NodeTaint;
use k8s_openapi::api::core::v1::{Taint, Toleration};
use std::sync::LazyLock;

/// The taint that stands for `spec.unschedulable`.
static UNSCHEDULABLE: LazyLock<NodeTaint> = LazyLock::new(|| {
    let (key, effect) = ("node.kubernetes.io/unschedulable".to_owned(), "NoSchedule".to_owned());
    NodeTaint::of(&Taint { key, effect, ..Taint::default() })
});

/// What a Pod tolerates.
#[derive(Clone, Debug, Default)]
pub(super) struct Tolerations {
    all: Vec<Toleration>,
}

impl Tolerations {
    pub(super) fn read(tolerations: &[Toleration]) -> Tolerations {
        Tolerations { all: tolerations.to_vec() }
    }

    /// How many there are. A Pod may get more, and never loses one.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether no taint of a node keeps the Pod away.
    pub(super) fn allow(&self, taints: &[NodeTaint]) -> bool {
        let keeps_away = |taint: &&NodeTaint| matches!(taint.effect.as_str(), "NoExecute" | "NoSchedule");
        taints.iter().filter(keeps_away).all(|taint| taint.is_tolerated(&self.all))
    }

    /// Whether the Pod goes to nodes that are cordoned.
    pub(super) fn allow_unschedulable(&self) -> bool {
        UNSCHEDULABLE.is_tolerated(&self.all)
    }

    /// How many taints of a node the Pod would rather avoid.
    pub(super) fn count_avoided(&self, taints: &[NodeTaint]) -> i64 {
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
