//! Priority and fairness: the order of requests when there are more than the server can carry out at a time.
//!
//! FlowSchemas sort requests into priority levels, by user and by attributes ([`table`]). A level has a number of
//! seats, and its flows wait for them in queues that are served fairly ([`queues`], [`level`]). Levels lend each other
//! unused seats ([`concurrency`]). The schemas and levels are objects in the store; one task follows them and maintains
//! the status of the schemas ([`follower`]). Follows KEP-1040 and apiserver's `util/flowcontrol`.
//!
//! A request that finds a free seat costs some lookups in a table without locks, one short lock of its level when it
//! begins and one when it ends: some hundred nanoseconds. Nothing is allocated unless it waits.

mod concurrency;
mod counts;
mod demand;
mod exposition;
mod follower;
mod level;
mod queues;
mod spec;
mod table;
mod work;

use crate::http::flowcontrol::concurrency::{Bounds, Need};
use crate::http::flowcontrol::counts::Counts;
use crate::http::flowcontrol::exposition::{LevelFigures, SchemaFigures};
use crate::http::flowcontrol::level::{Figures, Level, Tracked};
use crate::http::flowcontrol::queues::Policy;
use crate::http::flowcontrol::spec::{CATCH_ALL, Distinguisher};
use crate::http::flowcontrol::table::Table;
use crate::shared::follower::Progress;
use crate::shared::operation::Attributes;
use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;
use steersman_kinds::user::User;

pub(crate) use crate::http::flowcontrol::follower::{resources, start};
pub(crate) use crate::http::flowcontrol::level::Seat;
pub(crate) use crate::http::flowcontrol::table::Schema;
pub(crate) use crate::http::flowcontrol::work::{Kind, WorkEstimate};

/// The headers of every answer with the classification of its request.
const SCHEMA_HEADER: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const LEVEL_HEADER: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// Priority and fairness of a server.
#[derive(Debug)]
pub(crate) struct FlowControl {
    table: ArcSwap<Table>,
    /// The seats of the server.
    total: u32,
    /// Hashes flows. Its keys are random, so that nobody can choose names whose flows share queues.
    hasher: RandomState,
    /// Changed by the follower only.
    configured: Mutex<Configured>,
    progress: Progress,
}

/// The levels and counts in force, made by the follower from the objects in the store.
#[derive(Debug, Default)]
struct Configured {
    levels: BTreeMap<Box<str>, (Tracked, Bounds, Policy)>,
    /// Counts of each schema in force at its level.
    counts: BTreeMap<(Box<str>, Box<str>), Arc<Counts>>,
}

// === impl FlowControl ===

impl FlowControl {
    /// The mandatory levels and schemas, for a server with this many seats.
    pub(crate) fn new(total: u32) -> FlowControl {
        let mut configured = Configured::default();
        let table = configured.apply(total, spec::Level::mandatory().into(), spec::Schema::mandatory().into());
        FlowControl {
            table: ArcSwap::from_pointee(table),
            total,
            hasher: RandomState::new(),
            configured: Mutex::new(configured),
            progress: Progress::default(),
        }
    }

    /// Up to which revision the schemas and levels in the store are in force.
    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The schema of a request.
    pub(crate) fn classify(&self, user: &User, attributes: &Attributes<'_>) -> Arc<Schema> {
        self.table.load().find(user, attributes).clone()
    }

    /// Admits a request when it is its turn, after `wait_max` at the latest. `None` if it is rejected.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the queue.
    pub(crate) async fn admit(
        &self,
        schema: &Schema,
        user: &User,
        attributes: &Attributes<'_>,
        kind: &Kind<'_>,
        wait_max: Duration,
    ) -> Option<Seat> {
        let work = WorkEstimate::estimate(kind, schema.level.seats_max());
        let flow = match (schema.distinguisher, attributes) {
            (Some(Distinguisher::ByNamespace), Attributes::Resource(of)) => of.namespace.unwrap_or(""),
            (Some(Distinguisher::ByUser), _) => &user.name,
            (Some(Distinguisher::ByNamespace) | None, _) => "",
        };
        let flow = self.hasher.hash_one((&*schema.name, flow));
        let admitted = schema.level.admit(&schema.counts, flow, work, wait_max).await;
        admitted.inspect_err(|reason| tracing::debug!(?reason, schema = %schema.name, "a request is rejected")).ok()
    }

    /// Puts levels and schemas in force, in addition to the mandatory ones. Requests in flight stay at their levels.
    fn apply(&self, levels: Vec<spec::Level>, schemas: Vec<spec::Schema>) {
        let table = self.configured.lock().apply(self.total, levels, schemas);
        self.table.store(Arc::new(table));
    }

    /// Divides the seats again, by the demand since the last call.
    fn divide(&self) {
        let mut configured = self.configured.lock();
        let mut needs = Vec::with_capacity(configured.levels.len());
        for (tracked, bounds, policy) in configured.levels.values_mut() {
            let period = tracked.level.end_period();
            tracked.demand.add(period);
            let (high, demand) = (period.high, tracked.demand.value);
            needs.push(Need { bounds: *bounds, is_exempt: *policy == Policy::Exempt, high, demand });
        }
        for (limit, (tracked, ..)) in concurrency::divide(&needs).into_iter().zip(configured.levels.values()) {
            tracked.level.set_limit(limit);
        }
    }

    /// The metrics in Prometheus' text format.
    pub(crate) fn exposition(&self) -> String {
        let configured = self.configured.lock();
        let mut levels = Vec::with_capacity(configured.levels.len());
        for (name, (tracked, bounds, _)) in &configured.levels {
            let Figures { limit, seats_in_use, .. } = tracked.level.figures();
            levels.push(LevelFigures {
                level: name.clone(),
                bounds: *bounds,
                limit,
                seats_in_use,
                demand: tracked.demand,
            });
        }
        let schema = |((schema, level), counts): (&(Box<str>, Box<str>), &Arc<Counts>)| SchemaFigures {
            schema: schema.clone(),
            level: level.clone(),
            counts: counts.clone(),
        };
        let schemas: Vec<SchemaFigures> = configured.counts.iter().map(schema).collect();
        drop(configured);
        exposition::text(&schemas, &levels)
    }

    /// The levels in the form of apiserver's `/debug/api_priority_and_fairness/dump_priority_levels`.
    pub(crate) fn dump_levels(&self) -> String {
        let mut text = "PriorityLevelName, ActiveQueues, IsIdle, IsQuiescing, WaitingRequests, ExecutingRequests, \
                        DispatchedRequests, RejectedRequests, TimedoutRequests, CancelledRequests\n"
            .to_owned();
        let configured = self.configured.lock();
        for (name, (tracked, ..)) in &configured.levels {
            let figures = tracked.level.figures();
            let of_level = || configured.counts.iter().filter(|((_, level), _)| level == name);
            let dispatched: u64 = of_level().map(|(_, counts)| counts.n_dispatched()).sum();
            let rejected = |reasons: &[&str]| -> u64 {
                let all = of_level().flat_map(|(_, counts)| counts.rejections());
                all.filter(|(reason, _)| reasons.contains(reason)).map(|(_, n)| n).sum()
            };
            text.push_str(&format!(
                "{name}, {}, {}, false, {}, {}, {dispatched}, {}, {}, {}\n",
                figures.n_active_queues,
                figures.n_executing == 0 && figures.n_waiting == 0,
                figures.n_waiting,
                figures.n_executing,
                rejected(&["concurrency-limit", "queue-full"]),
                rejected(&["time-out"]),
                rejected(&["cancelled"]),
            ));
        }
        text
    }
}

impl Schema {
    /// Sets the headers of an answer with the classification of its request.
    pub(crate) fn label(&self, headers: &mut HeaderMap) {
        let ids: [(HeaderName, &Option<HeaderValue>); 2] =
            [(SCHEMA_HEADER, &self.uid), (LEVEL_HEADER, &self.level_uid)];
        for (name, id) in ids {
            if let Some(id) = id {
                headers.insert(name, id.clone());
            }
        }
    }
}

// === impl Configured ===

impl Configured {
    /// Updates the levels from their specifications, and compiles a table of the schemas. Removed levels take no new
    /// requests, but go on with those that they have. Schemas whose level does not exist are left out.
    fn apply(&mut self, total: u32, mut levels: Vec<spec::Level>, mut schemas: Vec<spec::Schema>) -> Table {
        for mandatory in spec::Level::mandatory() {
            if !levels.iter().any(|level| level.name == mandatory.name) {
                levels.push(mandatory);
            }
        }
        for mandatory in spec::Schema::mandatory() {
            if !schemas.iter().any(|schema| schema.name == mandatory.name) {
                schemas.push(mandatory);
            }
        }
        let shares: Vec<_> = levels.iter().map(|level| level.shares).collect();
        let bounds = concurrency::bounds(total, &shares);
        let mut before = std::mem::take(&mut self.levels);
        let mut uids = BTreeMap::new();
        for (spec, bounds) in levels.into_iter().zip(bounds) {
            let tracked = match before.remove(&spec.name) {
                Some((tracked, old, policy)) => {
                    if (old, policy) != (bounds, spec.policy) {
                        tracked.level.configure(spec.policy, bounds.nominal);
                        tracked.level.set_limit(bounds.nominal);
                    }
                    tracked
                }
                None => {
                    let level = Arc::new(Level::new(&spec.name, spec.policy, bounds.nominal));
                    Tracked { level, demand: demand::Smoothed::default() }
                }
            };
            uids.insert(spec.name.clone(), HeaderValue::from_str(&spec.uid).ok().filter(|uid| !uid.is_empty()));
            self.levels.insert(spec.name, (tracked, bounds, spec.policy));
        }
        schemas.sort_by(|one, other| (one.precedence, &one.name).cmp(&(other.precedence, &other.name)));
        let mut compiled = Vec::with_capacity(schemas.len());
        for spec in schemas {
            if let Some(schema) = self.schema(&spec, &uids) {
                compiled.push((schema, spec.rules));
            }
        }
        let last =
            compiled.iter().rev().find(|(schema, _)| &*schema.name == CATCH_ALL).map(|(schema, _)| schema.clone());
        // A stored catch-all whose level does not exist is left out like any other.
        let last = last.unwrap_or_else(|| {
            let [_, catch_all] = spec::Schema::mandatory();
            self.schema(&catch_all, &uids).expect("invariant: the level catch-all was added above")
        });
        let table = Table::new(compiled, last);
        self.counts.retain(|(schema, level), _| table.has(schema, level));
        table
    }

    fn schema(
        &mut self,
        spec: &spec::Schema,
        level_uids: &BTreeMap<Box<str>, Option<HeaderValue>>,
    ) -> Option<Arc<Schema>> {
        let (tracked, ..) = self.levels.get(&spec.level)?;
        let counts = self.counts.entry((spec.name.clone(), spec.level.clone())).or_default().clone();
        Some(Arc::new(Schema {
            name: spec.name.clone(),
            uid: HeaderValue::from_str(&spec.uid).ok().filter(|uid| !uid.is_empty()),
            level_uid: level_uids.get(&spec.level).cloned().flatten(),
            level: tracked.level.clone(),
            distinguisher: spec.distinguisher,
            counts,
        }))
    }
}
