//! The control plane itself: start, restart and stop, and clients for its users.

use crate::fault::{Fault, Faults};
use crate::loops::{self, Loops};
use crate::requests::Requests;
use crate::service::{ApiService, Caller, Plane, Running};
use crate::simulated::{self, Simulated};
use crate::wait::PATIENCE;
use http::header::{HeaderValue, USER_AGENT};
use http::{Method, Request};
use jiff::Timestamp;
use kube::Client;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use steersman::ObjectKey;
use steersman_codegen::rbac::Permissions;
use steersman_controllers::kubelet::Agent;
use steersman_server::authn::{self, ServiceAccountOptions, TokenSecrets, Tokens, TokensError};
use steersman_server::authz::{Authorization, WatchAuthorization};
use steersman_server::user::User;
use steersman_server::webhook::Services;
use steersman_server::{ResourceMetrics, Server};
use steersman_storage::kv::Kv;
use steersman_storage::{Memory, Store};
use tokio::sync::{RwLock, watch};
use tower::ServiceExt as _;

/// The namespace of clients without a namespace of their own.
const NAMESPACE: &str = "default";

/// A Kubernetes API server in this process, with a store in memory.
///
/// Dropping it ends it: watches end, and requests are refused from then on. [`ControlPlane::stop`] waits for that.
///
/// # Panics
/// Methods without `try_` in their name panic, with a sentence that says what went wrong.
pub struct ControlPlane {
    plane: Arc<Plane>,
    kv: Arc<dyn Kv>,
    options: Options,
    loops: loops::Running,
    /// Answers requests to the simulated nodes.
    agent: Agent,
}

/// Options of a control plane.
#[derive(Clone, Debug)]
pub struct Options {
    /// The authorizer of requests. Default: the roles and bindings in the store; members of `system:masters`, such as
    /// [`ControlPlane::client`], may do everything.
    pub authorization: Authorization,
    /// The clock of timestamps in objects. Default: the real time, which tokio's paused time does not change.
    pub clock: fn() -> Timestamp,
    /// The control loops to run, and the number of simulated nodes. Default: none of either.
    pub loops: Loops,
    /// The bounds of the history for watches and continued lists.
    pub history: steersman_storage::Options,
    /// Whether the server supports initializers: InitializerConfigurations, the field `metadata.initializers`, and
    /// creations that wait for them. Default: it does not.
    pub initializers: bool,
    /// How long [`ControlPlane::until`] waits. Default: 30 s. A controller whose watch was broken many times may wait a
    /// minute before its next try: where time is paused, ten minutes cost nothing.
    pub patience: Duration,
    /// Whether Secrets of the type `kubernetes.io/service-account-token` are filled with a token of the account that
    /// they name. Default: they are not.
    pub token_secrets: bool,
    /// Users that sign in with a token, a line each: `token,user,uid,"group1,group2"`. Default: none.
    pub tokens: String,
    /// Whether watches end when their users lose the permission for them. Usually they do not, as in kube-apiserver.
    pub watch_authorization: WatchAuthorization,
    /// Where the admission and conversion webhooks behind Services are called. Usually nowhere: nothing routes to the addresses of
    /// Services here.
    pub webhook_services: Services,
}

/// Why a control plane did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The server did not start.
    #[error("the server did not start")]
    Server(#[source] steersman_server::StartError),
    /// The store cannot be read.
    #[error("the store cannot be opened")]
    Store(#[source] steersman_storage::OpenError),
    /// The tokens are malformed.
    #[error("the tokens cannot be used")]
    Tokens(#[source] TokensError),
}

impl Default for Options {
    fn default() -> Options {
        Options {
            authorization: Authorization::default(),
            clock: Timestamp::now,
            history: steersman_storage::Options::default(),
            initializers: false,
            loops: Loops::none(),
            patience: PATIENCE,
            token_secrets: false,
            tokens: String::new(),
            watch_authorization: WatchAuthorization::default(),
            webhook_services: Services::default(),
        }
    }
}

// === impl ControlPlane: life ===

impl ControlPlane {
    /// Starts a control plane with nothing but the namespaces of the system.
    pub async fn start() -> ControlPlane {
        ControlPlane::try_start(Options::default()).await.unwrap_or_else(|error| panic!("{}", chain(&error)))
    }

    /// Starts a control plane with control loops: a Deployment gets ReplicaSets and Pods, dependents of deleted owners
    /// are collected, and a namespace that is deleted goes. With [`Loops::nodes`], Pods run and become ready as well:
    /// `ControlPlane::start_with(Loops::all().nodes(1))`.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start_with(loops: Loops) -> ControlPlane {
        let options = Options { loops, ..Options::default() };
        ControlPlane::try_start(options).await.unwrap_or_else(|error| panic!("{}", chain(&error)))
    }

    /// Starts a control plane with these options.
    ///
    /// # Errors
    /// When the tokens cannot be used, or the server does not start.
    ///
    /// # Panics
    /// As [`ControlPlane::with_loops`].
    pub async fn try_start(options: Options) -> Result<ControlPlane, StartError> {
        let kv: Arc<dyn Kv> = Arc::new(Memory::new());
        let agent = Agent::default();
        let running = run(kv.clone(), &options, &agent).await?;
        let plane = Plane {
            running: RwLock::new(Some(running)),
            faults: Faults::default(),
            cuts: watch::Sender::new(()),
            requests: Requests::default(),
        };
        let (wanted, loops) = (options.loops.clone(), loops::Running::none());
        let options = Options { loops: Loops::none(), ..options };
        Ok(ControlPlane { plane: Arc::new(plane), kv, options, loops, agent }.with_loops(wanted).await)
    }

    /// The same control plane, with these control loops in place of the former ones. Where they have simulated nodes,
    /// this returns once the kind `Stage` is served. `metrics.k8s.io` is served if the control plane had simulated
    /// nodes at its start, or at its last [`restart`](ControlPlane::restart).
    ///
    /// # Panics
    /// When the kind `Stage` is not served within [`Options::patience`].
    pub async fn with_loops(mut self, loops: Loops) -> ControlPlane {
        self.loops.stop().await;
        self.options.loops = loops;
        let plane = self.plane.clone();
        let client_of = move |user, agent| {
            let service = ApiService::new(plane.clone(), Caller::User(user));
            let named = service.map_request(move |mut request: Request<kube::client::Body>| {
                request.headers_mut().entry(USER_AGENT).or_insert(HeaderValue::from_static(agent));
                request
            });
            Client::new(named, NAMESPACE)
        };
        self.loops = loops::Running::start(&self.options, &self.agent, client_of);
        if self.options.loops.has_nodes() {
            self.until(&ObjectKey::cluster(simulated::STAGES), simulated::is_established).await;
        }
        self
    }

    /// Stops the server and starts another on the same store. Clients stay usable: requests under way are answered
    /// before, new ones wait, watches end. History begins anew, so a watch from an earlier version gets 410 `Expired`.
    pub async fn restart(&self) {
        let mut running = self.plane.running.write().await;
        if let Some(old) = running.take() {
            old.server.stop().await;
        }
        let new = run(self.kv.clone(), &self.options, &self.agent).await;
        *running = Some(new.unwrap_or_else(|error| panic!("{}", chain(&error))));
    }

    /// Stops the control plane: the control loops finish their work in progress, requests under way are answered,
    /// watches end, new requests fail.
    pub async fn stop(mut self) {
        self.loops.stop().await;
        let Some(Running { server, store }) = self.plane.running.write().await.take() else { return };
        server.stop().await;
        if let Err(error) = store.close().await {
            panic!("the store was not closed in order: {}", chain(&error));
        }
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        self.loops.begin_stop();
        // Only the plane itself takes the write lock.
        if let Ok(running) = self.plane.running.try_read()
            && let Some(Running { server, .. }) = &*running
        {
            server.begin_stop();
        }
    }
}

async fn run(kv: Arc<dyn Kv>, options: &Options, agent: &Agent) -> Result<Running, StartError> {
    let tokens = Tokens::parse(&options.tokens).map_err(StartError::Tokens)?;
    let store = Store::open(kv, options.history).await.map_err(StartError::Store)?;
    let served = steersman_server::RuntimeConfig::default();
    let has_nodes = options.loops.has_nodes();
    let token_secrets = options.token_secrets.then(TokenSecrets::default);
    let service_accounts = ServiceAccountOptions { token_secrets, ..ServiceAccountOptions::default() };
    let server = Server::start(steersman_server::Options {
        authentication: authn::Options { tokens, service_accounts, ..authn::Options::default() },
        authorization: options.authorization.clone(),
        address: "testkit:443".to_owned(),
        watch_authorization: options.watch_authorization,
        webhook_services: options.webhook_services.clone(),
        runtime_config: if options.initializers { served.with_initializers() } else { served },
        clock: options.clock,
        agents: Some(Arc::new(Simulated(agent.clone()))),
        resource_metrics: has_nodes.then(|| Arc::new(Simulated(agent.clone())) as Arc<dyn ResourceMetrics>),
        ..steersman_server::Options::new(store.clone())
    });
    Ok(Running { server: server.await.map_err(StartError::Server)?, store })
}

/// An error and its causes in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

// === impl ControlPlane: clients ===

impl ControlPlane {
    /// A client that may do everything, with `default` as its namespace.
    pub fn client(&self) -> Client {
        self.client_as(User::master("testkit"))
    }

    /// A client for a user. Authorization and admission apply.
    pub fn client_as(&self, user: User) -> Client {
        Client::new(self.service_as(user), NAMESPACE)
    }

    /// The permissions that `user` needs for all requests that it has made so far through clients and services of its
    /// own, whether they were allowed or not. The roles of an operator can be made from them, or compared with them:
    /// [`Permissions::manifests`](steersman_codegen::rbac::Permissions::manifests).
    pub fn permissions_of(&self, user: &User) -> Permissions {
        self.plane.requests.of(user)
    }

    /// Raw HTTP for a user.
    pub fn service_as(&self, user: User) -> ApiService {
        ApiService::new(self.plane.clone(), Caller::User(user))
    }

    /// Raw HTTP as the user of the request's token; unauthenticated without one.
    pub fn service(&self) -> ApiService {
        ApiService::new(self.plane.clone(), Caller::Anyone)
    }

    pub(crate) fn patience(&self) -> Duration {
        self.options.patience
    }

    /// The testkit's own client, to which no faults are injected.
    pub(crate) fn own_client(&self) -> Client {
        Client::new(ApiService::new(self.plane.clone(), Caller::Testkit(User::master("testkit"))), NAMESPACE)
    }
}

// === impl ControlPlane: faults ===

impl ControlPlane {
    /// Compacts all history, as a server does after a while: watches and continued lists that begin at an earlier
    /// version get 410 `Expired`, and so do watches under way that have not read everything yet.
    pub async fn compact(&self) {
        let running = self.plane.running.read().await;
        let Some(Running { store, .. }) = &*running else { panic!("the control plane was stopped") };
        let compacted = match store.sync().await {
            Ok(revision) => store.compact(revision).await.map_err(|error| chain(&error)),
            Err(error) => Err(chain(&error)),
        };
        if let Err(error) = compacted {
            panic!("the history could not be forgotten: {error}");
        }
    }

    /// Breaks the connection of every open watch, and of every other answer that is being read.
    pub fn cut_watches(&self) {
        self.plane.cuts.send_replace(());
    }

    /// Lets the next `n` requests of any client fail.
    pub fn fail_next(&self, n: usize, fault: Fault) {
        self.fail_next_where(n, fault, |_, _| true);
    }

    /// Lets the next `n` requests fail that `selects` selects by method and path. Faults that were requested earlier go
    /// first.
    pub fn fail_next_where(
        &self,
        n: usize,
        fault: Fault,
        selects: impl Fn(&Method, &str) -> bool + Send + Sync + 'static,
    ) {
        self.plane.faults.push(n, fault, selects);
    }

    /// The number of injected faults that have not happened yet.
    pub fn n_faults_left(&self) -> usize {
        self.plane.faults.n_left()
    }
}

impl fmt::Debug for ControlPlane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlPlane").field("options", &self.options).finish_non_exhaustive()
    }
}
