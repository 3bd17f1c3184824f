//! `TaintNodesByCondition`: adds a taint that keeps pods away from a new node until it is ready. A control loop removes
//! it.

use crate::shared::operation::ResourceAttributes;
use crate::shared::status::Failure;
use crate::write::admission::plugin::{Action, Phase, Plugin, Review};
use futures::future::{self, BoxFuture};
use serde_json::json;
use steersman_machinery::Value;
use steersman_machinery::value::object_at;

const NOT_READY: &str = "node.kubernetes.io/not-ready";

#[derive(Debug)]
pub(crate) struct NodeTaint;

impl Plugin for NodeTaint {
    fn handles(&self, phase: Phase, action: Action, attributes: &ResourceAttributes<'_>) -> bool {
        let is_creation = phase == Phase::Mutate && action == Action::Create && attributes.subresource.is_none();
        is_creation && attributes.is_about("", "nodes")
    }

    fn mutate<'a>(
        &'a self,
        _review: &'a mut Review<'_, '_>,
        new: Option<&'a mut Value>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        if let Some(node) = new {
            taint(node);
        }
        Box::pin(future::ready(Ok(())))
    }
}

fn taint(node: &mut Value) {
    let Some(spec) = object_at(node, &["spec"]) else { return };
    let taints = spec.entry("taints").or_insert_with(|| json!([]));
    if taints.is_null() {
        *taints = json!([]);
    }
    if let Some(taints) = taints.as_array_mut()
        && !taints.iter().any(|taint| taint["key"] == NOT_READY && taint["effect"] == "NoSchedule")
    {
        taints.push(json!({"effect": "NoSchedule", "key": NOT_READY}));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_node_takes_no_pods_yet() {
        let mut node = json!({"metadata": {"name": "n"}});
        taint(&mut node);
        taint(&mut node);
        assert_eq!(node["spec"], json!({"taints": [{"effect": "NoSchedule", "key": "node.kubernetes.io/not-ready"}]}));
    }
}
