//! The additional checks of the restricted level.

use crate::write::admission::plugins::pods::pod_security::Finding;
use crate::write::admission::plugins::pods::pod_security::baseline::{found, is_seccomp_allowed};
use crate::write::admission::plugins::pods::pod_security::pod_or_template::{
    PodOrTemplate, containers_text, name, plural, quoted, security,
};
use std::collections::BTreeSet;
use steersman_machinery::Value;

/// The allowed types of volumes, which only use the cluster's own objects.
const VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];
/// The forbidden types of volumes.
const OTHER_VOLUMES: [&str; 21] = [
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "glusterfs",
    "hostPath",
    "iscsi",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];

pub(super) fn privilege_escalation(subject: &PodOrTemplate<'_>) -> Option<Finding> {
    let containers = subject
        .containers_that(|container| security(container, &["allowPrivilegeEscalation"]) != Some(&Value::Bool(false)));
    found(&containers, "allowPrivilegeEscalation != false", |text| {
        format!("{text} must set securityContext.allowPrivilegeEscalation=false")
    })
}

pub(super) fn capabilities(subject: &PodOrTemplate<'_>) -> Option<Finding> {
    let list = |container: &Value, field: &str| -> Vec<String> {
        let all = security(container, &["capabilities", field]).and_then(Value::as_array).into_iter().flatten();
        all.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let keeping = subject.containers_that(|container| !list(container, "drop").iter().any(|one| one == "ALL"));
    let mut added = BTreeSet::new();
    let adding = subject.containers_that(|container| {
        let all = list(container, "add");
        let bad: Vec<String> = all.into_iter().filter(|one| one != "NET_BIND_SERVICE").collect();
        added.extend(bad.iter().cloned());
        !bad.is_empty()
    });
    let added: Vec<String> = added.into_iter().collect();
    let keeping = (!keeping.is_empty())
        .then(|| format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", containers_text(&keeping)));
    let adding = (!adding.is_empty()).then(|| {
        let containers = containers_text(&adding);
        format!("{containers} must not include {} in securityContext.capabilities.add", quoted(&added))
    });
    let details: Vec<String> = keeping.into_iter().chain(adding).collect();
    let finding = || Finding { reason: "unrestricted capabilities".to_owned(), detail: details.join("; ") };
    (!details.is_empty()).then(finding)
}

pub(super) fn volumes(subject: &PodOrTemplate<'_>) -> Option<Finding> {
    let has = |volume: &Value, kind: &str| volume.get(kind).is_some_and(|source| !source.is_null());
    let (mut bad, mut kinds) = (Vec::new(), BTreeSet::new());
    for volume in subject.volumes().filter(|volume| !VOLUMES.iter().any(|kind| has(volume, kind))) {
        bad.push(name(volume));
        kinds.insert(*OTHER_VOLUMES.iter().find(|kind| has(volume, kind)).unwrap_or(&"unknown"));
    }
    if bad.is_empty() {
        return None;
    }
    let kinds: Vec<&str> = kinds.into_iter().collect();
    let (what, uses) = (plural("volume", bad.len()), if bad.len() == 1 { "uses" } else { "use" });
    let types = plural("restricted volume type", kinds.len());
    let detail = format!("{what} {} {uses} {types} {}", quoted(&bad), quoted(&kinds));
    Some(Finding { reason: "restricted volume types".to_owned(), detail })
}

pub(super) fn non_root(subject: &PodOrTemplate<'_>) -> Option<Finding> {
    let said = |of: &Value| security(of, &["runAsNonRoot"]).and_then(Value::as_bool);
    let by_pod = said(subject.spec);
    let reason = || "runAsNonRoot != true".to_owned();
    if let Some(setters) = subject.setters(|of| said(of) == Some(false)) {
        let detail = format!("{setters} must not set securityContext.runAsNonRoot=false");
        return Some(Finding { reason: reason(), detail });
    }
    let silent = subject.containers_that(|container| said(container).is_none() && by_pod != Some(true));
    found(&silent, &reason(), |text| format!("pod or {text} must set securityContext.runAsNonRoot=true"))
}

pub(super) fn user(subject: &PodOrTemplate<'_>) -> Option<Finding> {
    let is_root = |of: &Value| security(of, &["runAsUser"]).and_then(Value::as_i64) == Some(0);
    let setters = subject.setters(is_root)?;
    Some(Finding { reason: "runAsUser=0".to_owned(), detail: format!("{setters} must not set runAsUser=0") })
}

pub(super) fn seccomp(subject: &PodOrTemplate<'_>) -> Option<Finding> {
    if let Some(finding) = crate::write::admission::plugins::pods::pod_security::baseline::seccomp(subject) {
        return Some(finding);
    }
    let kind = |of: &Value| security(of, &["seccompProfile", "type"]).and_then(Value::as_str).map(str::to_owned);
    let is_set_by_pod = kind(subject.spec).is_some_and(|kind| is_seccomp_allowed(&kind));
    let silent = subject.containers_that(|container| kind(container).is_none() && !is_set_by_pod);
    found(&silent, "seccompProfile", |text| {
        format!("pod or {text} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"")
    })
}
