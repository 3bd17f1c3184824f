//! Single objects written and read as fast as the server answers.

use std::sync::Arc;
use std::time::Duration;

use crate::load::{self, Load, Outcome};
use crate::objects;
use crate::results::{IsWanted, Results, Sample};
use crate::stage::Stage;
use bench_client::target::{Body, JSON};

const CREATE_WORKERS: usize = 64;
const WORKERS: usize = 32;
/// The number of objects over which patches and reads rotate, however many were created: enough that no two meet at
/// one.
const OBJECTS_MIN: u64 = 2_000;
/// The most requests of a load, however fast the server is.
const REQUESTS_MAX: u64 = 1_000_000;
const MERGE_PATCH: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

pub(super) async fn measure(stage: &mut Stage, is_wanted: &IsWanted<'_>, results: &mut Results) -> anyhow::Result<()> {
    stage.define_widgets().await?;
    let mut n_objects = 0;
    let duration = stage.bounds.duration;
    if is_wanted("create") {
        let (outcome, sample) = create(stage, 0, duration).await?;
        results.add("create", sample);
        n_objects = outcome.n;
    }
    if n_objects < OBJECTS_MIN {
        stage.fill(n_objects, OBJECTS_MIN).await?;
        n_objects = OBJECTS_MIN;
    }
    stage.settle().await?;
    if is_wanted("patch") {
        results.add("patch", patch(stage, n_objects, duration).await?);
    }
    if is_wanted("apply") {
        results.add("apply", apply(stage, n_objects, duration).await?);
    }
    if is_wanted("get") {
        results.add("get", get(stage, n_objects, duration).await?);
    }
    Ok(())
}

/// Creates Widgets from number `from` on.
pub(super) async fn create(stage: &Stage, from: u64, duration: Duration) -> anyhow::Result<(Outcome, Sample)> {
    let meter = stage.meter()?;
    let outcome = stage.create_widgets(load("POST", CREATE_WORKERS, duration), from).await?;
    Ok((outcome, meter.rate(stage, &outcome)?))
}

/// Merge patches of the first `n_objects` Widgets, in rotation.
pub(super) async fn patch(stage: &Stage, n_objects: u64, duration: Duration) -> anyhow::Result<Sample> {
    let (target, path) = (Arc::clone(&stage.target), objects::widgets_path(&stage.namespace));
    let meter = stage.meter()?;
    let write = move |n: u64, out: &mut Vec<u8>| {
        let body = format!(r#"{{"spec":{{"replicas":{}}}}}"#, n + 2);
        let body = Body { media_type: MERGE_PATCH, bytes: body.as_bytes() };
        let name = objects::widget_name(n % n_objects);
        target.request(out, "PATCH", &format!("{path}/{name}"), JSON, Some(body));
    };
    let outcome = load::run(&stage.target, &stage.errors, load("PATCH", WORKERS, duration), write).await?;
    meter.rate(stage, &outcome)
}

/// Server-side applies of the first `n_objects` Widgets, by a second manager.
async fn apply(stage: &Stage, n_objects: u64, duration: Duration) -> anyhow::Result<Sample> {
    let (target, path) = (Arc::clone(&stage.target), objects::widgets_path(&stage.namespace));
    let tag = Arc::clone(&stage.tag);
    let meter = stage.meter()?;
    let write = move |n: u64, out: &mut Vec<u8>| {
        let body = objects::widget(n % n_objects, n + 3, &tag);
        let body = Body { media_type: APPLY, bytes: body.as_bytes() };
        let name = objects::widget_name(n % n_objects);
        target.request(out, "PATCH", &format!("{path}/{name}?fieldManager=bench&force=true"), JSON, Some(body));
    };
    let outcome = load::run(&stage.target, &stage.errors, load("PATCH", WORKERS, duration), write).await?;
    meter.rate(stage, &outcome)
}

/// GETs of the first `n_objects` Widgets.
pub(super) async fn get(stage: &Stage, n_objects: u64, duration: Duration) -> anyhow::Result<Sample> {
    let (target, path) = (Arc::clone(&stage.target), objects::widgets_path(&stage.namespace));
    let meter = stage.meter()?;
    let write = move |n: u64, out: &mut Vec<u8>| {
        let name = objects::widget_name(n % n_objects);
        target.request(out, "GET", &format!("{path}/{name}"), JSON, None);
    };
    let outcome = load::run(&stage.target, &stage.errors, load("GET", WORKERS, duration), write).await?;
    meter.rate(stage, &outcome)
}

fn load(method: &'static str, workers: usize, duration: Duration) -> Load {
    Load { method, workers, duration, count_max: REQUESTS_MAX }
}
