//! A range of addresses as numbers: the usable addresses, and those of them that are reserved for requests by value.

use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

/// An IP family, as Services name it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) const ALL: [Family; 2] = [Family::V4, Family::V6];

    pub(crate) fn of(address: IpAddr) -> Family {
        if address.is_ipv4() { Family::V4 } else { Family::V6 }
    }

    pub(crate) fn of_range(range: &IpNet) -> Family {
        Family::of(range.network())
    }

    pub(crate) fn parse(name: &str) -> Option<Family> {
        Family::ALL.into_iter().find(|family| family.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        }
    }

    pub(crate) fn other(self) -> Family {
        match self {
            Family::V4 => Family::V6,
            Family::V6 => Family::V4,
        }
    }
}

/// The offsets of the usable addresses from the network address. Neither that address nor the broadcast address is
/// usable.
pub(super) fn offsets(range: &IpNet) -> RangeInclusive<u64> {
    let bits = range.max_prefix_len() - range.prefix_len();
    let last = 1_u64.checked_shl(bits.into()).map_or(u64::MAX, |size| size - 1);
    let last = if range.network().is_ipv4() { last.saturating_sub(1) } else { last };
    1..=last.max(1)
}

/// The address at this offset from the network address.
pub(super) fn address(range: &IpNet, offset: u64) -> IpAddr {
    match range.network() {
        // An IPv4 range has at most 2^32 addresses, so its offsets fit.
        IpAddr::V4(network) => {
            let offset = u32::try_from(offset).unwrap_or(u32::MAX);
            IpAddr::V4(Ipv4Addr::from(u32::from(network).wrapping_add(offset)))
        }
        IpAddr::V6(network) => IpAddr::V6(Ipv6Addr::from(u128::from(network).wrapping_add(offset.into()))),
    }
}

/// Whether an address is in the range and usable.
pub(super) fn contains(range: &IpNet, address: IpAddr) -> bool {
    let is_broadcast = address.is_ipv4() && address == range.broadcast();
    range.contains(&address) && address != range.network() && !is_broadcast
}

/// The number of addresses at the start that are reserved for requests by value.
pub(super) fn static_addresses(range: &IpNet) -> u64 {
    let size = offsets(range).end().saturating_add(1);
    if size <= 16 { 0 } else { (size / 16).clamp(16, 256) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(range: &str, first: &str, last: &str, n_static: u64) {
        let range: IpNet = range.parse().unwrap();
        let offsets = offsets(&range);
        let ends = (address(&range, *offsets.start()), address(&range, *offsets.end()));
        assert_eq!(ends, (first.parse().unwrap(), last.parse().unwrap()));
        assert!(contains(&range, ends.0) && contains(&range, ends.1) && !contains(&range, range.network()));
        assert_eq!(static_addresses(&range), n_static);
    }

    #[test]
    fn neither_the_network_nor_the_broadcast_address_is_for_use() {
        check("10.96.0.0/16", "10.96.0.1", "10.96.255.254", 256);
        check("10.0.0.0/24", "10.0.0.1", "10.0.0.254", 16);
        check("fd00::/112", "fd00::1", "fd00::ffff", 256);
        check("fd00:1::/64", "fd00:1::1", "fd00:1::ffff:ffff:ffff:ffff", 256);
        assert!(!contains(&"10.0.0.0/24".parse().unwrap(), "10.0.0.255".parse().unwrap()));
        assert!(!contains(&"10.0.0.0/24".parse().unwrap(), "fd00::1".parse().unwrap()));
    }
}
