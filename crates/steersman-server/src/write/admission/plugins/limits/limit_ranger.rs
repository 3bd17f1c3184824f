//! `LimitRanger`: sets the defaults of the namespace's LimitRanges on containers, and refuses pods and claims that
//! exceed their bounds. Follows kubernetes' `plugin/pkg/admission/limitranger`.

use crate::shared::operation::ResourceAttributes;
use crate::shared::status::Failure;
use crate::write::admission::plugin::{Action, Phase, Plugin, Review, name_of, objects_of};
use futures::future::BoxFuture;
use std::collections::BTreeSet;
use steersman_machinery::pod::totals::{self, Amounts};
use steersman_machinery::quantity::Quantity;
use steersman_machinery::value::{at, object_at, set_at, str_at};
use steersman_machinery::{GroupResource, Value};

/// The annotation that records which defaults a pod got.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";

#[derive(Debug)]
pub(crate) struct LimitRanger;

impl Plugin for LimitRanger {
    fn handles(&self, phase: Phase, action: Action, attributes: &ResourceAttributes<'_>) -> bool {
        let is_pod = attributes.is_about("", "pods");
        let is_claim = attributes.is_about("", "persistentvolumeclaims") && attributes.subresource.is_none();
        match (phase, action, attributes.subresource) {
            (_, Action::Delete, _) => false,
            // The resources of a pod's containers can only be changed by a resize.
            (Phase::Mutate, Action::Create, None) => is_pod,
            (Phase::Validate, Action::Create, None) => is_pod || is_claim,
            (Phase::Validate, Action::Update, Some("resize")) => is_pod,
            (Phase::Validate, Action::Update, None) => is_claim,
            _ => false,
        }
    }

    fn mutate<'a>(
        &'a self,
        review: &'a mut Review<'_, '_>,
        new: Option<&'a mut Value>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            if let Some(pod) = new {
                ranges(review).await?.iter().for_each(|range| give(pod, range));
            }
            Ok(())
        })
    }

    fn validate<'a>(
        &'a self,
        review: &'a mut Review<'_, '_>,
        new: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        let is_going = review.old.is_some_and(|old| at(old, &["metadata", "deletionTimestamp"]).is_some());
        Box::pin(async move {
            let Some(object) = new.filter(|_| !is_going) else { return Ok(()) };
            let is_pod = review.operation.attributes.resource == "pods";
            let check = |range: &Value| if is_pod { excesses(object, range) } else { excesses_of_claim(object, range) };
            match ranges(review).await?.iter().map(check).find(|faults| !faults.is_empty()) {
                Some(faults) => {
                    let resource = review.operation.group_resource();
                    Err(Failure::forbidden(&resource, name_of(object), &one_sentence(&faults)))
                }
                None => Ok(()),
            }
        })
    }
}

async fn ranges(review: &Review<'_, '_>) -> Result<Vec<Value>, Failure> {
    objects_of(review, &GroupResource::new("", "limitranges")).await
}

/// The limits for a type in a LimitRange.
fn limits<'a>(range: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    let limits = at(range, &["spec", "limits"]).and_then(Value::as_array).into_iter().flatten();
    limits.filter(move |limit| str_at(limit, &["type"]) == Some(kind))
}

/// Sets the defaults of a pod's containers, and records them in an annotation.
fn give(pod: &mut Value, range: &Value) {
    let mut notes = Vec::new();
    for (list, word) in [("containers", "container"), ("initContainers", "init container")] {
        let containers = pod.pointer_mut(&format!("/spec/{list}")).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let mut given = [("requests", "request", BTreeSet::new()), ("limits", "limit", BTreeSet::new())];
            for limit in limits(range, "Container") {
                for ((field, _, given), source) in given.iter_mut().zip(["defaultRequest", "default"]) {
                    let defaults = at(limit, &[source]).and_then(Value::as_object).into_iter().flatten();
                    for (resource, amount) in defaults {
                        let has_it = at(container, &["resources", field, resource]).is_some();
                        if !has_it && set_at(container, &["resources", field, resource], amount.clone()) {
                            given.insert(resource.clone());
                        }
                    }
                }
            }
            let name = str_at(container, &["name"]).unwrap_or_default();
            for (_, what, given) in given.iter().filter(|(_, _, given)| !given.is_empty()) {
                let resources = given.iter().map(String::as_str).collect::<Vec<&str>>().join(", ");
                notes.push(format!("{resources} {what} for {word} {name}"));
            }
        }
    }
    if !notes.is_empty()
        && let Some(annotations) = object_at(pod, &["metadata", "annotations"])
    {
        annotations.insert(ANNOTATION.to_owned(), format!("LimitRanger plugin set: {}", notes.join("; ")).into());
    }
}

/// The violations of a LimitRange by a pod or one of its containers.
fn excesses(pod: &Value, range: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    let all = at(range, &["spec", "limits"]).and_then(Value::as_array).into_iter().flatten();
    for limit in all {
        match str_at(limit, &["type"]) {
            Some(kind @ "Container") => {
                let list = |name| at(pod, &["spec", name]).and_then(Value::as_array).into_iter().flatten();
                for container in list("containers").chain(list("initContainers")) {
                    let of = |field| totals::amounts(at(container, &["resources", field]));
                    bounds(limit, kind, &of("requests"), &of("limits"), &mut faults);
                }
            }
            Some(kind @ "Pod") => bounds(limit, kind, &totals::requests(pod), &totals::limits(pod), &mut faults),
            _ => {}
        }
    }
    faults
}

/// Whether an amount is less than another. As upstream, an amount that 64 bits do not hold counts as zero.
fn is_less(one: &Quantity, other: &Quantity) -> bool {
    one.within_64_bits() < other.within_64_bits()
}

fn bounds(limit: &Value, kind: &str, requests: &Amounts, limits: &Amounts, faults: &mut Vec<String>) {
    let bound = |field| totals::amounts(at(limit, &[field]));
    for (resource, least) in bound("min") {
        let lead = format!("minimum {resource} usage per {kind} is {least}");
        match (requests.get(&resource), limits.get(&resource)) {
            (None, _) => faults.push(format!("{lead}.  No request is specified")),
            (Some(asked), _) if is_less(asked, &least) => faults.push(format!("{lead}, but request is {asked}")),
            (_, Some(most)) if is_less(most, &least) => faults.push(format!("{lead}, but limit is {most}")),
            _ => {}
        }
    }
    for (resource, most) in bound("max") {
        let lead = format!("maximum {resource} usage per {kind} is {most}");
        match (limits.get(&resource), requests.get(&resource)) {
            (None, _) => faults.push(format!("{lead}.  No limit is specified")),
            (Some(limited), _) if is_less(&most, limited) => faults.push(format!("{lead}, but limit is {limited}")),
            (_, Some(asked)) if is_less(&most, asked) => faults.push(format!("{lead}, but request is {asked}")),
            _ => {}
        }
    }
    for (resource, ratio) in bound("maxLimitRequestRatio") {
        let lead = format!("{resource} max limit to request ratio per {kind} is {ratio}");
        let amount = |amounts: &Amounts| {
            amounts.get(&resource).map(|amount| amount.within_64_bits()).filter(|amount| !amount.is_zero())
        };
        match (amount(requests), amount(limits)) {
            (None, _) => faults.push(format!("{lead}, but no request is specified or request is 0")),
            (_, None) => faults.push(format!("{lead}, but no limit is specified or limit is 0")),
            (Some(asked), Some(limited)) => {
                let found = limited.to_f64() / asked.to_f64();
                if found > ratio.within_64_bits().to_f64() {
                    faults.push(format!("{lead}, but provided ratio is {found:.6}"));
                }
            }
        }
    }
}

/// The violations of a LimitRange by a claim.
fn excesses_of_claim(claim: &Value, range: &Value) -> Vec<String> {
    const KIND: &str = "PersistentVolumeClaim";
    let requests = totals::amounts(at(claim, &["spec", "resources", "requests"]));
    let mut faults = Vec::new();
    for limit in limits(range, KIND) {
        type Exceeds = fn(&Quantity, &Quantity) -> bool;
        let bounds: [(&str, &str, Exceeds); 2] =
            [("min", "minimum", is_less), ("max", "maximum", |asked, most| is_less(most, asked))];
        for (field, word, is_beyond) in bounds {
            for (resource, bound) in totals::amounts(at(limit, &[field])) {
                let lead = format!("{word} {resource} usage per {KIND} is {bound}");
                match requests.get(&resource) {
                    None => faults.push(format!("{lead}.  No request is specified")),
                    Some(asked) if is_beyond(asked, &bound) => faults.push(format!("{lead}, but request is {asked}")),
                    Some(_) => {}
                }
            }
        }
    }
    faults
}

/// Several errors as one text, without duplicates.
fn one_sentence(faults: &[String]) -> String {
    let mut said: Vec<&str> = Vec::new();
    for fault in faults {
        if !said.contains(&fault.as_str()) {
            said.push(fault);
        }
    }
    match said.as_slice() {
        [one] => (*one).to_owned(),
        _ => format!("[{}]", said.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn containers_get_what_they_lack_and_the_pod_says_so() {
        let range = json!({"spec": {"limits": [{
            "type": "Container", "default": {"cpu": "500m", "memory": "256Mi"}, "defaultRequest": {"cpu": "100m"},
        }]}});
        let mut pod = json!({"spec": {
            "containers": [{"name": "a"}, {"name": "b", "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}}],
            "initContainers": [{"name": "i", "resources": {"limits": {"memory": "1Mi"}}}],
        }});
        give(&mut pod, &range);
        let note = "LimitRanger plugin set: cpu request for container a; cpu, memory limit for container a; memory limit for container b; cpu request for init container i; cpu limit for init container i";
        assert_eq!(pod["metadata"]["annotations"][ANNOTATION], note);
        let resources = json!({"limits": {"cpu": "500m", "memory": "256Mi"}, "requests": {"cpu": "100m"}});
        assert_eq!(pod["spec"]["containers"][0]["resources"], resources);
        assert_eq!(pod["spec"]["containers"][1]["resources"]["limits"], json!({"cpu": "1", "memory": "256Mi"}));
    }

    #[test]
    fn bounds_hold_each_container_and_the_pod_as_a_whole() {
        let range = json!({"spec": {"limits": [
            {"type": "Container", "min": {"cpu": "50m"}, "max": {"memory": "1Gi"}, "maxLimitRequestRatio": {"cpu": "10"}},
            {"type": "Pod", "max": {"cpu": "2"}},
        ]}});
        let pod = |resources: Value| json!({"spec": {"containers": [{"name": "a", "resources": resources}]}});
        let check = |resources: Value| one_sentence(&excesses(&pod(resources), &range));
        assert_eq!(
            check(json!({"requests": {"cpu": "10m"}, "limits": {"cpu": "3", "memory": "2Gi"}})),
            "[minimum cpu usage per Container is 50m, but request is 10m, maximum memory usage per Container is 1Gi, but limit is 2Gi, cpu max limit to request ratio per Container is 10, but provided ratio is 300.000000, maximum cpu usage per Pod is 2, but limit is 3]"
        );
        assert_eq!(
            check(json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "1"}})),
            "maximum memory usage per Container is 1Gi.  No limit is specified"
        );
        assert!(
            excesses(&pod(json!({"requests": {"cpu": "1"}, "limits": {"cpu": "1", "memory": "1Gi"}})), &range)
                .is_empty()
        );
    }

    #[test]
    fn an_amount_beyond_64_bits_counts_as_zero() {
        let range = json!({"spec": {"limits": [
            {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}}]}});
        let claim = |storage: &str| json!({"spec": {"resources": {"requests": {"storage": storage}}}});
        let fault = "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 12E";
        assert_eq!(excesses_of_claim(&claim("12E"), &range), [fault]);
        let fault = "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 9E";
        assert_eq!(excesses_of_claim(&claim("9E"), &range), [fault]);
    }
}
