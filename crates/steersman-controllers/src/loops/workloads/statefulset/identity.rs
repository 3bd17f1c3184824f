//! The identity of a StatefulSet's Pod: its ordinal, its name, its labels and its volumes.
//!
//! Follows the first half of upstream's `stateful_set_utils.go`.

use crate::loops::workloads::history;
use crate::loops::workloads::statefulset::claims;
use crate::shared::pods::control;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume};

const INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";
const NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";

/// The name of the set in the name of a Pod or claim, and its ordinal, which is `None` if it is too large.
pub(crate) fn parse(name: &str) -> Option<(&str, Option<i64>)> {
    let (parent, digits) = name.rsplit_once('-')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| (parent, digits.parse::<i32>().ok().map(i64::from)))
}

pub(crate) fn name(set: &StatefulSet) -> &str {
    set.metadata.name.as_deref().unwrap_or_default()
}

/// Whether the name of a Pod is one of this set's.
pub(crate) fn is_member(set: &StatefulSet, pod: &Pod) -> bool {
    parse(pod.metadata.name.as_deref().unwrap_or_default()).is_some_and(|(parent, _)| parent == name(set))
}

pub(crate) fn ordinal(pod: &Pod) -> Option<i64> {
    parse(pod.metadata.name.as_deref()?)?.1
}

/// The ordinal of the first Pod.
pub(crate) fn start(set: &StatefulSet) -> i64 {
    set.spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or(0).into()
}

/// The desired number of Pods.
pub(crate) fn replicas(set: &StatefulSet) -> i64 {
    i64::from(set.spec.replicas.unwrap_or(1)).max(0)
}

/// The index of a Pod among the desired ones, from 0 on; `None` if it is not one of them.
pub(crate) fn index(set: &StatefulSet, pod: &Pod) -> Option<i64> {
    ordinal(pod).map(|ordinal| ordinal - start(set)).filter(|index| (0..replicas(set)).contains(index))
}

pub(crate) fn pod_name(set: &StatefulSet, ordinal: i64) -> String {
    format!("{}-{ordinal}", name(set))
}

/// The Pod for an ordinal, from a current or former template of the set.
pub(crate) fn new_pod(set: &StatefulSet, template: &PodTemplateSpec, revision: &str, ordinal: i64) -> Pod {
    let mut pod = control::from_template(set, template);
    pod.metadata.name = Some(pod_name(set, ordinal));
    set_identity(set, &mut pod);
    let spec = pod.spec.get_or_insert_default();
    spec.hostname.clone_from(&pod.metadata.name);
    spec.subdomain = set.spec.service_name.clone().filter(|name| !name.is_empty());
    set_storage(set, &mut pod);
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(history::POD_LABEL.to_owned(), revision.to_owned());
    pod
}

/// Whether the name and the labels of a Pod are those of its ordinal.
pub(crate) fn has_identity(set: &StatefulSet, pod: &Pod) -> bool {
    let (Some(name), Some(ordinal)) = (&pod.metadata.name, ordinal(pod)) else { return false };
    let label = pod.metadata.labels.as_ref().and_then(|labels| labels.get(NAME_LABEL));
    *name == pod_name(set, ordinal) && pod.metadata.namespace == set.metadata.namespace && label == Some(name)
}

pub(crate) fn set_identity(set: &StatefulSet, pod: &mut Pod) {
    let Some(ordinal) = ordinal(pod) else { return };
    let name = pod_name(set, ordinal);
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(NAME_LABEL.to_owned(), name.clone());
    labels.insert(INDEX_LABEL.to_owned(), ordinal.to_string());
    pod.metadata.name = Some(name);
    pod.metadata.namespace.clone_from(&set.metadata.namespace);
}

/// Whether the volumes of a Pod are the claims of its ordinal.
pub(crate) fn has_storage(set: &StatefulSet, pod: &Pod) -> bool {
    let Some(ordinal) = ordinal(pod) else { return false };
    let volumes = || pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    claims::templates(set).iter().all(|template| {
        let template = claims::template_name(template);
        let volume = volumes().rfind(|volume| volume.name == template);
        let claim = volume.and_then(|volume| volume.persistent_volume_claim.as_ref());
        claim.is_some_and(|claim| claim.claim_name == claims::name(set, template, ordinal))
    })
}

/// Sets the claims of the Pod's ordinal as volumes, in place of volumes with the same names.
pub(crate) fn set_storage(set: &StatefulSet, pod: &mut Pod) {
    let Some(ordinal) = ordinal(pod) else { return };
    let templates = claims::templates(set);
    if templates.is_empty() {
        return;
    }
    let mut volumes: Vec<Volume> = Vec::new();
    for template in templates {
        let template = claims::template_name(template);
        let claim_name = claims::name(set, template, ordinal);
        volumes.push(Volume {
            name: template.to_owned(),
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource { claim_name, read_only: None }),
            ..Volume::default()
        });
    }
    let spec = pod.spec.get_or_insert_default();
    let is_claimed = |volume: &Volume| templates.iter().any(|template| claims::template_name(template) == volume.name);
    let others = spec.volumes.take().unwrap_or_default().into_iter().filter(|volume| !is_claimed(volume));
    volumes.extend(others);
    spec.volumes = Some(volumes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_ordinal_is_the_number_at_the_end_of_the_name() {
        assert_eq!(parse("web-0"), Some(("web", Some(0))));
        assert_eq!(parse("my-web-12"), Some(("my-web", Some(12))));
        assert_eq!(parse("web-2147483647"), Some(("web", Some(2_147_483_647))));
        assert_eq!(parse("web-2147483648"), Some(("web", None)));
        for none in ["web", "web-", "web-a", "0", "web-1a"] {
            assert_eq!(parse(none), None, "{none}");
        }
    }

    #[test]
    fn a_new_pod_has_name_labels_host_and_claims() {
        let set: StatefulSet = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "n", "uid": "u"},
            "spec": {
                "serviceName": "svc", "replicas": 2, "selector": {}, "ordinals": {"start": 5},
                "template": {
                    "metadata": {"labels": {"a": "b"}},
                    "spec": {"containers": [], "volumes": [{"name": "data", "emptyDir": {}}, {"name": "x", "emptyDir": {}}]},
                },
                "volumeClaimTemplates": [{"metadata": {"name": "data"}}],
            },
        }))
        .unwrap();
        let pod = new_pod(&set, &set.spec.template, "web-abc", 6);
        assert!(has_identity(&set, &pod) && has_storage(&set, &pod) && is_member(&set, &pod));
        assert_eq!(index(&set, &pod), Some(1));
        let pod = serde_json::to_value(&pod).unwrap();
        assert_eq!(pod["metadata"]["name"], "web-6");
        assert_eq!(pod["metadata"]["generateName"], "web-");
        assert_eq!(
            pod["metadata"]["labels"],
            json!({"a": "b", "apps.kubernetes.io/pod-index": "6", "controller-revision-hash": "web-abc", "statefulset.kubernetes.io/pod-name": "web-6"})
        );
        assert_eq!((&pod["spec"]["hostname"], &pod["spec"]["subdomain"]), (&json!("web-6"), &json!("svc")));
        assert_eq!(
            pod["spec"]["volumes"],
            json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data-web-6"}}, {"name": "x", "emptyDir": {}}])
        );
        assert_eq!(index(&set, &new_pod(&set, &set.spec.template, "r", 4)), None);
        assert_eq!(index(&set, &new_pod(&set, &set.spec.template, "r", 7)), None);
    }
}
