//! The objects that the pilot follows, and which of their changes matter.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Pod, PodSpec, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::core::PartialObjectMeta;
use parking_lot::Mutex;
use steersman::cache::{CachedResource, Change, Index, Informer, LookupError, handler_fn};
use steersman::{InformerFactory, Lister, ObjectKey, Scope as Watched};

use crate::pilot::debounce::{Changes, Urgency};
use crate::pilot::gateway_api::gateway_networking_k8s_io::v1::{GRPCRoute, HTTPRoute, ReferenceGrant};
use crate::pilot::scope::{CALLS, Calls, Scope};
use crate::pilot::world::Objects;

/// The objects that the pilot follows.
#[derive(Clone)]
pub(crate) struct Caches {
    services: Lister<Service>,
    slices: Lister<EndpointSlice>,
    pub(crate) http_routes: Lister<HTTPRoute>,
    pub(crate) grpc_routes: Lister<GRPCRoute>,
    grants: Lister<ReferenceGrant>,
    pods: Lister<Pod>,
    pods_by_address: Index<Pod, IpAddr>,
    namespaces: Lister<PartialObjectMeta<Namespace>>,
    rescoped: Arc<Mutex<Rescoped>>,
}

/// The Pods and namespaces that have changed so that proxies may have another scope, since somebody last looked.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Rescoped {
    pub(crate) pods: HashSet<ObjectKey>,
    pub(crate) namespaces: HashSet<String>,
}

impl Caches {
    /// Caches whose changes are noted in `changes`.
    pub(crate) fn new(factory: &InformerFactory, changes: &Arc<Changes>) -> Caches {
        // All of the world's objects are read at each change; of a Pod little is needed.
        let typed = factory.clone().typed();
        let pods = factory.clone().transform(shorten).informer::<Pod>(Watched::All);
        let slices = typed.informer::<EndpointSlice>(Watched::All);
        let namespaces = factory.informer::<PartialObjectMeta<Namespace>>(Watched::All);
        let noted = Arc::clone(changes);
        let _ = slices.add_handler(handler_fn(move |change: Change<'_, EndpointSlice>| noted.note(urgency(&change))));
        let rescoped = Arc::<Mutex<Rescoped>>::default();
        let (noted, flag) = (Arc::clone(changes), Arc::clone(&rescoped));
        let _ = pods.add_handler(handler_fn(move |change: Change<'_, Pod>| {
            if changes_scope(&change) {
                flag.lock().pods.extend(change.key());
                noted.note(Urgency::Gathered);
            }
        }));
        let (noted, flag) = (Arc::clone(changes), Arc::clone(&rescoped));
        let _ = namespaces.add_handler(handler_fn(move |change: Change<'_, PartialObjectMeta<Namespace>>| {
            if changes_scope(&change) {
                flag.lock().namespaces.extend(change.key().map(|key| key.name().to_owned()));
                noted.note(Urgency::Gathered);
            }
        }));
        Caches {
            services: followed(&typed, changes).lister(),
            slices: slices.lister(),
            http_routes: followed(&typed, changes).lister(),
            grpc_routes: followed(&typed, changes).lister(),
            grants: followed(&typed, changes).lister(),
            pods_by_address: pods.add_index(addresses),
            pods: pods.lister(),
            namespaces: namespaces.lister(),
            rescoped,
        }
    }

    /// Whose scopes have to be looked up again since the last call.
    pub(crate) fn take_rescoped(&self) -> Rescoped {
        std::mem::take(&mut *self.rescoped.lock())
    }

    /// The objects that the world is made of.
    ///
    /// # Errors
    /// A cache is not filled yet.
    pub(crate) fn objects(&self) -> Result<Objects, LookupError> {
        Ok(Objects {
            services: self.services.list()?,
            slices: self.slices.list()?,
            http_routes: self.http_routes.list()?,
            grpc_routes: self.grpc_routes.list()?,
            grants: self.grants.list()?,
        })
    }

    /// The Pod of this name.
    ///
    /// # Errors
    /// It does not exist, or is not known yet.
    pub(crate) fn pod(&self, key: &ObjectKey) -> Result<Arc<Pod>, LookupError> {
        self.pods.get(key)
    }

    /// The Pods with this address; more than one only for a moment.
    ///
    /// # Errors
    /// The cache is not filled yet.
    pub(crate) fn pods_at(&self, address: IpAddr) -> Result<Vec<Arc<Pod>>, LookupError> {
        self.pods_by_address.get(&address)
    }

    /// The scope of a Pod's proxy. An annotation that cannot be read counts as none, and is logged.
    pub(crate) fn scope(&self, pod: &Pod) -> Scope {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let of_pod = pod.metadata.annotations.as_ref().and_then(|annotations| annotations.get(CALLS)).cloned();
        let text = of_pod.or_else(|| {
            let namespace = self.namespaces.get(&ObjectKey::cluster(&namespace)).ok()?;
            namespace.metadata.annotations.as_ref()?.get(CALLS).cloned()
        });
        let calls = text.map_or(Ok(Calls::All), |text| Calls::parse(&text, &namespace));
        let calls = calls.unwrap_or_else(|error| {
            let pod = pod.metadata.name.as_deref().unwrap_or_default();
            tracing::warn!(namespace, pod, %error, "the proxy gets all Services");
            Calls::All
        });
        Scope { namespace, calls }
    }
}

/// An informer of a type of which every change matters.
fn followed<K>(factory: &InformerFactory, changes: &Arc<Changes>) -> Informer<K>
where
    K: CachedResource,
    K::DynamicType: Default,
{
    let informer = factory.informer::<K>(Watched::All);
    let noted = Arc::clone(changes);
    let _ = informer.add_handler(handler_fn(move |change: Change<'_, K>| {
        // A change of a status alone is the pilot's own doing.
        if change.is_generation_change() {
            noted.note(Urgency::Gathered);
        }
    }));
    informer
}

fn shorten(pod: &mut Pod) {
    let spec = pod.spec.take().unwrap_or_default();
    pod.spec =
        Some(PodSpec { host_network: spec.host_network, readiness_gates: spec.readiness_gates, ..PodSpec::default() });
    if let Some(status) = &mut pod.status {
        status.container_statuses = None;
        status.init_container_statuses = None;
        status.ephemeral_container_statuses = None;
    }
    if let Some(annotations) = &mut pod.metadata.annotations {
        annotations.retain(|name, _| name == CALLS);
    }
    pod.metadata.labels = None;
    pod.metadata.owner_references = None;
}

/// The addresses that are the Pod's alone: one on its node's network shares it with others.
fn addresses(pod: &Pod) -> Vec<IpAddr> {
    let is_host = pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true));
    let Some(status) = pod.status.as_ref().filter(|_| !is_host) else { return Vec::new() };
    // The address of a Pod that has ended may be another's by now.
    if matches!(status.phase.as_deref(), Some("Failed" | "Succeeded")) {
        return Vec::new();
    }
    let listed = status.pod_ips.iter().flatten().map(|address| address.ip.as_str());
    let found: BTreeSet<IpAddr> =
        listed.chain(status.pod_ip.as_deref()).filter_map(|address| address.parse().ok()).collect();
    found.into_iter().collect()
}

/// Whether a change of endpoints takes one away that gets requests.
fn urgency(change: &Change<'_, EndpointSlice>) -> Urgency {
    let is_removal = match change {
        Change::Added(..) | Change::Undecodable(_) => false,
        Change::Deleted(_) => true,
        Change::Updated { old, new } => {
            let left = ready(new);
            old.object().is_some_and(|old| !ready(old).is_subset(&left))
        }
    };
    if is_removal { Urgency::Immediate } else { Urgency::Gathered }
}

fn ready(slice: &EndpointSlice) -> BTreeSet<&str> {
    let endpoints = slice.endpoints.iter().flatten();
    let is_ready = |conditions: Option<bool>| conditions.unwrap_or(true);
    let ready = endpoints.filter(|one| is_ready(one.conditions.as_ref().and_then(|conditions| conditions.ready)));
    ready.flat_map(|one| one.addresses.iter().map(String::as_str)).collect()
}

/// Whether a change of a Pod or namespace can change what a proxy should have. A new Pod has no proxy yet.
fn changes_scope<K: kube::Resource>(change: &Change<'_, K>) -> bool {
    match change {
        Change::Added(..) | Change::Undecodable(_) => false,
        Change::Deleted(_) => true,
        Change::Updated { old, new } => {
            let calls = |metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| {
                metadata.annotations.as_ref().and_then(|annotations| annotations.get(CALLS)).cloned()
            };
            // A deletion and a creation within one list come as one change.
            old.metadata().is_none_or(|old| old.uid != new.meta().uid || calls(old) != calls(new.meta()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use steersman::cache::Previous;

    #[test]
    fn another_pod_of_the_same_name_and_other_calls_change_a_scope() {
        let pod = |metadata: Value| Arc::new(serde_json::from_value::<Pod>(json!({"metadata": metadata})).unwrap());
        let old = pod(json!({"name": "a", "uid": "1"}));
        let changes = |new| changes_scope(&Change::Updated { old: &Previous::from(&old), new: &new });
        assert!(!changes(pod(json!({"name": "a", "uid": "1", "labels": {"a": "b"}}))));
        assert!(changes(pod(json!({"name": "a", "uid": "2"}))));
        assert!(changes(pod(json!({"name": "a", "uid": "1", "annotations": {CALLS: "web"}}))));
    }
}
