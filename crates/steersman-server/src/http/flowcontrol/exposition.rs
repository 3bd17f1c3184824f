//! The metrics of priority and fairness, under the names of kube-apiserver.
//!
//! | Name, after `apiserver_flowcontrol_` | Type | Value |
//! |---|---|---|
//! | `dispatched_requests_total`, `rejected_requests_total` | counter | requests by schema; rejected ones by reason |
//! | `current_inqueue_requests`, `current_executing_requests`, `current_executing_seats` | gauge | requests under way by schema |
//! | `request_wait_duration_seconds` | histogram | time in a queue, of those that were executed then and those that were not |
//! | `request_execution_seconds` | histogram | time for which seats were held |
//! | `request_concurrency_in_use` | gauge | seats in use at a level, with those kept for a moment after a write |
//! | `nominal_limit_seats`, `lower_limit_seats`, `upper_limit_seats`, `current_limit_seats` | gauge | limits of a level |
//! | `demand_seats_high_watermark`, `demand_seats_average`, `demand_seats_stdev`, `demand_seats_smoothed` | gauge | demand of the last period |

use crate::http::flowcontrol::concurrency::Bounds;
use crate::http::flowcontrol::counts::Counts;
use crate::http::flowcontrol::demand::Smoothed;
use crate::metrics::text::{Text, Type};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The counts of a schema at a level.
pub(super) struct SchemaFigures {
    pub(super) schema: Box<str>,
    pub(super) level: Box<str>,
    pub(super) counts: Arc<Counts>,
}

/// The figures of a level.
pub(super) struct LevelFigures {
    pub(super) level: Box<str>,
    pub(super) bounds: Bounds,
    pub(super) limit: u32,
    pub(super) seats_in_use: u32,
    pub(super) demand: Smoothed,
}

/// Reads one figure out of several.
type Figure<'a, T, N> = &'a dyn Fn(&T) -> N;

pub(super) fn text(schemas: &[SchemaFigures], levels: &[LevelFigures]) -> String {
    let mut text = Text::default();
    let dispatched = |counts: &Counts| counts.dispatched.load(Ordering::Relaxed) as i64;
    let kinds: [(&str, Type, &str, Figure<'_, Counts, i64>); 4] = [
        ("dispatched_requests_total", Type::Counter, "Requests that began to execute.", &dispatched),
        ("current_inqueue_requests", Type::Gauge, "Requests that wait in queues.", &|counts| {
            counts.waiting.load(Ordering::Relaxed)
        }),
        ("current_executing_requests", Type::Gauge, "Requests that execute.", &|counts| {
            counts.executing.load(Ordering::Relaxed)
        }),
        ("current_executing_seats", Type::Gauge, "Seats of the requests that execute.", &|counts| {
            counts.seats.load(Ordering::Relaxed)
        }),
    ];
    for (name, kind, help, value) in kinds {
        let name = full(name);
        text.family(&name, kind, help);
        for one in schemas {
            text.value(&name, &one.labels(), value(&one.counts));
        }
    }
    let rejected = full("rejected_requests_total");
    text.family(&rejected, Type::Counter, "Requests that were rejected, by reason.");
    for one in schemas {
        for (reason, n) in one.counts.rejections() {
            text.value(&rejected, &[one.labels().as_slice(), &[("reason", reason)]].concat(), n);
        }
    }
    let waits = full("request_wait_duration_seconds");
    text.family(&waits, Type::Histogram, "Seconds that requests waited in queues.");
    for one in schemas {
        let labels = |execute| [&[("execute", execute)], one.labels().as_slice()].concat();
        one.counts.waited.write_if_any(&mut text, &waits, &labels("true"));
        one.counts.waited_in_vain.write_if_any(&mut text, &waits, &labels("false"));
    }
    let executions = full("request_execution_seconds");
    text.family(&executions, Type::Histogram, "Seconds for which requests held their seats.");
    for one in schemas {
        one.counts.executed.write_if_any(&mut text, &executions, &one.labels());
    }
    let gauges: [(&str, &str, Figure<'_, LevelFigures, f64>); 9] = [
        ("request_concurrency_in_use", "Seats in use.", &|one| f64::from(one.seats_in_use)),
        ("nominal_limit_seats", "Seats by shares.", &|one| f64::from(one.bounds.nominal)),
        ("lower_limit_seats", "Seats that are not lent.", &|one| f64::from(one.bounds.min)),
        ("upper_limit_seats", "Seats with all that may be borrowed.", &|one| f64::from(one.bounds.max)),
        ("current_limit_seats", "Seats at present.", &|one| f64::from(one.limit)),
        ("demand_seats_high_watermark", "The most seats wanted in the last period.", &|one| {
            f64::from(one.demand.last.high)
        }),
        ("demand_seats_average", "Seats wanted in the last period, on average.", &|one| one.demand.last.average),
        ("demand_seats_stdev", "The standard deviation of the seats wanted in the last period.", &|one| {
            one.demand.last.deviation
        }),
        ("demand_seats_smoothed", "Seats wanted, smoothed over the periods.", &|one| one.demand.value),
    ];
    for (name, help, value) in gauges {
        let name = full(name);
        text.family(&name, Type::Gauge, help);
        for one in levels {
            text.value(&name, &[("priority_level", &one.level)], value(one));
        }
    }
    text.into_string()
}

fn full(name: &str) -> String {
    format!("apiserver_flowcontrol_{name}")
}

impl SchemaFigures {
    fn labels(&self) -> [(&'static str, &str); 2] {
        [("flow_schema", &self.schema), ("priority_level", &self.level)]
    }
}
