//! Objects in such numbers that their cost is measurable: their memory, and opening them after the server was killed.

use crate::results::{Results, Sample, median};
use crate::stage::Stage;

const OBJECTS: u64 = 100_000;
const MILLION: u64 = 1_000_000;
/// The number of times that the server is killed and started again; the median counts.
const KILLS: usize = 3;

pub(super) async fn measure(stage: &mut Stage, is_million: bool, results: &mut Results) -> anyhow::Result<()> {
    stage.define_widgets().await?;
    stage.fill(0, OBJECTS).await?;
    if let Some(value) = stage.resident_mb().await? {
        results.add("memory-100000", Sample { value, ..Sample::default() });
    }
    add_opened(stage, "open", results).await?;
    if is_million {
        stage.fill(OBJECTS, MILLION).await?;
        add_opened(stage, "open-1000000", results).await?;
    }
    Ok(())
}

async fn add_opened(stage: &mut Stage, row: &'static str, results: &mut Results) -> anyhow::Result<()> {
    if let Some(value) = opened_s(stage, KILLS).await? {
        results.add(row, Sample { value, ..Sample::default() });
    }
    Ok(())
}

/// Seconds from exec to readiness, after a kill. `None` if the server is not ours.
pub(super) async fn opened_s(stage: &mut Stage, n_kills: usize) -> anyhow::Result<Option<f64>> {
    let mut seconds = Vec::new();
    for _ in 0..n_kills {
        match stage.kill_and_start().await? {
            Some(took) => seconds.push(took.as_secs_f64()),
            None => break,
        }
    }
    Ok(median(seconds))
}
