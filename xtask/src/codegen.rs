//! `cargo xtask codegen`: the generated code in this repository, written anew or compared.
//!
//! What generates it is the product itself, called as its users call it.

use std::process::ExitCode;

use anyhow::Context;

use crate::workspace::{Profile, Workspace, in_ci};

/// Arguments of `steersman codegen`, for each module that is generated.
const GENERATED: &[&[&str]] = &[
    &[
        "clients",
        "manifests/crd/network-v1.yaml",
        "--types",
        "crate::api",
        "--out",
        "crates/steersman-network/src/client.rs",
    ],
    &[
        "clients",
        "crates/steersman-testkit/tests/it/codegen/crd.yaml",
        "--types",
        "crate::codegen::api::{version}",
        "--out",
        "crates/steersman-testkit/tests/it/codegen/client.rs",
    ],
];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Write nothing: fail if a file is not what would be written
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<ExitCode> {
    generate(workspace, options.check)?;
    Ok(ExitCode::SUCCESS)
}

/// # Errors
///
/// If a module is out of date.
pub(crate) fn check(workspace: &Workspace) -> anyhow::Result<()> {
    generate(workspace, true)
}

fn generate(workspace: &Workspace, check: bool) -> anyhow::Result<()> {
    // In continuous integration the tests have been built before.
    let binary = workspace.build_steersman(if in_ci() { Profile::Tested } else { Profile::Debug })?;
    for arguments in GENERATED {
        let mut command = std::process::Command::new(&binary);
        command.arg("codegen").args(*arguments).current_dir(&workspace.root);
        if check {
            command.arg("--check");
        }
        let status = command.status().with_context(|| format!("cannot run {}", binary.display()))?;
        anyhow::ensure!(status.success(), "cargo xtask codegen brings all of it up to date");
    }
    Ok(())
}
