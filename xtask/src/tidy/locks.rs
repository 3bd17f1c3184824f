//! Checks that every `Cargo.lock` matches its manifests: CI builds with `--locked`, and the workspaces beside the main
//! one are not built otherwise in between.

use std::path::Path;
use std::process::Command;

use anyhow::Context;

use crate::shared::workspace::cargo;
use crate::tidy::Finding;

const FILE: &str = "Cargo.lock";

pub(crate) fn check(root: &Path, files: &[String]) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| Path::new(file).file_name().is_some_and(|name| name == FILE)) {
        let directory = root.join(file);
        let directory = directory.parent().context("a lock file stands in a directory")?;
        if let Some(reason) = refusal(directory)? {
            let message =
                format!("is not what its manifests ask for, run `cargo update --workspace` beside it: {reason}");
            findings.push(Finding::new(file.clone(), message));
        }
    }
    Ok(findings)
}

/// Cargo's reason for refusing to build this workspace with `--locked`.
fn refusal(directory: &Path) -> anyhow::Result<Option<String>> {
    let mut command = Command::new(cargo());
    command.args(["update", "--workspace", "--locked", "--quiet"]).current_dir(directory);
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    if output.status.success() {
        return Ok(None);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Ok(Some(said.lines().next().unwrap_or("cargo says nothing").to_owned()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_lock_file_that_its_manifest_has_left_behind_is_found() {
        let root = std::env::temp_dir().join(format!("steersman-tidy-locks-{}", std::process::id()));
        fs::create_dir_all(root.join("src")).unwrap();
        fs::write(root.join("src/lib.rs"), "").unwrap();
        let manifest = "[package]\nname = \"a\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n";
        fs::write(root.join("Cargo.toml"), manifest).unwrap();
        fs::write(root.join(FILE), "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"0.1.0\"\n").unwrap();
        let files = [FILE.to_owned(), "src/lib.rs".to_owned()];
        assert_eq!(check(&root, &files).unwrap(), []);

        fs::write(root.join("Cargo.toml"), manifest.replace("0.1.0", "0.2.0")).unwrap();
        let findings = check(&root, &files).unwrap();
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].place, FILE);
        assert!(findings[0].message.contains("lock file"), "{}", findings[0]);
        fs::remove_dir_all(&root).unwrap();
    }
}
