//! The operator's metrics, besides those of every controller.

use crate::api::Network;
use crate::status::ready;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use steersman::metrics::Metrics;
use steersman::metrics::prometheus_client::metrics::counter::Counter;
use steersman::metrics::prometheus_client::metrics::family::Family;
use steersman::metrics::prometheus_client::metrics::gauge::Gauge;
use steersman_neutron::{Cloud, Error, Measured, Operation};

type Labels = Vec<(&'static str, String)>;

/// Counters and gauges; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    requests: Family<Labels, Counter>,
    request_seconds: Family<Labels, Counter<f64, std::sync::atomic::AtomicU64>>,
    objects: Family<Labels, Gauge>,
    drifted: Counter,
    orphans: Gauge,
    orphans_removed: Counter,
    surveyed_at: Gauge,
    missing_permissions: Gauge,
}

impl Counts {
    /// Registers them with the metrics of a manager.
    pub(crate) fn register(&self, metrics: &Metrics) {
        metrics.register(|registry| {
            let registry = registry.sub_registry_with_prefix("network_operator");
            let help = "Calls to Neutron, by operation and result; a listing of several pages is one";
            registry.register("neutron_calls", help, self.requests.clone());
            let help = "Time that calls to Neutron took, in sum";
            registry.register("neutron_call_seconds", help, self.request_seconds.clone());
            registry.register("objects", "Networks by the reason of their condition Ready", self.objects.clone());
            let help = "Networks found changed in Neutron, or made twice";
            registry.register("drifted_networks", help, self.drifted.clone());
            let help = "Networks in Neutron with this cluster's marker whose objects are gone";
            registry.register("orphaned_networks", help, self.orphans.clone());
            registry.register("orphaned_networks_removed", "Of these, networks removed", self.orphans_removed.clone());
            let help = "When everything in Neutron was last listed, in seconds since 1970";
            registry.register("survey_timestamp_seconds", help, self.surveyed_at.clone());
            let help = "Rules that the operator's ServiceAccount lacks; the log names them";
            registry.register("missing_permissions", help, self.missing_permissions.clone());
        });
    }

    /// The cloud, with its calls counted.
    pub(crate) fn measure(&self, cloud: Arc<dyn Cloud>) -> Arc<dyn Cloud> {
        let counts = self.clone();
        let observer = move |operation: Operation, outcome: Result<(), &Error>, took: Duration| {
            let operation = ("operation", operation.to_string());
            let labels = vec![operation.clone(), ("result", result(outcome))];
            counts.requests.get_or_create(&labels).inc();
            counts.request_seconds.get_or_create(&vec![operation]).inc_by(took.as_secs_f64());
        };
        Arc::new(Measured::new(cloud, Arc::new(observer)))
    }

    /// Records the result of a survey.
    pub(crate) fn surveyed(&self, objects: &[Arc<Network>], n_drifted: usize, n_orphans: usize) {
        let mut by_reason: BTreeMap<String, i64> = BTreeMap::new();
        for object in objects {
            let reason = ready(object.status.as_ref()).map_or("Unknown", |ready| ready.reason.as_str());
            *by_reason.entry(reason.to_owned()).or_default() += 1;
        }
        self.objects.clear();
        for (reason, n_objects) in by_reason {
            self.objects.get_or_create(&vec![("reason", reason)]).set(n_objects);
        }
        self.drifted.inc_by(u64::try_from(n_drifted).unwrap_or(u64::MAX));
        self.orphans.set(i64::try_from(n_orphans).unwrap_or(i64::MAX));
        self.surveyed_at.set(Timestamp::now().as_second());
    }

    pub(crate) fn orphan_removed(&self) {
        self.orphans_removed.inc();
    }

    pub(crate) fn lacks_permissions(&self, n_rules: usize) {
        self.missing_permissions.set(i64::try_from(n_rules).unwrap_or(i64::MAX));
    }
}

/// The label for the outcome of a call.
fn result(outcome: Result<(), &Error>) -> String {
    match outcome {
        Ok(()) => "success".to_owned(),
        Err(error) => match error.class() {
            Some(class) => format!("{class:?}"),
            None if matches!(error, Error::NotSent { .. }) => "NotSent".to_owned(),
            None => "NoAnswer".to_owned(),
        },
    }
}
