//! `cargo xtask bench loops`: how fast the control loops of `steersman up` are, and what they take when nothing is to be done.
//!
//! The program that gives them work is in `benches/loops`; here it is built, and started against a fresh `steersman up` with ten
//! simulated nodes for each run.

use std::collections::BTreeMap;
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context;

use crate::bench::figure::{self, Figure};
use crate::process::capture;
use crate::steersman::{Role, Steersman};
use crate::workspace::{Profile, Workspace, executable};

/// Room for 1,100 Pods.
const NODES: &str = "10";

/// What is measured: its name in the program's answer, what it is, its unit, and what it must not exceed.
const FIGURES: [(&str, &str, &str, f64); 8] = [
    ("pods_created_s", "1,000 Pods of 100 Deployments created", "s", 3.0),
    ("pods_ready_s", "the same, all available", "s", 6.0),
    ("pods_deleted_s", "their namespace ended", "s", 6.0),
    ("dependents_collected_s", "10,000 dependents collected", "s", 10.0),
    ("namespace_ended_s", "namespace of 5,000 objects ended", "s", 5.0),
    ("rest_cpu_percent", "at rest: time on a processor", "%", 0.5),
    ("rest_resident_mb", "at rest: resident memory", "MB", 250.0),
    ("rest_writes_per_minute", "at rest: writes a minute", "", 65.0),
];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Print one line of JSON instead of a table
    #[arg(long)]
    json: bool,
    /// How often all is measured; medians count
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Seconds of rest, after which it is said what was taken meanwhile
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..), value_name = "SECONDS")]
    rest: u64,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<ExitCode> {
    let mut command = workspace.cargo_benches();
    command.args(["build", "--release", "--locked", "--package", "bench-loops"]);
    command.args(["--message-format", "json-render-diagnostics"]);
    let output = command.stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    anyhow::ensure!(output.status.success(), "cargo build of the bench ended with {}", output.status);
    let program = executable(&String::from_utf8_lossy(&output.stdout), "bench-loops");
    let program = program.context("cargo build named no bench-loops")?;
    let binary = workspace.build_steersman(Profile::Dist)?;
    let scratch = workspace.scratch("bench-loops")?;

    let mut samples: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for run in 1..=options.runs {
        eprintln!("run {run} of {}", options.runs);
        let data = scratch.join(format!("data-{run}"));
        let steersman = Steersman::start(&binary, Role::Up, &data, &["--simulate-nodes", NODES], &scratch.join("log"))?;
        let mut command = Command::new(&program);
        command.arg("--kubeconfig").arg(&steersman.ready.kubeconfig);
        command.args(["--pid", &steersman.id().to_string(), "--rest", &options.rest.to_string()]);
        let figures: BTreeMap<String, f64> =
            serde_json::from_str(&capture(&mut command)?).context("the bench printed no figures")?;
        for (name, value) in figures {
            samples.entry(name).or_default().push(value);
        }
        steersman.stop()?;
    }
    let figures = FIGURES
        .map(|(name, what, unit, target)| Figure::new(what, unit, target, samples.remove(name).unwrap_or_default()));
    figure::print(&figures, options.json)?;
    std::fs::remove_dir_all(&scratch).with_context(|| format!("cannot remove {}", scratch.display()))?;
    Ok(ExitCode::SUCCESS)
}
