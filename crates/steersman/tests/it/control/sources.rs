//! Sources of keys besides a controller's own objects.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use serde_json::{Value, json};
use steersman::cache::Change;
use steersman::controller::Watch;
use steersman::owners::OwnedBy;
use steersman::queue::Priority;
use steersman::{Action, BoxError, Controller, InformerFactory, Lister, ObjectKey, Scope, predicates};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use crate::control::controller::{Script, start, start_of};
use crate::server::{Server, settle};

const DEPLOYMENTS: &str = "/apis/apps/v1/deployments";

fn deployment(namespace: &str, label: &str, owners: &[(&str, bool)]) -> Value {
    let owners: Vec<Value> = owners
        .iter()
        .map(|(name, is_controller)| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": name, "controller": is_controller})
        })
        .collect();
    json!({"metadata": {"namespace": namespace, "name": "child", "labels": {"run": label}, "ownerReferences": owners}})
}

fn key_in_label(deployment: &Deployment) -> Vec<ObjectKey> {
    let label = deployment.metadata.labels.as_ref().and_then(|labels| labels.get("run"));
    label.into_iter().map(|name| ObjectKey::namespaced("a", name)).collect()
}

#[tokio::test(start_paused = true)]
async fn every_owner_runs_where_all_owners_count() {
    let all = |controller: Controller<ConfigMap>| controller.owns_with::<Deployment>(Scope::All, OwnedBy::Any);
    let rig = start(Script::default(), Server::new(), all).await;
    rig.server.put_raw(DEPLOYMENTS, deployment("a", "", &[("x", true), ("y", false)]));
    settle().await;
    assert_eq!(rig.scripted.take_runs(), ["a/x", "a/y"]);
    rig.server.put_raw(DEPLOYMENTS, deployment("a", "", &[("y", false), ("z", false)]));
    settle().await;
    assert_eq!(rig.scripted.take_runs(), ["a/x", "a/y", "a/z"]);
    rig.finish().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_owned_is_watched_in_the_scope_of_the_owners() {
    let server = Server::new();
    server.put_raw(DEPLOYMENTS, deployment("a", "", &[("x", true)]));
    server.put_raw(DEPLOYMENTS, deployment("b", "", &[("x", true)]));
    let owns = |controller: Controller<ConfigMap>| controller.owns::<Deployment>();
    let rig = start_of(Script::default(), server, Scope::Namespace("a".to_owned()), owns).await;
    assert_eq!(rig.scripted.take_runs(), ["a/x"]);
    rig.finish().await.unwrap();
}

/// The lister of the reconciler of the next test, and the results of its reads.
struct Reads {
    configs: Lister<ConfigMap>,
    deployments: Lister<Deployment>,
    found: Mutex<Vec<String>>,
}

async fn read(key: ObjectKey, cx: &Arc<Reads>) -> Result<Action, BoxError> {
    let config = cx.configs.get(&key)?;
    let found = format!("{key} {} {}", config.data.as_ref().unwrap()["value"], cx.deployments.list()?.len());
    cx.found.lock().push(found);
    Ok(Action::AwaitChange)
}

#[tokio::test(start_paused = true)]
async fn an_informer_says_what_is_watched_for_the_controller_and_its_readers() {
    let server = Server::new();
    server.put("a/x", "1");
    server.put("b/x", "1");
    server.put_raw(DEPLOYMENTS, deployment("a", "x", &[]));
    server.put_raw(DEPLOYMENTS, deployment("b", "x", &[("x", true)]));
    let factory = InformerFactory::new(server.client());
    let configs = factory.informer::<ConfigMap>(Scope::Namespace("a".to_owned()));
    let deployments = factory.informer::<Deployment>(Scope::All);
    let reads =
        Arc::new(Reads { configs: configs.lister(), deployments: deployments.lister(), found: Mutex::default() });
    let all = Watch::of(&configs).when(|change| !matches!(change, Change::Deleted(_)));
    let controller = Controller::of(all, read, Arc::clone(&reads)).watches(&deployments, key_in_label);
    assert_eq!(controller.informer(&factory).selection(), configs.selection());
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (stop, factory) = (stop.clone(), factory.clone());
        async move { controller.run(&factory, stop).await }
    });
    settle().await;
    assert_eq!(reads.found.lock().drain(..).collect::<Vec<_>>(), ["a/x 1 2"]);
    server.put("a/x", "2");
    server.put("b/x", "2");
    settle().await;
    assert_eq!(reads.found.lock().drain(..).collect::<Vec<_>>(), ["a/x 2 2"]);
    assert_eq!(server.n_watches(), 2, "one for each informer");
    stop.cancel();
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_watch_has_predicates_of_its_own_and_all_must_pass() {
    let rig = start(Script::default(), Server::new(), |controller| {
        let watch = Watch::new(Scope::All)
            .when(predicates::labels_changed())
            .when(|change: &Change<'_, Deployment>| !matches!(change, Change::Added(..)));
        controller.watches(watch, key_in_label)
    })
    .await;
    rig.server.put_raw(DEPLOYMENTS, deployment("a", "x", &[]));
    rig.server.put_raw(DEPLOYMENTS, deployment("a", "x", &[("z", true)]));
    settle().await;
    assert_eq!(rig.scripted.take_runs(), [""; 0], "added, and then changed without its labels");
    rig.server.put_raw(DEPLOYMENTS, deployment("a", "y", &[]));
    settle().await;
    assert_eq!(rig.scripted.take_runs(), ["a/x", "a/y"]);
    rig.server.put("a/other", "1");
    settle().await;
    assert_eq!(rig.scripted.take_runs(), ["a/other"], "the controller's own objects are not filtered");
    rig.finish().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_map_may_look_at_the_change_as_a_whole() {
    let rig = start(Script::default(), Server::new(), |controller| {
        controller.watches_changes::<Deployment>(Scope::All, |change| match change {
            Change::Updated { old, .. } => key_in_label(old.object().unwrap()),
            _ => Vec::new(),
        })
    })
    .await;
    rig.server.put_raw(DEPLOYMENTS, deployment("a", "x", &[]));
    rig.server.put_raw(DEPLOYMENTS, deployment("a", "y", &[]));
    settle().await;
    assert_eq!(rig.scripted.take_runs(), ["a/x"]);
    rig.finish().await.unwrap();
}

/// The order in which keys ran, and the gate that the key `gate` waits for.
#[derive(Default)]
struct Order {
    runs: Mutex<Vec<String>>,
    gate: Notify,
}

async fn in_order(key: ObjectKey, order: &Arc<Order>) -> Result<Action, Infallible> {
    order.runs.lock().push(key.name().to_owned());
    if key.name() == "gate" {
        order.gate.notified().await;
    }
    Ok(Action::AwaitChange)
}

#[tokio::test(start_paused = true)]
async fn each_source_has_a_priority_and_what_was_there_before_comes_last() {
    let (server, order) = (Server::new(), Arc::new(Order::default()));
    server.put_raw(DEPLOYMENTS, deployment("a", "there", &[]));
    let (sender, receiver) = mpsc::channel(1);
    let keys = futures::stream::unfold(receiver, |mut receiver| async {
        Some((ObjectKey::cluster(receiver.recv().await?), receiver))
    });
    let controller = Controller::<ConfigMap>::new(in_order, Arc::clone(&order))
        .watches(Watch::<Deployment>::new(Scope::All).priority(Priority::High), key_in_label)
        .priority(Priority::Low)
        .keys_from_with(keys, Priority::Normal);
    controller.queue().add_with(ObjectKey::cluster("gate"), Priority::High);
    let factory = InformerFactory::new(server.client());
    let task = tokio::spawn(async move { controller.run(&factory, CancellationToken::new()).await });
    settle().await;
    assert_eq!(*order.runs.lock(), ["gate"]);
    // While the only worker is busy, keys come from all sources, the least urgent first.
    server.put("a/own", "1");
    settle().await;
    sender.send("streamed").await.unwrap();
    settle().await;
    server.put_raw(DEPLOYMENTS, deployment("b", "changed", &[]));
    settle().await;
    order.gate.notify_one();
    settle().await;
    assert_eq!(*order.runs.lock(), ["gate", "changed", "streamed", "there", "own"]);
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_keys_runs_them_and_is_dropped_with_the_controller() {
    let (sender, receiver) = mpsc::channel(1);
    let keys = futures::stream::unfold(receiver, |mut receiver| async {
        let name: &str = receiver.recv().await?;
        Some((ObjectKey::cluster(name), receiver))
    });
    let broken = futures::stream::once(async { panic!("scripted") });
    let rig = start(Script::default(), Server::new(), |controller| {
        controller.keys_from(keys).keys_from(broken).keys_from(futures::stream::empty())
    })
    .await;
    for name in ["one", "two"] {
        tokio::time::timeout(Duration::from_secs(60), sender.send(name)).await.unwrap().unwrap();
    }
    settle().await;
    assert_eq!(rig.scripted.take_runs(), ["one", "two"]);
    rig.finish().await.unwrap();
    assert!(sender.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_keys_is_not_read_before_the_workers_start() {
    let server = Server::new();
    server.serve(DEPLOYMENTS, false);
    let ticks = futures::stream::repeat(()).then(|()| tokio::time::sleep(Duration::from_secs(60)));
    let keys = ticks.map(|()| ObjectKey::cluster("tick"));
    let rig =
        start(Script::default(), server, |controller| controller.owns::<Deployment>().keys_from(keys.boxed())).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(rig.scripted.take_runs(), [""; 0]);
    rig.server.serve(DEPLOYMENTS, true);
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(rig.scripted.take_runs().len() >= 3);
    rig.finish().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_controller_of_several_namespaces_watches_what_it_owns_there() {
    let server = Server::new();
    for namespace in ["a", "b", "c"] {
        server.put_raw(DEPLOYMENTS, deployment(namespace, "", &[("x", true)]));
    }
    let owns = |controller: Controller<ConfigMap>| controller.owns::<Deployment>();
    let rig = start_of(Script::default(), server, Scope::namespaces(["a", "b"]), owns).await;
    assert_eq!(rig.scripted.take_runs(), ["a/x", "b/x"]);
    rig.server.put_raw(DEPLOYMENTS, deployment("b", "changed", &[("x", true)]));
    rig.server.put_raw(DEPLOYMENTS, deployment("c", "changed", &[("x", true)]));
    settle().await;
    assert_eq!(rig.scripted.take_runs(), ["b/x"]);
    rig.finish().await.unwrap();
}
