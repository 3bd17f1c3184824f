//! Revisions, and the annotations of ReplicaSets about them.
//!
//! Follows upstream's `pkg/controller/deployment/util`.

use crate::loops::workloads::deployment::bounds;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use kube::core::Resource;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;

pub(crate) const REVISION: &str = "deployment.kubernetes.io/revision";
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
pub(crate) const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
pub(crate) const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
pub(crate) const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The label that distinguishes the Pods of a Deployment's ReplicaSets.
pub(crate) const TEMPLATE_HASH: &str = "pod-template-hash";

/// The longest annotation with earlier revisions.
const HISTORY_BYTES_MAX: usize = 2_000;

/// Annotations that are not copied between a Deployment and its ReplicaSets.
const OWN: [&str; 6] = [LAST_APPLIED, REVISION, HISTORY, DESIRED_REPLICAS, MAX_REPLICAS, ROLLBACK_TO];

pub(crate) fn annotation<'a>(object: &'a impl Resource, name: &str) -> Option<&'a str> {
    object.meta().annotations.as_ref().and_then(|all| all.get(name)).map(String::as_str)
}

/// The revision of an object, 0 if it has none. `None` if it is not a number.
pub(crate) fn of(object: &impl Resource) -> Option<i64> {
    annotation(object, REVISION).map_or(Some(0), |text| text.parse().ok())
}

/// The highest revision.
pub(crate) fn highest<'a>(sets: impl IntoIterator<Item = &'a ReplicaSet>) -> i64 {
    sets.into_iter().filter_map(of).fold(0, i64::max)
}

/// The revision before the highest one; 0 if there is none.
pub(crate) fn last<'a>(sets: impl IntoIterator<Item = &'a ReplicaSet>) -> i64 {
    let (mut highest, mut second) = (0, 0);
    for revision in sets.into_iter().filter_map(of) {
        if revision >= highest {
            (highest, second) = (revision, highest);
        } else if revision > second {
            second = revision;
        }
    }
    second
}

/// A nonnegative number from an annotation.
pub(crate) fn number_in(set: &ReplicaSet, name: &str) -> Option<i32> {
    annotation(set, name)?.parse().ok().filter(|&number| number >= 0)
}

/// Gives the newest template's ReplicaSet the annotations of its Deployment, and a revision of at least `revision`.
/// Returns whether anything changed.
pub(crate) fn annotate_newest(deployment: &Deployment, set: &mut ReplicaSet, revision: i64) -> bool {
    let annotations = set.metadata.annotations.get_or_insert_default();
    let mut is_changed = false;
    for (name, value) in deployment.metadata.annotations.iter().flatten() {
        if !OWN.contains(&&**name) && annotations.get(name) != Some(value) {
            annotations.insert(name.clone(), value.clone());
            is_changed = true;
        }
    }
    let known = annotations.get(REVISION).cloned();
    let number = match known.as_deref() {
        None | Some("") => 0,
        Some(text) => match text.parse::<i64>() {
            Ok(number) => number,
            // Somebody wrote another value: it is left alone, as by upstream.
            Err(_) => return false,
        },
    };
    if revision <= number {
        return is_changed;
    }
    annotations.insert(REVISION.to_owned(), revision.to_string());
    if let Some(known) = known {
        remember(annotations, &known);
    }
    true
}

/// Adds a former revision of a ReplicaSet to its history. The oldest are dropped when the history is too long.
fn remember(annotations: &mut BTreeMap<String, String>, revision: &str) {
    let history = annotations.get(HISTORY).map(String::as_str).unwrap_or_default();
    let mut revisions: Vec<&str> = history.split(',').collect();
    if revisions[0].is_empty() {
        annotations.insert(HISTORY.to_owned(), revision.to_owned());
        return;
    }
    let mut n_bytes = history.len() + revision.len() + 1;
    let mut start = 0;
    while n_bytes > HISTORY_BYTES_MAX && start < revisions.len() {
        n_bytes = n_bytes.saturating_sub(revisions[start].len() + 1);
        start += 1;
    }
    if n_bytes <= HISTORY_BYTES_MAX {
        revisions.drain(..start);
        revisions.push(revision);
        let history = revisions.join(",");
        annotations.insert(HISTORY.to_owned(), history);
    }
}

/// Annotates a ReplicaSet with the desired and the greatest allowed number of replicas. Returns whether anything
/// changed.
pub(crate) fn annotate_size(deployment: &Deployment, set: &mut ReplicaSet) -> bool {
    let annotations = set.metadata.annotations.get_or_insert_default();
    let mut is_changed = false;
    for (name, number) in
        [(DESIRED_REPLICAS, bounds::wanted(deployment)), (MAX_REPLICAS, bounds::max_total(deployment))]
    {
        let number = number.to_string();
        if annotations.get(name) != Some(&number) {
            annotations.insert(name.to_owned(), number);
            is_changed = true;
        }
    }
    is_changed
}

/// The revision to roll back to, as requested by clients of old versions; 0 stands for the previous one.
pub(crate) fn rollback_to(deployment: &Deployment) -> Option<i64> {
    annotation(deployment, ROLLBACK_TO)?.parse().ok()
}

/// Gives a Deployment the template of one of its ReplicaSets, and the annotations from that time.
pub(crate) fn take_back(deployment: &mut Deployment, set: &ReplicaSet) {
    let mut template = set.spec.template.clone().unwrap_or_default();
    if let Some(labels) = template.metadata.as_mut().and_then(|metadata| metadata.labels.as_mut()) {
        labels.remove(TEMPLATE_HASH);
    }
    deployment.spec.template = template;
    let annotations = deployment.metadata.annotations.get_or_insert_default();
    annotations.retain(|name, _| OWN.contains(&&**name));
    for (name, value) in set.metadata.annotations.iter().flatten() {
        if !OWN.contains(&&**name) {
            annotations.insert(name.clone(), value.clone());
        }
    }
}

/// Whether two templates are equal, apart from the hash label, and with empty and absent lists as equals.
pub(crate) fn is_same_template(a: &PodTemplateSpec, b: &PodTemplateSpec) -> bool {
    let (a, b) = (without_hash(a), without_hash(b));
    if *a == *b {
        return true;
    }
    if !is_alike(&a, &b) {
        return false;
    }
    let pruned = |template: &PodTemplateSpec| {
        serde_json::to_value(template).ok().map(|mut value| {
            prune(&mut value);
            value
        })
    };
    pruned(&a) == pruned(&b)
}

fn without_hash(template: &PodTemplateSpec) -> Cow<'_, PodTemplateSpec> {
    let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
    if labels.is_none_or(|labels| !labels.contains_key(TEMPLATE_HASH)) {
        return Cow::Borrowed(template);
    }
    let mut template = template.clone();
    if let Some(labels) = template.metadata.as_mut().and_then(|metadata| metadata.labels.as_mut()) {
        labels.remove(TEMPLATE_HASH);
    }
    Cow::Owned(template)
}

/// Whether two templates may be equal: the usual differences between revisions are compared first.
fn is_alike(a: &PodTemplateSpec, b: &PodTemplateSpec) -> bool {
    let images = |template: &PodTemplateSpec| -> Vec<Option<String>> {
        let containers = template.spec.iter().flat_map(|spec| &spec.containers);
        containers.map(|container| container.image.clone()).collect()
    };
    images(a) == images(b)
}

/// Removes values that are equal to absence: empty lists, and empty maps of strings.
fn prune(value: &mut Value) {
    const MAPS: [&str; 7] = ["annotations", "labels", "limits", "matchLabels", "nodeSelector", "overhead", "requests"];
    match value {
        Value::Array(items) => items.iter_mut().for_each(prune),
        Value::Object(fields) => {
            fields.values_mut().for_each(prune);
            fields.retain(|name, value| match value {
                Value::Null => false,
                Value::Array(items) => !items.is_empty(),
                Value::Object(fields) => !fields.is_empty() || !(MAPS.contains(&&**name) || name == "metadata"),
                Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
            });
        }
        Value::Bool(_) | Value::Null | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(annotations: Value) -> ReplicaSet {
        let value = json!({"metadata": {"annotations": annotations}, "spec": {"selector": {}}});
        serde_json::from_value(value).expect("a ReplicaSet")
    }

    #[test]
    fn a_set_that_is_the_newest_again_remembers_the_revisions_it_had() {
        let value = json!({"metadata": {"annotations": {"note": "kept", LAST_APPLIED: "{}", REVISION: "1"}},
            "spec": {"selector": {}, "template": {}}});
        let deployment: Deployment = serde_json::from_value(value).expect("a Deployment");
        let mut back = set(json!({REVISION: "1"}));
        assert!(annotate_newest(&deployment, &mut back, 3));
        assert_eq!(json!(back.metadata.annotations), json!({REVISION: "3", HISTORY: "1", "note": "kept"}));
        assert!(annotate_newest(&deployment, &mut back, 5));
        assert_eq!(annotation(&back, HISTORY), Some("1,3"));
        assert!(!annotate_newest(&deployment, &mut back, 4));
        let mut long = set(json!({REVISION: "1000", HISTORY: vec!["1000"; 400].join(",")}));
        assert!(annotate_newest(&deployment, &mut long, 1001));
        assert_eq!(annotation(&long, HISTORY).map(str::len), Some(1999));
        let mut strange = set(json!({REVISION: "first"}));
        assert!(!annotate_newest(&deployment, &mut strange, 1001));
        assert_eq!(annotation(&strange, REVISION), Some("first"));
    }

    #[test]
    fn the_last_revision_is_the_second_highest() {
        let sets: Vec<ReplicaSet> = ["2", "7", "x", "5"].iter().map(|text| set(json!({REVISION: text}))).collect();
        assert_eq!((highest(&sets), last(&sets), last(&sets[..1])), (7, 5, 0));
    }

    #[test]
    fn templates_are_the_same_but_for_the_hash_and_what_is_empty() {
        let template = |value| -> PodTemplateSpec { serde_json::from_value(value).expect("a template") };
        let a = template(json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c"}]}}));
        let hashed =
            json!({"metadata": {"labels": {"app": "x", TEMPLATE_HASH: "1"}}, "spec": {"containers": [{"name": "c"}]}});
        assert!(is_same_template(&a, &template(hashed)));
        let padded = json!({"metadata": {"labels": {"app": "x"}, "annotations": {}},
            "spec": {"containers": [{"name": "c", "env": []}], "nodeSelector": {}}});
        assert!(is_same_template(&a, &template(padded)));
        let other =
            json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        assert!(!is_same_template(&a, &template(other)));
        let volumes = json!({"metadata": {"labels": {"app": "x"}},
            "spec": {"containers": [{"name": "c", "securityContext": {}}]}});
        assert!(!is_same_template(&a, &template(volumes)));
    }
}
