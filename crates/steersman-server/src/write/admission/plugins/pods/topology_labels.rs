//! `PodTopologyLabels`: copies the topology labels of a node to a pod when it is bound. Follows kubernetes'
//! `plugin/pkg/admission/podtopologylabels`.

use crate::shared::operation::ResourceAttributes;
use crate::shared::status::Failure;
use crate::write::admission::plugin::{Action, Phase, Plugin, Review, find};
use futures::future::BoxFuture;
use steersman_machinery::value::{set_at, str_at};
use steersman_machinery::{GroupResource, ObjectKey, Value};

const LABELS: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];

#[derive(Debug)]
pub(crate) struct TopologyLabels;

impl Plugin for TopologyLabels {
    fn handles(&self, phase: Phase, action: Action, attributes: &ResourceAttributes<'_>) -> bool {
        let is_creation = phase == Phase::Mutate && action == Action::Create;
        is_creation && attributes.is_about("", "pods") && matches!(attributes.subresource, None | Some("binding"))
    }

    fn mutate<'a>(
        &'a self,
        review: &'a mut Review<'_, '_>,
        new: Option<&'a mut Value>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let Some(object) = new else { return Ok(()) };
            let is_binding = review.operation.attributes.subresource.is_some();
            let node = match is_binding {
                true if str_at(object, &["target", "kind"]) != Some("Node") => return Ok(()),
                true => str_at(object, &["target", "name"]),
                false => str_at(object, &["spec", "nodeName"]),
            };
            let Some(node) = node.filter(|node| !node.is_empty()) else { return Ok(()) };
            let nodes = GroupResource::new("", "nodes");
            let Some(node) = find(review.state, &nodes, &ObjectKey::cluster(node)).await? else { return Ok(()) };
            for label in LABELS {
                if let Some(value) = str_at(&node, &["metadata", "labels", label]) {
                    set_at(object, &["metadata", "labels", label], value.into());
                }
            }
            Ok(())
        })
    }
}
