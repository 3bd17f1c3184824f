//! Run it with `cargo run -p steersman --example pod_count`, then `kubectl label namespace default count-pods=true`.
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use serde_json::json;
use steersman::cache::Selection;
use steersman::events::{EventRecorder, EventType};
use steersman::{
    Action, ClientOptions, Controller, Lister, LookupError, Manager, ManagerError, ObjectKey, ReconcileError, Scope,
    WriteError, patch, shutdown_signal,
};

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
    patch::apply::<ConfigMap>(&cx.client, &count, "pod-count", patch::Force::Yes, &wanted).await?;
    cx.events.event(&*namespace, EventType::Normal, "Counted", "the pods of this namespace were counted");
    Ok(Action::AwaitChange)
}

pub(crate) async fn run(client: kube::Client, shutdown: impl Future<Output = ()>) -> Result<(), ManagerError> {
    let counted = Selection::new(Scope::All).labels("count-pods=true");
    let manager = Manager::new(client.clone());
    let events = EventRecorder::new(client.clone(), "pod-count");
    let namespaces = manager.informers().informer::<Namespace>(counted);
    let pods = manager.informers().informer::<Pod>(Scope::All);
    let context = Context { client, namespaces: namespaces.lister(), pods: pods.lister(), events: events.clone() };
    let namespace_of = |pod: &Pod| pod.metadata.namespace.iter().map(|name| ObjectKey::cluster(name)).collect();
    let controller = Controller::of(&namespaces, reconcile, context).watches(&pods, namespace_of).workers(2);
    let ended = manager.elect("pod-count", "default").controller(controller).run(shutdown).await;
    events.flush().await;
    ended
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = steersman::client(&ClientOptions::default()).await?;
    Ok(run(client, shutdown_signal()).await?)
}
