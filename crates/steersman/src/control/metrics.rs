//! The Prometheus metrics of a process of controllers, under the names that the ecosystem's dashboards use.
//!
//! Nothing is pushed: queues, controllers, elections and informers keep their own counts, and a scrape reads those that
//! still exist. Only requests to the server are counted here (`requests`), because no other part handles them all.
//! Nothing is global: two managers have two sets of metrics, or share the one they are given. `families` has the names.

mod families;
mod requests;
mod text;

use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::cache::factory::{InformerFactory, ObservedInformers};
use crate::control::controller::stats::ControllerStats;
use crate::control::metrics::requests::Requests;
use crate::control::queue::{Key, Measured, WorkQueue};
use crate::leadership::election::Leadership;
#[cfg(feature = "shard")]
use crate::leadership::shard::{self, Shards};
#[cfg(feature = "events")]
use crate::writing::events::{self, EventRecorder};

pub use prometheus_client;

pub use crate::control::metrics::requests::{MeasuredBody, RequestMetrics, RequestMetricsLayer};
pub use crate::control::metrics::text::MetricsFormat;

/// The metrics of a manager, or of the parts registered with them. Clones share one set.
///
/// Families and labels are those of controller-runtime and client-go, so their dashboards and alerts work:
///
/// | Name | Type | Labels | Says |
/// |---|---|---|---|
/// | `workqueue_depth` | gauge | `name`, `controller`, `priority` | keys ready to be taken |
/// | `workqueue_adds_total` | counter | `name`, `controller` | adds that were not merged into an earlier one |
/// | `workqueue_queue_duration_seconds` | histogram | `name`, `controller` | how long keys wait |
/// | `workqueue_work_duration_seconds` | histogram | `name`, `controller` | how long keys are processed |
/// | `workqueue_unfinished_work_seconds` | gauge | `name`, `controller` | how long unfinished keys have been processed, in sum |
/// | `workqueue_longest_running_processor_seconds` | gauge | `name`, `controller` | the longest of these |
/// | `workqueue_retries_total` | counter | `name`, `controller` | rate-limited adds |
/// | `controller_runtime_reconcile_total` | counter | `controller`, `result` | results: `success`, `requeue`, `requeue_after`, `error` |
/// | `controller_runtime_reconcile_errors_total` | counter | `controller` | results that were errors, panics and timeouts among them |
/// | `controller_runtime_terminal_reconcile_errors_total` | counter | `controller` | errors that are not retried |
/// | `controller_runtime_reconcile_panics_total` | counter | `controller` | panics |
/// | `controller_runtime_reconcile_timeouts_total` | counter | `controller` | timeouts |
/// | `controller_runtime_reconcile_time_seconds` | histogram | `controller` | how long a reconcile takes |
/// | `controller_runtime_max_concurrent_reconciles` | gauge | `controller` | number of workers |
/// | `controller_runtime_active_workers` | gauge | `controller` | workers that run a reconcile now |
/// | `leader_election_master_status` | gauge | `name` | 1 while this replica holds the lease |
/// | `leader_election_slowpath_total` | counter | `name` | renewals that had to read the lease first, because it was not as expected |
/// | `steersman_shard_slots_held` | gauge | `group` | slots on whose keys this replica works, of 1,024 |
/// | `steersman_shard_members` | gauge | `group` | replicas that this one sees alive, itself included |
/// | `steersman_shard_slots_gained_total` | counter | `group` | slots that came to this replica, without those that it held before and processes again |
/// | `steersman_shard_slots_lost_total` | counter | `group` | slots that went from it |
/// | `steersman_shard_renewals_late_total` | counter | `group` | renewals sent more than two periods after the one before |
/// | `steersman_shard_stops_total` | counter | `group` | times when all work had to stop, because the lease could not be renewed |
/// | `rest_client_requests_total` | counter | `code`, `method`, `host` | answers by status, `<error>` without one |
/// | `rest_client_request_duration_seconds` | histogram | `verb`, `host` | time to the end of the answer, without watches |
/// | `rest_client_request_size_bytes` | histogram | `verb`, `host` | bodies sent, where their length is known |
/// | `rest_client_response_size_bytes` | histogram | `verb`, `host` | bodies received, without watches |
/// | `controller_runtime_webhook_requests_total` | counter | `webhook`, `code` | calls of webhooks by path and HTTP status |
/// | `controller_runtime_webhook_latency_seconds` | histogram | `webhook` | how long calls take |
/// | `controller_runtime_webhook_requests_in_flight` | gauge | `webhook` | calls under way |
/// | `controller_runtime_webhook_panics_total` | counter | `webhook` | calls whose function panicked |
/// | `steersman_webhook_calls_total` | counter | `webhook`, `outcome` | calls by outcome: `allowed`, `mutated`, `denied`, `converted`, `failed`, `malformed`, `panicked`, `timed_out`, `abandoned` |
/// | `steersman_webhook_certificate_expiry_timestamp_seconds` | gauge | | when the certificate of webhooks expires |
/// | `steersman_events_total` | counter | `component`, `outcome` | Events of recorders by outcome: `sent`, `refused`, `unanswered`, `queue_full` |
/// | `informer_queued_items` | gauge | `name`, `group`, `version`, `resource` | events that wait for handlers |
/// | `informer_store_resource_version` | gauge | `name`, `group`, `version`, `resource` | the version up to which the cache is filled |
/// | `steersman_informer_staleness_seconds` | gauge | `name`, `group`, `version`, `resource` | how stale the cache may be: time since the last event, bookmark or list. Servers send a bookmark about once a minute |
/// | `steersman_informer_relists_total` | counter | `name`, `group`, `version`, `resource`, `reason` | lists after the first, by what made them necessary: for instance `expired` (the server has forgotten the version), `stale` (a controller waited more than five minutes for what it wrote), `transport`, `refused`; a reason is there once it was one |
///
/// The priorities of `workqueue_depth` are `-100` (initial list and resyncs), `0` and `100`. The values of two sources
/// with one name are added up. A source is reported for as long as it exists.
///
/// ```
/// use steersman::metrics::{Metrics, MetricsFormat};
/// use steersman::queue::{RateLimiter, WorkQueue};
///
/// let metrics = Metrics::new();
/// let queue: WorkQueue = WorkQueue::new("networks", RateLimiter::default());
/// metrics.observe_queue(&queue);
/// let text = metrics.encode(MetricsFormat::Prometheus);
/// assert!(text.contains(r#"workqueue_adds_total{name="networks",controller="networks"} 0"#));
/// ```
#[derive(Clone)]
pub struct Metrics {
    shared: Arc<Shared>,
}

struct Shared {
    registry: Mutex<Registry>,
    sources: Arc<Sources>,
}

/// The places from which a scrape reads its values.
#[derive(Default)]
struct Sources {
    controllers: Mutex<Vec<ControllerSource>>,
    #[cfg(feature = "events")]
    events: Mutex<Vec<Weak<events::stats::Stats>>>,
    informers: Mutex<Vec<InformerSource>>,
    leaders: Mutex<Vec<Weak<Leadership>>>,
    queues: Mutex<Vec<Weak<dyn Measured>>>,
    requests: Arc<Requests>,
    #[cfg(feature = "shard")]
    shards: Mutex<Vec<Weak<dyn shard::stats::Measured>>>,
    #[cfg(feature = "webhook")]
    webhooks: Mutex<Vec<Weak<crate::webhook::Stats>>>,
}

#[derive(Clone)]
struct ControllerSource {
    name: String,
    workers: usize,
    stats: Weak<ControllerStats>,
}

#[derive(Clone)]
struct InformerSource {
    name: String,
    informers: Weak<dyn ObservedInformers>,
}

// === impl Metrics ===

impl Metrics {
    /// Metrics without sources.
    pub fn new() -> Self {
        let sources = Arc::new(Sources::default());
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Arc::clone(&sources)));
        Self { shared: Arc::new(Shared { registry: Mutex::new(registry), sources }) }
    }

    /// Adds custom metrics: `edit` registers them with `prometheus_client`.
    ///
    /// ```
    /// # use steersman::metrics::{Metrics, MetricsFormat};
    /// use steersman::metrics::prometheus_client::metrics::counter::Counter;
    ///
    /// let metrics = Metrics::new();
    /// let n_networks: Counter = Counter::default();
    /// metrics.register(|registry| registry.register("networks_made", "Networks made so far", n_networks.clone()));
    /// n_networks.inc();
    /// assert!(metrics.encode(MetricsFormat::Prometheus).contains("networks_made_total 1"));
    /// ```
    pub fn register(&self, edit: impl FnOnce(&mut Registry)) {
        edit(&mut self.shared.registry.lock());
    }

    /// Measures a queue from now on. A manager does this for the queues of its controllers.
    ///
    /// Measuring reads the clock three times for every key that goes through the queue.
    pub fn observe_queue<T: Key>(&self, queue: &WorkQueue<T>) {
        let queue = queue.measure();
        let mut queues = self.shared.sources.queues.lock();
        queues.retain(|known| known.strong_count() > 0 && !Weak::ptr_eq(known, &queue));
        queues.push(queue);
    }

    /// Reports whether a replica leads. A manager does this for its election.
    #[cfg(feature = "election")]
    pub fn observe_leadership(&self, leadership: &Arc<Leadership>) {
        let leadership = Arc::downgrade(leadership);
        let mut leaders = self.shared.sources.leaders.lock();
        leaders.retain(|known| known.strong_count() > 0 && !Weak::ptr_eq(known, &leadership));
        leaders.push(leadership);
    }

    /// Reports which part of its group's keys a replica holds. A manager does this for its own.
    #[cfg(feature = "shard")]
    pub fn observe_shards(&self, shards: &Shards) {
        let shards = shards.measured();
        let mut known = self.shared.sources.shards.lock();
        known.retain(|known| known.strong_count() > 0 && !Weak::ptr_eq(known, &shards));
        known.push(shards);
    }

    /// Reports the outcomes of the events of a recorder and its clones: which of them are lost, and why.
    #[cfg(feature = "events")]
    pub fn observe_events(&self, recorder: &EventRecorder) {
        let stats = Arc::downgrade(recorder.stats());
        let mut events = self.shared.sources.events.lock();
        events.retain(|known| known.strong_count() > 0 && !Weak::ptr_eq(known, &stats));
        events.push(stats);
    }

    /// Reports on the informers of a factory, including those made later; `name` becomes their label. A manager does
    /// this for its own.
    pub fn observe_informers(&self, name: &str, factory: &InformerFactory) {
        let informers = factory.observed();
        let mut sources = self.shared.sources.informers.lock();
        sources.retain(|known| known.informers.strong_count() > 0 && !Weak::ptr_eq(&known.informers, &informers));
        sources.push(InformerSource { name: name.to_owned(), informers });
    }

    #[cfg(feature = "webhook")]
    pub(crate) fn observe_webhooks(&self, stats: &Arc<crate::webhook::Stats>) {
        let stats = Arc::downgrade(stats);
        let mut webhooks = self.shared.sources.webhooks.lock();
        webhooks.retain(|known| known.strong_count() > 0 && !Weak::ptr_eq(known, &stats));
        webhooks.push(stats);
    }

    /// A layer that counts the requests of a client: for [`crate::ClientOptions::metrics`], or for
    /// `kube::client::ClientBuilder::with_layer`.
    pub fn request_layer(&self) -> RequestMetricsLayer {
        RequestMetricsLayer::new(Arc::clone(&self.shared.sources.requests))
    }

    /// All metrics as text.
    pub fn encode(&self, format: MetricsFormat) -> String {
        let mut text = String::new();
        if encode(&mut text, &self.shared.registry.lock()).is_err() {
            // Writing to a String does not fail, and the families of this crate have no other reason to fail.
            tracing::error!("a registered metric cannot be written; it and those after it are missing");
        }
        format.render(&text)
    }

    pub(crate) fn observe_controller(&self, name: &str, workers: usize, stats: &Arc<ControllerStats>) {
        let stats = Arc::downgrade(stats);
        let mut controllers = self.shared.sources.controllers.lock();
        controllers.retain(|known| known.stats.strong_count() > 0 && !Weak::ptr_eq(&known.stats, &stats));
        controllers.push(ControllerSource { name: name.to_owned(), workers, stats });
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("sources", &self.shared.sources).finish_non_exhaustive()
    }
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources")
            .field("queues", &self.queues.lock().len())
            .field("controllers", &self.controllers.lock().len())
            .field("leaders", &self.leaders.lock().len())
            .field("informers", &self.informers.lock().len())
            .finish_non_exhaustive()
    }
}
