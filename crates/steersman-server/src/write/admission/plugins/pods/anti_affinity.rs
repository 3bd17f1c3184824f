//! `LimitPodHardAntiAffinityTopology`: a pod's required anti-affinity may cover a node, but not a wider topology such
//! as a zone.

use crate::access::pod_references::items;
use crate::shared::operation::ResourceAttributes;
use crate::shared::status::Failure;
use crate::write::admission::plugin::{Action, Phase, Plugin, Review, forbidden, is_about_pod};
use futures::future::{self, BoxFuture};
use steersman_machinery::Value;
use steersman_machinery::value::str_at;

const TERMS: [&str; 4] = ["spec", "affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution"];
const HOST: &str = "kubernetes.io/hostname";

#[derive(Debug)]
pub(crate) struct AntiAffinity;

impl Plugin for AntiAffinity {
    fn handles(&self, phase: Phase, action: Action, attributes: &ResourceAttributes<'_>) -> bool {
        phase == Phase::Validate && action != Action::Delete && is_about_pod(attributes)
    }

    fn validate<'a>(
        &'a self,
        review: &'a mut Review<'_, '_>,
        new: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        let wider = new.and_then(|pod| wider(pod).map(|key| (pod, key)));
        let refused = wider.map(|(pod, key)| {
            let why = format!(
                "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key {HOST} is allowed"
            );
            forbidden(review, Some(pod), &why)
        });
        Box::pin(future::ready(refused.map_or(Ok(()), Err)))
    }
}

/// The first topology key of a pod's required anti-affinity that is wider than a node.
fn wider(pod: &Value) -> Option<&str> {
    let mut keys = items(pod, &TERMS).map(|term| str_at(term, &["topologyKey"]).unwrap_or_default());
    keys.find(|key| *key != HOST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_may_have_a_node_for_itself_but_no_zone() {
        let pod = |key: &str| json!({"spec": {"affinity": {"podAntiAffinity": {TERMS[3]: [{"topologyKey": key}]}}}});
        assert_eq!(wider(&pod(HOST)), None);
        assert_eq!(wider(&pod("topology.kubernetes.io/zone")), Some("topology.kubernetes.io/zone"));
    }
}
