//! kill -9 in the middle of concurrent creates: acknowledged objects exist afterwards, and the cloud is brought into
//! agreement.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::support::kubectl::{self, Kubectl};
use crate::support::neutron::Neutron;
use crate::support::plane::Plane;

const WRITERS: usize = 200;
/// The number of acknowledged creates at which the process is killed. Many more are in flight.
const ACKNOWLEDGED_AT_KILL: usize = 20;

fn resource(group: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind))
}

fn network(index: usize) -> Value {
    json!({"spec": {"cidr": format!("10.77.{index}.0/24"), "gateway": format!("10.77.{index}.1")}})
}

/// Lets `WRITERS` clients create an object each concurrently, kills the server meanwhile, and returns the names of
/// those whose create was acknowledged.
#[tokio::main]
async fn create_until_killed(plane: Plane, resource: &ApiResource, body: fn(usize) -> Value) -> BTreeSet<String> {
    let kubeconfig = Kubeconfig::read_from(plane.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let client = Client::try_from(config).unwrap();
    let n_acknowledged = Arc::new(AtomicUsize::new(0));
    let enough = Arc::new(Notify::new());

    let mut writers = tokio::task::JoinSet::new();
    for index in 0..WRITERS {
        let api = Api::<DynamicObject>::namespaced_with(client.clone(), "default", resource);
        let object = DynamicObject::new(&format!("w-{index}"), resource).within("default").data(body(index));
        let (n_acknowledged, enough) = (Arc::clone(&n_acknowledged), Arc::clone(&enough));
        writers.spawn(async move {
            let created = api.create(&PostParams::default(), &object).await.ok()?;
            if n_acknowledged.fetch_add(1, Ordering::SeqCst) + 1 == ACKNOWLEDGED_AT_KILL {
                enough.notify_one();
            }
            created.metadata.name
        });
    }
    enough.notified().await;
    tokio::task::spawn_blocking(|| plane.kill()).await.unwrap();
    let acknowledged: BTreeSet<String> = writers.join_all().await.into_iter().flatten().collect();
    assert!(acknowledged.len() >= ACKNOWLEDGED_AT_KILL, "{} acknowledged", acknowledged.len());
    acknowledged
}

/// The names and statuses of the existing objects.
fn listed(kubectl: &Kubectl, kind: &str) -> Vec<(String, Value)> {
    let list = kubectl.json(&format!("get {kind}"));
    let items = list["items"].as_array().unwrap();
    items.iter().map(|item| (item["metadata"]["name"].as_str().unwrap().to_owned(), item["status"].clone())).collect()
}

#[track_caller]
fn check_all_there(kubectl: &Kubectl, kind: &str, acknowledged: &BTreeSet<String>) {
    let there: BTreeSet<String> = listed(kubectl, kind).into_iter().map(|(name, _)| name).collect();
    let lost: Vec<&String> = acknowledged.difference(&there).collect();
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
}

#[test]
fn acknowledged_objects_survive_kill() {
    let Some(program) = kubectl::program() else { return };
    let rounds = if std::env::var_os("STEERSMAN_LONG").is_some() { 20 } else { 2 };
    for round in 0..rounds {
        let home = tempfile::tempdir().unwrap();
        let plane = Plane::server(home.path(), &[]);
        let acknowledged = create_until_killed(
            plane,
            &resource("", "ConfigMap"),
            |index| json!({"data": {"index": index.to_string()}}),
        );
        let plane = Plane::server(home.path(), &[]);
        let kubectl = Kubectl::new(program.clone(), &plane.kubeconfig());
        check_all_there(&kubectl, "configmaps", &acknowledged);
        // The store continues at its last revision: a later write has a later version than all before it.
        kubectl.ok("create configmap later");
        let versions: Vec<(u64, bool)> = kubectl.json("get configmaps")["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| &item["metadata"])
            .map(|meta| (meta["resourceVersion"].as_str().unwrap().parse().unwrap(), meta["name"] == "later"))
            .collect();
        let latest = versions.iter().max().unwrap();
        assert!(latest.1, "round {round}: {versions:?}");
        assert_eq!(versions.iter().map(|(version, _)| version).collect::<BTreeSet<_>>().len(), versions.len());
        plane.stop();
    }
}

/// The real Neutron answers some twenty requests per second, and fewer beside other tests.
#[track_caller]
fn wait_until_all_are_ready(kubectl: &Kubectl) {
    let wait = "wait --for=condition=Ready networks --all --timeout=100s";
    let ready = (0..3).any(|_| kubectl.run(wait).status.success());
    assert!(ready, "{}", kubectl.ok("get networks -o wide"));
}

/// Networks are created until the kill, then brought into agreement by the next process. Returns their statuses.
fn networks_after_kill(home: &Path, flags: &[&str]) -> Option<Vec<Value>> {
    let program = kubectl::program()?;
    let plane = Plane::up(home, flags);
    Kubectl::new(program.clone(), &plane.kubeconfig()).ok("apply -f manifests/crd/network-v1.yaml");
    let acknowledged = create_until_killed(plane, &resource("samplecrd.k8s.io", "Network"), network);

    let plane = Plane::up(home, flags);
    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    check_all_there(&kubectl, "networks", &acknowledged);
    wait_until_all_are_ready(&kubectl);
    let statuses: Vec<Value> = listed(&kubectl, "networks").into_iter().map(|(_, status)| status).collect();
    for field in ["networkID", "subnetID"] {
        assert_eq!(ids(&statuses, field).len(), statuses.len(), "every network has a {field} of its own");
    }
    plane.stop();
    Some(statuses)
}

fn ids(values: &[Value], field: &str) -> BTreeSet<String> {
    values.iter().map(|value| value[field].as_str().unwrap().to_owned()).collect()
}

#[test]
fn simulated_cloud_agrees_after_kill() {
    let home = tempfile::tempdir().unwrap();
    let Some(statuses) = networks_after_kill(home.path(), &[]) else { return };
    // The simulated cloud is on disk too: another start finds every network again and creates none.
    let Some(program) = kubectl::program() else { return };
    let plane = Plane::up(home.path(), &[]);
    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    wait_until_all_are_ready(&kubectl);
    let again: Vec<Value> = listed(&kubectl, "networks").into_iter().map(|(_, status)| status).collect();
    assert_eq!(ids(&again, "networkID"), ids(&statuses, "networkID"));
    plane.stop();
}

#[test]
fn real_neutron_agrees_after_kill() {
    let Some(neutron) = Neutron::start() else { return };
    let home = tempfile::tempdir().unwrap();
    let Some(statuses) = networks_after_kill(home.path(), &neutron.flags()) else { return };
    // Exactly one network and one subnet each: none is lost, none is duplicated.
    assert_eq!(ids(&neutron.networks(), "id"), ids(&statuses, "networkID"));
    assert_eq!(ids(&neutron.subnets(), "id"), ids(&statuses, "subnetID"));
    let cidrs = neutron.subnets().iter().map(|subnet| subnet["cidr"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(cidrs.iter().collect::<BTreeSet<_>>().len(), cidrs.len(), "{cidrs:?}");
}
