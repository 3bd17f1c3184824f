//! A subnet as Neutron represents it, and the requests that create, change and find one.

use std::net::IpAddr;

use ipnet::IpNet;
use jiff::Timestamp;
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use crate::types::id::{NetworkId, Revision, SubnetId};
use crate::types::network::{contains, owned_by, push};
use crate::types::text;

/// A subnet, as read from the cloud.
///
/// Its id, network and CIDR are always present; everything else is optional or empty by default. Serializes to
/// Neutron's own JSON.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Subnet {
    /// The subnet's id, chosen by Neutron.
    pub id: SubnetId,
    /// The network that it belongs to; never changes.
    pub network_id: NetworkId,
    /// The CIDR, without host bits: Neutron turns `10.3.0.5/25` into `10.3.0.0/25`. Never changes.
    #[serde(deserialize_with = "text::parse", serialize_with = "text::print")]
    pub cidr: IpNet,
    /// The name, at most 255 characters; not unique.
    #[serde(default, deserialize_with = "text::or_default")]
    pub name: String,
    /// The description, at most 255 characters.
    #[serde(default, deserialize_with = "text::or_default")]
    pub description: String,
    /// The project that owns it.
    #[serde(default)]
    pub project_id: Option<String>,
    /// The gateway; `None`: the subnet has no gateway.
    #[serde(default)]
    pub gateway_ip: Option<IpAddr>,
    /// Whether DHCP is enabled.
    #[serde(default)]
    pub enable_dhcp: Option<bool>,
    /// The ranges from which ports get their addresses, in no particular order.
    #[serde(default, deserialize_with = "text::or_default")]
    pub allocation_pools: Vec<AllocationPool>,
    /// The name servers that DHCP hands out, in the order of preference.
    #[serde(default, deserialize_with = "text::or_default")]
    pub dns_nameservers: Vec<IpAddr>,
    /// Routes handed out by DHCP, in no particular order.
    #[serde(default, deserialize_with = "text::or_default")]
    pub host_routes: Vec<HostRoute>,
    /// The tags, which this crate only reads.
    #[serde(default, deserialize_with = "text::or_default")]
    pub tags: Vec<String>,
    /// The revision. Rises with changes of name, description, gateway and DHCP; **not** of pools, name servers or
    /// routes.
    #[serde(default, rename = "revision_number")]
    pub revision: Option<Revision>,
    /// The time of creation, in whole seconds.
    #[serde(default, deserialize_with = "text::lenient", serialize_with = "text::print_option")]
    pub created_at: Option<Timestamp>,
    /// The time of the last change, in whole seconds.
    #[serde(default, deserialize_with = "text::lenient", serialize_with = "text::print_option")]
    pub updated_at: Option<Timestamp>,
}

/// A range of addresses, both ends included.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub struct AllocationPool {
    /// The first address.
    pub start: IpAddr,
    /// The last address.
    pub end: IpAddr,
}

/// A route that DHCP hands to the machines of a subnet.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub struct HostRoute {
    /// The destination, without host bits: Neutron refuses others.
    #[serde(deserialize_with = "text::parse", serialize_with = "text::print")]
    pub destination: IpNet,
    /// The address of the next hop.
    pub nexthop: IpAddr,
}

/// The gateway in a request for a subnet.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Gateway {
    /// This address. In IPv4 not the first or last of the CIDR; it may be outside the CIDR, but never inside a pool.
    Address(IpAddr),
    /// Not sent: a create lets Neutron choose (see [`default_gateway`](crate::default_gateway)), an update leaves it
    /// unchanged.
    #[default]
    Automatic,
    /// The subnet has no gateway.
    Disabled,
}

/// A subnet to create. A field that is `None` is not sent, and Neutron's default applies.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SubnetCreate {
    /// The network; if it does not exist the answer is [`Class::NotFound`](crate::Class::NotFound).
    pub network_id: NetworkId,
    /// The CIDR; must not overlap another subnet of the network.
    pub cidr: IpNet,
    /// The name, at most 255 characters; empty by default.
    pub name: Option<String>,
    /// The description, at most 255 characters; empty by default.
    pub description: Option<String>,
    /// The project that will own it; by default that of the credentials.
    pub project_id: Option<String>,
    /// The gateway; by default the first address.
    pub gateway: Gateway,
    /// Whether DHCP is enabled. True by default, which needs a prefix of at most 30 (IPv4) or 126 (IPv6) bits.
    pub enable_dhcp: Option<bool>,
    /// The ranges for ports; by default, and if empty, all addresses but the gateway (see
    /// [`default_pools`](crate::default_pools)).
    pub allocation_pools: Option<Vec<AllocationPool>>,
    /// The name servers that DHCP hands out; none by default. Most clouds allow five.
    pub dns_nameservers: Option<Vec<IpAddr>>,
    /// The routes that DHCP hands out; none by default.
    pub host_routes: Option<Vec<HostRoute>>,
}

impl SubnetCreate {
    /// A subnet with these addresses in this network, with Neutron's defaults otherwise.
    pub fn new(network_id: NetworkId, cidr: IpNet) -> Self {
        Self {
            network_id,
            cidr,
            name: None,
            description: None,
            project_id: None,
            gateway: Gateway::Automatic,
            enable_dhcp: None,
            allocation_pools: None,
            dns_nameservers: None,
            host_routes: None,
        }
    }
}

/// Changes to a subnet. A field that is `None` is not sent and stays unchanged; a list is replaced as a whole. Set only
/// fields that differ: a description sent again unchanged may raise the revision each time.
///
/// Pools do not follow the gateway: to move it to an address inside a pool, send both in one update.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SubnetUpdate {
    /// The name, at most 255 characters.
    pub name: Option<String>,
    /// The description, at most 255 characters.
    pub description: Option<String>,
    /// The gateway; [`Gateway::Automatic`] leaves it unchanged.
    pub gateway: Gateway,
    /// Whether DHCP is enabled.
    pub enable_dhcp: Option<bool>,
    /// The ranges for ports; an empty list leaves no pool at all.
    pub allocation_pools: Option<Vec<AllocationPool>>,
    /// The name servers that DHCP hands out, in the order of preference.
    pub dns_nameservers: Option<Vec<IpAddr>>,
    /// Routes handed out by DHCP.
    pub host_routes: Option<Vec<HostRoute>>,
}

impl SubnetUpdate {
    /// Whether nothing is set, so that sending it would change nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Serialize for SubnetCreate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("network_id", &self.network_id)?;
        map.serialize_entry("ip_version", &ip_version(self.cidr))?;
        map.serialize_entry("cidr", &self.cidr.to_string())?;
        set(&mut map, "name", &self.name)?;
        set(&mut map, "description", &self.description)?;
        set(&mut map, "project_id", &self.project_id)?;
        set_gateway(&mut map, self.gateway)?;
        set(&mut map, "enable_dhcp", &self.enable_dhcp)?;
        set(&mut map, "allocation_pools", &self.allocation_pools)?;
        set(&mut map, "dns_nameservers", &self.dns_nameservers)?;
        set(&mut map, "host_routes", &self.host_routes)?;
        map.end()
    }
}

impl Serialize for SubnetUpdate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        set(&mut map, "name", &self.name)?;
        set(&mut map, "description", &self.description)?;
        set_gateway(&mut map, self.gateway)?;
        set(&mut map, "enable_dhcp", &self.enable_dhcp)?;
        set(&mut map, "allocation_pools", &self.allocation_pools)?;
        set(&mut map, "dns_nameservers", &self.dns_nameservers)?;
        set(&mut map, "host_routes", &self.host_routes)?;
        map.end()
    }
}

fn ip_version(cidr: IpNet) -> u8 {
    match cidr {
        IpNet::V4(_) => 4,
        IpNet::V6(_) => 6,
    }
}

fn set<M: SerializeMap, T: Serialize>(map: &mut M, key: &'static str, value: &Option<T>) -> Result<(), M::Error> {
    match value {
        Some(value) => map.serialize_entry(key, value),
        None => Ok(()),
    }
}

fn set_gateway<M: SerializeMap>(map: &mut M, gateway: Gateway) -> Result<(), M::Error> {
    match gateway {
        Gateway::Address(address) => map.serialize_entry("gateway_ip", &address),
        Gateway::Automatic => Ok(()),
        Gateway::Disabled => map.serialize_entry("gateway_ip", &None::<IpAddr>),
    }
}

/// The subnets to find: every set key must match, and a key matches if one of its values does.
///
/// Comparison is exact. A key that is set to an empty list matches nothing.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SubnetFilter {
    /// By id.
    pub ids: Option<Vec<SubnetId>>,
    /// By network.
    pub network_ids: Option<Vec<NetworkId>>,
    /// By CIDR; host bits are ignored.
    pub cidrs: Option<Vec<IpNet>>,
    /// By name.
    pub names: Option<Vec<String>>,
    /// By description.
    pub descriptions: Option<Vec<String>>,
    /// By the project that owns it.
    pub project_ids: Option<Vec<String>>,
}

impl SubnetFilter {
    /// Every subnet that the credentials may see.
    pub fn all() -> Self {
        Self::default()
    }

    /// The subnet with this id.
    pub fn id(id: SubnetId) -> Self {
        Self::ids([id])
    }

    /// The subnets with these ids; ids without a subnet are ignored.
    pub fn ids(ids: impl IntoIterator<Item = SubnetId>) -> Self {
        Self { ids: Some(ids.into_iter().collect()), ..Self::default() }
    }

    /// The subnets whose whole description is this marker.
    pub fn description(marker: impl Into<String>) -> Self {
        Self { descriptions: Some(vec![marker.into()]), ..Self::default() }
    }

    /// The subnets of a network.
    pub fn network(id: NetworkId) -> Self {
        Self { network_ids: Some(vec![id]), ..Self::default() }
    }

    /// The subnet of a network with this CIDR: at most one.
    pub fn network_and_cidr(id: NetworkId, cidr: IpNet) -> Self {
        Self { cidrs: Some(vec![cidr]), ..Self::network(id) }
    }

    /// Whether a subnet matches the filter.
    pub fn matches(&self, subnet: &Subnet) -> bool {
        let cidr_matches =
            self.cidrs.as_ref().is_none_or(|wanted| wanted.iter().any(|cidr| cidr.trunc() == subnet.cidr));
        contains(&self.ids, &subnet.id)
            && contains(&self.network_ids, &subnet.network_id)
            && cidr_matches
            && contains(&self.names, &subnet.name)
            && contains(&self.descriptions, &subnet.description)
            && owned_by(&self.project_ids, &subnet.project_id)
    }

    /// The keys and values of the query; a key that is set but empty has an empty list.
    pub(crate) fn query(&self) -> Vec<(&'static str, Vec<String>)> {
        let cidrs = self.cidrs.as_ref().map(|cidrs| cidrs.iter().map(IpNet::trunc).collect());
        let mut query = Vec::new();
        push(&mut query, "id", &self.ids);
        push(&mut query, "network_id", &self.network_ids);
        push(&mut query, "cidr", &cidrs);
        push(&mut query, "name", &self.names);
        push(&mut query, "description", &self.descriptions);
        push(&mut query, "project_id", &self.project_ids);
        query
    }
}

#[cfg(test)]
mod tests {
    use super::{Gateway, Subnet, SubnetCreate, SubnetFilter, SubnetUpdate};

    const NETWORK: &str = "82d23501-0d4b-4b2a-9a3e-0a4d3a4c9a10";

    #[test]
    fn create_sends_the_version_of_its_cidr_and_only_what_is_set() {
        let mut create = SubnetCreate::new(NETWORK.parse().unwrap(), "fd00:1::/64".parse().unwrap());
        let json = serde_json::to_string(&create).unwrap();
        assert_eq!(json, format!(r#"{{"network_id":"{NETWORK}","ip_version":6,"cidr":"fd00:1::/64"}}"#));
        create.gateway = Gateway::Disabled;
        assert!(serde_json::to_string(&create).unwrap().ends_with(r#","gateway_ip":null}"#));
    }

    #[test]
    fn update_leaves_an_automatic_gateway_out() {
        assert_eq!(serde_json::to_string(&SubnetUpdate::default()).unwrap(), "{}");
        let moved = SubnetUpdate { gateway: Gateway::Address("10.0.0.9".parse().unwrap()), ..SubnetUpdate::default() };
        assert_eq!(serde_json::to_string(&moved).unwrap(), r#"{"gateway_ip":"10.0.0.9"}"#);
    }

    #[test]
    fn subnet_reads_what_it_wrote() {
        let json = format!(
            r#"{{"id":"62ec8f07-892e-495a-82a4-21d87c3d857a","network_id":"{NETWORK}","cidr":"10.1.0.0/24","name":"s",
            "gateway_ip":null,"allocation_pools":[{{"start":"10.1.0.10","end":"10.1.0.20"}}],"dns_nameservers":["1.1.1.1"],
            "host_routes":[{{"destination":"10.9.0.0/16","nexthop":"10.1.0.9"}}],"revision_number":0,
            "created_at":"2026-11-21T02:02:02Z","ipv6_ra_mode":null}}"#
        );
        let subnet: Subnet = serde_json::from_str(&json).unwrap();
        let again: Subnet = serde_json::from_str(&serde_json::to_string(&subnet).unwrap()).unwrap();
        assert_eq!(subnet, again);
        assert_eq!(subnet.host_routes[0].destination.to_string(), "10.9.0.0/16");
    }

    #[test]
    fn cidr_filter_ignores_host_bits() {
        let filter = SubnetFilter::network_and_cidr(NETWORK.parse().unwrap(), "10.3.0.5/25".parse().unwrap());
        assert_eq!(filter.query()[1], ("cidr", vec!["10.3.0.0/25".to_owned()]));
    }
}
