//! Monitors Nodes: Nodes that are not ready are tainted, Nodes without heartbeats get unknown conditions, and their
//! Pods are marked as not ready.
//!
//! Follows kube-controller-manager's node lifecycle controller. A Node's heartbeats are updates of its condition
//! `Ready` and renewals of its Lease; silence is measured with the local clock. Conditions become NoSchedule taints at
//! once. The NoExecute taints `not-ready` and `unreachable`, which evict Pods, are added at a limited rate in each
//! failure zone, and not at all while no Node of the cluster is ready. Upstream checks all Nodes every five seconds;
//! here each Node has a timer. `health` detects missing heartbeats, `zones` limits the rate of taints, `taints`
//! computes them, and `pods` marks Pods.

mod health;
mod pods;
mod taints;
mod zones;

use crate::loops::nodes::node_lifecycle::health::{Health, Now, READY};
use crate::loops::nodes::node_lifecycle::taints::NoExecute;
use crate::loops::nodes::node_lifecycle::zones::{Count, Permit, Turn, Zones};
use crate::settings::Parts;
use crate::shared::refusal::{self, Refused};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeStatus, ObjectReference, Pod};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use steersman::cache::Index;
use steersman::controller::Watch;
use steersman::events::{EventRecorder, EventType};
use steersman::queue::WorkQueue;
use steersman::{Action, BoxError, Controller, Lister, LookupError, Manager, ObjectKey, Scope};
use tokio::time::Instant;

/// The names of the loop's two controllers in logs.
const NAME: &str = "node-lifecycle-controller";
const NAME_OF_PODS: &str = "node-lifecycle-controller-pods";
/// The source of Events.
const COMPONENT: &str = "node-controller";
const LEASES: &str = "kube-node-lease";
/// Nodes with this label do not count for the state of their zone.
const EXCLUDED: &str = "node.kubernetes.io/exclude-disruption";
const WORKERS: usize = 8;
const WORKERS_OF_PODS: usize = 4;

struct Context {
    client: Client,
    clock: fn() -> Timestamp,
    events: EventRecorder,
    leases: Lister<Lease>,
    nodes: Lister<Node>,
    /// Nodes by zone, and whether they are ready.
    nodes_by_zone: Index<Node, (String, bool)>,
    pods: Lister<Pod>,
    pods_by_node: Index<Pod, String>,
    /// The work queue of Nodes. Set before the controller runs.
    queue: OnceLock<WorkQueue<ObjectKey>>,
    state: Mutex<State>,
}

/// The observed state.
#[derive(Debug, Default)]
struct State {
    /// By the name of the Node.
    healths: HashMap<String, Health>,
    zones: Zones,
}

/// The observation of a Node.
struct Look {
    /// The rest of its grace period; `None` if that has passed.
    left: Option<Duration>,
    /// The previous Node of the same name, if this is another one.
    replaced: Option<Health>,
    is_new: bool,
    is_to_mark_pods: bool,
}

/// Adds the loop to a manager.
pub(crate) fn add(manager: Manager, Parts { client, settings }: Parts<'_>) -> Manager {
    let informers = manager.informers();
    let nodes = informers.informer::<Node>(Scope::All);
    let leases = informers.informer::<Lease>(Scope::Namespace(LEASES.to_owned()));
    let pods = informers.informer::<Pod>(Scope::All);
    let context = Arc::new(Context {
        events: EventRecorder::new(client.clone(), COMPONENT),
        client,
        clock: settings.clock,
        leases: leases.lister(),
        nodes: nodes.lister(),
        nodes_by_zone: nodes.add_index(place),
        pods: pods.lister(),
        pods_by_node: pods.add_index(|pod| crate::shared::pods::node_name(pod).map(str::to_owned)),
        queue: OnceLock::new(),
        state: Mutex::default(),
    });
    let controller = Controller::<Node>::of(&nodes, reconcile, Arc::clone(&context))
        .name(NAME)
        .workers(WORKERS)
        .watches(&leases, |lease| vec![ObjectKey::cluster(&lease.name_any())]);
    context.queue.get_or_init(|| controller.queue());
    let of_pods = Controller::<Pod>::of(Watch::of(&pods).when(pods::is_bound), pods::reconcile, context)
        .name(NAME_OF_PODS)
        .workers(WORKERS_OF_PODS);
    manager.controller(controller).controller(of_pods)
}

/// The index key of a Node: its zone, and whether it is ready.
fn place(node: &Node) -> Option<(String, bool)> {
    let is_ready = health::condition(node, READY).is_some_and(|ready| ready.status == "True");
    (!node.labels().contains_key(EXCLUDED)).then(|| (health::zone(node), is_ready))
}

async fn reconcile(key: ObjectKey, cx: &Arc<Context>) -> Result<Action, BoxError> {
    let Some(node) = cx.nodes.find(&key)? else {
        cx.remove(key.name());
        cx.update_zones()?;
        return Ok(Action::AwaitChange);
    };
    let lease = cx.leases.find(&ObjectKey::namespaced(LEASES, key.name()))?;
    let now = Now { clock: (cx.clock)(), instant: Instant::now() };
    let look = cx.look(&node, lease.as_deref(), now);
    if let Some(replaced) = look.replaced {
        cx.say(key.name(), replaced.uid, "RemovingNode", &format!("Removing Node {} from Controller", key.name()));
    }
    if look.is_new {
        let uid = node.metadata.uid.clone();
        cx.say(key.name(), uid, "RegisteredNode", &format!("Registered Node {} in Controller", key.name()));
    }
    if look.left.is_none()
        && let Some(status) = health::silenced(&node, now.clock)
    {
        // The event of this write brings the Node back, and the zones are counted then.
        return cx.silence(&node, status).await.map(|()| Action::AwaitChange);
    }
    cx.update_zones()?;
    let wait = cx.taint(&node, look.is_new, now).await?;
    if look.is_to_mark_pods {
        pods::mark_all(cx, key.name()).await?;
        cx.marked(key.name());
    }
    Ok(look.left.into_iter().chain(wait).min().map_or(Action::AwaitChange, Action::RequeueAfter))
}

impl Context {
    /// Whether a Node has been observed.
    fn is_known(&self, node: &str) -> bool {
        self.state.lock().healths.contains_key(node)
    }

    fn look(&self, node: &Node, lease: Option<&Lease>, now: Now) -> Look {
        let name = node.name_any();
        let mut state = self.state.lock();
        let State { healths, zones } = &mut *state;
        let replaced = match healths.get(&name) {
            Some(known) if known.uid != node.metadata.uid => healths.remove(&name),
            _ => None,
        };
        if let Some(replaced) = &replaced {
            zones.forget(&replaced.zone, &name);
        }
        let is_new = !healths.contains_key(&name);
        let health = healths.entry(name.clone()).or_insert_with(|| Health::new(node, lease, now));
        health.observe(node, lease, now);
        let zone = health::zone(node);
        if zone != health.zone {
            zones.forget(&health.zone, &name);
            health.zone = zone;
        }
        if health::condition(node, READY).is_some_and(|ready| ready.status == "True") {
            health.is_to_mark_pods = false;
        }
        Look { left: health.left(now.instant), replaced, is_new, is_to_mark_pods: health.is_to_mark_pods }
    }

    /// Forgets a Node that is gone.
    fn remove(&self, node: &str) {
        let removed = {
            let mut state = self.state.lock();
            let removed = state.healths.remove(node);
            if let Some(removed) = &removed {
                state.zones.forget(&removed.zone, node);
            }
            removed
        };
        if let Some(removed) = removed {
            self.say(node, removed.uid, "RemovingNode", &format!("Removing Node {node} from Controller"));
        }
    }

    /// Sets the conditions of a Node to unknown. If it has changed since, an event follows.
    async fn silence(&self, node: &Node, status: NodeStatus) -> Result<(), BoxError> {
        let was_ready = health::condition(node, READY).is_some_and(|ready| ready.status == "True");
        let silenced = Node { status: Some(status), ..node.clone() };
        let api = Api::<Node>::all(self.client.clone());
        let Some(silenced) = refusal::replace_status(&api, &silenced).await? else { return Ok(()) };
        let name = node.name_any();
        tracing::info!(node = name, "the node says nothing: its conditions are unknown");
        if let Some(health) = self.state.lock().healths.get_mut(&name) {
            health.wrote(&silenced);
            health.is_to_mark_pods = was_ready;
        }
        if was_ready {
            let note = format!("Node {name} status is now: NodeNotReady");
            self.events.event_about(
                reference(&name, node.metadata.uid.clone()),
                EventType::Normal,
                "NodeNotReady",
                &note,
            );
        }
        Ok(())
    }

    /// Counts the Nodes of each zone, and wakes the Nodes that a change of the zones affects.
    fn update_zones(&self) -> Result<(), LookupError> {
        let mut counts = BTreeMap::<String, Count>::new();
        for (zone, is_ready) in self.nodes_by_zone.values()? {
            let n_nodes = self.nodes_by_zone.count(&(zone.clone(), is_ready))?;
            let count = counts.entry(zone).or_default();
            if is_ready { count.ready = n_nodes } else { count.not_ready = n_nodes }
        }
        let now = Instant::now();
        let woken: Vec<String> = {
            let mut state = self.state.lock();
            match state.zones.update(&counts, now) {
                None => Vec::new(),
                Some(Turn::Enters) => {
                    tracing::info!("no node is ready: no pod is evicted for it");
                    state.healths.keys().cloned().collect()
                }
                Some(Turn::Leaves) => {
                    tracing::info!("some nodes are ready again");
                    state.healths.values_mut().for_each(|health| health.excuse(now));
                    state.healths.keys().cloned().collect()
                }
                Some(Turn::Wake(nodes)) => nodes,
            }
        };
        if let Some(queue) = self.queue.get() {
            woken.iter().for_each(|node| queue.add(ObjectKey::cluster(node)));
        }
        Ok(())
    }

    /// Gives a Node its taints and labels. Returns how long it has to wait for a NoExecute taint, if it does.
    async fn taint(&self, node: &Node, is_new: bool, now: Now) -> Result<Option<Duration>, BoxError> {
        let name = node.name_any();
        let (no_execute, wait) = {
            let mut state = self.state.lock();
            let zone = health::zone(node);
            let is_silent_yet = is_new && health::condition(node, READY).is_none();
            match taints::no_execute(node, &state.zones) {
                NoExecute::Add { key } => match state.zones.permit(&zone, &name, now.instant) {
                    Permit::Now => (NoExecute::Add { key }, None),
                    Permit::After(wait) => (NoExecute::Keep, Some(wait)),
                    Permit::Never => (NoExecute::Keep, None),
                },
                other => {
                    state.zones.forget(&zone, &name);
                    (if is_silent_yet { NoExecute::Remove } else { other }, None)
                }
            }
        };
        let wanted = taints::wanted(node, no_execute, now.clock);
        let labels = taints::missing_labels(node);
        let mut patch = json!({"metadata": {"uid": node.metadata.uid}});
        if wanted != taints::taints(node) {
            // The list is replaced as a whole, so it must not have changed.
            patch["metadata"]["resourceVersion"] = json!(node.metadata.resource_version);
            patch["spec"] = json!({"taints": if wanted.is_empty() { Value::Null } else { json!(wanted) }});
        } else if labels.is_empty() {
            return Ok(wait);
        }
        if !labels.is_empty() {
            patch["metadata"]["labels"] = json!(labels);
        }
        let patch = Patch::Strategic(patch);
        let written =
            Api::<Node>::all(self.client.clone()).patch_metadata(&name, &PatchParams::default(), &patch).await;
        if written.is_err() && matches!(no_execute, NoExecute::Add { .. }) {
            self.state.lock().zones.give_back(&health::zone(node));
        }
        match written {
            Ok(_) => Ok(wait),
            Err(error) if refusal::is_outdated(&error) => Ok(wait),
            Err(error) => Err(Refused::to("taint the node")(error).into()),
        }
    }

    /// Records that all Pods of a Node have been marked.
    fn marked(&self, node: &str) {
        if let Some(health) = self.state.lock().healths.get_mut(node) {
            health.is_to_mark_pods = false;
        }
    }

    fn say(&self, node: &str, uid: Option<String>, reason: &str, what: &str) {
        let note = format!("Node {node} event: {what}");
        self.events.event_about(reference(node, uid), EventType::Normal, reason, &note);
    }
}

fn reference(node: &str, uid: Option<String>) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(node.to_owned()),
        uid,
        ..ObjectReference::default()
    }
}
