//! The addresses of simulated nodes and of the Pods on them. Nothing listens at any of them.
//!
//! A node's Pods have addresses of the ranges in its spec; without one, and once they are used up, of a block that no other node has.

use ipnet::IpNet;
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Out of which nodes have addresses: 172.18.0.0/16, from .2 on.
const HOSTS: u32 = u32::from_be_bytes([172, 18, 0, 2]);
const HOSTS_MAX: u32 = 0xFFFC;
/// Out of which blocks are taken: 10.128.0.0/9, 1,024 addresses each.
const BLOCKS: u32 = u32::from_be_bytes([10, 128, 0, 0]);
const BLOCK_BITS: u8 = 22;
const BLOCKS_MAX: u32 = 1 << (BLOCK_BITS - 9);

/// What is given to nodes.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    n_hosts: u32,
    n_blocks: u32,
}

/// What a node gives to its Pods.
#[derive(Debug, Default)]
pub(crate) struct PodAddresses {
    /// Of its spec, at most one of each family.
    ranges: Vec<IpNet>,
    blocks: Vec<IpNet>,
    used: HashSet<IpAddr>,
    /// How far the search for a free address has come, by range; it goes round, so that one that was given back is not used at once.
    next: u32,
}

impl Hosts {
    /// An address for a node.
    pub(crate) fn host(&mut self) -> IpAddr {
        let n = self.n_hosts % HOSTS_MAX;
        self.n_hosts = self.n_hosts.wrapping_add(1);
        IpAddr::V4(Ipv4Addr::from(HOSTS + n))
    }

    /// Addresses for Pods; `None` once there are no more.
    fn block(&mut self) -> Option<IpNet> {
        let n = Some(self.n_blocks).filter(|n| *n < BLOCKS_MAX)?;
        self.n_blocks += 1;
        let first = Ipv4Addr::from(BLOCKS + (n << (32 - BLOCK_BITS)));
        IpNet::new(first.into(), BLOCK_BITS).ok()
    }
}

impl PodAddresses {
    pub(crate) fn new(ranges: impl IntoIterator<Item = IpNet>) -> PodAddresses {
        PodAddresses { ranges: ranges.into_iter().collect(), ..PodAddresses::default() }
    }

    /// Somebody has these addresses already.
    pub(crate) fn reserve(&mut self, addresses: &[IpAddr]) {
        self.used.extend(addresses);
    }

    pub(crate) fn release(&mut self, addresses: &[IpAddr]) {
        for address in addresses {
            self.used.remove(address);
        }
    }

    /// Addresses for a Pod, one of each family. Empty only when there are none left anywhere.
    pub(crate) fn take(&mut self, hosts: &mut Hosts) -> Vec<IpAddr> {
        let ranges = self.ranges.clone();
        let own: Vec<IpAddr> = ranges.iter().filter_map(|range| self.take_of(range)).collect();
        if !own.is_empty() {
            return own;
        }
        let blocks = self.blocks.clone();
        if let Some(address) = blocks.iter().rev().find_map(|block| self.take_of(block)) {
            return vec![address];
        }
        let Some(block) = hosts.block() else { return Vec::new() };
        self.blocks.push(block);
        self.take_of(&block).into_iter().collect()
    }

    fn take_of(&mut self, range: &IpNet) -> Option<IpAddr> {
        let host_bits = u32::from(range.max_prefix_len() - range.prefix_len()).min(16);
        // Without the first two, the network and its gateway, and the last.
        let size = 1_u32.checked_shl(host_bits)?.checked_sub(3).filter(|size| *size > 0)?;
        for _ in 0..size.min(u32::try_from(self.used.len()).unwrap_or(u32::MAX).saturating_add(1)) {
            let offset = 2 + self.next % size;
            self.next = self.next.wrapping_add(1);
            let address = match range.network() {
                IpAddr::V4(first) => IpAddr::V4(Ipv4Addr::from(u32::from(first).wrapping_add(offset))),
                IpAddr::V6(first) => IpAddr::V6(Ipv6Addr::from(u128::from(first).wrapping_add(offset.into()))),
            };
            if self.used.insert(address) {
                return Some(address);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_node_without_a_range_has_a_block_of_its_own_and_another_when_it_is_full() {
        let mut hosts = Hosts::default();
        let (mut first, mut second) = (PodAddresses::default(), PodAddresses::default());
        assert_eq!(first.take(&mut hosts), ["10.128.0.2".parse::<IpAddr>().unwrap()]);
        assert_eq!(second.take(&mut hosts), ["10.128.4.2".parse::<IpAddr>().unwrap()]);
        let all: HashSet<Vec<IpAddr>> = (0..3_000).map(|_| first.take(&mut hosts)).collect();
        assert_eq!(all.len(), 3_000);
    }

    #[test]
    fn a_range_of_each_family_gives_an_address() {
        let ranges = ["10.1.2.0/24", "fd00::/64"].map(|range| range.parse().unwrap());
        let mut addresses = PodAddresses::new(ranges);
        let taken = addresses.take(&mut Hosts::default());
        assert_eq!(taken.iter().map(IpAddr::is_ipv4).collect::<Vec<_>>(), [true, false]);
    }

    proptest! {
        #[test]
        fn no_two_pods_share_an_address(prefix in 8_u8..=32, takes in 1_usize..300) {
            let mut addresses = PodAddresses::new([IpNet::new(Ipv4Addr::new(10, 9, 0, 0).into(), prefix).unwrap()]);
            let mut hosts = Hosts::default();
            let mut all = HashSet::new();
            for n in 0..takes {
                let taken = addresses.take(&mut hosts);
                prop_assert_eq!(taken.len(), 1);
                prop_assert!(all.insert(taken[0]));
                if n % 7 == 0 {
                    addresses.release(&taken);
                    all.remove(&taken[0]);
                }
            }
        }
    }
}
