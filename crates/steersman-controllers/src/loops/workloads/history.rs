//! ControllerRevisions: the former templates of a DaemonSet or a StatefulSet, each under a name that ends in a hash of
//! the template.
//!
//! Follows upstream's `pkg/controller/history`. This module has what both loops need: the data of a revision, names,
//! hashes, equality, order and surplus revisions. The loops decide when to create a revision, and what follows from it.

use crate::shared::refusal::{self, Refused};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::api::{DeleteParams, Preconditions};
use kube::core::Resource;
use kube::{Api, Client};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The label of Pods, and of a DaemonSet's revisions, with the hash or name of their revision.
pub(crate) const POD_LABEL: &str = "controller-revision-hash";
/// The label of a StatefulSet's revisions with their hash.
pub(crate) const HASH_LABEL: &str = "controller.kubernetes.io/hash";

/// The default number of old revisions that are kept.
pub(crate) const LIMIT: i32 = 10;

/// The letters of a hash: no vowels and the like, so that no bad words come up.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// The longest prefix of a name, which has at most 253 bytes: a dash and the hash need up to 30.
const PREFIX_MAX: usize = 223;

/// The data of a revision contain no valid template.
#[derive(Debug, thiserror::Error)]
#[error("the revision {name:?} has no template that can be read")]
pub(crate) struct NoTemplate {
    name: String,
    source: serde_json::Error,
}

/// The data of a revision with this template: a patch that replaces the template.
pub(crate) fn data(template: &PodTemplateSpec) -> Value {
    // Objects from the API have string keys only, so this succeeds.
    let mut template = serde_json::to_value(template).unwrap_or_else(|_| Value::Object(Map::new()));
    template["$patch"] = json!("replace");
    json!({"spec": {"template": template}})
}

/// The template in a revision.
///
/// # Errors
/// When somebody has written other data into it.
pub(crate) fn template(revision: &ControllerRevision) -> Result<PodTemplateSpec, NoTemplate> {
    let mut template = revision.data.0["spec"]["template"].clone();
    if let Some(members) = template.as_object_mut() {
        members.remove("$patch");
    }
    serde_json::from_value(template).map_err(|source| NoTemplate { name: name(revision).to_owned(), source })
}

/// Whether a revision has these data.
pub(crate) fn is_equal(revision: &ControllerRevision, data: &Value) -> bool {
    revision.data.0 == *data
}

/// Whether a revision is equivalent to these data, even if an older version of a controller has encoded it differently.
pub(crate) fn means(revision: &ControllerRevision, wanted: &Value) -> bool {
    is_equal(revision, wanted) || template(revision).is_ok_and(|template| data(&template) == *wanted)
}

/// The number by which revisions are ordered; the newest has the highest.
pub(crate) fn number(revision: &ControllerRevision) -> i64 {
    revision.revision.unwrap_or(0)
}

pub(crate) fn name(revision: &ControllerRevision) -> &str {
    revision.metadata.name.as_deref().unwrap_or_default()
}

/// The hash of a revision's data and of the number of earlier collisions of its name.
pub(crate) fn hash(data: &Value, n_collisions: Option<i32>) -> String {
    let mut bytes = go_json(data);
    if let Some(n_collisions) = n_collisions {
        bytes.push_str(&n_collisions.to_string());
    }
    // 32-bit FNV-1.
    let sum = bytes.bytes().fold(0x811c_9dc5_u32, |sum, byte| sum.wrapping_mul(0x0100_0193) ^ u32::from(byte));
    encoded(&sum.to_string())
}

/// A text encoded in safe letters, as by upstream's `rand.SafeEncodeString`.
pub(crate) fn encoded(text: &str) -> String {
    text.bytes().map(|byte| char::from(LETTERS[usize::from(byte) % LETTERS.len()])).collect()
}

/// JSON as Go writes it: with sorted keys, and with escapes for some characters that matter in HTML and JavaScript and
/// can occur in strings only.
fn go_json(value: &Value) -> String {
    let mut text = String::new();
    for character in sorted(value).to_string().chars() {
        match character {
            '<' => text.push_str("\\u003c"),
            '>' => text.push_str("\\u003e"),
            '&' => text.push_str("\\u0026"),
            '\u{2028}' => text.push_str("\\u2028"),
            '\u{2029}' => text.push_str("\\u2029"),
            other => text.push(other),
        }
    }
    text
}

/// The same value with the members of all objects sorted, whichever order `serde_json` is configured to keep.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(sorted).collect(),
        Value::Object(members) => {
            let members: BTreeMap<&String, &Value> = members.iter().collect();
            Value::Object(members.into_iter().map(|(key, value)| (key.clone(), sorted(value))).collect())
        }
        other => other.clone(),
    }
}

/// The name of an owner's revision with this hash.
pub(crate) fn name_of(owner: &str, hash: &str) -> String {
    let prefix = &owner[..owner.floor_char_boundary(PREFIX_MAX)];
    format!("{prefix}-{hash}")
}

/// Sorts older revisions before newer ones.
pub(crate) fn sort(revisions: &mut [Arc<ControllerRevision>]) {
    revisions.sort_by(|a, b| {
        let key = |one: &ControllerRevision| {
            let created = one.metadata.creation_timestamp.as_ref().map(|time| time.0);
            (number(one), created, one.metadata.name.clone())
        };
        key(a).cmp(&key(b))
    });
}

/// The number of the revision after these, which are sorted.
pub(crate) fn next(revisions: &[Arc<ControllerRevision>]) -> i64 {
    revisions.last().map_or(0, |newest| number(newest)).saturating_add(1)
}

/// The revisions of `old`, which are sorted, to delete so that `limit` remain. Revisions in use stay, although they
/// count.
pub(crate) fn surplus(
    old: &[Arc<ControllerRevision>],
    limit: Option<i32>,
    is_in_use: impl Fn(&ControllerRevision) -> bool,
) -> Vec<Arc<ControllerRevision>> {
    let Ok(limit) = usize::try_from(limit.unwrap_or(LIMIT)) else { return Vec::new() };
    let n = old.len().saturating_sub(limit);
    old.iter().filter(|revision| !is_in_use(revision)).take(n).cloned().collect()
}

/// A revision of `owner` to create.
pub(crate) fn new<O: Resource<DynamicType = ()>>(
    owner: &O,
    hash: &str,
    labels: BTreeMap<String, String>,
    data: Value,
    revision: i64,
) -> ControllerRevision {
    let meta = owner.meta();
    ControllerRevision {
        data: RawExtension(data),
        metadata: ObjectMeta {
            annotations: meta.annotations.clone(),
            labels: Some(labels),
            name: Some(name_of(meta.name.as_deref().unwrap_or_default(), hash)),
            namespace: meta.namespace.clone(),
            owner_references: crate::shared::dependents::reference_to(owner).map(|reference| vec![reference]),
            ..ObjectMeta::default()
        },
        revision: Some(revision),
    }
}

/// Deletes exactly this revision. After this it is gone or being deleted, which the caches will show.
///
/// # Errors
/// When the server refuses, also with a conflict.
pub(crate) async fn delete(client: &Client, revision: &ControllerRevision) -> Result<(), Refused> {
    let namespace = revision.metadata.namespace.as_deref().unwrap_or_default();
    let preconditions = Preconditions { uid: revision.metadata.uid.clone(), resource_version: None };
    let params = DeleteParams::default().preconditions(preconditions);
    let revisions = Api::<ControllerRevision>::namespaced(client.clone(), namespace);
    match revisions.delete(name(revision), &params).await {
        Ok(_) => Ok(()),
        Err(error) if refusal::is_gone(&error) => Ok(()),
        Err(error) => Err(Refused::to(format!("delete the revision {:?}", name(revision)))(error)),
    }
}

/// The revision labels of Pods.
pub(crate) fn labels_of<'a>(
    pods: impl IntoIterator<Item = &'a Arc<k8s_openapi::api::core::v1::Pod>>,
) -> BTreeSet<&'a str> {
    pods.into_iter().filter_map(|pod| pod_revision(pod)).collect()
}

/// The revision that the label of a Pod names.
pub(crate) fn pod_revision(pod: &k8s_openapi::api::core::v1::Pod) -> Option<&str> {
    pod.metadata.labels.as_ref()?.get(POD_LABEL).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revision(name: &str, number: i64) -> Arc<ControllerRevision> {
        Arc::new(ControllerRevision {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            revision: Some(number),
            data: RawExtension(Value::Null),
        })
    }

    #[test]
    fn the_hash_is_upstreams() {
        // Computed with upstream's code from the same StatefulSet.
        let template = json!({
            "metadata": {"labels": {"app": "small"}},
            "spec": {
                "containers": [{
                    "image": "i:1", "imagePullPolicy": "IfNotPresent", "name": "c", "resources": {},
                    "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                }],
                "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
                "securityContext": {}, "terminationGracePeriodSeconds": 30,
            },
        });
        let template: PodTemplateSpec = serde_json::from_value(template).unwrap();
        assert_eq!(hash(&data(&template), Some(0)), "849c44b847");
        assert_eq!(hash(&json!({}), Some(0)), "cccc864bc");
        assert_eq!(
            go_json(&json!({"b": "<&>", "a": [1, true, null]})),
            r#"{"a":[1,true,null],"b":"\u003c\u0026\u003e"}"#
        );
    }

    #[test]
    fn the_data_give_the_template_back() {
        let described: PodTemplateSpec = serde_json::from_value(
            json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}}),
        )
        .unwrap();
        let one = ControllerRevision { data: RawExtension(data(&described)), ..ControllerRevision::default() };
        assert_eq!(template(&one).unwrap(), described);
        assert!(template(&ControllerRevision::default()).is_err());
        let mut older = data(&described);
        older["spec"]["template"]["metadata"]["creationTimestamp"] = Value::Null;
        let older = ControllerRevision { data: RawExtension(older), ..ControllerRevision::default() };
        assert!(means(&older, &data(&described)) && !is_equal(&older, &data(&described)));
    }

    #[test]
    fn the_oldest_that_are_not_in_use_go_beyond_the_limit() {
        let mut all = [revision("c", 3), revision("b", 2), revision("a", 2), revision("d", 1)];
        sort(&mut all);
        let names = |all: &[Arc<ControllerRevision>]| all.iter().map(|one| name(one).to_owned()).collect::<Vec<_>>();
        assert_eq!(names(&all), ["d", "a", "b", "c"]);
        assert_eq!(names(&surplus(&all, Some(2), |one| name(one) == "a")), ["d", "b"]);
        assert_eq!(names(&surplus(&all, Some(4), |_| false)), Vec::<String>::new());
        assert_eq!(next(&all), 4);
        assert_eq!(next(&[revision("last", i64::MAX)]), i64::MAX);
    }

    #[test]
    fn a_name_is_not_too_long() {
        let name = name_of(&"é".repeat(200), "abc");
        assert!(name.len() <= 253 && name.ends_with("-abc"), "{name}");
    }
}
