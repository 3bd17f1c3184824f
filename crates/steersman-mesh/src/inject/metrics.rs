//! The injector's metrics, besides those of every controller and webhook.

use std::time::Duration;

use steersman::metrics::Metrics;
use steersman::metrics::prometheus_client::metrics::counter::Counter;
use steersman::metrics::prometheus_client::metrics::family::Family;
use steersman::metrics::prometheus_client::metrics::gauge::Gauge;
use steersman::metrics::prometheus_client::metrics::histogram::Histogram;

use crate::inject::decision::Skip;
use crate::inject::way::Way;

type Labels = Vec<(&'static str, String)>;

/// The bounds of the time that a decision takes, in seconds.
const BUCKETS: [f64; 8] = [0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.005, 0.05, 1.0];

/// Counters and gauges; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    injected: Family<Labels, Counter>,
    skipped: Family<Labels, Counter>,
    refused: Family<Labels, Counter>,
    seconds: Family<Labels, Histogram, fn() -> Histogram>,
    fragment: Family<Labels, Gauge>,
    fragments: Counter,
    is_fragment_bad: Gauge,
    missing_requirements: Gauge,
}

impl Default for Counts {
    fn default() -> Counts {
        Counts {
            injected: Family::default(),
            skipped: Family::default(),
            refused: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            fragment: Family::default(),
            fragments: Counter::default(),
            is_fragment_bad: Gauge::default(),
            missing_requirements: Gauge::default(),
        }
    }
}

impl Counts {
    /// Registers them with the metrics of a manager.
    pub(crate) fn register(&self, metrics: &Metrics) {
        metrics.register(|registry| {
            let registry = registry.sub_registry_with_prefix("mesh_injector");
            registry.register("pods_injected", "Pods that got the sidecar, by way", self.injected.clone());
            let help = "Pods that were left as they are, by way and reason";
            registry.register("pods_skipped", help, self.skipped.clone());
            registry.register("pods_refused", "Pods that were refused, by way and reason", self.refused.clone());
            let help = "Time that it took to decide on a Pod and to make the one with the sidecar";
            registry.register("decision_seconds", help, self.seconds.clone());
            registry.register("fragment_info", "1 for the hash of the fragment in force", self.fragment.clone());
            let help = "The fragments that were in force since the start: the generation of the present one";
            registry.register("fragments", help, self.fragments.clone());
            let help = "1 while the ConfigMap cannot be used, or does not exist";
            registry.register("fragment_invalid", help, self.is_fragment_bad.clone());
            let help = "What the injector lacks: rules of its ServiceAccount, or initializers; the log names it";
            registry.register("missing_requirements", help, self.missing_requirements.clone());
        });
    }

    pub(crate) fn injected(&self, way: Way) {
        self.injected.get_or_create(&vec![way_of(way)]).inc();
    }

    pub(crate) fn skipped(&self, way: Way, skip: &Skip) {
        self.skipped.get_or_create(&vec![way_of(way), ("reason", skip.reason().to_owned())]).inc();
    }

    pub(crate) fn refused(&self, way: Way, reason: &str) {
        self.refused.get_or_create(&vec![way_of(way), ("reason", reason.to_owned())]).inc();
    }

    pub(crate) fn decided(&self, way: Way, took: Duration) {
        self.seconds.get_or_create(&vec![way_of(way)]).observe(took.as_secs_f64());
    }

    pub(crate) fn fragment_in_force(&self, hash: &str) {
        self.fragment.clear();
        self.fragment.get_or_create(&vec![("hash", hash.to_owned())]).set(1);
        self.fragments.inc();
    }

    pub(crate) fn fragment_is_good(&self) {
        self.is_fragment_bad.set(0);
    }

    pub(crate) fn fragment_is_bad(&self) {
        self.is_fragment_bad.set(1);
    }

    pub(crate) fn lacks(&self, n_requirements: usize) {
        self.missing_requirements.set(i64::try_from(n_requirements).unwrap_or(i64::MAX));
    }
}

fn way_of(way: Way) -> (&'static str, String) {
    ("way", way.as_str().to_owned())
}
