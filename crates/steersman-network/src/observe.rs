//! What Neutron has of an object.

use crate::api::NetworkStatus;
use crate::plan::{Identity, Observed};
use steersman_neutron::{Cloud, Error, Network, NetworkFilter, NetworkId, RequestId, SubnetFilter};

/// Looks up what is the object's in Neutron.
///
/// # Errors
/// The cloud's.
pub(crate) async fn observe(
    cloud: &dyn Cloud,
    request: RequestId,
    identity: &Identity,
    status: Option<&NetworkStatus>,
) -> Result<Observed, Error> {
    let networks = networks(cloud, request, identity, status).await?;
    let subnets = match networks.first() {
        Some(network) => cloud.find_subnets(request, &SubnetFilter::network(network.id)).await?,
        None => Vec::new(),
    };
    Ok(Observed { networks, subnets })
}

/// The networks of an object, oldest first: those with its marker, else the one its status names if that has lost its marker.
///
/// Anyone who may write a status may write any id there, so the id alone proves nothing: a network with another marker, or
/// with another name, is somebody else's.
///
/// # Errors
/// The cloud's.
pub(crate) async fn networks(
    cloud: &dyn Cloud,
    request: RequestId,
    identity: &Identity,
    status: Option<&NetworkStatus>,
) -> Result<Vec<Network>, Error> {
    let marked = cloud.find_networks(request, &NetworkFilter::description(&identity.marker)).await?;
    if !marked.is_empty() {
        return Ok(marked);
    }
    let Some(id) = status.and_then(|status| status.network_id.as_deref()).and_then(|id| id.parse::<NetworkId>().ok())
    else {
        return Ok(Vec::new());
    };
    match cloud.read_network(request, id).await {
        Ok(network) if has_lost_marker(&network, identity) => Ok(vec![network]),
        Ok(_) => Ok(Vec::new()),
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Whether a network is the object's but for its marker, which somebody has taken away.
fn has_lost_marker(network: &Network, identity: &Identity) -> bool {
    network.description.is_empty() && network.name == identity.name
}
