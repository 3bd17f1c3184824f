//! The leader's survey: once per interval it lists everything in Neutron, has objects reconciled whose networks were
//! changed, and removes networks whose objects are gone.

use crate::api::Network;
use crate::cluster::Cluster;
use crate::identity::{ClusterId, Identity, uids};
use crate::metrics::Counts;
use crate::read_access::ReadAccess;
use crate::reconcile::desired::Desired;
use crate::reconcile::duplicates::PossibleDuplicates;
use crate::reconcile::outcome::{is_outage, jittered};
use crate::reconcile::snapshot::{Snapshot, Snapshots};
use crate::status::ready;
use kube::{Api, Client, ResourceExt as _, api::ListParams};
use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use steersman::queue::WorkQueue;
use steersman::{Lister, ObjectKey};
use steersman_neutron::{Cloud, Network as Made, NetworkId, RequestId};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The most orphans removed in one survey: a mistake with many would take a while, and can be stopped.
const ORPHANS_PER_SURVEY_MAX: usize = 20;
/// The page size of the list that makes sure that a network's object is gone.
const PAGE: u32 = 500;
/// The longest wait after a survey that failed.
const RETRY_MAX: Duration = Duration::from_secs(10);

/// The parts that a survey needs.
pub(crate) struct Survey {
    pub(crate) client: Client,
    pub(crate) cloud: Arc<dyn Cloud>,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) networks: Lister<Network>,
    pub(crate) queue: WorkQueue<ObjectKey>,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) read_access: Arc<ReadAccess>,
    pub(crate) possible_duplicates: Arc<PossibleDuplicates>,
    pub(crate) counts: Counts,
    pub(crate) interval: Duration,
    pub(crate) orphan_grace: Duration,
}

/// Since when each network has had no object.
#[derive(Debug, Default)]
struct Orphans {
    since: HashMap<NetworkId, Instant>,
}

impl Survey {
    /// Surveys until `stop`: the first time at once, then once per interval, a little more or less so that operators
    /// that were started together do not all ask at the same time.
    pub(crate) async fn run(self, stop: CancellationToken) -> Result<(), Infallible> {
        let work = async {
            let mut orphans = Orphans::default();
            loop {
                let wait = if self.once(&mut orphans).await { self.interval } else { self.interval.min(RETRY_MAX) };
                tokio::time::sleep(jittered(wait)).await;
            }
        };
        stop.run_until_cancelled(work).await;
        Ok(())
    }

    /// One survey. Returns whether it succeeded.
    async fn once(&self, orphans: &mut Orphans) -> bool {
        let cluster = match self.cluster.id(&self.client).await {
            Ok(cluster) => cluster,
            Err(error) => {
                tracing::warn!(error = %error.sentence(), "the survey of Neutron cannot begin");
                self.snapshots.clear();
                return false;
            }
        };
        let snapshot = match Snapshot::take(&*self.cloud, cluster, self.recorded()).await {
            Ok(snapshot) => Arc::new(snapshot),
            Err(error) => {
                tracing::warn!(%error, "Neutron cannot be surveyed");
                self.snapshots.clear();
                return false;
            }
        };
        if snapshot.has_own() {
            self.read_access.confirm();
        }
        self.snapshots.replace(Arc::clone(&snapshot));
        // The cache has no list of objects yet: nothing is an orphan until then.
        let Ok(objects) = self.networks.list() else { return false };
        let mut n_drifted = 0;
        for object in &objects {
            n_drifted += usize::from(self.look(cluster, &snapshot, object));
        }
        let n_orphans = self.sweep(cluster, &snapshot, &objects, orphans).await;
        self.counts.surveyed(&objects, n_drifted, n_orphans);
        true
    }

    /// The networks of ready objects: other objects have their problem in their status, and a time of their own for the
    /// next try.
    fn recorded(&self) -> Vec<NetworkId> {
        // Empty if the cache has no list of objects yet: each object is then observed on its own once.
        let objects = self.networks.list().unwrap_or_default();
        let is_ready =
            |object: &&Arc<Network>| ready(object.status.as_ref()).is_some_and(|ready| ready.status == "True");
        objects.iter().filter(is_ready).filter_map(|object| object.status.as_ref()?.network()).collect()
    }

    /// Has an object reconciled where that could help. Returns whether its network was changed.
    fn look(&self, cluster: &ClusterId, snapshot: &Snapshot, object: &Network) -> bool {
        let (uid, key) = (object.uid().unwrap_or_default(), ObjectKey::of(object));
        if 1 < snapshot.n_owned(&uid) {
            self.possible_duplicates.add(&uid);
            self.queue.add(key);
            return true;
        }
        let ready = ready(object.status.as_ref());
        if ready.is_none_or(|ready| ready.status != "True") {
            // The object has a time of its own for the next try, which an outage may have put far off.
            if ready.is_some_and(|ready| is_outage(&ready.reason)) {
                self.queue.add(key);
            }
            return false;
        }
        // An invalid spec was reported when it was written.
        let Ok(desired) = Desired::parse(&object.spec) else { return false };
        let namespace = object.namespace().unwrap_or_default();
        let identity = Identity::new(cluster, &uid, &namespace, &object.name_any());
        let is_well = snapshot.agreed(&uid, &identity, object.status.as_ref(), &desired).is_some();
        if !is_well {
            self.queue.add(key);
        }
        !is_well
    }

    /// Removes networks with this cluster's marker whose objects have been gone for the grace time. Returns the number
    /// of networks without an object.
    async fn sweep(
        &self,
        cluster: &ClusterId,
        snapshot: &Snapshot,
        objects: &[Arc<Network>],
        orphans: &mut Orphans,
    ) -> usize {
        let known: HashSet<String> = objects.iter().filter_map(|object| object.uid()).collect();
        let due = orphans.note(cluster, snapshot, &known, self.orphan_grace);
        let n_orphans = orphans.since.len();
        if due.is_empty() {
            return n_orphans;
        }
        // The cache may be behind, or not filled: nothing is deleted only because an object is missing there.
        let live = match self.live_uids().await {
            Ok(live) => live,
            Err(error) => {
                tracing::warn!(%error, "Networks cannot be listed, so no network is removed from Neutron");
                return n_orphans;
            }
        };
        for (uid, id) in due.into_iter().filter(|(uid, _)| !live.contains(uid)).take(ORPHANS_PER_SURVEY_MAX) {
            self.remove(cluster, &uid, id, &live).await;
        }
        n_orphans
    }

    async fn remove(&self, cluster: &ClusterId, uid: &str, id: NetworkId, live: &HashSet<String>) {
        let request = RequestId::random();
        let network = match self.cloud.read_network(request, id).await {
            Ok(network) => network,
            Err(error) if error.is_not_found() => return,
            Err(error) => {
                tracing::warn!(network = %id, uid, %error, "a network without an object cannot be read");
                return;
            }
        };
        // Somebody may have removed the marker, to keep the network, or another object may have adopted it.
        if !cluster.owners_of(&network).contains(uid) || uids(&network).any(|uid| live.contains(uid)) {
            return;
        }
        if cluster.is_adopted(&network, uid) {
            self.leave(cluster, request, uid, &network).await;
            return;
        }
        match self.cloud.delete_network(request, id, network.revision).await {
            Ok(()) => {
                tracing::info!(network = %id, uid, name = network.name, "removed a network whose object is gone");
                self.counts.orphan_removed();
            }
            Err(error) => {
                tracing::warn!(network = %id, uid, %error, "a network whose object is gone cannot be removed");
            }
        }
    }

    /// Removes the tags from a network that was adopted by a deleted object: it existed before the object, and stays.
    async fn leave(&self, cluster: &ClusterId, request: RequestId, uid: &str, network: &Made) {
        let identity = Identity::new(cluster, uid, "", "");
        if let Err(error) = identity.untag(&*self.cloud, request, network).await {
            tracing::warn!(network = %network.id, uid, %error, "an adopted network whose object is gone keeps its tag");
            return;
        }
        tracing::info!(network = %network.id, uid, name = network.name, "an adopted network whose object is gone stays, without the tag");
    }

    /// The uids of all Networks, from the server.
    async fn live_uids(&self) -> Result<HashSet<String>, kube::Error> {
        let api = Api::<Network>::all(self.client.clone());
        let (mut uids, mut params) = (HashSet::new(), ListParams::default().limit(PAGE));
        loop {
            let page = api.list_metadata(&params).await?;
            uids.extend(page.items.iter().filter_map(|object| object.uid()));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => return Ok(uids),
            }
        }
    }
}

impl Orphans {
    /// Records the networks without an object, and returns those for which the grace time is over. A network that has
    /// only the tag of an object may be a copy, and does not count.
    fn note(
        &mut self,
        cluster: &ClusterId,
        snapshot: &Snapshot,
        known: &HashSet<String>,
        grace: Duration,
    ) -> Vec<(String, NetworkId)> {
        let has_object: HashSet<NetworkId> =
            snapshot.owned().filter(|(uid, _)| known.contains(*uid)).flat_map(|(_, ids)| ids).copied().collect();
        let orphaned = snapshot.owned().filter(|(uid, _)| !known.contains(*uid));
        let orphaned: Vec<(String, NetworkId)> = orphaned
            .flat_map(|(uid, ids)| ids.iter().map(move |id| (uid.to_owned(), *id)))
            .filter(|(uid, id)| !has_object.contains(id) && snapshot.is_certain(cluster, uid, *id))
            .collect();
        let ids: HashSet<NetworkId> = orphaned.iter().map(|(_, id)| *id).collect();
        self.since.retain(|id, _| ids.contains(id));
        let now = Instant::now();
        orphaned
            .into_iter()
            .filter(|(_, id)| grace <= now.duration_since(*self.since.entry(*id).or_insert(now)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steersman_neutron::{NetworkCreate, Simulated};

    #[tokio::test(start_paused = true)]
    async fn a_network_with_two_markers_is_an_orphan_when_both_objects_are_gone() {
        let (cloud, cluster) = (Simulated::in_memory(), "c".parse().unwrap());
        let made =
            NetworkCreate { description: Some("network-controller:c:gone".to_owned()), ..NetworkCreate::default() };
        let id = cloud.create_network(RequestId::random(), &made).await.unwrap().id;
        for tag in ["network-controller:c:gone", "network-controller:c:there"] {
            cloud.add_network_tag(RequestId::random(), id, tag).await.unwrap();
        }
        let snapshot = Snapshot::take(&cloud, &cluster, []).await.unwrap();
        let mut orphans = Orphans::default();
        let there = HashSet::from(["there".to_owned()]);
        assert_eq!(orphans.note(&cluster, &snapshot, &there, Duration::ZERO), []);
        assert!(orphans.since.is_empty());
        let due = orphans.note(&cluster, &snapshot, &HashSet::new(), Duration::ZERO);
        assert_eq!(due, [("gone".to_owned(), id)]);
    }
}
