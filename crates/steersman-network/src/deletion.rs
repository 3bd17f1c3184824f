//! Lets go of the network of an object that is being deleted: out of Neutron, or out of the operator's hands.

use crate::api::{DeletionPolicy, Lenient, ManagementPolicy, NetworkSpec};
use crate::desired::Invalid;
use crate::event::Event;
use crate::execute::give_back_marker;
use crate::identity::{ClusterId, Ownership};
use crate::observe::{Found, Search};
use crate::outcome::{NotReady, Retry};
use crate::pending::Pending;
use crate::plan::copied;
use steersman_neutron::{Network, NetworkUpdate};

/// What becomes of the network of an object that is being deleted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fate {
    Delete,
    /// It was only observed: it keeps nothing of the operator, which may have managed it before.
    Leave,
    Retain,
}

impl Fate {
    /// As the spec says, the rest of which may be invalid.
    ///
    /// # Errors
    /// What it says of this cannot be understood: deleting might be what was to be prevented.
    pub(crate) fn parse(spec: &NetworkSpec) -> Result<Fate, Invalid> {
        let unclear = |field, json: &String, want| Err(Invalid::Type { field, json: json.clone(), want });
        match &spec.management_policy {
            Lenient::Valid(ManagementPolicy::Observed) => return Ok(Fate::Leave),
            Lenient::Invalid(json) => return unclear("managementPolicy", json, "Managed or Observed"),
            Lenient::Valid(ManagementPolicy::Managed) | Lenient::Absent => {}
        }
        match &spec.deletion_policy {
            Lenient::Valid(DeletionPolicy::Delete) => Ok(Fate::Delete),
            Lenient::Valid(DeletionPolicy::Retain) => Ok(Fate::Retain),
            Lenient::Absent if spec.adopt.is_absent() => Ok(Fate::Delete),
            Lenient::Absent => Ok(Fate::Retain),
            Lenient::Invalid(json) => unclear("deletionPolicy", json, "Delete or Retain"),
        }
    }
}

/// What to let go of.
pub(crate) struct Release<'a> {
    pub(crate) search: Search<'a>,
    pub(crate) cluster: &'a ClusterId,
    pub(crate) uid: &'a str,
    pub(crate) pending: &'a Pending,
    pub(crate) fate: Fate,
}

impl Release<'_> {
    /// `Ok` when nothing in Neutron needs the object any more.
    ///
    /// # Errors
    /// What is in the way.
    pub(crate) async fn run(&self, events: &mut Vec<Event>) -> Result<(), NotReady> {
        match self.fate {
            Fate::Delete => self.delete(events).await,
            Fate::Leave | Fate::Retain => self.retain(events).await,
        }
    }

    /// Deletes what carries the marker, and what has lost it.
    async fn delete(&self, events: &mut Vec<Event>) -> Result<(), NotReady> {
        let Search { cloud, request, identity, read_access, .. } = self.search;
        let Found { networks, is_missing } = self.search.own(None).await?;
        if is_missing && networks.is_empty() {
            read_access.check(cloud, request, self.cluster).await?;
        }
        if let Some((network, others)) = networks.split_first()
            && let Some(other) = others.iter().find(|other| !identity.has_described(other))
        {
            return Err(copied(identity, network, other).into());
        }
        for network in networks {
            if identity.is_shared(&network) {
                self.unmark(&network).await?;
                events.push(Event::new("NetworkRetained", format!("network {} is another object's too", network.id)));
                continue;
            }
            let network = match identity.ownership(&network) {
                Ownership::Own => network,
                // Only what carries the marker is deleted. If two release it at the same time, the slower one gets a conflict.
                _ => give_back_marker(cloud, request, identity, network.id, network.revision).await?,
            };
            // As it was read: somebody may have taken the marker away since, to keep the network.
            match cloud.delete_network(request, network.id, network.revision).await {
                Ok(()) => events.push(Event::new("NetworkDeleted", format!("deleted network {}", network.id))),
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.settle()
    }

    /// Takes the markers away, so that no sweep takes the network for one that was left behind.
    async fn retain(&self, events: &mut Vec<Event>) -> Result<(), NotReady> {
        let Search { cloud, request, read_access, .. } = self.search;
        let Found { networks, is_missing } = self.search.carriers().await?;
        if is_missing && networks.is_empty() {
            // A network that only cannot be seen still has its marker, and some day a sweep would see it.
            read_access.check(cloud, request, self.cluster).await?;
        }
        for network in networks {
            self.unmark(&network).await?;
            events.push(Event::new("NetworkRetained", format!("network {} stays in Neutron", network.id)));
        }
        self.settle()
    }

    async fn unmark(&self, network: &Network) -> Result<(), NotReady> {
        let Search { cloud, request, identity, .. } = self.search;
        // The description first: whoever is interrupted in between still finds it by its tag.
        if identity.has_described(network) {
            let change = NetworkUpdate { description: Some(String::new()), ..NetworkUpdate::default() };
            cloud.update_network(request, network.id, &change, network.revision).await?;
        }
        if identity.has_tagged(network) {
            match cloud.remove_network_tag(request, network.id, &identity.marker).await {
                Err(error) if !error.is_not_found() => return Err(error.into()),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// A create whose answer was lost may still come about: wait, then look once more.
    fn settle(&self) -> Result<(), NotReady> {
        match self.pending.wait(self.uid) {
            Some(wait) => {
                let message = "the answer to a create was lost: waiting to see whether there is something to let go of";
                Err(NotReady::new("AnswerLost", message, Retry::After(wait)))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
