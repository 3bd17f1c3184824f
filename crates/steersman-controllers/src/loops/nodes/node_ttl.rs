//! Annotates each Node with how long its kubelet may cache Secrets and ConfigMaps: the more Nodes, the longer.
//!
//! Follows kube-controller-manager's ttl controller, which writes the annotation `node.alpha.kubernetes.io/ttl`. A Node
//! with an outdated number is annotated at its next change, such as a heartbeat.

use crate::settings::Parts;
use crate::shared::refusal::{self, Refused};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use parking_lot::Mutex;
use serde_json::json;
use steersman::{Action, BoxError, Controller, Lister, Manager, ObjectKey, Scope};

/// The name of the loop in logs.
const NAME: &str = "ttl-controller";
const ANNOTATION: &str = "node.alpha.kubernetes.io/ttl";

/// A size class of the cluster: it is entered above the `nodes_max` of the class before, and left below its
/// `nodes_min`.
struct Step {
    nodes_min: usize,
    nodes_max: usize,
    ttl_secs: u32,
}

const STEPS: [Step; 6] = [
    Step { nodes_min: 0, nodes_max: 100, ttl_secs: 0 },
    Step { nodes_min: 90, nodes_max: 500, ttl_secs: 15 },
    Step { nodes_min: 450, nodes_max: 1_000, ttl_secs: 30 },
    Step { nodes_min: 900, nodes_max: 2_000, ttl_secs: 60 },
    Step { nodes_min: 1_800, nodes_max: 10_000, ttl_secs: 300 },
    Step { nodes_min: 9_000, nodes_max: usize::MAX, ttl_secs: 600 },
];

struct Context {
    client: Client,
    nodes: Lister<Node>,
    /// The position of the cluster's size in [`STEPS`].
    step: Mutex<usize>,
}

/// Adds the loop to a manager.
pub(crate) fn add(manager: Manager, Parts { client, .. }: Parts<'_>) -> Manager {
    let nodes = manager.informers().informer::<Node>(Scope::All);
    let context = Context { client, nodes: nodes.lister(), step: Mutex::new(0) };
    manager.controller(Controller::<Node>::of(&nodes, reconcile, context).name(NAME))
}

async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, BoxError> {
    let n_nodes = cx.nodes.len()?;
    let ttl_secs = {
        let mut step = cx.step.lock();
        *step = next_step(*step, n_nodes);
        STEPS[*step].ttl_secs
    };
    let node = cx.nodes.get(&key)?;
    let said = node.annotations().get(ANNOTATION).and_then(|text| text.parse::<i64>().ok());
    if said == Some(i64::from(ttl_secs)) {
        return Ok(Action::AwaitChange);
    }
    let metadata = json!({"uid": node.metadata.uid, "annotations": {ANNOTATION: ttl_secs.to_string()}});
    let patch = Patch::Strategic(json!({"metadata": metadata}));
    match Api::<Node>::all(cx.client.clone()).patch_metadata(key.name(), &PatchParams::default(), &patch).await {
        Ok(_) => Ok(Action::AwaitChange),
        // The Node is gone, or was replaced by another of that name.
        Err(error) if refusal::is_outdated(&error) => Ok(Action::AwaitChange),
        Err(error) => Err(Refused::to("annotate the node")(error).into()),
    }
}

/// The position of the size class, given that it was `step` before.
fn next_step(step: usize, n_nodes: usize) -> usize {
    let mut step = step.min(STEPS.len() - 1);
    while n_nodes > STEPS[step].nodes_max {
        step += 1;
    }
    while n_nodes < STEPS[step].nodes_min {
        step -= 1;
    }
    step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_that_sways_about_a_boundary_stays_in_its_step() {
        assert_eq!(next_step(0, 100), 0);
        assert_eq!(next_step(0, 101), 1);
        assert_eq!(next_step(1, 95), 1);
        assert_eq!(next_step(1, 89), 0);
        assert_eq!(next_step(0, 20_000), 5);
        assert_eq!(next_step(5, 9_500), 5);
        assert_eq!(next_step(5, 0), 0);
        assert_eq!(next_step(usize::MAX, usize::MAX), 5);
    }
}
