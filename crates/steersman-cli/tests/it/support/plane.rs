//! A running `steersman`, with its data in a directory of the test.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::process::{Ended, Process};

/// A `steersman up` or `steersman server` that is ready.
pub(crate) struct Plane {
    pub(crate) process: Process,
    /// The line of output that reported readiness.
    pub(crate) ready: Value,
}

/// `steersman` in a shell that limits the size of files to this many KiB.
fn limited(home: &Path, file_kib_max: u64) -> Command {
    let mut command = apart(Command::new("bash"), home);
    command.arg("-c").arg(format!("ulimit -f {file_kib_max} && exec \"$0\" \"$@\""));
    command.arg(env!("CARGO_BIN_EXE_steersman"));
    command
}

/// `steersman` without the cloud, the cluster and the home of the user who runs the tests.
pub(crate) fn steersman(home: &Path) -> Command {
    apart(Command::new(env!("CARGO_BIN_EXE_steersman")), home)
}

/// Isolates a command from the user who runs the tests.
fn apart(mut command: Command, home: &Path) -> Command {
    command.current_dir(home).env("HOME", home).env_remove("KUBECONFIG").env_remove("XDG_CONFIG_HOME");
    for (name, _) in std::env::vars_os() {
        let name_text = name.to_string_lossy();
        if name_text.starts_with("OS_") || name_text.starts_with("STEERSMAN_") || name_text == "RUST_LOG" {
            command.env_remove(name);
        }
    }
    command
}

/// Runs `steersman ARGUMENTS..` to its end.
#[track_caller]
pub(crate) fn run(home: &Path, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Ended {
    Process::start(steersman(home).args(arguments)).end()
}

impl Plane {
    /// Control plane and controller, on the data in `home/data`.
    #[track_caller]
    pub(crate) fn up(home: &Path, extra: &[&str]) -> Plane {
        Plane::start(home, "up", extra)
    }

    /// The control plane alone, on the data in `home/data`.
    #[track_caller]
    pub(crate) fn server(home: &Path, extra: &[&str]) -> Plane {
        Plane::start(home, "server", extra)
    }

    /// Like [`Plane::server`], at the address of an earlier one.
    #[track_caller]
    pub(crate) fn server_at(home: &Path, listen: &str, extra: &[&str]) -> Plane {
        Plane::start_at(home, "server", listen, extra)
    }

    #[track_caller]
    fn start(home: &Path, role: &str, extra: &[&str]) -> Plane {
        Plane::start_at(home, role, "127.0.0.1:0", extra)
    }

    /// Like [`Plane::server`], with files of at most this many KiB.
    #[track_caller]
    pub(crate) fn server_limited(home: &Path, file_kib_max: u64) -> Plane {
        Plane::start_as(limited(home, file_kib_max), home, "server", "127.0.0.1:0", &[])
    }

    #[track_caller]
    fn start_at(home: &Path, role: &str, listen: &str, extra: &[&str]) -> Plane {
        Plane::start_as(steersman(home), home, role, listen, extra)
    }

    #[track_caller]
    fn start_as(mut command: Command, home: &Path, role: &str, listen: &str, extra: &[&str]) -> Plane {
        command.arg(role).arg("--data-dir").arg(home.join("data"));
        command.args(["--listen", listen, "--output", "json"]).args(extra);
        let mut process = Process::start(&mut command);
        let Some(line) = process.line() else {
            panic!("steersman {role} ended before it was ready: {:#?}", process.end());
        };
        let ready = serde_json::from_str(&line).unwrap_or_else(|error| panic!("no ready line but {line:?}: {error}"));
        Plane { process, ready }
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.ready["kubeconfig"].as_str().expect("the ready line names the kubeconfig").into()
    }

    /// `127.0.0.1:PORT`.
    pub(crate) fn listen(&self) -> &str {
        self.ready["listen"].as_str().expect("the ready line names the address")
    }

    /// Ends it like an init system, and expects success.
    #[track_caller]
    pub(crate) fn stop(self) {
        self.process.signal("TERM");
        let ended = self.process.end();
        assert_eq!(ended.status.code(), Some(0), "after SIGTERM: {ended:#?}");
    }

    /// Ends it like a power cut.
    #[track_caller]
    pub(crate) fn kill(self) {
        self.process.signal("KILL");
        self.process.end();
    }
}
