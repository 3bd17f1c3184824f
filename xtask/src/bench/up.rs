//! `cargo xtask bench up`: measures the product's targets for starting and idling.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;

use crate::bench::figure::{Figure, Output};
use crate::shared::process::capture;
use crate::shared::steersman::{Role, Steersman};
use crate::shared::tools;
use crate::shared::workspace::{Profile, Workspace};

/// How often each start is measured.
const STARTS: usize = 10;
/// How long a process idles before its memory is read.
const IDLE: Duration = Duration::from_secs(3);

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    output: Output,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<ExitCode> {
    let figures = measure(workspace)?;
    options.output.print(&figures)?;
    Ok(ExitCode::SUCCESS)
}

fn measure(workspace: &Workspace) -> anyhow::Result<Vec<Figure>> {
    // Any kubectl can ask /readyz once; the tests' one is available.
    let kubectl = tools::kubectl(workspace)?;
    let binary = workspace.build_steersman(Profile::Dist)?;
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
        // A figure to print: an f64 holds it exactly enough.
        Ok(vec![bytes as f64 / 1e6])
    };
    let figures = vec![
        Figure::new("ready, existing data directory", "ms", 100.0, existing_ms),
        Figure::new("ready, new data directory", "ms", 300.0, new_ms),
        Figure::new("idle resident memory, steersman server", "MB", 60.0, idle_mb(Role::Server, "idle-server")?),
        Figure::new("idle resident memory, steersman up", "MB", 60.0, idle_mb(Role::Up, "idle-up")?),
    ];
    std::fs::remove_dir_all(&scratch).with_context(|| format!("cannot remove {}", scratch.display()))?;
    Ok(figures)
}

/// Checks with a real client that `/readyz` answers 200 once the ready line is printed.
fn check_ready(kubectl: &Path, kubeconfig: &Path) -> anyhow::Result<()> {
    let mut command = std::process::Command::new(kubectl);
    let answer = capture(command.arg("--kubeconfig").arg(kubeconfig).args(["get", "--raw", "/readyz"]))?;
    anyhow::ensure!(answer.trim() == "ok", "/readyz answered {answer:?} after the ready line");
    Ok(())
}
