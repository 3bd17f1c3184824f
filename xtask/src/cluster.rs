//! `cargo xtask cluster`: a server and two real nodes, and the facts about them that people rely on.
//!
//! The parts and the facts are scripts below `tests/cluster`, whose README says what they need. This module builds the
//! binary, has the parts made, and runs the facts in namespaces that end with it.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::Context;

use crate::shared::process::{Heard, Running, find_program, now};
use crate::shared::report::Report;
use crate::shared::tally::Tally;
use crate::shared::tools;
use crate::shared::workspace::{Profile, Workspace};

/// The directory of the scripts, below the root of the workspace.
const DIRECTORY: &str = "tests/cluster";
/// The programs that the scripts need on this machine.
const PROGRAMS: [&str; 10] =
    ["apt-get", "bash", "cc", "dpkg-deb", "go", "ip", "nsenter", "python3", "sysctl", "unshare"];
/// How long the facts may take, and the conformance suite.
const RUN_MAX: Duration = Duration::from_secs(1800);
const CONFORMANCE_MAX: Duration = Duration::from_secs(3 * 3600);

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Open a shell with kubectl when the facts have been checked; the cluster ends with it
    #[arg(long)]
    keep: bool,
    /// Use a release build of the server
    #[arg(long)]
    release: bool,
    /// Run Kubernetes' conformance suite instead, which takes an hour
    #[arg(long, group = "other", conflicts_with = "keep")]
    conformance: bool,
    /// Measure the control plane with 200 Pods instead: memory, processor time, commands and logs
    #[arg(long, group = "other", conflicts_with_all = ["keep", "facts"])]
    measure: bool,
    /// Do that on Kubernetes' own etcd, API server, controller manager and scheduler, to compare with
    #[arg(long, requires = "other")]
    upstream: bool,
    /// Facts to check, by the names of their files below tests/cluster/facts, such as 20-pods; name those before them too, whose
    /// objects they use. Without a name, all. With --conformance, a file with the names of specs
    facts: Vec<String>,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<ExitCode> {
    let mut report = Report::default();
    let profile = if options.release { Profile::Release } else { Profile::Debug };
    let total = test(workspace, &mut report, profile, options)?;
    report.print_summary();
    println!("{} passed, {} failed", total.passed, total.failed + report.n_forbidden_skips());
    Ok(report.exit_code())
}

/// Checks all facts, for `cargo xtask test --long`.
pub(crate) fn test_all(workspace: &Workspace, report: &mut Report) -> anyhow::Result<Tally> {
    let options =
        Options { keep: false, release: false, conformance: false, measure: false, upstream: false, facts: Vec::new() };
    test(workspace, report, Profile::Tested, &options)
}

fn test(workspace: &Workspace, report: &mut Report, profile: Profile, options: &Options) -> anyhow::Result<Tally> {
    let mut counted = Tally::default();
    let parts = workspace.tools().join("cluster");
    // The images of the suite come with Kubernetes' own control plane.
    let is_larger = options.conformance || options.upstream;
    let scripts: &[&str] = if is_larger { &["./prepare", "conformance/images"] } else { &["./prepare"] };
    anyhow::ensure!(!options.conformance || options.facts.len() <= 1, "--conformance takes one file of specs");
    if report.set_up("a cluster of real parts", || prepare(workspace, &parts, scripts, options)).is_some() {
        let (kubectl, binary) = (tools::kubectl(workspace)?, workspace.build_steersman(profile)?);
        report.part("cluster", || check(workspace, options, [&binary, &kubectl, &parts], &mut counted));
    }
    Ok(counted)
}

/// Makes the programs and images of the nodes with these scripts.
fn prepare(workspace: &Workspace, parts: &Path, scripts: &[&str], options: &Options) -> anyhow::Result<()> {
    anyhow::ensure!(cfg!(all(target_os = "linux", target_arch = "x86_64")), "nodes run on Linux on x86-64 only");
    for program in PROGRAMS {
        anyhow::ensure!(find_program(program).is_some(), "{program} is not on PATH");
    }
    let who = Command::new("id").arg("-u").output().context("cannot run id")?;
    anyhow::ensure!(who.stdout.trim_ascii() == b"0", "nodes need root for their networks and containers");
    for script in scripts {
        let mut command = Command::new(script);
        command.current_dir(workspace.root.join(DIRECTORY)).env("PARTS", parts).stdin(Stdio::null());
        if options.upstream {
            command.env("UPSTREAM", "1");
        }
        let status = command.status().with_context(|| format!("cannot run {script} in {DIRECTORY}"))?;
        anyhow::ensure!(status.success(), "the parts of the nodes cannot be made: {script} ended with {status}");
    }
    Ok(())
}

/// Starts the cluster and checks the facts.
fn check(
    workspace: &Workspace,
    options: &Options,
    [binary, kubectl, parts]: [&Path; 3],
    counted: &mut Tally,
) -> anyhow::Result<()> {
    let scratch = workspace.scratch("cluster")?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    if options.conformance {
        command.arg("conformance/run");
        for file in &options.facts {
            command.arg(std::path::absolute(file).with_context(|| format!("{file} is no path"))?);
        }
    } else if options.measure {
        command.arg("./measure");
    } else {
        command.arg("./run").args(options.facts.iter().map(|facts| format!("facts/{facts}")));
    }
    command.current_dir(workspace.root.join(DIRECTORY));
    command.env("STEERSMAN", binary).env("KUBECTL", kubectl).env("PARTS", parts).env("SCRATCH", &scratch);
    if options.upstream {
        command.env("UPSTREAM", "1");
    }
    if options.keep {
        command.env("KEEP", "1");
    }
    let running = Running::start(&mut command)?;
    let run_max = if options.conformance { CONFORMANCE_MAX } else { RUN_MAX };
    let deadline = now() + run_max;
    loop {
        // A shell is open for as long as its user wants.
        let patience = if options.keep { Duration::MAX } else { deadline.saturating_duration_since(now()) };
        match running.listen(patience) {
            Heard::Line(line) => {
                println!("{line}");
                *counted += Tally::from_line(&line).unwrap_or_default();
            }
            Heard::End => break,
            Heard::Nothing => anyhow::bail!("not done after {} s", run_max.as_secs()),
        }
    }
    let status = running.wait()?;
    anyhow::ensure!(counted.failed == 0, "{} facts did not hold; logs: {}", counted.failed, scratch.display());
    anyhow::ensure!(status.success(), "the facts ended with {status}; logs: {}", scratch.display());
    anyhow::ensure!(counted.passed > 0, "no fact was checked");
    std::fs::remove_dir_all(&scratch).with_context(|| format!("cannot remove {}", scratch.display()))
}
