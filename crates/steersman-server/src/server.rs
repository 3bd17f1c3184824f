//! The server: builds its parts, owns its tasks, and stops them.

use crate::access::audit::Audit;
use crate::access::authn::{self, Peer};
use crate::access::authz::{Authorization, Authorizer, WatchAuthorization};
use crate::background::bootstrap::ServerFacts;
use crate::http::chain::Chain;
use crate::http::flowcontrol;
use crate::http::limits::{Concurrency, Limits};
use crate::http::route::Router;
use crate::http::service::Service;
use crate::http::timeouts::Timeouts;
use crate::http::web::Web;
use crate::metrics::ReadProcess;
use crate::metrics::encryption::StorageEncryption;
use crate::shared::compute::{Compute, Pool};
use crate::shared::follower::in_force::DefinitionWork;
use crate::shared::nodes::agents::Agents;
use crate::shared::nodes::connections::{Connections, KubeletClient};
use crate::shared::nodes::resource_metrics::{Offer, ResourceMetrics};
use crate::shared::status::Failure;
use crate::shared::webhook;
use crate::state::State;
use crate::write::admission::Plugins;
use crate::write::registry::service_addresses::allocator::Ranges;
use crate::write::writes::Writes;
use futures::future::{self, BoxFuture};
use jiff::Timestamp;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use steersman_kinds::runtime_config::RuntimeConfig;
use steersman_kinds::user::User;
use steersman_storage::Store;
use tokio::task::JoinHandle;

/// The parts that a server is built from.
pub struct Options {
    /// The store of the objects.
    pub store: Store,
    /// Authenticates requests.
    pub authentication: authn::Options,
    /// Authorizes requests.
    pub authorization: Authorization,
    /// The admission plugins that are on.
    pub admission: Plugins,
    /// `host:port` under which clients reach the server, for discovery.
    pub address: String,
    /// The name of the host, by which servers on one store are told apart if they have the same address.
    pub host: String,
    /// The address at which other machines reach the server; the Service `kubernetes` leads to it. Without an address,
    /// or with one that only this machine knows, the Service has no endpoints.
    pub advertised: Option<IpAddr>,
    /// The audit policy and the sink of its events; usually none.
    pub audit: Option<Audit>,
    /// The ranges from which Services get addresses and ports.
    pub service_ranges: Ranges,
    /// The addresses at which the Services of admission and conversion webhooks, and of APIServices, are called instead
    /// of their own; usually none.
    pub webhook_services: webhook::Services,
    /// The certificate with which requests are passed on to the servers behind APIServices, who then believe who the user
    /// is. Without it they may refuse them.
    pub proxy_identity: Option<webhook::Identity>,
    /// How the kubelets of nodes are called: for logs, `exec` and the like. Without a certificate, usually in tests, kubelets
    /// know no user for a request.
    pub kubelet_client: KubeletClient,
    /// The built-in groups, versions and resources that are served.
    pub runtime_config: RuntimeConfig,
    /// Whether writes are taken; usually they are. A server that takes none has no priority and fairness.
    pub writes: Writes,
    /// The limits of requests in flight.
    pub concurrency: Concurrency,
    /// The executor of heavy requests; usually the blocking threads of the runtime, which may take all processors but
    /// one.
    pub compute: Compute,
    /// The time limits of requests.
    pub timeouts: Timeouts,
    /// Whether watches end when their users lose the permission for them; usually they do not, as in kube-apiserver.
    pub watch_authorization: WatchAuthorization,
    /// How long an Event stays after it happened last, usually [`EVENT_TTL`](crate::EVENT_TTL); with zero it stays for ever.
    pub event_ttl: Duration,
    /// The headers of answers that are meant for browsers; usually none.
    pub web: Web,
    /// The agents of nodes that run in this process; usually none.
    pub agents: Option<Arc<dyn Agents>>,
    /// The usage of nodes and Pods, from which `metrics.k8s.io` is served; usually none.
    pub resource_metrics: Option<Arc<dyn ResourceMetrics>>,
    /// The clock; [`Timestamp::now`] outside of tests.
    pub clock: fn() -> Timestamp,
}

impl Options {
    /// The defaults of `steersman up`: requests are authenticated, authorized and admitted as usual, and the address is
    /// `localhost:6443`.
    pub fn new(store: Store) -> Options {
        Options {
            store,
            authentication: authn::Options::default(),
            authorization: Authorization::default(),
            admission: Plugins::default(),
            address: "localhost:6443".to_owned(),
            host: "localhost".to_owned(),
            advertised: None,
            audit: None,
            service_ranges: Ranges::default(),
            webhook_services: webhook::Services::default(),
            proxy_identity: None,
            kubelet_client: KubeletClient::default(),
            runtime_config: RuntimeConfig::default(),
            writes: Writes::default(),
            concurrency: Concurrency::default(),
            compute: Compute::default(),
            timeouts: Timeouts::default(),
            watch_authorization: WatchAuthorization::default(),
            event_ttl: crate::EVENT_TTL,
            web: Web::default(),
            agents: None,
            resource_metrics: None,
            clock: Timestamp::now,
        }
    }
}

/// A Kubernetes-compatible API server. Dropping it does not stop it: see [`Server::stop`].
pub struct Server {
    state: Arc<State>,
    chain: Arc<Chain>,
    tasks: Vec<JoinHandle<()>>,
}

/// The error of a server that did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The certificates for kubelets cannot be used.
    #[error("kubelets cannot be called: {message}")]
    KubeletClient { message: String },
    /// The store cannot be read or written.
    #[error("the server cannot be prepared: {message}")]
    Prepare { message: String },
}

// === impl Server ===

impl Server {
    /// Starts a server: creates the objects that every cluster has, and serves the kinds of the definitions in the store.
    ///
    /// # Errors
    /// When the store cannot be read or written.
    pub async fn start(options: Options) -> Result<Server, StartError> {
        Server::prepare(options).await
    }

    /// Boxed, so that the caller's crate does not compile it again.
    fn prepare(options: Options) -> BoxFuture<'static, Result<Server, StartError>> {
        Box::pin(Server::begin(options))
    }

    async fn begin(options: Options) -> Result<Server, StartError> {
        let Options { store, authentication, authorization, admission, address, audit, service_ranges, .. } = options;
        let Options { webhook_services, runtime_config, concurrency, timeouts, event_ttl, web, agents, .. } = options;
        let Options { resource_metrics, advertised, compute, watch_authorization, clock, host, .. } = options;
        let Options { proxy_identity, kubelet_client, writes, .. } = options;
        let token_secrets = authentication.service_accounts.token_secrets.clone();
        let client_ca = authentication.client_ca.clone();
        let proxies = authentication.published_proxies.clone();
        let catalog = crate::background::definitions::configured(&runtime_config);
        let has_initializers = runtime_config.has_initializers();
        let admission = if has_initializers { admission.with_initializers() } else { admission };
        let admission = if authorization.has_nodes() { admission.with_nodes() } else { admission };
        let state = State::new(store, authentication, authorization, admission.asked(), catalog, clock);
        let mut state = state.with_services(service_ranges).with_webhook_services(webhook_services, proxy_identity);
        state = state.with_writes(writes);
        state.timeouts = timeouts;
        state.watch_authorization = watch_authorization;
        state.compute = Arc::new(Pool::new(compute));
        state.agents = agents;
        state.connections = Connections::new(kubelet_client);
        state.connections.check().map_err(|error| StartError::KubeletClient { message: error.to_string() })?;
        state.resource_metrics = resource_metrics.map(|source| Offer::new(source, &runtime_config));
        state.initializers = has_initializers.then(Default::default);
        let takes_writes = state.writes.refusal().is_none();
        // Flow schemas and priority levels are objects that the server makes.
        let has_flows = takes_writes && concurrency.has_priority_and_fairness;
        let limits = Arc::new(Limits::new(Concurrency { has_priority_and_fairness: has_flows, ..concurrency }));
        let flow =
            limits.flow_control().map(|control| flowcontrol::resources().map(|one| (one, control.progress().clone())));
        let state = Arc::new(state.catching_up(flow.into_iter().flatten().collect()));
        // Tasks that have begun end if the start fails or is dropped.
        let ends_if_dropped = state.stopping_token().clone().drop_guard();
        let fail = |failure: Failure| StartError::Prepare { message: failure.status.message.clone() };
        // The store may have been written before the server started, and its cache may lag behind.
        state.sync().await.map_err(fail)?;
        crate::background::upkeep::api_services::offer_resource_metrics(&state);
        if takes_writes {
            crate::write::registry::service_addresses::repair::run(&state).await.map_err(fail)?;
        }
        // These run before the first object is written, because its writer waits until it is in force.
        let (store, services, stopping) = (&state.store, &state.services, state.stopping_token());
        let followers = crate::write::registry::service_addresses::follower::start(store, services, stopping);
        let mut tasks = followers.map_err(|error| fail(Failure::of_read(&error)))?;
        let followers = crate::access::authz::rbac::follower::start(&state.store, &state.rbac, state.stopping_token());
        tasks.extend(followers.map_err(|error| fail(Failure::of_read(&error)))?);
        if let Some(nodes) = &state.nodes {
            let followers = crate::access::authz::node::follower::start(&state.store, nodes, state.stopping_token());
            tasks.extend(followers.map_err(|error| fail(Failure::of_read(&error)))?);
        }
        let followers = crate::write::admission::dynamic::policy::follower::start(
            &state.store,
            &state.policies,
            state.stopping_token(),
        );
        tasks.extend(followers.map_err(|error| fail(Failure::of_read(&error)))?);
        let (store, webhooks) = (&state.store, &state.admission_webhooks);
        let followers = crate::write::admission::dynamic::webhooks::start(store, webhooks, state.stopping_token());
        tasks.extend(followers.map_err(|error| fail(Failure::of_read(&error)))?);
        let followers = crate::write::admission::classes::start(&state.store, &state.classes, state.stopping_token());
        tasks.extend(followers.map_err(|error| fail(Failure::of_read(&error)))?);
        if let Some(configured) = &state.initializers {
            let follower = crate::write::initializers::follow(&state.store, configured, state.stopping_token());
            tasks.push(follower.map_err(|error| fail(Failure::of_read(&error)))?);
        }
        if takes_writes {
            let found = ServerFacts::new(&host, &address, advertised, client_ca, proxies);
            tasks.extend(make(&state, &limits, found, event_ttl).await.map_err(fail)?);
            tasks.extend(token_secrets.map(|options| crate::background::token_secrets::start(&state, options.ca)));
        } else {
            tasks.push(crate::background::definitions::start(&state).await.map_err(fail)?);
        }
        tasks.extend(state.authenticator.start(state.stopping_token()));
        let keys = state.authenticator.service_accounts().keys();
        let keys = authn::service_account::stored_keys::start(&state.store, keys, state.stopping_token());
        tasks.extend(keys.map_err(|error| fail(Failure::of_read(&error)))?);
        let router = Router::new(state.clone(), limits.clone(), audit.map(Arc::new), address);
        let chain = Arc::new(Chain::new(router, limits, web));
        ends_if_dropped.disarm();
        Ok(Server { state, chain, tasks })
    }

    /// Starts the task that keeps the status of ValidatingAdmissionPolicies, which says whether their expressions fit
    /// the kinds that they match. Upstream this is a loop of kube-controller-manager, so a server beside which that
    /// loop runs does not start it.
    pub fn check_policies(&mut self) {
        self.tasks.push(crate::background::policy_status::start(&self.state));
    }

    /// A `tower::Service` that authenticates callers by certificate or token.
    pub fn service(&self) -> Service {
        Service::new(self.chain.clone(), None)
    }

    /// The same service for a caller within the process. Authorization and admission apply as to every other user.
    pub fn service_as(&self, user: User) -> Service {
        Service::new(self.chain.clone(), Some(Peer::new(user)))
    }

    /// The authorizer of this server's requests.
    pub fn authorizer(&self) -> Arc<dyn Authorizer> {
        self.state.authorizer.clone()
    }

    /// The work that putting definitions in force has taken since the start.
    pub fn definition_work(&self) -> DefinitionWork {
        self.state.definitions.work()
    }

    /// Makes `/metrics` report the resources of the process, which `read` returns at each scrape.
    pub fn report_process(&self, read: ReadProcess) {
        self.state.metrics.report_process(read);
    }

    /// Makes `/metrics`, `/healthz` and `/readyz` report the encryption of stored values, which is below the store.
    pub fn report_encryption(&self, encryption: Arc<dyn StorageEncryption>) {
        self.state.metrics.report_encryption(encryption);
    }

    /// Makes `/readyz` fail from now on. All other requests are still answered.
    pub fn withdraw(&self) {
        self.state.withdraw();
    }

    /// From now on new requests get 429, and watches end.
    pub fn begin_stop(&self) {
        self.withdraw();
        self.state.begin_stop();
    }

    /// Stops the server's own tasks, after the writes that have begun. The transport waits for other requests in
    /// flight, and the caller closes the store.
    pub async fn stop(self) {
        self.begin_stop();
        self.chain.finish_writes().await;
        self.state.tunnels.close();
        self.state.tunnels.wait().await;
        for task in self.tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "a task of the server failed");
            }
        }
    }
}

/// Makes the objects that every cluster has, and starts the tasks that write.
async fn make(
    state: &Arc<State>,
    limits: &Limits,
    mut found: ServerFacts,
    event_ttl: Duration,
) -> Result<Vec<JoinHandle<()>>, Failure> {
    crate::background::bootstrap::namespaces(state).await?;
    // Independent writes run concurrently, so that they share commits of the store.
    let (lease, definitions, mut tasks) = future::try_join3(
        Box::pin(crate::background::bootstrap::start(state, &mut found)),
        Box::pin(crate::background::definitions::start(state)),
        Box::pin(keep(state, limits)),
    )
    .await?;
    tasks.extend([
        lease,
        definitions,
        crate::background::expiry::start(state, event_ttl),
        crate::background::aggregation::start(state),
    ]);
    // These need the namespaces.
    tasks.push(crate::background::upkeep::start_tracking(state).await?);
    tasks.push(crate::background::bootstrap::keep(state, found));
    tasks.push(crate::background::key_rotation::start(state));
    tasks.extend(crate::background::upkeep::start_initialization(state));
    tasks.push(crate::background::legacy_uses::start(state));
    Ok(tasks)
}

/// Creates the flow schemas, priority levels and APIServices, puts the first two in force, and starts the tasks that
/// keep all of them.
async fn keep(state: &Arc<State>, limits: &Limits) -> Result<Vec<JoinHandle<()>>, Failure> {
    let mut tasks = Vec::from(crate::background::upkeep::start(state).await?);
    if let Some(control) = limits.flow_control() {
        tasks.push(flowcontrol::start(state, control.clone()).await?);
    }
    Ok(tasks)
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}
