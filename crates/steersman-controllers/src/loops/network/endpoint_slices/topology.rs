//! Divides the endpoints of a Service among zones, in proportion to the CPUs of the zones.
//!
//! Follows upstream's `topologycache`: first each endpoint is assigned to its own zone, and then zones with more than
//! their share give endpoints to zones with less. A zone may be up to a fifth short; if even that is impossible, there
//! are no hints at all.

use crate::loops::network::endpoint_slices::hints::{self, Hints};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::discovery::v1::{EndpointHints, EndpointSlice, ForZone};
use std::collections::BTreeMap;
use std::sync::Arc;
use steersman_machinery::quantity::Quantity;

/// The tolerated overload of an endpoint, as a part of its fair load.
const OVERLOAD: f64 = 0.2;

/// The share of each zone in all CPUs; at least two zones.
pub(crate) type Zones = BTreeMap<String, f64>;

/// Why there are no hints.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Refusal(pub(crate) String);

struct Allocation {
    maximum: usize,
    minimum: usize,
    desired: f64,
}

/// The share of each zone, if all nodes that count report their zone and their CPUs.
pub(crate) fn zones(nodes: &[Arc<Node>]) -> Option<Zones> {
    let mut cpus: BTreeMap<String, f64> = BTreeMap::new();
    for node in nodes.iter().filter(|node| counts(node)) {
        let labels = node.metadata.labels.as_ref();
        let zone =
            labels.and_then(|labels| labels.get("topology.kubernetes.io/zone")).filter(|zone| !zone.is_empty())?;
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let cpu = Quantity::parse(&allocatable?.get("cpu")?.0).ok()?;
        let cpu = cpu.to_f64();
        if cpu == 0.0 {
            return None;
        }
        *cpus.entry(zone.clone()).or_default() += cpu;
    }
    let total: f64 = cpus.values().sum();
    (cpus.len() > 1 && total > 0.0).then(|| cpus.into_iter().map(|(zone, cpu)| (zone, cpu / total)).collect())
}

fn counts(node: &Node) -> bool {
    let is_excluded = node.metadata.labels.as_ref().is_some_and(|labels| {
        labels.contains_key("node-role.kubernetes.io/control-plane")
            || labels.contains_key("node-role.kubernetes.io/master")
    });
    let mut conditions = node.status.iter().flat_map(|status| &status.conditions).flatten();
    !is_excluded && conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Sets the hints of all slices with as few changes as possible.
pub(crate) fn divide(zones: Option<&Zones>, slices: &mut Hints) -> Result<(), Refusal> {
    let n_ready = |slice: &EndpointSlice| slice.endpoints.iter().flatten().filter(|one| hints::is_ready(one)).count();
    let n_endpoints = slices.create.iter().chain(&slices.update).map(n_ready).sum::<usize>()
        + slices.unchanged.iter().map(|slice| n_ready(slice)).sum::<usize>();
    let allocations = allocations(zones, n_endpoints)?;
    let mut allocated: BTreeMap<String, usize> = BTreeMap::new();
    slices.touch(|slice| match hinted(slice, &allocated, &allocations) {
        Some(hinted) => {
            hinted.into_iter().for_each(|(zone, n)| *allocated.entry(zone).or_default() += n);
            false
        }
        None => true,
    });
    for endpoint in slices.written().filter(|endpoint| hints::is_ready(endpoint)) {
        let Some(zone) = endpoint.zone.as_ref().filter(|zone| !zone.is_empty()) else {
            return Err(Refusal("One or more endpoints do not have a zone specified".to_owned()));
        };
        *allocated.entry(zone.clone()).or_default() += 1;
        endpoint.hints = Some(for_zone(zone));
    }
    let (mut giving, mut receiving) = balance(&allocations, &allocated);
    for endpoint in slices.written().filter(|endpoint| hints::is_ready(endpoint)) {
        let Some(left) = endpoint.zone.as_ref().and_then(|zone| giving.get_mut(zone)).filter(|left| **left > 0) else {
            continue;
        };
        let Some((zone, wanted)) = receiving.iter_mut().find(|(_, wanted)| **wanted > 0) else { break };
        endpoint.hints = Some(for_zone(zone));
        *left -= 1;
        *wanted -= 1;
    }
    if allocated.is_empty() {
        return Err(Refusal("No hints allocated for zones".to_owned()));
    }
    Ok(())
}

fn for_zone(zone: &str) -> EndpointHints {
    EndpointHints { for_nodes: None, for_zones: Some(vec![ForZone { name: zone.to_owned() }]) }
}

fn allocations(zones: Option<&Zones>, n_endpoints: usize) -> Result<BTreeMap<&str, Allocation>, Refusal> {
    let Some(zones) = zones else {
        let why = "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes";
        return Err(Refusal(why.to_owned()));
    };
    let counts = format!("({n_endpoints} endpoints, {} zones)", zones.len());
    if zones.len() > n_endpoints {
        return Err(Refusal(format!("Insufficient number of endpoints {counts}")));
    }
    let mut n_minimum = 0;
    let mut allocations = BTreeMap::new();
    for (zone, share) in zones {
        let desired = share * n_endpoints as f64;
        let minimum = (desired * (1.0 / (1.0 + OVERLOAD))).ceil() as usize;
        allocations.insert(&**zone, Allocation { maximum: 0, minimum, desired: desired.max(minimum as f64) });
        n_minimum += minimum;
    }
    let Some(n_free) = n_endpoints.checked_sub(n_minimum) else {
        let why = "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold";
        return Err(Refusal(format!("{why} {counts}")));
    };
    allocations.values_mut().for_each(|allocation| allocation.maximum = allocation.minimum + n_free);
    Ok(allocations)
}

/// The number of hints of a slice by zone; `None` if they do not fit the allocations.
fn hinted(
    slice: &EndpointSlice,
    allocated: &BTreeMap<String, usize>,
    allocations: &BTreeMap<&str, Allocation>,
) -> Option<BTreeMap<String, usize>> {
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    for endpoint in slice.endpoints.iter().flatten().filter(|endpoint| hints::is_ready(endpoint)) {
        let zones = endpoint.hints.as_ref()?.for_zones.as_ref().filter(|zones| !zones.is_empty())?;
        for zone in zones {
            allocations.get(&*zone.name)?;
            *found.entry(zone.name.clone()).or_default() += 1;
        }
    }
    let fits = found.iter().all(|(zone, n)| {
        let already = allocated.get(zone).copied().unwrap_or_default();
        allocations.get(&**zone).is_some_and(|allocation| n + already <= allocation.maximum)
    });
    fits.then_some(found)
}

/// How many endpoints some zones have to give, and how many other zones should receive.
fn balance(
    allocations: &BTreeMap<&str, Allocation>,
    allocated: &BTreeMap<String, usize>,
) -> (BTreeMap<String, usize>, BTreeMap<String, usize>) {
    let (mut over, mut under) = (BTreeMap::new(), BTreeMap::new());
    for (zone, allocation) in allocations {
        let more = allocated.get(*zone).copied().unwrap_or_default() as f64 - allocation.desired;
        if more > 0.0 {
            over.insert(*zone, more);
        } else if more < 0.0 {
            under.insert(*zone, -more);
        }
    }
    let most = |zones: &BTreeMap<&str, f64>| {
        zones.iter().map(|(zone, n)| ((*zone).to_owned(), *n)).max_by(|a, b| a.1.total_cmp(&b.1))
    };
    let (mut giving, mut receiving) = (BTreeMap::new(), BTreeMap::new());
    while let (Some((from, give)), Some((to, take))) = (most(&over), most(&under)) {
        if (give < 1.0 && take < 1.0) || give < 0.5 || take < 0.5 {
            break;
        }
        *giving.entry(from.clone()).or_default() += 1;
        *receiving.entry(to.clone()).or_default() += 1;
        over.get_mut(from.as_str()).into_iter().chain(under.get_mut(to.as_str())).for_each(|n| *n -= 1.0);
    }
    (giving, receiving)
}
