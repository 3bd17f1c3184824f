//! Growth of cost with the number of objects, watchers, definitions, and objects with watchers. Each has a server of
//! its own and is measured at every power of ten.

use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

use crate::errors::Errors;
use crate::objects::{self, DEFINITIONS, WIDGETS};
use crate::stage::{Bounds, Site, Stage};
use crate::stages::{lists, many, watches, writes};
use bench_client::target::JSON;

/// The quantity that grows.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Scale {
    /// 1,000 to 1,000,000 objects
    Objects,
    /// 1 to 10,000 watchers
    Watchers,
    /// 1 to 1,000 definitions
    Definitions,
    /// 1,000 to 1,000,000 objects, and a watcher of all of them for each hundred
    ObjectsAndWatchers,
}

/// Figures at each step of growth.
#[derive(Debug, Serialize)]
pub(crate) struct Growth {
    pub(crate) title: &'static str,
    pub(crate) columns: &'static [&'static str],
    /// The quantity at each step, and a figure for each column, where it is known.
    pub(crate) lines: Vec<(u64, Vec<Option<f64>>)>,
}

/// The duration of each measurement per second.
const STEP: Duration = Duration::from_secs(2);
const OBJECTS: &[u64] = &[1_000, 10_000, 100_000, 1_000_000];
const WATCHERS: &[u64] = &[1, 10, 100, 1_000, 10_000];
const DEFINITION_STEPS: &[u64] = &[1, 10, 100, 200, 500, 1_000];
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Measures up to a quantity of `max`.
///
/// # Errors
///
/// If a step could not be carried out.
pub(crate) async fn measure(
    scale: Scale,
    max: u64,
    site: &Site,
    bounds: Bounds,
    errors: &Arc<Errors>,
) -> anyhow::Result<Growth> {
    let mut stage = Stage::open(site, "scale", Bounds { duration: STEP, ..bounds }, errors).await?;
    let measured = match scale {
        Scale::Definitions => definitions(&mut stage, max).await,
        Scale::ObjectsAndWatchers => with_both(&mut stage, max).await,
        Scale::Objects => with_objects(&mut stage, max).await,
        Scale::Watchers => with_watchers(&mut stage, max).await,
    };
    stage.close().await?;
    measured
}

async fn with_objects(stage: &mut Stage, max: u64) -> anyhow::Result<Growth> {
    const COLUMNS: &[&str] = &[
        "creates/s",
        "create CPU us",
        "resident MB",
        "patch CPU us",
        "GET CPU us",
        "list s",
        "page of 500 ms",
        "open s",
    ];
    let mut growth = Growth { title: "objects", columns: COLUMNS, lines: Vec::new() };
    stage.define_widgets().await?;
    let path = objects::widgets_path(&stage.namespace);
    let mut n_objects = 0;
    for n in up_to(OBJECTS, max) {
        let meter = stage.meter()?;
        let filled = stage.fill(n_objects, n).await?;
        let created = meter.rate(stage, &filled)?;
        n_objects = n;
        let resident_mb = stage.resident_mb().await?;
        let patched = writes::patch(stage, n, STEP).await?;
        let got = writes::get(stage, n, STEP).await?;
        let listed = lists::list(stage, &path, JSON).await?;
        let page = lists::list(stage, &format!("{path}?limit=500"), JSON).await?;
        let opened_s = many::opened_s(stage, 1).await?;
        let figures = vec![
            Some(created.value),
            created.server_cpu_us,
            resident_mb,
            patched.server_cpu_us,
            got.server_cpu_us,
            Some(listed.value),
            Some(page.value * 1e3),
            opened_s,
        ];
        growth.lines.push((n, figures));
    }
    Ok(growth)
}

async fn with_watchers(stage: &mut Stage, max: u64) -> anyhow::Result<Growth> {
    const COLUMNS: &[&str] =
        &["KB each", "deliveries/s", "CPU us a delivery", "CPU us a watcher that an event does not concern"];
    let mut growth = Growth { title: "watchers", columns: COLUMNS, lines: Vec::new() };
    stage.define_widgets().await?;
    let pod = watches::make_pod(stage).await?;
    let alone_us = watches::event_us(stage, &pod).await?;
    let mut n_objects = 0;
    for n in up_to(WATCHERS, max) {
        // Memory freed by earlier watchers would be reused.
        stage.kill_and_start().await?;
        stage.version(WIDGETS).await?;
        let n_watchers = usize::try_from(n)?;
        let before_mb = stage.resident_mb().await?;
        let watchers = watches::open_watchers(stage, n_watchers).await?;
        let after_mb = stage.resident_mb().await?;
        let delivered = watches::deliver(stage, &watchers, n, watches::AHEAD, n_objects).await?;
        let sample = delivered.meter.sample(stage, delivered.n as f64, delivered.n)?;
        // An upper bound: at most `AHEAD` written objects have not reached every watcher.
        n_objects += delivered.n / n + watches::AHEAD;
        watchers.close().await;
        let watchers = watches::open_selective(stage, n_watchers).await?;
        let with_us = watches::event_us(stage, &pod).await?;
        watchers.close().await;
        let each = |(with, before): (f64, f64)| (with - before) / n as f64;
        let figures = vec![
            after_mb.zip(before_mb).map(each).map(|mb| mb * 1e3),
            Some(delivered.n as f64 / delivered.elapsed.as_secs_f64()),
            sample.server_cpu_us,
            with_us.zip(alone_us).map(each),
        ];
        growth.lines.push((n, figures));
    }
    Ok(growth)
}

async fn with_both(stage: &mut Stage, max: u64) -> anyhow::Result<Growth> {
    const COLUMNS: &[&str] =
        &["watchers", "MB of objects", "MB in all", "deliveries/s", "CPU us a delivery", "GET CPU us", "idle CPU %"];
    const OBJECTS_A_WATCHER: u64 = 100;
    let mut growth = Growth { title: "objects and watchers", columns: COLUMNS, lines: Vec::new() };
    stage.define_widgets().await?;
    // Delivered objects have numbers of their own, beyond the others.
    let (mut n_objects, mut n_delivered) = (0, max);
    for n in up_to(OBJECTS, max) {
        stage.fill(n_objects, n).await?;
        n_objects = n;
        // Memory freed by the writes would be reused.
        stage.kill_and_start().await?;
        stage.version(WIDGETS).await?;
        let objects_mb = stage.resident_mb().await?;
        let n_watchers = (n / OBJECTS_A_WATCHER).max(1);
        let watchers = watches::open_watchers(stage, usize::try_from(n_watchers)?).await?;
        let idle = stage.meter()?;
        tokio::time::sleep(STEP).await;
        let idle = idle.sample(stage, 0.0, 1)?.server_cpu_us.map(|us| us / STEP.as_secs_f64() / 1e4);
        let delivered = watches::deliver(stage, &watchers, n_watchers, watches::AHEAD, n_delivered).await?;
        let sample = delivered.meter.sample(stage, delivered.n as f64, delivered.n)?;
        n_delivered += delivered.n / n_watchers + watches::AHEAD;
        let all_mb = stage.resident_mb().await?;
        let got = writes::get(stage, n, STEP).await?;
        watchers.close().await;
        let figures = vec![
            Some(n_watchers as f64),
            objects_mb,
            all_mb,
            Some(delivered.n as f64 / delivered.elapsed.as_secs_f64()),
            sample.server_cpu_us,
            got.server_cpu_us,
            idle,
        ];
        growth.lines.push((n, figures));
    }
    Ok(growth)
}

async fn definitions(stage: &mut Stage, max: u64) -> anyhow::Result<Growth> {
    const COLUMNS: &[&str] =
        &["ms each since", "CPU ms each", "resident MB", "create CPU us", "GET CPU us", "discovery ms"];
    let mut growth = Growth { title: "definitions of 18 KB", columns: COLUMNS, lines: Vec::new() };
    stage.define_widgets().await?;
    let (mut n_definitions, mut n_objects) = (0, 0);
    for n in up_to(DEFINITION_STEPS, max) {
        let meter = stage.meter()?;
        for number in n_definitions..n {
            let (name, text) = objects::large_definition(usize::try_from(number)?);
            stage.create(DEFINITIONS, &text).await?;
            stage.wait_established(&name).await?;
        }
        let seconds = meter.elapsed().as_secs_f64();
        let defined = meter.sample(stage, seconds, n - n_definitions)?;
        let n_new = (n - n_definitions) as f64;
        n_definitions = n;
        let resident_mb = stage.resident_mb().await?;
        let (outcome, created) = writes::create(stage, n_objects, STEP).await?;
        n_objects += outcome.n;
        let got = writes::get(stage, n_objects.max(1), STEP).await?;
        let discovered = lists::list(stage, "/apis", DISCOVERY).await?;
        let figures = vec![
            Some(seconds / n_new * 1e3),
            defined.server_cpu_us.map(|us| us / 1e3),
            resident_mb,
            created.server_cpu_us,
            got.server_cpu_us,
            Some(discovered.value * 1e3),
        ];
        growth.lines.push((n, figures));
        if seconds > stage.bounds.limit.as_secs_f64() {
            stage.errors.note(format!("stopped at {n} definitions: the last steps took {seconds:.0} s"));
            break;
        }
    }
    Ok(growth)
}

/// The steps up to `max`, with `max` as the last.
fn up_to(steps: &[u64], max: u64) -> Vec<u64> {
    let last = max.min(steps.last().copied().unwrap_or(max));
    steps.iter().copied().filter(|step| *step < last).chain([last]).collect()
}

// === impl Scale ===

impl Scale {
    pub(crate) fn max(self) -> u64 {
        let steps = match self {
            Scale::Definitions => DEFINITION_STEPS,
            Scale::Objects | Scale::ObjectsAndWatchers => OBJECTS,
            Scale::Watchers => WATCHERS,
        };
        steps.last().copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_end_at_the_most_that_is_asked_for() {
        assert_eq!(up_to(OBJECTS, 50_000), [1_000, 10_000, 50_000]);
        assert_eq!(up_to(WATCHERS, u64::MAX), WATCHERS);
        assert_eq!(up_to(WATCHERS, 10), [1, 10]);
    }
}
