//! Takes the network of an object that is being deleted out of Neutron.

use crate::api::NetworkStatus;
use crate::observe::networks;
use crate::outcome::{Next, Obstacle};
use crate::pending::Pending;
use crate::plan::Identity;
use crate::reconcile::Told;
use steersman_neutron::{Cloud, RequestId};

/// Deletes what is there; `Ok` when nothing is left.
pub(crate) async fn delete(
    cloud: &dyn Cloud,
    request: RequestId,
    uid: &str,
    identity: &Identity,
    status: Option<&NetworkStatus>,
    pending: &Pending,
    told: &mut Vec<Told>,
) -> Result<(), Obstacle> {
    for network in networks(cloud, request, identity, status).await? {
        match cloud.delete_network(request, network.id, None).await {
            Ok(()) => told.push(Told::normal("NetworkDeleted", format!("deleted network {}", network.id))),
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
