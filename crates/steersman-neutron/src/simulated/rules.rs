//! Neutron's validation: pure checks of a request against a subnet's other attributes, with the names and texts of the
//! refusals that Neutron 29 gives under its default limits.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::answer::Answer;
use crate::types::address::{same_version, usable};
use crate::types::subnet::{AllocationPool, HostRoute};

/// The longest name and description, in characters.
const TEXT_CHARS_MAX: usize = 255;
/// The most name servers of a subnet (`max_dns_nameservers`).
const DNS_NAMESERVERS_MAX: usize = 5;
/// The most routes of a subnet (`max_subnet_host_routes`).
const HOST_ROUTES_MAX: usize = 20;
/// The largest MTU, in bytes: Ethernet's less the header of a VXLAN tunnel.
pub(crate) const MTU_MAX: u32 = 1450;

/// The most tags of a network.
pub(crate) const TAGS_MAX: usize = 50;

/// Checks that a tag can be part of a path; Neutron answers others like a path that does not exist.
pub(crate) fn check_tag(tag: &str) -> Result<(), Answer> {
    if !crate::client::is_tag(tag) {
        return Err(Answer::refusal(404, "HTTPNotFound", "The resource could not be found."));
    }
    check_text("tags", &Some(tag.to_owned()))
}

pub(crate) fn server_error() -> Answer {
    let text = "Request Failed: internal server error while processing your request.";
    Answer::refusal(500, "HTTPInternalServerError", text)
}

pub(crate) fn check_text(key: &str, value: &Option<String>) -> Result<(), Answer> {
    match value {
        Some(text) if TEXT_CHARS_MAX < text.chars().count() => {
            Err(bad_request(key, format!("'{text}' exceeds maximum length of {TEXT_CHARS_MAX}")))
        }
        Some(_) | None => Ok(()),
    }
}

/// The MTU that results from a request: 0 asks for the largest.
pub(crate) fn check_mtu(mtu: Option<u32>) -> Result<Option<u32>, Answer> {
    match mtu {
        Some(0) => Ok(Some(MTU_MAX)),
        Some(mtu) if MTU_MAX < mtu => Err(invalid_input(format!("Requested MTU is too big, maximum is {MTU_MAX}."))),
        Some(_) | None => Ok(mtu),
    }
}

/// Checks that a subnet can have these addresses.
pub(crate) fn check_cidr(cidr: IpNet) -> Result<(), Answer> {
    check_specified(cidr)?;
    check_prefix(cidr)
}

/// Checks that a subnet can have these addresses while DHCP is being enabled for it.
pub(crate) fn check_cidr_for_dhcp(cidr: IpNet) -> Result<(), Answer> {
    check_specified(cidr)?;
    check_dhcp(cidr)?;
    check_prefix(cidr)
}

fn check_specified(cidr: IpNet) -> Result<(), Answer> {
    if cidr.network() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
        return Err(invalid_input("IPv6 subnet '::' is not supported.".to_owned()));
    }
    Ok(())
}

fn check_prefix(cidr: IpNet) -> Result<(), Answer> {
    if cidr.prefix_len() == 0 {
        return Err(invalid_input("0 is not allowed as CIDR prefix length.".to_owned()));
    }
    Ok(())
}

fn check_dhcp(cidr: IpNet) -> Result<(), Answer> {
    let first = cidr.network();
    if cidr.max_prefix_len() - cidr.prefix_len() < 2 {
        let text = "Subnet has a prefix length that is incompatible with DHCP service enabled.";
        return Err(invalid_input(text.to_owned()));
    }
    if first.is_multicast() && cidr.broadcast().is_multicast() {
        return Err(invalid_input("Multicast IP subnet is not supported if enable_dhcp is True.".to_owned()));
    }
    if first.is_loopback() && cidr.broadcast().is_loopback() {
        return Err(invalid_input("Loopback IP subnet is not supported if enable_dhcp is True.".to_owned()));
    }
    if first == IpAddr::V4(Ipv4Addr::UNSPECIFIED) {
        let text = "First IP '0.0.0.0' of network is not supported if enable_dhcp is True.";
        return Err(invalid_input(text.to_owned()));
    }
    Ok(())
}

/// Checks a gateway that the request names. Outside the CIDR any address is allowed.
pub(crate) fn check_gateway(cidr: IpNet, gateway: IpAddr) -> Result<(), Answer> {
    check_version(cidr, gateway, gateway, "gateway_ip")?;
    if is_reserved(cidr, gateway) {
        return Err(invalid_input("Gateway is not valid on subnet.".to_owned()));
    }
    Ok(())
}

/// Checks a gateway that was chosen because the request named none.
pub(crate) fn check_chosen_gateway(cidr: IpNet, gateway: IpAddr) -> Result<(), Answer> {
    if is_reserved(cidr, gateway) {
        let text = format!("Gateway IP {gateway} cannot be the network or broadcast IP address {cidr}");
        return Err(Answer::refusal(409, "IpamValueInvalid", text));
    }
    Ok(())
}

/// Whether an IPv4 address is one that no machine may have.
fn is_reserved(cidr: IpNet, gateway: IpAddr) -> bool {
    gateway.is_ipv4() && (gateway == cidr.network() || gateway == cidr.broadcast())
}

pub(crate) fn check_pools(cidr: IpNet, pools: &[AllocationPool]) -> Result<(), Answer> {
    let (first, last) = usable(cidr);
    for pool in pools {
        let AllocationPool { start, end } = pool;
        if end < start || !same_version(*start, *end) {
            let text = format!("The allocation pool {{'start': '{start}', 'end': '{end}'}} is not valid.");
            return Err(Answer::refusal(400, "InvalidAllocationPool", text));
        }
        if !same_version(*start, first) {
            let text = format!("The allocation pool {start}-{end} is not valid.");
            return Err(Answer::refusal(400, "InvalidAllocationPool", text));
        }
        if *start < first || last < *end {
            let text = format!("The allocation pool {start}-{end} spans beyond the subnet cidr {cidr}.");
            return Err(Answer::refusal(400, "OutOfBoundsAllocationPool", text));
        }
    }
    let mut sorted = pools.to_vec();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[1].start <= pair[0].end) {
        Some(pair) => {
            let text = format!(
                "Found overlapping allocation pools: {}-{} {}-{} for subnet {cidr}.",
                pair[0].start, pair[0].end, pair[1].start, pair[1].end
            );
            Err(Answer::refusal(409, "OverlappingAllocationPools", text))
        }
        None => Ok(()),
    }
}

/// Checks that no pool can hand out the gateway.
pub(crate) fn check_gateway_outside_pools(gateway: Option<IpAddr>, pools: &[AllocationPool]) -> Result<(), Answer> {
    let Some(gateway) = gateway else { return Ok(()) };
    match pools.iter().find(|pool| pool.contains(gateway)) {
        Some(AllocationPool { start, end }) => {
            let text = format!("Gateway ip {gateway} conflicts with allocation pool {start}-{end}.");
            Err(Answer::refusal(409, "GatewayConflictWithAllocationPools", text))
        }
        None => Ok(()),
    }
}

pub(crate) fn check_dns(cidr: IpNet, servers: &Option<Vec<IpAddr>>) -> Result<(), Answer> {
    let Some(servers) = servers else { return Ok(()) };
    if let Some(twice) = first_duplicate(servers) {
        return Err(bad_request("dns_nameservers", format!("Duplicate nameserver '{twice}'")));
    }
    if DNS_NAMESERVERS_MAX < servers.len() {
        let text = format!(
            "Unable to complete operation for the subnet. The number of DNS nameservers exceeds the limit {DNS_NAMESERVERS_MAX}."
        );
        return Err(Answer::refusal(400, "DNSNameServersExhausted", text));
    }
    servers.iter().try_for_each(|server| check_version(cidr, *server, server, "dns_nameserver"))
}

pub(crate) fn check_routes(cidr: IpNet, routes: &Option<Vec<HostRoute>>) -> Result<(), Answer> {
    let Some(routes) = routes else { return Ok(()) };
    if let Some(route) = routes.iter().find(|route| route.destination != route.destination.trunc()) {
        return Err(bad_request("host_routes", format!("'{}' is not a valid CIDR", route.destination)));
    }
    if let Some(HostRoute { destination, nexthop }) = first_duplicate(routes) {
        let text = format!("Duplicate hostroute '{{'destination': '{destination}', 'nexthop': '{nexthop}'}}'");
        return Err(bad_request("host_routes", text));
    }
    if HOST_ROUTES_MAX < routes.len() {
        let text = format!(
            "Unable to complete operation for the subnet. The number of host routes exceeds the limit {HOST_ROUTES_MAX}."
        );
        return Err(Answer::refusal(400, "HostRoutesExhausted", text));
    }
    for HostRoute { destination, nexthop } in routes {
        check_version(cidr, destination.network(), destination, "destination")?;
        check_version(cidr, *nexthop, nexthop, "nexthop")?;
    }
    Ok(())
}

fn check_version(cidr: IpNet, address: IpAddr, shown: impl Display, key: &str) -> Result<(), Answer> {
    if same_version(cidr.network(), address) {
        return Ok(());
    }
    let version = if cidr.network().is_ipv4() { 4 } else { 6 };
    Err(invalid_input(format!("{key} '{shown}' does not match the ip_version '{version}'.")))
}

fn first_duplicate<T: Copy + Ord>(values: &[T]) -> Option<T> {
    let mut seen = BTreeSet::new();
    values.iter().copied().find(|value| !seen.insert(*value))
}

pub(crate) fn invalid_input(text: String) -> Answer {
    Answer::refusal(400, "InvalidInput", format!("Invalid input for operation: {text}"))
}

fn bad_request(key: &str, reason: String) -> Answer {
    Answer::refusal(400, "HTTPBadRequest", format!("Invalid input for {key}. Reason: {reason}."))
}
