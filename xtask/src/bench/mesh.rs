//! `cargo xtask bench mesh`: the time until a change reaches all proxies of a mesh, and the cost of that for the pilot.
//!
//! The program that plays the proxies is in `benches/mesh`. This module builds it, and runs it against a fresh
//! `steersman server`: once with proxies that have every Service, once with Pods that say which they call.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context;

use crate::bench::figure::{Figure, Output};
use crate::shared::process::capture;
use crate::shared::steersman::{Role, Steersman};
use crate::shared::workspace::{Profile, Workspace, executable};

/// The control loops of the API server: none of them works on what the bench creates.
const SERVER: [&str; 6] =
    ["--log", "warn", "--controllers", "namespace,service-cidr,serviceaccount", "--history", "10m"];

/// A figure without a target.
const NONE: f64 = f64::INFINITY;

/// The measured figures: the name in the program's output, a description, the unit, and the limit.
const FIGURES: [(&str, &str, &str, f64); 46] = [
    ("idle_mb", "no proxies: resident memory", "MB", NONE),
    ("connect_s", "all connect: until the last has everything", "s", NONE),
    ("connect_cpu_s", "the same: the pilot's time on a processor", "s", NONE),
    ("connect_retries", "the same: connections made again", "", NONE),
    ("view_kb", "the same: bytes to each proxy", "kB", NONE),
    ("connected_mb", "all connected: resident memory", "MB", 100.0),
    ("connected_stream_kb", "the same, of each stream", "kB", 50.0),
    ("weight_last_ms", "a weight: until the last has it", "ms", 50.0),
    ("weight_p50_ms", "the same: half of all proxies", "ms", NONE),
    ("weight_p99_ms", "the same: 99 of 100", "ms", NONE),
    ("weight_cpu_ms", "the same: the pilot's time on a processor", "ms", NONE),
    ("weight_bytes", "the same: bytes in all", "", NONE),
    ("weight_views", "the same: views made", "", NONE),
    ("endpoint_all_last_ms", "an endpoint that all see: until the last", "ms", 50.0),
    ("endpoint_all_p50_ms", "the same: half of all proxies", "ms", NONE),
    ("endpoint_all_p99_ms", "the same: 99 of 100", "ms", NONE),
    ("endpoint_all_cpu_ms", "the same: the pilot's time on a processor", "ms", NONE),
    ("endpoint_all_bytes", "the same: bytes in all", "", NONE),
    ("endpoint_all_views", "the same: views made", "", NONE),
    ("endpoint_one_last_ms", "an endpoint that one sees: until it has it", "ms", 50.0),
    ("endpoint_one_cpu_ms", "the same: the pilot's time on a processor", "ms", NONE),
    ("endpoint_one_bytes", "the same: bytes in all", "", NONE),
    ("endpoint_one_views", "the same: views made", "", 1.0),
    ("rollout_write_s", "100 Pods of a Service replaced: written in", "s", NONE),
    ("rollout_lag_ms", "the same: from the last write to the last proxy", "ms", 200.0),
    ("rollout_messages", "the same: responses to each proxy", "", NONE),
    ("rollout_bytes", "the same: bytes in all", "", NONE),
    ("rollout_cpu_ms", "the same: the pilot's time on a processor", "ms", NONE),
    ("rollout_views", "the same: views made", "", NONE),
    ("beside_stalled_last_ms", "1 in 100 reads nothing: a weight at the others", "ms", 50.0),
    ("beside_stalled_p50_ms", "the same: half of all proxies", "ms", NONE),
    ("beside_stalled_p99_ms", "the same: 99 of 100", "ms", NONE),
    ("beside_stalled_cpu_ms", "the same: the pilot's time on a processor", "ms", NONE),
    ("beside_stalled_bytes", "the same: bytes in all", "", NONE),
    ("beside_stalled_views", "the same: views made", "", NONE),
    ("stalled_mb", "the same: resident memory", "MB", NONE),
    ("cut_off_s", "the same: until all of those are cut off", "s", 75.0),
    ("after_mb", "after all that: resident memory", "MB", 100.0),
    ("after_stream_kb", "the same, of each stream", "kB", 50.0),
    ("restart_ready_s", "a new pilot: until it is ready", "s", NONE),
    ("restart_s", "the same: until the last has reconnected", "s", NONE),
    ("restart_down_kb", "the same: bytes to each proxy", "kB", 1.0),
    ("restart_up_kb", "the same: bytes from each proxy", "kB", NONE),
    ("restart_cpu_s", "the same: the pilot's time on a processor", "s", NONE),
    ("restarted_mb", "the same: resident memory", "MB", 100.0),
    ("restarted_stream_kb", "the same, of each stream", "kB", 50.0),
];

/// The proxies' part of all Services.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
enum View {
    /// Everything.
    Full,
    /// The ten Services that its Pod calls.
    Scoped,
}

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    output: Output,
    /// Fake proxies, each with a connection of its own
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    proxies: u32,
    /// Services with three endpoints each
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(20..=20_000))]
    services: u32,
    /// Measure only proxies that have everything, or only those whose Pods call ten Services
    #[arg(long)]
    view: Option<View>,
    /// Pods that call the same ten Services
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    replicas: u32,
    /// Changes of each kind
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    changes: u32,
    /// A steersman that was built before, instead of a build with the profile dist
    #[arg(long, value_name = "FILE")]
    steersman: Option<PathBuf>,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<ExitCode> {
    let mut command = workspace.cargo_benches();
    command.args(["build", "--release", "--locked", "--package", "bench-mesh"]);
    command.args(["--message-format", "json-render-diagnostics"]);
    let output = command.stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    anyhow::ensure!(output.status.success(), "cargo build of the bench ended with {}", output.status);
    let program = executable(&String::from_utf8_lossy(&output.stdout), "bench-mesh");
    let program = program.context("cargo build named no bench-mesh")?;
    let binary = match &options.steersman {
        Some(binary) => binary.clone(),
        None => workspace.build_steersman(Profile::Dist)?,
    };
    let scratch = workspace.scratch("bench-mesh")?;
    let views = options.view.map_or(vec![View::Full, View::Scoped], |view| vec![view]);
    for view in views {
        let data = scratch.join(view.name());
        let steersman = Steersman::start(&binary, Role::Server, &data, &SERVER, &scratch.join("log"))?;
        let mut command = Command::new(&program);
        command.arg("--kubeconfig").arg(&steersman.ready.kubeconfig).arg("--steersman").arg(&binary);
        command.arg("--definitions").arg(workspace.root.join("manifests/mesh/gateway-api"));
        command.arg("--log").arg(scratch.join("pilot.log"));
        command.args(["--proxies", &options.proxies.to_string(), "--services", &options.services.to_string()]);
        command.args(["--changes", &options.changes.to_string(), "--replicas", &options.replicas.to_string()]);
        if view == View::Scoped {
            command.args(["--calls", "10"]);
        }
        command.stderr(Stdio::inherit());
        let mut samples: BTreeMap<String, Vec<f64>> =
            serde_json::from_str(&capture(&mut command)?).context("the bench printed no figures")?;
        steersman.stop()?;
        let figures = FIGURES
            .iter()
            .filter_map(|(name, what, unit, target)| Some(Figure::new(what, unit, *target, samples.remove(*name)?)));
        let figures: Vec<Figure> = figures.collect();
        eprintln!("{} proxies, {} Services, each proxy has {}:", options.proxies, options.services, view.what());
        options.output.print(&figures)?;
    }
    std::fs::remove_dir_all(&scratch).with_context(|| format!("cannot remove {}", scratch.display()))?;
    Ok(ExitCode::SUCCESS)
}

// === impl View ===

impl View {
    fn name(self) -> &'static str {
        match self {
            View::Full => "full",
            View::Scoped => "scoped",
        }
    }

    fn what(self) -> &'static str {
        match self {
            View::Full => "all of them",
            View::Scoped => "ten of them",
        }
    }
}
