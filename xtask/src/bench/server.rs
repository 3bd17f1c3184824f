//! `cargo xtask bench server`: an API server under load, with the cost of each request.
//!
//! The load client is a program in `benches/load`. This module builds it, and the server that it starts and kills
//! unless it is given another's kubeconfig. The flags are passed to the client.

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context;

use crate::shared::workspace::{Profile, Workspace, executable};

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Options {
    /// For the load client; --help lists its flags
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAGS")]
    flags: Vec<String>,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<ExitCode> {
    let mut client = Command::new(load_client(workspace)?);
    client.args(&options.flags);
    let scratch = if needs_server(&options.flags) {
        let scratch = workspace.scratch("bench-server")?;
        client.arg("--server").arg(workspace.build_steersman(Profile::Dist)?).arg("--scratch").arg(&scratch);
        Some(scratch)
    } else {
        None
    };
    let status = client.status().context("cannot run the load client")?;
    if let Some(scratch) = scratch {
        std::fs::remove_dir_all(&scratch).with_context(|| format!("cannot remove {}", scratch.display()))?;
    }
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Builds the load client and says where it is.
pub(super) fn load_client(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    let mut command = workspace.cargo_benches();
    command.args(["build", "--release", "--locked", "--package", "bench-load"]);
    command.args(["--message-format", "json-render-diagnostics"]);
    let output = command.stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    anyhow::ensure!(output.status.success(), "cargo build of the load client ended with {}", output.status);
    let client = executable(&String::from_utf8_lossy(&output.stdout), "bench-load");
    client.context("cargo build named no bench-load")
}

/// Whether a server has to be started: not if another one is named, or only help is requested.
fn needs_server(flags: &[String]) -> bool {
    let spares = |flag: &String| {
        flag == "--kubeconfig" || flag.starts_with("--kubeconfig=") || matches!(flag.as_str(), "-h" | "--help")
    };
    !flags.iter().any(spares)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_kubeconfig_or_a_question_spares_the_server() {
        let needs = |flags: &[&str]| needs_server(&flags.iter().map(|flag| (*flag).to_owned()).collect::<Vec<_>>());
        assert!(needs(&[]) && needs(&["--only", "get"]));
        assert!(!needs(&["--kubeconfig", "k"]) && !needs(&["--kubeconfig=k"]) && !needs(&["--help"]));
    }
}
