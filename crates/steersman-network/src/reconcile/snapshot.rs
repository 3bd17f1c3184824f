//! Everything in Neutron at one time: one listing for all objects, in place of a few requests for each.
//!
//! A snapshot only serves to find that nothing is left to do. Before anything is changed, the object's own network is
//! read.

use crate::api::NetworkStatus;
use crate::identity::{ClusterId, Identity, Ownership};
use crate::reconcile::desired::{Desired, Target};
use crate::reconcile::outcome::check_working;
use crate::reconcile::plan::{Observed, Step, plan};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use steersman_neutron::{Cloud, Error, Network, NetworkFilter, NetworkId, RequestId, Subnet, SubnetFilter, SubnetId};
use tokio::sync::watch;
use tokio::time::Instant;

/// How long the first reconciles wait for the first snapshot.
const FIRST_TIMEOUT: Duration = Duration::from_secs(30);
/// The number of objects whose writes since the last snapshot are remembered; beyond it, all count as written to.
const TOUCHED_MAX: usize = 100_000;

/// The state of Neutron at one time.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// When the listing was begun: later writes may be missing.
    pub(crate) begun: Instant,
    networks: HashMap<NetworkId, Network>,
    /// The networks of this cluster by the uid in their markers.
    owned: HashMap<String, Vec<NetworkId>>,
    subnets: HashMap<NetworkId, Vec<Subnet>>,
}

impl Snapshot {
    /// Lists everything in the credentials' project, and from other projects the networks that are `named`: adopted
    /// ones.
    ///
    /// # Errors
    /// The cloud's error.
    pub(crate) async fn take(
        cloud: &dyn Cloud,
        cluster: &ClusterId,
        named: impl IntoIterator<Item = NetworkId>,
    ) -> Result<Snapshot, Error> {
        let (request, begun) = (RequestId::random(), Instant::now());
        let project_ids = cloud.project_id(request).await?.map(|project| vec![project]);
        let filter = NetworkFilter { project_ids: project_ids.clone(), ..NetworkFilter::all() };
        let listed = cloud.find_networks(request, &filter).await?;
        let filter = SubnetFilter { project_ids, ..SubnetFilter::all() };
        let mut subnets: HashMap<NetworkId, Vec<Subnet>> = HashMap::new();
        for subnet in cloud.find_subnets(request, &filter).await? {
            subnets.entry(subnet.network_id).or_default().push(subnet);
        }
        let (mut networks, mut owned) = (HashMap::new(), HashMap::<String, Vec<NetworkId>>::new());
        for network in listed {
            for uid in cluster.owners_of(&network) {
                owned.entry(uid.to_owned()).or_default().push(network.id);
            }
            networks.insert(network.id, network);
        }
        let elsewhere: Vec<NetworkId> = named.into_iter().filter(|id| !networks.contains_key(id)).collect();
        if !elsewhere.is_empty() {
            let found = cloud.find_networks(request, &NetworkFilter::ids(elsewhere)).await?;
            let ids: Vec<NetworkId> = found.iter().map(|network| network.id).collect();
            networks.extend(found.into_iter().map(|network| (network.id, network)));
            if !ids.is_empty() {
                // All subnets of these networks, whatever their project: those of this project are listed a second
                // time.
                let filter = SubnetFilter { network_ids: Some(ids.clone()), ..SubnetFilter::all() };
                subnets.retain(|network, _| !ids.contains(network));
                for subnet in cloud.find_subnets(request, &filter).await? {
                    subnets.entry(subnet.network_id).or_default().push(subnet);
                }
            }
        }
        Ok(Snapshot { begun, networks, owned, subnets })
    }

    /// An object's network and subnet, if they agree with the spec and Neutron says that the network works; `None` also
    /// where only requests for the object alone can tell.
    pub(crate) fn agreed(
        &self,
        uid: &str,
        identity: &Identity,
        status: Option<&NetworkStatus>,
        desired: &Desired,
    ) -> Option<(NetworkId, SubnetId)> {
        let observed = self.observed(uid, identity, status, desired.adopt.as_ref())?;
        let Step::Done(network, subnet) = plan(desired, identity, &observed) else { return None };
        check_working(observed.networks.first()?, desired).ok()?;
        Some((network, subnet))
    }

    /// The resources of an object, if its status names a network that is recognized as the object's.
    fn observed(
        &self,
        uid: &str,
        identity: &Identity,
        status: Option<&NetworkStatus>,
        adopt: Option<&Target>,
    ) -> Option<Observed> {
        let status = status?;
        let network = self.networks.get(&status.network()?)?;
        match identity.ownership(network) {
            Ownership::Own => {}
            Ownership::Unmarked if adopt.is_some_and(|target| target.is(network)) => {}
            Ownership::Unmarked | Ownership::Others => return None,
        }
        let others = self.owned.get(uid).into_iter().flatten().filter(|id| **id != network.id);
        let others = others.filter_map(|id| self.networks.get(id));
        Some(Observed {
            networks: [network].into_iter().chain(others).cloned().collect(),
            subnets: self.subnets.get(&network.id).cloned().unwrap_or_default(),
            known_subnet: status.subnet(),
        })
    }

    /// The number of networks with the marker of an object.
    pub(crate) fn n_owned(&self, uid: &str) -> usize {
        self.owned.get(uid).map_or(0, Vec::len)
    }

    /// The uids in markers of this cluster, each with its networks.
    pub(crate) fn owned(&self) -> impl Iterator<Item = (&str, &[NetworkId])> {
        self.owned.iter().map(|(uid, ids)| (uid.as_str(), ids.as_slice()))
    }

    /// Whether more than a tag, which may have been copied, shows that a network was created for an object, or that the
    /// object has adopted it.
    pub(crate) fn is_certain(&self, cluster: &ClusterId, uid: &str, id: NetworkId) -> bool {
        let marker = cluster.marker(uid);
        let is_made = self
            .networks
            .get(&id)
            .is_some_and(|network| network.description == marker || cluster.is_adopted(network, uid));
        is_made || self.subnets.get(&id).into_iter().flatten().any(|subnet| subnet.description == marker)
    }

    /// Whether the snapshot has networks of this cluster.
    pub(crate) fn has_own(&self) -> bool {
        !self.owned.is_empty()
    }
}

/// The latest snapshot, and the objects for which it is out of date.
#[derive(Debug)]
pub(crate) struct Snapshots {
    latest: Mutex<Option<Arc<Snapshot>>>,
    /// When the network of each object, by uid, was last written to.
    touched: Mutex<HashMap<String, Instant>>,
    /// True once the first attempt has ended.
    first: watch::Sender<bool>,
    age_max: Duration,
}

impl Snapshots {
    /// Without a snapshot. A snapshot that is older than `age_max` is not used.
    pub(crate) fn new(age_max: Duration) -> Snapshots {
        Snapshots { latest: Mutex::default(), touched: Mutex::default(), first: watch::Sender::new(false), age_max }
    }

    /// The latest snapshot, if it was begun after the object's network was last written to.
    pub(crate) fn of(&self, uid: &str) -> Option<Arc<Snapshot>> {
        let latest = self.latest.lock().clone()?;
        let touched = self.touched.lock();
        let is_current = touched.len() < TOUCHED_MAX && touched.get(uid).is_none_or(|at| *at < latest.begun);
        (is_current && latest.begun.elapsed() < self.age_max).then_some(latest)
    }

    /// Records that the object's network is about to be written to, or has been.
    pub(crate) fn touch(&self, uid: &str) {
        self.touched.lock().insert(uid.to_owned(), Instant::now());
    }

    /// Sets the latest snapshot.
    pub(crate) fn replace(&self, snapshot: Arc<Snapshot>) {
        self.touched.lock().retain(|_, at| snapshot.begun <= *at);
        *self.latest.lock() = Some(snapshot);
        self.first.send_replace(true);
    }

    /// Drops the snapshot: each object is observed on its own.
    pub(crate) fn clear(&self) {
        *self.latest.lock() = None;
        self.first.send_replace(true);
    }

    /// Waits until the first attempt to take a snapshot has ended, so that a start does not observe every object on its
    /// own.
    pub(crate) async fn first(&self) {
        let mut first = self.first.subscribe();
        // This cannot fail, since the sender lives as long as `self`. After a timeout, everything works without a
        // snapshot.
        let _ = tokio::time::timeout(FIRST_TIMEOUT, first.wait_for(|is_over| *is_over)).await;
    }
}
