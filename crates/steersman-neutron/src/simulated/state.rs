//! The simulated cloud's contents, and the effect of each request on them: pure, with ids and time passed in.
//!
//! Every method either succeeds or leaves the state untouched. Invariants between calls: a network lists exactly its
//! subnets, no two subnets of a network overlap, no pool contains its gateway (in a subnet of a single address, the
//! pool may), revisions never fall.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use jiff::{Timestamp, Unit};
use serde::{Deserialize, Serialize};

use crate::answer::Answer;
use crate::simulated::rules;
use crate::types::address::{default_gateway, default_pools, overlap};
use crate::types::id::{NetworkId, Revision, SubnetId};
use crate::types::network::{Network, NetworkCreate, NetworkFilter, NetworkStatus, NetworkUpdate};
use crate::types::subnet::{AllocationPool, Gateway, Subnet, SubnetCreate, SubnetFilter, SubnetUpdate};

/// The most networks, and the most subnets; more is refused as over quota.
const RESOURCES_MAX: usize = 100_000;

/// The owner of resources whose request names no project.
pub(crate) const PROJECT: &str = "simulated";

/// Networks and subnets, in the form in which they are also written to disk.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(from = "Lists", into = "Lists")]
pub(crate) struct State {
    networks: BTreeMap<NetworkId, Network>,
    subnets: BTreeMap<SubnetId, Subnet>,
}

#[derive(Deserialize, Serialize)]
struct Lists {
    networks: Vec<Network>,
    subnets: Vec<Subnet>,
}

impl From<Lists> for State {
    fn from(lists: Lists) -> Self {
        Self {
            networks: lists.networks.into_iter().map(|network| (network.id, network)).collect(),
            subnets: lists.subnets.into_iter().map(|subnet| (subnet.id, subnet)).collect(),
        }
    }
}

impl From<State> for Lists {
    fn from(state: State) -> Self {
        Self { networks: state.networks.into_values().collect(), subnets: state.subnets.into_values().collect() }
    }
}

impl State {
    /// Whether the invariants of the module hold for a state read from outside.
    pub(crate) fn is_consistent(&self) -> bool {
        let networks_list_their_subnets = self.networks.values().all(|network| {
            let listed = |id| self.subnets.get(id).is_some_and(|subnet| subnet.network_id == network.id);
            network.subnets.iter().all(listed)
        });
        let subnets_are_listed = self.subnets.values().all(|subnet| {
            self.networks.get(&subnet.network_id).is_some_and(|network| network.subnets.contains(&subnet.id))
        });
        networks_list_their_subnets && subnets_are_listed
    }

    // --- networks ---

    pub(crate) fn find_networks(&self, filter: &NetworkFilter) -> Vec<Network> {
        let mut found: Vec<Network> =
            self.networks.values().filter(|network| filter.matches(network)).cloned().collect();
        found.sort_by_key(|network| (network.created_at, network.id));
        found
    }

    pub(crate) fn read_network(&self, id: NetworkId) -> Result<Network, Answer> {
        self.networks.get(&id).cloned().ok_or_else(|| network_not_found(id))
    }

    pub(crate) fn create_network(
        &mut self,
        id: NetworkId,
        now: Timestamp,
        create: &NetworkCreate,
    ) -> Result<Network, Answer> {
        rules::check_text("name", &create.name)?;
        rules::check_text("description", &create.description)?;
        let mtu = rules::check_mtu(create.mtu)?;
        check_room("network", self.networks.len())?;
        let now = whole_seconds(now);
        let network = Network {
            id,
            name: create.name.clone().unwrap_or_default(),
            description: create.description.clone().unwrap_or_default(),
            project_id: Some(create.project_id.clone().unwrap_or_else(|| PROJECT.to_owned())),
            status: Some(NetworkStatus::Active),
            admin_state_up: Some(create.admin_state_up.unwrap_or(true)),
            mtu: Some(mtu.unwrap_or(rules::MTU_MAX)),
            shared: Some(create.shared.unwrap_or(false)),
            external: Some(false),
            subnets: Vec::new(),
            tags: Vec::new(),
            revision: Some(Revision(1)),
            created_at: Some(now),
            updated_at: Some(now),
        };
        self.networks.insert(id, network.clone());
        Ok(network)
    }

    pub(crate) fn update_network(
        &mut self,
        id: NetworkId,
        now: Timestamp,
        change: &NetworkUpdate,
        expected: Option<Revision>,
    ) -> Result<Network, Answer> {
        let network = self.networks.get_mut(&id).ok_or_else(|| network_not_found(id))?;
        check_revision(network.revision, expected)?;
        rules::check_text("name", &change.name)?;
        rules::check_text("description", &change.description)?;
        let mtu = rules::check_mtu(change.mtu)?;

        let before = network.clone();
        assign(&mut network.name, &change.name);
        assign(&mut network.description, &change.description);
        network.admin_state_up = change.admin_state_up.or(network.admin_state_up);
        network.mtu = mtu.or(network.mtu);
        network.shared = change.shared.or(network.shared);
        if *network != before {
            touch(network, now);
        }
        Ok(network.clone())
    }

    pub(crate) fn delete_network(&mut self, id: NetworkId, expected: Option<Revision>) -> Result<(), Answer> {
        let network = self.networks.get(&id).ok_or_else(|| network_not_found(id))?;
        check_revision(network.revision, expected)?;
        for subnet in &network.subnets {
            self.subnets.remove(subnet);
        }
        self.networks.remove(&id);
        Ok(())
    }

    pub(crate) fn add_network_tag(&mut self, id: NetworkId, now: Timestamp, tag: &str) -> Result<(), Answer> {
        rules::check_tag(tag)?;
        // Neutron 29 fails here instead of answering that the network does not exist.
        let network = self.networks.get_mut(&id).ok_or_else(rules::server_error)?;
        if !network.tags.iter().any(|known| known == tag) {
            if rules::TAGS_MAX <= network.tags.len() {
                return Err(rules::invalid_input(format!("The number of tags exceed the limit {}", rules::TAGS_MAX)));
            }
            network.tags.push(tag.to_owned());
            touch(network, now);
        }
        Ok(())
    }

    pub(crate) fn remove_network_tag(&mut self, id: NetworkId, now: Timestamp, tag: &str) -> Result<(), Answer> {
        let network = self.networks.get_mut(&id).ok_or_else(rules::server_error)?;
        if !network.tags.iter().any(|known| known == tag) {
            return Err(Answer::refusal(404, "TagNotFound", format!("Tag {tag} could not be found.")));
        }
        network.tags.retain(|known| known != tag);
        touch(network, now);
        Ok(())
    }

    pub(crate) fn set_network_status(&mut self, id: NetworkId, status: NetworkStatus) {
        if let Some(network) = self.networks.get_mut(&id) {
            network.status = Some(status);
        }
    }

    // --- subnets ---

    pub(crate) fn find_subnets(&self, filter: &SubnetFilter) -> Vec<Subnet> {
        let mut found: Vec<Subnet> = self.subnets.values().filter(|subnet| filter.matches(subnet)).cloned().collect();
        found.sort_by_key(|subnet| (subnet.created_at, subnet.id));
        found
    }

    pub(crate) fn read_subnet(&self, id: SubnetId) -> Result<Subnet, Answer> {
        self.subnets.get(&id).cloned().ok_or_else(|| subnet_not_found(id))
    }

    pub(crate) fn create_subnet(
        &mut self,
        id: SubnetId,
        now: Timestamp,
        create: &SubnetCreate,
    ) -> Result<Subnet, Answer> {
        let network_id = create.network_id;
        let cidr = create.cidr.trunc();
        rules::check_text("name", &create.name)?;
        rules::check_text("description", &create.description)?;
        let network = self.networks.get_mut(&network_id).ok_or_else(|| network_not_found(network_id))?;
        match create.enable_dhcp {
            Some(false) => rules::check_cidr(cidr)?,
            Some(true) | None => rules::check_cidr_for_dhcp(cidr)?,
        }
        let gateway = choose_gateway(cidr, create.gateway)?;
        rules::check_dns(cidr, &create.dns_nameservers)?;
        rules::check_routes(cidr, &create.host_routes)?;
        if network.subnets.iter().filter_map(|id| self.subnets.get(id)).any(|other| overlap(other.cidr, cidr)) {
            return Err(rules::invalid_input(format!(
                "Requested subnet with cidr: {cidr} for network: {network_id} overlaps with another subnet."
            )));
        }
        let pools = match &create.allocation_pools {
            Some(pools) if !pools.is_empty() => {
                rules::check_pools(cidr, pools)?;
                rules::check_gateway_outside_pools(gateway, pools)?;
                sorted(pools)
            }
            Some(_) | None => default_pools(cidr, gateway),
        };
        check_room("subnet", self.subnets.len())?;

        let now = whole_seconds(now);
        let subnet = Subnet {
            id,
            network_id,
            cidr,
            name: create.name.clone().unwrap_or_default(),
            description: create.description.clone().unwrap_or_default(),
            project_id: Some(create.project_id.clone().unwrap_or_else(|| PROJECT.to_owned())),
            gateway_ip: gateway,
            enable_dhcp: Some(create.enable_dhcp.unwrap_or(true)),
            allocation_pools: pools,
            dns_nameservers: create.dns_nameservers.clone().unwrap_or_default(),
            host_routes: create.host_routes.clone().unwrap_or_default(),
            tags: Vec::new(),
            revision: Some(Revision(0)),
            created_at: Some(now),
            updated_at: Some(now),
        };
        network.subnets.push(id);
        touch(network, now);
        self.subnets.insert(id, subnet.clone());
        Ok(subnet)
    }

    pub(crate) fn update_subnet(
        &mut self,
        id: SubnetId,
        now: Timestamp,
        change: &SubnetUpdate,
        expected: Option<Revision>,
    ) -> Result<Subnet, Answer> {
        let before = self.subnets.get(&id).ok_or_else(|| subnet_not_found(id))?;
        check_revision(before.revision, expected)?;
        let mut after = changed(before, change)?;
        let raises_network =
            (&before.name, before.gateway_ip, before.enable_dhcp) != (&after.name, after.gateway_ip, after.enable_dhcp);
        if raises_network || before.description != after.description {
            after.revision = after.revision.map(Revision::next);
        }
        if *before != after {
            after.updated_at = Some(whole_seconds(now));
        }
        if raises_network && let Some(network) = self.networks.get_mut(&after.network_id) {
            touch(network, now);
        }
        self.subnets.insert(id, after.clone());
        Ok(after)
    }

    pub(crate) fn delete_subnet(
        &mut self,
        id: SubnetId,
        now: Timestamp,
        expected: Option<Revision>,
    ) -> Result<(), Answer> {
        let subnet = self.subnets.get(&id).ok_or_else(|| subnet_not_found(id))?;
        check_revision(subnet.revision, expected)?;
        if let Some(network) = self.networks.get_mut(&subnet.network_id) {
            network.subnets.retain(|other| *other != id);
            touch(network, now);
        }
        self.subnets.remove(&id);
        Ok(())
    }
}

/// The gateway of a subnet created with this request.
fn choose_gateway(cidr: IpNet, gateway: Gateway) -> Result<Option<IpAddr>, Answer> {
    match gateway {
        Gateway::Address(address) => rules::check_gateway(cidr, address).map(|()| Some(address)),
        Gateway::Automatic => match default_gateway(cidr) {
            Some(address) => rules::check_chosen_gateway(cidr, address).map(|()| Some(address)),
            None => Err(rules::invalid_input(format!("There is no address after {cidr} for a gateway."))),
        },
        Gateway::Disabled => Ok(None),
    }
}

/// The subnet with the changes applied, except revision and time.
fn changed(before: &Subnet, change: &SubnetUpdate) -> Result<Subnet, Answer> {
    let cidr = before.cidr;
    rules::check_text("name", &change.name)?;
    rules::check_text("description", &change.description)?;
    match (before.enable_dhcp, change.enable_dhcp) {
        (Some(false) | None, Some(true)) => rules::check_cidr_for_dhcp(cidr)?,
        _ => rules::check_cidr(cidr)?,
    }
    rules::check_dns(cidr, &change.dns_nameservers)?;
    rules::check_routes(cidr, &change.host_routes)?;

    let mut after = before.clone();
    assign(&mut after.name, &change.name);
    assign(&mut after.description, &change.description);
    assign(&mut after.dns_nameservers, &change.dns_nameservers);
    assign(&mut after.host_routes, &change.host_routes);
    after.enable_dhcp = change.enable_dhcp.or(before.enable_dhcp);
    match change.gateway {
        Gateway::Address(address) => {
            rules::check_gateway(cidr, address)?;
            after.gateway_ip = Some(address);
        }
        Gateway::Automatic => {}
        Gateway::Disabled => after.gateway_ip = None,
    }
    if let Some(pools) = &change.allocation_pools {
        rules::check_pools(cidr, pools)?;
        after.allocation_pools = sorted(pools);
    }
    if before.gateway_ip != after.gateway_ip || change.allocation_pools.is_some() {
        rules::check_gateway_outside_pools(after.gateway_ip, &after.allocation_pools)?;
    }
    Ok(after)
}

fn sorted(pools: &[AllocationPool]) -> Vec<AllocationPool> {
    let mut pools = pools.to_vec();
    pools.sort_unstable();
    pools
}

fn assign<T: Clone>(field: &mut T, value: &Option<T>) {
    if let Some(value) = value {
        field.clone_from(value);
    }
}

fn touch(network: &mut Network, now: Timestamp) {
    network.revision = network.revision.map(Revision::next);
    network.updated_at = Some(whole_seconds(now));
}

/// Neutron keeps times in whole seconds.
fn whole_seconds(now: Timestamp) -> Timestamp {
    let rounding = jiff::TimestampRound::new().smallest(Unit::Second).mode(jiff::RoundMode::Floor);
    now.round(rounding).unwrap_or(now)
}

fn check_revision(current: Option<Revision>, expected: Option<Revision>) -> Result<(), Answer> {
    match (current, expected) {
        (Some(current), Some(expected)) if current != expected => Err(Answer::refusal(
            412,
            "RevisionNumberConstraintFailed",
            format!("Constrained to {expected}, but current revision is {current}"),
        )),
        (_, _) => Ok(()),
    }
}

fn check_room(resource: &str, present: usize) -> Result<(), Answer> {
    if present < RESOURCES_MAX {
        return Ok(());
    }
    Err(Answer::refusal(409, "OverQuota", format!("Quota exceeded for resources: ['{resource}'].")))
}

fn network_not_found(id: NetworkId) -> Answer {
    Answer::refusal(404, "NetworkNotFound", format!("Network {id} could not be found."))
}

fn subnet_not_found(id: SubnetId) -> Answer {
    Answer::refusal(404, "SubnetNotFound", format!("Subnet {id} could not be found."))
}

#[cfg(test)]
mod tests;
