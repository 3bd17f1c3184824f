//! `cargo xtask bench hostile`: the effect on other clients while two users with few rights attack the API server, and
//! the server's memory.
//!
//! The client is the program of `crates/steersman-hostile`, which starts the server itself and defines the flags. A
//! server that was built before is named with `--server`.

use std::process::{Command, ExitCode, Stdio};

use anyhow::Context;

use crate::shared::workspace::{Profile, Workspace, executable};

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Options {
    /// For the client; --help lists its flags
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAGS")]
    flags: Vec<String>,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<ExitCode> {
    let mut command = workspace.cargo();
    command.args(["build", "--release", "--locked", "--package", "steersman-hostile"]);
    command.args(["--message-format", "json-render-diagnostics"]);
    let output = command.stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    anyhow::ensure!(output.status.success(), "cargo build of the client ended with {}", output.status);
    let client = executable(&String::from_utf8_lossy(&output.stdout), "steersman-hostile");
    let mut client = Command::new(client.context("cargo build named no steersman-hostile")?);
    let scratch = workspace.scratch("bench-hostile")?;
    client.args(&options.flags).arg("--scratch").arg(&scratch);
    if needs_server(&options.flags) {
        client.arg("--server").arg(workspace.build_steersman(Profile::Release)?);
    }
    let status = client.status().context("cannot run the client")?;
    std::fs::remove_dir_all(&scratch).with_context(|| format!("cannot remove {}", scratch.display()))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether a server has to be built: not if one is named, or only help is requested.
fn needs_server(flags: &[String]) -> bool {
    let spares =
        |flag: &String| flag == "--server" || flag.starts_with("--server=") || matches!(flag.as_str(), "-h" | "--help");
    !flags.iter().any(spares)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_named_server_or_a_question_spares_the_build() {
        let needs = |flags: &[&str]| needs_server(&flags.iter().map(|flag| (*flag).to_owned()).collect::<Vec<_>>());
        assert!(needs(&[]) && needs(&["--only", "list"]));
        assert!(!needs(&["--server", "s"]) && !needs(&["--server=s"]) && !needs(&["--help"]));
    }
}
