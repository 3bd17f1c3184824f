//! Watchers: of everything, of other objects, of metadata only, and of a quiet collection.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use futures::future::try_join_all;
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::objects::{self, WIDGETS};
use crate::results::{IsWanted, Results, Sample};
use crate::stage::{Meter, Stage};
use crate::watchers::{Streams, Watchers};
use bench_client::target::{Body, JSON};
use bench_client::wire::Connection;

const FANOUT_WATCHERS: usize = 1_000;
const WRITERS: usize = 8;
/// The most events that are written and have not reached every watcher, so that a server can send several to each at
/// once. With many more, the server would drop some from its history.
pub(super) const AHEAD: u64 = 16;
const EVENT_WATCHERS: usize = 400;
/// The pause between two events whose cost is measured, so that the server has finished with one before the next.
const EVENT_PAUSE: Duration = Duration::from_millis(60);
const EVENTS_MIN: u64 = 50;
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const MERGE_PATCH: &str = "application/merge-patch+json";

/// The deliveries of a measurement.
pub(super) struct Deliveries {
    pub(super) n: u64,
    pub(super) elapsed: Duration,
    pub(super) meter: Meter,
    /// Whether some had not arrived when the time was over.
    pub(super) is_cut: bool,
}

pub(super) async fn measure_fanout(
    stage: &mut Stage,
    is_wanted: &IsWanted<'_>,
    results: &mut Results,
) -> anyhow::Result<()> {
    stage.define_widgets().await?;
    let mut n_objects = 0;
    for (row, ahead) in [("fanout", AHEAD), ("fanout-single", 1)] {
        if !is_wanted(row) {
            continue;
        }
        let watchers = open_watchers(stage, FANOUT_WATCHERS).await?;
        let delivered = deliver(stage, &watchers, FANOUT_WATCHERS as u64, ahead, n_objects).await?;
        let Deliveries { n, elapsed, meter, is_cut } = delivered;
        let sample = meter.sample(stage, n as f64 / elapsed.as_secs_f64(), n)?;
        results.add(row, Sample { is_cut, ..sample });
        watchers.close().await;
        n_objects += n / FANOUT_WATCHERS as u64 + AHEAD;
    }
    Ok(())
}

/// Watches every Widget of the cluster from now on.
pub(super) async fn open_watchers(stage: &Stage, n: usize) -> anyhow::Result<Watchers> {
    let version = stage.version(WIDGETS).await?;
    let request = stage.target.get(&format!("{WIDGETS}?watch=true&resourceVersion={version}"), JSON);
    Watchers::open(&stage.target, &stage.errors, n, |_| request.clone()).await
}

/// Creates Widgets from number `from` on, at most `ahead` more than have reached all of `n_watchers`, and waits for the
/// last.
pub(super) async fn deliver(
    stage: &Stage,
    watchers: &Watchers,
    n_watchers: u64,
    ahead: u64,
    from: u64,
) -> anyhow::Result<Deliveries> {
    let mut writers = Vec::new();
    for _ in 0..WRITERS {
        writers.push(stage.target.connect().await?);
    }
    let delivered_before = watchers.delivered();
    let (begun, written) = (AtomicU64::new(0), AtomicU64::new(0));
    let meter = stage.meter()?;
    let deadline = Instant::now() + stage.bounds.duration;
    let path = objects::widgets_path(&stage.namespace);
    let write = async |mut connection: Connection| -> anyhow::Result<()> {
        while Instant::now() < deadline {
            let arrived = (watchers.delivered() - delivered_before) / n_watchers;
            if begun.load(Ordering::Relaxed) >= arrived + ahead {
                sleep(Duration::from_millis(1)).await;
                continue;
            }
            let n = from + begun.fetch_add(1, Ordering::Relaxed);
            let body = objects::widget(n, 1, &stage.tag);
            let mut request = Vec::new();
            let body = Body { media_type: JSON, bytes: body.as_bytes() };
            stage.target.request(&mut request, "POST", &path, JSON, Some(body));
            match connection.ask(&request).await.context("POST was not answered")? {
                (status, _) if status < 300 => {
                    written.fetch_add(1, Ordering::Relaxed);
                }
                (status, answer) => stage.errors.note_answer("POST", status, &answer),
            }
        }
        Ok(())
    };
    try_join_all(writers.into_iter().map(write)).await?;
    let expected = written.load(Ordering::Relaxed) * n_watchers;
    let has_arrived = watchers.wait_for(delivered_before + expected, Instant::now() + stage.bounds.limit).await;
    let n = watchers.delivered() - delivered_before;
    if !has_arrived {
        stage.errors.note(format!("{} of {expected} events did not arrive", expected.saturating_sub(n)));
    }
    Ok(Deliveries { n, elapsed: meter.elapsed(), meter, is_cut: !has_arrived })
}

pub(super) async fn measure_events(
    stage: &Stage,
    is_wanted: &IsWanted<'_>,
    results: &mut Results,
) -> anyhow::Result<()> {
    let path = make_pod(stage).await?;
    let alone_us = event_us(stage, &path).await?;
    if is_wanted("selective") {
        let watchers = open_selective(stage, EVENT_WATCHERS).await?;
        add_each(stage, "selective", EVENT_WATCHERS, alone_us, &path, results).await?;
        if watchers.delivered() > 0 {
            stage.errors.note("events reached watchers that they do not concern");
        }
        watchers.close().await;
    }
    if is_wanted("metadata") {
        let version = stage.version("/api/v1/pods").await?;
        let request = stage.target.get(&format!("/api/v1/pods?watch=true&resourceVersion={version}"), METADATA);
        let watchers = Watchers::open(&stage.target, &stage.errors, EVENT_WATCHERS, |_| request.clone()).await?;
        add_each(stage, "metadata", EVENT_WATCHERS, alone_us, &path, results).await?;
        let expected = event_count(stage) * EVENT_WATCHERS as u64;
        if !watchers.wait_for(expected, Instant::now() + stage.bounds.limit).await {
            stage.errors.note(format!("of {expected} metadata events {} arrived", watchers.delivered()));
        }
        watchers.close().await;
    }
    Ok(())
}

/// Creates a Pod to change, and returns its path.
pub(super) async fn make_pod(stage: &Stage) -> anyhow::Result<String> {
    let namespace = &stage.namespace;
    // Where no controller creates the account, a Pod is refused without it.
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}).to_string();
    let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    let (status, answer) = stage.ask("POST", &accounts, Some((JSON, &account))).await?;
    anyhow::ensure!(status < 300 || status == 409, "{}", String::from_utf8_lossy(&answer));
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    stage.create(&pods, &objects::pod("bench")).await?;
    Ok(format!("{pods}/bench"))
}

/// Watches of the Pods of nodes that have none, each of another node.
pub(super) async fn open_selective(stage: &Stage, n: usize) -> anyhow::Result<Watchers> {
    let version = stage.version("/api/v1/pods").await?;
    let request = |number: usize| {
        let selector = format!("fieldSelector=spec.nodeName%3Dnode-{number}");
        stage.target.get(&format!("/api/v1/pods?watch=true&resourceVersion={version}&{selector}"), JSON)
    };
    Watchers::open(&stage.target, &stage.errors, n, request).await
}

/// Adds the additional cost of an event per watcher, compared with no watchers.
async fn add_each(
    stage: &Stage,
    row: &'static str,
    n_watchers: usize,
    alone_us: Option<f64>,
    path: &str,
    results: &mut Results,
) -> anyhow::Result<()> {
    let with_us = event_us(stage, path).await?;
    if let Some((with_us, alone_us)) = with_us.zip(alone_us) {
        // An f64 holds a count of hundreds exactly.
        let value = ((with_us - alone_us) / n_watchers as f64).max(0.0);
        results.add(row, Sample { value, server_cpu_us: Some(with_us), ..Sample::default() });
    }
    Ok(())
}

fn event_count(stage: &Stage) -> u64 {
    // Twice as long as others: the kernel reports ticks of 10 ms, and an event may take far less.
    let n = stage.bounds.duration.as_millis() * 2 / EVENT_PAUSE.as_millis();
    u64::try_from(n).unwrap_or(u64::MAX).max(EVENTS_MIN)
}

/// Microseconds of the server's processor time for one change of the Pod at `path`, the request included.
pub(super) async fn event_us(stage: &Stage, path: &str) -> anyhow::Result<Option<f64>> {
    stage.settle().await?;
    let mut connection = stage.target.connect().await?;
    let n = event_count(stage);
    let mut ticks = interval(EVENT_PAUSE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let meter = stage.meter()?;
    for turn in 0..n {
        ticks.tick().await;
        // The time makes it differ from the label of an earlier round.
        let label = format!("{}-{turn}", meter.elapsed().as_nanos());
        let body = json!({"metadata": {"labels": {"turn": label}}}).to_string();
        let mut request = Vec::new();
        let body = Body { media_type: MERGE_PATCH, bytes: body.as_bytes() };
        stage.target.request(&mut request, "PATCH", path, JSON, Some(body));
        let (status, answer) = connection.ask(&request).await.context("PATCH was not answered")?;
        if status >= 300 {
            stage.errors.note_answer("PATCH", status, &answer);
        }
    }
    ticks.tick().await;
    let cpu_s = meter.server_cpu_s(stage)?;
    Ok(cpu_s.map(|seconds| seconds / n as f64 * 1e6))
}

pub(super) async fn measure_idle(
    stage: &mut Stage,
    n: usize,
    is_wanted: &IsWanted<'_>,
    results: &mut Results,
) -> anyhow::Result<()> {
    stage.define_widgets().await?;
    stage.fill(0, 1).await?;
    let version = stage.version(WIDGETS).await?;
    let path = format!("{WIDGETS}?watch=true&resourceVersion={version}");
    if is_wanted("idle-http2") {
        let before_mb = stage.resident_mb().await?;
        let streams = Streams::open(&stage.target, n, &path).await?;
        eprintln!("  {n} streams on {} connections", streams.n_connections());
        add_memory_each(stage, "idle-http2", n, before_mb, results).await?;
    }
    if is_wanted("idle-http1") {
        // A server of ours that has just held as many over HTTP/2 would reuse memory, so a fresh one is measured.
        stage.kill_and_start().await?;
        let before_mb = stage.resident_mb().await?;
        let request = stage.target.get(&path, JSON);
        let watchers = Watchers::open(&stage.target, &stage.errors, n, |_| request.clone()).await?;
        add_memory_each(stage, "idle-http1", n, before_mb, results).await?;
        watchers.close().await;
    }
    Ok(())
}

async fn add_memory_each(
    stage: &Stage,
    row: &'static str,
    n: usize,
    before_mb: Option<f64>,
    results: &mut Results,
) -> anyhow::Result<()> {
    let after_mb = stage.resident_mb().await?;
    if let Some((after, before)) = after_mb.zip(before_mb) {
        results.add(row, Sample { value: (after - before) / n as f64 * 1e3, ..Sample::default() });
    }
    Ok(())
}
