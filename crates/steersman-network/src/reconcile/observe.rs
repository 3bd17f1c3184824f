//! Finds the resources of an object in Neutron.

use crate::api::NetworkStatus;
use crate::identity::{Identity, Ownership};
use crate::read_access::ReadAccess;
use crate::reconcile::desired::{Desired, Target};
use crate::reconcile::outcome::{NotReady, Retry, SLOW};
use crate::reconcile::plan::Observed;
use std::collections::BTreeMap;
use steersman_neutron::{Cloud, Error, Network, NetworkFilter, NetworkId, RequestId, Subnet, SubnetFilter, SubnetId};

/// Which networks of an object to find.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Lookup {
    /// The one that the status records, if it exists.
    Recorded,
    /// All that have the marker: to find duplicates, or to delete them all.
    All,
}

/// The object whose networks are searched for, and where.
pub(crate) struct Search<'a> {
    pub(crate) cloud: &'a dyn Cloud,
    pub(crate) request: RequestId,
    pub(crate) identity: &'a Identity,
    pub(crate) status: Option<&'a NetworkStatus>,
    /// The project of the credentials.
    pub(crate) project: Option<&'a str>,
    pub(crate) read_access: &'a ReadAccess,
    pub(crate) lookup: Lookup,
}

/// The networks of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ObjectNetworks {
    /// The object's network, and after it its duplicates.
    pub(crate) networks: Vec<Network>,
    /// The status names a network that was not found: it may be gone, or not be visible.
    pub(crate) is_missing: bool,
}

impl NetworkStatus {
    /// The network that the status names; `None` without one, or if the text is not an id.
    pub(crate) fn network(&self) -> Option<NetworkId> {
        self.network_id.as_deref()?.parse().ok()
    }

    /// The subnet that the status names; `None` without one, or if the text is not an id.
    pub(crate) fn subnet(&self) -> Option<SubnetId> {
        self.subnet_id.as_deref()?.parse().ok()
    }
}

impl Search<'_> {
    /// The networks that the object uses or created, first the one that its status names.
    ///
    /// # Errors
    /// The network in the status cannot be found with this operator's credentials, or the cloud's error.
    pub(crate) async fn own(&self, adopt: Option<&Target>) -> Result<ObjectNetworks, NotReady> {
        let mut networks = Vec::new();
        let named = match self.status.and_then(NetworkStatus::network) {
            None => None,
            Some(id) => match self.cloud.read_network(self.request, id).await {
                Ok(network) => {
                    self.read_access.confirm();
                    networks.extend(self.recognise(network, adopt)?);
                    Some(id)
                }
                Err(error) if error.is_not_found() => {
                    self.check_place(id)?;
                    let networks = self.marked().await?;
                    self.check_first(&networks, None, adopt)?;
                    return Ok(ObjectNetworks { networks, is_missing: true });
                }
                Err(error) => return Err(error.into()),
            },
        };
        if networks.is_empty() || self.lookup == Lookup::All {
            networks.extend(self.marked().await?.into_iter().filter(|network| Some(network.id) != named));
        }
        self.check_first(&networks, named, adopt)?;
        Ok(ObjectNetworks { networks, is_missing: false })
    }

    /// Checks that more than a tag shows that the first network is the object's: tags are copied, with a template or by
    /// hand.
    fn check_first(
        &self,
        networks: &[Network],
        named: Option<NetworkId>,
        adopt: Option<&Target>,
    ) -> Result<(), NotReady> {
        let is_known = |network: &Network| {
            named == Some(network.id)
                || self.identity.is_certain_of(network)
                || adopt.is_some_and(|target| target.is(network))
        };
        let Some(network) = networks.first().filter(|network| !is_known(network)) else { return Ok(()) };
        let message = format!(
            "network {} has the tag {} of this object, but neither its description nor its name, and status.networkID does not name it, so it may be somebody's own: remove the tag from it, or name it {} to have the object use it",
            network.id, self.identity.marker, self.identity.name
        );
        Err(NotReady::new("MarkerCopied", message, Retry::After(SLOW)))
    }

    /// The networks with the object's marker, in order to remove the marker: their other faults do not matter then.
    ///
    /// # Errors
    /// The network in the status cannot be found with this operator's credentials, or the cloud's error.
    pub(crate) async fn carriers(&self) -> Result<ObjectNetworks, NotReady> {
        let mut networks = self.marked().await?;
        let named = self.status.and_then(NetworkStatus::network);
        let Some(id) = named.filter(|id| networks.iter().all(|network| network.id != *id)) else {
            return Ok(ObjectNetworks { networks, is_missing: false });
        };
        match self.cloud.read_network(self.request, id).await {
            Ok(network) => {
                self.read_access.confirm();
                // An administrator can read a network of another project, which the search did not cover.
                match self.identity.ownership(&network) {
                    Ownership::Own => networks.push(network),
                    Ownership::Others => self.check_cluster(&network)?,
                    Ownership::Unmarked => {}
                }
                Ok(ObjectNetworks { networks, is_missing: false })
            }
            Err(error) if error.is_not_found() => {
                self.check_place(id)?;
                Ok(ObjectNetworks { networks, is_missing: true })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the network that the status names if it is the object's: anyone who may write a status may write any id
    /// there, so the id alone proves nothing.
    fn recognise(&self, network: Network, adopt: Option<&Target>) -> Result<Option<Network>, NotReady> {
        match self.identity.ownership(&network) {
            Ownership::Own => Ok(Some(network)),
            Ownership::Others => self.check_cluster(&network).map(|()| None),
            // The marker is gone, as when somebody cleared both tags and description. A network of this name in another
            // project, which an administrator can read too, belongs to somebody else.
            Ownership::Unmarked if network.name == self.identity.name && self.is_of_this_project(&network) => {
                Ok(Some(network))
            }
            Ownership::Unmarked if adopt.is_some_and(|target| target.is(&network)) => Ok(Some(network)),
            Ownership::Unmarked => {
                let message = format!(
                    "network {}, which status.networkID names, has neither the marker {} as a tag nor the name {}: give it one of them back, or remove status.networkID to have another made",
                    network.id, self.identity.marker, self.identity.name
                );
                Err(NotReady::new("NotRecognized", message, Retry::After(SLOW)))
            }
        }
    }

    /// Whether the network is in the project of the operator's credentials; true where either names no project.
    fn is_of_this_project(&self, network: &Network) -> bool {
        self.project.is_none_or(|own| network.project_id.as_deref().is_none_or(|its| its == own))
    }

    /// Checks that no operator with another cluster id has marked the network for this object: the object would have a
    /// network then that this operator may not touch.
    fn check_cluster(&self, network: &Network) -> Result<(), NotReady> {
        let Some((other, own)) = self.identity.renamed_cluster(network) else { return Ok(()) };
        let message = format!(
            "network {}, which status.networkID names, was marked for this object by an operator with the cluster id {other}, and this operator has the cluster id {own}: start it with --cluster-id {other}, or give the network the tag {}, or remove status.networkID so that the object forgets that network",
            network.id, self.identity.marker
        );
        Err(NotReady::new("ClusterChanged", message, Retry::After(SLOW)))
    }

    /// Checks that this operator's credentials can read the network that the status names: if not, its absence means
    /// nothing.
    fn check_place(&self, id: NetworkId) -> Result<(), NotReady> {
        let Some(status) = self.status else { return Ok(()) };
        let backend = self.cloud.name();
        if let Some(recorded) = &status.backend {
            let is_simulated = recorded.starts_with("simulated") && self.cloud.is_simulated();
            if recorded != backend && !is_simulated {
                let message = format!(
                    "network {id} is in {recorded}, and this operator works on {backend}: start it with the former, or remove status.networkID so that the object forgets that network"
                );
                return Err(NotReady::new("BackendChanged", message, Retry::After(SLOW)));
            }
        }
        match (&status.project_id, self.project) {
            (Some(recorded), Some(project)) if recorded != project => {
                let message = format!(
                    "network {id} is in project {recorded}, and this operator's credentials are for project {project}: start it with the former, or remove status.networkID so that the object forgets that network"
                );
                Err(NotReady::new("ProjectChanged", message, Retry::After(SLOW)))
            }
            _ => Ok(()),
        }
    }

    /// The networks with the object's marker: first those with more than a tag, and among these the oldest first.
    async fn marked(&self) -> Result<Vec<Network>, Error> {
        let mut found = BTreeMap::new();
        let descriptions = vec![self.identity.marker.clone(), self.identity.marker_0_1.clone()];
        let described = NetworkFilter { descriptions: Some(descriptions), ..NetworkFilter::all() };
        let tags = [&self.identity.marker, &self.identity.marker_adopted].map(String::clone);
        for mut filter in [described, NetworkFilter::tags(tags)] {
            // An administrator sees the networks of all projects, and anyone can write any description.
            filter.project_ids = self.project.map(|project| vec![project.to_owned()]);
            for network in self.cloud.find_networks(self.request, &filter).await? {
                found.insert((!self.identity.is_certain_of(&network), network.created_at, network.id), network);
            }
        }
        if !found.is_empty() {
            self.read_access.confirm();
        }
        Ok(found.into_values().collect())
    }

    /// The network that the spec wants adopted.
    ///
    /// # Errors
    /// The network does not exist, more than one matches, another object has it, or the cloud's error.
    pub(crate) async fn network_to_adopt(&self, target: &Target) -> Result<Network, NotReady> {
        let filter = match target {
            Target::Id(id) => NetworkFilter::id(*id),
            Target::Tag(tag) => NetworkFilter::tag(tag),
        };
        let mut networks = self.cloud.find_networks(self.request, &filter).await?;
        let stuck = |reason, message| Err(NotReady::new(reason, message, Retry::After(SLOW)));
        let Some(network) = networks.pop() else {
            return stuck("AdoptNotFound", format!("there is no network {target} that these credentials can see"));
        };
        if let Some(other) = networks.pop() {
            let message = format!("networks {} and {} are both {target}: name one by its id", other.id, network.id);
            return stuck("AdoptAmbiguous", message);
        }
        if self.identity.ownership(&network) == Ownership::Others {
            return Err(taken(network.id));
        }
        Ok(network)
    }
}

/// The error where another object has the network to adopt.
pub(crate) fn taken(id: NetworkId) -> NotReady {
    let message = format!("network {id} has the marker of another object: remove that object, or its marker");
    NotReady::new("AdoptTaken", message, Retry::After(SLOW))
}

/// The subnets of a network.
///
/// # Errors
/// The cloud's error.
pub(crate) async fn subnets(cloud: &dyn Cloud, request: RequestId, network: NetworkId) -> Result<Vec<Subnet>, Error> {
    cloud.find_subnets(request, &SubnetFilter::network(network)).await
}

/// Observes the object's resources, for [`crate::reconcile::plan::plan`].
///
/// # Errors
/// As [`Search::own`] and [`Search::network_to_adopt`].
pub(crate) async fn observe(search: &Search<'_>, desired: &Desired) -> Result<(Observed, bool), NotReady> {
    let ObjectNetworks { mut networks, is_missing } = search.own(desired.adopt.as_ref()).await?;
    if let (Some(target), true) = (&desired.adopt, networks.is_empty()) {
        networks.push(search.network_to_adopt(target).await?);
    }
    let subnets = match networks.first() {
        Some(network) => subnets(search.cloud, search.request, network.id).await?,
        None => Vec::new(),
    };
    let known_subnet = search.status.and_then(NetworkStatus::subnet);
    Ok((Observed { networks, subnets, known_subnet }, is_missing))
}
