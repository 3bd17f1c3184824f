//! The Pods behind a Service, for the loops that write Endpoints and EndpointSlices.
//!
//! Finds the Pods of a Service and the Services that a change of a Pod affects, decides whether a Pod is an endpoint
//! and at which addresses and ports, computes trigger times, and limits the rate of writes. Follows upstream's
//! `k8s.io/endpointslice/util` and `FindPort`.

pub(crate) mod pace;
pub(crate) mod ports;
pub(crate) mod triggers;

use crate::shared::pods;
use crate::shared::pods::by_label::{self, ByLabel, Labels};
use k8s_openapi::api::core::v1::{Pod, Service};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use steersman::cache::{Change, Index, Informer};
use steersman::{LookupError, ObjectKey};

/// An index of Services with a selector and of Pods, each found by the other.
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

    /// The Services whose endpoints may be affected by a change of a Pod. Empty while the cache of Services is not
    /// filled: each of them is reconciled then anyway.
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
            // Services that had the unchanged Pod before and after are not affected.
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

/// Whether a change of a Pod affects its endpoint.
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

/// The selector of a Service whose endpoints are Pods: `None` for a Service without a selector, and for an
/// ExternalName.
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

/// Whether a Pod is an endpoint.
pub(crate) fn is_endpoint(pod: &Pod, terminating: Terminating) -> bool {
    let may_be = terminating == Terminating::Included || !pods::is_terminating(pod);
    may_be && !pods::is_terminal(pod) && has_ip(pod)
}

fn has_ip(pod: &Pod) -> bool {
    let has_one = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()).is_some_and(|ip| !ip.is_empty());
    has_one || ips(pod).next().is_some()
}

/// The addresses of a Pod, from its status.
pub(crate) fn ips(pod: &Pod) -> impl Iterator<Item = &str> {
    pod.status.iter().flat_map(|status| &status.pod_ips).flatten().map(|ip| &*ip.ip)
}

/// An address in its canonical form. Leading zeros in parts of an IPv4 address are accepted, as by old versions of Go.
pub(crate) fn canonical(text: &str) -> Option<IpAddr> {
    text.parse().ok().or_else(|| {
        let parts: Option<Vec<u8>> = text.split('.').map(|part| part.parse().ok()).collect();
        let parts: [u8; 4] = parts?.try_into().ok()?;
        Some(IpAddr::from(parts))
    })
}

/// The hostname of a Pod within the subdomain of a Service, if the Pod's spec names both.
pub(crate) fn hostname<'a>(pod: &'a Pod, service: &Service) -> Option<&'a str> {
    let spec = pod.spec.as_ref()?;
    let hostname = spec.hostname.as_deref().filter(|name| !name.is_empty())?;
    let is_within = spec.subdomain == service.metadata.name && pod.metadata.namespace == service.metadata.namespace;
    is_within.then_some(hostname)
}

/// Whether a Service has a cluster IP.
pub(crate) fn has_cluster_ip(service: &Service) -> bool {
    let ip = service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()).unwrap_or_default();
    !ip.is_empty() && ip != "None"
}

/// Whether a Service is headless.
pub(crate) fn is_headless(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()) == Some("None")
}

pub(crate) fn publishes_not_ready(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.publish_not_ready_addresses).unwrap_or_default()
}
