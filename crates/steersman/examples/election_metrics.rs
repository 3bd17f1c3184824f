//! One of several replicas works; all serve health and metrics: `curl localhost:8080/metrics`.
use std::net::SocketAddr;

use k8s_openapi::api::core::v1::Namespace;
use steersman::metrics::Metrics;
use steersman::metrics::prometheus_client::metrics::counter::Counter;
use steersman::{Action, BoxError, ClientOptions, Controller, Lister, Manager, ManagerError, ObjectKey, Scope};

struct Context {
    namespaces: Lister<Namespace>,
    looked_at: Counter,
}

async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, BoxError> {
    cx.namespaces.get(&key)?;
    cx.looked_at.inc();
    Ok(Action::AwaitChange)
}

/// A replica that counts in `metrics` and serves them on `address`. With port 0, [`Manager::address`] returns the real
/// one.
pub(crate) fn replica(
    client: kube::Client,
    metrics: Metrics,
    address: SocketAddr,
) -> Result<Manager, Box<dyn std::error::Error>> {
    let looked_at = Counter::default();
    metrics.register(|registry| registry.register("namespaces_looked_at", "Namespaces looked at", looked_at.clone()));
    let manager = Manager::new(client).with_metrics(metrics).serve(address)?;
    let namespaces = manager.informers().informer(Scope::All).lister();
    let controller = Controller::<Namespace>::new(reconcile, Context { namespaces, looked_at });
    Ok(manager.elect("namespace-counter", "default").controller(controller))
}

pub(crate) async fn run(manager: Manager, end: impl Future<Output = ()>) -> Result<(), ManagerError> {
    match manager.run(end).await {
        // Another replica leads now. It is best to start again as a new process, without any state.
        Err(ManagerError::LeadershipLost { lease }) => Err(ManagerError::LeadershipLost { lease }),
        ended => ended,
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let metrics = Metrics::new();
    // With this, requests to the API server are counted too.
    let options = ClientOptions::default().metrics(metrics.clone());
    let client = steersman::client(&options).await?;
    let manager = replica(client, metrics, SocketAddr::from(([0, 0, 0, 0], 8080)))?;
    Ok(run(manager, steersman::shutdown_signal()).await?)
}
