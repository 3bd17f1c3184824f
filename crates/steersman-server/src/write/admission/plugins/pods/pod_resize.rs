//! `PodResizeValidator`: refuses to resize a pod beyond the capacity of its node, or on a node that cannot resize pods.
//! Follows kubernetes' `plugin/pkg/admission/podresize`.

use crate::shared::operation::ResourceAttributes;
use crate::shared::status::Failure;
use crate::write::admission::plugin::{Action, Phase, Plugin, Review, find, forbidden};
use futures::future::BoxFuture;
use steersman_machinery::pod::totals::{self, Amounts};
use steersman_machinery::quantity::Quantity;
use steersman_machinery::status::Cause;
use steersman_machinery::value::{at, str_at};
use steersman_machinery::{GroupResource, ObjectKey, Value};

#[derive(Debug)]
pub(crate) struct PodResize;

impl Plugin for PodResize {
    fn handles(&self, phase: Phase, action: Action, attributes: &ResourceAttributes<'_>) -> bool {
        let is_change = phase == Phase::Validate && action == Action::Update;
        is_change && attributes.is_about("", "pods") && attributes.subresource == Some("resize")
    }

    fn validate<'a>(
        &'a self,
        review: &'a mut Review<'_, '_>,
        new: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let is_resized = |pod: &&Value| review.old.is_none_or(|old| at(old, &["spec"]) != at(pod, &["spec"]));
            let Some(pod) = new.filter(is_resized) else { return Ok(()) };
            let name = str_at(pod, &["spec", "nodeName"]).unwrap_or_default();
            if name.is_empty() {
                return Ok(());
            }
            let Some(node) = find(review.state, &GroupResource::new("", "nodes"), &ObjectKey::cluster(name)).await?
            else {
                return Err(forbidden(review, Some(pod), &format!("node {name:?} not found")));
            };
            match fault(pod, &node) {
                None => Ok(()),
                Some((reason, why)) => {
                    let mut failure = forbidden(review, Some(pod), &why);
                    if let Some(details) = &mut failure.status.details {
                        details.causes.push(Cause {
                            reason: reason.to_owned(),
                            message: String::new(),
                            field: String::new(),
                        });
                    }
                    Err(failure)
                }
            }
        })
    }
}

/// Why a node cannot resize a pod to this: the reason and the message.
fn fault(pod: &Value, node: &Value) -> Option<(&'static str, String)> {
    let name = str_at(node, &["metadata", "name"]).unwrap_or_default();
    let system = str_at(node, &["metadata", "labels", "kubernetes.io/os"]);
    if let Some(system) = system.filter(|system| *system != "linux") {
        let why = format!("pod resize is only supported on linux nodes, node {name:?} is {system:?}");
        return Some(("UnsupportedPlatform", why));
    }
    let allocatable = totals::amounts(at(node, &["status", "allocatable"]));
    let requests = totals::requests(pod);
    let of = |amounts: &Amounts, resource: &str| amounts.get(resource).copied().unwrap_or(Quantity::ZERO);
    // CPU is given in thousandths, memory in bytes; both are rounded up.
    let excess = |resource: &str, nanos_of_one: i128| {
        let (asked, there) = (of(&requests, resource), of(&allocatable, resource));
        let number = |amount: Quantity| (amount.nanos() + nanos_of_one - 1).div_euclid(nanos_of_one);
        (there < asked).then(|| format!("{resource}, requested: {}, allocatable: {}", number(asked), number(there)))
    };
    let excesses = [excess("cpu", 1_000_000), excess("memory", 1_000_000_000)];
    let excesses: Vec<String> = excesses.into_iter().flatten().collect();
    let why = format!("node didn't have enough allocatable resources: {}", excesses.join("; "));
    (!excesses.is_empty()).then_some(("NodeCapacity", why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_grows_as_far_as_its_node_and_no_further() {
        let pod =
            |cpu: &str| json!({"spec": {"containers": [{"resources": {"requests": {"cpu": cpu, "memory": "1Mi"}}}]}});
        let node = json!({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "1500m", "memory": "1Gi"}}});
        assert_eq!(fault(&pod("1500m"), &node), None);
        let why = "node didn't have enough allocatable resources: cpu, requested: 2000, allocatable: 1500";
        assert_eq!(fault(&pod("2"), &node), Some(("NodeCapacity", why.to_owned())));
        // 2.007 * 1000 is a little more than 2007 in floating point.
        let why = "node didn't have enough allocatable resources: cpu, requested: 2007, allocatable: 1500";
        assert_eq!(fault(&pod("2007m"), &node), Some(("NodeCapacity", why.to_owned())));
        let windows = json!({"metadata": {"name": "w", "labels": {"kubernetes.io/os": "windows"}}});
        let why = "pod resize is only supported on linux nodes, node \"w\" is \"windows\"";
        assert_eq!(fault(&pod("1"), &windows), Some(("UnsupportedPlatform", why.to_owned())));
    }
}
