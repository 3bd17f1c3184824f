//! Checks whether the library compiles for its users: with other features than ours, and for other systems.
//!
//! Nothing is linked, so that no linker and no C compiler of another system is needed: build scripts that compile C
//! code get a compiler that writes empty files.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::shared::process::{capture, find_program};
use crate::shared::workspace::Workspace;

/// Features of the library that must compile without the default ones: none, and all that need nothing of the system.
const EXTREMES: [&str; 2] = ["", "anyhow,election,events,metrics,ring,rustls-tls,shard,strategic,webhook"];

/// The others that must: each alone, and combinations.
const BETWEEN: [&str; 11] = [
    "anyhow",
    "election",
    "events",
    "metrics",
    "shard",
    "strategic",
    "webhook,ring",
    "webhook,metrics,aws-lc-rs",
    "rustls-tls,ring",
    "openssl-tls",
    "election,shard,metrics",
];

/// The sets of features that are checked.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) enum FeatureSets {
    /// The smallest and the largest.
    Extremes,
    All,
}

/// Systems on which people write and run controllers, besides this one.
const TARGETS: [&str; 3] = ["x86_64-pc-windows-gnu", "x86_64-apple-darwin", "aarch64-apple-darwin"];

/// The crates that a program may depend on wherever it runs.
const LIBRARIES: [&str; 3] = ["steersman", "steersman-machinery", "steersman-schema"];

/// All features except OpenSSL, which needs headers of the other system.
const PORTABLE: &str = "steersman/anyhow,steersman/shard,steersman/strategic,steersman/webhook";

/// Checks the library with each set of features. Sets that need the system's OpenSSL are skipped if it is missing.
pub(crate) fn check_features(workspace: &Workspace, sets: FeatureSets) -> anyhow::Result<()> {
    let between: &[&str] = if sets == FeatureSets::All { &BETWEEN } else { &[] };
    for features in EXTREMES.iter().chain(between) {
        if features.contains("openssl") && !has_openssl() {
            println!("!!! SKIPPED: steersman with {features}: pkg-config finds no openssl (libssl-dev)");
            continue;
        }
        let mut command = workspace.cargo();
        // Clippy passes the flag to our crates alone, so that dependencies are not checked again for it.
        command.args(["clippy", "--quiet", "--package", "steersman", "--lib", "--no-deps", "--no-default-features"]);
        command.args(["--features", features, "--", "-D", "warnings"]);
        let status = command.status().context("cannot run cargo clippy")?;
        anyhow::ensure!(status.success(), "steersman does not compile with only the features {features:?}");
    }
    Ok(())
}

/// Checks the libraries for each of the other systems. A system whose standard library is not available is skipped.
pub(crate) fn check_targets(workspace: &Workspace) -> anyhow::Result<()> {
    let compiler = empty_compiler(&workspace.tools())?;
    for target in TARGETS {
        if let Err(error) = install(target) {
            println!("!!! SKIPPED: a check for {target}: {error:#}");
            continue;
        }
        let variable = target.replace('-', "_");
        let mut command = workspace.cargo();
        command.args(["check", "--quiet", "--lib", "--target", target, "--features", PORTABLE]);
        command.args(LIBRARIES.iter().flat_map(|name| ["--package", name]));
        command.env(format!("CC_{variable}"), &compiler).env(format!("AR_{variable}"), &compiler);
        let status = command.status().context("cannot run cargo check")?;
        anyhow::ensure!(status.success(), "the libraries do not compile for {target}");
    }
    Ok(())
}

fn has_openssl() -> bool {
    capture(Command::new("pkg-config").args(["--exists", "openssl"])).is_ok()
}

/// Installs the standard library of `target` with rustup, unless it is installed.
fn install(target: &str) -> anyhow::Result<()> {
    find_program("rustup").context("rustup is not on PATH")?;
    capture(Command::new("rustup").args(["target", "add", target])).map(drop)
}

/// Writes a program in place of the C compiler and the archiver: it creates the requested file, empty.
fn empty_compiler(directory: &Path) -> anyhow::Result<PathBuf> {
    const SCRIPT: &str = "#!/bin/sh
# As an archiver: `cq FILE ..`, `s FILE`. As a compiler: `.. -o FILE ..`.
case $1 in
cq*|s) printf '!<arch>\\n' > \"$2\"; exit 0 ;;
esac
out=
while [ $# -gt 0 ]; do [ \"$1\" = -o ] && out=$2; shift; done
[ -z \"$out\" ] || : > \"$out\"
";
    let path = directory.join("empty-cc");
    std::fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    std::fs::write(&path, SCRIPT).with_context(|| format!("cannot write {}", path.display()))?;
    make_executable(&path)?;
    Ok(path)
}

fn make_executable(path: &Path) -> anyhow::Result<()> {
    capture(Command::new("chmod").arg("+x").arg(path)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_empty_compiler_makes_what_it_is_asked_for() {
        let directory = std::env::temp_dir().join(format!("xtask-empty-cc-{}", std::process::id()));
        let compiler = empty_compiler(&directory).unwrap();
        let (object, archive) = (directory.join("x.o"), directory.join("x.a"));
        capture(Command::new(&compiler).args(["-O0", "-o"]).arg(&object).arg("x.c")).unwrap();
        capture(Command::new(&compiler).arg("cq").arg(&archive).arg(&object)).unwrap();
        assert_eq!(std::fs::read(&object).unwrap(), b"");
        assert_eq!(std::fs::read(&archive).unwrap(), b"!<arch>\n");
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
