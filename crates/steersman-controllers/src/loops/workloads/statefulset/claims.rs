//! The PersistentVolumeClaims of a StatefulSet's Pods: which to create, and which owners they get so that they are
//! deleted with them.
//!
//! Follows the retention policy of upstream's `stateful_set_utils.go`: with `whenDeleted: Delete` the set owns the
//! claims of its Pods, and with `whenScaled: Delete` a Pod that is scaled away owns its own. A claim with another
//! controller is not touched.

use crate::loops::workloads::statefulset::identity;
use crate::shared::dependents;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use std::sync::Arc;

/// Finds a claim of the set's namespace by its name.
pub(crate) type Find<'a> = dyn Fn(&str) -> Option<Arc<PersistentVolumeClaim>> + 'a;

/// The work on the claims of a Pod.
#[derive(Debug, Default)]
pub(crate) struct ClaimChanges {
    pub(crate) create: Vec<PersistentVolumeClaim>,
    /// The names of claims that are being deleted, and have to be gone first.
    pub(crate) ending: Vec<String>,
    /// Claims to update with other owners.
    pub(crate) update: Vec<PersistentVolumeClaim>,
    /// The names of claims with another controller, to which no policy applies.
    pub(crate) conflicting: Vec<String>,
}

/// A StatefulSet and one of its Pods.
#[derive(Clone, Copy)]
struct Pair<'a> {
    set: &'a StatefulSet,
    pod: &'a Pod,
}

pub(crate) fn templates(set: &StatefulSet) -> &[PersistentVolumeClaim] {
    set.spec.volume_claim_templates.as_deref().unwrap_or_default()
}

pub(crate) fn template_name(template: &PersistentVolumeClaim) -> &str {
    template.metadata.name.as_deref().unwrap_or_default()
}

/// The name of the claim for an ordinal.
pub(crate) fn name(set: &StatefulSet, template: &str, ordinal: i64) -> String {
    format!("{template}-{}-{ordinal}", identity::name(set))
}

/// The names of the sets that a claim of this name may belong to: several, because the template's name before the set's
/// may contain dashes too.
pub(crate) fn sets_of(claim: &str) -> impl Iterator<Item = &str> {
    let prefix = identity::parse(claim).map_or("", |(prefix, _)| prefix);
    prefix.match_indices('-').map(|(at, _)| &prefix[at + 1..])
}

fn names(set: &StatefulSet, pod: &Pod) -> Vec<String> {
    let Some(ordinal) = identity::ordinal(pod) else { return Vec::new() };
    templates(set).iter().map(|template| name(set, template_name(template), ordinal)).collect()
}

// === impl ClaimChanges ===

impl ClaimChanges {
    /// The claims to create before the Pod is created, or while it waits for its volumes.
    pub(crate) fn missing(set: &StatefulSet, pod: &Pod, find: &Find<'_>) -> ClaimChanges {
        let mut work = ClaimChanges::default();
        for (template, name) in templates(set).iter().zip(names(set, pod)) {
            match find(&name) {
                None => work.create.push(made_of(set, template, name)),
                Some(claim) if claim.metadata.deletion_timestamp.is_some() => work.ending.push(name),
                Some(_) => {}
            }
        }
        work
    }

    /// Adds the owners that the policy requires. Claims that do not exist yet get theirs later.
    pub(crate) fn and_owners(mut self, set: &StatefulSet, pod: &Pod, find: &Find<'_>) -> ClaimChanges {
        let pair = Pair { set, pod };
        for name in names(set, pod) {
            let Some(claim) = find(&name) else { continue };
            if pair.has_other_controller(owners(&claim)) {
                self.conflicting.push(name);
            }
            if !pair.is_up_to_date(owners(&claim)) {
                let mut changed = (*claim).clone();
                changed.metadata.owner_references = Some(pair.owners(owners(&claim)));
                self.update.push(changed);
            }
        }
        self
    }

    pub(crate) fn is_nothing(&self) -> bool {
        self.create.is_empty() && self.ending.is_empty() && self.update.is_empty() && self.conflicting.is_empty()
    }
}

/// Whether a Pod's claims have the owners that the policy requires.
pub(crate) fn are_owned_as_wanted(set: &StatefulSet, pod: &Pod, find: &Find<'_>) -> bool {
    let pair = Pair { set, pod };
    names(set, pod).iter().filter_map(|name| find(name)).all(|claim| pair.is_up_to_date(owners(&claim)))
}

/// Whether a claim still belongs to an earlier Pod of this name, with which it will be deleted. The new Pod has to wait
/// for that.
pub(crate) fn is_stale(set: &StatefulSet, pod: &Pod, find: &Find<'_>) -> bool {
    policy(set).is_deleted_when_scaled
        && names(set, pod)
            .iter()
            .filter_map(|name| find(name))
            .any(|claim| Pair { set, pod }.is_stale_of_pod(owners(&claim)))
}

fn made_of(set: &StatefulSet, template: &PersistentVolumeClaim, name: String) -> PersistentVolumeClaim {
    let mut claim = template.clone();
    claim.status = None;
    claim.metadata.name = Some(name);
    claim.metadata.namespace.clone_from(&set.metadata.namespace);
    if let Some(labels) = &set.spec.selector.match_labels {
        let wanted = labels.iter().map(|(key, value)| (key.clone(), value.clone()));
        claim.metadata.labels.get_or_insert_default().extend(wanted);
    }
    claim
}

fn owners(claim: &PersistentVolumeClaim) -> &[OwnerReference] {
    claim.metadata.owner_references.as_deref().unwrap_or_default()
}

struct Policy {
    is_deleted_with_set: bool,
    is_deleted_when_scaled: bool,
}

fn policy(set: &StatefulSet) -> Policy {
    let policy = set.spec.persistent_volume_claim_retention_policy.as_ref();
    let is_delete = |what: Option<&String>| what.is_some_and(|what| what == "Delete");
    Policy {
        is_deleted_with_set: is_delete(policy.and_then(|policy| policy.when_deleted.as_ref())),
        is_deleted_when_scaled: is_delete(policy.and_then(|policy| policy.when_scaled.as_ref())),
    }
}

// === impl Pair ===

impl Pair<'_> {
    fn names_set(&self, owner: &OwnerReference) -> bool {
        owner.api_version == "apps/v1" && owner.kind == "StatefulSet" && owner.name == identity::name(self.set)
    }

    fn names_pod(&self, owner: &OwnerReference) -> bool {
        owner.api_version == "v1" && owner.kind == "Pod" && Some(&owner.name) == self.pod.metadata.name.as_ref()
    }

    fn is_set(&self, owner: &OwnerReference) -> bool {
        Some(&owner.uid) == self.set.metadata.uid.as_ref()
    }

    /// Whether an owner is the Pod. A Pod that does not exist yet has no uid, and owns nothing.
    fn is_pod(&self, owner: &OwnerReference) -> bool {
        Some(&owner.uid) == self.pod.metadata.uid.as_ref()
    }

    fn is_stale_of_pod(&self, owners: &[OwnerReference]) -> bool {
        owners.iter().find(|owner| self.names_pod(owner)).is_some_and(|owner| !self.is_pod(owner))
    }

    fn is_stale_of_set(&self, owners: &[OwnerReference]) -> bool {
        owners.iter().find(|owner| self.names_set(owner)).is_some_and(|owner| !self.is_set(owner))
    }

    /// Whether there is a policy, and the claim has a controller other than the set and the Pod.
    fn has_other_controller(&self, owners: &[OwnerReference]) -> bool {
        let Policy { is_deleted_with_set, is_deleted_when_scaled } = policy(self.set);
        (is_deleted_with_set || is_deleted_when_scaled)
            && owners.iter().any(|owner| {
                if self.names_set(owner) {
                    !self.is_set(owner)
                } else if self.names_pod(owner) {
                    !self.is_pod(owner)
                } else {
                    owner.controller == Some(true)
                }
            })
    }

    fn is_up_to_date(&self, owners: &[OwnerReference]) -> bool {
        // The claim belongs to an earlier set or Pod, and will probably be deleted with it.
        if self.is_stale_of_set(owners) || self.is_stale_of_pod(owners) {
            return true;
        }
        let is_of_set = owners.iter().any(|owner| self.is_set(owner));
        let is_of_pod = owners.iter().any(|owner| self.is_pod(owner));
        if self.has_other_controller(owners) {
            return !is_of_set && !is_of_pod;
        }
        let is_ours = |owner: &&OwnerReference| self.is_set(owner) || self.is_pod(owner);
        if owners.iter().filter(is_ours).any(|owner| owner.controller != Some(true)) {
            return false;
        }
        (is_of_set, is_of_pod) == self.wanted()
    }

    /// Whether the policy requires the set, and whether it requires the Pod, as an owner.
    fn wanted(&self) -> (bool, bool) {
        let Policy { is_deleted_with_set, is_deleted_when_scaled } = policy(self.set);
        let is_pod_wanted = is_deleted_when_scaled && identity::index(self.set, self.pod).is_none();
        (is_deleted_with_set && !is_pod_wanted, is_pod_wanted)
    }

    /// The owners that the claim should have.
    fn owners(&self, owners: &[OwnerReference]) -> Vec<OwnerReference> {
        let is_other = |owner: &&OwnerReference| !self.names_set(owner) && !self.names_pod(owner);
        let mut others: Vec<OwnerReference> = owners.iter().filter(is_other).cloned().collect();
        if self.has_other_controller(owners) {
            return others;
        }
        let (is_set_wanted, is_pod_wanted) = self.wanted();
        others.extend(dependents::reference_to(self.set).filter(|_| is_set_wanted));
        others.extend(dependents::reference_to(self.pod).filter(|_| is_pod_wanted));
        others
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn set(when_deleted: &str, when_scaled: &str) -> StatefulSet {
        serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "n", "uid": "set"},
            "spec": {
                "replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": {},
                "persistentVolumeClaimRetentionPolicy": {"whenDeleted": when_deleted, "whenScaled": when_scaled},
                "volumeClaimTemplates": [{"metadata": {"name": "data", "labels": {"x": "y"}}}],
            },
        }))
        .unwrap()
    }

    fn pod(ordinal: i64) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": format!("web-{ordinal}"), "uid": "pod"}})).unwrap()
    }

    fn owner(kind: &str, name: &str, uid: &str, is_controller: bool) -> Value {
        let version = if kind == "Pod" { "v1" } else { "apps/v1" };
        json!({"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": is_controller})
    }

    fn claim(owners: &[Value]) -> Arc<PersistentVolumeClaim> {
        Arc::new(
            serde_json::from_value(json!({"metadata": {"name": "data-web-0", "ownerReferences": owners}})).unwrap(),
        )
    }

    /// The uids of the owners that the claim gets; `None` if it is not updated.
    fn wanted(set: &StatefulSet, pod: &Pod, owners: &[Value]) -> Option<Vec<String>> {
        let found = claim(owners);
        let find = |_: &str| Some(Arc::clone(&found));
        let work = ClaimChanges::default().and_owners(set, pod, &find);
        assert_eq!(work.update.is_empty(), are_owned_as_wanted(set, pod, &find));
        let owners = work.update.into_iter().next()?.metadata.owner_references.unwrap();
        Some(owners.into_iter().map(|owner| owner.uid).collect())
    }

    #[test]
    fn a_claim_is_owned_as_the_policy_says() {
        let (of_set, of_pod) = (owner("StatefulSet", "web", "set", true), owner("Pod", "web-0", "pod", true));
        let (kept, scaled_away) = (pod(0), pod(1));
        let of_scaled = owner("Pod", "web-1", "pod", true);
        let some = |uids: &[&str]| Some(uids.iter().map(|uid| (*uid).to_owned()).collect::<Vec<_>>());
        let retain = set("Retain", "Retain");
        assert_eq!(wanted(&retain, &kept, &[]), None);
        assert_eq!(wanted(&retain, &kept, &[of_set.clone(), of_pod]), some(&[]));
        let with_set = set("Delete", "Retain");
        assert_eq!(wanted(&with_set, &kept, &[]), some(&["set"]));
        assert_eq!(wanted(&with_set, &kept, std::slice::from_ref(&of_set)), None);
        assert_eq!(wanted(&with_set, &scaled_away, &[of_set.clone(), of_scaled.clone()]), some(&["set"]));
        let when_scaled = set("Retain", "Delete");
        assert_eq!(wanted(&when_scaled, &kept, &[]), None);
        assert_eq!(wanted(&when_scaled, &scaled_away, &[]), some(&["pod"]));
        let both = set("Delete", "Delete");
        assert_eq!(wanted(&both, &kept, &[]), some(&["set"]));
        assert_eq!(wanted(&both, &scaled_away, &[of_set]), some(&["pod"]));
        assert_eq!(wanted(&both, &scaled_away, &[of_scaled]), None);
    }

    #[test]
    fn a_claim_of_others_is_left_alone() {
        let with_set = set("Delete", "Delete");
        let other = owner("Backup", "nightly", "other", true);
        assert_eq!(wanted(&with_set, &pod(0), std::slice::from_ref(&other)), None);
        let ours = owner("StatefulSet", "web", "set", true);
        assert_eq!(wanted(&with_set, &pod(0), &[other, ours]), Some(vec!["other".to_owned()]));
        assert_eq!(wanted(&with_set, &pod(0), &[owner("StatefulSet", "web", "earlier", true)]), None);
        let not_controlling = owner("StatefulSet", "web", "set", false);
        assert_eq!(wanted(&with_set, &pod(0), &[not_controlling]), Some(vec!["set".to_owned()]));
    }

    #[test]
    fn a_pod_waits_for_the_end_of_an_earlier_ones_claim() {
        let found = claim(&[owner("Pod", "web-0", "earlier", true)]);
        let find = |_: &str| Some(Arc::clone(&found));
        assert!(is_stale(&set("Retain", "Delete"), &pod(0), &find));
        assert!(!is_stale(&set("Delete", "Retain"), &pod(0), &find));
    }

    #[test]
    fn a_missing_claim_is_made_of_its_template() {
        let work = ClaimChanges::missing(&set("Retain", "Retain"), &pod(0), &|_| None);
        let made = serde_json::to_value(&work.create[0]).unwrap();
        assert_eq!(made["metadata"], json!({"name": "data-web-0", "namespace": "n", "labels": {"a": "b", "x": "y"}}));
        assert_eq!(sets_of("my-data-web-0").collect::<Vec<_>>(), ["data-web", "web"]);
        assert_eq!(sets_of("data").count(), 0);
    }
}
