//! Address arithmetic: Neutron's choices for a subnet where the request makes none.
//!
//! Pure functions of a CIDR, used by the simulated cloud and by callers who must predict the server's choice, for
//! example to send pools together with a moved gateway. Follows Neutron 29.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::types::subnet::AllocationPool;

/// The gateway of a subnet that is created without one: in IPv4 the address after the first, in IPv6 the first.
///
/// In an IPv4 `/32` that address lies outside the CIDR, which Neutron accepts; `None` where no such address exists at
/// all.
pub fn default_gateway(cidr: IpNet) -> Option<IpAddr> {
    match cidr.network() {
        IpAddr::V4(first) => first.to_bits().checked_add(1).map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))),
        first @ IpAddr::V6(_) => Some(first),
    }
}

/// The pools of a subnet that is created without any: every usable address, without the gateway.
///
/// They are chosen once, at the create; a later change of the gateway does not change them.
pub fn default_pools(cidr: IpNet, gateway: Option<IpAddr>) -> Vec<AllocationPool> {
    let (first, last) = usable(cidr);
    let whole = AllocationPool { start: first, end: last };
    let single_address = cidr.prefix_len() == cidr.max_prefix_len();
    let Some(gateway) = gateway.filter(|gateway| !single_address && whole.contains(*gateway)) else {
        return vec![whole];
    };
    let below = before(gateway).filter(|_| first < gateway).map(|end| AllocationPool { start: first, end });
    let above = after(gateway).filter(|_| gateway < last).map(|start| AllocationPool { start, end: last });
    below.into_iter().chain(above).collect()
}

/// The first and the last address that a port may have.
///
/// IPv4 reserves the network and the broadcast address where the prefix leaves room, IPv6 only the first.
pub(crate) fn usable(cidr: IpNet) -> (IpAddr, IpAddr) {
    let (first, last) = (cidr.network(), cidr.broadcast());
    let spare = cidr.max_prefix_len() - cidr.prefix_len();
    let first_usable = match cidr {
        IpNet::V4(_) if spare < 2 => None,
        IpNet::V6(_) if spare == 0 => None,
        IpNet::V4(_) | IpNet::V6(_) => after(first),
    };
    let last_usable = match cidr {
        IpNet::V4(_) if 2 <= spare => before(last),
        IpNet::V4(_) | IpNet::V6(_) => None,
    };
    (first_usable.unwrap_or(first), last_usable.unwrap_or(last))
}

/// Whether two networks share an address.
pub(crate) fn overlap(left: IpNet, right: IpNet) -> bool {
    left.contains(&right) || right.contains(&left)
}

/// Whether both addresses, or an address and a network's first, are of the same version.
pub(crate) fn same_version(left: IpAddr, right: IpAddr) -> bool {
    left.is_ipv4() == right.is_ipv4()
}

impl AllocationPool {
    /// Whether an address lies in the pool.
    pub fn contains(&self, address: IpAddr) -> bool {
        same_version(self.start, address) && self.start <= address && address <= self.end
    }
}

fn before(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(address) => address.to_bits().checked_sub(1).map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))),
        IpAddr::V6(address) => address.to_bits().checked_sub(1).map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits))),
    }
}

fn after(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(address) => address.to_bits().checked_add(1).map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))),
        IpAddr::V6(address) => address.to_bits().checked_add(1).map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits))),
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use expect_test::{Expect, expect};
    use ipnet::{IpNet, Ipv4Net, Ipv6Net};
    use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};

    use super::{default_gateway, default_pools, overlap};

    #[track_caller]
    fn check(cidr: &str, expected: Expect) {
        let cidr: IpNet = cidr.parse().unwrap();
        let gateway = default_gateway(cidr);
        let pools: Vec<String> =
            default_pools(cidr, gateway).iter().map(|pool| format!("{}-{}", pool.start, pool.end)).collect();
        expected.assert_eq(&format!("{gateway:?} {}", pools.join(" ")));
    }

    /// The expected values are the answers of a Neutron 29.
    #[test]
    fn choices_are_those_of_neutron() {
        check("10.1.0.0/24", expect!["Some(10.1.0.1) 10.1.0.2-10.1.0.254"]);
        check("10.0.2.0/30", expect!["Some(10.0.2.1) 10.0.2.2-10.0.2.2"]);
        check("10.0.1.0/32", expect!["Some(10.0.1.1) 10.0.1.0-10.0.1.0"]);
        check("0.0.0.0/8", expect!["Some(0.0.0.1) 0.0.0.2-0.255.255.254"]);
        check("fd00:1::/64", expect!["Some(fd00:1::) fd00:1::1-fd00:1::ffff:ffff:ffff:ffff"]);
        check("fd00:5::/126", expect!["Some(fd00:5::) fd00:5::1-fd00:5::3"]);
        check("fd00:1::/127", expect!["Some(fd00:1::) fd00:1::1-fd00:1::1"]);
        check("fd00:2::/128", expect!["Some(fd00:2::) fd00:2::-fd00:2::"]);
        check("255.255.255.255/32", expect!["None 255.255.255.255-255.255.255.255"]);
    }

    fn cidrs() -> impl Strategy<Value = IpNet> {
        prop_oneof![
            (any::<u32>(), 1_u8..=32)
                .prop_map(|(bits, length)| IpNet::V4(Ipv4Net::new_assert(bits.into(), length)).trunc()),
            (any::<u128>(), 1_u8..=128)
                .prop_map(|(bits, length)| IpNet::V6(Ipv6Net::new_assert(bits.into(), length)).trunc()),
        ]
    }

    proptest! {
        #[test]
        fn pools_lie_in_the_cidr_in_order_and_leave_the_gateway_out(cidr in cidrs(), pick in any::<u128>()) {
            let gateway = match cidr {
                IpNet::V4(net) => IpAddr::V4((u32::from(net.network()) | (pick as u32 & u32::from(net.hostmask()))).into()),
                IpNet::V6(net) => IpAddr::V6((u128::from(net.network()) | (pick & u128::from(net.hostmask()))).into()),
            };
            let pools = default_pools(cidr, Some(gateway));
            let single_address = cidr.prefix_len() == cidr.max_prefix_len();
            for pool in &pools {
                prop_assert!(pool.start <= pool.end);
                prop_assert!(cidr.contains(&pool.start) && cidr.contains(&pool.end));
                prop_assert!(single_address || !pool.contains(gateway));
            }
            prop_assert!(pools.windows(2).all(|pair| pair[0].end < pair[1].start));
        }

        #[test]
        fn overlap_is_sharing_the_longer_ones_first_address(left in cidrs(), right in cidrs()) {
            let (outer, inner) = if left.prefix_len() <= right.prefix_len() { (left, right) } else { (right, left) };
            prop_assert_eq!(overlap(left, right), outer.contains(&inner.network()));
            prop_assert_eq!(overlap(left, right), overlap(right, left));
            prop_assert!(overlap(left, left));
        }
    }
}
