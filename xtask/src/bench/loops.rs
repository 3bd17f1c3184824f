//! `cargo xtask bench loops`: the speed of the control loops of `steersman up`, and their cost at rest.
//!
//! The program that creates the work is in `benches/loops`. This module builds it, and starts it for each run against a
//! fresh idle `steersman up`, and against another with ten simulated nodes.

use std::collections::BTreeMap;
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context;

use crate::bench::figure::{Figure, Output};
use crate::shared::process::capture;
use crate::shared::steersman::{Role, Steersman};
use crate::shared::workspace::{Profile, Workspace, executable};

/// Room for 1,100 Pods.
const NODES: &str = "10";

/// The measured figures: the name in the program's output, a description, the unit, and the limit.
const FIGURES: [(&str, &str, &str, f64); 16] = [
    ("pods_created_s", "1,000 Pods of 100 Deployments created", "s", 3.0),
    ("pods_ready_s", "the same, all available", "s", 5.0),
    ("pods_deleted_s", "their namespace ended", "s", 6.0),
    ("dependents_collected_s", "10,000 dependents collected", "s", 10.0),
    ("namespace_ended_s", "namespace of 5,000 objects ended", "s", 5.0),
    ("idle_cpu_percent", "idle, one node: time on a processor", "%", 0.5),
    ("idle_resident_mb", "idle: resident memory", "MB", 60.0),
    ("idle_writes_per_minute", "idle: writes a minute but of Leases", "", 0.0),
    ("rest_cpu_percent", "after all that: time on a processor", "%", 1.0),
    ("rest_resident_mb", "after all that: resident memory", "MB", 250.0),
    ("rest_leases_per_minute", "after all that: Leases renewed a minute", "", 66.0),
    ("rest_writes_per_minute", "after all that: other writes a minute", "", 0.0),
    ("storm_created_s", "100,000 Pods of 100 Deployments created", "s", 300.0),
    ("storm_deleted_s", "their namespace ended", "s", 300.0),
    ("storm_peak_mb", "peak of resident memory", "MB", 3_000.0),
    ("storm_kept_mb", "resident memory above that before the storm", "MB", 100.0),
];

/// The Pods of a storm, and the seconds after which its memory must be released: recent history is kept for five minutes.
const STORM: (&str, u64) = ("100000", 600);

/// The purpose of a control plane.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    /// To be idle, with its one node.
    Idle,
    /// More Pods than its nodes take, created and deleted at once.
    Storm,
    Work,
}

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    output: Output,
    /// Measure only the cost at rest
    #[arg(long)]
    idle: bool,
    /// Measure only the memory that stays after 100,000 Pods were created and deleted; takes a quarter of an hour
    #[arg(long, conflicts_with = "idle")]
    storm: bool,
    /// How often everything is measured; the medians are reported
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Seconds of rest, over which the cost at rest is measured
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
        let kinds: &[Kind] = match options {
            Options { idle: true, .. } => &[Kind::Idle],
            Options { storm: true, .. } => &[Kind::Storm],
            _ => &[Kind::Idle, Kind::Work],
        };
        for kind in kinds {
            let data = scratch.join(format!("data-{run}-{}", kind.name()));
            let steersman = Steersman::start(&binary, Role::Up, &data, kind.flags(), &scratch.join("log"))?;
            let mut command = Command::new(&program);
            command.arg("--kubeconfig").arg(&steersman.ready.kubeconfig);
            let rest = if *kind == Kind::Storm { STORM.1 } else { options.rest };
            command.args(["--pid", &steersman.id().to_string(), "--rest", &rest.to_string()]);
            match kind {
                Kind::Idle => command.arg("--idle"),
                Kind::Storm => command.args(["--storm", STORM.0]),
                Kind::Work => &mut command,
            };
            command.stderr(Stdio::inherit());
            let figures: BTreeMap<String, f64> =
                serde_json::from_str(&capture(&mut command)?).context("the bench printed no figures")?;
            for (name, value) in figures {
                let name = if *kind == Kind::Idle { name.replace("rest_", "idle_") } else { name };
                samples.entry(name).or_default().push(value);
            }
            steersman.stop()?;
        }
    }
    let figures = FIGURES
        .iter()
        .filter_map(|(name, what, unit, target)| Some(Figure::new(what, unit, *target, samples.remove(*name)?)));
    options.output.print(&figures.collect::<Vec<_>>())?;
    std::fs::remove_dir_all(&scratch).with_context(|| format!("cannot remove {}", scratch.display()))?;
    Ok(ExitCode::SUCCESS)
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Idle => "idle",
            Kind::Storm => "storm",
            Kind::Work => "work",
        }
    }

    /// The flags of `steersman up`.
    fn flags(self) -> &'static [&'static str] {
        match self {
            Kind::Idle | Kind::Storm => &[],
            Kind::Work => &["--simulate-nodes", NODES],
        }
    }
}
