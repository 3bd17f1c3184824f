//! The output of `cargo metadata`, as far as the checks need it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;
use serde::Deserialize;

use crate::shared::workspace::cargo;

#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) workspace_members: Vec<String>,
    pub(crate) workspace_root: PathBuf,
    pub(crate) target_directory: PathBuf,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) version: String,
    /// An SPDX expression; old packages write `MIT/Apache-2.0`.
    pub(crate) license: Option<String>,
    /// The source of the package; `None` for a path in the workspace.
    pub(crate) source: Option<String>,
    pub(crate) dependencies: Vec<Dependency>,
    /// The registries it may be published to: `None` for any, an empty list for none.
    pub(crate) publish: Option<Vec<String>>,
    pub(crate) description: Option<String>,
    pub(crate) repository: Option<String>,
    pub(crate) readme: Option<PathBuf>,
    pub(crate) rust_version: Option<String>,
    pub(crate) keywords: Vec<String>,
    pub(crate) categories: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `dev`, `build`, or `None` for a normal dependency.
    pub(crate) kind: Option<String>,
}

impl Package {
    /// Whether it is published to a registry.
    pub(crate) fn is_published(&self) -> bool {
        self.publish.as_ref().is_none_or(|registries| !registries.is_empty())
    }
}

impl Metadata {
    /// Runs `cargo metadata` in `directory`.
    pub(crate) fn read(directory: &Path) -> anyhow::Result<Metadata> {
        let output = Command::new(cargo())
            .args(["metadata", "--format-version", "1"])
            .current_dir(directory)
            .stderr(Stdio::inherit())
            .output()
            .context("cannot run cargo metadata")?;
        anyhow::ensure!(output.status.success(), "cargo metadata ended with {}", output.status);
        serde_json::from_slice(&output.stdout).context("cannot read what cargo metadata printed")
    }

    /// The packages of this workspace.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| self.workspace_members.contains(&package.id))
    }

    /// The packages from outside the workspace.
    pub(crate) fn foreign(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| !self.workspace_members.contains(&package.id))
    }

    /// The workspace packages that `package` depends on, without development dependencies: tests may use anything.
    pub(crate) fn edges(&self, package: &Package) -> BTreeSet<String> {
        let members: BTreeSet<&str> = self.members().map(|member| member.name.as_str()).collect();
        package
            .dependencies
            .iter()
            .filter(|dependency| dependency.kind.as_deref() != Some("dev"))
            .filter(|dependency| members.contains(dependency.name.as_str()))
            .map(|dependency| dependency.name.clone())
            .collect()
    }
}
