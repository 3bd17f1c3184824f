//! Taints of nodes, and which Pods tolerate them.

use k8s_openapi::api::core::v1::{Taint, Toleration};

/// The taint that stands for `spec.unschedulable`.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct NodeTaint {
    key: String,
    value: String,
    effect: Effect,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Effect {
    NoExecute,
    NoSchedule,
    PreferNoSchedule,
    Unknown,
}

/// What a Pod tolerates.
#[derive(Clone, Debug, Default)]
pub(super) struct Tolerations {
    all: Vec<Tolerated>,
}

#[derive(Clone, Debug)]
struct Tolerated {
    /// `None`: any.
    effect: Option<Effect>,
    /// Empty: any.
    key: String,
    operator: Operator,
    value: String,
}

#[derive(Clone, Copy, Debug)]
enum Operator {
    Equal,
    Exists,
    Unknown,
}

impl Effect {
    fn read(text: &str) -> Effect {
        match text {
            "NoExecute" => Effect::NoExecute,
            "NoSchedule" => Effect::NoSchedule,
            "PreferNoSchedule" => Effect::PreferNoSchedule,
            _ => Effect::Unknown,
        }
    }
}

impl NodeTaint {
    pub(super) fn read(taint: &Taint) -> NodeTaint {
        NodeTaint {
            key: taint.key.clone(),
            value: taint.value.clone().unwrap_or_default(),
            effect: Effect::read(&taint.effect),
        }
    }
}

impl Tolerations {
    pub(super) fn read(tolerations: &[Toleration]) -> Tolerations {
        let read = |one: &Toleration| Tolerated {
            effect: one.effect.as_deref().filter(|effect| !effect.is_empty()).map(Effect::read),
            key: one.key.clone().unwrap_or_default(),
            operator: match one.operator.as_deref().unwrap_or_default() {
                "" | "Equal" => Operator::Equal,
                "Exists" => Operator::Exists,
                _ => Operator::Unknown,
            },
            value: one.value.clone().unwrap_or_default(),
        };
        Tolerations { all: tolerations.iter().map(read).collect() }
    }

    /// How many there are. A Pod may get more, and never loses one.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether no taint of a node keeps the Pod away.
    pub(super) fn allow(&self, taints: &[NodeTaint]) -> bool {
        let keeps_away = |taint: &&NodeTaint| matches!(taint.effect, Effect::NoExecute | Effect::NoSchedule);
        taints.iter().filter(keeps_away).all(|taint| self.all.iter().any(|one| one.tolerates(taint)))
    }

    /// Whether the Pod goes to nodes that are cordoned.
    pub(super) fn allow_unschedulable(&self) -> bool {
        let taint = NodeTaint { key: UNSCHEDULABLE.to_owned(), value: String::new(), effect: Effect::NoSchedule };
        self.all.iter().any(|one| one.tolerates(&taint))
    }

    /// How many taints of a node the Pod would rather avoid.
    pub(super) fn count_avoided(&self, taints: &[NodeTaint]) -> i64 {
        let avoided = taints.iter().filter(|taint| {
            taint.effect == Effect::PreferNoSchedule && !self.all.iter().any(|one| one.tolerates(taint))
        });
        i64::try_from(avoided.count()).unwrap_or(i64::MAX)
    }
}

impl Tolerated {
    fn tolerates(&self, taint: &NodeTaint) -> bool {
        self.effect.is_none_or(|effect| effect == taint.effect)
            && (self.key.is_empty() || self.key == taint.key)
            && match self.operator {
                Operator::Equal => self.value == taint.value,
                Operator::Exists => true,
                Operator::Unknown => false,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[track_caller]
    fn allows(tolerations: Value, taint: Value, expected: bool) {
        let tolerations: Vec<Toleration> = serde_json::from_value(tolerations).unwrap();
        let taint: Taint = serde_json::from_value(taint).unwrap();
        assert_eq!(Tolerations::read(&tolerations).allow(&[NodeTaint::read(&taint)]), expected);
    }

    #[test]
    fn a_taint_is_tolerated_by_key_value_and_effect() {
        let taint = || json!({"key": "team", "value": "blue", "effect": "NoSchedule"});
        allows(json!([]), taint(), false);
        allows(json!([{"operator": "Exists"}]), taint(), true);
        allows(json!([{"key": "team", "value": "blue"}]), taint(), true);
        allows(json!([{"key": "team", "operator": "Equal", "value": "red"}]), taint(), false);
        allows(json!([{"key": "team", "operator": "Exists", "effect": "NoExecute"}]), taint(), false);
        allows(json!([{"key": "team", "operator": "Lt", "value": "7"}]), taint(), false);
        allows(json!([]), json!({"key": "team", "effect": "PreferNoSchedule"}), true);
    }
}
