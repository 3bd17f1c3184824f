//! Resource metrics: the usage of nodes and containers, served as `metrics.k8s.io` where the embedder provides a
//! source.
//!
//! In other clusters metrics-server serves this group, behind an APIService. Here the server itself does so, with the
//! values that it reads from [`ResourceMetrics`] at each request (`endpoint::resource_metrics`); without a source the
//! group does not exist. While the APIService `v1beta1.metrics.k8s.io` names a Service, another server is responsible
//! for the group, and this one does not serve it (`upkeep::api_services`).

use jiff::Timestamp;
use std::fmt;
use std::sync::Arc;
use steersman_kinds::builtin;
use steersman_kinds::catalog::{Catalog, Resource};
use steersman_kinds::runtime_config::RuntimeConfig;

pub use steersman_machinery::usage::{NodeUsage, PodUsage, Usage};

/// The usage of nodes and of the containers of Pods. Read at each request: answers are not cached.
pub trait ResourceMetrics: fmt::Debug + Send + Sync {
    /// The usage of a whole node at a time; `None` if it is unknown.
    fn of_node(&self, name: &str, now: Timestamp) -> Option<NodeUsage>;

    /// The usage of the running containers of a Pod at a time; `None` if it is unknown, or if none runs.
    fn of_pod(&self, namespace: &str, name: &str, now: Timestamp) -> Option<PodUsage>;
}

/// The source of a server, with the resources of the group.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) source: Arc<dyn ResourceMetrics>,
    /// The resources that are served, unless another server serves the group.
    resources: Vec<Arc<Resource>>,
}

impl Offer {
    /// The resources of the group that the configuration enables.
    pub(crate) fn new(source: Arc<dyn ResourceMetrics>, config: &RuntimeConfig) -> Offer {
        let mut resources = builtin::resource_metrics(config);
        resources.retain(|resource| resource.versions.iter().any(|version| version.served));
        Offer { source, resources }
    }

    /// The catalog without the group, because another server serves it; `None` if this server does not serve it.
    pub(crate) fn removed_from(&self, catalog: &Catalog) -> Option<Catalog> {
        let is_served = |resource: &Arc<Resource>| {
            catalog.resource(&resource.group_resource()).is_some_and(|one| Arc::ptr_eq(one, resource))
        };
        self.resources.iter().any(is_served).then(|| catalog.without(&self.resources))
    }

    /// The catalog with the group; `None` if it is there.
    pub(crate) fn added_to(&self, catalog: &Catalog) -> Option<Catalog> {
        let is_missing = |resource: &Arc<Resource>| catalog.resource(&resource.group_resource()).is_none();
        self.resources.iter().any(is_missing).then(|| catalog.with(&self.resources))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steersman_kinds::builtin::cluster::resource_metrics::{GROUP, VERSION};
    use steersman_machinery::GroupResource;

    #[derive(Debug)]
    struct Nobody;

    impl ResourceMetrics for Nobody {
        fn of_node(&self, _: &str, _: Timestamp) -> Option<NodeUsage> {
            None
        }
        fn of_pod(&self, _: &str, _: &str, _: Timestamp) -> Option<PodUsage> {
            None
        }
    }

    fn built_in() -> Catalog {
        Catalog::new(builtin::resources(&RuntimeConfig::default()))
    }

    fn offer(config: &[&str]) -> Offer {
        Offer::new(Arc::new(Nobody), &builtin::runtime_config(config.iter().copied()).unwrap())
    }

    #[test]
    fn the_group_comes_goes_and_stays_as_the_api_service_says() {
        let (offer, before) = (offer(&[]), built_in());
        assert!(before.group(GROUP).is_none());
        assert!(offer.removed_from(&before).is_none());
        let with = offer.added_to(&before).unwrap();
        let plurals = || with.resources(GROUP, VERSION).iter().map(|served| &*served.resource.plural);
        assert_eq!(plurals().collect::<Vec<_>>(), ["nodes", "pods"]);
        assert!(offer.added_to(&with).is_none());
        let without = offer.removed_from(&with).unwrap();
        assert!(without.group(GROUP).is_none() && without.resource(&GroupResource::new("", "pods")).is_some());
    }

    #[test]
    fn it_can_be_switched_off() {
        let offer = offer(&["metrics.k8s.io/v1beta1=false"]);
        assert!(offer.added_to(&built_in()).is_none());
    }
}
