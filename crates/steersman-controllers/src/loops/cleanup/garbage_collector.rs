//! Deletes objects whose owners are gone, and keeps the order that foreground and orphaning deletion require.
//!
//! Follows kube-controller-manager's garbage collector. Informers of all resources ([`monitors`]) keep a graph of
//! owners and dependents ([`graph`]), which yields the objects to process. Workers take these from two queues and ask
//! the server before they change anything ([`attempt`], [`requests`]).
//!
//! Upstream runs discovery every 30 seconds; this loop runs it when a definition or an APIService has changed, and
//! objects that wait for an unserved kind are processed when a kind appears. Its informers hold metadata only and are
//! not shared with other loops.

mod absent;
mod attempt;
mod graph;
mod identity;
mod monitors;
mod requests;

use crate::loops::cleanup::garbage_collector::attempt::Next;
use crate::loops::cleanup::garbage_collector::graph::{Effects, Graph, InvalidOwner};
use crate::loops::cleanup::garbage_collector::identity::{Identity, Uid};
use crate::loops::cleanup::garbage_collector::monitors::{Gone, Monitors};
use crate::loops::cleanup::garbage_collector::requests::Requests;
use crate::settings::Parts;
use crate::shared::served::Catalog;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use parking_lot::Mutex;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use steersman::Manager;
use steersman::events::{EventRecorder, EventType};
use steersman::queue::{RateLimiter, WorkQueue};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The name of the loop in logs and Events.
const NAME: &str = "garbage-collector-controller";
/// The numbers of concurrent workers for deletions and for owners that orphan their dependents.
const WORKERS: (usize, usize) = (20, 4);
/// The first and the longest pause before an object is processed again.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1_000));
/// How long the start waits for resources that cannot be listed.
const SYNC_TIMEOUT: Duration = Duration::from_secs(30);
/// When discovery runs after a definition has changed: at once, and again later because the server may serve the change
/// with a delay. The last run stops the informers of resources that are gone.
const DISCOVERIES: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(100), Duration::from_millis(500), Duration::from_secs(3)];
/// The first and the longest pause before failed discovery is tried again.
const DISCOVERY_RETRY: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(30));
/// How long the last Events may take to be sent at shutdown.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The state shared by informers and workers.
struct Collector {
    graph: Mutex<Graph>,
    server: Requests,
    deletions: WorkQueue<Uid>,
    orphanings: WorkQueue<Uid>,
    events: EventRecorder,
    /// Notified when the served kinds may have changed.
    redefined: Notify,
}

/// Adds the loop to a manager.
pub(crate) fn add(manager: Manager, Parts { client, .. }: Parts<'_>) -> Manager {
    manager.run_leading(NAME, move |stop| run(client, stop))
}

async fn run(client: Client, stop: CancellationToken) -> Result<(), Infallible> {
    let limiter = || RateLimiter::exponential(BACKOFF.0, BACKOFF.1);
    let collector = Arc::new(Collector {
        graph: Mutex::new(Graph::new()),
        server: Requests::new(client.clone()),
        deletions: WorkQueue::new("garbage_collector_attempt_to_delete", limiter()),
        orphanings: WorkQueue::new("garbage_collector_attempt_to_orphan", limiter()),
        events: EventRecorder::new(client.clone(), NAME),
        redefined: Notify::new(),
    });
    // Cancelled at any await: all work starts again from the state of the objects.
    stop.run_until_cancelled(collect(&collector, client)).await;
    let flushed = tokio::time::timeout(FLUSH_TIMEOUT, collector.events.flush()).await;
    if flushed.is_err() {
        tracing::debug!("the last events could not be sent");
    }
    Ok(())
}

async fn collect(collector: &Arc<Collector>, client: Client) {
    let mut monitors = Monitors::new(client.clone());
    let mut wait = DISCOVERY_RETRY.0;
    while !discover(collector, &client, &mut monitors, Gone::Stop).await {
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(DISCOVERY_RETRY.1);
    }
    if !monitors.synced(SYNC_TIMEOUT).await {
        tracing::warn!("some resources cannot be listed: garbage is collected without them");
    }
    let mut workers = JoinSet::new();
    for _ in 0..WORKERS.0 {
        workers.spawn(Arc::clone(collector).delete());
    }
    for _ in 0..WORKERS.1 {
        workers.spawn(Arc::clone(collector).orphan());
    }
    loop {
        collector.redefined.notified().await;
        follow_definitions(collector, &client, &mut monitors).await;
    }
}

/// Runs discovery until no further effect of the change can be expected.
async fn follow_definitions(collector: &Arc<Collector>, client: &Client, monitors: &mut Monitors) {
    let mut times = DISCOVERIES.iter().peekable();
    let mut wait = DISCOVERY_RETRY.0;
    while let Some(&after) = times.next() {
        let changed = async {
            tokio::time::sleep(after.min(DISCOVERIES[1])).await;
            collector.redefined.notified().await;
        };
        tokio::select! {
            // Both only wait. A further change starts the series again after its first pause, so that frequent changes
            // do not discover without a pause.
            () = tokio::time::sleep(after) => {}
            () = changed => times = DISCOVERIES[1..].iter().peekable(),
        }
        let gone = if times.peek().is_none() { Gone::Stop } else { Gone::Keep };
        if !discover(collector, client, monitors, gone).await && times.peek().is_none() {
            let again = tokio::select! {
                // Both only wait.
                () = tokio::time::sleep(wait) => 3,
                () = collector.redefined.notified() => 1,
            };
            wait = (wait * 2).min(DISCOVERY_RETRY.1);
            times = DISCOVERIES[again..].iter().peekable();
        }
    }
}

/// Starts the informers of served resources. Returns whether discovery succeeded.
async fn discover(collector: &Arc<Collector>, client: &Client, monitors: &mut Monitors, gone: Gone) -> bool {
    let catalog = match Catalog::discover(client).await {
        Ok(catalog) => catalog,
        Err(error) => {
            tracing::warn!(%error, "cannot discover the resources whose garbage is collected");
            return false;
        }
    };
    collector.serve(&catalog);
    if monitors.follow(collector, &catalog, gone) {
        tracing::debug!("some resources are not served any more, and watched a little longer");
    }
    true
}

// === impl Collector ===

impl Collector {
    fn apply(&self, effects: Effects) {
        let Effects { delete, delete_later, invalid, orphan } = effects;
        delete.into_iter().for_each(|uid| self.deletions.add(uid));
        orphan.into_iter().for_each(|uid| self.orphanings.add(uid));
        for uid in delete_later {
            self.deletions.add_rate_limited(uid);
        }
        for InvalidOwner { dependent, owner } in invalid {
            let note = format!("ownerRef {owner} does not exist in namespace {:?}", &*dependent.namespace);
            self.events.event_about(reference(&dependent), EventType::Warning, "OwnerRefInvalidNamespace", &note);
        }
    }

    /// Takes over the discovered kinds, and queues the objects that waited for one of them.
    fn serve(&self, catalog: &Catalog) {
        if !self.server.set_kinds(catalog) {
            return;
        }
        let waiting = self.graph.lock().take_unserved();
        waiting.into_iter().for_each(|uid| self.deletions.add(uid));
    }

    async fn delete(self: Arc<Self>) {
        while let Some(item) = self.deletions.get().await {
            let generation = self.server.generation();
            let next = match attempt::to_delete(&self.graph, &self.server, item.key()).await {
                Ok((effects, next)) => {
                    self.apply(effects);
                    next
                }
                Err(error) => {
                    item.retry(error);
                    continue;
                }
            };
            match next {
                Next::Never => item.forget(),
                Next::Later => {
                    self.deletions.add_rate_limited(item.key().clone());
                }
                Next::WhenServed => {
                    let uid = item.key().clone();
                    self.graph.lock().wait_until_served(&uid);
                    item.forget();
                    // The kind may have been discovered meanwhile.
                    if self.server.generation() != generation {
                        self.deletions.add(uid);
                    }
                }
            }
        }
    }

    async fn orphan(self: Arc<Self>) {
        while let Some(item) = self.orphanings.get().await {
            match attempt::to_orphan(&self.graph, &self.server, item.key()).await {
                Ok(Next::Never | Next::WhenServed) => item.forget(),
                Ok(Next::Later) => {
                    self.orphanings.add_rate_limited(item.key().clone());
                }
                Err(error) => {
                    item.retry(error);
                }
            }
        }
    }
}

fn reference(object: &Identity) -> ObjectReference {
    ObjectReference {
        api_version: Some(object.kind.api_version.to_string()),
        kind: Some(object.kind.kind.to_string()),
        name: Some(object.name.to_string()),
        namespace: Some(object.namespace.to_string()).filter(|namespace| !namespace.is_empty()),
        uid: Some(object.uid.to_string()),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod model;
