//! The objects that a pod refers to, which its node must be able to read. Follows kubernetes' `pkg/api/v1/pod/util.go`.

use std::collections::BTreeSet;
use std::slice;
use steersman_machinery::Value;
use steersman_machinery::value::{at, str_at};

/// A kind of object that pods refer to, in the pod's namespace.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) enum Referred {
    ConfigMap,
    PersistentVolumeClaim,
    ResourceClaim,
    Secret,
    ServiceAccount,
}

/// The paths in volumes that name a secret.
const SECRETS_OF_VOLUMES: [&[&str]; 10] = [
    &["azureFile", "secretName"],
    &["cephfs", "secretRef", "name"],
    &["cinder", "secretRef", "name"],
    &["csi", "nodePublishSecretRef", "name"],
    &["flexVolume", "secretRef", "name"],
    &["iscsi", "secretRef", "name"],
    &["rbd", "secretRef", "name"],
    &["scaleIO", "secretRef", "name"],
    &["secret", "secretName"],
    &["storageos", "secretRef", "name"],
];
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
/// The annotation of a mirror pod: a node runs it from a file of its own, and created the object to make it known.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Whether a pod is a mirror pod.
pub(crate) fn is_mirror(pod: &Value) -> bool {
    at(pod, &["metadata", "annotations", MIRROR]).is_some()
}

/// The annotation of mirror pods.
pub(crate) fn mirror_annotation() -> &'static str {
    MIRROR
}

/// The objects that a pod refers to.
pub(crate) fn of(pod: &Value) -> BTreeSet<(Referred, String)> {
    let mut found = BTreeSet::new();
    let mut add = |kind: Referred, name: Option<&str>| {
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            found.insert((kind, name.to_owned()));
        }
    };
    add(Referred::ServiceAccount, str_at(pod, &["spec", "serviceAccountName"]));
    for secret in items(pod, &["spec", "imagePullSecrets"]) {
        add(Referred::Secret, str_at(secret, &["name"]));
    }
    for container in CONTAINERS.iter().flat_map(|list| items(pod, &["spec", list])) {
        for variable in items(container, &["env"]) {
            add(Referred::Secret, str_at(variable, &["valueFrom", "secretKeyRef", "name"]));
            add(Referred::ConfigMap, str_at(variable, &["valueFrom", "configMapKeyRef", "name"]));
        }
        for source in items(container, &["envFrom"]) {
            add(Referred::Secret, str_at(source, &["secretRef", "name"]));
            add(Referred::ConfigMap, str_at(source, &["configMapRef", "name"]));
        }
    }
    for volume in items(pod, &["spec", "volumes"]) {
        for path in SECRETS_OF_VOLUMES {
            add(Referred::Secret, str_at(volume, path));
        }
        add(Referred::ConfigMap, str_at(volume, &["configMap", "name"]));
        for source in items(volume, &["projected", "sources"]) {
            add(Referred::Secret, str_at(source, &["secret", "name"]));
            add(Referred::ConfigMap, str_at(source, &["configMap", "name"]));
        }
        add(Referred::PersistentVolumeClaim, claim_of(pod, volume).as_deref());
    }
    for claim in items(pod, &["spec", "resourceClaims"]) {
        add(Referred::ResourceClaim, resource_claim_of(pod, claim));
    }
    add(Referred::ResourceClaim, str_at(pod, &["status", "extendedResourceClaimStatus", "resourceClaimName"]));
    found
}

/// The name of a volume's claim, which may be one that is made for the pod.
pub(crate) fn claim_of(pod: &Value, volume: &Value) -> Option<String> {
    if let Some(name) = str_at(volume, &["persistentVolumeClaim", "claimName"]) {
        return Some(name.to_owned());
    }
    at(volume, &["ephemeral"]).filter(|ephemeral| !ephemeral.is_null())?;
    let (pod, volume) = (str_at(pod, &["metadata", "name"])?, str_at(volume, &["name"])?);
    Some(format!("{pod}-{volume}"))
}

/// The name of a device claim: given, or made from a template and then recorded in the status.
fn resource_claim_of<'a>(pod: &'a Value, claim: &'a Value) -> Option<&'a str> {
    if let Some(name) = str_at(claim, &["resourceClaimName"]) {
        return Some(name);
    }
    str_at(claim, &["resourceClaimTemplateName"])?;
    let name = str_at(claim, &["name"])?;
    let made = items(pod, &["status", "resourceClaimStatuses"]).find(|status| str_at(status, &["name"]) == Some(name));
    made.and_then(|status| str_at(status, &["resourceClaimName"]))
}

/// The first kind of API object that a pod refers to, in upstream's words; `None` if it can run without the API.
pub(crate) fn first_kind(pod: &Value) -> Option<&'static str> {
    let references = of(pod);
    let has = |kind: Referred| references.iter().any(|(found, _)| *found == kind);
    if has(Referred::ServiceAccount) {
        return Some("serviceaccounts");
    }
    if has(Referred::Secret) {
        return Some("secrets");
    }
    if has(Referred::ConfigMap) {
        return Some("configmaps");
    }
    if items(pod, &["spec", "resourceClaims"]).next().is_some() {
        return Some("resourceclaims");
    }
    items(pod, &["spec", "volumes"]).find_map(|volume| {
        const SOURCES: [(&str, &str); 7] = [
            ("configMap", "configmaps (via configmap volumes)"),
            ("secret", "secrets (via secret volumes)"),
            ("csi", "csidrivers (via CSI volumes)"),
            ("glusterfs", "endpoints (via glusterFS volumes)"),
            ("persistentVolumeClaim", "persistentvolumeclaims"),
            ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
            ("azureFile", "secrets (via azureFile volumes)"),
        ];
        const PROJECTED: [(&str, &str); 5] = [
            ("configMap", "configmaps (via projected volumes)"),
            ("secret", "secrets (via projected volumes)"),
            ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
            ("clusterTrustBundle", "clustertrustbundles"),
            ("podCertificate", "podcertificates"),
        ];
        let first = |source: &Value, table: &[(&str, &'static str)]| {
            let found = table.iter().find(|(field, _)| at(source, &[field]).is_some_and(|value| !value.is_null()));
            found.map(|(_, what)| *what)
        };
        let mut projected = items(volume, &["projected", "sources"]);
        first(volume, &SOURCES).or_else(|| projected.find_map(|source| first(source, &PROJECTED)))
    })
}

/// The items of a list in an object; empty if it is absent.
pub(crate) fn items<'a>(object: &'a Value, path: &[&str]) -> slice::Iter<'a, Value> {
    at(object, path).and_then(Value::as_array).map_or(&[][..], Vec::as_slice).iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn everything_that_a_pod_names_is_found() {
        let pod = json!({
            "metadata": {"name": "p"},
            "spec": {
                "serviceAccountName": "account",
                "imagePullSecrets": [{"name": "pull"}, {"name": ""}],
                "initContainers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "variable"}}}]}],
                "ephemeralContainers": [{"envFrom": [{"configMapRef": {"name": "later"}}]}],
                "volumes": [
                    {"name": "a", "secret": {"secretName": "mounted"}},
                    {"name": "b", "csi": {"nodePublishSecretRef": {"name": "published"}}},
                    {"name": "c", "projected": {"sources": [{"configMap": {"name": "projected"}}]}},
                    {"name": "d", "persistentVolumeClaim": {"claimName": "claim"}},
                    {"name": "e", "ephemeral": {"volumeClaimTemplate": {}}},
                ],
                "resourceClaims": [
                    {"name": "given", "resourceClaimName": "device"},
                    {"name": "made", "resourceClaimTemplateName": "t"},
                    {"name": "unmade", "resourceClaimTemplateName": "t"},
                ],
            },
            "status": {"resourceClaimStatuses": [{"name": "made", "resourceClaimName": "p-made-x"}]},
        });
        let found: Vec<String> = of(&pod).into_iter().map(|(kind, name)| format!("{kind:?} {name}")).collect();
        let want = [
            "ConfigMap later",
            "ConfigMap projected",
            "PersistentVolumeClaim claim",
            "PersistentVolumeClaim p-e",
            "ResourceClaim device",
            "ResourceClaim p-made-x",
            "Secret mounted",
            "Secret published",
            "Secret pull",
            "Secret variable",
            "ServiceAccount account",
        ];
        assert_eq!(found, want);
    }

    #[track_caller]
    fn check_first(spec: Value, want: Option<&str>) {
        assert_eq!(first_kind(&json!({"metadata": {"name": "p"}, "spec": spec})), want);
    }

    #[test]
    fn a_pod_that_runs_without_the_api_refers_to_nothing() {
        check_first(
            json!({"volumes": [{"name": "a", "hostPath": {"path": "/"}}, {"name": "b", "emptyDir": {}}]}),
            None,
        );
        check_first(json!({"serviceAccountName": "a"}), Some("serviceaccounts"));
        let token = json!([{"serviceAccountToken": {"path": "token"}}]);
        let projected = json!({"volumes": [{"name": "a", "projected": {"sources": token}}]});
        check_first(projected, Some("serviceaccounts (via projected volumes)"));
        check_first(
            json!({"volumes": [{"name": "a", "ephemeral": {}}]}),
            Some("persistentvolumeclaims (via ephemeral volumes)"),
        );
    }
}
