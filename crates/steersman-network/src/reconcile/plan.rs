//! The next step, from the desired and the observed state. Pure: no calls, no clock.

use crate::api::ManagementPolicy;
use crate::identity::Identity;
use crate::reconcile::desired::{Desired, Target};
use ipnet::IpNet;
use std::fmt;
use steersman_neutron::{
    Gateway, Network, NetworkId, NetworkUpdate, Subnet, SubnetId, SubnetUpdate, default_gateway, default_pools,
};

/// The resources of one object in Neutron.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// The object's network, and after it its duplicates.
    pub networks: Vec<Network>,
    /// The subnets of the first network.
    pub subnets: Vec<Subnet>,
    /// The subnet that the object's status names.
    pub known_subnet: Option<SubnetId>,
}

/// One step towards the desired state.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Add the marker to the network, as a tag.
    AddTag(NetworkId),
    /// Create the network, with its marker.
    CreateNetwork,
    /// Create the subnet, with its marker.
    CreateSubnet(NetworkId),
    /// Delete a duplicate that the object does not use.
    DeleteDuplicate(NetworkId),
    /// Delete the subnet, which has other addresses, because addresses of a subnet cannot be changed.
    DeleteSubnet(SubnetId),
    /// Neutron agrees with the spec.
    Done(NetworkId, SubnetId),
    /// The desired state cannot be reached from the observed one.
    Refuse(Refusal),
    /// Change these fields of the network.
    UpdateNetwork(NetworkId, NetworkUpdate),
    /// Change these fields of the subnet.
    UpdateSubnet(SubnetId, SubnetUpdate),
}

/// Why the desired state cannot be reached: a sentence with the way out.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// The object has a network, and `spec.adopt` names another.
    #[error(
        "the object has network {network}, which is not the one {target} that spec.adopt names: set spec.adopt back, or delete the object and make it anew"
    )]
    Adopt {
        /// The object's network.
        network: NetworkId,
        /// The network to adopt.
        target: Target,
    },
    /// Another network has the object's marker, and nothing shows that it was created for the object.
    #[error(
        "network {other} has the marker {marker} of this object, as has network {network}, which the object uses, and may be somebody's own: remove the tag from it, or delete it"
    )]
    Copied {
        /// The object's network.
        network: NetworkId,
        /// The other network with the marker.
        other: NetworkId,
        /// The object's marker.
        marker: String,
    },
    /// A subnet of the network that is not the object's has addresses that the spec wants.
    #[error(
        "subnet {subnet}, which somebody else made, has the addresses {taken}, so {cidr} cannot be made: remove it, or choose another spec.cidr"
    )]
    Overlap {
        /// The foreign subnet.
        subnet: SubnetId,
        /// The CIDR of the foreign subnet.
        taken: IpNet,
        /// The addresses wanted.
        cidr: IpNet,
    },
    /// Neutron cannot change the addresses of a subnet.
    #[error(
        "Neutron cannot change the addresses of subnet {subnet} from {present} to {cidr}: set spec.cidr back, or let the subnet be replaced with spec.replaceOnChange: true"
    )]
    Replace {
        /// The subnet.
        subnet: SubnetId,
        /// The current CIDR of the subnet.
        present: IpNet,
        /// The addresses wanted.
        cidr: IpNet,
    },
}

/// The next step.
pub fn plan(desired: &Desired, identity: &Identity, observed: &Observed) -> Step {
    let Some((network, duplicates)) = observed.networks.split_first() else {
        return Step::CreateNetwork;
    };
    if let Some(target) = desired.adopt.as_ref().filter(|target| !target.is(network)) {
        return Step::Refuse(Refusal::Adopt { network: network.id, target: target.clone() });
    }
    // A network that is only observed is not marked, and other networks do not matter to it.
    let is_adopted = is_adopted(desired, identity, network);
    if desired.management_policy == ManagementPolicy::Managed {
        if let Some(duplicate) = duplicates.first() {
            // An object that adopts creates no networks, so it has no duplicates.
            let is_made_twice = !is_adopted && identity.has_described(duplicate);
            return match is_made_twice {
                true => Step::DeleteDuplicate(duplicate.id),
                false => Step::Refuse(copied(identity, network, duplicate)),
            };
        }
        // The tag is added before the description changes, which may be the only marker so far.
        if !identity.has_tagged(network) {
            return Step::AddTag(network.id);
        }
    }
    let update = network_update(desired, identity, network, is_adopted);
    if !update.is_empty() {
        return Step::UpdateNetwork(network.id, update);
    }
    subnet_step(desired, identity, observed, network.id, is_adopted)
}

/// Whether the network existed before the object, which adopted it: as long as the spec names it, and after that as
/// long as it has the tag.
fn is_adopted(desired: &Desired, identity: &Identity, network: &Network) -> bool {
    desired.adopt.is_some() || identity.has_adopted(network)
}

/// The refusal to delete a network that has the marker of an object that uses another network.
pub(crate) fn copied(identity: &Identity, network: &Network, other: &Network) -> Refusal {
    Refusal::Copied { network: network.id, other: other.id, marker: identity.marker.clone() }
}

/// The next step for the subnet, once the network is in the desired state.
fn subnet_step(
    desired: &Desired,
    identity: &Identity,
    observed: &Observed,
    network: NetworkId,
    is_adopted: bool,
) -> Step {
    let cidr = desired.cidr;
    // The status may name a subnet of an adopted network that existed before the object.
    let is_known = |subnet: &Subnet| !is_adopted && observed.known_subnet == Some(subnet.id);
    let is_ours = |subnet: &Subnet| identity.has_made(subnet) || is_known(subnet);
    let outdated = observed.subnets.iter().find(|subnet| is_ours(subnet) && subnet.cidr != cidr);
    if let Some(outdated) = outdated
        && !desired.replace_on_change
    {
        return Step::Refuse(Refusal::Replace { subnet: outdated.id, present: outdated.cidr, cidr });
    }
    if let Some(subnet) = observed.subnets.iter().find(|subnet| subnet.cidr == cidr) {
        if !is_ours(subnet) && !is_adopted {
            return Step::Refuse(Refusal::Overlap { subnet: subnet.id, taken: subnet.cidr, cidr });
        }
        let update = subnet_update(desired, identity, subnet, is_ours(subnet));
        if !update.is_empty() {
            return Step::UpdateSubnet(subnet.id, update);
        }
        return match outdated {
            Some(outdated) => Step::DeleteSubnet(outdated.id),
            None => Step::Done(network, subnet.id),
        };
    }
    // Overlaps are checked before anything is deleted: a subnet that cannot be replaced stays.
    let overlaps = |subnet: &&Subnet| subnet.cidr.contains(&cidr) || cidr.contains(&subnet.cidr);
    if let Some(other) = observed.subnets.iter().filter(|subnet| !is_ours(subnet)).find(overlaps) {
        return Step::Refuse(Refusal::Overlap { subnet: other.id, taken: other.cidr, cidr });
    }
    match outdated {
        Some(outdated) if overlaps(&outdated) => Step::DeleteSubnet(outdated.id),
        Some(_) | None => Step::CreateSubnet(network),
    }
}

/// The fields of the network that differ. Fields that a server does not show are not compared.
fn network_update(desired: &Desired, identity: &Identity, network: &Network, is_adopted: bool) -> NetworkUpdate {
    let by_default = |default: bool| (!is_adopted).then_some(default);
    let flag = |wanted: Option<bool>, default: bool, present: Option<bool>| {
        let present = present?;
        wanted.or(by_default(default)).filter(|wanted| *wanted != present)
    };
    let description = desired.description.as_ref().or((!is_adopted).then_some(&identity.marker));
    NetworkUpdate {
        name: (!is_adopted && network.name != identity.name).then(|| identity.name.clone()),
        description: description.filter(|wanted| **wanted != network.description).cloned(),
        admin_state_up: flag(desired.admin_state_up, true, network.admin_state_up),
        mtu: desired.mtu.filter(|wanted| network.mtu.is_some_and(|mtu| mtu != *wanted)),
        shared: flag(desired.shared, false, network.shared),
    }
}

/// The fields of the subnet that differ. For a subnet that is not the object's, only fields that the spec sets.
fn subnet_update(desired: &Desired, identity: &Identity, subnet: &Subnet, is_ours: bool) -> SubnetUpdate {
    let gateway = desired.gateway.or_else(|| default_gateway(desired.cidr).filter(|_| is_ours));
    let gateway = if is_ours { gateway } else { gateway.or(subnet.gateway_ip) };
    let moves = subnet.gateway_ip != gateway;
    let by_default = is_ours.then(|| default_pools(desired.cidr, gateway));
    // Pools do not follow the gateway, and an address inside one is refused as a gateway: both go in one request.
    let pools = desired.allocation_pools.clone().or(by_default).filter(|wanted| {
        let mut present = subnet.allocation_pools.clone();
        present.sort_unstable();
        *wanted != present
    });
    let servers = desired.dns_nameservers.clone().or_else(|| is_ours.then(Vec::new));
    let dhcp = desired.enable_dhcp.or(is_ours.then_some(true));
    SubnetUpdate {
        name: (is_ours && subnet.name != identity.name).then(|| identity.name.clone()),
        description: (is_ours && subnet.description != identity.marker).then(|| identity.marker.clone()),
        gateway: match gateway {
            _ if !moves => Gateway::Automatic,
            Some(gateway) => Gateway::Address(gateway),
            None => Gateway::Disabled,
        },
        enable_dhcp: dhcp.filter(|wanted| subnet.enable_dhcp.is_some_and(|present| present != *wanted)),
        allocation_pools: pools,
        dns_nameservers: servers.filter(|wanted| *wanted != subnet.dns_nameservers),
        ..SubnetUpdate::default()
    }
}

// === texts of steps ===

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddTag(id) => write!(f, "tag network {id} with the marker"),
            Self::CreateNetwork => f.write_str("create the network"),
            Self::CreateSubnet(_) => f.write_str("create the subnet"),
            Self::DeleteDuplicate(id) => write!(f, "delete network {id}, which was made twice"),
            Self::DeleteSubnet(id) => write!(f, "delete subnet {id}, whose addresses are no longer wanted"),
            Self::Done(..) => f.write_str("nothing to do"),
            Self::Refuse(refusal) => refusal.fmt(f),
            Self::UpdateNetwork(id, update) => write!(f, "set {} of network {id}", network_fields(update).join(", ")),
            Self::UpdateSubnet(id, update) => write!(f, "set {} of subnet {id}", subnet_fields(update).join(", ")),
        }
    }
}

/// Neutron's names of the fields that an update sets, each with its value.
pub(crate) fn network_fields(update: &NetworkUpdate) -> Vec<String> {
    let NetworkUpdate { name, description, admin_state_up, mtu, shared } = update;
    let fields = [
        name.as_ref().map(|name| format!("name to {name:?}")),
        description.as_ref().map(|text| format!("description to {text:?}")),
        admin_state_up.map(|up| format!("admin_state_up to {up}")),
        mtu.map(|mtu| format!("mtu to {mtu}")),
        shared.map(|shared| format!("shared to {shared}")),
    ];
    fields.into_iter().flatten().collect()
}

/// As [`network_fields`].
pub(crate) fn subnet_fields(update: &SubnetUpdate) -> Vec<String> {
    let gateway = match update.gateway {
        Gateway::Address(address) => Some(format!("gateway_ip to {address}")),
        Gateway::Automatic => None,
        Gateway::Disabled => Some("gateway_ip to none".to_owned()),
    };
    let pools = update.allocation_pools.as_ref().map(|pools| {
        let pools: Vec<String> = pools.iter().map(|pool| format!("{}-{}", pool.start, pool.end)).collect();
        format!("allocation_pools to [{}]", pools.join(", "))
    });
    let servers = update.dns_nameservers.as_ref().map(|servers| {
        let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
        format!("dns_nameservers to [{}]", servers.join(", "))
    });
    let fields = [
        update.name.as_ref().map(|name| format!("name to {name:?}")),
        update.description.as_ref().map(|text| format!("description to {text:?}")),
        gateway,
        update.enable_dhcp.map(|dhcp| format!("enable_dhcp to {dhcp}")),
        pools,
        servers,
    ];
    fields.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests;
