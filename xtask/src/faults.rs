//! `cargo xtask faults`: several servers on several members of a real etcd, broken by seed while clients work, and a check
//! of everything that the clients saw.
//!
//! The program of `crates/steersman-faults` starts the processes, breaks them and checks; it gets the flags, and `--help`
//! lists them. `cargo xtask test` runs a few faults of a fixed seed.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Context;

use crate::shared::tools;
use crate::shared::workspace::{Profile, Workspace};

const PROGRAM: &str = "steersman-faults";
/// The faults of the test: each kind, and no long ones.
const TEST: [&str; 4] = ["--seed", "9", "--faults", "10"];

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Options {
    /// For the program: --seed, --faults, --members, --servers, --clients; --help lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAGS")]
    flags: Vec<String>,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<ExitCode> {
    let mut program = Command::new(workspace.build_program(PROGRAM, Profile::Release)?);
    if options.flags.iter().any(|flag| flag == "--help" || flag == "-h") {
        let status = program.arg("--help").status().context("cannot run the program")?;
        return Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let etcd = tools::etcd(workspace)?;
    let server = workspace.build_steersman(Profile::Release)?;
    let status = on(&mut program, workspace, &server, &etcd)?.args(&options.flags).status();
    Ok(if status.context("cannot run the program")?.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A few faults against a debug build.
pub(crate) fn test(workspace: &Workspace, etcd: &Path) -> anyhow::Result<()> {
    let mut program = Command::new(workspace.build_program(PROGRAM, Profile::Tested)?);
    let server = workspace.build_steersman(Profile::Tested)?;
    let status = on(&mut program, workspace, &server, etcd)?.args(TEST).status().context("cannot run the program")?;
    anyhow::ensure!(status.success(), "the check of the servers' answers ended with {status}");
    Ok(())
}

fn on<'p>(
    program: &'p mut Command,
    workspace: &Workspace,
    server: &Path,
    etcd: &Path,
) -> anyhow::Result<&'p mut Command> {
    let scratch = workspace.scratch("faults")?;
    Ok(program.arg("--server").arg(server).arg("--etcd").arg(etcd).arg("--scratch").arg(scratch))
}
