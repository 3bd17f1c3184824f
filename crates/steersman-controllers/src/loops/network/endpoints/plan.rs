//! Plans the Endpoints of a Service.

use crate::loops::network::endpoints::NAME;
use crate::loops::network::endpoints::subsets::{self, ADDRESSES_MAX, Address};
use crate::loops::network::service_pods::ports::{self, Port};
use crate::loops::network::service_pods::{self, Terminating, canonical, triggers};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{EndpointAddress, EndpointSubset, Endpoints, ObjectReference, Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;
use std::sync::Arc;

const LABEL_MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const LABEL_HEADLESS: &str = "service.kubernetes.io/headless";
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";

/// The write that is due.
#[derive(Debug)]
pub(crate) enum Change {
    Create(Box<Endpoints>),
    Nothing,
    Update(Box<Endpoints>),
}

/// Plans the Endpoints of a Service that has a selector.
pub(crate) fn plan(
    service: &Service,
    pods: &[Arc<Pod>],
    present: Option<&Endpoints>,
    time: Option<Timestamp>,
) -> Change {
    let mut subsets = subsets(service, pods);
    let labels = labels(service);
    if let Some(present) = present
        && is_right(present, &subsets, &labels)
    {
        return Change::Nothing;
    }
    let mut endpoints = present.cloned().unwrap_or_else(|| Endpoints {
        metadata: ObjectMeta {
            name: service.metadata.name.clone(),
            namespace: service.metadata.namespace.clone(),
            ..ObjectMeta::default()
        },
        subsets: None,
    });
    let annotations = endpoints.metadata.annotations.get_or_insert_default();
    match time {
        Some(time) => drop(annotations.insert(triggers::ANNOTATION.to_owned(), time.to_string())),
        None => drop(annotations.remove(triggers::ANNOTATION)),
    }
    if subsets::truncate(&mut subsets) {
        annotations.insert(OVER_CAPACITY.to_owned(), "truncated".to_owned());
    } else {
        annotations.remove(OVER_CAPACITY);
    }
    endpoints.metadata.labels = Some(labels);
    endpoints.subsets = Some(subsets);
    if present.is_some() { Change::Update(Box::new(endpoints)) } else { Change::Create(Box::new(endpoints)) }
}

fn subsets(service: &Service, pods: &[Arc<Pod>]) -> Vec<EndpointSubset> {
    let with_unready = service_pods::publishes_not_ready(service);
    let terminating = if with_unready { Terminating::Included } else { Terminating::Excluded };
    let is_portless = ports::is_portless(service);
    let mut offers: Vec<(Option<Port>, Address)> = Vec::new();
    for pod in pods.iter().filter(|pod| service_pods::is_endpoint(pod, terminating)) {
        let Some(address) = address(service, pod) else { continue };
        let is_ready = with_unready || crate::shared::pods::is_ready(pod);
        let mut offer = |port| offers.push((port, Address { address: address.clone(), is_ready }));
        if is_portless {
            offer(None);
        } else {
            ports::of(service, pod).into_iter().map(Some).for_each(offer);
        }
    }
    subsets::pack(offers)
}

fn address(service: &Service, pod: &Pod) -> Option<EndpointAddress> {
    let spec = service.spec.as_ref();
    let family = spec.and_then(|spec| spec.ip_families.as_ref()).and_then(|families| families.first());
    let is_ipv6 = match family {
        Some(family) => family == "IPv6",
        None => {
            let cluster_ip = spec.and_then(|spec| spec.cluster_ip.as_deref());
            let of_pod = || pod.status.as_ref().and_then(|status| status.pod_ip.as_deref());
            let sample = if service_pods::has_cluster_ip(service) { cluster_ip } else { of_pod() };
            sample.and_then(canonical).is_some_and(|ip| ip.is_ipv6())
        }
    };
    let ip = service_pods::ips(pod).filter_map(canonical).find(|ip| ip.is_ipv6() == is_ipv6)?;
    Some(EndpointAddress {
        hostname: service_pods::hostname(pod, service).map(str::to_owned),
        ip: ip.to_string(),
        node_name: Some(pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default()),
        target_ref: Some(ObjectReference {
            kind: Some("Pod".to_owned()),
            name: pod.metadata.name.clone(),
            namespace: pod.metadata.namespace.clone(),
            uid: pod.metadata.uid.clone(),
            ..ObjectReference::default()
        }),
    })
}

fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    if service_pods::has_cluster_ip(service) {
        labels.remove(LABEL_HEADLESS);
    } else {
        labels.insert(LABEL_HEADLESS.to_owned(), String::new());
    }
    labels.insert(LABEL_MANAGED_BY.to_owned(), NAME.to_owned());
    labels
}

/// Whether the present Endpoints need no write.
fn is_right(present: &Endpoints, wanted: &[EndpointSubset], labels: &BTreeMap<String, String>) -> bool {
    let is_marked =
        present.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(OVER_CAPACITY));
    let subsets = present.subsets.as_deref().unwrap_or_default();
    let n_present: usize = subsets.iter().map(subsets::len).sum();
    present.metadata.labels.as_ref() == Some(labels)
        && !is_marked
        && n_present <= ADDRESSES_MAX
        && subsets::normal(subsets) == subsets::normal(wanted)
}

#[cfg(test)]
mod tests;
