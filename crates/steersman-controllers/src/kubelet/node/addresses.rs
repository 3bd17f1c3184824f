//! The addresses of simulated nodes and of the Pods on them. Nothing listens at any of them.
//!
//! A node's Pods get addresses from the ranges in its spec. Without a range, or once it is used up, they get addresses
//! from a block that no other node has. [`Addresses`] holds the used addresses of the whole cluster. It is filled from
//! the addresses in Nodes and Pods, so that after a restart none is given twice.

use hashbrown::{HashMap, HashSet};
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The range of node addresses: 172.18.0.0/16, from .2 on.
const HOSTS: u32 = u32::from_be_bytes([172, 18, 0, 2]);
const HOSTS_MAX: u32 = 0xFFFC;
/// The range of blocks: 10.128.0.0/9 in blocks of 256 addresses, which makes 32,768 blocks.
const BLOCKS: u32 = u32::from_be_bytes([10, 128, 0, 0]);
const BLOCK_BITS: u8 = 24;
const BLOCKS_MAX: u32 = 1 << (BLOCK_BITS - 9);
/// The number of addresses of a range that no Pod gets: the network's, the gateway's and the last.
const NOT_FOR_PODS: u32 = 3;

/// The addresses in use in the cluster.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    hosts: HashSet<IpAddr>,
    /// Where the search for a free address continues. It wraps around, so that an address that was given back is not
    /// reused at once.
    next_host: u32,
    /// The number of Pods that have each address. Pods with hostNetwork share the address of their node.
    pods: HashMap<IpAddr, usize>,
    /// Blocks, by number, that a node owns or that Pods have addresses of.
    blocks: HashMap<u32, Block>,
    next_block: u32,
}

#[derive(Debug, Default)]
struct Block {
    /// Whether a node takes addresses from it.
    is_owned: bool,
    n_addresses: u32,
}

/// The source of a node's Pod addresses.
#[derive(Debug, Default)]
pub(crate) struct PodAddresses {
    /// The ranges in the node's spec, at most one of each family.
    ranges: Vec<IpNet>,
    /// The numbers of the blocks that the node owns.
    blocks: Vec<u32>,
    /// Like [`Addresses::next_host`], for the addresses of Pods.
    next: u32,
}

/// The number of the block that an address is in.
fn block_of(address: IpAddr) -> Option<u32> {
    let IpAddr::V4(address) = address else { return None };
    let offset = u32::from(address).checked_sub(BLOCKS)?;
    Some(offset >> (32 - BLOCK_BITS)).filter(|number| *number < BLOCKS_MAX)
}

fn range_of(number: u32) -> Option<IpNet> {
    let first = Ipv4Addr::from(BLOCKS + (number << (32 - BLOCK_BITS)));
    IpNet::new(first.into(), BLOCK_BITS).ok()
}

/// The first free number below `max`, searched from `next` on with wrap-around.
fn free(next: &mut u32, max: u32, is_taken: impl Fn(u32) -> bool) -> Option<u32> {
    for _ in 0..max {
        let number = *next % max;
        *next = (number + 1) % max;
        if !is_taken(number) {
            return Some(number);
        }
    }
    None
}

// === impl Addresses ===

impl Addresses {
    /// Takes an address for a node. Once all are in use, it is shared with another node.
    pub(crate) fn take_host(&mut self) -> IpAddr {
        let address = |number: u32| IpAddr::V4(Ipv4Addr::from(HOSTS + number));
        let number = free(&mut self.next_host, HOSTS_MAX, |number| self.hosts.contains(&address(number)));
        let taken = address(number.unwrap_or_default());
        self.hosts.insert(taken);
        taken
    }

    /// Records that a node has this address.
    pub(crate) fn reserve_host(&mut self, address: IpAddr) {
        self.hosts.insert(address);
    }

    /// Releases the address of a node that is gone.
    pub(crate) fn release_host(&mut self, address: IpAddr) {
        self.hosts.remove(&address);
    }

    /// Records that a Pod has these addresses.
    pub(crate) fn reserve(&mut self, addresses: &[IpAddr]) {
        for address in addresses {
            let n_pods = self.pods.entry(*address).or_default();
            *n_pods += 1;
            if let Some(number) = block_of(*address).filter(|_| *n_pods == 1) {
                self.blocks.entry(number).or_default().n_addresses += 1;
            }
        }
    }

    /// Releases the addresses of a Pod that is gone or has terminated, once for each time that they were reserved or
    /// taken.
    pub(crate) fn release(&mut self, addresses: &[IpAddr]) {
        for address in addresses {
            let Some(n_pods) = self.pods.get_mut(address) else { continue };
            *n_pods -= 1;
            if *n_pods > 0 {
                continue;
            }
            self.pods.remove(address);
            if let Some(number) = block_of(*address) {
                self.change_block(number, |block| block.n_addresses = block.n_addresses.saturating_sub(1));
            }
        }
    }

    fn change_block(&mut self, number: u32, change: impl FnOnce(&mut Block)) {
        let Some(block) = self.blocks.get_mut(&number) else { return };
        change(block);
        if !block.is_owned && block.n_addresses == 0 {
            self.blocks.remove(&number);
        }
    }

    /// Takes a block of which nobody has addresses; `None` if no block is left.
    fn take_block(&mut self) -> Option<u32> {
        let number = free(&mut self.next_block, BLOCKS_MAX, |number| self.blocks.contains_key(&number))?;
        self.blocks.insert(number, Block { is_owned: true, n_addresses: 0 });
        Some(number)
    }

    fn has_room(&self, number: u32) -> bool {
        let size = (1 << (32 - BLOCK_BITS)) - NOT_FOR_PODS;
        self.blocks.get(&number).is_some_and(|block| block.n_addresses < size)
    }
}

// === impl PodAddresses ===

impl PodAddresses {
    /// The addresses of a node with these ranges, of which the first of each family is used. The node owns the blocks
    /// of the addresses that its Pods have already, unless another node owns them.
    pub(crate) fn new(
        ranges: impl IntoIterator<Item = IpNet>,
        known: impl IntoIterator<Item = IpAddr>,
        cluster: &mut Addresses,
    ) -> PodAddresses {
        let mut addresses = PodAddresses::default();
        for range in ranges {
            if !addresses.ranges.iter().any(|known| known.addr().is_ipv4() == range.addr().is_ipv4()) {
                addresses.ranges.push(range);
            }
        }
        for address in known {
            if let Some(number) = block_of(address)
                && !addresses.ranges.iter().any(|range| range.contains(&address))
                && let Some(block) = cluster.blocks.get_mut(&number)
                && !std::mem::replace(&mut block.is_owned, true)
            {
                addresses.blocks.push(number);
            }
        }
        addresses
    }

    /// Gives up the node's blocks when it is gone. Others may take them once no Pod has addresses of them.
    pub(crate) fn give_back(self, cluster: &mut Addresses) {
        for number in self.blocks {
            cluster.change_block(number, |block| block.is_owned = false);
        }
    }

    /// Takes addresses for a Pod, one of each family. Empty only when no address is left.
    pub(crate) fn take(&mut self, cluster: &mut Addresses) -> Vec<IpAddr> {
        let ranges = self.ranges.clone();
        let own: Vec<IpAddr> = ranges.iter().filter_map(|range| self.take_of(range, cluster)).collect();
        if !own.is_empty() {
            return own;
        }
        let with_room = self.blocks.iter().rev().copied().find(|number| cluster.has_room(*number));
        let number = with_room.or_else(|| {
            let number = cluster.take_block()?;
            self.blocks.push(number);
            Some(number)
        });
        number.and_then(range_of).and_then(|range| self.take_of(&range, cluster)).into_iter().collect()
    }

    fn take_of(&mut self, range: &IpNet, cluster: &mut Addresses) -> Option<IpAddr> {
        let host_bits = u32::from(range.max_prefix_len() - range.prefix_len()).min(16);
        let size = 1_u32.checked_shl(host_bits)?.checked_sub(NOT_FOR_PODS).filter(|size| *size > 0)?;
        let address = |number: u32| {
            let offset = 2 + number;
            match range.network() {
                IpAddr::V4(first) => IpAddr::V4(Ipv4Addr::from(u32::from(first).wrapping_add(offset))),
                IpAddr::V6(first) => IpAddr::V6(Ipv6Addr::from(u128::from(first).wrapping_add(offset.into()))),
            }
        };
        let number = free(&mut self.next, size, |number| cluster.pods.contains_key(&address(number)))?;
        let taken = address(number);
        cluster.reserve(&[taken]);
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn node(cluster: &mut Addresses) -> PodAddresses {
        PodAddresses::new([], [], cluster)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_node_without_a_range_has_a_block_of_its_own_and_another_when_it_is_full() {
        let mut cluster = Addresses::default();
        let (mut first, mut second) = (node(&mut cluster), node(&mut cluster));
        assert_eq!(first.take(&mut cluster), [ip("10.128.0.2")]);
        assert_eq!(second.take(&mut cluster), [ip("10.128.1.2")]);
        let all: HashSet<Vec<IpAddr>> = (0..3_000).map(|_| first.take(&mut cluster)).collect();
        assert_eq!(all.len(), 3_000);
    }

    #[test]
    fn a_range_of_each_family_gives_an_address() {
        let ranges = ["10.1.2.0/24", "fd00::/64", "10.1.2.0/24"].map(|range| range.parse().unwrap());
        let mut cluster = Addresses::default();
        let taken = PodAddresses::new(ranges, [], &mut cluster).take(&mut cluster);
        assert_eq!(taken.iter().map(IpAddr::is_ipv4).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn a_block_in_which_pods_of_another_node_have_addresses_is_not_taken() {
        let mut cluster = Addresses::default();
        let known = [ip("10.128.0.2"), ip("10.128.0.3")];
        cluster.reserve(&known);
        let (mut new, mut old) = (node(&mut cluster), PodAddresses::new([], known, &mut cluster));
        assert_eq!(new.take(&mut cluster), [ip("10.128.1.2")]);
        assert_eq!(old.take(&mut cluster), [ip("10.128.0.4")]);
    }

    #[test]
    fn the_block_of_a_node_that_is_gone_is_free_once_its_pods_are_too() {
        let mut cluster = Addresses::default();
        let mut gone = node(&mut cluster);
        let taken = gone.take(&mut cluster);
        gone.give_back(&mut cluster);
        assert_eq!(cluster.blocks.len(), 1);
        cluster.release(&taken);
        assert_eq!(cluster.blocks.len(), 0);
        assert_eq!(cluster.pods.len(), 0);
    }

    #[test]
    fn ten_thousand_nodes_have_addresses_of_their_own_and_blocks_however_often_they_are_replaced() {
        let mut cluster = Addresses::default();
        cluster.reserve_host(ip("172.18.0.2"));
        for _ in 0..7 {
            let mut nodes: Vec<(IpAddr, PodAddresses)> =
                (0..10_000).map(|_| (cluster.take_host(), node(&mut cluster))).collect();
            let hosts: HashSet<IpAddr> = nodes.iter().map(|(host, _)| *host).collect();
            assert_eq!((hosts.len(), hosts.contains(&ip("172.18.0.2"))), (10_000, false));
            let pods: Vec<Vec<IpAddr>> = nodes.iter_mut().map(|(_, node)| node.take(&mut cluster)).collect();
            assert_eq!(pods.iter().flatten().collect::<HashSet<_>>().len(), 10_000);
            for ((host, node), pod) in nodes.into_iter().zip(pods) {
                cluster.release_host(host);
                node.give_back(&mut cluster);
                cluster.release(&pod);
            }
        }
    }

    proptest! {
        #[test]
        fn no_two_pods_share_an_address(prefix in 8_u8..=32, takes in 1_usize..300) {
            let mut cluster = Addresses::default();
            let range = IpNet::new(Ipv4Addr::new(10, 9, 0, 0).into(), prefix).unwrap();
            let mut addresses = PodAddresses::new([range], [], &mut cluster);
            let mut all = HashSet::new();
            for n in 0..takes {
                let taken = addresses.take(&mut cluster);
                prop_assert_eq!(taken.len(), 1);
                prop_assert!(all.insert(taken[0]));
                if n % 7 == 0 {
                    cluster.release(&taken);
                    all.remove(&taken[0]);
                }
            }
        }

        #[test]
        fn no_two_pods_share_an_address_after_restarts(steps in proptest::collection::vec((0_usize..4, 0_u8..10), 1..200)) {
            let mut cluster = Addresses::default();
            let mut nodes: Vec<PodAddresses> = (0..4).map(|_| node(&mut cluster)).collect();
            let mut pods: Vec<Vec<IpAddr>> = vec![Vec::new(); 4];
            for (index, what) in steps {
                match what {
                    0 => {
                        cluster = Addresses::default();
                        pods.iter().for_each(|pods| cluster.reserve(pods));
                        nodes = pods.iter().map(|pods| PodAddresses::new([], pods.clone(), &mut cluster)).collect();
                    }
                    1 => {
                        let known = pods[index].clone();
                        std::mem::take(&mut nodes[index]).give_back(&mut cluster);
                        nodes[index] = PodAddresses::new([], known, &mut cluster);
                    }
                    2 | 3 => cluster.release(&pods[index].pop().into_iter().collect::<Vec<_>>()),
                    _ => pods[index].extend(nodes[index].take(&mut cluster)),
                }
                let all: Vec<&IpAddr> = pods.iter().flatten().collect();
                prop_assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
            }
        }
    }
}
