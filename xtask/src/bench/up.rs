//! `cargo xtask bench up`: what the binary promises about starting and idling, measured.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;

use crate::process::capture;
use crate::steersman::{Role, Steersman};
use crate::tools;
use crate::workspace::{Profile, Workspace};

/// How often each start is measured.
const STARTS: usize = 10;
/// How long a process idles before its memory is read.
const IDLE: Duration = Duration::from_secs(3);

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Print one line of JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// One measured figure next to what it must not exceed.
#[derive(Debug, Serialize)]
struct Figure {
    name: &'static str,
    unit: &'static str,
    min: f64,
    median: f64,
    max: f64,
    target: f64,
    /// Whether the median is within the target.
    met: bool,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<ExitCode> {
    let figures = measure(workspace)?;
    if options.json {
        println!("{}", serde_json::to_string(&figures).context("cannot write the figures as JSON")?);
    } else {
        println!("{:<38} {:>8} {:>8} {:>8}  {:>8}", "", "min", "median", "max", "target");
        for figure in &figures {
            let Figure { name, unit, min, median, max, target, met } = figure;
            let verdict = if *met { "met" } else { "MISSED" };
            println!("{name:<38} {min:>8.1} {median:>8.1} {max:>8.1}  {target:>8.0} {unit}  {verdict}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(workspace: &Workspace) -> anyhow::Result<Vec<Figure>> {
    // Any kubectl will do to ask /readyz once; the one that the tests drive is at hand.
    let kubectl = tools::kubectl(workspace)?;
    let binary = workspace.build_steersman(Profile::Release)?;
    let scratch = workspace.scratch("bench-up")?;
    let log = scratch.join("log");

    let mut new_ms = Vec::new();
    let mut existing_ms = Vec::new();
    for round in 0..STARTS {
        let data = scratch.join(format!("data-{round}"));
        for samples in [&mut new_ms, &mut existing_ms] {
            let steersman = Steersman::start(&binary, Role::Up, &data, &[], &log)?;
            check_ready(&kubectl, &steersman.ready.kubeconfig)?;
            samples.push(steersman.took.as_secs_f64() * 1e3);
            let status = steersman.stop()?;
            anyhow::ensure!(status.success(), "steersman up ended with {status} after SIGTERM");
        }
    }
    let idle_mb = |role, directory: &str| -> anyhow::Result<Vec<f64>> {
        let steersman = Steersman::start(&binary, role, &scratch.join(directory), &[], &log)?;
        steersman.idle(IDLE)?;
        let bytes = steersman.resident_bytes()?;
        steersman.stop()?;
        // A figure to print: a megabyte more or less is not lost in an f64.
        Ok(vec![bytes as f64 / 1e6])
    };
    let figures = vec![
        figure("ready, existing data directory", "ms", 100.0, existing_ms),
        figure("ready, new data directory", "ms", 300.0, new_ms),
        figure("idle resident memory, steersman server", "MB", 40.0, idle_mb(Role::Server, "idle-server")?),
        figure("idle resident memory, steersman up", "MB", 40.0, idle_mb(Role::Up, "idle-up")?),
    ];
    std::fs::remove_dir_all(&scratch).with_context(|| format!("cannot remove {}", scratch.display()))?;
    Ok(figures)
}

/// The ready line is printed once `/readyz` answers 200; one real client checks that it told the truth.
fn check_ready(kubectl: &Path, kubeconfig: &Path) -> anyhow::Result<()> {
    let mut command = std::process::Command::new(kubectl);
    let answer = capture(command.arg("--kubeconfig").arg(kubeconfig).args(["get", "--raw", "/readyz"]))?;
    anyhow::ensure!(answer.trim() == "ok", "/readyz answered {answer:?} after the ready line");
    Ok(())
}

fn figure(name: &'static str, unit: &'static str, target: f64, mut samples: Vec<f64>) -> Figure {
    samples.sort_by(f64::total_cmp);
    let (min, max) = (samples.first().copied().unwrap_or(f64::NAN), samples.last().copied().unwrap_or(f64::NAN));
    let median = samples.get(samples.len() / 2).copied().unwrap_or(f64::NAN);
    Figure { name, unit, min, median, max, target, met: median <= target }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_orders_samples_and_judges_the_median() {
        let figure = figure("x", "ms", 2.0, vec![9.0, 1.0, 2.0]);
        assert_eq!((figure.min, figure.median, figure.max, figure.met), (1.0, 2.0, 9.0, true));
    }
}
