//! Writes the statuses of routes: one replica does, the one that holds the Lease.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use kube::{Client, Resource};
use serde::Serialize;
use serde_json::json;
use steersman::cache::CachedResource;
use steersman::write::WriteError;
use steersman::{Lister, ObjectKey, patch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::pilot::caches::Caches;
use crate::pilot::gateway_api::gateway_networking_k8s_io::v1::http_route::Parent;
use crate::pilot::gateway_api::gateway_networking_k8s_io::v1::{GRPCRoute, HTTPRoute};
use crate::pilot::proxies::Proxies;
use crate::pilot::scope::Snapshot;
use crate::pilot::status::parents::{Difference, ours, parents};
use crate::pilot::status::tally::{Tallies, Tally};
use crate::pilot::world::{RouteKind, RouteName, Verdict};

/// How long acknowledgements are gathered before statuses are written.
const GATHERED: Duration = Duration::from_millis(200);
/// How often a status is written at most of which only the number of proxies has changed.
const COUNT_PERIOD: Duration = Duration::from_secs(10);
/// When a round is repeated that left something to be written.
const AGAIN: Duration = Duration::from_secs(1);

/// Writes the statuses of routes.
pub(crate) struct RouteStatuses {
    pub(crate) client: Client,
    pub(crate) caches: Caches,
    pub(crate) proxies: Arc<Proxies>,
}

/// A kind of routes.
trait Route: CachedResource + Resource<DynamicType = ()> + Serialize + Debug {
    const KIND: RouteKind;

    /// The entries of its status.
    fn parents(&self) -> Vec<Parent>;
}

/// The writes of the last seconds.
#[derive(Default)]
struct Memory {
    /// The version from which a status was written last, and when: as long as the cache has that version, it is behind.
    written: HashMap<RouteName, (Option<String>, Instant)>,
}

impl Route for HTTPRoute {
    const KIND: RouteKind = RouteKind::Http;

    fn parents(&self) -> Vec<Parent> {
        self.status.as_ref().map(|status| status.parents.clone()).unwrap_or_default()
    }
}

impl Route for GRPCRoute {
    const KIND: RouteKind = RouteKind::Grpc;

    fn parents(&self) -> Vec<Parent> {
        // The entries of both kinds are the same; they are two types because each kind has types of its own.
        let parents = self.status.as_ref().and_then(|status| serde_json::to_value(&status.parents).ok());
        parents.and_then(|parents| serde_json::from_value(parents).ok()).unwrap_or_default()
    }
}

impl RouteStatuses {
    /// Writes statuses until `stop` is cancelled.
    pub(crate) async fn run(self, stop: CancellationToken) -> Result<(), Infallible> {
        let mut changes = self.proxies.changes();
        changes.mark_changed();
        let mut memory = Memory::default();
        let mut again = None;
        loop {
            let pause = async {
                match again {
                    None => std::future::pending().await,
                    Some(after) => tokio::time::sleep(after).await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = pause => {}
                changed = changes.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                    tokio::select! {
                        () = stop.cancelled() => return Ok(()),
                        () = tokio::time::sleep(GATHERED) => {}
                    }
                    changes.mark_unchanged();
                }
            }
            again = tokio::select! {
                () = stop.cancelled() => return Ok(()),
                again = self.round(&mut memory) => again,
            };
        }
    }

    /// Writes what differs. Returns when to look again.
    async fn round(&self, memory: &mut Memory) -> Option<Duration> {
        let (snapshot, standings) = self.proxies.state();
        let snapshot = snapshot?;
        let tallies = Tallies::of(&standings);
        memory.written.retain(|_, (_, at)| at.elapsed() < COUNT_PERIOD);
        let http = self.of_kind(&self.caches.http_routes, &snapshot, &tallies, memory).await;
        let grpc = self.of_kind(&self.caches.grpc_routes, &snapshot, &tallies, memory).await;
        http.into_iter().chain(grpc).min()
    }

    async fn of_kind<K: Route>(
        &self,
        routes: &Lister<K>,
        snapshot: &Snapshot,
        tallies: &Tallies,
        memory: &mut Memory,
    ) -> Option<Duration> {
        let mut again = None;
        let Ok(routes) = routes.list() else { return Some(AGAIN) };
        for route in routes {
            let (Some(namespace), Some(name)) = (&route.meta().namespace, &route.meta().name) else { continue };
            let name = RouteName { kind: K::KIND, namespace: namespace.clone(), name: name.clone() };
            let (verdict, known) = (snapshot.world.verdicts.get(&name), route.parents());
            if verdict.is_none() && ours(&known).next().is_none() {
                continue;
            }
            // The world is older than the cache, or the cache older than the last write: what comes next rings again.
            let is_old = verdict.is_some_and(|verdict| verdict.generation != route.meta().generation);
            let last = memory.written.get(&name);
            let is_behind = last.is_some_and(|(version, _)| *version == route.meta().resource_version);
            if is_old {
                continue;
            }
            let count = |verdict: &Verdict| -> Tally { tallies.count(&verdict.attachment, snapshot) };
            let wanted = match parents(&known, verdict, count) {
                None => continue,
                Some(_) if is_behind => {
                    again = Some(AGAIN);
                    continue;
                }
                Some(Difference::Count(_)) if last.is_some() => {
                    again = again.min(Some(COUNT_PERIOD)).or(Some(COUNT_PERIOD));
                    continue;
                }
                Some(Difference::Count(wanted) | Difference::State(wanted)) => wanted,
            };
            match self.write(&*route, &wanted).await {
                Ok(()) => {
                    let version = route.meta().resource_version.clone();
                    memory.written.insert(name, (version, Instant::now()));
                }
                Err(error) => {
                    tracing::debug!(route = %name, %error, "the status could not be written; it is written again");
                    again = Some(AGAIN);
                }
            }
        }
        again
    }

    /// Writes the entries of the object as it was read: entries that others have written since then would be lost.
    async fn write<K: Route>(&self, route: &K, wanted: &[Parent]) -> Result<(), WriteError> {
        let patch = json!({
            "metadata": { "uid": route.meta().uid, "resourceVersion": route.meta().resource_version },
            "status": { "parents": wanted },
        });
        let key = ObjectKey::of(route);
        patch::merge_subresource::<K>(&self.client, &key, "status", &patch).await.map(drop)
    }
}
