//! Parses the fields of a spec that are addresses.

use crate::api::{Lenient, Pool};
use crate::reconcile::desired::{Invalid, given};
use ipnet::IpNet;
use std::net::IpAddr;
use steersman_neutron::{AllocationPool, default_gateway};

const CIDR_EXAMPLE: &str = "192.168.0.0/16";

pub(crate) fn cidr(field: &Lenient<String>) -> Result<IpNet, Invalid> {
    let Some(text) = given(field, "cidr", "a text such as \"192.168.0.0/16\"")? else {
        return Err(Invalid::Missing { field: "cidr", example: CIDR_EXAMPLE });
    };
    let invalid = || Invalid::Cidr { text: text.clone() };
    let cidr: IpNet = text.trim().parse().map_err(|_| invalid())?;
    // The parser accepts leading zeros, which other programs read as octal.
    if matches!(cidr, IpNet::V4(_)) && cidr.to_string() != text.trim() {
        return Err(invalid());
    }
    if cidr.trunc() != cidr {
        return Err(Invalid::HostBits { text: text.clone(), network: cidr.trunc() });
    }
    if cidr.prefix_len() + 1 >= cidr.max_prefix_len() {
        return Err(Invalid::TooSmall { cidr });
    }
    Ok(cidr)
}

pub(crate) fn gateway(cidr: IpNet, field: &Lenient<String>) -> Result<Option<IpAddr>, Invalid> {
    let Some(text) = given(field, "gateway", "a text such as \"192.168.0.1\"")? else { return Ok(None) };
    let gateway: IpAddr = text.trim().parse().map_err(|_| Invalid::Gateway { text: text.clone() })?;
    if !cidr.contains(&gateway) {
        return Err(Invalid::GatewayOutside { gateway, cidr });
    }
    match reserved(cidr, gateway) {
        Some(what) => Err(Invalid::GatewayReserved { gateway, what, cidr }),
        None => Ok(Some(gateway)),
    }
}

/// Why an address of the CIDR is reserved. The first address of an IPv6 subnet is the routers' anycast address, and no
/// broadcast address exists.
fn reserved(cidr: IpNet, address: IpAddr) -> Option<&'static str> {
    let is_v4 = matches!(cidr, IpNet::V4(_));
    if is_v4 && address == cidr.network() {
        return Some("network");
    }
    (is_v4 && address == cidr.broadcast()).then_some("broadcast")
}

pub(crate) fn nameservers(cidr: IpNet, field: &Lenient<Vec<String>>) -> Result<Option<Vec<IpAddr>>, Invalid> {
    let want = "a list of addresses such as [\"192.168.0.2\"]";
    let Some(texts) = given(field, "dnsNameservers", want)? else { return Ok(None) };
    let mut servers = Vec::new();
    for text in texts {
        let server: IpAddr = text.trim().parse().map_err(|_| Invalid::Nameserver { text: text.clone() })?;
        if server.is_ipv4() != cidr.network().is_ipv4() {
            return Err(Invalid::NameserverVersion { server, cidr });
        }
        if servers.contains(&server) {
            return Err(Invalid::NameserverTwice { server });
        }
        servers.push(server);
    }
    Ok(Some(servers))
}

/// Pools, sorted. An empty list counts as absent: Neutron chooses.
pub(crate) fn pools(
    cidr: IpNet,
    gateway: Option<IpAddr>,
    field: &Lenient<Vec<Pool>>,
) -> Result<Option<Vec<AllocationPool>>, Invalid> {
    let want = "a list of ranges such as [{\"start\": \"192.168.0.10\", \"end\": \"192.168.0.99\"}]";
    let Some(given) = given(field, "allocationPools", want)? else { return Ok(None) };
    let address = |text: &String| text.trim().parse::<IpAddr>().map_err(|_| Invalid::Pool { text: text.clone() });
    let mut pools = Vec::new();
    for Pool { start, end } in given {
        let pool = AllocationPool { start: address(start)?, end: address(end)? };
        let is_host = |address| cidr.contains(&address) && reserved(cidr, address).is_none();
        // Neutron reserves the first address of IPv6 too.
        if !is_host(pool.start) || !is_host(pool.end) || pool.end < pool.start || pool.start == cidr.network() {
            return Err(Invalid::PoolOutside { pool, cidr });
        }
        pools.push(pool);
    }
    pools.sort_unstable();
    if let Some(pair) = pools.windows(2).find(|pair| pair[1].start <= pair[0].end) {
        return Err(Invalid::PoolsOverlap { first: pair[0], second: pair[1] });
    }
    let gateway = gateway.or_else(|| default_gateway(cidr));
    if let Some(gateway) = gateway
        && let Some(pool) = pools.iter().find(|pool| pool.contains(gateway))
    {
        return Err(Invalid::GatewayInPool { gateway, start: pool.start, end: pool.end });
    }
    Ok((!pools.is_empty()).then_some(pools))
}
