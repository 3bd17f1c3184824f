//! `cargo xtask bench envtest`: how long a suite waits for its control plane to start and to stop.
//!
//! Measured from Go, by controller-runtime's own envtest, and from a shell, which starts the two programs itself.
//! envtest checks whether each of the two programs is ready right after its start, which is too early, and then every
//! 100 ms: this accounts for about 200 ms of each figure from Go.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::Context;

use crate::bench::figure::{Figure, Output};
use crate::shared::process::{capture, find_program, now};
use crate::shared::workspace::{Profile, Workspace};

/// The suite whose module contains the measuring program in Go.
const SUITE: &str = "tests/clients/envtest";
/// How often a single control plane is started.
const ALONE: usize = 20;
const AT_ONCE: usize = 20;
/// How often twenty are started at once.
const ROUNDS: usize = 3;
/// The target for one start and one stop together.
const TARGET_MS: f64 = 300.0;

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    output: Output,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<ExitCode> {
    for program in ["bash", "curl", "go"] {
        anyhow::ensure!(find_program(program).is_some(), "{program} is not on PATH");
    }
    let binary = workspace.build_steersman(Profile::Release)?;
    let scratch = workspace.scratch("bench-envtest")?;
    let suite = workspace.root.join(SUITE);
    let assets = capture(Command::new(&binary).arg("envtest").arg(scratch.join("assets")))?;
    let go = |name, rounds: usize, at_once: usize| -> anyhow::Result<Figure> {
        let mut command = Command::new("go");
        command.args(["run", "-mod=readonly", "./bench", &rounds.to_string(), &at_once.to_string()]);
        command.current_dir(&suite).env("KUBEBUILDER_ASSETS", assets.trim_end()).env_remove("KUBECONFIG");
        let said = capture(&mut command)?;
        let samples: Result<Vec<f64>, _> = said.split_whitespace().map(str::parse).collect();
        Ok(Figure::new(name, "ms", TARGET_MS, samples.with_context(|| format!("{SUITE}/bench said {said:?}"))?))
    };
    let shell = |name, rounds: usize, at_once: usize| -> anyhow::Result<Figure> {
        let mut samples = Vec::new();
        for _ in 0..rounds {
            let begun = now();
            let shells: Vec<Child> =
                (0..at_once).map(|_| start(&suite, assets.trim_end())).collect::<Result<_, _>>()?;
            for mut shell in shells {
                let status = shell.wait().context("cannot wait for the shell")?;
                anyhow::ensure!(status.success(), "{SUITE}/once ended with {status}");
                samples.push(begun.elapsed().as_secs_f64() * 1e3);
            }
        }
        Ok(Figure::new(name, "ms", TARGET_MS, samples))
    };
    let figures = [
        go("start and stop from Go", ALONE, 1)?,
        go("start and stop from Go, 20 at once", ROUNDS, AT_ONCE)?,
        shell("start and stop from a shell", ALONE, 1)?,
        shell("start and stop from a shell, 20 at once", ROUNDS, AT_ONCE)?,
    ];
    options.output.print(&figures)?;
    std::fs::remove_dir_all(&scratch).with_context(|| format!("cannot remove {}", scratch.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Starts a shell that starts and stops one control plane, on ports that were free a moment ago.
fn start(suite: &Path, assets: &str) -> anyhow::Result<Child> {
    let ports = [free_port()?, free_port()?];
    let mut command = Command::new(suite.join("once"));
    command.env("KUBEBUILDER_ASSETS", assets).args(ports).stdin(Stdio::null());
    command.spawn().with_context(|| format!("cannot run {SUITE}/once"))
}

fn free_port() -> anyhow::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no port is free")?;
    Ok(listener.local_addr().context("the port is unknown")?.port().to_string())
}
