//! Many definitions, each created and in force before the next.

use crate::objects::{self, DEFINITIONS};
use crate::results::{IsWanted, Results, Sample};
use crate::stage::Stage;

const SOME: usize = 200;
const MANY: usize = 1_000;

pub(super) async fn measure(stage: &Stage, is_wanted: &IsWanted<'_>, results: &mut Results) -> anyhow::Result<()> {
    let meter = stage.meter()?;
    let (last, row) = if is_wanted("definitions-1000") { (MANY, "definitions-1000") } else { (SOME, "definitions") };
    for n in 0..last {
        if n == SOME && is_wanted("definitions") {
            results.add("definitions", meter.sample(stage, meter.elapsed().as_secs_f64(), SOME as u64)?);
        }
        let (name, text) = objects::large_definition(n);
        stage.create(DEFINITIONS, &text).await?;
        stage.wait_established(&name).await?;
        if meter.elapsed() > stage.bounds.limit {
            let row = if n < SOME && is_wanted("definitions") { "definitions" } else { row };
            stage.errors.note(format!("{row}: stopped at {} definitions after {:.0?}", n + 1, meter.elapsed()));
            let sample = meter.sample(stage, meter.elapsed().as_secs_f64(), n as u64 + 1)?;
            results.add(row, Sample { is_cut: true, ..sample });
            return Ok(());
        }
    }
    results.add(row, meter.sample(stage, meter.elapsed().as_secs_f64(), last as u64)?);
    Ok(())
}
