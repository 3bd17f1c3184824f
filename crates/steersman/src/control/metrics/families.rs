//! The families of metrics: names, help, labels, and the source of each value.
//!
//! Follows controller-runtime (`pkg/internal/metrics/workqueue.go`, `pkg/internal/controller/metrics`, `pkg/metrics`)
//! and Kubernetes' component-base (`metrics/prometheus`). Counters are named here without `_total`, which the text
//! adds.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use crate::control::controller::stats::ControllerTotals;
use crate::control::metrics::{ControllerSource, InformerSource, Sources};
use crate::control::queue::{Measured, QueueReport};
#[cfg(feature = "election")]
use crate::leadership::election::Leadership;
#[cfg(feature = "shard")]
use crate::leadership::shard;
#[cfg(feature = "shard")]
use crate::leadership::shard::stats::Report;
use crate::shared::histogram::Histogram;
#[cfg(feature = "webhook")]
use crate::webhook::Totals;
#[cfg(feature = "events")]
use crate::writing::events::stats::Stats;

/// The values of the label `priority`, lowest first: controller-runtime's for low and normal, and ours for high.
const PRIORITIES: [&str; 3] = ["-100", "0", "100"];

pub(crate) type Labels = Vec<(&'static str, String)>;

/// The samples of one family, with a value each.
type Samples<T> = Vec<(Labels, T)>;

#[derive(Debug)]
struct Controller {
    workers: usize,
    totals: ControllerTotals,
}

#[derive(Debug)]
struct Cache {
    queued: usize,
    /// `None` before the first list.
    resource_version: Option<u64>,
    since_heard: Option<Duration>,
    relists: BTreeMap<&'static str, u64>,
}

impl Collector for Sources {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        // The sources have locks of their own, so none of ours is held while they are read.
        let queues: Vec<_> = self.queues.lock().iter().filter_map(|queue| queue.upgrade()).collect();
        encode_queues(&mut encoder, &by_queue(&queues))?;
        let controllers = self.controllers.lock().clone();
        encode_controllers(&mut encoder, &by_controller(&controllers))?;
        #[cfg(feature = "election")]
        {
            let leaders: Vec<_> = self.leaders.lock().iter().filter_map(|leadership| leadership.upgrade()).collect();
            encode_elections(&mut encoder, &leaders)?;
        }
        #[cfg(feature = "shard")]
        {
            let shards: Vec<_> = self.shards.lock().iter().filter_map(|shards| shards.upgrade()).collect();
            encode_shards(&mut encoder, &by_group(&shards))?;
        }
        #[cfg(feature = "events")]
        {
            let events: Vec<_> = self.events.lock().iter().filter_map(|events| events.upgrade()).collect();
            encode_events(&mut encoder, &events)?;
        }
        self.requests.encode(&mut encoder)?;
        #[cfg(feature = "webhook")]
        encode_webhooks(&mut encoder, &Totals::of(&self.webhooks.lock().clone()))?;
        let informers = self.informers.lock().clone();
        encode_informers(&mut encoder, by_informer(&informers))
    }
}

// === sources ===

fn by_queue(queues: &[Arc<dyn Measured>]) -> BTreeMap<String, QueueReport> {
    let mut reports: BTreeMap<String, QueueReport> = BTreeMap::new();
    for queue in queues {
        let (name, Some(report)) = queue.report() else { continue };
        match reports.get_mut(&*name) {
            Some(known) => known.merge(&report),
            None => drop(reports.insert(name.to_string(), report)),
        }
    }
    reports
}

fn by_controller(sources: &[ControllerSource]) -> BTreeMap<String, Controller> {
    let mut controllers: BTreeMap<String, Controller> = BTreeMap::new();
    for source in sources {
        let Some(stats) = source.stats.upgrade() else { continue };
        let totals = stats.totals();
        match controllers.get_mut(&source.name) {
            Some(known) => {
                known.workers += source.workers;
                known.totals.merge(&totals);
            }
            None => drop(controllers.insert(source.name.clone(), Controller { workers: source.workers, totals })),
        }
    }
    controllers
}

fn by_informer(sources: &[InformerSource]) -> BTreeMap<[String; 4], Cache> {
    let mut caches: BTreeMap<[String; 4], Cache> = BTreeMap::new();
    for source in sources {
        let Some(informers) = source.informers.upgrade() else { continue };
        for report in informers.reports() {
            let labels = [source.name.clone(), report.group, report.version, report.resource];
            let cache = caches.entry(labels).or_insert(Cache {
                queued: 0,
                resource_version: report.resource_version,
                since_heard: None,
                relists: BTreeMap::new(),
            });
            cache.queued += report.queued;
            // With several caches of one type, the one that is furthest behind counts.
            cache.resource_version = cache.resource_version.min(report.resource_version);
            cache.since_heard = cache.since_heard.max(report.since_heard);
            for (reason, n) in report.relists {
                *cache.relists.entry(reason).or_insert(0) += n;
            }
        }
    }
    caches
}

/// Adds up the members of one group in one process, which only tests have.
#[cfg(feature = "shard")]
fn by_group(shards: &[Arc<dyn shard::stats::Measured>]) -> BTreeMap<String, Report> {
    let mut groups: BTreeMap<String, Report> = BTreeMap::new();
    for report in shards.iter().map(|shards| shards.report()) {
        match groups.get_mut(&report.group) {
            Some(known) => known.merge(&report),
            None => drop(groups.insert(report.group.clone(), report)),
        }
    }
    groups
}

// === values ===

fn encode_queues(encoder: &mut DescriptorEncoder<'_>, reports: &BTreeMap<String, QueueReport>) -> fmt::Result {
    let labels = |name: &str| vec![("name", name.to_owned()), ("controller", name.to_owned())];
    let mut depths = Vec::new();
    for (name, report) in reports {
        for (priority, depth) in PRIORITIES.iter().zip(report.depths) {
            let mut labels = labels(name);
            labels.push(("priority", (*priority).to_owned()));
            depths.push((labels, depth));
        }
    }
    gauges(encoder, "workqueue_depth", "Keys ready to be taken, by queue and priority", depths)?;
    let all = || reports.iter().map(|(name, report)| (labels(name), report));
    let adds = all().map(|(labels, report)| (labels, report.stats.adds_total)).collect();
    counters(encoder, "workqueue_adds", "Adds that were not merged into an earlier one", adds)?;
    let waited = all().map(|(labels, report)| (labels, &report.times.waited)).collect();
    histograms(encoder, "workqueue_queue_duration_seconds", "How long keys wait in the queue", waited)?;
    let worked = all().map(|(labels, report)| (labels, &report.times.worked)).collect();
    histograms(encoder, "workqueue_work_duration_seconds", "How long keys are processed", worked)?;
    let unfinished = all().map(|(labels, report)| (labels, seconds(report.unfinished))).collect();
    let help = "For how long the keys in processing have been processed, in sum";
    gauges(encoder, "workqueue_unfinished_work_seconds", help, unfinished)?;
    let longest = all().map(|(labels, report)| (labels, seconds(report.longest))).collect();
    let help = "For how long the key in processing has been processed that was taken first";
    gauges(encoder, "workqueue_longest_running_processor_seconds", help, longest)?;
    let retries = all().map(|(labels, report)| (labels, report.stats.retries_total)).collect();
    counters(encoder, "workqueue_retries", "Rate-limited adds", retries)
}

fn encode_controllers(encoder: &mut DescriptorEncoder<'_>, controllers: &BTreeMap<String, Controller>) -> fmt::Result {
    let labels = |name: &str| vec![("controller", name.to_owned())];
    let mut results = Vec::new();
    for (name, controller) in controllers {
        let totals = &controller.totals;
        let by_result = [
            ("error", totals.n_failed),
            ("requeue", totals.n_requeued),
            ("requeue_after", totals.n_requeued_after),
            ("success", totals.n_succeeded),
        ];
        for (result, count) in by_result {
            results.push((vec![("controller", name.clone()), ("result", result.to_owned())], count));
        }
    }
    counters(encoder, "controller_runtime_reconcile", "Reconciles by result", results)?;
    type Total = fn(&ControllerTotals) -> u64;
    let totals: [(&str, &str, Total); 4] = [
        ("controller_runtime_reconcile_errors", "Reconciles that failed", |totals| totals.n_failed),
        ("controller_runtime_terminal_reconcile_errors", "Errors that are not retried", |totals| totals.n_terminal),
        ("controller_runtime_reconcile_panics", "Reconciles that panicked", |totals| totals.n_panicked),
        ("controller_runtime_reconcile_timeouts", "Reconciles that took too long", |totals| totals.n_timed_out),
    ];
    for (name, help, total) in totals {
        let samples = controllers.iter().map(|(name, of)| (labels(name), total(&of.totals))).collect();
        counters(encoder, name, help, samples)?;
    }
    let times = controllers.iter().map(|(name, of)| (labels(name), &of.totals.times)).collect();
    histograms(encoder, "controller_runtime_reconcile_time_seconds", "How long reconciles take", times)?;
    let workers = controllers.iter().map(|(name, of)| (labels(name), of.workers)).collect();
    gauges(encoder, "controller_runtime_max_concurrent_reconciles", "Number of workers", workers)?;
    let active = controllers.iter().map(|(name, of)| (labels(name), of.totals.active_workers)).collect();
    gauges(encoder, "controller_runtime_active_workers", "Number of workers that run a reconcile", active)
}

fn encode_informers(encoder: &mut DescriptorEncoder<'_>, caches: BTreeMap<[String; 4], Cache>) -> fmt::Result {
    let (mut queued, mut versions, mut ages, mut relists) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for ([name, group, version, resource], cache) in caches {
        let labels = vec![("name", name), ("group", group), ("version", version), ("resource", resource)];
        if let Some(version) = cache.resource_version {
            versions.push((labels.clone(), version));
        }
        if let Some(since_heard) = cache.since_heard {
            ages.push((labels.clone(), seconds(since_heard)));
        }
        for (reason, n) in cache.relists {
            let mut labels = labels.clone();
            labels.push(("reason", reason.to_owned()));
            relists.push((labels, n));
        }
        queued.push((labels, cache.queued));
    }
    gauges(encoder, "informer_queued_items", "Events that handlers have not heard yet", queued)?;
    gauges(encoder, "informer_store_resource_version", "The resource version that the cache has reached", versions)?;
    let help = "Time since the last event, bookmark or list";
    gauges(encoder, "steersman_informer_staleness_seconds", help, ages)?;
    counters(encoder, "steersman_informer_relists", "Lists after the first, by what made them necessary", relists)
}

/// Follows client-go (`tools/leaderelection/metrics.go`).
#[cfg(feature = "election")]
fn encode_elections(encoder: &mut DescriptorEncoder<'_>, leaders: &[Arc<Leadership>]) -> fmt::Result {
    let (mut statuses, mut slow) = (BTreeMap::new(), BTreeMap::new());
    for leadership in leaders {
        let name = leadership.lease();
        *statuses.entry(name).or_insert(0_u64) |= u64::from(leadership.is_leading());
        *slow.entry(name).or_insert(0_u64) += leadership.n_slow_renewals();
    }
    let samples =
        |of: BTreeMap<&str, u64>| of.into_iter().map(|(name, n)| (vec![("name", name.to_owned())], n)).collect();
    gauges(encoder, "leader_election_master_status", "Whether this replica holds the lease", samples(statuses))?;
    let help = "Renewals of a lease that had to read it first";
    counters(encoder, "leader_election_slowpath", help, samples(slow))
}

#[cfg(feature = "shard")]
fn encode_shards(encoder: &mut DescriptorEncoder<'_>, groups: &BTreeMap<String, Report>) -> fmt::Result {
    let labels = |group: &str| vec![("group", group.to_owned())];
    let slots = groups.iter().map(|(group, report)| (labels(group), report.slots)).collect();
    gauges(encoder, "steersman_shard_slots_held", "Slots on whose keys this replica works, of 1024", slots)?;
    let members = groups.iter().map(|(group, report)| (labels(group), report.members)).collect();
    gauges(encoder, "steersman_shard_members", "Replicas that this one sees alive, itself included", members)?;
    type Total = fn(&Report) -> u64;
    let totals: [(&str, &str, Total); 4] = [
        ("steersman_shard_slots_gained", "Slots that came to this replica", |report| report.n_gained),
        ("steersman_shard_slots_lost", "Slots that went from this replica", |report| report.n_lost),
        ("steersman_shard_renewals_late", "Renewals sent more than two periods after the one before", |report| {
            report.n_late
        }),
        ("steersman_shard_stops", "Times when all work had to stop", |report| report.n_stops),
    ];
    for (name, help, total) in totals {
        let samples = groups.iter().map(|(group, report)| (labels(group), total(report))).collect();
        counters(encoder, name, help, samples)?;
    }
    Ok(())
}

#[cfg(feature = "events")]
fn encode_events(encoder: &mut DescriptorEncoder<'_>, recorders: &[Arc<Stats>]) -> fmt::Result {
    let mut totals = BTreeMap::new();
    for stats in recorders {
        for (outcome, n) in stats.outcomes() {
            *totals.entry((stats.component.as_str(), outcome)).or_insert(0_u64) += n;
        }
    }
    let labels =
        |(component, outcome): (&str, &str)| vec![("component", component.to_owned()), ("outcome", outcome.to_owned())];
    let samples = totals.into_iter().map(|(of, n)| (labels(of), n)).collect();
    counters(encoder, "steersman_events", "Events that were recorded, by outcome", samples)
}

/// The first four families are those of controller-runtime (`pkg/webhook/internal/metrics`), whose label `webhook` is the path.
#[cfg(feature = "webhook")]
fn encode_webhooks(encoder: &mut DescriptorEncoder<'_>, totals: &Totals) -> fmt::Result {
    let labels = |path: &str| vec![("webhook", path.to_owned())];
    let with = |path: &str, name, value: String| vec![("webhook", path.to_owned()), (name, value)];
    let answers = totals.answers.iter().map(|((path, code), count)| (with(path, "code", code.to_string()), *count));
    counters(encoder, "controller_runtime_webhook_requests", "Calls of webhooks by HTTP status", answers.collect())?;
    let times = totals.seconds.iter().map(|(path, seconds)| (labels(path), seconds));
    let help = "How long calls of webhooks take";
    histograms(encoder, "controller_runtime_webhook_latency_seconds", help, times.collect())?;
    let panics = totals.outcomes.iter().filter(|((_, outcome), _)| *outcome == "panicked");
    let panics = panics.map(|((path, _), count)| (labels(path), *count)).collect();
    counters(encoder, "controller_runtime_webhook_panics", "Calls of webhooks whose function panicked", panics)?;
    let under_way = totals.under_way.iter().map(|(path, n)| (labels(path), *n)).collect();
    gauges(encoder, "controller_runtime_webhook_requests_in_flight", "Calls of webhooks under way", under_way)?;
    let outcomes = totals.outcomes.iter();
    let outcomes = outcomes.map(|((path, outcome), count)| (with(path, "outcome", (*outcome).to_owned()), *count));
    counters(encoder, "steersman_webhook_calls", "Calls of webhooks by outcome", outcomes.collect())?;
    let expiry = totals.expiry.map(|expiry| (Vec::new(), expiry as f64)).into_iter().collect();
    let help = "When the certificate of the webhooks expires";
    gauges(encoder, "steersman_webhook_certificate_expiry_timestamp_seconds", help, expiry)
}

// === one family ===

pub(crate) fn counters(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: Samples<u64>,
) -> fmt::Result {
    family(encoder, name, help, MetricType::Counter, samples, |encoder, value| {
        encoder.encode_counter::<NoLabelSet, u64, f64>(&value, None)
    })
}

fn gauges<T: Into<Gauge>>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: Samples<T>,
) -> fmt::Result {
    family(encoder, name, help, MetricType::Gauge, samples, |encoder, value| match value.into() {
        Gauge::Count(count) => encoder.encode_gauge(&count),
        Gauge::Seconds(seconds) => encoder.encode_gauge(&seconds),
    })
}

pub(crate) fn histograms(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: Samples<&Histogram>,
) -> fmt::Result {
    family(encoder, name, help, MetricType::Histogram, samples, |encoder, histogram| {
        encoder.encode_histogram::<NoLabelSet>(histogram.sum(), histogram.count(), &histogram.buckets(), None)
    })
}

/// Writes one family; nothing if it has no samples.
fn family<T>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    kind: MetricType,
    samples: Samples<T>,
    encode: impl Fn(&mut MetricEncoder<'_>, T) -> fmt::Result,
) -> fmt::Result {
    if samples.is_empty() {
        return Ok(());
    }
    let mut family = encoder.encode_descriptor(name, help, None, kind)?;
    for (labels, value) in samples {
        encode(&mut family.encode_family(&labels)?, value)?;
    }
    Ok(())
}

enum Gauge {
    Count(u64),
    Seconds(f64),
}

impl From<u64> for Gauge {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<usize> for Gauge {
    fn from(count: usize) -> Self {
        Self::Count(count as u64)
    }
}

impl From<f64> for Gauge {
    fn from(seconds: f64) -> Self {
        Self::Seconds(seconds)
    }
}

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}
