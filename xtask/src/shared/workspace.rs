//! The location of the workspace and of its build output, and the calls of its cargo.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;

use crate::shared::metadata::Metadata;

/// The directories everything else is relative to.
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) metadata: Metadata,
}

/// The build profile of the product.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Profile {
    Debug,
    /// The published and measured build: optimized across crates, which makes the build half as long again.
    Dist,
    Release,
    /// A debug build with the features that tests enable too: after `cargo test --workspace` it exists already.
    /// Otherwise, building it builds all tests.
    Tested,
}

impl Workspace {
    /// Asks cargo, from the directory of this crate's manifest: xtask works from any current directory.
    pub(crate) fn find() -> anyhow::Result<Workspace> {
        let metadata = Metadata::read(Path::new(env!("CARGO_MANIFEST_DIR")))?;
        Ok(Workspace { root: metadata.workspace_root.clone(), target: metadata.target_directory.clone(), metadata })
    }

    /// A command of the same toolchain's cargo, at the root of the workspace.
    pub(crate) fn cargo(&self) -> Command {
        let mut command = Command::new(cargo());
        command.current_dir(&self.root);
        command
    }

    /// The directory of tools that tests use and cargo does not build. It survives between runs, and is removed with
    /// the target directory.
    pub(crate) fn tools(&self) -> PathBuf {
        self.target.join("tools")
    }

    /// A fresh, empty directory for one run. Older ones of the same name are removed.
    pub(crate) fn scratch(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.target.join("scratch").join(format!("{name}-{}", std::process::id()));
        if path.exists() {
            std::fs::remove_dir_all(&path).with_context(|| format!("cannot empty {}", path.display()))?;
        }
        std::fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(path)
    }

    /// Builds the `steersman` binary and says where it is.
    pub(crate) fn build_steersman(&self, profile: Profile) -> anyhow::Result<PathBuf> {
        self.build_program("steersman", profile)
    }

    /// Builds a program of the workspace and says where it is.
    ///
    /// The whole workspace is selected so that features unify as in other commands on the workspace, and their build
    /// output is reused.
    pub(crate) fn build_program(&self, name: &str, profile: Profile) -> anyhow::Result<PathBuf> {
        let mut command = self.cargo();
        command.args(["build", "--workspace", "--bin", name, "--message-format", "json-render-diagnostics"]);
        command.args(match profile {
            Profile::Debug => &[][..],
            Profile::Dist => &["--profile", "dist"],
            Profile::Release => &["--profile", "release"],
            Profile::Tested => &["--tests"],
        });
        let output = command.stderr(Stdio::inherit()).output().context("cannot run cargo build")?;
        anyhow::ensure!(output.status.success(), "cargo build of {name} ended with {}", output.status);
        executable(&String::from_utf8_lossy(&output.stdout), name)
            .with_context(|| format!("cargo build named no executable for {name}"))
    }

    /// A command of the same toolchain's cargo in the benches' workspace, with the shared output directory.
    pub(crate) fn cargo_benches(&self) -> Command {
        let mut command = Command::new(cargo());
        command.current_dir(self.benches()).env("CARGO_TARGET_DIR", &self.target);
        command
    }

    /// The directory of the fuzz targets.
    pub(crate) fn fuzz(&self) -> PathBuf {
        self.root.join("fuzz")
    }

    /// The directory of the benches, a separate workspace, so that the peers are in no lock file of the product.
    pub(crate) fn benches(&self) -> PathBuf {
        self.root.join("benches")
    }
}

/// The cargo that started this program, so that a toolchain override stays in force.
pub(crate) fn cargo() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Whether this runs in continuous integration, where nothing may be skipped.
pub(crate) fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "0" && value != "false")
}

/// The path of the executable `name` among cargo's JSON messages. The test executable of a crate with that name is
/// skipped.
pub(crate) fn executable(messages: &str, name: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == name && message["profile"]["test"] != true)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executable_is_found_among_messages() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","target":{"name":"steersman"},"executable":null}"#,
            "\nnot json\n",
            r#"{"reason":"compiler-artifact","target":{"name":"steersman"},"profile":{"test":true},"executable":"/t/debug/deps/steersman-1"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","target":{"name":"steersman"},"profile":{"test":false},"executable":"/t/debug/steersman"}"#,
            "\n",
        );
        assert_eq!(executable(messages, "steersman"), Some(PathBuf::from("/t/debug/steersman")));
        assert_eq!(executable(messages, "xtask"), None);
    }
}
