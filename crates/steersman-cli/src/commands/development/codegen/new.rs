//! `steersman new`: a project for an operator, in a directory of its own.

use crate::Failure;
use crate::args::NewOptions;
use anyhow::Context as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use steersman_codegen::project::{self, Dependency, Options};

/// Makes the project, and prints what to do with it.
pub(crate) fn run(options: &NewOptions) -> Result<(), Failure> {
    let dependency = match &options.steersman_path {
        None => Dependency::Published,
        Some(path) => Dependency::Path(checkout(path)?),
    };
    let project = Options {
        name: options.name.clone(),
        kind: options.kind.clone(),
        group: options.group.clone(),
        webhook: options.webhook,
        dependency,
    };
    let files = project::generate(&project).map_err(|error| Failure::Refused(crate::chain(&error)))?;
    let directory = options.dir.as_deref().unwrap_or(Path::new("")).join(&options.name);
    if !is_free(&directory).with_context(|| format!("cannot look into {}", directory.display()))? {
        let directory = directory.display();
        return Err(Failure::Refused(format!(
            "{directory} is there already and is not an empty directory: choose another name, or another place with --dir"
        )));
    }
    files.write(&directory).map_err(anyhow::Error::from)?;
    format(&directory);
    let source = match project.dependency {
        Dependency::Path(_) => "\nThere is no CI workflow, since its machines have no checkout of Steersman.\n",
        Dependency::Published => {
            "\nIt takes Steersman from crates.io; name a checkout with --steersman-path to use that instead.\n"
        }
    };
    let text = format!(
        "made {}\n\n    cd {}\n    cargo test      # against an API server in the test's own process\n    cargo run       # against the cluster of your kubeconfig\n{source}",
        directory.display(),
        directory.display()
    );
    // A closed standard output is no reason to fail.
    _ = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}

/// A checkout of Steersman, by its absolute path.
fn checkout(path: &Path) -> Result<PathBuf, Failure> {
    let refused = |why: String| {
        Failure::Refused(format!("{} {why}: pass the directory of a checkout with --steersman-path", path.display()))
    };
    let absolute = path.canonicalize().map_err(|error| refused(format!("cannot be used ({error})")))?;
    match absolute.join("crates/steersman/Cargo.toml").is_file() {
        true => Ok(absolute),
        false => Err(refused("has no crates/steersman".to_owned())),
    }
}

/// Whether `path` does not exist, or is an empty directory.
fn is_free(path: &Path) -> std::io::Result<bool> {
    match std::fs::read_dir(path) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => Ok(false),
        Err(error) => Err(error),
    }
}

/// Formats the project with rustfmt, because the length of its lines depends on the names in them. The code works
/// without that, too.
fn format(directory: &Path) {
    let mut command = Command::new("cargo");
    command.arg("fmt").current_dir(directory).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    _ = command.status();
}
