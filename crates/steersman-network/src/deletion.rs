//! Takes the network of an object that is being deleted out of Neutron.

use crate::api::NetworkStatus;
use crate::event::Event;
use crate::execute::give_back_marker;
use crate::observe::networks;
use crate::outcome::{Next, Obstacle};
use crate::pending::Pending;
use crate::plan::Identity;
use steersman_neutron::{Cloud, RequestId};

/// Deletes what carries the marker, and what has lost it; `Ok` when nothing is left.
pub(crate) async fn delete(
    cloud: &dyn Cloud,
    request: RequestId,
    uid: &str,
    identity: &Identity,
    status: Option<&NetworkStatus>,
    pending: &Pending,
    events: &mut Vec<Event>,
) -> Result<(), Obstacle> {
    for network in networks(cloud, request, identity, status).await? {
        if network.description != identity.marker {
            // Only what carries the marker is deleted. If two release it at the same time, the slower one gets a conflict.
            give_back_marker(cloud, request, identity, network.id, network.revision).await?;
        }
        match cloud.delete_network(request, network.id, None).await {
            Ok(()) => events.push(Event::new("NetworkDeleted", format!("deleted network {}", network.id))),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
    }
    // A create whose answer was lost may still come about: wait, then look once more.
    if let Some(wait) = pending.wait(uid) {
        let message = "the answer to a create was lost: waiting to see whether there is something to delete";
        return Err(Obstacle::new("AnswerLost", message, Next::After(wait)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::Desired;
    use crate::execute::{Work, converge};
    use crate::outcome::Outcome;
    use steersman_neutron::{NetworkFilter, NetworkId, NetworkUpdate, Simulated};

    fn identity(uid: &str) -> Identity {
        Identity { marker: format!("network-controller/{uid}"), name: format!("default/{uid}") }
    }

    /// The network that a converge leads to.
    async fn converged(cloud: &Simulated, uid: &str, status: Option<&NetworkStatus>) -> String {
        let desired = Desired { cidr: "10.0.0.0/24".parse().unwrap(), gateway: None };
        let (pending, identity) = (Pending::default(), identity(uid));
        let work = Work { cloud, request: RequestId::random(), uid, identity: &identity, desired, pending: &pending };
        match converge(&work, status, &mut Vec::new()).await {
            Outcome::Ready { network, .. } => network,
            Outcome::Stuck(obstacle) => panic!("{uid}: {obstacle:?}"),
        }
    }

    async fn deleted(cloud: &Simulated, uid: &str, status: &NetworkStatus) {
        let pending = Pending::default();
        delete(cloud, RequestId::random(), uid, &identity(uid), Some(status), &pending, &mut Vec::new()).await.unwrap();
    }

    async fn ids(cloud: &Simulated) -> Vec<String> {
        let networks = cloud.find_networks(RequestId::random(), &NetworkFilter::all()).await.unwrap();
        networks.iter().map(|network| network.id.to_string()).collect()
    }

    async fn change(cloud: &Simulated, id: &str, change: NetworkUpdate) {
        let id: NetworkId = id.parse().unwrap();
        cloud.update_network(RequestId::random(), id, &change, None).await.unwrap();
    }

    fn naming(id: &str) -> NetworkStatus {
        NetworkStatus { network_id: Some(id.to_owned()), ..NetworkStatus::default() }
    }

    #[tokio::test]
    async fn of_two_objects_whose_status_names_one_network_only_its_own_takes_it() {
        let cloud = Simulated::in_memory();
        let own = converged(&cloud, "own", None).await;
        let forged = naming(&own);
        deleted(&cloud, "other", &forged).await;
        assert_eq!(ids(&cloud).await, std::slice::from_ref(&own), "deleted by an object that only names it");
        let others = converged(&cloud, "other", Some(&forged)).await;
        assert_ne!(others, own, "taken over by an object that only names it");
        deleted(&cloud, "other", &forged).await;
        assert_eq!(ids(&cloud).await, std::slice::from_ref(&own));
        deleted(&cloud, "own", &forged).await;
        assert_eq!(ids(&cloud).await, [""; 0]);
    }

    #[tokio::test]
    async fn a_network_without_any_marker_needs_the_name_too() {
        let cloud = Simulated::in_memory();
        let own = converged(&cloud, "own", None).await;
        let unmarked = || NetworkUpdate { description: Some(String::new()), ..NetworkUpdate::default() };
        change(&cloud, &own, unmarked()).await;
        deleted(&cloud, "other", &naming(&own)).await;
        assert_eq!(ids(&cloud).await, std::slice::from_ref(&own));
        assert_eq!(converged(&cloud, "own", Some(&naming(&own))).await, own, "a lost marker is given back");
        change(&cloud, &own, unmarked()).await;
        deleted(&cloud, "own", &naming(&own)).await;
        assert_eq!(ids(&cloud).await, [""; 0]);
    }
}
