//! Releases the network of an object that is being deleted: deletes it from Neutron, or removes the operator's markers.

use crate::api::{DeletionPolicy, Lenient, ManagementPolicy, NetworkSpec};
use crate::event::Event;
use crate::identity::{ClusterId, Ownership};
use crate::reconcile::desired::Invalid;
use crate::reconcile::execute::give_back_marker;
use crate::reconcile::observe::{ObjectNetworks, Search};
use crate::reconcile::outcome::{NotReady, Retry};
use crate::reconcile::pending::Pending;
use crate::reconcile::plan::copied;
use steersman_neutron::{Network, NetworkUpdate};

/// The deletion policy of an object that is being deleted, read from a spec whose other fields may be invalid; `None`
/// where the spec leaves it open. `Observed` counts as `Retain`: only the operator's markers are removed, which exist
/// if it was managed before.
///
/// # Errors
/// The policy cannot be read: the user may have meant to prevent a deletion.
pub(crate) fn deletion_policy(spec: &NetworkSpec) -> Result<Option<DeletionPolicy>, Invalid> {
    let unclear = |field, json: &String, want| Err(Invalid::Type { field, json: json.clone(), want });
    match &spec.management_policy {
        Lenient::Valid(ManagementPolicy::Observed) => return Ok(Some(DeletionPolicy::Retain)),
        Lenient::Invalid(json) => return unclear("managementPolicy", json, "Managed or Observed"),
        Lenient::Valid(ManagementPolicy::Managed) | Lenient::Absent => {}
    }
    match &spec.deletion_policy {
        Lenient::Valid(policy) => Ok(Some(*policy)),
        Lenient::Absent => Ok((!spec.adopt.is_absent()).then_some(DeletionPolicy::Retain)),
        Lenient::Invalid(json) => unclear("deletionPolicy", json, "Delete or Retain"),
    }
}

/// The network to release.
pub(crate) struct Release<'a> {
    pub(crate) search: Search<'a>,
    pub(crate) cluster: &'a ClusterId,
    pub(crate) uid: &'a str,
    pub(crate) pending: &'a Pending,
    /// `None`: created networks are deleted, and adopted ones stay.
    pub(crate) policy: Option<DeletionPolicy>,
}

impl Release<'_> {
    /// `Ok` when nothing in Neutron belongs to the object any more.
    ///
    /// # Errors
    /// Why the network cannot be released yet.
    pub(crate) async fn run(&self, events: &mut Vec<Event>) -> Result<(), NotReady> {
        match self.policy {
            Some(DeletionPolicy::Delete) | None => self.delete(events).await,
            Some(DeletionPolicy::Retain) => self.retain(events).await,
        }
    }

    /// Deletes networks with the marker, and those that have lost it; adopted ones only if the spec says so.
    async fn delete(&self, events: &mut Vec<Event>) -> Result<(), NotReady> {
        let Search { cloud, request, identity, read_access, .. } = self.search;
        let ObjectNetworks { networks, is_missing } = self.search.own(None).await?;
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
            if self.policy.is_none() && identity.has_adopted(&network) {
                self.unmark(&network).await?;
                let text = format!("network {} stays in Neutron: it was adopted", network.id);
                events.push(Event::new("NetworkRetained", text));
                continue;
            }
            let network = match identity.ownership(&network) {
                Ownership::Own => network,
                // Only a network with the marker is deleted, so the marker is given back first. If two release it at
                // the same time, the slower one gets a conflict.
                _ => give_back_marker(cloud, request, identity, network.id, network.revision).await?,
            };
            // Deleted at the revision that was read: somebody may have removed the marker since, to keep the network.
            match cloud.delete_network(request, network.id, network.revision).await {
                Ok(()) => events.push(Event::new("NetworkDeleted", format!("deleted network {}", network.id))),
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.wait_for_lost_create()
    }

    /// Removes the markers, so that no sweep takes the network for an orphan.
    async fn retain(&self, events: &mut Vec<Event>) -> Result<(), NotReady> {
        let Search { cloud, request, read_access, .. } = self.search;
        let ObjectNetworks { networks, is_missing } = self.search.carriers().await?;
        if is_missing && networks.is_empty() {
            // A network that is only invisible still has its marker, and a later sweep would delete it.
            read_access.check(cloud, request, self.cluster).await?;
        }
        for network in networks {
            self.unmark(&network).await?;
            events.push(Event::new("NetworkRetained", format!("network {} stays in Neutron", network.id)));
        }
        self.wait_for_lost_create()
    }

    async fn unmark(&self, network: &Network) -> Result<(), NotReady> {
        let Search { cloud, request, identity, .. } = self.search;
        // The description first: after an interruption in between, the network is still found by its tag.
        if identity.has_described(network) {
            let change = NetworkUpdate { description: Some(String::new()), ..NetworkUpdate::default() };
            cloud.update_network(request, network.id, &change, network.revision).await?;
        }
        Ok(identity.untag(cloud, request, network).await?)
    }

    /// A create whose answer was lost may still be carried out: wait, then search once more.
    fn wait_for_lost_create(&self) -> Result<(), NotReady> {
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
