//! The requests of simulated nodes to the API server, each sent as the user of the node's kubelet.

use crate::kubelet::node;
use crate::kubelet::pod::references::{Found, Kind};
use crate::shared::refusal;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, PodStatus, Secret};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// The field manager of the writes.
const MANAGER: &str = "kubelet";
/// A node may read what a Pod refers to once the server has processed the binding, which may take a moment: the number
/// of attempts, and the pause between them.
const READS_MAX: u32 = 20;
const READ_WAIT: Duration = Duration::from_millis(50);

/// The outcome of a write.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It succeeded; the resourceVersion of the object now, if there is one.
    Done(Option<u64>),
    /// The object does not exist any more.
    Gone,
    /// It was refused, or there was no answer.
    Failed(kube::Error),
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() }
}

fn outcome(result: Result<Option<String>, kube::Error>) -> Outcome {
    match result {
        Ok(version) => Outcome::Done(version.and_then(|version| version.parse().ok())),
        // The name belongs to another object now.
        Err(error) if refusal::is_outdated(&error) => Outcome::Gone,
        Err(error) => Outcome::Failed(error),
    }
}

/// The optional fields of a Pod's status that only its node writes.
const OWN_FIELDS: [&str; 9] = [
    "containerStatuses",
    "ephemeralContainerStatuses",
    "hostIP",
    "hostIPs",
    "initContainerStatuses",
    "message",
    "podIP",
    "podIPs",
    "reason",
];

/// Writes the status of a Pod. Returns the Pod as the server has it afterwards.
pub(crate) async fn write_pod_status(
    client: Client,
    namespace: String,
    name: String,
    uid: String,
    status: &PodStatus,
    dropped_conditions: Vec<&'static str>,
) -> (Outcome, Option<Pod>) {
    let mut patch = json!({"metadata": {"uid": uid}, "status": status});
    if let Some(status) = patch.get_mut("status").and_then(Value::as_object_mut) {
        // A patch removes a field only if it is set to null.
        for key in OWN_FIELDS {
            status.entry(key).or_insert(Value::Null);
        }
        // Without the directive, the patch would keep addresses that others wrote.
        for list in ["hostIPs", "podIPs"] {
            if let Some(addresses) = status.get_mut(list).and_then(Value::as_array_mut) {
                addresses.push(json!({"$patch": "replace"}));
            }
        }
        if let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) {
            conditions.extend(dropped_conditions.iter().map(|type_| json!({"$patch": "delete", "type": type_})));
        }
    }
    let api = Api::<Pod>::namespaced(client, &namespace);
    match api.patch_status(&name, &params(), &Patch::Strategic(patch)).await {
        Ok(pod) => (outcome(Ok(pod.metadata.resource_version.clone())), Some(pod)),
        Err(error) => (outcome(Err(error)), None),
    }
}

pub(crate) async fn remove_pod(client: Client, namespace: String, name: String, uid: String) -> Outcome {
    let preconditions = Preconditions { uid: Some(uid), resource_version: None };
    let params = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() }.preconditions(preconditions);
    outcome(Api::<Pod>::namespaced(client, &namespace).delete(&name, &params).await.map(|_| None))
}

/// Creates a Node. An existing one of that name is no failure.
pub(crate) async fn register(client: Client, node: Value) -> Outcome {
    let node: Node = match serde_json::from_value(node) {
        Ok(node) => node,
        Err(error) => return Outcome::Failed(kube::Error::SerdeError(error)),
    };
    let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    match Api::<Node>::all(client).create(&params, &node).await {
        Ok(_) => Outcome::Done(None),
        Err(error) if refusal::exists_already(&error) => Outcome::Done(None),
        Err(error) => Outcome::Failed(error),
    }
}

pub(crate) async fn write_node_status(client: Client, name: String, patch: Value) -> Outcome {
    let result = Api::<Node>::all(client).patch_status(&name, &params(), &Patch::Strategic(patch)).await;
    outcome(result.map(|node| node.metadata.resource_version))
}

/// Writes taints as the node lifecycle controller does.
pub(crate) async fn write_taints(client: Client, name: String, patch: Value) -> Outcome {
    let result = Api::<Node>::all(client).patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
    outcome(result.map(|node| node.metadata.resource_version))
}

/// Renews the Lease of a node, or creates it.
pub(crate) async fn renew(client: Client, node: Value, name: String, now: Timestamp) -> Outcome {
    let api = Api::<Lease>::namespaced(client, node::LEASES);
    match api.patch(&name, &params(), &Patch::Merge(node::renewal(&name, now))).await {
        Ok(_) => return Outcome::Done(None),
        Err(error) if refusal::is_gone(&error) => {}
        Err(error) => return Outcome::Failed(error),
    }
    let lease: Lease = match serde_json::from_value(node) {
        Ok(lease) => lease,
        Err(error) => return Outcome::Failed(kube::Error::SerdeError(error)),
    };
    outcome(api.create(&PostParams::default(), &lease).await.map(|_| None))
}

/// Looks up the references of a Pod. An object that the node may not read counts as found, with all keys.
///
/// # Errors
/// When there was no answer, or an answer that may differ the next time.
pub(crate) async fn look_up(
    client: Client,
    namespace: String,
    wanted: BTreeSet<(Kind, String)>,
) -> Result<Found, kube::Error> {
    let mut found = Found::new();
    for (kind, name) in wanted {
        let keys = read(&client, &namespace, kind, &name).await;
        match keys {
            Ok(keys) => {
                found.insert((kind, name), keys);
            }
            Err(error) if !refusal::is_forbidden(&error) => return Err(error),
            Err(error) => {
                tracing::warn!(%namespace, name, error = refusal::message(&error), "a simulated node cannot read");
            }
        }
    }
    Ok(found)
}

async fn read(
    client: &Client,
    namespace: &str,
    kind: Kind,
    name: &str,
) -> Result<Option<BTreeSet<String>>, kube::Error> {
    let mut n_tries = 0;
    loop {
        let read = match kind {
            Kind::ConfigMap => {
                let found = Api::<ConfigMap>::namespaced(client.clone(), namespace).get_opt(name).await;
                found.map(|found| {
                    found.map(|one| {
                        let binary = one.binary_data.into_iter().flatten().map(|(key, _)| key);
                        one.data.into_iter().flatten().map(|(key, _)| key).chain(binary).collect()
                    })
                })
            }
            Kind::Secret => {
                let found = Api::<Secret>::namespaced(client.clone(), namespace).get_opt(name).await;
                found.map(|found| found.map(|one| one.data.into_iter().flatten().map(|(key, _)| key).collect()))
            }
        };
        n_tries += 1;
        match read {
            Err(error) if refusal::is_forbidden(&error) && n_tries < READS_MAX => {
                tokio::time::sleep(READ_WAIT).await;
            }
            read => return read,
        }
    }
}
