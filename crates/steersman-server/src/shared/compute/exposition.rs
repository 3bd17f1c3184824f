//! The metrics of heavy requests.

use crate::metrics::text::{Text, Type};
use crate::shared::compute::Pool;
use crate::shared::compute::queue::Figures;
use std::sync::atomic::Ordering;

const REQUESTS: &str = "steersman_heavy_requests";
const REFUSED: &str = "steersman_heavy_requests_refused_total";
const INTERRUPTED: &str = "steersman_heavy_requests_interrupted_total";

impl Pool {
    /// The metrics in Prometheus' text format.
    pub(crate) fn exposition(&self) -> String {
        let Figures { computing, waiting, away } = self.queue.lock().figures();
        let mut text = Text::default();
        text.family(
            REQUESTS,
            Type::Gauge,
            "Large requests: computing, waiting for a slot, or waiting for something else.",
        );
        for (state, n) in [("computing", computing), ("waiting", waiting), ("away", away)] {
            text.value(REQUESTS, &[("state", state)], n);
        }
        let counters = [
            (REFUSED, "Large requests that were refused because too many were waiting.", &self.refused),
            (INTERRUPTED, "Large requests whose time was over before they were done.", &self.interrupted),
        ];
        for (name, help, counter) in counters {
            text.family(name, Type::Counter, help);
            text.value(name, &[], counter.load(Ordering::Relaxed));
        }
        text.into_string()
    }
}
