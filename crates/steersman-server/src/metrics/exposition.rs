//! The text that a scrape reads: every metric family with its name, help and values.
//!
//! | Name | Type | Value |
//! |---|---|---|
//! | `apiserver_request_total` | counter | answers, by code |
//! | `apiserver_crd_conversion_webhook_duration_seconds` | histogram | time that a conversion webhook took, by definition and versions |
//! | `apiserver_request_duration_seconds` | histogram | time until an answer begins; for lists and writes until it is made |
//! | `apiserver_longrunning_requests` | gauge | open watches |
//! | `apiserver_watch_events_total`, `apiserver_watch_events_sizes_sum` | counter | events sent to watches, and their bytes |
//! | `apiserver_current_inflight_requests` | gauge | requests under way, `mutating` and `readOnly` |
//! | `apiserver_dropped_requests_total` | counter | requests refused with 429 |
//! | `apiserver_request_panics_total` | counter | requests whose code panicked |
//! | `apiserver_admission_webhook_*`, `apiserver_admission_match_condition_exclusions_total` | | calls to admission webhooks (`webhooks`) |
//! | `apiserver_storage_objects`, `apiserver_resource_objects` | gauge | objects of each resource; the second as 1.34 renamed it |
//! | `apiserver_validating_admission_policy_check_total`, `..._check_duration_seconds`, and `mutating` alike | counter, histogram | evaluations of admission policies |
//! | `apiserver_audit_event_total`, `apiserver_audit_error_total`, `apiserver_audit_level_total` | counter | events of the audit log, those that were lost, requests by level; with a log only |
//! | `steersman_audit_bodies_dropped_total` | counter | bodies that were left out of events, because they are too long or there was no room for them |
//! | `steersman_store_revision`, `steersman_store_oldest_revision` | gauge | the newest revision, and the one after which history is kept |
//! | `steersman_store_healthy` | gauge | whether the store accepts writes |
//! | `steersman_store_unreadable_entries` | gauge | stored entries that are damaged or no objects and are skipped |
//! | `apiserver_encryption_config_controller_automatic_reloads_total` | counter | changes of the encryption configuration; with automatic reload only |
//! | `process_cpu_seconds_total`, `process_resident_memory_bytes`, ... | | what the process takes (`process`) |

use crate::access::audit;
use crate::metrics::histogram::Histogram;
use crate::metrics::text::{Text, Type};
use crate::metrics::{Labels, Metrics, OwnedLabels, Series, encryption, process};
use crate::shared::conversion::webhook;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use steersman_machinery::GroupResource;

/// The media type of the text.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

/// Values that a scrape reads from other parts of the server.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    pub(crate) in_flight: InFlight,
    pub(crate) objects: Vec<ResourceCount>,
    pub(crate) store: StoreFigures,
    /// The durations of conversions.
    pub(crate) conversions: Vec<(webhook::Labels, Arc<Histogram>)>,
    /// `None` without an audit log.
    pub(crate) audit: Option<audit::Figures>,
}

/// The numbers of requests in flight.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    pub(crate) mutating: usize,
    pub(crate) read_only: usize,
}

/// The number of objects of a resource.
#[derive(Debug)]
pub(crate) struct ResourceCount {
    pub(crate) name: GroupResource,
    pub(crate) count: usize,
}

/// Figures of the store.
#[derive(Debug, Default)]
pub(crate) struct StoreFigures {
    pub(crate) is_healthy: bool,
    pub(crate) oldest_revision: u64,
    pub(crate) revision: u64,
    pub(crate) unreadable: usize,
}

impl Metrics {
    /// All metrics as text.
    pub(crate) fn exposition(&self, gauges: &Gauges) -> String {
        let mut text = Text::default();
        let series = self.sorted();
        Metrics::requests(&mut text, &series);
        Metrics::watches(&mut text, &series);
        let in_flight = "apiserver_current_inflight_requests";
        text.family(in_flight, Type::Gauge, "Requests under way by kind.");
        text.value(in_flight, &[("request_kind", "mutating")], gauges.in_flight.mutating);
        text.value(in_flight, &[("request_kind", "readOnly")], gauges.in_flight.read_only);
        let counters = [
            ("apiserver_dropped_requests_total", "Requests refused because too many were under way.", &self.rejected),
            ("apiserver_request_panics_total", "Requests whose code panicked.", &self.panics),
        ];
        for (name, help, counter) in counters {
            text.family(name, Type::Counter, help);
            text.value(name, &[], counter.load(Ordering::Relaxed));
        }
        converted(&mut text, &gauges.conversions);
        self.policies.write(&mut text);
        self.webhooks.exposition(&mut text);
        objects(&mut text, &gauges.objects);
        store(&mut text, &gauges.store);
        if let Some(figures) = self.encryption().and_then(|encryption| encryption.reloads()) {
            encryption::reloads(&mut text, &figures);
        }
        if let Some(usage) = self.process.get().and_then(|read| read()) {
            process::process(&mut text, &usage);
        }
        if let Some(figures) = &gauges.audit {
            audited(&mut text, figures);
        }
        text.into_string()
    }

    /// All series in a fixed order. A copy, since the map must not stay locked while the text is written: a request
    /// with new labels would wait for the lock, and all other requests for that one.
    fn sorted(&self) -> Vec<(OwnedLabels, Arc<Series>)> {
        let series = self.series.read();
        let mut all: Vec<_> = series.iter().map(|(labels, series)| (labels.clone(), series.clone())).collect();
        drop(series);
        all.sort_by(|(a, _), (b, _)| order(&a.borrowed()).cmp(&order(&b.borrowed())));
        all
    }

    fn requests(text: &mut Text, series: &[(OwnedLabels, Arc<Series>)]) {
        let all: Vec<_> = series
            .iter()
            .map(|(labels, series)| (labels.borrowed(), series.codes.lock().clone(), &series.duration))
            .filter(|(_, codes, _)| !codes.is_empty())
            .collect();
        let total = "apiserver_request_total";
        text.family(total, Type::Counter, "Requests by verb, resource and the code of their answer.");
        for (labels, codes, _) in &all {
            let mut codes = codes.clone();
            codes.sort_unstable();
            for (code, count) in codes {
                let code = code.to_string();
                text.value(total, &[&[("code", &*code)], pairs(labels).as_slice()].concat(), count);
            }
        }
        let duration = "apiserver_request_duration_seconds";
        text.family(duration, Type::Histogram, "Seconds until an answer begins.");
        for (labels, _, durations) in &all {
            durations.write(text, duration, &pairs(labels));
        }
    }

    fn watches(text: &mut Text, series: &[(OwnedLabels, Arc<Series>)]) {
        let mut open: Vec<(Labels<'_>, i64)> = Vec::new();
        let mut sent: BTreeMap<(&str, &str, &str), (u64, u64)> = BTreeMap::new();
        for (labels, series) in series.iter().filter(|(labels, _)| labels.verb == "WATCH") {
            open.push((labels.borrowed(), series.open.load(Ordering::Relaxed)));
            let (events, bytes) = sent.entry((&labels.group, &labels.resource, &labels.version)).or_default();
            *events += series.events.load(Ordering::Relaxed);
            *bytes += series.event_bytes.load(Ordering::Relaxed);
        }
        let name = "apiserver_longrunning_requests";
        text.family(name, Type::Gauge, "Open watches.");
        for (labels, count) in &open {
            // Upstream's metric has no `dry_run` label.
            let labels: Vec<_> = pairs(labels).into_iter().filter(|(label, _)| *label != "dry_run").collect();
            text.value(name, &labels, count);
        }
        let events = "apiserver_watch_events_total";
        text.family(events, Type::Counter, "Events sent to watches.");
        for ((group, resource, version), (count, _)) in &sent {
            text.value(events, &[("group", group), ("resource", resource), ("version", version)], count);
        }
        let bytes = "apiserver_watch_events_sizes_sum";
        text.family(bytes, Type::Counter, "Bytes of the events sent to watches.");
        for ((group, resource, version), (_, count)) in &sent {
            text.value(bytes, &[("group", group), ("resource", resource), ("version", version)], count);
        }
    }
}

/// The durations of conversions by webhooks, under upstream's name.
fn converted(text: &mut Text, conversions: &[(webhook::Labels, Arc<Histogram>)]) {
    if conversions.is_empty() {
        return;
    }
    let name = "apiserver_crd_conversion_webhook_duration_seconds";
    text.family(name, Type::Histogram, "Seconds that a conversion webhook took to answer.");
    for (labels, durations) in conversions {
        let succeeded = labels.has_succeeded.to_string();
        let labels = [
            ("crd_name", &*labels.definition),
            ("from_version", &*labels.from),
            ("succeeded", &*succeeded),
            ("to_version", &*labels.to),
        ];
        durations.write(text, name, &labels);
    }
}

fn objects(text: &mut Text, objects: &[ResourceCount]) {
    let mut objects: Vec<&ResourceCount> = objects.iter().collect();
    objects.sort_by(|a, b| (&a.name.group, &a.name.resource).cmp(&(&b.name.group, &b.name.resource)));
    let name = "apiserver_storage_objects";
    text.family(name, Type::Gauge, "Objects of each resource.");
    for ResourceCount { name: resource, count } in &objects {
        text.value(name, &[("resource", &resource.to_string())], count);
    }
    let name = "apiserver_resource_objects";
    text.family(name, Type::Gauge, "Objects of each resource.");
    for ResourceCount { name: GroupResource { group, resource }, count } in objects {
        text.value(name, &[("group", group), ("resource", resource)], count);
    }
}

fn store(text: &mut Text, store: &StoreFigures) {
    let gauges = [
        ("steersman_store_revision", "The newest revision.", store.revision),
        ("steersman_store_healthy", "1 while the store accepts writes.", u64::from(store.is_healthy)),
        ("steersman_store_oldest_revision", "History after this revision is kept.", store.oldest_revision),
        // A gauge, because it falls when such an entry is overwritten.
        (
            "steersman_store_unreadable_entries",
            "Stored entries that are not objects and are skipped.",
            store.unreadable as u64,
        ),
    ];
    for (name, help, value) in gauges {
        text.family(name, Type::Gauge, help);
        text.value(name, &[], value);
    }
}

fn audited(text: &mut Text, figures: &audit::Figures) {
    let (events, errors, levels) =
        ("apiserver_audit_event_total", "apiserver_audit_error_total", "apiserver_audit_level_total");
    let bodies = "steersman_audit_bodies_dropped_total";
    text.family(events, Type::Counter, "Events made for the audit log.");
    text.value(events, &[], figures.events);
    text.family(errors, Type::Counter, "Events that the audit log lost.");
    text.value(errors, &[("plugin", "log")], figures.errors);
    text.family(
        bodies,
        Type::Counter,
        "Bodies that were left out of events of the audit log: too long, or without room.",
    );
    text.value(bodies, &[], figures.bodies_dropped);
    text.family(levels, Type::Counter, "Requests by the level at which the policy has them logged.");
    for (level, n) in figures.levels {
        text.value(levels, &[("level", level)], n);
    }
}

/// The labels of a request, sorted by name.
fn pairs<'a>(labels: &Labels<'a>) -> Vec<(&'static str, &'a str)> {
    vec![
        ("component", "apiserver"),
        ("dry_run", if labels.is_dry_run { "All" } else { "" }),
        ("group", labels.group),
        ("resource", labels.resource),
        ("scope", labels.scope),
        ("subresource", labels.subresource),
        ("verb", labels.verb),
        ("version", labels.version),
    ]
}

fn order<'a>(labels: &Labels<'a>) -> [&'a str; 6] {
    [labels.group, labels.resource, labels.subresource, labels.version, labels.verb, labels.scope]
}
