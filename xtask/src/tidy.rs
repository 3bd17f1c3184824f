//! `cargo xtask tidy`: checks the tree against its own rules, which no compiler checks.

mod circles;
mod dependencies;
mod directories;
mod edges;
mod flags;
mod layers;
mod locks;
mod paths;
mod snippets;
mod sources;
mod spdx;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Context;

use crate::shared::process::capture;
use crate::shared::workspace::Workspace;

/// A violation of a rule.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Finding {
    /// A file, a file with a line, or a package.
    pub(crate) place: String,
    /// The problem, and the fix.
    pub(crate) message: String,
}

impl Finding {
    pub(crate) fn new(place: impl Into<String>, message: impl Into<String>) -> Finding {
        Finding { place: place.into(), message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.place, self.message)
    }
}

pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<ExitCode> {
    let n_files = check(workspace)?;
    println!("tidy: {n_files} files, {} packages", workspace.metadata.packages.len());
    Ok(ExitCode::SUCCESS)
}

/// Prints every violation. Returns how many files were read.
///
/// # Errors
///
/// If there is a violation, or a file could not be read.
pub(crate) fn check(workspace: &Workspace) -> anyhow::Result<usize> {
    let architecture = read(&workspace.root.join("ARCHITECTURE.md"))?;
    let mut findings = edges::check(&architecture, &workspace.metadata)?;
    findings.extend(dependencies::check(&read(&workspace.root.join("deny.toml"))?, &workspace.metadata)?);
    let files = files(workspace)?;
    let mut rust = BTreeMap::new();
    for file in &files {
        // The rules do not apply to a file that is not text.
        if let Ok(text) = String::from_utf8(read_bytes(&workspace.root.join(file))?) {
            findings.extend(sources::check(file, &text));
            if file.ends_with(".md") {
                findings.extend(snippets::check(file, &text, |path| read(&workspace.root.join(path)).ok()));
            }
            if file.ends_with(".rs") {
                rust.insert(file.clone(), text);
            }
        }
    }
    findings.extend(circles::check(&rust));
    findings.extend(flags::check(&rust));
    findings.extend(layers::check(&architecture, &rust));
    findings.extend(directories::check(&files));
    findings.extend(paths::check(&architecture, &files));
    findings.extend(locks::check(&workspace.root, &files)?);
    for finding in &findings {
        println!("{finding}");
    }
    anyhow::ensure!(findings.is_empty(), "{} breaches of the tree's own rules", findings.len());
    Ok(files.len())
}

/// Every file that is, or would be, under version control.
fn files(workspace: &Workspace) -> anyhow::Result<Vec<String>> {
    let mut command = Command::new("git");
    command.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(&workspace.root);
    let list = capture(&mut command)?;
    let mut files: Vec<String> =
        list.split('\0').filter(|file| workspace.root.join(file).is_file()).map(str::to_owned).collect();
    files.sort();
    files.dedup();
    Ok(files)
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn read_bytes(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}
