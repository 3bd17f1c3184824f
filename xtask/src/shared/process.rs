//! Runs other programs: with timing, streamed output, deadlines, and termination by id.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::Context;

/// The unread lines of a started program, beyond which the program blocks.
const UNREAD_LINES_MAX: usize = 1024;

/// The time now. The one clock of this program: nothing here runs under paused time.
#[expect(clippy::disallowed_methods, reason = "measures other programs; there is no clock to pause")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Asks again until something is so, and fails when that takes longer than `at_most`. Other programs tell nobody when they are ready.
#[expect(clippy::disallowed_methods, reason = "waits for other programs, which only polling shows")]
pub(crate) fn until(what: &str, at_most: Duration, is_so: impl Fn() -> bool) -> anyhow::Result<()> {
    let give_up = now() + at_most;
    while !is_so() {
        anyhow::ensure!(now() < give_up, "{what} is not so after {} s", at_most.as_secs());
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// The path of a program, searched as the shell would.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|candidate| candidate.is_file())
}

/// Runs `command`, passes its standard output through line by line, and calls `each` with every line.
pub(crate) fn stream(command: &mut Command, mut each: impl FnMut(&str)) -> anyhow::Result<ExitStatus> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", command.get_program().display()))?;
    let stdout = child.stdout.take().context("the program has no standard output")?;
    let mut reader = BufReader::new(stdout);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).context("cannot read the program's output")? > 0 {
        std::io::stdout().write_all(&line).context("cannot write to standard output")?;
        each(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
    child.wait().context("cannot wait for the program")
}

/// Runs `command` to its end and returns its standard output. If it fails, the error contains its standard error.
pub(crate) fn capture(command: &mut Command) -> anyhow::Result<String> {
    let program = command.get_program().display().to_string();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {program}"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        anyhow::bail!("{program} ended with {}: {}", output.status, stderr.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A program that runs beside this one. Dropping it kills it.
pub(crate) struct Running {
    child: Child,
    lines: mpsc::Receiver<String>,
}

/// An event of a running program.
#[derive(Debug)]
pub(crate) enum Heard {
    Line(String),
    /// It closed its standard output, which a server does only by ending.
    End,
    /// The timeout passed.
    Nothing,
}

impl Running {
    /// Starts `command` with its standard output read line by line.
    pub(crate) fn start(command: &mut Command) -> anyhow::Result<Running> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {}", command.get_program().display()))?;
        let stdout = child.stdout.take().context("the program has no standard output")?;
        let (sender, lines) = mpsc::sync_channel(UNREAD_LINES_MAX);
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                let Ok(line) = line else { break };
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Running { child, lines })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its resident memory in bytes, as the kernel counts it.
    pub(crate) fn resident_bytes(&self) -> anyhow::Result<u64> {
        let path = format!("/proc/{}/status", self.id());
        let status = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        resident_bytes(&status).with_context(|| format!("no VmRSS in {path}"))
    }

    /// The next line of its standard output, waiting at most `patience`.
    pub(crate) fn listen(&self, patience: Duration) -> Heard {
        match self.lines.recv_timeout(patience) {
            Ok(line) => Heard::Line(line),
            Err(RecvTimeoutError::Disconnected) => Heard::End,
            Err(RecvTimeoutError::Timeout) => Heard::Nothing,
        }
    }

    /// Waits for a program that has closed its standard output.
    pub(crate) fn wait(mut self) -> anyhow::Result<ExitStatus> {
        self.child.wait().context("cannot wait for the program")
    }

    /// Sends SIGTERM and waits until the program has ended; kills it after `patience`.
    pub(crate) fn terminate(mut self, patience: Duration) -> anyhow::Result<ExitStatus> {
        let id = self.child.id().to_string();
        capture(Command::new("kill").args(["-TERM", &id])).context("cannot send SIGTERM")?;
        let deadline = now() + patience;
        loop {
            let left = deadline.saturating_duration_since(now());
            match self.listen(left) {
                Heard::Line(_) => {}
                Heard::End => return self.child.wait().context("cannot wait for the program"),
                Heard::Nothing => anyhow::bail!("process {id} still runs {} s after SIGTERM", patience.as_secs()),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if the program has ended already, as desired.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_from_the_kernels_table() {
        assert_eq!(resident_bytes("Name:\tx\nVmRSS:\t   35532 kB\nThreads:\t3\n"), Some(35532 * 1024));
        assert_eq!(resident_bytes("Name:\tx\n"), None);
    }
}
