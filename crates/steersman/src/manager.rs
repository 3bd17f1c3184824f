//! Runs controllers together: shared informers, one election, and an end in the right order.
//!
//! Start: caches fill, then the lease is won, then workers start, so a new leader need not list first. End: workers
//! finish, then caches stop, then the lease is released. Nothing is global; two managers live in one process.
//!
//! Sharded, a replica joins its group when its caches are filled, and leaves it when its workers have finished.

use std::convert::Infallible;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;

use kube::Client;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::chain::Chain;
use crate::controller::{Controller, ControllerError, Prepared};
use crate::election::{Election, ElectionError, ElectionOptions, Leadership};
use crate::factory::InformerFactory;
use crate::metrics::Metrics;
use crate::selection::CachedResource;
use crate::shard::{ShardError, ShardMember, ShardOptions, Shards};

/// A set of controllers that start and stop together.
#[must_use = "a manager does nothing until it runs"]
pub struct Manager {
    factory: InformerFactory,
    election: Option<(ElectionOptions, Arc<Leadership>)>,
    sharding: Option<Sharding>,
    name: String,
    metrics: Metrics,
    controllers: Vec<Prepare>,
}

/// A controller of any type, to be attached to the informers.
type Prepare = Box<dyn FnOnce(&InformerFactory, Option<Shards>) -> Prepared + Send>;

/// Keys are divided among replicas.
struct Sharding {
    options: ShardOptions,
    shards: Shards,
}

/// Why a manager ended by itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
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
    /// A controller's task panicked; the others were stopped.
    #[error("a controller panicked outside its reconciler")]
    Panicked,
}

/// How the controllers came to an end.
enum Ended {
    AsAsked,
    Failed(ManagerError),
    Lost,
}

// === impl Manager ===

impl Manager {
    /// A manager without controllers, with informers of its own.
    pub fn new(client: Client) -> Self {
        Self::with_informers(InformerFactory::new(client))
    }

    /// A manager that uses `factory`, whose resync and options are already set.
    pub fn with_informers(factory: InformerFactory) -> Self {
        Self {
            factory,
            election: None,
            sharding: None,
            name: "manager".to_owned(),
            metrics: Metrics::new(),
            controllers: Vec::new(),
        }
    }

    /// The name of this manager in logs and in metrics of informers. Default: `manager`.
    pub fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Counts in `metrics` instead of in metrics of the manager's own.
    pub fn with_metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }

    /// What is counted about this manager's queues, controllers, informers and election, from the start of
    /// [`Manager::run`] on.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The informers that the controllers use. What a context reads from comes from here too, so that both share a
    /// watch.
    pub fn informers(&self) -> &InformerFactory {
        &self.factory
    }

    /// Works only while holding the Lease `name` in `namespace`. Caches are kept warm in the meantime.
    pub fn elect(self, name: &str, namespace: &str) -> Self {
        self.elect_with(ElectionOptions::new(name, namespace))
    }

    /// As [`Manager::elect`], with times and identity of one's own.
    pub fn elect_with(mut self, options: ElectionOptions) -> Self {
        let leadership = Arc::new(Leadership::new(&options));
        self.election = Some((options, leadership));
        self
    }

    /// Who leads, for probes and dashboards, once this runs; `None` without [`Manager::elect`].
    pub fn leadership(&self) -> Option<Arc<Leadership>> {
        self.election.as_ref().map(|(_, leadership)| Arc::clone(leadership))
    }

    /// Divides the keys of all controllers among the replicas that take part in the group `name` in `namespace`: each key
    /// is processed by one of them at a time. Every replica's caches hold everything. See [`ShardMember`] for what is
    /// promised and what it costs.
    ///
    /// The same key of different controllers is in the same replica. With an election as well, only the leader takes
    /// part, which leaves nothing to divide.
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
    pub fn shard(self, name: &str, namespace: &str) -> Self {
        self.shard_with(ShardOptions::new(name, namespace))
    }

    /// As [`Manager::shard`], with times and identity of one's own.
    pub fn shard_with(mut self, options: ShardOptions) -> Self {
        self.sharding = Some(Sharding { options, shards: Shards::new() });
        self
    }

    /// Which keys are this replica's, once it runs; `None` without [`Manager::shard`].
    pub fn shards(&self) -> Option<Shards> {
        self.sharding.as_ref().map(|sharding| sharding.shards.clone())
    }

    /// Adds a controller.
    pub fn controller<K: CachedResource>(mut self, controller: Controller<K>) -> Self {
        self.controllers.push(Box::new(move |factory, shards| controller.prepare(factory, shards)));
        self
    }

    /// Runs until `shutdown` completes, a controller fails, or the lease is lost.
    ///
    /// # Errors
    /// [`ManagerError`].
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), ManagerError> {
        let client = self.factory.client().clone();
        let lease = self.election.as_ref().map(|(options, _)| options.name.clone()).unwrap_or_default();
        let election =
            self.election.map(|(options, leadership)| Election::with_leadership(client, options, leadership));
        let mut election = election.transpose().map_err(ManagerError::Election)?;
        let shards = self.sharding.as_ref().map(|sharding| sharding.shards.clone());
        let member = self.sharding.map(|Sharding { options, shards }| {
            ShardMember::with_shards(self.factory.client().clone(), options, shards).map_err(ManagerError::Sharding)
        });
        let member = member.transpose()?;
        let controllers = self.controllers.into_iter();
        let mut prepared: Vec<Prepared> = controllers.map(|prepare| prepare(&self.factory, shards.clone())).collect();
        self.metrics.observe_informers(&self.name, &self.factory);
        for prepared in &prepared {
            prepared.observe(&self.metrics);
        }
        if let Some(election) = &election {
            self.metrics.observe_leadership(election.leadership());
        }
        let running = self.factory.start();

        let mut shutdown = pin!(shutdown);
        if let Some(election) = &mut election {
            tokio::select! {
                // An attempt cut short at worst leaves a lease that expires.
                () = &mut shutdown => {
                    election.release().await;
                    running.shutdown().await;
                    return Ok(());
                }
                () = election.acquire() => {}
            }
        }
        let stop = CancellationToken::new();
        let leave = CancellationToken::new();
        let mut membership = JoinSet::new();
        if let Some(member) = member {
            membership.spawn(take_part(member, &mut prepared, leave.clone()));
        }
        let mut controllers = JoinSet::new();
        for prepared in prepared {
            controllers.spawn(prepared.work(stop.clone()));
        }
        let ended = supervise(&mut controllers, &mut election, shutdown, &stop).await;
        if matches!(ended, Ended::Lost) {
            // Somebody else may start any moment: no grace, reconciles are dropped where they wait.
            controllers.shutdown().await;
        }
        running.shutdown().await;
        leave.cancel();
        membership.join_all().await;
        match ended {
            Ended::AsAsked => {}
            Ended::Failed(error) => {
                release(&mut election).await;
                return Err(error);
            }
            Ended::Lost => return Err(ManagerError::LeadershipLost { lease }),
        }
        release(&mut election).await;
        Ok(())
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

/// Joins the group once nobody of `prepared` waits for caches any more: what a member owns is not left lying meanwhile.
fn take_part(
    member: ShardMember,
    prepared: &mut [Prepared],
    leave: CancellationToken,
) -> impl Future<Output = ()> + use<> {
    // Nothing is ever sent: it is closed when all are synced.
    let (until_synced, mut synced) = mpsc::channel::<Infallible>(1);
    for prepared in prepared {
        prepared.until_synced = Some(until_synced.clone());
    }
    drop(until_synced);
    async move {
        tokio::select! {
            _ = synced.recv() => member.run(leave.cancelled()).await,
            () = leave.cancelled() => {}
        }
    }
}

/// Waits for the end of the controllers, renewing the lease all the while, also while they finish.
async fn supervise(
    controllers: &mut JoinSet<Result<(), ControllerError>>,
    election: &mut Option<Election>,
    mut shutdown: std::pin::Pin<&mut impl Future<Output = ()>>,
    stop: &CancellationToken,
) -> Ended {
    let mut lost = pin!(async {
        match election {
            Some(election) => election.hold().await,
            None => std::future::pending().await,
        }
    });
    let mut ended = Ended::AsAsked;
    // Without controllers there is still a lease to hold and a shutdown to wait for.
    while !stop.is_cancelled() || !controllers.is_empty() {
        // All arms only wait; what was joined is kept in `ended`.
        tokio::select! {
            () = &mut lost => return Ended::Lost,
            () = &mut shutdown, if !stop.is_cancelled() => stop.cancel(),
            Some(joined) = controllers.join_next() => {
                let error = match joined {
                    Ok(Ok(())) => continue,
                    Ok(Err(error)) => ManagerError::Controller(error),
                    Err(_) => ManagerError::Panicked,
                };
                if matches!(ended, Ended::AsAsked) {
                    ended = Ended::Failed(error);
                }
                stop.cancel();
            }
        }
    }
    ended
}

async fn release(election: &mut Option<Election>) {
    if let Some(election) = election {
        election.release().await;
    }
}

/// Completes when the process is asked to end: SIGINT or SIGTERM.
///
/// # Panics
/// Never; where signals cannot be listened to, it says so in the log and never completes.
pub async fn shutdown_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let (interrupt, terminate) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    let (mut interrupt, mut terminate) = match (interrupt, terminate) {
        (Ok(interrupt), Ok(terminate)) => (interrupt, terminate),
        (Err(error), _) | (_, Err(error)) => {
            tracing::error!(error = %Chain(&error), "cannot listen to signals");
            return std::future::pending().await;
        }
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
