//! What webhooks count: calls by status and outcome, their time, and those under way.
//!
//! Names and labels of the first four families are those of controller-runtime (`pkg/webhook/internal/metrics`), whose label
//! `webhook` is the path.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use prometheus_client::encoding::DescriptorEncoder;

use crate::metrics::families::{counters, gauges, histograms};
use crate::metrics::histogram::{Histogram, REQUEST_BUCKETS};

/// The counts of one set of webhooks. Bounded by the paths that have a function.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    paths: Mutex<BTreeMap<String, OfPath>>,
    /// When the certificate that is served expires, in seconds since 1970.
    expiry: Mutex<Option<i64>>,
}

#[derive(Debug)]
struct OfPath {
    answers: BTreeMap<u16, u64>,
    outcomes: BTreeMap<&'static str, u64>,
    seconds: Histogram,
    n_under_way: usize,
}

/// A call that is under way. Dropped without an end, the client went away.
pub(crate) struct UnderWay<'a> {
    stats: &'a Stats,
    path: &'a str,
    ended: Option<(&'static str, StatusCode, Duration)>,
}

// === impl Stats ===

impl Stats {
    pub(crate) fn begin<'a>(&'a self, path: &'a str) -> UnderWay<'a> {
        self.of_path(path, |of_path| of_path.n_under_way += 1);
        UnderWay { stats: self, path, ended: None }
    }

    pub(crate) fn serve_until(&self, expiry: i64) {
        *self.expiry.lock() = Some(expiry);
    }

    fn of_path(&self, path: &str, change: impl FnOnce(&mut OfPath)) {
        let mut paths = self.paths.lock();
        match paths.get_mut(path) {
            Some(of_path) => change(of_path),
            None => {
                let mut of_path = OfPath {
                    answers: BTreeMap::new(),
                    outcomes: BTreeMap::new(),
                    seconds: Histogram::new(REQUEST_BUCKETS),
                    n_under_way: 0,
                };
                change(&mut of_path);
                paths.insert(path.to_owned(), of_path);
            }
        }
    }
}

impl UnderWay<'_> {
    pub(crate) fn end(mut self, outcome: &'static str, status: StatusCode, took: Duration) {
        self.ended = Some((outcome, status, took));
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let ended = self.ended.take();
        self.stats.of_path(self.path, |of_path| {
            of_path.n_under_way -= 1;
            *of_path.outcomes.entry(ended.map_or("abandoned", |(outcome, ..)| outcome)).or_default() += 1;
            if let Some((_, status, took)) = ended {
                *of_path.answers.entry(status.as_u16()).or_default() += 1;
                of_path.seconds.observe(took.as_secs_f64());
            }
        });
    }
}

/// Writes what the webhooks that still live have counted.
pub(crate) fn encode(encoder: &mut DescriptorEncoder<'_>, sources: &[Weak<Stats>]) -> fmt::Result {
    let sources: Vec<Arc<Stats>> = sources.iter().filter_map(Weak::upgrade).collect();
    let (mut answers, mut outcomes): (BTreeMap<_, u64>, BTreeMap<_, u64>) = (BTreeMap::new(), BTreeMap::new());
    let (mut seconds, mut under_way): (BTreeMap<String, Histogram>, BTreeMap<String, usize>) =
        (BTreeMap::new(), BTreeMap::new());
    let mut expiry: Option<i64> = None;
    for source in &sources {
        for (path, of_path) in &*source.paths.lock() {
            for (code, count) in &of_path.answers {
                *answers.entry((path.clone(), *code)).or_default() += count;
            }
            for (outcome, count) in &of_path.outcomes {
                *outcomes.entry((path.clone(), *outcome)).or_default() += count;
            }
            *under_way.entry(path.clone()).or_default() += of_path.n_under_way;
            match seconds.get_mut(path) {
                Some(known) => known.merge(&of_path.seconds),
                None => drop(seconds.insert(path.clone(), of_path.seconds.clone())),
            }
        }
        expiry = match (expiry, *source.expiry.lock()) {
            (Some(known), Some(other)) => Some(known.min(other)),
            (known, other) => known.or(other),
        };
    }
    let labels = |path: &str| vec![("webhook", path.to_owned())];
    let with = |path: String, name, value: String| vec![("webhook", path), (name, value)];
    let answers =
        answers.into_iter().map(|((path, code), count)| (with(path, "code", code.to_string()), count)).collect();
    counters(encoder, "controller_runtime_webhook_requests", "Calls of webhooks by HTTP status", answers)?;
    let times = seconds.iter().map(|(path, seconds)| (labels(path), seconds)).collect();
    histograms(encoder, "controller_runtime_webhook_latency_seconds", "How long calls of webhooks take", times)?;
    let panics = outcomes.iter().filter(|((_, outcome), _)| *outcome == "panicked");
    let panics = panics.map(|((path, _), count)| (labels(path), *count)).collect();
    counters(encoder, "controller_runtime_webhook_panics", "Calls of webhooks whose function panicked", panics)?;
    let under_way = under_way.iter().map(|(path, n)| (labels(path), *n)).collect();
    let help = "Calls of webhooks under way";
    gauges(encoder, "controller_runtime_webhook_requests_in_flight", help, under_way)?;
    let outcomes = outcomes
        .into_iter()
        .map(|((path, outcome), count)| (with(path, "outcome", outcome.to_owned()), count))
        .collect();
    counters(encoder, "steersman_webhook_calls", "Calls of webhooks by outcome", outcomes)?;
    let expiry = expiry.map(|expiry| (Vec::new(), expiry as f64)).into_iter().collect();
    let help = "When the certificate of the webhooks expires";
    gauges(encoder, "steersman_webhook_certificate_expiry_timestamp_seconds", help, expiry)
}
