//! Checks whether the crates for other projects could be published: their metadata, their packages, and their semantic
//! versions.

use std::process::Command;

use anyhow::Context;

use crate::shared::metadata::Package;
use crate::shared::process::{capture, find_program};
use crate::shared::workspace::{Workspace, cargo};

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

/// Packs every published crate, and checks that each compiles as it was packed, with the packages of the others.
///
/// Cargo's own verification builds them all with their dependencies once more. A check finds what it is for, a file or a dependency that is not
/// in the package, without generating code.
pub(crate) fn package(workspace: &Workspace) -> anyhow::Result<()> {
    let target = workspace.target.join("packages");
    // Cargo takes a file for unchanged that is older than its last build: a package of an earlier run must not be here.
    if target.exists() {
        std::fs::remove_dir_all(&target).with_context(|| format!("cannot empty {}", target.display()))?;
    }
    let mut command = workspace.cargo();
    command.env("CARGO_TARGET_DIR", &target);
    // Uncommitted changes are checked too.
    command.args(["package", "--quiet", "--locked", "--allow-dirty", "--no-verify"]);
    command.args(published(workspace).flat_map(|package| ["--package", &package.name]));
    let status = command.status().context("cannot run cargo package")?;
    anyhow::ensure!(status.success(), "cargo package ended with {status}");

    let packages = target.join("package");
    for package in published(workspace) {
        let archive = packages.join(format!("{}.crate", directory_of(package)));
        // With the time of now: the files in an archive are from 2006.
        capture(Command::new("tar").arg("-xmzf").arg(&archive).arg("-C").arg(&packages))?;
    }
    let manifest = std::fs::read_to_string(workspace.root.join("Cargo.toml")).context("cannot read Cargo.toml")?;
    let manifest = manifest_of_packages(&published(workspace).collect::<Vec<_>>(), &manifest);
    std::fs::write(packages.join("Cargo.toml"), manifest).context("cannot write the manifest of the packages")?;
    std::fs::copy(workspace.root.join("Cargo.lock"), packages.join("Cargo.lock")).context("cannot copy Cargo.lock")?;
    for package in published(workspace) {
        let mut command = Command::new(cargo());
        // `--locked` would refuse the lock file, which has also what other crates need. Offline, cargo only removes that.
        command.args(["check", "--quiet", "--offline", "--package", &package.name]).current_dir(&packages);
        command.env("CARGO_TARGET_DIR", &workspace.target).env("K8S_OPENAPI_ENABLED_VERSION", K8S_OPENAPI);
        let status = command.status().context("cannot run cargo check")?;
        anyhow::ensure!(status.success(), "the package of {} does not compile", package.name);
    }
    Ok(())
}

/// The directory in the archive of a package.
fn directory_of(package: &Package) -> String {
    format!("{}-{}", package.name, package.version)
}

/// The manifest of a workspace of unpacked packages, in which each uses the others. It has the profiles of development of this workspace's
/// manifest, so that cargo finds what it has checked.
fn manifest_of_packages(packages: &[&Package], manifest: &str) -> String {
    let members: Vec<String> = packages.iter().map(|package| format!("{:?}", directory_of(package))).collect();
    let patches: String = packages
        .iter()
        .map(|package| format!("{} = {{ path = {:?} }}\n", package.name, directory_of(package)))
        .collect();
    let sections = manifest.split("\n[").skip(1).filter(|section| section.starts_with("profile.dev"));
    let profiles: String = sections.map(|section| format!("\n[{}\n", section.trim_end())).collect();
    let members = members.join(", ");
    format!("[workspace]\nresolver = \"3\"\nmembers = [{members}]\n\n[patch.crates-io]\n{patches}{profiles}")
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
