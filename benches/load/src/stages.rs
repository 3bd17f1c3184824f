//! The stages of a run, each on a fresh server of ours or in a namespace of its own, with the rows that they fill.

mod admission;
mod definitions;
mod flood;
mod lists;
mod many;
pub(crate) mod scale;
mod watches;
mod writes;

use std::sync::Arc;

use crate::errors::Errors;
use crate::results::{IsWanted, Results};
use crate::stage::{Bounds, Site, Stage};

/// The work of a stage on one server, from its start to its end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Admission,
    Definitions,
    Events,
    Fanout,
    Flood,
    Idle,
    Lists,
    Many,
    Writes,
}

/// Quantities that the titles of rows do not contain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    pub(crate) idle_watchers: usize,
    /// Whether the opening of a million objects is measured too.
    pub(crate) is_million: bool,
}

/// All stages, in the order of a run, with the rows that they fill.
pub(crate) const ALL: &[(Kind, &[&str])] = &[
    (Kind::Writes, &["create", "patch", "apply", "get"]),
    (Kind::Admission, &["admission-none", "admission-policy", "admission-policies", "admission-webhook"]),
    (
        Kind::Lists,
        &[
            "list",
            "list-table",
            "list-yaml",
            "list-pretty",
            "table-row",
            "delete-collection",
            "memory-idle",
            "memory-23000",
        ],
    ),
    (Kind::Fanout, &["fanout", "fanout-single"]),
    (Kind::Events, &["selective", "metadata"]),
    (Kind::Flood, &["flood", "flood-namespace"]),
    (Kind::Definitions, &["definitions", "definitions-1000"]),
    (Kind::Many, &["memory-100000", "open", "open-1000000"]),
    (Kind::Idle, &["idle-http1", "idle-http2"]),
];

/// Runs one stage to its end. Where that saves time, only the rows that `is_wanted` selects are measured.
///
/// # Errors
///
/// If it could not be carried out; `results` has the earlier measurements.
pub(crate) async fn run(
    kind: Kind,
    site: &Site,
    bounds: Bounds,
    counts: Counts,
    errors: &Arc<Errors>,
    is_wanted: &IsWanted<'_>,
    results: &mut Results,
) -> anyhow::Result<()> {
    let name = match kind {
        Kind::Admission => "admission",
        Kind::Definitions => "definitions",
        Kind::Events => "events",
        Kind::Fanout => "fanout",
        Kind::Flood => "flood",
        Kind::Idle => "idle",
        Kind::Lists => "lists",
        Kind::Many => "many",
        Kind::Writes => "writes",
    };
    let mut stage = Stage::open(site, name, bounds, errors).await?;
    let measured = match kind {
        Kind::Admission => admission::measure(&mut stage, site, is_wanted, results).await,
        Kind::Definitions => definitions::measure(&stage, is_wanted, results).await,
        Kind::Events => watches::measure_events(&stage, is_wanted, results).await,
        Kind::Fanout => watches::measure_fanout(&mut stage, is_wanted, results).await,
        Kind::Flood => flood::measure(&mut stage, is_wanted, results).await,
        Kind::Idle => watches::measure_idle(&mut stage, counts.idle_watchers, is_wanted, results).await,
        Kind::Lists => lists::measure(&mut stage, is_wanted, results).await,
        Kind::Many => many::measure(&mut stage, counts.is_million, results).await,
        Kind::Writes => writes::measure(&mut stage, is_wanted, results).await,
    };
    // A failed stage is cleaned up too.
    measured.and(stage.close().await)
}
