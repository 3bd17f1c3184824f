//! Takes steps until nothing is left to do.

use crate::api::{DriftPolicy, ManagementPolicy, NetworkStatus};
use crate::event::Event;
use crate::identity::{ClusterId, Identity};
use crate::read_access::unreadable;
use crate::reconcile::desired::Desired;
use crate::reconcile::observe::{Search, observe, taken};
use crate::reconcile::outcome::{NotReady, Outcome, Retry, check_working};
use crate::reconcile::pending::Pending;
use crate::reconcile::plan::{Observed, Step, plan};
use steersman_neutron::{
    Class, Cloud, Error, Network, NetworkCreate, NetworkId, NetworkUpdate, RequestId, Revision, Subnet, SubnetCreate,
    SubnetId, SubnetUpdate,
};

/// The most steps of one reconcile. Eight are enough for anything; more means that somebody undoes them.
const STEPS_MAX: usize = 16;

/// The most observations of one reconcile: each beyond the first is because somebody else wrote in between.
const LOOKS_MAX: usize = 3;

/// The input of a reconcile.
pub(crate) struct Input<'a> {
    pub(crate) search: Search<'a>,
    pub(crate) cluster: &'a ClusterId,
    pub(crate) uid: &'a str,
    pub(crate) desired: &'a Desired,
    pub(crate) pending: &'a Pending,
    /// Neutron agreed with this spec before: differences were made in Neutron.
    pub(crate) is_applied: bool,
}

/// Why a step was not taken.
enum StepError {
    /// Somebody else wrote in between: observe again.
    Conflict,
    NotReady(NotReady),
}

impl From<Error> for StepError {
    fn from(error: Error) -> StepError {
        match error.class() {
            Some(Class::PreconditionFailed) => StepError::Conflict,
            _ => StepError::NotReady(error.into()),
        }
    }
}

impl From<NotReady> for StepError {
    fn from(not_ready: NotReady) -> StepError {
        StepError::NotReady(not_ready)
    }
}

/// The observed state, updated with the answers to the steps, so that nothing is read twice.
struct Progress<'a> {
    work: &'a Input<'a>,
    observed: Observed,
    /// The status names a network that was not found.
    is_missing: bool,
    /// The network created in this reconcile: its marker needs no Event of its own.
    created: Option<NetworkId>,
    events: &'a mut Vec<Event>,
}

/// Takes steps until Neutron agrees with the spec. Adds an event for each change.
pub(crate) async fn converge(work: &Input<'_>, events: &mut Vec<Event>) -> Outcome {
    let mut n_steps = 0;
    let mut created = None;
    for _ in 0..LOOKS_MAX {
        let (observed, is_missing) = match observe(&work.search, work.desired).await {
            Ok(observed) => observed,
            Err(not_ready) => return Outcome::stuck(not_ready),
        };
        let mut progress = Progress { work, observed, is_missing, created, events };
        if let Err(stop) = progress.yield_unrecorded().await {
            match stop {
                StepError::Conflict => continue,
                StepError::NotReady(not_ready) => return progress.outcome(Err(not_ready), None),
            }
        }
        let not_ready = loop {
            let step = plan(work.desired, work.search.identity, &progress.observed);
            if let Step::Done(_, subnet) = step {
                work.pending.forget(work.uid);
                return progress.ready(subnet);
            }
            n_steps += 1;
            if STEPS_MAX < n_steps {
                break Some(contested());
            }
            match progress.take(step).await {
                Ok(()) => {}
                Err(StepError::Conflict) => break None,
                Err(StepError::NotReady(not_ready)) => break Some(not_ready),
            }
        };
        created = progress.created;
        if let Some(not_ready) = not_ready {
            return progress.outcome(Err(not_ready), None);
        }
    }
    Outcome::stuck(contested())
}

/// The error where changes did not last, or kept failing because of other changes.
fn contested() -> NotReady {
    let message = "Neutron was not as it should be after many steps: something else changes the same network";
    NotReady::new("NeutronChanged", message, Retry::BackOff)
}

impl Progress<'_> {
    fn ready(&self, subnet: SubnetId) -> Outcome {
        let working = match self.observed.networks.first() {
            Some(network) => check_working(network, self.work.desired),
            None => Ok(()),
        };
        self.outcome(working, Some(subnet))
    }

    fn outcome(&self, ready: Result<(), NotReady>, subnet: Option<SubnetId>) -> Outcome {
        let network = self.observed.networks.first().map(|network| network.id);
        Outcome { ready, network, subnet }
    }

    async fn take(&mut self, step: Step) -> Result<(), StepError> {
        let desired = self.work.desired;
        match &step {
            Step::Refuse(refusal) => return Err(NotReady::from(refusal.clone()).into()),
            step if desired.management_policy == ManagementPolicy::Observed => {
                return Err(NotReady::differs(step).into());
            }
            // A network and subnet that this reconcile has begun to create are finished, whatever the policy.
            step if desired.drift_policy == DriftPolicy::Report && self.work.is_applied && self.created.is_none() => {
                return Err(NotReady::drifted(step).into());
            }
            Step::CreateNetwork | Step::CreateSubnet(_) => {
                if let Some(wait) = self.work.pending.wait(self.work.uid) {
                    let message = "the answer to a create was lost: waiting to see whether it came about";
                    return Err(NotReady::new("AnswerLost", message, Retry::After(wait)).into());
                }
            }
            _ => {}
        }
        match step {
            Step::AddTag(id) => self.add_tag(id).await,
            Step::CreateNetwork => self.create_network().await,
            Step::CreateSubnet(network) => self.create_subnet(network).await,
            Step::DeleteDuplicate(id) => {
                let duplicate = self.observed.networks.iter().find(|network| network.id == id);
                let revision = duplicate.and_then(|network| network.revision);
                forgiving(self.cloud().delete_network(self.request(), id, revision).await)?;
                self.event("DuplicateDeleted", format!("deleted network {id}, which had been made twice"));
                self.observed.networks.retain(|network| network.id != id);
                Ok(())
            }
            Step::DeleteSubnet(id) => {
                forgiving(self.cloud().delete_subnet(self.request(), id, None).await)?;
                self.event("SubnetDeleted", format!("deleted subnet {id}, whose addresses are no longer wanted"));
                self.observed.subnets.retain(|subnet| subnet.id != id);
                // The network's revision went up.
                self.forget_revision();
                Ok(())
            }
            Step::UpdateNetwork(id, ref update) => self.update_network(id, update, step.to_string()).await,
            Step::UpdateSubnet(id, ref update) => self.update_subnet(id, update, step.to_string()).await,
            Step::Done(..) | Step::Refuse(_) => Ok(()),
        }
    }

    async fn create_network(&mut self) -> Result<(), StepError> {
        let Input { search, cluster, uid, pending, .. } = self.work;
        let (cloud, request, read_access) = (search.cloud, search.request, search.read_access);
        if self.is_missing {
            read_access.check(cloud, request, cluster).await?;
        }
        // One create at a time until the first created network has been read.
        let turn = read_access.turn().await;
        if turn.is_some() {
            read_access.recheck(cloud, request).await?;
        }
        let create = NetworkCreate {
            name: Some(search.identity.name.clone()),
            description: Some(search.identity.marker.clone()),
            admin_state_up: Some(self.work.desired.admin_state_up.unwrap_or(true)),
            mtu: self.work.desired.mtu,
            shared: self.work.desired.shared,
            ..NetworkCreate::default()
        };
        let in_flight = pending.in_flight(uid);
        let network = in_flight.outcome(cloud.create_network(request, &create).await)?;
        let id = network.id;
        self.event("NetworkCreated", format!("created network {id}"));
        self.created = Some(id);
        // Noted before it is read: if the read fails, the status names the network, and no other is created.
        self.observed.networks = vec![network];
        self.observed.subnets.clear();
        if turn.is_some() {
            match cloud.read_network(request, id).await {
                Ok(_) => read_access.confirm(),
                Err(error) if error.is_not_found() => {
                    read_access.refute(id);
                    return Err(unreadable(id).into());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    async fn create_subnet(&mut self, network: NetworkId) -> Result<(), StepError> {
        let Input { search, uid, desired, pending, .. } = self.work;
        let create = SubnetCreate {
            name: Some(search.identity.name.clone()),
            description: Some(search.identity.marker.clone()),
            gateway: desired.request_gateway(),
            enable_dhcp: desired.enable_dhcp,
            allocation_pools: desired.allocation_pools.clone(),
            dns_nameservers: desired.dns_nameservers.clone(),
            ..SubnetCreate::new(network, desired.cidr)
        };
        let in_flight = pending.in_flight(uid);
        let subnet = in_flight.outcome(search.cloud.create_subnet(search.request, &create).await)?;
        self.event("SubnetCreated", format!("created subnet {} with {}", subnet.id, desired.cidr));
        self.observed.subnets.push(subnet);
        self.forget_revision();
        Ok(())
    }

    /// An earlier reconcile may have been cut off between marking a network to adopt and checking for other markers.
    async fn yield_unrecorded(&mut self) -> Result<(), StepError> {
        let Input { search, desired, .. } = self.work;
        let recorded = search.status.and_then(NetworkStatus::network);
        let is_recorded = self.observed.networks.first().is_some_and(|network| recorded == Some(network.id));
        let is_managed = desired.management_policy == ManagementPolicy::Managed;
        if desired.adopt.is_some() && is_managed && !is_recorded { self.yield_shared().await } else { Ok(()) }
    }

    /// Removes the marker from a network to adopt that another object has marked too. Each object checks after it has
    /// marked, so the later of two sees the marker of the other; if both see each other, both try again, a little
    /// apart.
    async fn yield_shared(&mut self) -> Result<(), StepError> {
        let Input { search, .. } = self.work;
        let Some(network) = self.observed.networks.first().filter(|it| search.identity.is_shared(it)) else {
            return Ok(());
        };
        let id = network.id;
        search.identity.untag(search.cloud, search.request, network).await?;
        // The status must not name the network.
        self.observed.networks.clear();
        Err(taken(id).into())
    }

    /// Marks a network to adopt, and makes sure that no other object did so at the same time.
    async fn adopt(&mut self, id: NetworkId) -> Result<(), StepError> {
        let (cloud, request) = (self.work.search.cloud, self.work.search.request);
        // The network is not the object's before no other object has marked it: until then the status must not name it
        // either.
        self.observed.networks.clear();
        cloud.add_network_tag(request, id, &self.work.search.identity.marker_adopted).await?;
        self.observed.networks.push(cloud.read_network(request, id).await?);
        self.yield_shared().await?;
        self.event("NetworkAdopted", format!("network {id} is now this object's"));
        Ok(())
    }

    async fn add_tag(&mut self, id: NetworkId) -> Result<(), StepError> {
        let is_made = |network: &Network| self.work.search.identity.has_described(network);
        if self.work.desired.adopt.is_some() && !self.observed.networks.first().is_some_and(is_made) {
            return self.adopt(id).await;
        }
        let marker = &self.work.search.identity.marker;
        self.cloud().add_network_tag(self.request(), id, marker).await?;
        if self.created != Some(id) {
            self.event("NetworkRestored", format!("gave network {id} its marker"));
        }
        if let Some(network) = self.observed.networks.first_mut() {
            network.tags.push(marker.clone());
        }
        self.forget_revision();
        Ok(())
    }

    async fn update_network(&mut self, id: NetworkId, update: &NetworkUpdate, what: String) -> Result<(), StepError> {
        let revision = self.observed.networks.first().and_then(|network| network.revision);
        let network: Network = self.cloud().update_network(self.request(), id, update, revision).await?;
        self.event(self.reason("NetworkUpdated", "NetworkRestored"), what);
        if let Some(known) = self.observed.networks.first_mut() {
            *known = network;
        }
        Ok(())
    }

    async fn update_subnet(&mut self, id: SubnetId, update: &SubnetUpdate, what: String) -> Result<(), StepError> {
        let Some(position) = self.observed.subnets.iter().position(|subnet| subnet.id == id) else { return Ok(()) };
        let revision = self.observed.subnets[position].revision;
        let subnet: Subnet = self.cloud().update_subnet(self.request(), id, update, revision).await?;
        self.event(self.reason("SubnetUpdated", "SubnetRestored"), what);
        self.observed.subnets[position] = subnet;
        self.forget_revision();
        Ok(())
    }

    /// The reason of an Event: for a change that follows the spec, or one that undoes a change in Neutron.
    fn reason(&self, by_spec: &'static str, by_somebody: &'static str) -> &'static str {
        if self.work.is_applied { by_somebody } else { by_spec }
    }

    /// The step raised the network's revision to a number that no answer contained.
    fn forget_revision(&mut self) {
        if let Some(network) = self.observed.networks.first_mut() {
            network.revision = None;
        }
    }

    fn cloud(&self) -> &dyn Cloud {
        self.work.search.cloud
    }

    fn request(&self) -> RequestId {
        self.work.search.request
    }

    fn event(&mut self, reason: &'static str, message: String) {
        self.events.push(Event::new(reason, message));
    }
}

/// Gives a network its name and marker, if it still has this revision, and returns it.
///
/// # Errors
/// The cloud's error.
pub(crate) async fn give_back_marker(
    cloud: &dyn Cloud,
    request: RequestId,
    identity: &Identity,
    id: NetworkId,
    revision: Option<Revision>,
) -> Result<Network, Error> {
    let change = NetworkUpdate {
        name: Some(identity.name.clone()),
        description: Some(identity.marker.clone()),
        ..NetworkUpdate::default()
    };
    cloud.update_network(request, id, &change, revision).await
}

/// A resource that is gone already counts as deleted.
fn forgiving(deleted: Result<(), Error>) -> Result<(), Error> {
    match deleted {
        Err(error) if error.is_not_found() => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests;
