//! `cargo xtask pairs`: two servers of this tree on one etcd, of which one changes something and the other uses the change at once.
//!
//! The pairs are about objects, definitions, permissions, quotas, policies, and addresses and ports of Services. The program of
//! `crates/steersman-differential` makes them.

use std::process::{Command, ExitCode};

use anyhow::Context;

use crate::shared::reference::Reference;
use crate::shared::steersman::{Role, Steersman};
use crate::shared::workspace::{Profile, Workspace};

const PROGRAM: &str = "steersman-differential";
/// The users of both servers, below the root of the workspace, and two tokens among them.
const TOKENS: &str = "tests/walks/tokens.csv";
const ADMINISTRATOR: &str = "admin-token";
const USER: &str = "alice-token";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Use debug builds
    #[arg(long)]
    debug: bool,
    /// The number of pairs
    #[arg(long, default_value_t = 10_000)]
    pairs: usize,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<ExitCode> {
    let profile = if options.debug { Profile::Debug } else { Profile::Release };
    let (binary, program) = (workspace.build_steersman(profile)?, workspace.build_program(PROGRAM, profile)?);
    let scratch = workspace.scratch("pairs")?;
    let etcd = Reference::of_etcd(workspace)?.start_etcd(&scratch)?;
    let tokens = workspace.root.join(TOKENS);
    let tokens = tokens.to_string_lossy();
    let flags = ["--controllers=-*", "--token-auth-file", &*tokens, "--etcd-servers", &etcd.url];
    let start = |name: &str| {
        let log = scratch.join(format!("{name}.log"));
        Steersman::start(&binary, Role::Server, &scratch.join(name), &flags, &log)
    };
    let (first, second) = (start("first")?, start("second")?);
    let mut pairs = Command::new(program);
    pairs.args(["pairs", "--token", ADMINISTRATOR, "--user-token", USER, "--pairs", &options.pairs.to_string()]);
    pairs.args(["--server", &first.ready.address()?, "--server-ca"]).arg(scratch.join("first/pki/ca.crt"));
    pairs.args(["--other", &second.ready.address()?, "--other-ca"]).arg(scratch.join("second/pki/ca.crt"));
    let status = pairs.status().context("cannot run the generator")?;
    first.stop()?;
    second.stop()?;
    if !status.success() {
        println!("logs: {}", scratch.display());
        return Ok(ExitCode::FAILURE);
    }
    std::fs::remove_dir_all(&scratch).with_context(|| format!("cannot remove {}", scratch.display()))?;
    Ok(ExitCode::SUCCESS)
}
