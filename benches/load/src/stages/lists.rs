//! A collection of 23,000 objects: its memory, the cost of each representation, and its deletion.

use anyhow::Context;
use tokio::time::timeout;

use crate::objects;
use crate::results::{IsWanted, Results, Sample, median};
use crate::stage::Stage;
use bench_client::process::Processes;
use bench_client::target::JSON;

const OBJECTS: u64 = 23_000;
/// The number of lists of each representation; the median counts.
const REPEATS: usize = 5;
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
const YAML: &str = "application/yaml";

pub(super) async fn measure(stage: &mut Stage, is_wanted: &IsWanted<'_>, results: &mut Results) -> anyhow::Result<()> {
    if let Some(value) = stage.resident_mb().await? {
        results.add("memory-idle", Sample { value, ..Sample::default() });
    }
    stage.define_widgets().await?;
    stage.fill(0, OBJECTS).await?;
    if let Some(value) = stage.resident_mb().await? {
        results.add("memory-23000", Sample { value, ..Sample::default() });
    }
    let path = objects::widgets_path(&stage.namespace);
    let pretty = format!("{path}?pretty=true");
    let representations = [
        ("list", &path, JSON),
        ("list-table", &path, TABLE),
        ("list-yaml", &path, YAML),
        ("list-pretty", &pretty, JSON),
    ];
    for (row, path, accept) in representations {
        let is_for_row = row == "list-table" && is_wanted("table-row");
        if !is_wanted(row) && !is_for_row {
            continue;
        }
        // Memory freed by another list would be reused.
        stage.kill_and_start().await?;
        let sample = list(stage, path, accept).await?;
        results.add(row, sample);
        if let Some(cpu_us) = sample.server_cpu_us.filter(|_| row == "list-table") {
            // An f64 holds a count of thousands exactly.
            results.add("table-row", Sample { value: cpu_us / OBJECTS as f64, ..Sample::default() });
        }
    }
    if is_wanted("delete-collection") {
        let meter = stage.meter()?;
        let deleted = stage.delete_all(&path, stage.bounds.limit).await;
        let sample = meter.sample(stage, meter.elapsed().as_secs_f64(), OBJECTS)?;
        if let Err(error) = &deleted {
            stage.errors.note(format!("DELETE of a collection: {error:#}"));
        }
        results.add("delete-collection", Sample { is_cut: deleted.is_err(), ..sample });
    }
    Ok(())
}

/// Seconds to the last byte, the server's time for one list, and the largest growth of its memory for the first list.
pub(super) async fn list(stage: &Stage, path: &str, accept: &str) -> anyhow::Result<Sample> {
    let mut connection = stage.target.connect().await?;
    let request = stage.target.get(path, accept);
    stage.settle().await?;
    let before_mb = match &stage.processes {
        Some(processes) => {
            let resident_mb = processes.resident_mb().context("cannot read what is resident")?;
            // Only the owner of a process, or root, may reset its peak; otherwise the growth is unknown.
            processes.reset_peak().ok().map(|()| resident_mb)
        }
        None => None,
    };
    let meter = stage.meter()?;
    let (mut seconds, mut peak_mb) = (Vec::new(), None);
    for _ in 0..REPEATS {
        let one = stage.meter()?;
        let limit = stage.bounds.limit;
        // The bytes of a list are discarded: only the arrival of the last one counts.
        let mut throw_away = |_: &[u8]| {};
        let listed = connection.exchange(&request, &mut throw_away);
        let status = timeout(limit, listed).await.with_context(|| format!("no list in {} s", limit.as_secs()))?;
        let status = status.context("a list broke off")?;
        if status != 200 {
            stage.errors.note(format!("a list was answered {status}"));
        }
        seconds.push(one.elapsed().as_secs_f64());
        if peak_mb.is_none() {
            peak_mb = stage.processes.as_ref().map(Processes::peak_mb).transpose().context("cannot read the peak")?;
        }
    }
    let growth_mb = peak_mb.zip(before_mb).map(|(peak, before)| (peak - before).max(0.0));
    let sample = meter.sample(stage, median(seconds).unwrap_or(f64::NAN), REPEATS as u64)?;
    Ok(Sample { growth_mb, ..sample })
}
