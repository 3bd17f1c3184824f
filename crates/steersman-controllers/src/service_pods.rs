//! The Pods behind a Service, for the loops that write them down as Endpoints and EndpointSlices.
//!
//! Which Pods a Service has and which Services a change of a Pod concerns, whether a Pod is an endpoint and at which addresses and
//! ports, since when that is so, and how often a Service is written. Follows upstream's `k8s.io/endpointslice/util` and `FindPort`.

pub(crate) mod pace;
pub(crate) mod ports;
pub(crate) mod triggers;

use crate::pods;
use crate::pods::by_label::{self, ByLabel, Labels};
use k8s_openapi::api::core::v1::{Pod, Service};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use steersman::cache::{Change, Index, Informer};
use steersman::{LookupError, ObjectKey};

/// Services with a selector and Pods, each found by the other.
pub(crate) struct ServicePods {
    pods: ByLabel<Pod>,
    by_selector: Index<Service, u64>,
}

// === impl ServicePods ===

impl ServicePods {
    /// Adds the indexes to the informers.
    pub(crate) fn of(services: &Informer<Service>, pods: &Informer<Pod>) -> ServicePods {
        let by_selector = services.add_index(|service| {
            let namespace = service.metadata.namespace.as_deref().unwrap_or_default();
            let first = selector(service).and_then(Labels::first_key_value);
            first.map(|(name, value)| by_label::hash(namespace, name, value))
        });
        ServicePods { pods: ByLabel::of(pods), by_selector }
    }

    /// The Pods that the selector of a Service matches, by name.
    pub(crate) fn of_service(&self, service: &Service) -> Result<Vec<Arc<Pod>>, LookupError> {
        let Some(selector) = selector(service) else { return Ok(Vec::new()) };
        let namespace = service.metadata.namespace.as_deref().unwrap_or_default();
        let mut pods = self.pods.with_all(namespace, selector)?;
        pods.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        Ok(pods)
    }

    /// The Services whose endpoints a change of a Pod may change. None while the cache of Services is not filled: each of them is
    /// looked at then anyway.
    pub(crate) fn concerned(&self, change: &Change<'_, Pod>) -> Vec<ObjectKey> {
        let (old, new) = match change {
            Change::Undecodable(_) => return Vec::new(),
            Change::Updated { old, new } => (old.object().map(|old| &**old), &***new),
            Change::Added(pod, _) => (None, &***pod),
            Change::Deleted(deleted) => match deleted.object() {
                Some(pod) => (None, &**pod),
                None => return Vec::new(),
            },
        };
        let Some(old) = old else { return self.with_pod(new).into_iter().collect() };
        let is_moved = old.metadata.labels != new.metadata.labels
            || of_spec(old, |spec| (&spec.hostname, &spec.subdomain))
                != of_spec(new, |spec| (&spec.hostname, &spec.subdomain));
        match (is_changed(old, new), is_moved) {
            (false, false) => Vec::new(),
            (true, false) => self.with_pod(new).into_iter().collect(),
            (true, true) => self.with_pod(new).union(&self.with_pod(old)).cloned().collect(),
            // Those that had the Pod and have it as it was are as they were.
            (false, true) if old.metadata.labels != new.metadata.labels => {
                self.with_pod(new).symmetric_difference(&self.with_pod(old)).cloned().collect()
            }
            (false, true) => self.with_pod(new).into_iter().collect(),
        }
    }

    /// The Services whose selector matches a Pod.
    fn with_pod(&self, pod: &Pod) -> BTreeSet<ObjectKey> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let mut found = BTreeSet::new();
        for (name, value) in pod.metadata.labels.iter().flatten() {
            let services = self.by_selector.get(&by_label::hash(namespace, name, value)).unwrap_or_default();
            for service in services {
                let is_its = service.metadata.namespace.as_deref() == Some(namespace)
                    && selector(&service)
                        .is_some_and(|selector| by_label::has_all(pod.metadata.labels.as_ref(), selector));
                if is_its {
                    found.insert(ObjectKey::of(&*service));
                }
            }
        }
        found
    }
}

/// Whether a change of a Pod changes an endpoint.
fn is_changed(old: &Pod, new: &Pod) -> bool {
    let facts = |pod: &Pod| {
        (
            pod.metadata.deletion_timestamp.clone(),
            pods::is_ready(pod),
            pods::is_terminal(pod),
            pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
        )
    };
    let ips = |pod: &Pod| -> Vec<String> { ips(pod).map(str::to_owned).collect() };
    facts(old) != facts(new) || ips(old) != ips(new)
}

fn of_spec<'a, T>(pod: &'a Pod, of: impl Fn(&'a k8s_openapi::api::core::v1::PodSpec) -> T) -> Option<T> {
    pod.spec.as_ref().map(of)
}

/// The selector of a Service that has Pods for endpoints: not one without a selector, nor one that is another name for a host.
pub(crate) fn selector(service: &Service) -> Option<&Labels> {
    let spec = service.spec.as_ref()?;
    spec.selector.as_ref().filter(|selector| !selector.is_empty() && spec.type_.as_deref() != Some("ExternalName"))
}

/// Whether Pods that are being deleted are endpoints.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Terminating {
    Excluded,
    Included,
}

/// Whether a Pod belongs among endpoints.
pub(crate) fn is_endpoint(pod: &Pod, terminating: Terminating) -> bool {
    let may_be = terminating == Terminating::Included || !pods::is_terminating(pod);
    may_be && !pods::is_terminal(pod) && has_ip(pod)
}

fn has_ip(pod: &Pod) -> bool {
    let has_one = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()).is_some_and(|ip| !ip.is_empty());
    has_one || ips(pod).next().is_some()
}

/// The addresses of a Pod, as its status has them.
pub(crate) fn ips(pod: &Pod) -> impl Iterator<Item = &str> {
    pod.status.iter().flat_map(|status| &status.pod_ips).flatten().map(|ip| &*ip.ip)
}

/// An address in its canonical form. Leading zeros in parts of an IPv4 address are let pass, as Go once did.
pub(crate) fn canonical(text: &str) -> Option<IpAddr> {
    text.parse().ok().or_else(|| {
        let parts: Option<Vec<u8>> = text.split('.').map(|part| part.parse().ok()).collect();
        let parts: [u8; 4] = parts?.try_into().ok()?;
        Some(IpAddr::from(parts))
    })
}

/// The name of a Pod within the domain of a Service, where both say so.
pub(crate) fn hostname<'a>(pod: &'a Pod, service: &Service) -> Option<&'a str> {
    let spec = pod.spec.as_ref()?;
    let hostname = spec.hostname.as_deref().filter(|name| !name.is_empty())?;
    let is_within = spec.subdomain == service.metadata.name && pod.metadata.namespace == service.metadata.namespace;
    is_within.then_some(hostname)
}

/// Whether a Service has an address of its own.
pub(crate) fn has_cluster_ip(service: &Service) -> bool {
    let ip = service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()).unwrap_or_default();
    !ip.is_empty() && ip != "None"
}

/// Whether a Service has said that it has no address.
pub(crate) fn is_headless(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()) == Some("None")
}

pub(crate) fn publishes_not_ready(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.publish_not_ready_addresses).unwrap_or_default()
}
