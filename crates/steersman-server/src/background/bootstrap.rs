//! Creates the objects that every cluster has: the namespaces, the priority classes, the roles and bindings of the
//! system, the server's own Service, and its Lease. Objects that the server itself needs are made again if somebody
//! deletes them.

mod access;
mod advertised;
mod lease;
mod master_leases;
mod own_service;
mod servers;

use crate::access::authn::TrustedProxies;
use crate::background::aggregation;
use crate::background::bootstrap::lease::OwnLease;
use crate::background::bootstrap::servers::Servers;
use crate::shared::operation::Operation;
use crate::shared::status::Failure;
use crate::state::State;
use crate::write::registry::{self, Change};
use futures::future;
use http::HeaderName;
use serde_json::{Map, json};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use steersman_kinds::builtin::SYSTEM_CLASSES;
use steersman_kinds::builtin::cluster::resource_metrics;
use steersman_kinds::catalog::Verb;
use steersman_machinery::value::{set_at, str_at};
use steersman_machinery::{GroupResource, ObjectKey, Value};
use steersman_storage::WriteError;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// The interval at which the server checks the objects that it needs. Upstream checks its Service as often, and the
/// namespaces each minute.
const KEEP_INTERVAL: Duration = Duration::from_secs(10);

/// How long a server that ends tries to remove its address.
const LEAVING_MAX: Duration = Duration::from_secs(10);

/// The server's port if its address has none.
const PORT_USUAL: u16 = 6443;

/// The key of the proxies' CA among what is published for other servers.
const PROXIES_CA: &str = "requestheader-client-ca-file";

const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// The facts by which clients and other servers find and trust this one.
#[derive(Debug)]
pub(crate) struct ServerFacts {
    own: OwnLease,
    /// All servers on the store, as this one has seen them.
    servers: Servers,
    port: u16,
    /// The certificate of the CA of its clients.
    client_ca: Option<String>,
    /// The proxies that other servers are to believe.
    proxies: Option<TrustedProxies>,
}

impl ServerFacts {
    /// The facts about a server on a host, at `host:port`; `advertised` is the address at which other machines reach it.
    pub(crate) fn new(
        host: &str,
        address: &str,
        advertised: Option<IpAddr>,
        client_ca: Option<String>,
        proxies: Option<TrustedProxies>,
    ) -> ServerFacts {
        let port = address.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(PORT_USUAL);
        let advertised = advertised.filter(own_service::is_reachable).map(|ip| SocketAddr::new(ip, port));
        ServerFacts {
            own: OwnLease::new(host, address, advertised),
            servers: Servers::default(),
            port,
            client_ca,
            proxies,
        }
    }
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
pub(crate) async fn start(state: &Arc<State>, found: &mut ServerFacts) -> Result<JoinHandle<()>, Failure> {
    let classes = SYSTEM_CLASSES.map(|(name, value, description)| class(state, name, value, description));
    let roles = async {
        future::try_join(access::reconcile(state), metrics_reader(state)).await?;
        aggregation::bring_up_to_date(state).await
    };
    keep_known(state, found).await?;
    let addresses = addresses(state, found)?;
    let found = &*found;
    let (lease, ..) = future::try_join5(
        Box::pin(found.own.start(state)),
        Box::pin(future::try_join_all(classes)),
        Box::pin(own_service::reconcile(state, &addresses, found.port, Pass::Start)),
        Box::pin(publish_trust(state, found)),
        Box::pin(roles),
    )
    .await?;
    Ok(lease)
}

/// Restores the objects that the server needs if they were deleted or changed, until the server stops: its namespaces,
/// its Service with the range of its address and its endpoints, and the published CA of clients. Nothing is written
/// while all are as wanted. A server that shares its store leaves the endpoints when it is withdrawn.
pub(crate) fn keep(state: &Arc<State>, mut found: ServerFacts) -> JoinHandle<()> {
    let state = state.clone();
    tokio::spawn(async move {
        // A pass may wait long for a store that is away; the next start makes again what was dropped in the middle.
        if !state.store.is_shared() {
            state.stopping_token().run_until_cancelled(keep_on(&state, &mut found)).await;
            return;
        }
        // It is withdrawn before it stops.
        tokio::select! {
            () = state.withdrawn() => {}
            () = keep_on(&state, &mut found) => {}
        }
        let left = async {
            state.sync().await?;
            let now = Instant::now();
            if let Some(own) = found.own.advertised {
                master_leases::remove(&state, own.ip()).await?;
                state.sync().await?;
            }
            found.servers.look(&state, now)?;
            let mut others = found.servers.addresses(&found.own.key, None, now);
            others.extend(master_leases::others(&state, &others, found.port)?);
            advertised::remove(&state, &found.own.key).await?;
            own_service::remove(&state, &lease::leases(), &found.own.key).await?;
            own_service::point_at(&state, &others).await
        };
        let why = match tokio::time::timeout(LEAVING_MAX, left).await {
            Ok(Ok(())) => return,
            Ok(Err(failure)) => failure.status.message,
            Err(_) => format!("the store did not answer within {} s", LEAVING_MAX.as_secs()),
        };
        tracing::warn!(error = why, "other servers will find out later that this one has ended");
    })
}

/// Restores what the server needs every ten seconds, and never ends.
async fn keep_on(state: &Arc<State>, found: &mut ServerFacts) {
    let mut said = Vec::new();
    loop {
        tokio::time::sleep(KEEP_INTERVAL).await;
        // A failure does not hold up the others.
        let outcomes = [namespaces(state).await, keep_service(state, found).await, publish_trust(state, found).await];
        let failures = outcomes.into_iter().filter_map(Result::err).map(|failure| failure.status.message);
        let failures: Vec<String> = failures.collect();
        for error in failures.iter().filter(|error| !said.contains(*error)) {
            tracing::warn!(error, "what the server needs could not be made again; trying every ten seconds");
        }
        said = failures;
    }
}

async fn keep_service(state: &State, found: &mut ServerFacts) -> Result<(), Failure> {
    keep_known(state, found).await?;
    let addresses = addresses(state, found)?;
    own_service::reconcile(state, &addresses, found.port, Pass::Periodic).await?;
    if state.store.is_shared() { found.servers.delete_expired(state, Instant::now()).await } else { Ok(()) }
}

/// Tells the other servers on the same store, and kube-apiservers among them, where this one is.
async fn keep_known(state: &State, found: &ServerFacts) -> Result<(), Failure> {
    if !state.store.is_shared() {
        return Ok(());
    }
    let own = found.own.advertised;
    advertised::keep(state, &found.own.key, own).await?;
    match own {
        Some(own) => master_leases::keep(state, own.ip()).await,
        None => Ok(()),
    }
}

/// The addresses of all servers on the store, this one among them.
fn addresses(state: &State, found: &mut ServerFacts) -> Result<Vec<SocketAddr>, Failure> {
    let now = Instant::now();
    if state.store.is_shared() {
        found.servers.look(state, now)?;
    }
    let mut addresses = found.servers.addresses(&found.own.key, found.own.advertised, now);
    if state.store.is_shared() {
        addresses.extend(master_leases::others(state, &addresses, found.port)?);
        addresses.sort_unstable();
    }
    Ok(addresses)
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

/// Publishes the CA of clients, and which proxies are to be believed, for servers that extend this one.
async fn publish_trust(state: &State, found: &ServerFacts) -> Result<(), Failure> {
    let mut data = Map::new();
    if let Some(client_ca) = &found.client_ca {
        data.insert("client-ca-file".to_owned(), client_ca.as_str().into());
    }
    if let Some(TrustedProxies { ca, headers }) = &found.proxies {
        let names = |names: &[HeaderName]| names.iter().map(|name| canonical(name.as_str())).collect();
        let prefixes = headers.extra_prefixes.iter().map(|prefix| canonical(prefix)).collect();
        let lists: [(&str, Vec<String>); 5] = [
            ("allowed-names", headers.allowed_names.clone()),
            ("extra-headers-prefix", prefixes),
            ("group-headers", names(&headers.group_headers)),
            ("uid-headers", names(&headers.uid_headers)),
            ("username-headers", names(&headers.username_headers)),
        ];
        data.extend(lists.map(|(key, list)| (format!("requestheader-{key}"), json!(list).to_string().into())));
        data.insert(PROXIES_CA.to_owned(), ca.as_str().into());
    }
    if data.is_empty() {
        return Ok(());
    }
    let configs = GroupResource::new("", "configmaps");
    let key = ObjectKey::namespaced("kube-system", "extension-apiserver-authentication");
    let config = json!({
        "kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": &*key.name, "namespace": "kube-system"},
        "data": data,
    });
    create(state, &configs, &key, config).await?;
    assign(state, &configs, &key, &|config| {
        for (name, value) in &data {
            let before = str_at(config, &["data", name]).unwrap_or_default();
            let value = match (name.as_str(), value.as_str()) {
                // Another server on the same store may have a CA of its own.
                (PROXIES_CA, Some(ca)) if before.contains(ca.trim()) => before.into(),
                (PROXIES_CA, Some(ca)) if !before.is_empty() => format!("{}\n{ca}", before.trim_end()).into(),
                _ => value.clone(),
            };
            set_at(config, &["data", name], value);
        }
    })
    .await
}

/// The name of a header as Go writes it: each word begins with a capital letter.
fn canonical(name: &str) -> String {
    let mut begins = true;
    let letter = |letter: char| {
        let is_first = std::mem::replace(&mut begins, letter == '-');
        if is_first { letter.to_ascii_uppercase() } else { letter.to_ascii_lowercase() }
    };
    name.chars().map(letter).collect()
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
    match registry::write(state, &mut operation, &Change::Create(object)).await {
        // Another server has created it meanwhile.
        Err(failure) if failure.status.reason.as_deref() == Some("AlreadyExists") => Ok(()),
        created => created.map(|_| ()),
    }
}

/// Removes an entry of the store that is no object of the API, unless another server has just written it.
async fn remove_entry(state: &State, resource: &GroupResource, key: &ObjectKey) -> Result<(), Failure> {
    let Some(found) = state.store.get_cached(resource, key) else { return Ok(()) };
    match state.store.delete(resource, key, found.revision).await {
        Ok(_) | Err(WriteError::Conflict { .. }) => Ok(()),
        Err(error) => Err(Failure::of_write(&error, resource, &key.name)),
    }
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
