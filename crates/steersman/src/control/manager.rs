//! Runs controllers together: shared informers, one election, and an end in the right order.
//!
//! This file holds the parts of a manager; `life` starts and ends it. Nothing is global; two managers live in one
//! process.

mod cluster;
mod group;
mod life;
mod signals;

use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, select};
use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::cache::factory::InformerFactory;
use crate::control::controller::{Controller, ControllerError, GRACE, Prepared};
use crate::control::fence::Fence;
use crate::control::health::{BindError, Endpoints, Health};
use crate::control::metrics::Metrics;
use crate::leadership::election::{ElectionError, ElectionOptions, Leadership};
use crate::leadership::shard::{ShardError, ShardOptions, Shards};
use crate::shared::selection::CachedResource;

pub use crate::control::manager::cluster::Cluster;
pub use crate::control::manager::signals::shutdown_signal;

/// A set of controllers that start and stop together.
#[must_use = "a manager does nothing until it runs"]
pub struct Manager {
    factory: InformerFactory,
    /// The clusters besides the one of `factory`.
    clusters: Vec<Cluster>,
    election: Option<(ElectionOptions, Arc<Leadership>)>,
    /// The leadership in an election that the caller holds.
    leadership: Option<Arc<Leadership>>,
    sharding: Option<Sharding>,
    name: String,
    metrics: Metrics,
    health: Health,
    endpoints: Option<Endpoints>,
    controllers: Vec<Prepare>,
    #[cfg(feature = "webhook")]
    webhooks: Vec<crate::webhook::Server>,
    /// Tasks that run in every replica.
    always: Vec<Task>,
    /// Tasks that run in the leader only.
    leading: Vec<Task>,
    /// How long caches may take to fill; `None`: no limit.
    warm_up: Option<Duration>,
    grace: Duration,
    interrupt: Option<BoxFuture<'static, ()>>,
}

/// Attaches a controller of any type to informers, by default those of the manager.
type Prepare = Box<dyn FnOnce(&InformerFactory, Vec<Arc<dyn Fence>>) -> Prepared + Send>;

/// The division of keys among replicas.
struct Sharding {
    options: ShardOptions,
    shards: Shards,
}

/// Why a manager ended by itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// A task did not end within the grace period and was dropped at an await point.
    #[error("task {task:?} was cut off after {grace:?}")]
    CutOff {
        /// The name of the task.
        task: String,
        /// The grace period.
        grace: Duration,
    },
    /// A controller failed; the others were stopped.
    #[error("a controller failed")]
    Controller(#[source] ControllerError),
    /// The election cannot be held.
    #[error("the election cannot be held")]
    Election(#[source] ElectionError),
    /// The lease was lost. All work was dropped at its await points. Start again, best as a new process.
    #[error("leader election {lease:?} was lost; all work was stopped")]
    LeadershipLost {
        /// Name of the lease.
        lease: String,
    },
    /// Keys cannot be divided among replicas.
    #[error("keys cannot be divided among replicas")]
    Sharding(#[source] ShardError),
    /// Everything was ended at once, because [`Manager::interrupt`] completed.
    #[error("interrupted; all work was dropped")]
    Interrupted,
    /// A controller's task panicked; the others were stopped.
    #[error("a controller panicked outside its reconciler")]
    Panicked,
    /// Tasks were cut off and still run, because their code blocks or computes and never awaits.
    #[error("tasks {tasks:?} still run after {grace:?}: they do not return to the runtime")]
    StillRunning {
        /// The names of the tasks.
        tasks: Vec<String>,
        /// The grace period.
        grace: Duration,
    },
    /// A task failed; everything else was stopped.
    #[error("task {task:?} failed")]
    Task {
        /// The name of the task.
        task: String,
        /// The error of the task.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// A task panicked; everything else was stopped.
    #[error("task {task:?} panicked: {message}")]
    TaskPanicked {
        /// The name of the task.
        task: String,
        /// The message of the panic.
        message: String,
    },
}

/// A task to run beside the controllers.
struct Task {
    name: String,
    begin: Box<dyn FnOnce(CancellationToken) -> Work + Send>,
}

type Work = BoxFuture<'static, Result<(), Box<dyn Error + Send + Sync>>>;

// === impl Task ===

impl Task {
    fn new<F, W, E>(name: &str, task: F) -> Self
    where
        F: FnOnce(CancellationToken) -> W + Send + 'static,
        W: Future<Output = Result<(), E>> + Send + 'static,
        E: Error + Send + Sync + 'static,
    {
        let begin = Box::new(move |stop| -> Work {
            // The function is called at the first poll, so that a panic in the call counts as the task's.
            Box::pin(async move { task(stop).await.map_err(|error| Box::new(error) as Box<dyn Error + Send + Sync>) })
        });
        Self { name: name.to_owned(), begin }
    }

    /// The same task, dropped when the lease is lost.
    fn while_leading(self, leadership: Arc<Leadership>) -> Self {
        let Self { name, begin } = self;
        let begin = Box::new(move |stop| -> Work {
            let mut work = begin(stop);
            Box::pin(async move {
                tokio::select! {
                    biased;
                    () = leadership.lost() => {}
                    ended = &mut work => return ended,
                }
                drop(work);
                // The manager ends and drops this future.
                std::future::pending().await
            })
        });
        Self { name, begin }
    }
}

// === impl Manager ===

impl Manager {
    /// A manager without controllers, with informers of its own.
    pub fn new(client: Client) -> Self {
        Self::with_informers(InformerFactory::new(client))
    }

    /// A manager that uses `factory`, whose resync and options are already set. Its informers run for as long as this
    /// manager, or anybody else who has started the factory.
    pub fn with_informers(factory: InformerFactory) -> Self {
        Self {
            factory,
            clusters: Vec::new(),
            election: None,
            leadership: None,
            sharding: None,
            name: "manager".to_owned(),
            metrics: Metrics::new(),
            health: Health::new(),
            endpoints: None,
            controllers: Vec::new(),
            #[cfg(feature = "webhook")]
            webhooks: Vec::new(),
            always: Vec::new(),
            leading: Vec::new(),
            warm_up: None,
            grace: GRACE,
            interrupt: None,
        }
    }

    /// The name of this manager in logs and in metrics of informers. Default: `manager`.
    pub fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Counts in `metrics` instead of in metrics of its own.
    #[cfg(feature = "metrics")]
    pub fn with_metrics(mut self, metrics: Metrics) -> Self {
        self.endpoints = self.endpoints.map(|endpoints| endpoints.with_metrics(metrics.clone()));
        self.metrics = metrics;
        self
    }

    /// The metrics of this manager's queues, controllers, informers and election, counted from the start of
    /// [`Manager::run`] on.
    #[cfg(feature = "metrics")]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The informers that the controllers use. Take the listers of a context from here too: both share a watch, and no
    /// controller starts before all of these informers are filled. An informer that may never fill, such as one of a
    /// type that not every cluster has, belongs to a factory of its own.
    pub fn informers(&self) -> &InformerFactory {
        &self.factory
    }

    /// Works only while holding the Lease `name` in `namespace`. Caches are kept warm in the meantime.
    ///
    /// No key is begun once the renew deadline has passed, and work that was begun is dropped at its await points,
    /// before another replica may lead. That does not stop code that blocks, nor requests that were already sent; and a
    /// process that was stopped, or whose host was suspended, may go on for up to a second with the work that was under
    /// way. A write that must not happen even then needs a precondition on the server, such as a resource version.
    #[cfg(feature = "election")]
    pub fn elect(self, name: &str, namespace: &str) -> Self {
        self.elect_with(ElectionOptions::new(name, namespace))
    }

    /// As [`Manager::elect`], with custom times and identity.
    #[cfg(feature = "election")]
    pub fn elect_with(mut self, options: ElectionOptions) -> Self {
        let leadership = Arc::new(Leadership::new(&options));
        self.election = Some((options, leadership));
        self
    }

    /// Works under an election that the caller holds, so that several managers can share one lease. The caller begins
    /// [`Manager::run`] when it leads, and drops its future when the lease is lost: from then on workers begin no key, and
    /// drop those that they are given.
    ///
    /// ```no_run
    /// # use steersman::election::{Election, ElectionOptions};
    /// # use steersman::{InformerFactory, Manager};
    /// # async fn run(client: kube::Client, stop: impl Future<Output = ()>) -> Result<(), Box<dyn std::error::Error>> {
    /// let informers = InformerFactory::new(client.clone());
    /// let mut election = Election::new(client, ElectionOptions::new("my-operator", "operators"))?;
    /// election.acquire().await;
    /// let manager = |name| Manager::with_informers(informers.clone()).name(name).under(election.leadership());
    /// let (first, second) = (manager("first"), manager("second"));
    /// tokio::select! {
    ///     () = election.hold() => {} // Lost.
    ///     _ = async { tokio::join!(first.run(std::future::pending()), second.run(std::future::pending())) } => {}
    ///     () = stop => election.release().await,
    /// }
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "election")]
    pub fn under(mut self, leadership: &Arc<Leadership>) -> Self {
        self.leadership = Some(Arc::clone(leadership));
        self
    }

    /// The holder of the lease, for probes and dashboards, once the manager runs; `None` without [`Manager::elect`].
    #[cfg(feature = "election")]
    pub fn leadership(&self) -> Option<Arc<Leadership>> {
        self.election.as_ref().map(|(_, leadership)| Arc::clone(leadership))
    }

    /// Divides the keys of all controllers among the replicas that take part in the group `name` in `namespace`: each key
    /// is processed by one of them at a time. Every replica's caches hold everything.
    ///
    /// A key that comes to this replica runs, because it may have changed while no replica held it. Work on a key that
    /// goes may finish ([`ShardOptions::handover`]), then it is dropped at its await points. That cannot stop code that
    /// blocks, nor a request that was already sent, and a process that was stopped, or whose host was suspended, may go
    /// on for up to a second with the work that was under way. A write that must not happen twice even then needs a
    /// precondition on the server, such as a resource version. [`crate::leadership::shard`] has the exact guarantee, the protocol
    /// and its cost.
    ///
    /// The same key of different controllers is in the same replica. With an election as well, only the leader takes
    /// part, which leaves nothing to divide.
    ///
    /// The service account needs the verbs `list`, `create`, `update` and `delete` on Leases. Without `delete`, the
    /// Leases of replicas that are gone stay, and the log says so; a test that ends before that does not need it.
    ///
    /// ```no_run
    /// # use steersman::{Action, Controller, Manager, ObjectKey, ReconcileError};
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # #[derive(Debug, thiserror::Error)] #[error("no")] struct Error;
    /// # impl ReconcileError for Error {}
    /// # async fn reconcile(_: ObjectKey, _: &()) -> Result<Action, Error> { Ok(Action::AwaitChange) }
    /// # async fn run(client: kube::Client) -> Result<(), steersman::ManagerError> {
    /// Manager::new(client)
    ///     .shard("config-operator", "operators")
    ///     .controller(Controller::<ConfigMap>::new(reconcile, ()).workers(4))
    ///     .run(steersman::shutdown_signal())
    ///     .await
    /// # }
    /// ```
    ///
    /// Where some controllers share the work and one may run in one replica only, such as a scheduler, the latter gets a manager
    /// with an election. It uses the same informers and runs as a task of the first one, so that both begin and end together:
    ///
    /// ```no_run
    /// # use std::convert::Infallible;
    /// # use std::time::Duration;
    /// # use steersman::{Action, Controller, Manager, ObjectKey};
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # async fn fill(_: ObjectKey, _: &()) -> Result<Action, Infallible> { Ok(Action::AwaitChange) }
    /// # async fn place(_: ObjectKey, _: &()) -> Result<Action, Infallible> { Ok(Action::AwaitChange) }
    /// # async fn run(client: kube::Client) -> Result<(), steersman::ManagerError> {
    /// let sharing = Manager::new(client).shard("config-operator", "operators");
    /// let leading = Manager::with_informers(sharing.informers().clone())
    ///     .name("leader")
    ///     .with_metrics(sharing.metrics().clone())
    ///     .elect("config-leader", "operators")
    ///     .controller(Controller::<ConfigMap>::new(place, ()).name("placer"));
    /// if let Some(leadership) = leading.leadership() {
    ///     sharing.health().live("leaderElection", move || leadership.check(Duration::from_secs(20)));
    /// }
    /// sharing
    ///     .controller(Controller::<ConfigMap>::new(fill, ()).workers(4))
    ///     .run_always("leader", |stop| leading.run(stop.cancelled_owned()))
    ///     .run(steersman::shutdown_signal())
    ///     .await
    /// # }
    /// ```
    #[cfg(feature = "shard")]
    pub fn shard(self, name: &str, namespace: &str) -> Self {
        self.shard_with(ShardOptions::new(name, namespace))
    }

    /// As [`Manager::shard`], with custom times and identity.
    #[cfg(feature = "shard")]
    pub fn shard_with(mut self, options: ShardOptions) -> Self {
        let shards = Shards::new(&options.group);
        self.sharding = Some(Sharding { options, shards });
        self
    }

    /// The keys that belong to this replica, once the manager runs; `None` without [`Manager::shard`].
    #[cfg(feature = "shard")]
    pub fn shards(&self) -> Option<Shards> {
        self.sharding.as_ref().map(|sharding| sharding.shards.clone())
    }

    /// Adds a controller.
    pub fn controller<K: CachedResource>(mut self, controller: Controller<K>) -> Self {
        self.controllers.push(Box::new(move |factory, fences| controller.prepare(factory, fences)));
        self
    }

    /// Adds a controller of the objects in another cluster: the types that it owns and watches are there too, unless it
    /// was given an informer. Its name is `CLUSTER/NAME`, in logs, metrics and its queue; informers are counted under
    /// the manager's name, a slash and the cluster's.
    ///
    /// A cluster that cannot be reached holds up the controllers there, and nothing else: neither the election nor `/readyz` waits
    /// for its caches. With [`Manager::shard`], the same key of different clusters is in the same replica. For clusters that come
    /// and go, run a manager for each.
    pub fn controller_in<K: CachedResource>(mut self, cluster: &Cluster, controller: Controller<K>) -> Self {
        if !self.clusters.iter().any(|known| known.informers().is_same(cluster.informers())) {
            self.clusters.push(cluster.clone());
        }
        let cluster = cluster.clone();
        self.controllers.push(Box::new(move |home, fences| {
            let mut prepared = controller.in_cluster(cluster.name()).prepare(cluster.informers(), fences);
            prepared.read_too(home);
            prepared
        }));
        self
    }

    /// The checks on `/healthz` and `/readyz`, to add more; [`Manager::serve`] lists the checks that are always there.
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// Serves `/healthz`, `/readyz` and, with the feature `metrics`, `/metrics` on `address` for as long as the manager
    /// runs. The socket listens from this call on, so that a port that is taken is an error before anything has begun.
    /// Port 0 takes any free port.
    ///
    /// `/healthz` has the check `leaderElection`, which fails when this replica believes that it leads but has not
    /// renewed its lease for the lease's duration and 20 seconds more. `/readyz` has `informer-sync`, which fails until
    /// every cache is filled, and `shutdown`, which fails once the manager is asked to end. Checks added to
    /// [`Manager::health`] are on both lists. The server needs neither TLS nor a login.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn serve(mut self, address: SocketAddr) -> Result<Self, BindError> {
        let endpoints = Endpoints::bind(address, self.health.clone())?;
        #[cfg(feature = "metrics")]
        let endpoints = endpoints.with_metrics(self.metrics.clone());
        self.endpoints = Some(endpoints);
        Ok(self)
    }

    /// Where health and metrics are served, with the real port; `None` without [`Manager::serve`].
    pub fn address(&self) -> Option<SocketAddr> {
        self.endpoints.as_ref().map(Endpoints::address)
    }

    /// Serves webhooks in every replica, before anything else starts, because caches may need objects converted, and until
    /// everything else has ended. Their calls count in the manager's metrics, and `/readyz` has the check `webhooks`.
    #[cfg(feature = "webhook")]
    pub fn webhooks(mut self, server: crate::webhook::Server) -> Self {
        self.webhooks.push(server);
        self
    }

    /// Adds a task that runs in every replica, whether it leads or not: a webhook server, a poller. It starts before the
    /// election and ends after the controllers.
    ///
    /// The task must return soon after its token is cancelled, and is dropped at an await point when the grace period
    /// is over. One that returns an error ends the manager with [`ManagerError::Task`]; one that returns `Ok` earlier
    /// is done.
    pub fn run_always<F, W, E>(mut self, name: &str, task: F) -> Self
    where
        F: FnOnce(CancellationToken) -> W + Send + 'static,
        W: Future<Output = Result<(), E>> + Send + 'static,
        E: Error + Send + Sync + 'static,
    {
        self.always.push(Task::new(name, task));
        self
    }

    /// Adds a task that runs beside the controllers: only while this replica leads, if there is an election. Otherwise
    /// as [`Manager::run_always`]. When the lease is lost it is dropped at an await point, without a grace period.
    pub fn run_leading<F, W, E>(mut self, name: &str, task: F) -> Self
    where
        F: FnOnce(CancellationToken) -> W + Send + 'static,
        W: Future<Output = Result<(), E>> + Send + 'static,
        E: Error + Send + Sync + 'static,
    {
        self.leading.push(Task::new(name, task));
        self
    }

    /// How long caches may take to fill before tasks start and the lease is sought all the same. Other caches fill
    /// later; a controller waits for all its caches in any case. Default: tasks and the election wait as long as it
    /// takes; the log says every half minute what they wait for, and `/readyz` whenever it is asked.
    ///
    /// Set it to zero where a task creates what is watched, such as the definition of a watched type.
    pub fn warm_up(mut self, warm_up: Duration) -> Self {
        self.warm_up = Some(warm_up);
        self
    }

    /// How long tasks may take, all together, from the shutdown to their end. Controllers have a grace period each
    /// ([`Controller::grace`]). Default: [`GRACE`].
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// When `interrupt` completes, everything ends at once: work is dropped at its await points, and the lease is left
    /// to run out. For the second signal of a user who does not want to wait. If this is called again, the future that
    /// completes first counts.
    pub fn interrupt(mut self, interrupt: impl Future<Output = ()> + Send + 'static) -> Self {
        self.interrupt = Some(match self.interrupt.take() {
            None => interrupt.boxed(),
            Some(earlier) => select(earlier, interrupt.boxed()).map(drop).boxed(),
        });
        self
    }

    /// Runs until `shutdown` completes, a controller or a task fails, or the lease is lost.
    ///
    /// Start: health and metrics, caches, tasks of every replica, election, controllers and tasks of the leader. The
    /// end runs in reverse order; the lease is renewed until the last of the leader's work has ended, and then
    /// released.
    ///
    /// Code that blocks or never awaits cannot be stopped. This returns all the same, soon after the grace periods,
    /// with an error that names the tasks still running, and leaves the lease to run out. A runtime that is dropped
    /// waits for such code without end, at the end of `#[tokio::main]` too: end the process with `std::process::exit`.
    ///
    /// # Errors
    /// [`ManagerError`].
    ///
    /// # Cancel safety
    /// If the future is dropped, everything ends at once, as with [`Manager::interrupt`].
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), ManagerError> {
        life::run(self, shutdown).await
    }

    /// Runs until [the process is asked to end](shutdown_signal), as [`Manager::run`] does; a second signal ends
    /// everything at once.
    ///
    /// # Errors
    /// [`ManagerError`].
    pub async fn run_until_signal(self) -> Result<(), ManagerError> {
        let (first, second) = signals::two();
        self.interrupt(second).run(first).await
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manager")
            .field("controllers", &self.controllers.len())
            .field("election", &self.election)
            .finish_non_exhaustive()
    }
}
