//! Deletes Pods that nothing else deletes: Pods whose node is gone, deleted Pods that never had a node, Pods on
//! out-of-service nodes, and the oldest terminated Pods beyond a threshold.
//!
//! Follows kube-controller-manager's Pod garbage collector, with its quarantine of 40 seconds for missing nodes, and
//! its threshold of 12,500. Upstream checks all Pods every 20 seconds; here a Pod is checked when it or its node
//! changes.

use crate::settings::Parts;
use crate::shared::clock;
use crate::shared::pods::{self, node_name};
use crate::shared::refusal::{self, Error, Refused};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use steersman::cache::{Change, Index};
use steersman::controller::Watch;
use steersman::{Action, Controller, Lister, LookupError, Manager, ObjectKey, Scope};
use tokio::time::Instant;

/// The name of the loop in logs.
const NAME: &str = "pod-garbage-collector";
const WORKERS: usize = 8;
/// How long a node has to be missing before its Pods are deleted.
const QUARANTINE: Duration = Duration::from_secs(40);
/// The number of terminated Pods that are kept.
const TERMINATED_MAX: usize = 12_500;
/// How often terminated Pods beyond that are deleted.
const SURPLUS_PERIOD: Duration = Duration::from_secs(20);
/// Beyond this number of missing nodes, those that no Pod is on any more are dropped.
const MISSING_MAX: usize = 1_000;
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

struct Context {
    client: Client,
    clock: fn() -> Timestamp,
    nodes: Lister<Node>,
    pods: Lister<Pod>,
    by_place: Index<Pod, IndexKey>,
    missing: Arc<Mutex<Missing>>,
    surplus: Mutex<Surplus>,
}

/// The index key of a Pod.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum IndexKey {
    Node(String),
    Terminated,
}

/// The missing nodes that Pods are on, each with its quarantine.
#[derive(Default)]
struct Missing {
    nodes: HashMap<String, Quarantine>,
}

/// The time in which a missing node may come back.
struct Quarantine {
    since: Instant,
    /// The uids of the Pods that were checked during the quarantine. Only these are deleted when it has ended; another
    /// Pod starts a new quarantine.
    pods: HashMap<ObjectKey, String>,
}

/// Tracks when there may be too many terminated Pods.
#[derive(Default)]
struct Surplus {
    /// An upper bound of the number of terminated Pods.
    at_most: usize,
    deleted: Option<Instant>,
}

/// The state of a Pod's node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Host {
    Absent,
    /// The node is not ready, and a taint declares it out of service.
    OutOfService,
    Present,
    /// The Pod has no node yet.
    Unassigned,
}

#[derive(Debug, Eq, PartialEq)]
enum Verdict {
    Delete,
    /// Delete the Pod if its node stays away.
    DeleteAfterQuarantine,
    /// Delete the Pod if there are too many terminated ones.
    DeleteIfTooMany,
    Keep,
}

/// Adds the loop to a manager.
pub(crate) fn add(manager: Manager, Parts { client, settings }: Parts<'_>) -> Manager {
    let pods = manager.informers().informer::<Pod>(Scope::All);
    let nodes = manager.informers().informer::<Node>(Scope::All);
    let by_place = pods.add_index(places);
    let missing = Arc::<Mutex<Missing>>::default();
    let context = Context {
        client,
        clock: settings.clock,
        nodes: nodes.lister(),
        pods: pods.lister(),
        by_place: by_place.clone(),
        missing: Arc::clone(&missing),
        surplus: Mutex::default(),
    };
    let known_nodes = nodes.lister();
    let controller = Controller::of(&pods, reconcile, context)
        .name(NAME)
        .workers(WORKERS)
        .when(move |change| match change {
            Change::Added(pod, _) | Change::Updated { new: pod, .. } => {
                host(pod, &known_nodes).is_ok_and(|host| verdict(pod, host) != Verdict::Keep)
            }
            Change::Deleted(_) | Change::Undecodable(_) => false,
        })
        .watches_changes(Watch::of(&nodes), move |change| match change {
            Change::Added(node, _) => {
                missing.lock().nodes.remove(name(node));
                on_node(&by_place, node, is_out_of_service(node))
            }
            Change::Deleted(deleted) => on_node_named(&by_place, deleted.key().name()),
            Change::Undecodable(_) => Vec::new(),
            Change::Updated { old, new } => {
                let was_out = old.object().is_some_and(|old| is_out_of_service(old));
                on_node(&by_place, new, is_out_of_service(new) && !was_out)
            }
        });
    manager.controller(controller)
}

async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, Error> {
    let Some(pod) = cx.pods.find(&key)? else {
        cx.missing.lock().forget(&key);
        return Ok(Action::AwaitChange);
    };
    match verdict(&pod, host(&pod, &cx.nodes)?) {
        Verdict::Delete => cx.delete(&pod, None).await?,
        Verdict::DeleteAfterQuarantine => return cx.delete_after_quarantine(&pod).await,
        Verdict::DeleteIfTooMany => return cx.delete_surplus().await,
        Verdict::Keep => {}
    }
    Ok(Action::AwaitChange)
}

fn verdict(pod: &Pod, host: Host) -> Verdict {
    let is_terminating = pods::is_terminating(pod);
    // Only finalizers are left to be removed.
    let is_done = is_terminating && pod.metadata.deletion_grace_period_seconds == Some(0) && pods::is_terminal(pod);
    match host {
        _ if is_done => Verdict::Keep,
        Host::Absent => Verdict::DeleteAfterQuarantine,
        Host::OutOfService | Host::Unassigned if is_terminating => Verdict::Delete,
        Host::OutOfService | Host::Present | Host::Unassigned if is_terminated(pod) => Verdict::DeleteIfTooMany,
        Host::OutOfService | Host::Present | Host::Unassigned => Verdict::Keep,
    }
}

/// Whether a Pod counts as terminated.
fn is_terminated(pod: &Pod) -> bool {
    !matches!(pods::phase(pod), "Pending" | "Running" | "Unknown")
}

fn host(pod: &Pod, nodes: &Lister<Node>) -> Result<Host, LookupError> {
    let Some(name) = node_name(pod) else { return Ok(Host::Unassigned) };
    Ok(match nodes.find(&ObjectKey::cluster(name))? {
        Some(node) if is_out_of_service(&node) => Host::OutOfService,
        Some(_) => Host::Present,
        None => Host::Absent,
    })
}

fn places(pod: &Pod) -> Vec<IndexKey> {
    let node = node_name(pod).map(|name| IndexKey::Node(name.to_owned()));
    node.into_iter().chain(is_terminated(pod).then_some(IndexKey::Terminated)).collect()
}

fn is_out_of_service(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let is_ready = conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    !is_ready && taints.iter().any(|taint| taint.key == OUT_OF_SERVICE)
}

fn name(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

fn on_node(by_place: &Index<Pod, IndexKey>, node: &Node, is_asked: bool) -> Vec<ObjectKey> {
    if is_asked { on_node_named(by_place, name(node)) } else { Vec::new() }
}

fn on_node_named(by_place: &Index<Pod, IndexKey>, node: &str) -> Vec<ObjectKey> {
    // Until the caches are filled, each Pod is checked when it is added.
    by_place.keys(&IndexKey::Node(node.to_owned())).unwrap_or_default()
}

// === impl Context ===

impl Context {
    async fn delete_after_quarantine(&self, pod: &Pod) -> Result<Action, Error> {
        let node = node_name(pod).unwrap_or_default();
        let now = Instant::now();
        let is_used = |node: &str| !on_node_named(&self.by_place, node).is_empty();
        let left = self.missing.lock().left(node, pod, now, is_used);
        if !left.is_zero() {
            return Ok(Action::RequeueAfter(left));
        }
        // The cache may lag behind.
        let found = Api::<Node>::all(self.client.clone()).get_metadata_opt(node).await;
        if found.map_err(Refused::to(format!("read the node {node:?}")))?.is_none() {
            tracing::debug!(pod = %ObjectKey::of(pod), node, "the node of the pod is gone");
            self.delete(pod, Some(disruption(pod, (self.clock)()))).await?;
            self.missing.lock().forget(&ObjectKey::of(pod));
        }
        Ok(Action::AwaitChange)
    }

    /// Deletes the oldest terminated Pods beyond the threshold.
    async fn delete_surplus(&self) -> Result<Action, Error> {
        {
            let mut surplus = self.surplus.lock();
            surplus.at_most = surplus.at_most.saturating_add(1);
            if surplus.at_most <= TERMINATED_MAX {
                return Ok(Action::AwaitChange);
            }
            surplus.at_most = self.by_place.keys(&IndexKey::Terminated)?.len();
            if surplus.at_most <= TERMINATED_MAX {
                return Ok(Action::AwaitChange);
            }
            let now = Instant::now();
            let elapsed = surplus.deleted.map(|deleted| now.saturating_duration_since(deleted));
            if let Some(left) = elapsed.and_then(|elapsed| SURPLUS_PERIOD.checked_sub(elapsed)) {
                return Ok(Action::RequeueAfter(left));
            }
            surplus.deleted = Some(now);
        }
        let pods = beyond(self.by_place.get(&IndexKey::Terminated)?, TERMINATED_MAX);
        tracing::info!(n_pods = pods.len(), "deleting pods that have ended");
        for pod in pods {
            self.delete(&pod, None).await?;
        }
        Ok(Action::AwaitChange)
    }

    /// Deletes a Pod without a grace period. A Pod that has not terminated is set to Failed first, because no kubelet
    /// is left to do so.
    async fn delete(&self, pod: &Pod, condition: Option<Value>) -> Result<(), Error> {
        let key = ObjectKey::of(pod);
        let pods = Api::<Pod>::namespaced(self.client.clone(), key.namespace().unwrap_or_default());
        if !pods::is_terminal(pod) {
            let conditions: Vec<Value> = condition.into_iter().collect();
            let mut status = json!({"phase": "Failed", "conditions": conditions});
            if conditions.is_empty() {
                status = json!({"phase": "Failed"});
            }
            if let Some(generation) = pod.metadata.generation {
                status["observedGeneration"] = generation.into();
            }
            let patch = Patch::Strategic(json!({"metadata": {"uid": pod.metadata.uid}, "status": status}));
            match pods.patch_status(key.name(), &PatchParams::default(), &patch).await {
                Ok(_) => {}
                Err(error) if refusal::is_outdated(&error) => return Ok(()),
                Err(error) => return Err(Refused::to(format!("say that the pod {key} has failed"))(error).into()),
            }
        }
        let preconditions = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
        let params = DeleteParams::default().grace_period(0).preconditions(preconditions);
        match pods.delete(key.name(), &params).await {
            Ok(_) => Ok(()),
            Err(error) if refusal::is_outdated(&error) => Ok(()),
            Err(error) => Err(Refused::to(format!("delete the pod {key}"))(error).into()),
        }
    }
}

/// The condition of a Pod whose node is gone.
fn disruption(pod: &Pod, now: Timestamp) -> Value {
    let known = pods::condition(pod, "DisruptionTarget").filter(|known| known.status == "True");
    let since = known.and_then(|known| known.last_transition_time.clone());
    json!({
        "type": "DisruptionTarget",
        "status": "True",
        "observedGeneration": pod.metadata.generation,
        "reason": "DeletionByPodGC",
        "message": "PodGC: node no longer exists",
        "lastTransitionTime": since.unwrap_or(Time(clock::whole_seconds(now))),
    })
}

/// All Pods but the last `n_kept` in the order of deletion: evicted Pods first, then the oldest.
fn beyond(mut pods: Vec<Arc<Pod>>, n_kept: usize) -> Vec<Arc<Pod>> {
    let n_surplus = pods.len().saturating_sub(n_kept);
    let is_evicted = |pod: &Pod| {
        let reason = pod.status.as_ref().and_then(|status| status.reason.as_deref());
        pods::phase(pod) == "Failed" && reason == Some("Evicted")
    };
    pods.sort_by_cached_key(|pod| {
        let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (Reverse(is_evicted(pod)), created, pod.metadata.name.clone())
    });
    pods.truncate(n_surplus);
    pods
}

// === impl Missing ===

impl Missing {
    /// How long a Pod on a missing node has to wait.
    fn left(&mut self, node: &str, pod: &Pod, now: Instant, is_used: impl Fn(&str) -> bool) -> Duration {
        if self.nodes.len() >= MISSING_MAX && !self.nodes.contains_key(node) {
            self.nodes.retain(|node, _| is_used(node));
        }
        let begin = || Quarantine { since: now, pods: HashMap::new() };
        let quarantine = self.nodes.entry(node.to_owned()).or_insert_with(begin);
        let (key, uid) = (ObjectKey::of(pod), pod.metadata.uid.clone().unwrap_or_default());
        if quarantine.left(now).is_zero() {
            if quarantine.pods.get(&key) == Some(&uid) {
                return Duration::ZERO;
            }
            *quarantine = begin();
        }
        quarantine.pods.insert(key, uid);
        quarantine.left(now)
    }

    /// Forgets a Pod that is gone. The quarantine of its node ends with the last Pod.
    fn forget(&mut self, pod: &ObjectKey) {
        self.nodes.retain(|_, quarantine| quarantine.pods.remove(pod).is_none() || !quarantine.pods.is_empty());
    }
}

// === impl Quarantine ===

impl Quarantine {
    fn left(&self, now: Instant) -> Duration {
        QUARANTINE.saturating_sub(now.saturating_duration_since(self.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::PodStatus;

    fn pod(name: &str, phase: &str, second: i64) -> Pod {
        let mut pod =
            Pod { status: Some(PodStatus { phase: Some(phase.to_owned()), ..PodStatus::default() }), ..Pod::default() };
        pod.metadata.name = Some(name.to_owned());
        pod.metadata.creation_timestamp = Some(Time(Timestamp::from_second(second).unwrap()));
        pod
    }

    fn terminating(phase: &str, grace: i64) -> Pod {
        let mut pod = pod("a", phase, 0);
        pod.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        pod.metadata.deletion_grace_period_seconds = Some(grace);
        pod
    }

    #[test]
    fn what_terminates_goes_where_no_kubelet_will_end_it() {
        for (host, expected) in [
            (Host::Absent, Verdict::DeleteAfterQuarantine),
            (Host::OutOfService, Verdict::Delete),
            (Host::Present, Verdict::Keep),
            (Host::Unassigned, Verdict::Delete),
        ] {
            assert_eq!(verdict(&terminating("Running", 30), host), expected, "{host:?}");
            assert_eq!(verdict(&terminating("Failed", 0), host), Verdict::Keep, "{host:?}");
        }
    }

    #[test]
    fn what_runs_stays_and_what_has_ended_is_counted() {
        for host in [Host::OutOfService, Host::Present, Host::Unassigned] {
            assert_eq!(verdict(&pod("a", "Running", 0), host), Verdict::Keep, "{host:?}");
            assert_eq!(verdict(&pod("a", "Succeeded", 0), host), Verdict::DeleteIfTooMany, "{host:?}");
        }
        assert_eq!(verdict(&pod("a", "Running", 0), Host::Absent), Verdict::DeleteAfterQuarantine);
    }

    #[test]
    fn a_pod_that_comes_to_a_missing_node_after_the_quarantine_waits_again() {
        let (mut missing, start) = (Missing::default(), Instant::now());
        let mut left = |name: &str, second: u64| {
            missing.left("ghost", &pod(name, "Running", 0), start + Duration::from_secs(second), |_| true).as_secs()
        };
        assert_eq!((left("first", 0), left("second", 30)), (40, 10));
        assert_eq!((left("first", 40), left("second", 41)), (0, 0));
        assert_eq!((left("late", 45), left("late", 80), left("late", 85)), (40, 5, 0));
    }

    #[test]
    fn a_missing_node_is_forgotten_with_its_last_pod() {
        let (mut missing, now) = (Missing::default(), Instant::now());
        for name in ["first", "second"] {
            missing.left("ghost", &pod(name, "Running", 0), now, |_| true);
        }
        missing.forget(&ObjectKey::of(&pod("first", "Running", 0)));
        assert_eq!(missing.nodes.len(), 1);
        missing.forget(&ObjectKey::of(&pod("second", "Running", 0)));
        assert!(missing.nodes.is_empty());
    }

    #[test]
    fn evicted_pods_go_first_and_then_the_oldest() {
        let mut evicted = pod("evicted", "Failed", 9);
        evicted.status.as_mut().unwrap().reason = Some("Evicted".to_owned());
        let all = [pod("new", "Failed", 5), pod("b", "Succeeded", 1), evicted, pod("a", "Succeeded", 1)];
        let gone = |n_kept| -> Vec<String> {
            let pods = beyond(all.iter().cloned().map(Arc::new).collect(), n_kept);
            pods.iter().filter_map(|pod| pod.metadata.name.clone()).collect()
        };
        assert_eq!(gone(1), ["evicted", "a", "b"]);
        assert_eq!(gone(3), ["evicted"]);
        assert!(gone(4).is_empty() && gone(9).is_empty());
    }
}
