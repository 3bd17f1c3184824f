//! The life of a manager: the order in which its parts start and end.
//!
//! Start: health, metrics and webhooks answer; caches fill; tasks of every replica run; the lease is won; controllers
//! and tasks of the leader run. So the caches of a new leader are filled and it need not list first. The end runs in
//! reverse order. The lease is renewed until the leader's work has ended, and then released, so that the next leader
//! need not wait for it to run out. When the lease is lost there is no grace period: the leader's work is dropped at
//! its await points, between the renew deadline and the moment from which another replica may lead.
//!
//! With sharding, a replica joins its group when its caches are filled, and leaves it when its workers have finished.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cache::factory::{InformerFactory, Running, reporting};
use crate::cache::informer::NotSynced;
use crate::control::controller::{CUT_OFF_WAIT, Prepared};
use crate::control::fence::Fence;
use crate::control::health::Health;
use crate::control::manager::group::{Grace, Group};
use crate::control::manager::{Cluster, Manager, ManagerError, Sharding, Task};
use crate::leadership::election::{Election, Leadership};
use crate::leadership::shard::ShardMember;

/// How long a hung leader still counts as healthy after its lease ran out, as in controller-runtime.
const RENEWAL_TOLERANCE: Duration = Duration::from_secs(20);

/// The reason for which the work ended.
enum Ended {
    AsAsked,
    Failed(ManagerError),
    Lost,
}

/// The parts that run once the manager does.
struct Life {
    factory: InformerFactory,
    /// The clusters besides the one of `factory`. Only their own controllers wait for their caches.
    clusters: Vec<Cluster>,
    election: Option<Election>,
    /// How long a lost lease still protects us after the loss is noticed.
    remainder: Duration,
    member: Option<ShardMember>,
    prepared: Vec<Prepared>,
    /// Tasks that start before the caches fill, and end after everything else.
    first: Vec<Task>,
    always: Vec<Task>,
    leading: Vec<Task>,
    warm_up: Option<Duration>,
    grace: Duration,
    is_stopping: Arc<AtomicBool>,
}

pub(crate) async fn run(manager: Manager, shutdown: impl Future<Output = ()>) -> Result<(), ManagerError> {
    let Manager { factory, clusters, election, sharding, name, metrics, health, endpoints, controllers, .. } = manager;
    let remainder = election.as_ref().map(|(options, _)| options.lease.saturating_sub(options.renew_deadline));
    let mut fences: Vec<Arc<dyn Fence>> = Vec::new();
    let led = election.as_ref().map(|(_, leadership)| leadership).or(manager.leadership.as_ref());
    if let Some(leadership) = led {
        fences.push(Arc::new(Arc::clone(leadership)));
    }
    if let Some(sharding) = &sharding {
        fences.push(Arc::new(sharding.shards.clone()));
        #[cfg(feature = "shard")]
        metrics.observe_shards(&sharding.shards);
    }
    let election = election
        .map(|(options, leadership)| Election::with_leadership(factory.client().clone(), options, leadership))
        .transpose()
        .map_err(ManagerError::Election)?;
    let member = sharding.map(|Sharding { options, shards }| {
        ShardMember::with_shards(factory.client().clone(), options, shards).map_err(ManagerError::Sharding)
    });
    let member = member.transpose()?;
    let prepared: Vec<Prepared> = controllers.into_iter().map(|prepare| prepare(&factory, fences.clone())).collect();
    metrics.observe_informers(&name, &factory);
    for cluster in &clusters {
        metrics.observe_informers(&format!("{name}/{}", cluster.name()), cluster.informers());
    }
    for prepared in &prepared {
        prepared.observe(&metrics);
    }
    #[cfg(feature = "election")]
    if let Some(election) = &election {
        metrics.observe_leadership(election.leadership());
    }
    #[cfg(feature = "webhook")]
    let first = manager.webhooks.into_iter().map(|server| {
        let server = server.with_health(health.clone());
        #[cfg(feature = "metrics")]
        let server = server.with_metrics(&metrics);
        Task::new("webhooks", |stop| async move { server.run(stop.cancelled()).await })
    });
    #[cfg(not(feature = "webhook"))]
    let first = std::iter::empty();
    let life = Life {
        factory,
        clusters,
        election,
        remainder: remainder.unwrap_or_default(),
        member,
        prepared,
        first: first.collect(),
        always: manager.always,
        leading: manager.leading,
        warm_up: manager.warm_up,
        grace: manager.grace,
        is_stopping: Arc::default(),
    };
    life.add_checks(&health);

    // Dropping this aborts the servers; otherwise they are awaited.
    let mut serving = JoinSet::new();
    let stop_serving = CancellationToken::new();
    if let Some(endpoints) = endpoints {
        serving.spawn(endpoints.serve(stop_serving.clone().cancelled_owned()));
    }
    let interrupt = manager.interrupt.unwrap_or_else(|| std::future::pending().boxed());
    let shutdown = pin!(shutdown);
    let result = tokio::select! {
        biased;
        () = interrupt => {
            tracing::warn!(name, "interrupted; dropping all work");
            return Err(ManagerError::Interrupted);
        }
        result = life.live(shutdown) => result,
    };
    stop_serving.cancel();
    serving.join_all().await;
    result
}

impl Life {
    fn add_checks(&self, health: &Health) {
        // The checks may outlive the manager, and must not keep its caches alive.
        let informers = self.factory.observed();
        health.ready("informer-sync", move || match informers.upgrade().map(|informers| informers.unsynced()) {
            None => Err("stopped".to_owned()),
            Some(what) if what.is_empty() => Ok(()),
            Some(what) => Err(what.join("; ")),
        });
        let is_stopping = Arc::clone(&self.is_stopping);
        health.ready("shutdown", move || match is_stopping.load(Ordering::Relaxed) {
            false => Ok(()),
            true => Err("shutting down"),
        });
        if let Some(election) = &self.election {
            let leadership = Arc::clone(election.leadership());
            health.live("leaderElection", move || leadership.check(RENEWAL_TOLERANCE));
        }
    }

    /// Runs the manager from the start of its caches to their end.
    async fn live(mut self, mut shutdown: Pin<&mut impl Future<Output = ()>>) -> Result<(), ManagerError> {
        let grace = Grace::new(self.grace);
        let (mut first, mut always) = (Group::new(grace.clone()), Group::new(grace.clone()));
        let mut leaders = Group::new(grace.clone());
        for task in std::mem::take(&mut self.first) {
            first.start(task);
        }
        let mut running = vec![self.factory.start()];
        running.extend(self.clusters.iter().map(|cluster| cluster.informers().start()));
        let leave = CancellationToken::new();
        let mut membership = JoinSet::new();
        let mut election = self.election.take();
        let leadership = election.as_ref().map(|election| Arc::clone(election.leadership()));

        let ended = {
            let mut lost: BoxFuture<'_, ()> = std::future::pending().boxed();
            let ended = 'working: {
                if election.is_some() || !self.always.is_empty() || !self.leading.is_empty() {
                    tokio::select! {
                        () = &mut shutdown => break 'working Ended::AsAsked,
                        error = first.failed() => break 'working Ended::Failed(error),
                        () = warm_up(&self.factory, self.warm_up) => {}
                    }
                }
                for task in std::mem::take(&mut self.always) {
                    always.start(task);
                }
                if let Some(election) = &mut election {
                    tokio::select! {
                        // A lease that the interrupted attempt may have won is released at the end.
                        () = &mut shutdown => break 'working Ended::AsAsked,
                        error = first.failed() => break 'working Ended::Failed(error),
                        error = always.failed() => break 'working Ended::Failed(error),
                        () = election.acquire() => {}
                    }
                    lost = election.hold().boxed();
                }
                if let Some(member) = self.member.take() {
                    membership.spawn(take_part(member, &mut self.prepared, leave.clone()));
                }
                self.lead(&mut leaders, leadership.as_ref());
                tokio::select! {
                    () = &mut lost => Ended::Lost,
                    () = &mut shutdown => Ended::AsAsked,
                    error = leaders.failed() => Ended::Failed(error),
                    error = always.failed() => Ended::Failed(error),
                    error = first.failed() => Ended::Failed(error),
                    () = membership_ended(&mut membership) => Ended::Failed(ManagerError::Panicked),
                }
            };
            self.is_stopping.store(true, Ordering::Relaxed);
            match ended {
                Ended::Lost => Ended::Lost,
                // The lease is renewed while the leader's work ends.
                ended => tokio::select! {
                    () = &mut lost => Ended::Lost,
                    stopped = leaders.stop() => ended.then(stopped),
                },
            }
        };

        let lease = election.as_ref().map(|election| election.leadership().lease().to_owned()).unwrap_or_default();
        if matches!(ended, Ended::Lost) {
            // Another replica may start at any moment after the remainder.
            if !leaders.kill(Instant::now() + self.remainder).await {
                tracing::error!(lease, "work that does not wait anywhere still runs without the lease");
            }
        }
        let is_busy = leaders.is_busy();
        leave.cancel();
        if is_busy {
            // Work that cannot be stopped keeps its keys: other members must wait for the Lease to run out.
            membership.abort_all();
        }
        while membership.join_next().await.is_some() {}
        match &mut election {
            Some(election) if !is_busy && !matches!(ended, Ended::Lost) => election.release().await,
            Some(election) => election.leadership().give_up(),
            None => {}
        }
        let ended = ended.then(always.stop().await);
        // Handlers get the events that were already read, within the rest of the grace period.
        let deadline = grace.deadline().max(Instant::now() + CUT_OFF_WAIT);
        let left = futures::future::join_all(running.into_iter().map(Running::leave));
        if tokio::time::timeout_at(deadline, left).await.is_err() {
            tracing::warn!("the grace period is over, and a handler of an informer still runs");
        }
        let ended = ended.then(first.stop().await);
        match ended {
            Ended::AsAsked => Ok(()),
            Ended::Failed(error) => Err(error),
            Ended::Lost => Err(ManagerError::LeadershipLost { lease }),
        }
    }

    /// Starts the controllers and tasks that only a leader runs.
    fn lead(&mut self, leaders: &mut Group, leadership: Option<&Arc<Leadership>>) {
        for prepared in self.prepared.drain(..) {
            let (stop, workers) = (leaders.stop_token(), leaders.alive());
            leaders.spawn(async move { prepared.work(stop, &workers).await.map_err(ManagerError::Controller) });
        }
        for task in self.leading.drain(..) {
            leaders.start(match leadership {
                None => task,
                Some(leadership) => task.while_leading(Arc::clone(leadership)),
            });
        }
    }
}

impl Ended {
    /// Keeps the first cause.
    fn then(self, stopped: Result<(), ManagerError>) -> Self {
        match (self, stopped) {
            (Self::AsAsked, Err(error)) => Self::Failed(error),
            (ended, _) => ended,
        }
    }
}

/// Waits for the caches, and logs what is missing. Goes on without them only if there is a limit.
async fn warm_up(factory: &InformerFactory, limit: Option<Duration>) {
    let filled = reporting("manager", || factory.unfilled(), factory.filled());
    let Some(limit) = limit else { return filled.await };
    if tokio::time::timeout(limit, filled).await.is_err() {
        let error = NotSynced { what: factory.unfilled(), waited: limit };
        tracing::warn!(%error, "going on with caches that are not filled");
    }
}

/// Completes when the task that keeps the membership has ended by itself, which happens only when it panics: without a
/// membership the manager has no keys.
async fn membership_ended(membership: &mut JoinSet<()>) {
    if membership.join_next().await.is_none() {
        std::future::pending::<()>().await;
    }
}

/// Joins the group once none of `prepared` waits for caches: otherwise the keys of the new member would stay
/// unprocessed meanwhile.
fn take_part(
    member: ShardMember,
    prepared: &mut [Prepared],
    leave: CancellationToken,
) -> impl Future<Output = ()> + use<> {
    // Nothing is ever sent: the channel closes when all are synced.
    let (until_synced, mut synced) = mpsc::channel::<Infallible>(1);
    // A cluster that cannot be reached must not keep this replica out of the group.
    for prepared in prepared.iter_mut().filter(|prepared| !prepared.is_elsewhere()) {
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
