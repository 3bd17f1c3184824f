//! Starts the product as a user would, and detects when it is ready.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::Context;
use serde::Deserialize;

use crate::shared::process::{Heard, Running, now};

/// The timeout of a start; a debug build on a busy machine is slow.
const START_MAX: Duration = Duration::from_secs(60);
/// The timeout of a shutdown, in which requests are drained.
const STOP_MAX: Duration = Duration::from_secs(30);

/// The command of the binary that is started.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role {
    /// The control plane alone.
    Server,
    /// The control plane and the Network controller.
    Up,
}

/// A running `steersman`.
pub(crate) struct Steersman {
    running: Running,
    pub(crate) ready: Ready,
    /// The time from exec to the ready line.
    pub(crate) took: Duration,
}

/// The only line that `--output json` prints, once `/readyz` answers 200.
#[derive(Debug, Deserialize)]
pub(crate) struct Ready {
    pub(crate) kubeconfig: PathBuf,
}

impl Ready {
    /// The address of the server, as its kubeconfig has it.
    pub(crate) fn address(&self) -> anyhow::Result<String> {
        let path = &self.kubeconfig;
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let address = text.lines().find_map(|line| line.trim().strip_prefix("server: "));
        Ok(address.with_context(|| format!("no server in {}", path.display()))?.to_owned())
    }

    /// Writes the kubeconfig with another address, of a server with the same certificates.
    pub(crate) fn kubeconfig_for(&self, address: &str, path: &Path) -> anyhow::Result<()> {
        let own = &self.kubeconfig;
        let text = std::fs::read_to_string(own).with_context(|| format!("cannot read {}", own.display()))?;
        let lines = text.lines().map(|line| match line.split_once("server: ") {
            Some((before, _)) => format!("{before}server: {address}\n"),
            None => format!("{line}\n"),
        });
        std::fs::write(path, lines.collect::<String>()).with_context(|| format!("cannot write {}", path.display()))
    }
}

impl Steersman {
    /// Starts `binary` on a port that it chooses, and waits until it is ready. Its log goes to `log`.
    pub(crate) fn start(
        binary: &Path,
        role: Role,
        data: &Path,
        extra: &[&str],
        log: &Path,
    ) -> anyhow::Result<Steersman> {
        Steersman::start_at(binary, role, data, "127.0.0.1:0", extra, log)
    }

    /// Starts `binary` at an address, and waits until it is ready. Its log goes to the end of `log`.
    pub(crate) fn start_at(
        binary: &Path,
        role: Role,
        data: &Path,
        listen: &str,
        extra: &[&str],
        log: &Path,
    ) -> anyhow::Result<Steersman> {
        let command_name = match role {
            Role::Server => "server",
            Role::Up => "up",
        };
        let errors = File::options().create(true).append(true).open(log);
        let errors = errors.with_context(|| format!("cannot create {}", log.display()))?;
        let mut command = Command::new(binary);
        command.arg(command_name).arg("--data-dir").arg(data);
        command.args(["--listen", listen, "--output", "json"]).args(extra).stderr(errors);
        for (name, _) in std::env::vars_os() {
            // The user's own cloud and cluster must not be touched.
            if name.to_string_lossy().starts_with("OS_") || name == "KUBECONFIG" {
                command.env_remove(name);
            }
        }
        let start = now();
        let running = Running::start(&mut command)?;
        let line = match running.listen(START_MAX) {
            Heard::Line(line) => line,
            Heard::End => anyhow::bail!("steersman {command_name} ended before it was ready: {}", tail(log)),
            Heard::Nothing => {
                anyhow::bail!("steersman {command_name} was not ready after {} s: {}", START_MAX.as_secs(), tail(log))
            }
        };
        let took = start.elapsed();
        let ready = serde_json::from_str(&line)
            .with_context(|| format!("steersman {command_name} printed no ready line of JSON but {line:?}"))?;
        Ok(Steersman { running, ready, took })
    }

    /// Waits for `duration`. Fails if the process ends meanwhile.
    pub(crate) fn idle(&self, duration: Duration) -> anyhow::Result<()> {
        let deadline = now() + duration;
        loop {
            match self.running.listen(deadline.saturating_duration_since(now())) {
                Heard::Line(_) => {}
                Heard::End => anyhow::bail!("steersman ended while it should idle"),
                Heard::Nothing => return Ok(()),
            }
        }
    }

    /// The id of the process.
    pub(crate) fn id(&self) -> u32 {
        self.running.id()
    }

    /// The resident memory of the process in bytes, as the kernel counts it.
    pub(crate) fn resident_bytes(&self) -> anyhow::Result<u64> {
        self.running.resident_bytes()
    }

    /// Stops the process as an init system would.
    pub(crate) fn stop(self) -> anyhow::Result<ExitStatus> {
        self.running.terminate(STOP_MAX)
    }
}

/// The last lines of a log, for an error.
fn tail(log: &Path) -> String {
    const LINES: usize = 10;
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    match lines.as_slice() {
        [] => "it said nothing".to_owned(),
        lines => lines[lines.len().saturating_sub(LINES)..].join("\n"),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A program in place of `steersman`: as server it fails with a message, otherwise it prints the ready line and
    /// runs until it is terminated.
    const STAND_IN: &str = r#"#!/bin/sh
[ "$1" = server ] && { echo 'port 1 is taken' >&2; exit 2; }
trap 'exit 0' TERM
echo "{\"kubeconfig\":\"$3/kubeconfig\"}"
while :; do :; done
"#;

    // One test: two tests that write and start programs concurrently can find each other's program still open for
    // writing.
    #[test]
    fn start_waits_for_the_ready_line_and_quotes_an_early_end() {
        let directory = std::env::temp_dir().join(format!("xtask-stand-in-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (program, data, log) = (directory.join("steersman"), directory.join("data"), directory.join("log"));
        std::fs::write(&program, STAND_IN).unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();

        let steersman = Steersman::start(&program, Role::Up, &data, &[], &log).unwrap();
        assert_eq!(steersman.ready.kubeconfig, data.join("kubeconfig"));
        steersman.idle(Duration::ZERO).unwrap();
        assert!(steersman.resident_bytes().unwrap() > 0);
        assert!(steersman.stop().unwrap().success());

        let error = Steersman::start(&program, Role::Server, &data, &[], &log).err().unwrap().to_string();
        assert_eq!(error, "steersman server ended before it was ready: port 1 is taken");
        std::fs::remove_dir_all(directory).unwrap();
    }
}
