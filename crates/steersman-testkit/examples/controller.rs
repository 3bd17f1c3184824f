//! A whole controller: it keeps a ConfigMap with a count of pods in every namespace that has a certain label.
//!
//! The same code runs against any Kubernetes: pass it `steersman::client(..)` instead of the control plane's client,
//! and `steersman::shutdown_signal()` instead of the `end` used here.

use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Pod};
use kube::Api;
use kube::api::ListParams;
use serde_json::json;
use steersman::cache::Selection;
use steersman::events::{EventRecorder, EventType};
use steersman::{
    Action, Controller, Lister, LookupError, Manager, ManagerError, ObjectKey, ReconcileError, Scope, WriteError, patch,
};
use steersman_testkit::ControlPlane;

struct Context {
    client: kube::Client,
    namespaces: Lister<Namespace>,
    pods: Lister<Pod>,
    events: EventRecorder,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("cannot read the namespace")]
    Read(#[from] LookupError),
    #[error("cannot write the count")]
    Write(#[from] WriteError),
}

impl ReconcileError for Error {}

async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, Error> {
    let namespace = match cx.namespaces.get(&key) {
        Ok(namespace) => namespace,
        // The namespace was deleted, and its ConfigMap with it: nothing to do.
        Err(LookupError::NotFound { .. }) => return Ok(Action::AwaitChange),
        Err(error) => return Err(error.into()),
    };
    let n_pods = cx.pods.list_in(key.name())?.len();
    let count = ObjectKey::namespaced(key.name(), "pod-count");
    let wanted = json!({"data": {"pods": n_pods.to_string()}});
    patch::apply::<ConfigMap>(&cx.client, &count, "pod-counter", patch::Force::Yes, &wanted).await?;
    cx.events.event(&*namespace, EventType::Normal, "Counted", "the pods of this namespace were counted");
    Ok(Action::AwaitChange)
}

/// Counts until `end` completes.
async fn run(client: kube::Client, end: impl Future<Output = ()>) -> Result<(), ManagerError> {
    let counted = Selection::new(Scope::All).labels("count-pods=true");
    let manager = Manager::new(client.clone());
    let events = EventRecorder::new(client.clone(), "pod-counter");
    let namespaces = manager.informers().informer::<Namespace>(counted);
    let pods = manager.informers().informer::<Pod>(Scope::All);
    let context = Context { client, namespaces: namespaces.lister(), pods: pods.lister(), events: events.clone() };
    let namespace_of = |pod: &Pod| pod.metadata.namespace.iter().map(|name| ObjectKey::cluster(name)).collect();
    let controller = Controller::of(&namespaces, reconcile, context).watches(&pods, namespace_of).workers(2);
    manager.elect("pod-counter", "default").controller(controller).run(end).await?;
    events.flush().await;
    Ok(())
}

const NAMESPACE: &str = "{kind: Namespace, apiVersion: v1, metadata: {name: shop, labels: {count-pods: 'true'}}}";
const PODS: &str = "
{kind: Pod, apiVersion: v1, metadata: {name: web, namespace: shop}, spec: {containers: [{name: c, image: web:1}]}}
---
{kind: Pod, apiVersion: v1, metadata: {name: db, namespace: shop}, spec: {containers: [{name: c, image: db:1}]}}
";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let plane = ControlPlane::start().await;
    let count = ObjectKey::namespaced("shop", "pod-count");
    let counted =
        |n: &'static str| move |config: &ConfigMap| config.data.as_ref().is_some_and(|data| data["pods"] == n);
    let story = async {
        plane.apply(NAMESPACE).await;
        plane.until(&count, counted("0")).await;
        plane.apply(PODS).await;
        plane.until(&count, counted("2")).await;
        println!("2 pods counted");
    };
    run(plane.client(), story).await?;

    let events = Api::<Event>::all(plane.client()).list(&ListParams::default()).await?;
    assert!(!events.items.is_empty() && events.items.iter().all(|event| event.reason.as_deref() == Some("Counted")));
    plane.stop().await;
    Ok(())
}

#[test]
fn the_pods_of_a_namespace_are_counted() {
    main().unwrap();
}
