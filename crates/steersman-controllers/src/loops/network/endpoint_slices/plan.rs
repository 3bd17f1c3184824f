//! Plans the EndpointSlices of a Service, with the fewest writes.
//!
//! Follows upstream's `k8s.io/endpointslice/reconciler.go`: slices are filled per address family and set of ports.
//! Existing endpoints stay in their slices. New endpoints go into slices that change anyway, the fullest first, then
//! into one slice that has room for all remaining ones, and then into new slices.

use crate::loops::network::endpoint_slices::hints::{Hinting, Hints};
use crate::loops::network::service_pods::ports::{self, Port};
use crate::loops::network::service_pods::{self, Terminating, canonical};
use crate::shared::dependents;
use crate::shared::note::Note;
use crate::shared::pods;
use hashbrown::{HashMap, HashSet};
use k8s_openapi::api::core::v1::{ObjectReference, Pod, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The value of the label that marks slices as managed by this controller.
pub(crate) const MANAGED_BY: &str = "endpointslice-controller.k8s.io";
pub(crate) const LABEL_MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
pub(crate) const LABEL_SERVICE_NAME: &str = "kubernetes.io/service-name";
pub(crate) const LABEL_HEADLESS: &str = "service.kubernetes.io/headless";

/// The most endpoints of a slice.
pub(crate) const ENDPOINTS_MAX: usize = 100;

/// The existing nodes, with their zone if they have one.
pub(crate) type Nodes = HashMap<String, Option<String>>;

/// The writes. Updates and deletions have the names and versions of existing slices; new slices have none.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) create: Vec<EndpointSlice>,
    pub(crate) update: Vec<EndpointSlice>,
    pub(crate) delete: Vec<Arc<EndpointSlice>>,
}

/// The changes to the slices of one Service, and its problems.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) changes: Vec<Changes>,
    /// Why Pods are left out, one sentence each.
    pub(crate) skipped: Vec<String>,
    /// Events about hints.
    pub(crate) events: Vec<Note>,
}

/// The identity of an endpoint: an endpoint with the same identity is updated in its slice.
#[derive(Eq, Hash, PartialEq)]
struct Identity {
    addresses: Vec<String>,
    hostname: String,
    namespace: String,
    name: String,
}

/// Endpoints that are in no slice yet, in order.
#[derive(Default)]
struct UnassignedEndpoints {
    endpoints: Vec<Option<Endpoint>>,
    places: HashMap<Identity, usize>,
    next: usize,
}

/// The endpoints of one set of ports.
struct Group {
    ports: Vec<EndpointPort>,
    wanted: UnassignedEndpoints,
}

/// Plans the slices of a Service that has a selector.
pub(crate) fn plan(
    service: &Service,
    pods: &[Arc<Pod>],
    existing: &[Arc<EndpointSlice>],
    nodes: &Nodes,
    hinting: &mut Hinting<'_>,
) -> Plan {
    let families = families(service);
    let mut plan = Plan::default();
    for family in &families {
        let of_family: Vec<_> = existing.iter().filter(|slice| slice.address_type == *family).cloned().collect();
        let changes = of_one_family(service, pods, &of_family, nodes, family, hinting, &mut plan);
        plan.changes.push(changes);
    }
    let others = existing.iter().filter(|slice| !families.contains(&&*slice.address_type));
    let delete: Vec<_> = others.cloned().collect();
    if !delete.is_empty() {
        delete.iter().for_each(|slice| hinting.forget(&slice.address_type));
        plan.changes.push(Changes { delete, ..Changes::default() });
    }
    plan
}

/// The address families of a Service. Without `ipFamilies`, the family of its cluster IP; without that, both.
fn families(service: &Service) -> Vec<&'static str> {
    let spec = service.spec.as_ref();
    let mut families = Vec::new();
    for family in spec.iter().flat_map(|spec| &spec.ip_families).flatten() {
        match family.as_str() {
            "IPv4" if !families.contains(&"IPv4") => families.push("IPv4"),
            "IPv6" if !families.contains(&"IPv6") => families.push("IPv6"),
            _ => {}
        }
    }
    if !families.is_empty() {
        return families;
    }
    if service_pods::has_cluster_ip(service) {
        let address = spec.and_then(|spec| spec.cluster_ip.as_deref()).and_then(canonical);
        return vec![if address.is_some_and(|address| address.is_ipv6()) { "IPv6" } else { "IPv4" }];
    }
    vec!["IPv4", "IPv6"]
}

fn of_one_family(
    service: &Service,
    pods: &[Arc<Pod>],
    existing: &[Arc<EndpointSlice>],
    nodes: &Nodes,
    family: &str,
    hinting: &mut Hinting<'_>,
    plan: &mut Plan,
) -> Changes {
    let mut changes = Changes::default();
    let mut by_ports: BTreeMap<String, Vec<Arc<EndpointSlice>>> = BTreeMap::new();
    for slice in existing {
        if is_owned(slice, service) {
            let key = ports_key(slice.ports.as_deref().unwrap_or_default());
            by_ports.entry(key).or_default().push(Arc::clone(slice));
        } else {
            changes.delete.push(Arc::clone(slice));
        }
    }
    let mut groups = groups(service, pods, nodes, family, &mut plan.skipped);
    for (key, group) in &mut groups {
        let slices = by_ports.remove(key).unwrap_or_default();
        of_one_group(service, family, &slices, group, &mut changes);
    }
    // Slices with a set of ports that no Pod has any more.
    changes.delete.extend(by_ports.into_values().flatten());
    if existing.len() == changes.delete.len() && changes.create.is_empty() {
        // A Service without endpoints has an empty slice.
        let empty = new_slice(service, family, Vec::new());
        match &*changes.delete {
            [only] if is_same_empty(only, &empty) => changes.delete.clear(),
            _ => changes.create.push(empty),
        }
    }
    let changed: HashSet<_> = changes.update.iter().filter_map(|slice| slice.metadata.name.clone()).collect();
    let is_changed = |slice: &Arc<EndpointSlice>| {
        slice.metadata.name.as_ref().is_some_and(|name| changed.contains(name))
            || changes.delete.iter().any(|deleted| Arc::ptr_eq(deleted, slice))
    };
    let unchanged = existing.iter().filter(|slice| !is_changed(slice)).cloned().collect();
    let mut slices = Hints { create: changes.create, update: changes.update, unchanged };
    hinting.apply(service, family, &mut slices, &mut plan.events);
    (changes.create, changes.update) = (slices.create, slices.update);
    reuse(service, &mut changes);
    changes
}

/// The desired endpoints, by their set of ports.
fn groups(
    service: &Service,
    pods: &[Arc<Pod>],
    nodes: &Nodes,
    family: &str,
    skipped: &mut Vec<String>,
) -> BTreeMap<String, Group> {
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| service_pods::is_endpoint(pod, Terminating::Included)) {
        let ports = slice_ports(service, pod);
        let group =
            groups.entry(ports_key(&ports)).or_insert_with(|| Group { ports, wanted: UnassignedEndpoints::default() });
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
        let zone = nodes.get(node);
        if zone.is_none() && !service_pods::publishes_not_ready(service) {
            let ObjectMeta { namespace, name, .. } = &service.metadata;
            let said = format!(
                "skipping Pod {} for Service {}/{}: Node {node} Not Found",
                pod.metadata.name.as_deref().unwrap_or_default(),
                namespace.as_deref().unwrap_or_default(),
                name.as_deref().unwrap_or_default(),
            );
            if !skipped.contains(&said) {
                skipped.push(said);
            }
            continue;
        }
        let endpoint = endpoint(service, pod, zone.cloned().flatten(), family);
        if !endpoint.addresses.is_empty() {
            group.wanted.add(endpoint);
        }
    }
    groups
}

fn endpoint(service: &Service, pod: &Pod, zone: Option<String>, family: &str) -> Endpoint {
    let is_serving = pods::is_ready(pod);
    let is_terminating = pods::is_terminating(pod);
    let is_ready = service_pods::publishes_not_ready(service) || (is_serving && !is_terminating);
    let addresses = service_pods::ips(pod).filter_map(canonical);
    let mut addresses: Vec<String> =
        addresses.filter(|ip| ip.is_ipv6() == (family == "IPv6")).map(|ip| ip.to_string()).collect();
    addresses.sort();
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    Endpoint {
        addresses,
        conditions: Some(EndpointConditions {
            ready: Some(is_ready),
            serving: Some(is_serving),
            terminating: Some(is_terminating),
        }),
        hostname: service_pods::hostname(pod, service).map(str::to_owned),
        node_name: node.filter(|node| !node.is_empty()),
        target_ref: Some(ObjectReference {
            kind: Some("Pod".to_owned()),
            name: pod.metadata.name.clone(),
            namespace: pod.metadata.namespace.clone(),
            uid: pod.metadata.uid.clone(),
            ..ObjectReference::default()
        }),
        zone,
        ..Endpoint::default()
    }
}

fn slice_ports(service: &Service, pod: &Pod) -> Vec<EndpointPort> {
    if ports::is_portless(service) {
        return Vec::new();
    }
    let mut ports = ports::of(service, pod);
    ports.sort_by_cached_key(ports::slices_order);
    let to_api = |Port { name, port, protocol, app_protocol }| EndpointPort {
        app_protocol,
        name: Some(name),
        port: Some(port),
        protocol: Some(protocol),
    };
    ports.into_iter().map(to_api).collect()
}

/// The key by which slices are grouped.
pub(crate) fn ports_key(ports: &[EndpointPort]) -> String {
    let key = |port: &EndpointPort| {
        let EndpointPort { app_protocol, name, port, protocol } = port;
        let name = name.as_deref().unwrap_or_default();
        format!("{name:?} {port:?} {} {app_protocol:?}", ports::protocol(protocol.as_ref()))
    };
    let mut keys: Vec<String> = ports.iter().map(key).collect();
    keys.sort();
    keys.join(", ")
}

/// Puts the endpoints of one set of ports into slices.
fn of_one_group(
    service: &Service,
    family: &str,
    existing: &[Arc<EndpointSlice>],
    group: &mut Group,
    changes: &mut Changes,
) {
    let wanted = &mut group.wanted;
    let mut update: Vec<EndpointSlice> = Vec::new();
    let mut unchanged: Vec<&Arc<EndpointSlice>> = Vec::new();
    for slice in existing {
        let present = slice.endpoints.as_deref().unwrap_or_default();
        let mut kept = Vec::with_capacity(present.len());
        let mut is_changed = false;
        for endpoint in present {
            let Some(new) = wanted.take(endpoint) else { continue };
            is_changed |= !is_equal(&new, endpoint);
            kept.push(new);
        }
        let (labels, are_labels_changed) = labels(slice.metadata.labels.as_ref(), service);
        let is_changed = is_changed || kept.len() != present.len();
        if is_changed && kept.is_empty() {
            changes.delete.push(Arc::clone(slice));
        } else if is_changed || are_labels_changed {
            let mut new = EndpointSlice::clone(slice);
            if is_changed {
                new.endpoints = Some(kept);
            }
            new.metadata.labels = Some(labels);
            update.push(new);
        } else {
            unchanged.push(slice);
        }
    }
    update.sort_by_key(|slice| std::cmp::Reverse(len(slice)));
    for slice in &mut update {
        wanted.fill(slice);
    }
    let fits = |slice: &EndpointSlice, n: usize| (len(slice) + n <= ENDPOINTS_MAX).then(|| len(slice));
    while wanted.len() > 0 {
        let with_room = unchanged.iter().enumerate().filter(|_| wanted.len() < ENDPOINTS_MAX);
        let fullest = with_room.filter_map(|(at, slice)| Some((fits(slice, wanted.len())?, at)));
        match fullest.max_by_key(|(n, at)| (*n, std::cmp::Reverse(*at))) {
            Some((_, at)) => {
                let mut slice = EndpointSlice::clone(unchanged.remove(at));
                wanted.fill(&mut slice);
                update.push(slice);
            }
            None => {
                let mut slice = new_slice(service, family, group.ports.clone());
                wanted.fill(&mut slice);
                changes.create.push(slice);
            }
        }
    }
    changes.update.append(&mut update);
}

fn len(slice: &EndpointSlice) -> usize {
    slice.endpoints.as_ref().map_or(0, Vec::len)
}

/// Turns pairs of a deletion and a creation into updates.
fn reuse(service: &Service, changes: &mut Changes) {
    let delete = std::mem::take(&mut changes.delete);
    for old in delete {
        let is_its = is_owned(&old, service);
        match changes.create.pop_if(|new| is_its && new.address_type == old.address_type) {
            Some(mut new) => {
                new.metadata.generate_name = None;
                new.metadata.name.clone_from(&old.metadata.name);
                new.metadata.uid.clone_from(&old.metadata.uid);
                new.metadata.resource_version.clone_from(&old.metadata.resource_version);
                changes.update.push(new);
            }
            None => changes.delete.push(old),
        }
    }
}

fn new_slice(service: &Service, family: &str, ports: Vec<EndpointPort>) -> EndpointSlice {
    EndpointSlice {
        address_type: family.to_owned(),
        endpoints: Some(Vec::new()),
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", service.metadata.name.as_deref().unwrap_or_default())),
            labels: Some(labels(None, service).0),
            namespace: service.metadata.namespace.clone(),
            owner_references: dependents::reference_to(service).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        ports: Some(ports),
    }
}

/// The labels of a slice: its Service's and three of this controller. Also returns whether a label of the Service has
/// changed.
fn labels(present: Option<&BTreeMap<String, String>>, service: &Service) -> (BTreeMap<String, String>, bool) {
    let is_free = |name: &str| ![LABEL_MANAGED_BY, LABEL_SERVICE_NAME, LABEL_HEADLESS].contains(&name);
    let of_service = service.metadata.labels.iter().flatten().filter(|(name, _)| is_free(name));
    let mut labels: BTreeMap<String, String> = of_service.map(|(name, value)| (name.clone(), value.clone())).collect();
    let is_changed = !present.into_iter().flatten().filter(|(name, _)| is_free(name)).eq(labels.iter());
    if !service_pods::has_cluster_ip(service) {
        labels.insert(LABEL_HEADLESS.to_owned(), String::new());
    }
    labels.insert(LABEL_SERVICE_NAME.to_owned(), service.metadata.name.clone().unwrap_or_default());
    labels.insert(LABEL_MANAGED_BY.to_owned(), MANAGED_BY.to_owned());
    (labels, is_changed)
}

fn is_owned(slice: &EndpointSlice, service: &Service) -> bool {
    let mut owners = slice.metadata.owner_references.iter().flatten();
    owners.any(|owner| {
        Some(&owner.uid) == service.metadata.uid.as_ref() && owner.kind == "Service" && owner.api_version == "v1"
    })
}

/// Whether a slice equals the empty slice that would replace it.
fn is_same_empty(slice: &EndpointSlice, empty: &EndpointSlice) -> bool {
    len(slice) == 0 && slice.ports.as_ref().is_none_or(Vec::is_empty) && slice.metadata.labels == empty.metadata.labels
}

/// Whether two endpoints of the same identity are equal. Hints are compared elsewhere.
fn is_equal(a: &Endpoint, b: &Endpoint) -> bool {
    let target = |endpoint: &Endpoint| {
        endpoint.target_ref.clone().map(|target| ObjectReference { resource_version: None, ..target })
    };
    a.node_name == b.node_name
        && a.zone == b.zone
        && a.conditions.clone().unwrap_or_default() == b.conditions.clone().unwrap_or_default()
        && target(a) == target(b)
}

impl Identity {
    fn of(endpoint: &Endpoint) -> Identity {
        let mut addresses = endpoint.addresses.clone();
        addresses.sort();
        let target = endpoint.target_ref.as_ref();
        Identity {
            addresses,
            hostname: endpoint.hostname.clone().unwrap_or_default(),
            namespace: target.and_then(|target| target.namespace.clone()).unwrap_or_default(),
            name: target.and_then(|target| target.name.clone()).unwrap_or_default(),
        }
    }
}

impl UnassignedEndpoints {
    fn add(&mut self, endpoint: Endpoint) {
        let identity = Identity::of(&endpoint);
        match self.places.get(&identity) {
            Some(at) => self.endpoints[*at] = Some(endpoint),
            None => {
                self.places.insert(identity, self.endpoints.len());
                self.endpoints.push(Some(endpoint));
            }
        }
    }

    /// Removes and returns the endpoint with the identity of `endpoint`.
    fn take(&mut self, endpoint: &Endpoint) -> Option<Endpoint> {
        let at = self.places.remove(&Identity::of(endpoint))?;
        self.endpoints[at].take()
    }

    /// The number of endpoints that are in no slice. First called after the last [`UnassignedEndpoints::take`].
    fn len(&self) -> usize {
        self.places.len()
    }

    fn fill(&mut self, slice: &mut EndpointSlice) {
        let endpoints = slice.endpoints.get_or_insert_default();
        while endpoints.len() < ENDPOINTS_MAX
            && let Some(next) = self.endpoints.get_mut(self.next)
        {
            self.next += 1;
            if let Some(endpoint) = next.take() {
                self.places.remove(&Identity::of(&endpoint));
                endpoints.push(endpoint);
            }
        }
    }
}

#[cfg(test)]
mod tests;
