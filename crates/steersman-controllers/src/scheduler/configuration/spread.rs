//! Topology spread constraints, of Pods and of profiles.

use crate::shared::labels::{Labels, Selector};
use k8s_openapi::api::core::v1::TopologySpreadConstraint;

/// A topology spread constraint.
#[derive(Clone, Debug)]
pub(crate) struct Spread {
    pub(crate) topology_key: String,
    pub(crate) max_skew: i64,
    pub(crate) min_domains: i64,
    pub(crate) selector: Selector,
    pub(crate) is_required: bool,
    /// Whether nodes that the Pod's node affinity excludes are left out.
    pub(crate) honors_affinity: bool,
    /// Whether nodes with taints that the Pod does not tolerate are left out.
    pub(crate) honors_taints: bool,
}

// === impl Spread ===

impl Spread {
    pub(crate) fn read(constraint: &TopologySpreadConstraint, labels: &Labels) -> Spread {
        let mut selector = Selector::read(constraint.label_selector.as_ref());
        let keys = constraint.match_label_keys.iter().flatten();
        let own: Labels = keys.filter_map(|key| Some((key.clone(), labels.get(key)?.clone()))).collect();
        if !own.is_empty() {
            selector = Selector::of_labels(&own).and(selector);
        }
        Spread {
            topology_key: constraint.topology_key.clone(),
            max_skew: i64::from(constraint.max_skew),
            min_domains: i64::from(constraint.min_domains.unwrap_or(1)),
            selector,
            is_required: constraint.when_unsatisfiable == "DoNotSchedule",
            honors_affinity: constraint.node_affinity_policy.as_deref() != Some("Ignore"),
            honors_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
        }
    }
}
