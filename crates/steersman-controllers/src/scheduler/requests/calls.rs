//! The numbers of calls of extenders, for metrics.

use crate::scheduler::configuration::{Extender, Verb};
use std::fmt;
use std::sync::{Arc, Weak};
use steersman::metrics::Metrics;
use steersman::metrics::prometheus_client::collector::Collector;
use steersman::metrics::prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use steersman::metrics::prometheus_client::metrics::counter::Counter;
use steersman::metrics::prometheus_client::metrics::family::Family;
use steersman::metrics::prometheus_client::metrics::{MetricType, TypedMetric as _};

const NAME: &str = "steersman_scheduler_extender_calls";
const HELP: &str = "Calls of extenders of the scheduler: answered, failed, or failed and ignored";

type Numbers = Family<Vec<(String, String)>, Counter>;

/// Counts calls by extender, verb and outcome.
#[derive(Debug, Default)]
pub(super) struct Calls(Arc<Numbers>);

/// The outcome of a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Outcome {
    Answered,
    Failed,
    /// It failed, and the decision goes on without its answer.
    Ignored,
}

/// Reports the numbers for as long as they exist: a scheduler that is started again counts anew.
#[derive(Debug)]
struct Reported(Weak<Numbers>);

// === impl Calls ===

impl Calls {
    pub(super) fn observe(&self, metrics: &Metrics) {
        let reported = Reported(Arc::downgrade(&self.0));
        metrics.register(|registry| registry.register_collector(Box::new(reported)));
    }

    pub(super) fn count(&self, extender: &Extender, verb: &Verb, outcome: Outcome) {
        let labels = [("extender", extender.url.as_str()), ("verb", &verb.name), ("outcome", outcome.as_str())];
        let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        self.0.get_or_create(&labels).inc();
    }
}

impl Outcome {
    fn as_str(self) -> &'static str {
        match self {
            Outcome::Answered => "answered",
            Outcome::Failed => "failed",
            Outcome::Ignored => "ignored",
        }
    }
}

impl Collector for Reported {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(numbers) = self.0.upgrade() else { return Ok(()) };
        let kind: MetricType = Numbers::TYPE;
        numbers.encode(encoder.encode_descriptor(NAME, HELP, None, kind)?)
    }
}
