//! The server's metrics for Prometheus at `/metrics`, under the names of kube-apiserver.
//!
//! The chain reports each request once, when its answer begins ([`Metrics::request`]), and each watch while it lasts
//! ([`Metrics::begin_watch`]). Values that other parts of the server have are not counted but read at a scrape
//! (`exposition`). Labels come from the catalog, never from what a client sends, so that definitions bound their
//! number; beyond [`SERIES_MAX`] a request is counted under empty labels.

pub(crate) mod encryption;
mod exposition;
pub(crate) mod histogram;
pub(crate) mod policies;
mod process;
pub(crate) mod text;
mod webhooks;

use crate::metrics::encryption::StorageEncryption;
use crate::metrics::histogram::{Histogram, REQUEST_BOUNDS};
use hashbrown::{Equivalent, HashMap};
use parking_lot::{Mutex, RwLock};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub(crate) use crate::metrics::exposition::{CONTENT_TYPE, Gauges, InFlight, ResourceCount, StoreFigures};
pub use crate::metrics::process::{ProcessUsage, ReadProcess};
pub(crate) use crate::metrics::webhooks::{WebhookCall, WebhookOutcome};

/// The most combinations of labels: ten verbs on two thousand kinds.
const SERIES_MAX: usize = 20_000;

/// The counters of one server.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// The encryption of stored values, if the embedder has one.
    encryption: OnceLock<Arc<dyn StorageEncryption>>,
    series: RwLock<HashMap<OwnedLabels, Arc<Series>>>,
    /// Reads the usage of the process; without it none is reported.
    process: OnceLock<ReadProcess>,
    /// Requests refused because too many of their kind were in flight.
    rejected: AtomicU64,
    /// Requests whose code panicked.
    panics: AtomicU64,
    pub(crate) policies: policies::Policies,
    /// Calls to admission webhooks.
    pub(crate) webhooks: webhooks::Webhooks,
}

/// The labels of a request. Follows apiserver's `endpoints/metrics`.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub(crate) struct Labels<'a> {
    /// In upper case; `LIST`, `WATCH`, `APPLY` and `DELETECOLLECTION` are distinguished.
    pub(crate) verb: &'static str,
    pub(crate) group: &'a str,
    pub(crate) version: &'a str,
    pub(crate) resource: &'a str,
    /// For a non-resource request, its path.
    pub(crate) subresource: &'a str,
    /// `cluster`, `namespace`, `resource`, or empty for a non-resource path.
    pub(crate) scope: &'static str,
    pub(crate) is_dry_run: bool,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct OwnedLabels {
    verb: &'static str,
    group: Box<str>,
    version: Box<str>,
    resource: Box<str>,
    subresource: Box<str>,
    scope: &'static str,
    is_dry_run: bool,
}

/// The counts under one set of labels.
#[derive(Debug)]
struct Series {
    /// The number of answers with each status code, in the order of their first occurrence: there are few.
    codes: Mutex<Vec<(u16, u64)>>,
    duration: Histogram,
    /// Watches that are open.
    open: AtomicI64,
    /// Events sent to watches.
    events: AtomicU64,
    event_bytes: AtomicU64,
}

/// An open watch. Counted until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenWatch(Arc<Series>);

// === impl Metrics ===

impl Metrics {
    /// Counts an answered request.
    pub(crate) fn request(&self, labels: &Labels<'_>, code: u16, duration: Duration) {
        let series = self.series(labels);
        let mut codes = series.codes.lock();
        match codes.iter_mut().find(|(known, _)| *known == code) {
            Some((_, count)) => *count += 1,
            None => codes.push((code, 1)),
        }
        drop(codes);
        series.duration.observe(duration);
    }

    /// Counts a watch as open.
    pub(crate) fn begin_watch(&self, labels: &Labels<'_>) -> OpenWatch {
        let series = self.series(labels);
        series.open.fetch_add(1, Ordering::Relaxed);
        OpenWatch(series)
    }

    /// Adds the usage of the process to the reported metrics.
    pub(crate) fn report_process(&self, read: ReadProcess) {
        // Only the first reader is kept; all are equivalent.
        let _known = self.process.set(read);
    }

    /// Adds the encryption of stored values to what is reported.
    pub(crate) fn report_encryption(&self, encryption: Arc<dyn StorageEncryption>) {
        // Only the first is kept: a store has one.
        let _known = self.encryption.set(encryption);
    }

    /// The encryption of stored values.
    pub(crate) fn encryption(&self) -> Option<&dyn StorageEncryption> {
        self.encryption.get().map(|encryption| &**encryption)
    }

    /// The number of open watches of a resource in a version, in one namespace or in all of them.
    pub(crate) fn open_watches(&self, group: &str, version: &str, resource: &str) -> usize {
        let series = self.series.read();
        let open = ["cluster", "namespace"].map(|scope| {
            let labels = Labels { verb: "WATCH", group, version, resource, scope, ..Labels::default() };
            series.get(&labels).map_or(0, |series| series.open.load(Ordering::Relaxed))
        });
        usize::try_from(open.iter().sum::<i64>()).unwrap_or(0)
    }

    /// Counts a request that was refused because too many were in flight.
    pub(crate) fn reject(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request whose code panicked.
    pub(crate) fn panicked(&self) {
        self.panics.fetch_add(1, Ordering::Relaxed);
    }

    fn series(&self, labels: &Labels<'_>) -> Arc<Series> {
        if let Some(known) = self.series.read().get(labels) {
            return known.clone();
        }
        let mut series = self.series.write();
        let is_full = SERIES_MAX <= series.len() && !series.contains_key(labels);
        let labels = if is_full { Labels { verb: labels.verb, ..Labels::default() } } else { *labels };
        series.entry(labels.into()).or_insert_with(|| Arc::new(Series::new())).clone()
    }
}

impl OpenWatch {
    /// Counts events that were sent together.
    pub(crate) fn sent(&self, events: usize, bytes: usize) {
        self.0.events.fetch_add(events as u64, Ordering::Relaxed);
        self.0.event_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

// === impl Series ===

impl Series {
    fn new() -> Series {
        Series {
            codes: Mutex::default(),
            duration: Histogram::new(REQUEST_BOUNDS),
            open: AtomicI64::default(),
            events: AtomicU64::default(),
            event_bytes: AtomicU64::default(),
        }
    }
}

// === impl Labels ===

impl Equivalent<OwnedLabels> for Labels<'_> {
    fn equivalent(&self, owned: &OwnedLabels) -> bool {
        *self == owned.borrowed()
    }
}

impl From<Labels<'_>> for OwnedLabels {
    fn from(labels: Labels<'_>) -> OwnedLabels {
        let Labels { verb, group, version, resource, subresource, scope, is_dry_run } = labels;
        OwnedLabels {
            verb,
            group: group.into(),
            version: version.into(),
            resource: resource.into(),
            subresource: subresource.into(),
            scope,
            is_dry_run,
        }
    }
}

impl OwnedLabels {
    fn borrowed(&self) -> Labels<'_> {
        Labels {
            verb: self.verb,
            group: &self.group,
            version: &self.version,
            resource: &self.resource,
            subresource: &self.subresource,
            scope: self.scope,
            is_dry_run: self.is_dry_run,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PODS: Labels<'_> = Labels {
        verb: "LIST",
        group: "",
        version: "v1",
        resource: "pods",
        subresource: "",
        scope: "namespace",
        is_dry_run: false,
    };

    fn text(metrics: &Metrics) -> String {
        metrics.exposition(&Gauges::default())
    }

    #[test]
    fn requests_are_counted_by_code_and_timed() {
        let metrics = Metrics::default();
        metrics.request(&PODS, 200, Duration::from_millis(3));
        metrics.request(&PODS, 200, Duration::from_millis(300));
        metrics.request(&PODS, 404, Duration::from_secs(100));
        let text = text(&metrics);
        let labels = r#"component="apiserver",dry_run="",group="",resource="pods",scope="namespace",subresource="",verb="LIST",version="v1""#;
        for line in [
            "# TYPE apiserver_request_total counter".to_owned(),
            format!(r#"apiserver_request_total{{code="200",{labels}}} 2"#),
            format!(r#"apiserver_request_total{{code="404",{labels}}} 1"#),
            "# TYPE apiserver_request_duration_seconds histogram".to_owned(),
            format!(r#"apiserver_request_duration_seconds_bucket{{{labels},le="0.005"}} 1"#),
            format!(r#"apiserver_request_duration_seconds_bucket{{{labels},le="0.4"}} 2"#),
            format!(r#"apiserver_request_duration_seconds_bucket{{{labels},le="60"}} 2"#),
            format!(r#"apiserver_request_duration_seconds_bucket{{{labels},le="+Inf"}} 3"#),
            format!(r#"apiserver_request_duration_seconds_count{{{labels}}} 3"#),
        ] {
            assert!(text.lines().any(|one| one == line), "{line}\nis not in\n{text}");
        }
    }

    #[test]
    fn a_watch_counts_as_long_as_it_is_open() {
        let metrics = Metrics::default();
        let open = metrics.begin_watch(&Labels { verb: "WATCH", ..PODS });
        open.sent(3, 900);
        let says = |wanted: &str| {
            text(&metrics)
                .lines()
                .any(|line| line.starts_with("apiserver_longrunning_requests{") && line.ends_with(wanted))
        };
        assert!(says(" 1"));
        drop(open);
        assert!(says(" 0"));
        assert!(text(&metrics).contains(r#"apiserver_watch_events_total{group="",resource="pods",version="v1"} 3"#));
    }

    #[test]
    fn a_number_that_can_fall_is_a_gauge() {
        let store = StoreFigures { unreadable: 2, ..StoreFigures::default() };
        let text = Metrics::default().exposition(&Gauges { store, ..Gauges::default() });
        assert!(
            text.contains("# TYPE steersman_store_unreadable_entries gauge\nsteersman_store_unreadable_entries 2\n")
        );
    }

    #[test]
    fn labels_are_bounded() {
        let metrics = Metrics::default();
        for n in 0..SERIES_MAX + 10 {
            metrics.request(&Labels { resource: &n.to_string(), ..PODS }, 200, Duration::ZERO);
        }
        assert!(metrics.series.read().len() <= SERIES_MAX + 1);
        assert!(text(&metrics).contains(r#"resource="",scope="",subresource="",verb="LIST",version=""} 10"#));
    }
}
