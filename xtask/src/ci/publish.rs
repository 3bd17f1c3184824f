//! Checks whether the crates for other projects could be published: their metadata, their packages, and their semantic
//! versions.

use std::process::Command;

use anyhow::Context;

use crate::shared::metadata::Package;
use crate::shared::process::{capture, find_program};
use crate::shared::workspace::Workspace;

/// The Kubernetes version whose types a package is verified with; libraries leave it open.
const K8S_OPENAPI: &str = "1.37";

/// Checks the metadata that a package needs to be found and judged in a registry.
pub(crate) fn check_metadata(workspace: &Workspace) -> anyhow::Result<()> {
    let mut missing = Vec::new();
    for package in published(workspace) {
        let fields = [
            ("a description", package.description.is_some()),
            ("a licence", package.license.is_some()),
            ("a repository", package.repository.is_some()),
            ("a readme", package.readme.is_some()),
            ("keywords", !package.keywords.is_empty()),
            ("categories", !package.categories.is_empty()),
            ("a rust-version", package.rust_version.is_some()),
        ];
        missing.extend(
            fields.iter().filter(|(_, is_there)| !is_there).map(|(what, _)| format!("{} has no {what}", package.name)),
        );
        // A package is built from other packages; development dependencies without a version are omitted from it.
        for edge in workspace.metadata.edges(package) {
            let is_published = published(workspace).any(|other| other.name == edge);
            if !is_published {
                missing.push(format!("{} needs {edge}, which is not published", package.name));
            }
        }
    }
    anyhow::ensure!(missing.is_empty(), "{}", missing.join("; "));
    Ok(())
}

/// Packs every published crate, and builds each from its package, against the packages of the others.
///
/// Cargo puts the packages into a registry below its target directory. It unpacks a package of a registry once, and never compares it again,
/// so the directory must be a new one: a package of an earlier run would be used in place of the package of the same version.
pub(crate) fn package(workspace: &Workspace) -> anyhow::Result<()> {
    let target = tempfile::Builder::new().prefix("packages-").tempdir_in(&workspace.target);
    let target = target.context("cannot create a directory for the packages")?;
    let mut command = workspace.cargo();
    command.env("CARGO_TARGET_DIR", target.path());
    // Uncommitted changes are checked too.
    command.args(["package", "--quiet", "--locked", "--allow-dirty"]);
    command.args(published(workspace).flat_map(|package| ["--package", &package.name]));
    let status =
        command.env("K8S_OPENAPI_ENABLED_VERSION", K8S_OPENAPI).status().context("cannot run cargo package")?;
    anyhow::ensure!(status.success(), "cargo package ended with {status}");
    Ok(())
}

/// Compares the public API of the libraries with that of the last release. Without a release or without
/// cargo-semver-checks there is nothing to compare, and a message says so.
pub(crate) fn check_versions(workspace: &Workspace) -> anyhow::Result<()> {
    let tags = capture(
        Command::new("git").args(["tag", "--list", "v*", "--sort=-version:refname"]).current_dir(&workspace.root),
    )?;
    let Some(tag) = tags.lines().next() else {
        println!("!!! SKIPPED: cargo semver-checks: there is no tag v* of a release to compare with");
        return Ok(());
    };
    if find_program("cargo-semver-checks").is_none() {
        println!("!!! SKIPPED: cargo semver-checks is not on PATH: `cargo install cargo-semver-checks`");
        return Ok(());
    }
    let mut command = workspace.cargo();
    command.args(["semver-checks", "--baseline-rev", tag]);
    command.args(published(workspace).flat_map(|package| ["--package", &package.name]));
    let status =
        command.env("K8S_OPENAPI_ENABLED_VERSION", K8S_OPENAPI).status().context("cannot run cargo semver-checks")?;
    anyhow::ensure!(status.success(), "the versions promise more than the interface keeps since {tag}");
    Ok(())
}

/// The crates that are published to the registry.
fn published(workspace: &Workspace) -> impl Iterator<Item = &Package> {
    workspace.metadata.members().filter(|package| package.is_published())
}
