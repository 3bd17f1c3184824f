//! Plans the slices that Endpoints are mirrored into: one for each address family and set of ports.

use crate::loops::network::service_pods::canonical;
use crate::loops::network::service_pods::ports;
use crate::shared::dependents;
use hashbrown::HashMap;
use k8s_openapi::api::core::v1::{EndpointAddress, EndpointSubset, Endpoints};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The value of the label that marks slices as managed by this controller.
pub(crate) const MANAGED_BY: &str = "endpointslicemirroring-controller.k8s.io";
pub(crate) const LABEL_MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
pub(crate) const LABEL_SERVICE_NAME: &str = "kubernetes.io/service-name";

/// The most addresses of a subset that are mirrored.
pub(crate) const ADDRESSES_MAX: usize = 1000;

/// Annotations that are not copied to slices.
const OWN_ANNOTATIONS: [&str; 2] =
    ["endpoints.kubernetes.io/last-change-trigger-time", "kubectl.kubernetes.io/last-applied-configuration"];

/// The writes.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) create: Vec<EndpointSlice>,
    pub(crate) update: Vec<EndpointSlice>,
    pub(crate) delete: Vec<Arc<EndpointSlice>>,
    /// How many addresses are invalid.
    pub(crate) n_invalid: usize,
    /// How many addresses are not mirrored, including the invalid ones.
    pub(crate) n_skipped: usize,
}

/// The endpoints of one slice, each address, hostname and target once.
#[derive(Default)]
struct Group {
    ports: Vec<EndpointPort>,
    endpoints: BTreeMap<Identity, Endpoint>,
}

type Identity = (Vec<String>, String, String, String);

fn identity(endpoint: &Endpoint) -> Identity {
    let target = endpoint.target_ref.as_ref();
    (
        endpoint.addresses.clone(),
        endpoint.hostname.clone().unwrap_or_default(),
        target.and_then(|target| target.namespace.clone()).unwrap_or_default(),
        target.and_then(|target| target.name.clone()).unwrap_or_default(),
    )
}

/// Plans the slices of Endpoints that are mirrored.
pub(crate) fn plan(endpoints: &Endpoints, existing: &[Arc<EndpointSlice>]) -> Plan {
    let mut plan = Plan::default();
    let mut groups: BTreeMap<(&str, String), Group> = BTreeMap::new();
    for subset in endpoints.subsets.iter().flatten() {
        collect(subset, &mut groups, &mut plan);
    }
    let mut by_group: HashMap<(&str, String), Vec<&Arc<EndpointSlice>>> = HashMap::new();
    for slice in existing {
        let ports = key(slice.ports.as_deref().unwrap_or_default());
        by_group.entry((&slice.address_type, ports)).or_default().push(slice);
    }
    let (labels, annotations) = (labels(endpoints), annotations(endpoints));
    for ((family, ports), group) in groups {
        let slices = by_group.remove(&(family, ports)).unwrap_or_default();
        if group.endpoints.is_empty() {
            plan.delete.extend(slices.into_iter().cloned());
            continue;
        }
        let (first, others) = match slices.split_first() {
            Some((first, others)) => (Some(*first), others),
            None => (None, &[][..]),
        };
        plan.delete.extend(others.iter().map(|slice| Arc::clone(slice)));
        if first.is_some_and(|first| is_right(first, endpoints, &group, &labels, &annotations)) {
            continue;
        }
        let known = first.map(|first| first.metadata.clone()).unwrap_or_default();
        let prefix = || format!("{}-", endpoints.metadata.name.as_deref().unwrap_or_default());
        let new = EndpointSlice {
            address_type: family.to_owned(),
            endpoints: Some(group.endpoints.into_values().take(ADDRESSES_MAX).collect()),
            metadata: ObjectMeta {
                annotations: (!annotations.is_empty()).then(|| annotations.clone()),
                generate_name: first.is_none().then(prefix),
                labels: Some(labels.clone()),
                name: known.name,
                namespace: endpoints.metadata.namespace.clone(),
                owner_references: dependents::reference_to(endpoints).map(|owner| vec![owner]),
                resource_version: known.resource_version,
                uid: known.uid,
                ..ObjectMeta::default()
            },
            ports: Some(group.ports),
        };
        if first.is_some() { plan.update.push(new) } else { plan.create.push(new) }
    }
    plan.delete.extend(by_group.into_values().flatten().cloned());
    reuse(&mut plan);
    plan
}

fn collect(subset: &EndpointSubset, groups: &mut BTreeMap<(&str, String), Group>, plan: &mut Plan) {
    let to_slice = |port: &k8s_openapi::api::core::v1::EndpointPort| EndpointPort {
        app_protocol: port.app_protocol.clone(),
        name: Some(port.name.clone().unwrap_or_default()),
        port: Some(port.port),
        protocol: Some(ports::protocol(port.protocol.as_ref()).to_owned()),
    };
    let ports: Vec<EndpointPort> = subset.ports.iter().flatten().map(to_slice).collect();
    let key = key(&ports);
    for family in ["IPv4", "IPv6"] {
        let group = groups.entry((family, key.clone())).or_default();
        group.ports.clone_from(&ports);
    }
    let ready = subset.addresses.iter().flatten().map(|address| (address, true));
    let others = subset.not_ready_addresses.iter().flatten().map(|address| (address, false));
    let (mut n_added, mut n_all) = (0, 0);
    for (address, is_ready) in ready.chain(others) {
        n_all += 1;
        if n_added >= ADDRESSES_MAX {
            continue;
        }
        let Some((family, endpoint)) = endpoint(address, is_ready) else {
            plan.n_invalid += 1;
            continue;
        };
        n_added += 1;
        if let Some(group) = groups.get_mut(&(family, key.clone())) {
            // Not ready takes precedence over ready, as in a subset.
            let known = group.endpoints.entry(identity(&endpoint)).or_insert_with(|| endpoint.clone());
            if !is_ready {
                *known = endpoint;
            }
        }
    }
    plan.n_skipped += n_all - n_added;
}

fn endpoint(address: &EndpointAddress, is_ready: bool) -> Option<(&'static str, Endpoint)> {
    let ip = canonical(&address.ip)?;
    let endpoint = Endpoint {
        addresses: vec![ip.to_string()],
        conditions: Some(EndpointConditions { ready: Some(is_ready), ..EndpointConditions::default() }),
        hostname: address.hostname.clone().filter(|name| !name.is_empty()),
        node_name: address.node_name.clone(),
        target_ref: address.target_ref.clone(),
        ..Endpoint::default()
    };
    Some((if ip.is_ipv6() { "IPv6" } else { "IPv4" }, endpoint))
}

/// The key by which slices are grouped.
fn key(ports: &[EndpointPort]) -> String {
    crate::loops::network::endpoint_slices::ports_key(ports)
}

fn labels(endpoints: &Endpoints) -> BTreeMap<String, String> {
    let mut labels = endpoints.metadata.labels.clone().unwrap_or_default();
    labels.insert(LABEL_SERVICE_NAME.to_owned(), endpoints.metadata.name.clone().unwrap_or_default());
    labels.insert(LABEL_MANAGED_BY.to_owned(), MANAGED_BY.to_owned());
    labels
}

fn annotations(endpoints: &Endpoints) -> BTreeMap<String, String> {
    let mut annotations = endpoints.metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|name, _| !OWN_ANNOTATIONS.contains(&&**name));
    annotations
}

fn is_right(
    slice: &EndpointSlice,
    endpoints: &Endpoints,
    group: &Group,
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
) -> bool {
    let present = slice.endpoints.as_deref().unwrap_or_default();
    let is_wanted = |endpoint: &Endpoint| {
        group.endpoints.get(&identity(endpoint)).is_some_and(|wanted| {
            wanted.node_name == endpoint.node_name
                && wanted.target_ref == endpoint.target_ref
                && wanted.conditions.clone().unwrap_or_default() == endpoint.conditions.clone().unwrap_or_default()
        })
    };
    let is_of_another = slice.metadata.owner_references.iter().flatten().any(|owner| {
        owner.kind == "Endpoints"
            && Some(&owner.name) == endpoints.metadata.name.as_ref()
            && Some(&owner.uid) != endpoints.metadata.uid.as_ref()
    });
    present.len() == group.endpoints.len().min(ADDRESSES_MAX)
        && present.iter().all(is_wanted)
        && slice.metadata.labels.as_ref() == Some(labels)
        && slice.metadata.annotations.clone().unwrap_or_default() == *annotations
        && !is_of_another
}

/// Turns pairs of a deletion and a creation into updates.
fn reuse(plan: &mut Plan) {
    for old in std::mem::take(&mut plan.delete) {
        let at = plan.create.iter().position(|new| new.address_type == old.address_type);
        match at {
            Some(at) => {
                let mut new = plan.create.remove(at);
                new.metadata.generate_name = None;
                new.metadata.name.clone_from(&old.metadata.name);
                new.metadata.uid.clone_from(&old.metadata.uid);
                new.metadata.resource_version.clone_from(&old.metadata.resource_version);
                plan.update.push(new);
            }
            None => plan.delete.push(old),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn endpoints(subsets: Value) -> Endpoints {
        let metadata = json!({"name": "db", "namespace": "shop", "uid": "e", "labels": {"a": "b"},
            "annotations": {"note": "n", "kubectl.kubernetes.io/last-applied-configuration": "{}"}});
        serde_json::from_value(json!({"metadata": metadata, "subsets": subsets})).unwrap()
    }

    fn made(plan: Plan) -> Vec<Arc<EndpointSlice>> {
        let named = plan.create.into_iter().enumerate().map(|(n, mut slice)| {
            slice.metadata.name = Some(format!("db-{n}"));
            slice
        });
        named.chain(plan.update).map(Arc::new).collect()
    }

    #[test]
    fn each_family_and_set_of_ports_has_a_slice_that_says_the_same() {
        let both = endpoints(json!([{"addresses": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}, {"ip": "?"}],
            "notReadyAddresses": [{"ip": "10.0.0.2"}], "ports": [{"port": 80}]}]));
        let plan = plan(&both, &[]);
        assert_eq!((plan.n_invalid, plan.n_skipped), (1, 1));
        let slices = made(plan);
        let first = serde_json::to_value(&*slices[0]).unwrap();
        assert_eq!(first["addressType"], "IPv4");
        assert_eq!(
            first["endpoints"],
            json!([{"addresses": ["10.0.0.1"], "conditions": {"ready": true}}, {"addresses": ["10.0.0.2"], "conditions": {"ready": false}}])
        );
        assert_eq!(first["metadata"]["annotations"], json!({"note": "n"}));
        assert_eq!(first["metadata"]["labels"][LABEL_MANAGED_BY], MANAGED_BY);
        assert_eq!(slices.len(), 2);
        let again = super::plan(&both, &slices);
        assert_eq!((again.create.len(), again.update.len(), again.delete.len()), (0, 0, 0));
        let other = endpoints(json!([{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 81}]}]));
        let plan = super::plan(&other, &slices);
        assert_eq!((plan.create.len(), plan.update.len(), plan.delete.len()), (0, 1, 1), "the slice is used again");
    }

    #[test]
    fn a_subset_gives_a_thousand_addresses() {
        let address = |n: usize| json!({"ip": format!("10.0.{}.{}", n / 250, n % 250)});
        let addresses: Vec<Value> = (0..1200).map(address).collect();
        let plan = plan(&endpoints(json!([{"addresses": addresses, "ports": [{"port": 80}]}])), &[]);
        assert_eq!((plan.n_skipped, plan.create[0].endpoints.as_ref().unwrap().len()), (200, 1000));
    }
}
