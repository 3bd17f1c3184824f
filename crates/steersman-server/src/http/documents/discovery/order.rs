//! The order of groups: clients take the first one that has a short name, so the order is part of the interface.

use steersman_kinds::builtin::cluster::resource_metrics;
use steersman_kinds::catalog::Group;

/// The groups of Kubernetes in the order in which kube-apiserver lists them.
const BUILT_IN: [&str; 20] = [
    "apiregistration.k8s.io",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "resource.k8s.io",
    "flowcontrol.apiserver.k8s.io",
];

/// Sorts groups: the core group, those of Kubernetes in their order, then the others by name; resource metrics, whose
/// APIService has the lowest priority, come last.
pub(super) fn sort<T>(groups: &mut [(&Group, T)]) {
    groups.sort_by_cached_key(|(group, _)| (rank(group), group.name.clone()));
}

fn rank(group: &Group) -> usize {
    match &*group.name {
        "" => 0,
        resource_metrics::GROUP if group.has_built_in() => usize::MAX,
        name => BUILT_IN.iter().position(|one| *one == name).map_or(BUILT_IN.len() + 1, |at| at + 1),
    }
}
