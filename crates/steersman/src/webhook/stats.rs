//! The counts of webhooks: calls by status and outcome, their time, and those under way. `metrics/families` has the
//! names.

use std::collections::BTreeMap;
use std::sync::Weak;
use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;

use crate::shared::histogram::{Histogram, REQUEST_BUCKETS};

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

/// A call that is under way. Dropped before its end, it counts as a client that went away.
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

/// The sums over several sets of webhooks.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    /// By path and HTTP status.
    pub(crate) answers: BTreeMap<(String, u16), u64>,
    /// By path and outcome.
    pub(crate) outcomes: BTreeMap<(String, &'static str), u64>,
    pub(crate) seconds: BTreeMap<String, Histogram>,
    pub(crate) under_way: BTreeMap<String, usize>,
    /// When the first of the certificates expires, in seconds since 1970.
    pub(crate) expiry: Option<i64>,
}

impl Totals {
    /// Sums the sets that still exist.
    pub(crate) fn of(sources: &[Weak<Stats>]) -> Self {
        let mut totals = Self::default();
        for source in sources.iter().filter_map(Weak::upgrade) {
            for (path, of_path) in &*source.paths.lock() {
                totals.add(path, of_path);
            }
            totals.expiry = match (totals.expiry, *source.expiry.lock()) {
                (Some(known), Some(other)) => Some(known.min(other)),
                (known, other) => known.or(other),
            };
        }
        totals
    }

    fn add(&mut self, path: &str, of_path: &OfPath) {
        for (code, count) in &of_path.answers {
            *self.answers.entry((path.to_owned(), *code)).or_default() += count;
        }
        for (outcome, count) in &of_path.outcomes {
            *self.outcomes.entry((path.to_owned(), *outcome)).or_default() += count;
        }
        *self.under_way.entry(path.to_owned()).or_default() += of_path.n_under_way;
        match self.seconds.get_mut(path) {
            Some(known) => known.merge(&of_path.seconds),
            None => drop(self.seconds.insert(path.to_owned(), of_path.seconds.clone())),
        }
    }
}
