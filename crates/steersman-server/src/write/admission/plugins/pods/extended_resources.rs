//! `ExtendedResourceToleration`: a pod that requests a device gets a toleration for the taint of nodes that are
//! reserved for such pods.

use crate::access::pod_references::items;
use crate::shared::operation::ResourceAttributes;
use crate::shared::status::Failure;
use crate::write::admission::plugin::{Action, Phase, Plugin, Review, is_about_pod};
use futures::future::{self, BoxFuture};
use serde_json::json;
use std::collections::BTreeSet;
use steersman_kinds::builtin::rules::resource_name;
use steersman_machinery::Value;
use steersman_machinery::value::{at, object_at, str_at};

#[derive(Debug)]
pub(crate) struct ExtendedResources;

impl Plugin for ExtendedResources {
    fn handles(&self, phase: Phase, action: Action, attributes: &ResourceAttributes<'_>) -> bool {
        phase == Phase::Mutate && action != Action::Delete && is_about_pod(attributes)
    }

    fn mutate<'a>(
        &'a self,
        _review: &'a mut Review<'_, '_>,
        new: Option<&'a mut Value>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        if let Some(pod) = new {
            tolerate(pod);
        }
        Box::pin(future::ready(Ok(())))
    }
}

fn tolerate(pod: &mut Value) {
    let containers = ["containers", "initContainers"].into_iter().flat_map(|list| items(pod, &["spec", list]));
    let requests = containers.filter_map(|container| at(container, &["resources", "requests"])?.as_object());
    let asked = requests.flat_map(|requests| requests.keys()).filter(|name| resource_name::is_extended(name));
    let asked: BTreeSet<String> = asked.cloned().collect();
    if asked.is_empty() {
        return;
    }
    let Some(spec) = object_at(pod, &["spec"]) else { return };
    let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
    if tolerations.is_null() {
        *tolerations = json!([]);
    }
    let Some(tolerations) = tolerations.as_array_mut() else { return };
    for resource in asked {
        let wanted = json!({"key": resource, "operator": "Exists", "effect": "NoSchedule"});
        let is_it = |one: &Value| {
            ["key", "operator", "effect", "value"]
                .iter()
                .all(|field| str_at(one, &[field]) == str_at(&wanted, &[field]))
        };
        match tolerations.iter_mut().find(|one| is_it(one)) {
            Some(found) => *found = wanted,
            None => tolerations.push(wanted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_a_device_tolerates_its_nodes() {
        let requests = json!({"example.com/device": "1", "cpu": "1"});
        let mut pod = json!({"spec": {"containers": [{"resources": {"requests": requests}}]}});
        tolerate(&mut pod);
        tolerate(&mut pod);
        let toleration = json!({"key": "example.com/device", "operator": "Exists", "effect": "NoSchedule"});
        assert_eq!(pod["spec"]["tolerations"], json!([toleration]));
        let mut plain = json!({"spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}});
        tolerate(&mut plain);
        assert_eq!(plain["spec"].get("tolerations"), None);
    }
}
