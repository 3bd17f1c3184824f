//! Runs controllers together: shared informers, one election, and an end in the right order.
//!
//! This file says what a manager consists of; `life` starts and ends it. Nothing is global; two managers live in one
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

use crate::controller::{Controller, ControllerError, GRACE, Prepared};
use crate::election::{ElectionError, ElectionOptions, Leadership};
use crate::factory::InformerFactory;
use crate::fence::Fence;
use crate::health::{BindError, Endpoints, Health};
use crate::metrics::Metrics;
use crate::selection::CachedResource;
use crate::shard::{ShardError, ShardOptions, Shards};

pub use crate::manager::cluster::Cluster;
pub use crate::manager::signals::shutdown_signal;

/// A set of controllers that start and stop together.
#[must_use = "a manager does nothing until it runs"]
pub struct Manager {
    factory: InformerFactory,
    /// Besides the one of `factory`.
    clusters: Vec<Cluster>,
    election: Option<(ElectionOptions, Arc<Leadership>)>,
    sharding: Option<Sharding>,
    name: String,
    metrics: Metrics,
    health: Health,
    endpoints: Option<Endpoints>,
    controllers: Vec<Prepare>,
    #[cfg(feature = "webhook")]
    webhooks: Vec<crate::webhook::Server>,
    /// Of every replica.
    always: Vec<Task>,
    /// Of the leader.
    leading: Vec<Task>,
    /// `None`: as long as it takes.
    warm_up: Option<Duration>,
    grace: Duration,
    interrupt: Option<BoxFuture<'static, ()>>,
}

/// A controller of any type, to be attached to the informers, by default those of the manager.
type Prepare = Box<dyn FnOnce(&InformerFactory, Vec<Arc<dyn Fence>>) -> Prepared + Send>;

/// Keys are divided among replicas.
struct Sharding {
    options: ShardOptions,
    shards: Shards,
}

/// Why a manager ended by itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// A task did not end within the grace period and was dropped where it waited.
    #[error("task {task:?} was cut off after {grace:?}")]
    CutOff {
        /// The task.
        task: String,
        /// The time it had.
        grace: Duration,
    },
    /// A controller failed; the others were stopped.
    #[error("a controller failed")]
    Controller(#[source] ControllerError),
    /// The election cannot be held.
    #[error("the election cannot be held")]
    Election(#[source] ElectionError),
    /// The lease was lost. All work was dropped where it was. Start again, best as a new process.
    #[error("leader election {lease:?} was lost; all work was stopped")]
    LeadershipLost {
        /// Name of the lease.
        lease: String,
    },
    /// Keys cannot be divided among replicas.
    #[error("keys cannot be divided among replicas")]
    Sharding(#[source] ShardError),
    /// Everything was ended at once, as [`Manager::interrupt`] asked.
    #[error("interrupted; all work was dropped")]
    Interrupted,
    /// A controller's task panicked; the others were stopped.
    #[error("a controller panicked outside its reconciler")]
    Panicked,
    /// Tasks were cut off and go on all the same, because their code blocks or computes and never waits.
    #[error("tasks {tasks:?} still run after {grace:?}: they do not return to the runtime")]
    StillRunning {
        /// The tasks.
        tasks: Vec<String>,
        /// The time they had.
        grace: Duration,
    },
    /// A task failed; everything else was stopped.
    #[error("task {task:?} failed")]
    Task {
        /// The task.
        task: String,
        /// Its error.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// A task panicked; everything else was stopped.
    #[error("task {task:?} panicked: {message}")]
    TaskPanicked {
        /// The task.
        task: String,
        /// What it said.
        message: String,
    },
}

/// What waits to be run beside the controllers.
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
            // Not called before it is polled, so that a panic in the call is the task's.
            Box::pin(async move { task(stop).await.map_err(|error| Box::new(error) as Box<dyn Error + Send + Sync>) })
        });
        Self { name: name.to_owned(), begin }
    }

    /// The same task, dropped where it waits when the lease is lost, whenever the manager gets to know.
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
                // The manager ends, and this with it.
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
    /// does, or whoever else has started it.
    pub fn with_informers(factory: InformerFactory) -> Self {
        Self {
            factory,
            clusters: Vec::new(),
            election: None,
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

    /// Counts in `metrics` instead of in metrics of the manager's own.
    #[cfg(feature = "metrics")]
    pub fn with_metrics(mut self, metrics: Metrics) -> Self {
        self.endpoints = self.endpoints.map(|endpoints| endpoints.with_metrics(metrics.clone()));
        self.metrics = metrics;
        self
    }

    /// What is counted about this manager's queues, controllers, informers and election, from the start of
    /// [`Manager::run`] on.
    #[cfg(feature = "metrics")]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The informers that the controllers use. What a context reads from comes from here too: both share a watch, and no
    /// controller starts before all of these are filled. What may never be filled, such as a type that not every cluster
    /// has, belongs to a factory of its own.
    pub fn informers(&self) -> &InformerFactory {
        &self.factory
    }

    /// Works only while holding the Lease `name` in `namespace`. Caches are kept warm in the meantime.
    ///
    /// No key is begun once the renew deadline has passed, and what was begun is dropped where it waits, before another
    /// replica may lead. That does not stop code that blocks, nor requests that were already sent; and a process that was
    /// stopped, or whose host was suspended, may go on for up to a second with what was under way. What must not happen even
    /// then needs a precondition on the server, such as a resource version.
    #[cfg(feature = "election")]
    pub fn elect(self, name: &str, namespace: &str) -> Self {
        self.elect_with(ElectionOptions::new(name, namespace))
    }

    /// As [`Manager::elect`], with times and identity of one's own.
    #[cfg(feature = "election")]
    pub fn elect_with(mut self, options: ElectionOptions) -> Self {
        let leadership = Arc::new(Leadership::new(&options));
        self.election = Some((options, leadership));
        self
    }

    /// Who leads, for probes and dashboards, once this runs; `None` without [`Manager::elect`].
    #[cfg(feature = "election")]
    pub fn leadership(&self) -> Option<Arc<Leadership>> {
        self.election.as_ref().map(|(_, leadership)| Arc::clone(leadership))
    }

    /// Divides the keys of all controllers among the replicas that take part in the group `name` in `namespace`: each key
    /// is processed by one of them at a time. Every replica's caches hold everything.
    ///
    /// A key that comes to this replica runs, because it may have changed while it was nobody's. A key that goes is let
    /// finish ([`ShardOptions::handover`]), then dropped where it waits. That cannot stop code that blocks, nor a request that
    /// was already sent, and a process that was stopped, or whose host was suspended, may go on for up to a second with what
    /// was under way. What must not happen twice even then needs a precondition on the server, such as a resource version.
    /// What is promised exactly, how, and what it costs, [`crate::shard`] says.
    ///
    /// The same key of different controllers is in the same replica. With an election as well, only the leader takes
    /// part, which leaves nothing to divide.
    ///
    /// The service account needs the verbs `list`, `create`, `update` and `delete` on Leases. Without the last, the Leases of
    /// replicas that are gone stay, and the log says so; a test that ends sooner does not ask for it.
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

    /// As [`Manager::shard`], with times and identity of one's own.
    #[cfg(feature = "shard")]
    pub fn shard_with(mut self, options: ShardOptions) -> Self {
        let shards = Shards::new(&options.group);
        self.sharding = Some(Sharding { options, shards });
        self
    }

    /// Which keys are this replica's, once it runs; `None` without [`Manager::shard`].
    #[cfg(feature = "shard")]
    pub fn shards(&self) -> Option<Shards> {
        self.sharding.as_ref().map(|sharding| sharding.shards.clone())
    }

    /// Adds a controller.
    pub fn controller<K: CachedResource>(mut self, controller: Controller<K>) -> Self {
        self.controllers.push(Box::new(move |factory, fences| controller.prepare(factory, fences)));
        self
    }

    /// Adds a controller of the objects in another cluster: what it owns and watches is there too, unless it was given an
    /// informer. Its name is `CLUSTER/NAME`, in logs, metrics and its queue; informers are counted under the manager's name,
    /// a slash and the cluster's.
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

    /// Checks of one's own on `/healthz` and `/readyz`; see [`Manager::serve`] for those that are there anyway.
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// Serves `/healthz`, `/readyz` and, with the feature `metrics`, `/metrics` on `address` for as long as the manager runs. It listens from now on,
    /// so that a port that is taken is an error before anything has begun. Port 0 is any that is free.
    ///
    /// `/healthz` has the check `leaderElection`, which fails when this replica believes that it leads but has not renewed
    /// its lease for the lease's duration and 20 seconds more. `/readyz` has `informer-sync`, which fails until every
    /// cache is filled, and `shutdown`, which fails once the manager is asked to end. Each list also has what was added to
    /// [`Manager::health`]. Neither TLS nor a login is asked for.
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
    /// The task is to return soon after its token is cancelled, and is dropped where it waits when the grace period is
    /// over. One that returns an error ends the manager with [`ManagerError::Task`]; one that returns `Ok` earlier is done.
    pub fn run_always<F, W, E>(mut self, name: &str, task: F) -> Self
    where
        F: FnOnce(CancellationToken) -> W + Send + 'static,
        W: Future<Output = Result<(), E>> + Send + 'static,
        E: Error + Send + Sync + 'static,
    {
        self.always.push(Task::new(name, task));
        self
    }

    /// Adds a task that runs beside the controllers: only while this replica leads, if there is an election. Otherwise as
    /// [`Manager::run_always`]. When the lease is lost it is dropped where it waits, without a grace period.
    pub fn run_leading<F, W, E>(mut self, name: &str, task: F) -> Self
    where
        F: FnOnce(CancellationToken) -> W + Send + 'static,
        W: Future<Output = Result<(), E>> + Send + 'static,
        E: Error + Send + Sync + 'static,
    {
        self.leading.push(Task::new(name, task));
        self
    }

    /// How long caches may take to fill before tasks start and the lease is sought all the same. What is not filled by
    /// then fills later; a controller waits for all caches in any case. Default: tasks and the election wait as long as it
    /// takes; the log says every half minute what for, and `/readyz` whenever it is asked.
    ///
    /// Zero where a task makes what is watched, such as a definition of its type.
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

    /// When `interrupt` completes, everything ends at once: work is dropped where it waits, and the lease is left to run
    /// out. For the second signal of somebody who does not want to wait. Called again, whichever completes first.
    pub fn interrupt(mut self, interrupt: impl Future<Output = ()> + Send + 'static) -> Self {
        self.interrupt = Some(match self.interrupt.take() {
            None => interrupt.boxed(),
            Some(earlier) => select(earlier, interrupt.boxed()).map(drop).boxed(),
        });
        self
    }

    /// Runs until `shutdown` completes, a controller or a task fails, or the lease is lost.
    ///
    /// Start: health and metrics, caches, tasks of every replica, election, controllers and tasks of the leader. End: the
    /// same backwards; the lease is renewed until the last of the leader's work has ended, and then given back.
    ///
    /// Code that blocks or never waits cannot be stopped. This returns all the same, soon after the grace periods, with an
    /// error that says what still runs, and leaves the lease to run out. A runtime that is dropped waits for such code without
    /// end, at the end of `#[tokio::main]` too: end the process with `std::process::exit`.
    ///
    /// # Errors
    /// [`ManagerError`].
    ///
    /// # Cancel safety
    /// Dropped, everything ends at once, as with [`Manager::interrupt`].
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), ManagerError> {
        life::run(self, shutdown).await
    }

    /// Runs until [the process is asked to end](shutdown_signal), as [`Manager::run`] does; asked again, it ends everything at once.
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
