//! What Neutron has of an object.

use crate::api::NetworkStatus;
use crate::plan::{Identity, Observed};
use steersman_neutron::{Cloud, Error, Network, NetworkFilter, NetworkId, RequestId, SubnetFilter};

/// Looks up what carries the marker, and what the status names.
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

/// The networks of an object, oldest first: those with its marker, else the one its status names.
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
    // The marker may have been edited away; the id still leads there.
    let Some(id) = status.and_then(|status| status.network_id.as_deref()).and_then(|id| id.parse::<NetworkId>().ok())
    else {
        return Ok(Vec::new());
    };
    match cloud.read_network(request, id).await {
        Ok(network) => Ok(vec![network]),
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
