//! The stock kubectl, run at the root of the workspace so that tests have commands as users type them.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::process::{Ended, Process};
use crate::support::{missing, on_path, root};

pub(crate) struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    /// The directory of kubectl's discovery cache; each test has its own.
    home: TempDir,
}

/// The kubectl to use; `None`, with a message, if this machine has none.
pub(crate) fn program() -> Option<PathBuf> {
    let named = ["KUBECTL", "KUBECTL_1_35"].into_iter().find_map(std::env::var_os).map(PathBuf::from);
    let found = named.or_else(|| on_path("kubectl"));
    if found.is_none() {
        missing("kubectl");
    }
    found
}

impl Kubectl {
    /// A kubectl for the cluster of `kubeconfig`.
    pub(crate) fn new(program: PathBuf, kubeconfig: &Path) -> Kubectl {
        Kubectl { program, kubeconfig: kubeconfig.to_owned(), home: tempfile::tempdir().unwrap() }
    }

    /// Runs `kubectl WORDS..`, split at spaces.
    #[track_caller]
    pub(crate) fn run(&self, words: &str) -> Ended {
        Process::start(&mut self.command(words)).end()
    }

    pub(crate) fn command(&self, words: &str) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(words.split_whitespace())
            .current_dir(root())
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", self.home.path())
            .env("KUBECACHEDIR", self.home.path().join("cache"));
        command
    }

    /// Runs it, expects success, and returns its standard output.
    #[track_caller]
    pub(crate) fn ok(&self, words: &str) -> String {
        let ended = self.run(words);
        assert!(ended.status.success(), "kubectl {words}: {ended:#?}");
        ended.stdout
    }

    /// Runs it, expects failure, and returns its standard error.
    #[track_caller]
    pub(crate) fn fails(&self, words: &str) -> String {
        let ended = self.run(words);
        assert_eq!(ended.status.code(), Some(1), "kubectl {words}: {ended:#?}");
        ended.stderr
    }

    /// Runs `kubectl WORDS.. -o json` and parses the answer.
    #[track_caller]
    pub(crate) fn json(&self, words: &str) -> Value {
        serde_json::from_str(&self.ok(&format!("{words} -o json"))).unwrap()
    }

    /// Writes `manifest` to a file and runs `kubectl WORDS.. -f FILE`.
    #[track_caller]
    pub(crate) fn with_manifest(&self, words: &str, manifest: &str) -> Ended {
        let file = self.manifest(manifest);
        self.run(&format!("{words} -f {file}"))
    }

    /// The path of a file with `manifest`; the next call replaces it.
    pub(crate) fn manifest(&self, manifest: &str) -> String {
        let file = self.home.path().join("manifest.yaml");
        std::fs::write(&file, manifest).unwrap();
        file.display().to_string()
    }

    /// Applies `manifest` and expects success.
    #[track_caller]
    pub(crate) fn apply(&self, manifest: &str) -> String {
        let ended = self.with_manifest("apply", manifest);
        assert!(ended.status.success(), "kubectl apply of {manifest}: {ended:#?}");
        ended.stdout
    }

    /// Runs `kubectl edit WORDS..` with an editor that replaces `from` by `to`.
    #[track_caller]
    pub(crate) fn edit(&self, words: &str, from: &str, to: &str) -> String {
        use std::os::unix::fs::PermissionsExt;
        let editor = self.home.path().join("editor");
        std::fs::write(&editor, format!("#!/bin/sh\nexec sed -i 's|{from}|{to}|' \"$1\"\n")).unwrap();
        std::fs::set_permissions(&editor, PermissionsExt::from_mode(0o755)).unwrap();
        let mut command = self.command(&format!("edit {words}"));
        let ended = Process::start(command.env("EDITOR", &editor).env_remove("KUBE_EDITOR")).end();
        assert!(ended.status.success(), "kubectl edit {words}: {ended:#?}");
        ended.stdout
    }
}
