//! `cargo xtask differential`: the same generated requests to a real kube-apiserver and to `steersman server`, and where the answers
//! differ.
//!
//! The requests are those of `crates/steersman-differential`, whose flags follow; `--help` lists them.

use std::process::{Command, ExitCode, Stdio};

use anyhow::Context;

use crate::reference::Reference;
use crate::steersman::{Role, Steersman};
use crate::workspace::{Profile, Workspace, executable};

/// The differences that are accepted, below the root of the workspace.
const ACCEPTED: &str = "crates/steersman-differential/accepted.txt";
/// The users of both servers, below the root of the workspace, and the token of the administrator among them.
const TOKENS: &str = "tests/walks/tokens.csv";
const TOKEN: &str = "admin-token";

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Options {
    /// For the generator: --seed, --cases, --only, --json; --help lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAGS")]
    flags: Vec<String>,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<ExitCode> {
    let mut command = workspace.cargo();
    command.args(["build", "--release", "--locked", "--package", "steersman-differential"]);
    command.args(["--message-format", "json-render-diagnostics"]);
    let output = command.stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    anyhow::ensure!(output.status.success(), "cargo build of the generator ended with {}", output.status);
    let generator = executable(&String::from_utf8_lossy(&output.stdout), "steersman-differential");
    let mut generator = Command::new(generator.context("cargo build named no steersman-differential")?);
    generator.args(&options.flags);
    if options.flags.iter().any(|flag| flag == "--help" || flag == "-h") {
        let status = generator.status().context("cannot run the generator")?;
        return Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let binary = workspace.build_steersman(Profile::Release)?;
    let reference = Reference::build(workspace)?;
    let scratch = workspace.scratch("differential")?;
    let (data, tokens) = (scratch.join("data"), workspace.root.join(TOKENS));
    let tokens_flag = tokens.to_string_lossy();
    // The loops write objects on their own, and a kube-apiserver has none.
    let flags = [
        "--in-memory",
        "--controllers=-*",
        "--enable-admission-plugins=StorageObjectInUseProtection",
        "--token-auth-file",
        &tokens_flag,
    ];
    let ours = Steersman::start(&binary, Role::Server, &data, &flags, &scratch.join("steersman.log"))?;
    let upstream = reference.start(&scratch, &tokens, &data.join("pki/ca.key"))?;
    generator
        .args(["--upstream", &upstream.address, "--token", TOKEN])
        .arg("--upstream-ca")
        .arg(&upstream.certificates);
    generator.arg("--server").arg(address(&ours)?).arg("--server-ca").arg(data.join("pki/ca.crt"));
    generator.arg("--accepted").arg(workspace.root.join(ACCEPTED));
    let status = generator.status().context("cannot run the generator")?;
    drop(upstream);
    ours.stop()?;
    if status.success() {
        std::fs::remove_dir_all(&scratch).with_context(|| format!("cannot remove {}", scratch.display()))?;
    } else {
        println!("logs: {}", scratch.display());
    }
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The address of a server, as its kubeconfig has it.
fn address(server: &Steersman) -> anyhow::Result<String> {
    let path = &server.ready.kubeconfig;
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let address = text.lines().find_map(|line| line.trim().strip_prefix("server: "));
    Ok(address.with_context(|| format!("no server in {}", path.display()))?.to_owned())
}
