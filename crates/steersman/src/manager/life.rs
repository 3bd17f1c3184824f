//! The life of a manager: what starts when, and what ends when.
//!
//! Start: health, metrics and webhooks answer; caches fill; tasks of every replica run; the lease is won; controllers and tasks of
//! the leader run. A new leader has its caches filled by then and need not list first. End: the same backwards. The
//! lease is renewed until the leader's work has ended and is given back then, so the next leader waits no longer than
//! it must. When the lease is lost there is no grace: the leader's work is dropped where it waits, in the time between
//! the renew deadline and the moment from which another replica may lead.
//!
//! Sharded, a replica joins its group when its caches are filled, and leaves it when its workers have finished.

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

use crate::controller::{CUT_OFF_WAIT, Prepared};
use crate::election::{Election, Leadership};
use crate::factory::{InformerFactory, Running, reporting};
use crate::fence::Fence;
use crate::health::Health;
use crate::informer::NotSynced;
use crate::manager::group::{Grace, Group};
use crate::manager::{Cluster, Manager, ManagerError, Sharding, Task};
use crate::shard::ShardMember;

/// How long after its lease ran out a leader that hangs is still called healthy, as in controller-runtime.
const RENEWAL_TOLERANCE: Duration = Duration::from_secs(20);

/// How the work came to an end.
enum Ended {
    AsAsked,
    Failed(ManagerError),
    Lost,
}

/// What runs once the manager does.
struct Life {
    factory: InformerFactory,
    /// Besides the one of `factory`. Their caches hold up nobody but their controllers.
    clusters: Vec<Cluster>,
    election: Option<Election>,
    /// For how long a lost lease is still ours after we have noticed.
    remainder: Duration,
    member: Option<ShardMember>,
    prepared: Vec<Prepared>,
    /// What runs before the caches fill, and after everything else has ended.
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
    if let Some((_, leadership)) = &election {
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

    // Aborted when this is dropped; awaited otherwise.
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
        // The checks may outlive the manager, and are not to keep its caches.
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

    /// From the start of the caches to their end.
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
                        // What an attempt cut short may have got is given back at the end.
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
                // The lease is renewed meanwhile.
                ended => tokio::select! {
                    () = &mut lost => Ended::Lost,
                    stopped = leaders.stop() => ended.then(stopped),
                },
            }
        };

        let lease = election.as_ref().map(|election| election.leadership().lease().to_owned()).unwrap_or_default();
        if matches!(ended, Ended::Lost) {
            // Somebody else may start any moment after the remainder.
            if !leaders.kill(Instant::now() + self.remainder).await {
                tracing::error!(lease, "work that does not wait anywhere still runs without the lease");
            }
        }
        let is_busy = leaders.is_busy();
        leave.cancel();
        if is_busy {
            // What cannot be stopped does not let go of its keys either: others wait for the lease.
            membership.abort_all();
        }
        while membership.join_next().await.is_some() {}
        match &mut election {
            Some(election) if !is_busy && !matches!(ended, Ended::Lost) => election.release().await,
            Some(election) => election.leadership().give_up(),
            None => {}
        }
        let ended = ended.then(always.stop().await);
        // Handlers hear of what was read, for which they have the rest of the grace period.
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

    /// Starts what only a leader runs.
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
    /// The first cause counts.
    fn then(self, stopped: Result<(), ManagerError>) -> Self {
        match (self, stopped) {
            (Self::AsAsked, Err(error)) => Self::Failed(error),
            (ended, _) => ended,
        }
    }
}

/// Waits for the caches, and says what is missing. Goes on without them only if there is a limit.
async fn warm_up(factory: &InformerFactory, limit: Option<Duration>) {
    let filled = reporting("manager", || factory.unfilled(), factory.filled());
    let Some(limit) = limit else { return filled.await };
    if tokio::time::timeout(limit, filled).await.is_err() {
        let error = NotSynced { what: factory.unfilled(), waited: limit };
        tracing::warn!(%error, "going on with caches that are not filled");
    }
}

/// Completes when the task that keeps the membership has ended by itself, which only a panic makes it do: without a membership
/// the manager has no keys.
async fn membership_ended(membership: &mut JoinSet<()>) {
    if membership.join_next().await.is_none() {
        std::future::pending::<()>().await;
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
    // A cluster that cannot be reached is not to keep this replica out.
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
