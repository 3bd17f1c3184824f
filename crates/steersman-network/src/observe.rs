//! What Neutron has of an object.

use crate::api::NetworkStatus;
use crate::desired::{Desired, Target};
use crate::identity::{Identity, Ownership};
use crate::outcome::{NotReady, Retry, SLOW};
use crate::plan::Observed;
use crate::read_access::ReadAccess;
use std::collections::BTreeMap;
use steersman_neutron::{Cloud, Error, Network, NetworkFilter, NetworkId, RequestId, Subnet, SubnetFilter, SubnetId};

/// Which networks of an object to look for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Lookup {
    /// The one that the status records, if it is there.
    Recorded,
    /// All that have the marker: one was made twice, or all are to go.
    All,
}

/// Whose network is looked for, and where.
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
pub(crate) struct Found {
    /// The object's network, and after it those that were made twice.
    pub(crate) networks: Vec<Network>,
    /// The status names a network that is not there: it may be gone, or not be visible.
    pub(crate) is_missing: bool,
}

impl NetworkStatus {
    /// The network that the status names; none if it names none, or no id.
    pub(crate) fn network(&self) -> Option<NetworkId> {
        self.network_id.as_deref()?.parse().ok()
    }

    /// As [`NetworkStatus::network`].
    pub(crate) fn subnet(&self) -> Option<SubnetId> {
        self.subnet_id.as_deref()?.parse().ok()
    }
}

impl Search<'_> {
    /// The networks that the object uses or made: the one its status names first.
    ///
    /// # Errors
    /// What the status says cannot be found where this operator looks, or the cloud's.
    pub(crate) async fn own(&self, adopt: Option<&Target>) -> Result<Found, NotReady> {
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
                    return Ok(Found { networks, is_missing: true });
                }
                Err(error) => return Err(error.into()),
            },
        };
        if networks.is_empty() || self.lookup == Lookup::All {
            networks.extend(self.marked().await?.into_iter().filter(|network| Some(network.id) != named));
        }
        self.check_first(&networks, named, adopt)?;
        Ok(Found { networks, is_missing: false })
    }

    /// Whether more than a tag shows that the network to use is the object's: tags are copied, with a template or by hand.
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

    /// The networks with the object's marker, to take it away: what else is wrong with them does not matter then.
    ///
    /// # Errors
    /// What the status says cannot be found where this operator looks, or the cloud's.
    pub(crate) async fn carriers(&self) -> Result<Found, NotReady> {
        let mut networks = self.marked().await?;
        let named = self.status.and_then(NetworkStatus::network);
        let Some(id) = named.filter(|id| networks.iter().all(|network| network.id != *id)) else {
            return Ok(Found { networks, is_missing: false });
        };
        match self.cloud.read_network(self.request, id).await {
            Ok(network) => {
                self.read_access.confirm();
                // An administrator sees one of another project, where the search did not look.
                match self.identity.ownership(&network) {
                    Ownership::Own => networks.push(network),
                    Ownership::Others => self.check_cluster(&network)?,
                    Ownership::Unmarked => {}
                }
                Ok(Found { networks, is_missing: false })
            }
            Err(error) if error.is_not_found() => {
                self.check_place(id)?;
                Ok(Found { networks, is_missing: true })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The network that the status names, if it is the object's: anyone who may write a status may write any id there, so the
    /// id alone proves nothing.
    fn recognise(&self, network: Network, adopt: Option<&Target>) -> Result<Option<Network>, NotReady> {
        match self.identity.ownership(&network) {
            Ownership::Own => Ok(Some(network)),
            Ownership::Others => self.check_cluster(&network).map(|()| None),
            // The marker is gone, as when somebody cleared both tags and description. In another project a network of this
            // name is somebody's own, which an administrator sees too.
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

    /// Whether the operator's credentials are for the project that has the network; true where either says nothing of projects.
    fn is_of_this_project(&self, network: &Network) -> bool {
        self.project.is_none_or(|own| network.project_id.as_deref().is_none_or(|its| its == own))
    }

    /// Whether a network was marked for this very object by an operator with another cluster id: the object has a network then,
    /// which this operator may not touch.
    fn check_cluster(&self, network: &Network) -> Result<(), NotReady> {
        let Some((other, own)) = self.identity.renamed_cluster(network) else { return Ok(()) };
        let message = format!(
            "network {}, which status.networkID names, was marked for this object by an operator with the cluster id {other}, and this operator has the cluster id {own}: start it with --cluster-id {other}, or give the network the tag {}, or remove status.networkID so that the object forgets that network",
            network.id, self.identity.marker
        );
        Err(NotReady::new("ClusterChanged", message, Retry::After(SLOW)))
    }

    /// Whether this operator looks where the network is: elsewhere it is not there, and that says nothing.
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

    /// The networks with the object's marker: those first that have more than a tag, and of these the oldest.
    async fn marked(&self) -> Result<Vec<Network>, Error> {
        let mut found = BTreeMap::new();
        let descriptions = vec![self.identity.marker.clone(), self.identity.marker_0_1.clone()];
        let described = NetworkFilter { descriptions: Some(descriptions), ..NetworkFilter::all() };
        let tags = [&self.identity.marker, &self.identity.marker_adopted].map(String::clone);
        for mut filter in [described, NetworkFilter::tags(tags)] {
            // An administrator sees all projects' networks, and anyone can write any description.
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
    /// It is not there, it is not the only one, another object has it, or the cloud's.
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

/// What is said where another object has the network to adopt.
pub(crate) fn taken(id: NetworkId) -> NotReady {
    let message = format!("network {id} has the marker of another object: remove that object, or its marker");
    NotReady::new("AdoptTaken", message, Retry::After(SLOW))
}

/// The subnets of a network.
///
/// # Errors
/// The cloud's.
pub(crate) async fn subnets(cloud: &dyn Cloud, request: RequestId, network: NetworkId) -> Result<Vec<Subnet>, Error> {
    cloud.find_subnets(request, &SubnetFilter::network(network)).await
}

/// What is the object's, for [`crate::plan::plan`].
///
/// # Errors
/// As [`Search::own`] and [`Search::network_to_adopt`].
pub(crate) async fn observe(search: &Search<'_>, desired: &Desired) -> Result<(Observed, bool), NotReady> {
    let Found { mut networks, is_missing } = search.own(desired.adopt.as_ref()).await?;
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
