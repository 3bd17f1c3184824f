//! Creates the objects that every cluster has: the namespaces, the priority classes, the roles and bindings of the
//! system, the server's own Service, and its Lease. Objects that the server itself needs are made again if somebody
//! deletes them.

mod access;
mod lease;
mod own_service;

use crate::background::aggregation;
use crate::shared::operation::Operation;
use crate::shared::status::Failure;
use crate::state::State;
use crate::write::registry::{self, Change};
use futures::future;
use serde_json::json;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use steersman_kinds::builtin::SYSTEM_CLASSES;
use steersman_kinds::builtin::cluster::resource_metrics;
use steersman_kinds::catalog::Verb;
use steersman_machinery::value::set_at;
use steersman_machinery::{GroupResource, ObjectKey, Value};
use tokio::task::JoinHandle;

/// The interval at which the server checks the objects that it needs. Upstream checks its Service as often, and the
/// namespaces each minute.
const KEEP_INTERVAL: Duration = Duration::from_secs(10);

const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// The facts by which clients and other servers find and trust this one.
pub(crate) struct Found<'a> {
    /// `host:port` under which clients reach it.
    pub(crate) address: &'a str,
    /// The address at which other machines reach it.
    pub(crate) advertised: Option<IpAddr>,
    /// The certificate of the CA of its clients.
    pub(crate) client_ca: Option<&'a str>,
}

/// The time at which the server's objects are checked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Pass {
    Start,
    /// At intervals while the server runs.
    Periodic,
}

/// Creates the missing namespaces, which all other objects need.
///
/// # Errors
/// When the store refuses a write.
pub(crate) async fn namespaces(state: &State) -> Result<(), Failure> {
    future::try_join_all(NAMESPACES.map(|name| namespace(state, name))).await.map(|_| ())
}

/// Creates the other missing objects concurrently, so that they share commits of the store. Existing objects are not
/// written. Returns the task that renews the server's Lease.
///
/// # Errors
/// When the store refuses a write.
pub(crate) async fn start(state: &Arc<State>, found: &Found<'_>) -> Result<JoinHandle<()>, Failure> {
    let classes = SYSTEM_CLASSES.map(|(name, value, description)| class(state, name, value, description));
    let roles = async {
        future::try_join(access::reconcile(state), metrics_reader(state)).await?;
        aggregation::bring_up_to_date(state).await
    };
    let (lease, ..) = future::try_join5(
        Box::pin(lease::start(state, found.address)),
        Box::pin(future::try_join_all(classes)),
        Box::pin(own_service::reconcile(state, found, Pass::Start)),
        Box::pin(publish_client_ca(state, found.client_ca)),
        Box::pin(roles),
    )
    .await?;
    Ok(lease)
}

/// Restores the objects that the server needs if they were deleted or changed, until the server stops: its namespaces,
/// its Service with the range of its address and its endpoints, and the published CA of clients. Nothing is written
/// while all are as wanted.
pub(crate) fn keep(state: &Arc<State>, found: &Found<'_>) -> JoinHandle<()> {
    let (state, address, client_ca) = (state.clone(), found.address.to_owned(), found.client_ca.map(str::to_owned));
    let advertised = found.advertised;
    tokio::spawn(async move {
        // Both arms are cancel-safe: they have no state.
        let mut said = Vec::new();
        while tokio::select! { () = state.stopping() => false, () = tokio::time::sleep(KEEP_INTERVAL) => true } {
            let found = Found { address: &address, advertised, client_ca: client_ca.as_deref() };
            // A failure does not hold up the others.
            let outcomes = [
                namespaces(&state).await,
                own_service::reconcile(&state, &found, Pass::Periodic).await,
                publish_client_ca(&state, found.client_ca).await,
            ];
            let failures = outcomes.into_iter().filter_map(Result::err).map(|failure| failure.status.message);
            let failures: Vec<String> = failures.collect();
            for error in failures.iter().filter(|error| !said.contains(*error)) {
                tracing::warn!(error, "what the server needs could not be made again; trying every ten seconds");
            }
            said = failures;
        }
    })
}

async fn namespace(state: &State, name: &str) -> Result<(), Failure> {
    let namespace = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}});
    create(state, &GroupResource::new("", "namespaces"), &ObjectKey::cluster(name), namespace).await
}

async fn class(state: &State, name: &str, value: i64, description: &str) -> Result<(), Failure> {
    let class = json!({
        "kind": "PriorityClass", "apiVersion": "scheduling.k8s.io/v1", "metadata": {"name": name}, "value": value,
        "description": description,
    });
    let classes = GroupResource::new("scheduling.k8s.io", "priorityclasses");
    create(state, &classes, &ObjectKey::cluster(name), class).await
}

/// The role that lets viewers of a namespace read the usage of its Pods, as in metrics-server's manifest.
async fn metrics_reader(state: &State) -> Result<(), Failure> {
    if state.resource_metrics.is_none() {
        return Ok(());
    }
    let name = "system:aggregated-metrics-reader";
    let role = json!({
        "kind": "ClusterRole", "apiVersion": "rbac.authorization.k8s.io/v1",
        "metadata": {"name": name, "labels": {
            "rbac.authorization.k8s.io/aggregate-to-admin": "true",
            "rbac.authorization.k8s.io/aggregate-to-edit": "true",
            "rbac.authorization.k8s.io/aggregate-to-view": "true",
        }},
        "rules": [{
            "apiGroups": [resource_metrics::GROUP], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"],
        }],
    });
    let roles = GroupResource::new("rbac.authorization.k8s.io", "clusterroles");
    create(state, &roles, &ObjectKey::cluster(name), role).await
}

/// Publishes the CA of clients for servers that extend this one, so that they trust the same clients.
async fn publish_client_ca(state: &State, client_ca: Option<&str>) -> Result<(), Failure> {
    let Some(client_ca) = client_ca else { return Ok(()) };
    let configs = GroupResource::new("", "configmaps");
    let key = ObjectKey::namespaced("kube-system", "extension-apiserver-authentication");
    let config = json!({
        "kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": &*key.name, "namespace": "kube-system"},
        "data": {"client-ca-file": client_ca},
    });
    create(state, &configs, &key, config).await?;
    assign(state, &configs, &key, &|config| {
        set_at(config, &["data", "client-ca-file"], client_ca.into());
    })
    .await
}

/// Creates an object unless there is one under its key.
pub(crate) async fn create(
    state: &State,
    resource: &GroupResource,
    key: &ObjectKey,
    object: Value,
) -> Result<(), Failure> {
    let catalog = state.catalog();
    let Some(served) = catalog.find(&resource.group, "v1", &resource.resource) else { return Ok(()) };
    if state.get_own(resource, key).await?.is_some() {
        return Ok(());
    }
    let system = Operation::of_system(served, Verb::Create, state.now());
    let mut operation = system.on(Verb::Create, key);
    let mut object = object;
    operation.strategy().default(operation.version(), &mut object, &operation.budget)?;
    registry::write(state, &mut operation, &Change::Create(object)).await.map(|_| ())
}

/// Sets fields of an object that the server itself has made.
pub(crate) async fn assign(
    state: &State,
    resource: &GroupResource,
    key: &ObjectKey,
    assign: &(dyn Fn(&mut Value) + Send + Sync),
) -> Result<(), Failure> {
    let catalog = state.catalog();
    let Some(served) = catalog.find(&resource.group, "v1", &resource.resource) else { return Ok(()) };
    let system = Operation::of_system(served, Verb::Update, state.now());
    let assign = |object: &mut Value| {
        assign(object);
        Ok(())
    };
    registry::write(state, &mut system.on(Verb::Update, key), &Change::Assign(&assign)).await.map(|_| ())
}
