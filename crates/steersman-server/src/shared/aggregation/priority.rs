//! The priorities of groups and versions: clients take the first group that has a short name, and the first version of a
//! group.

use steersman_kinds::builtin::cluster::{api_service, resource_metrics};
use steersman_kinds::catalog::Group;

/// The priorities of built-in groups and versions. A version that is not listed has no APIService, because only this
/// server has it.
const PRIORITIES: [(&str, &str, i64, i64); 28] = [
    ("", "v1", 18000, 1),
    ("admissionregistration.k8s.io", "v1", 16700, 15),
    ("admissionregistration.k8s.io", "v1alpha1", 16700, 9),
    ("admissionregistration.k8s.io", "v1beta1", 16700, 12),
    ("apiextensions.k8s.io", "v1", 16700, 15),
    ("apps", "v1", 17800, 15),
    ("authentication.k8s.io", "v1", 17700, 15),
    ("authorization.k8s.io", "v1", 17600, 15),
    ("autoscaling", "v1", 17500, 15),
    ("autoscaling", "v2", 17500, 30),
    ("batch", "v1", 17400, 15),
    ("batch", "v2alpha1", 17400, 9),
    ("certificates.k8s.io", "v1", 17300, 15),
    ("coordination.k8s.io", "v1", 16500, 15),
    ("discovery.k8s.io", "v1", 16200, 15),
    ("events.k8s.io", "v1", 17750, 15),
    ("flowcontrol.apiserver.k8s.io", "v1", 16100, 21),
    (resource_metrics::GROUP, resource_metrics::VERSION, 100, 100),
    ("networking.k8s.io", "v1", 17200, 15),
    ("networking.k8s.io", "v1beta1", 17200, 9),
    ("node.k8s.io", "v1", 16300, 15),
    ("policy", "v1", 17100, 15),
    ("rbac.authorization.k8s.io", "v1", 17000, 15),
    ("resource.k8s.io", "v1", 16200, 21),
    ("resource.k8s.io", "v1beta2", 16200, 15),
    ("scheduling.k8s.io", "v1", 16600, 15),
    ("storage.k8s.io", "v1", 16800, 15),
    ("storage.k8s.io", "v1beta1", 16800, 9),
];
/// The priority of the groups and versions of definitions.
pub(crate) const OF_CUSTOM: (i64, i64) = (1000, 100);

/// The priority of the group and of the version, for a version that is built in.
pub(crate) fn of_built_in(group: &str, version: &str) -> Option<(i64, i64)> {
    let row = PRIORITIES.iter().find(|(one, name, ..)| *one == group && *name == version);
    row.map(|(_, _, group, version)| (*group, *version))
}

/// The priority of a version that this server serves.
pub(crate) fn of_version(group: &Group, version: &str) -> i64 {
    match group.has_built_in() {
        true => of_built_in(&group.name, version).map_or(0, |(_, version)| version),
        false => OF_CUSTOM.1,
    }
}

/// The priority of a group that this server serves. That of APIServices is always the first.
pub(crate) fn of_group(group: &Group) -> i64 {
    if *group.name == *api_service::GROUP {
        return i64::MAX;
    }
    let mut rows = PRIORITIES.iter().filter(|(one, ..)| group.has_built_in() && *one == &*group.name);
    rows.next().map_or(OF_CUSTOM.0, |(_, _, group, _)| *group)
}
