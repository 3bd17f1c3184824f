//! Resource metrics: what nodes and containers use, as `metrics.k8s.io` says it, where whoever embeds the server knows it.
//!
//! In other clusters metrics-server answers for this group, behind an APIService. Here the server does so itself, of what it asks
//! [`ResourceMetrics`] at each request (`endpoint::resource_metrics`); without one the group is not there. While the APIService
//! `v1beta1.metrics.k8s.io` names a Service, another server is said to answer, and the group is not served (`upkeep::api_services`).

use steersman_kinds::builtin;
use steersman_kinds::catalog::{Catalog, Resource};
use steersman_kinds::runtime_config::RuntimeConfig;
use jiff::Timestamp;
use std::fmt;
use std::sync::Arc;

pub use steersman_machinery::usage::{NodeUsage, PodUsage, Usage};

/// Knows what nodes and the containers of Pods use. Asked at each request: nothing is kept of the answers.
pub trait ResourceMetrics: fmt::Debug + Send + Sync {
    /// What a node uses as a whole, as of a time; `None` if that is not known.
    fn of_node(&self, name: &str, now: Timestamp) -> Option<NodeUsage>;

    /// What the containers of a Pod use that run, as of a time; `None` if that is not known, or none runs.
    fn of_pod(&self, namespace: &str, name: &str, now: Timestamp) -> Option<PodUsage>;
}

/// The group, as a server has it.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) source: Arc<dyn ResourceMetrics>,
    /// What is served, unless another server answers.
    resources: Vec<Arc<Resource>>,
}

impl Offer {
    /// What of the group the configuration wants.
    pub(crate) fn new(source: Arc<dyn ResourceMetrics>, config: &RuntimeConfig) -> Offer {
        let mut resources = builtin::resource_metrics(config);
        resources.retain(|resource| resource.versions.iter().any(|version| version.served));
        Offer { source, resources }
    }

    /// The catalog that should follow one, given whether another server answers; `None` if that is as it should be.
    pub(crate) fn next(&self, catalog: &Catalog, is_elsewhere: bool) -> Option<Catalog> {
        if is_elsewhere {
            let is_served = |resource: &Arc<Resource>| {
                catalog.resource(&resource.group_resource()).is_some_and(|one| Arc::ptr_eq(one, resource))
            };
            return self.resources.iter().any(is_served).then(|| catalog.without(&self.resources));
        }
        let is_missing = |resource: &Arc<Resource>| catalog.resource(&resource.group_resource()).is_none();
        self.resources.iter().any(is_missing).then(|| catalog.with(&self.resources))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steersman_kinds::builtin::resource_metrics::{GROUP, VERSION};
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
        assert!(offer.next(&before, true).is_none());
        let with = offer.next(&before, false).unwrap();
        let plurals = || with.resources(GROUP, VERSION).iter().map(|served| &*served.resource.plural);
        assert_eq!(plurals().collect::<Vec<_>>(), ["nodes", "pods"]);
        assert!(offer.next(&with, false).is_none());
        let without = offer.next(&with, true).unwrap();
        assert!(without.group(GROUP).is_none() && without.resource(&GroupResource::new("", "pods")).is_some());
    }

    #[test]
    fn it_can_be_switched_off() {
        let offer = offer(&["metrics.k8s.io/v1beta1=false"]);
        assert!(offer.next(&built_in(), false).is_none());
    }
}
