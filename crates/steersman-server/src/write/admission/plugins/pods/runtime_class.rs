//! `RuntimeClass`: sets the overhead and the placement of a pod from its RuntimeClass, and refuses contradictions.
//! Follows kubernetes' `plugin/pkg/admission/runtimeclass`.

use crate::shared::operation::ResourceAttributes;
use crate::shared::status::Failure;
use crate::write::admission::plugin::{Action, Phase, Plugin, Review, find, is_about_pod, name_of};
use futures::future::BoxFuture;
use serde_json::json;
use steersman_machinery::value::{Map, at, object_at, set_at, str_at};
use steersman_machinery::{GroupResource, ObjectKey, Value};

#[derive(Debug)]
pub(crate) struct RuntimeClass;

/// Why a pod is refused; the text follows `pods "x" is forbidden: `.
#[derive(Debug, Eq, PartialEq, thiserror::Error)]
enum Refusal {
    #[error(
        "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {of_class}; pod.spec.nodeSelector[{key}] = {of_pod}"
    )]
    NodeSelector { key: String, of_class: String, of_pod: String },
    #[error("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")]
    OtherOverhead,
    #[error("pod rejected: RuntimeClass {name:?} not found")]
    Unknown { name: String },
    #[error("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")]
    UnexpectedOverhead,
}

impl Plugin for RuntimeClass {
    fn handles(&self, _phase: Phase, action: Action, attributes: &ResourceAttributes<'_>) -> bool {
        action == Action::Create && is_about_pod(attributes)
    }

    fn mutate<'a>(
        &'a self,
        review: &'a mut Review<'_, '_>,
        new: Option<&'a mut Value>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let Some(pod) = new else { return Ok(()) };
            let class = class(review, pod).await?;
            apply(pod, class.as_ref()).map_err(|refusal| refused(review, pod, &refusal))
        })
    }

    fn validate<'a>(
        &'a self,
        review: &'a mut Review<'_, '_>,
        new: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            // Without one there is nothing to find.
            let Some(pod) = new.filter(|pod| at(pod, &["spec", "overhead"]).is_some()) else { return Ok(()) };
            let class = class(review, pod).await?;
            check(pod, class.as_ref()).map_err(|refusal| refused(review, pod, &refusal))
        })
    }
}

/// The class of a pod, if it names one.
async fn class(review: &Review<'_, '_>, pod: &Value) -> Result<Option<Value>, Failure> {
    let Some(name) = str_at(pod, &["spec", "runtimeClassName"]) else { return Ok(None) };
    let (classes, key) = (GroupResource::new("node.k8s.io", "runtimeclasses"), ObjectKey::cluster(name));
    match find(review.state, &classes, &key).await? {
        Some(class) => Ok(Some(class)),
        None => Err(refused(review, pod, &Refusal::Unknown { name: name.to_owned() })),
    }
}

fn refused(review: &Review<'_, '_>, pod: &Value, refusal: &Refusal) -> Failure {
    Failure::forbidden(&review.operation.group_resource(), name_of(pod), &refusal.to_string())
}

/// The overhead of a class.
fn overhead(class: Option<&Value>) -> Option<Value> {
    let overhead = at(class?, &["overhead"]).filter(|overhead| !overhead.is_null())?;
    Some(at(overhead, &["podFixed"]).cloned().unwrap_or_else(|| json!({})))
}

/// Checks the overhead that a pod has in the end.
fn check(pod: &Value, class: Option<&Value>) -> Result<(), Refusal> {
    let is_empty = |overhead: &Value| overhead.as_object().is_none_or(Map::is_empty);
    let given = at(pod, &["spec", "overhead"]).filter(|overhead| !is_empty(overhead));
    match (overhead(class), given) {
        (None, Some(_)) => Err(Refusal::UnexpectedOverhead),
        (Some(fixed), given) if given.is_none_or(|given| *given != fixed) && !is_empty(&fixed) => {
            Err(Refusal::OtherOverhead)
        }
        _ => Ok(()),
    }
}

/// Sets the overhead and the placement of a pod from its class.
fn apply(pod: &mut Value, class: Option<&Value>) -> Result<(), Refusal> {
    let given = at(pod, &["spec", "overhead"]).filter(|overhead| !overhead.is_null()).cloned();
    if let Some(fixed) = overhead(class) {
        let is_other = |given: &Value| given.as_object().is_some_and(|given| !given.is_empty()) && *given != fixed;
        if given.as_ref().is_some_and(is_other) {
            return Err(Refusal::OtherOverhead);
        }
        set_at(pod, &["spec", "overhead"], fixed);
    }
    match class.and_then(|class| at(class, &["scheduling"])) {
        Some(scheduling) => place(pod, scheduling),
        None => Ok(()),
    }
}

/// Adds the node selector and the tolerations of a class.
fn place(pod: &mut Value, scheduling: &Value) -> Result<(), Refusal> {
    let wanted = at(scheduling, &["nodeSelector"]).and_then(Value::as_object).filter(|wanted| !wanted.is_empty());
    if let Some(selector) = wanted.and_then(|_| object_at(pod, &["spec", "nodeSelector"])) {
        for (key, value) in wanted.into_iter().flatten() {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            if let Some(own) = selector.get(key).filter(|own| *own != value) {
                return Err(Refusal::NodeSelector { key: key.clone(), of_class: text(value), of_pod: text(own) });
            }
            selector.insert(key.clone(), value.clone());
        }
    }
    let added = at(scheduling, &["tolerations"]).and_then(Value::as_array).filter(|added| !added.is_empty());
    if let (Some(added), Some(spec)) = (added, object_at(pod, &["spec"])) {
        let own = spec.get("tolerations").and_then(Value::as_array).cloned().unwrap_or_default();
        let all: Vec<Value> = own.into_iter().chain(added.iter().cloned()).collect();
        spec.insert("tolerations".to_owned(), merged(&all).into());
    }
    Ok(())
}

/// Tolerations without those that another one covers. Of two equal ones the first is kept.
fn merged(all: &[Value]) -> Vec<Value> {
    let mut kept: Vec<Value> = Vec::new();
    for (index, toleration) in all.iter().enumerate() {
        let is_covered_before = kept.iter().any(|other| covers(other, toleration));
        let is_covered_later = all[index + 1..].iter().any(|other| other != toleration && covers(other, toleration));
        if !is_covered_before && !is_covered_later {
            kept.push(toleration.clone());
        }
    }
    kept
}

/// Whether one toleration covers everything that another tolerates.
fn covers(other: &Value, one: &Value) -> bool {
    let text = |toleration: &Value, field| str_at(toleration, &[field]).unwrap_or_default().to_owned();
    let seconds = |toleration: &Value| at(toleration, &["tolerationSeconds"]).and_then(Value::as_i64);
    let exists = text(other, "operator") == "Exists";
    let is_of_key = text(other, "key") == text(one, "key") || text(other, "key").is_empty() && exists;
    let is_of_effect = text(other, "effect") == text(one, "effect") || text(other, "effect").is_empty();
    let is_as_long = text(other, "effect") != "NoExecute"
        || seconds(other).is_none_or(|most| seconds(one).is_some_and(|seconds| seconds <= most));
    let is_of_value = exists
        || matches!(&*text(other, "operator"), "" | "Equal")
            && text(one, "operator") == "Equal"
            && text(one, "value") == text(other, "value");
    other == one || is_of_key && is_of_effect && is_as_long && is_of_value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class() -> Value {
        json!({
            "overhead": {"podFixed": {"cpu": "10m"}},
            "scheduling": {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "k", "operator": "Exists"}]},
        })
    }

    #[test]
    fn a_pod_gets_overhead_and_place_of_its_class() {
        let mut pod = json!({"spec": {"nodeSelector": {"c": "d"}, "tolerations": [
            {"key": "k", "operator": "Equal", "value": "v"}, {"key": "x", "operator": "Exists"},
        ]}});
        apply(&mut pod, Some(&class())).unwrap();
        assert_eq!(pod["spec"]["overhead"], json!({"cpu": "10m"}));
        assert_eq!(pod["spec"]["nodeSelector"], json!({"a": "b", "c": "d"}));
        let tolerations = json!([{"key": "x", "operator": "Exists"}, {"key": "k", "operator": "Exists"}]);
        assert_eq!(pod["spec"]["tolerations"], tolerations);
    }

    #[test]
    fn what_contradicts_the_class_is_refused() {
        let mut other = json!({"spec": {"nodeSelector": {"a": "other"}}});
        let why = "conflict: runtimeClass.scheduling.nodeSelector[a] = b; pod.spec.nodeSelector[a] = other";
        assert_eq!(apply(&mut other, Some(&class())).unwrap_err().to_string(), why);
        let mut heavy = json!({"spec": {"overhead": {"cpu": "1"}}});
        assert_eq!(apply(&mut heavy.clone(), Some(&class())), Err(Refusal::OtherOverhead));
        assert_eq!(apply(&mut heavy, None), Ok(()), "its overhead is validated first");
        assert_eq!(check(&heavy, None), Err(Refusal::UnexpectedOverhead));
        assert_eq!(check(&heavy, Some(&class())), Err(Refusal::OtherOverhead));
        let own = json!({"spec": {"overhead": {"cpu": "10m"}}});
        assert_eq!((check(&own, Some(&class())), check(&json!({"spec": {}}), None)), (Ok(()), Ok(())));
    }
}
