//! `cargo xtask ci`: what continuous integration checks besides the tests.

mod portable;
mod publish;

use std::process::{Command, ExitCode};

use anyhow::Context;

use crate::ci::portable::FeatureSets;
use crate::codegen;
use crate::shared::process::find_program;
use crate::shared::report::Report;
use crate::shared::workspace::Workspace;
use crate::tidy;

/// Features that the documentation of the library includes besides the default ones.
const DOCUMENTED: &str = "steersman/anyhow,steersman/shard,steersman/strategic,steersman/webhook";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Before a release too: the benches, every combination of features, other systems, whether packages compile, and
    /// versions
    #[arg(long)]
    long: bool,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<ExitCode> {
    let mut report = Report::default();
    report.part("fmt", || succeed(workspace.cargo().args(["fmt", "--all", "--", "--check"])));
    report.part("fmt of benches", || succeed(workspace.cargo_benches().args(["fmt", "--all", "--", "--check"])));
    report.part("tidy", || tidy::check(workspace).map(drop));
    report.part("clippy", || {
        succeed(workspace.cargo().args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
    });
    report.part("codegen", || codegen::check(workspace));
    report.part("doc", || {
        let mut command = workspace.cargo();
        // The binary has the same name as the library; its documentation is its `--help`.
        command.args(["doc", "--workspace", "--no-deps", "--exclude", "steersman-cli", "--features", DOCUMENTED]);
        succeed(command.env("RUSTDOCFLAGS", "-D warnings"))
    });
    let sets = if options.long { FeatureSets::All } else { FeatureSets::Extremes };
    report.part("features of the library", || portable::check_features(workspace, sets));
    report.part("metadata of packages", || publish::check_metadata(workspace));
    if options.long {
        report.part("clippy of benches", || {
            let mut command = workspace.cargo_benches();
            succeed(command.args(["clippy", "--workspace", "--locked", "--all-targets", "--", "-D", "warnings"]))
        });
        report.part("other systems", || portable::check_targets(workspace));
        report.part("packages", || publish::package(workspace));
        report.part("versions", || publish::check_versions(workspace));
    }
    match find_program("cargo-deny") {
        Some(_) => {
            report.part("deny", || succeed(workspace.cargo().args(["deny", "check", "licenses", "bans", "sources"])));
        }
        None => {
            println!(
                "!!! cargo-deny is not on PATH: tidy has held the licences, bans and sources of deny.toml already,"
            );
            println!("!!! `cargo install cargo-deny` adds its own reading of them");
        }
    }
    report.print_summary();
    Ok(report.exit_code())
}

fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("cannot run {}", command.get_program().display()))?;
    anyhow::ensure!(status.success(), "ended with {status}");
    Ok(())
}
