//! Packs addresses into subsets: addresses with the same ports share one.
//!
//! Follows upstream's `pkg/api/v1/endpoints/util.go` in the grouping and in the order of addresses and ports. The
//! subsets are sorted by their ports; upstream's order depends on a hash over uids.

use crate::loops::network::service_pods::ports::{self, Port};
use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset};
use std::collections::{BTreeMap, BTreeSet};

/// The most addresses of an Endpoints object.
pub(crate) const ADDRESSES_MAX: usize = 1000;

/// An address that offers a port.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    pub(crate) address: EndpointAddress,
    pub(crate) is_ready: bool,
}

/// The identity of an address: its IP and the uid of its target, because several Pods may share the address of their
/// node.
type Identity = (String, String);

fn identity(address: &EndpointAddress) -> Identity {
    (address.ip.clone(), address.target_ref.as_ref().and_then(|target| target.uid.clone()).unwrap_or_default())
}

/// Packs addresses into subsets. An address without a port, which a headless Service without ports has, has `None`.
pub(crate) fn pack(offers: Vec<(Option<Port>, Address)>) -> Vec<EndpointSubset> {
    let mut addresses: BTreeMap<Identity, EndpointAddress> = BTreeMap::new();
    let mut by_port: Vec<(Option<Port>, BTreeMap<Identity, bool>)> = Vec::new();
    let mut places: BTreeMap<Option<u128>, usize> = BTreeMap::new();
    for (port, Address { address, is_ready }) in offers {
        let at = *places.entry(port.as_ref().map(ports::endpoints_order)).or_insert_with(|| {
            by_port.push((port, BTreeMap::new()));
            by_port.len() - 1
        });
        let identity = identity(&address);
        addresses.entry(identity.clone()).or_insert(address);
        // Not ready takes precedence over ready.
        let known = by_port[at].1.entry(identity).or_insert(is_ready);
        *known &= is_ready;
    }
    let mut groups: BTreeMap<Vec<(Identity, bool)>, Vec<Port>> = BTreeMap::new();
    for (port, offered_by) in by_port {
        groups.entry(offered_by.into_iter().collect()).or_default().extend(port);
    }
    let mut subsets: Vec<(Vec<u128>, EndpointSubset)> = Vec::new();
    for (members, mut ports) in groups {
        ports.sort_by_cached_key(ports::endpoints_order);
        let of = |wanted: bool| {
            let chosen = members.iter().filter(|(_, is_ready)| *is_ready == wanted);
            let list: Vec<_> = chosen.filter_map(|(identity, _)| addresses.get(identity).cloned()).collect();
            (!list.is_empty()).then_some(list)
        };
        let order = ports.iter().map(ports::endpoints_order).collect();
        let to_api = |Port { name, port, protocol, app_protocol }| EndpointPort {
            app_protocol,
            name: (!name.is_empty()).then_some(name),
            port,
            protocol: Some(protocol),
        };
        let ports: Vec<_> = ports.into_iter().map(to_api).collect();
        let subset = EndpointSubset {
            addresses: of(true),
            not_ready_addresses: of(false),
            ports: (!ports.is_empty()).then_some(ports),
        };
        subsets.push((order, subset));
    }
    subsets.sort_by(|(a, _), (b, _)| a.cmp(b));
    subsets.into_iter().map(|(_, subset)| subset).collect()
}

pub(crate) fn len(subset: &EndpointSubset) -> usize {
    subset.addresses.as_ref().map_or(0, Vec::len) + subset.not_ready_addresses.as_ref().map_or(0, Vec::len)
}

/// The subsets in a form that does not depend on their order.
pub(crate) fn normal(subsets: &[EndpointSubset]) -> BTreeSet<String> {
    let text = |address: &EndpointAddress| format!("{address:?}");
    subsets
        .iter()
        .map(|subset| {
            let sorted =
                |list: &Option<Vec<EndpointAddress>>| list.iter().flatten().map(text).collect::<BTreeSet<String>>();
            let ports: BTreeSet<String> = subset.ports.iter().flatten().map(|port| format!("{port:?}")).collect();
            format!("{:?} {:?} {ports:?}", sorted(&subset.addresses), sorted(&subset.not_ready_addresses))
        })
        .collect()
}

/// Removes surplus addresses evenly from all subsets: first addresses that are not ready, then ready ones if there are
/// still too many. Returns whether any was removed.
pub(crate) fn truncate(subsets: &mut [EndpointSubset]) -> bool {
    let count = |list: &Option<Vec<EndpointAddress>>| list.as_ref().map_or(0, Vec::len);
    let n_ready: usize = subsets.iter().map(|subset| count(&subset.addresses)).sum();
    let n_others: usize = subsets.iter().map(|subset| count(&subset.not_ready_addresses)).sum();
    if n_ready + n_others <= ADDRESSES_MAX {
        return false;
    }
    let cuts_ready = n_ready > ADDRESSES_MAX;
    let (room, n_total) = if cuts_ready { (ADDRESSES_MAX, n_ready) } else { (ADDRESSES_MAX - n_ready, n_others) };
    let mut left = room;
    for subset in subsets {
        let cut = if cuts_ready { &mut subset.addresses } else { &mut subset.not_ready_addresses };
        let share = (count(cut) * room).div_ceil(n_total).min(left);
        left -= share.min(count(cut));
        if let Some(list) = cut {
            list.truncate(share);
        }
        if cuts_ready {
            subset.not_ready_addresses = None;
        }
    }
    true
}
