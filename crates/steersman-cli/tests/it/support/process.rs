//! A started program: its lines as they are printed, its signals, its end; killed when dropped.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;

use crate::support::PATIENCE;

/// The most lines that are not read yet; beyond it the program waits.
const UNREAD_LINES_MAX: usize = 4096;

pub(crate) struct Process {
    name: String,
    id: String,
    lines: Receiver<String>,
    exit: Receiver<ExitStatus>,
    ended: Option<ExitStatus>,
    stderr: Option<JoinHandle<String>>,
}

/// The exit status and the output of a program.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Process {
    pub(crate) fn start(command: &mut Command) -> Process {
        let name = format!("{command:?}");
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run {name}: {error}"));
        let id = child.id().to_string();
        let (stdout, mut stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let (line_sender, lines) = sync_channel(UNREAD_LINES_MAX);
        let (exit_sender, exit) = sync_channel(1);
        // Each thread ends with the program: its pipes close, and it is waited for.
        std::thread::spawn(move || send_lines(stdout, &line_sender));
        let stderr = std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = stderr.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        std::thread::spawn(move || exit_sender.send(child.wait().unwrap()));
        Process { name, id, lines, exit, ended: None, stderr: Some(stderr) }
    }

    /// The next line of standard output; `None` when that is closed.
    #[track_caller]
    pub(crate) fn line(&mut self) -> Option<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("{} said nothing for {} s", self.name, PATIENCE.as_secs()),
        }
    }

    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.id.parse().unwrap()
    }

    /// Sends a signal by its short name: `TERM`, `INT`, `KILL`, `STOP`.
    pub(crate) fn signal(&self, signal: &str) {
        assert!(self.ended.is_none(), "{} has ended", self.name);
        let status = Command::new("kill").arg(format!("-{signal}")).arg(&self.id).status().unwrap();
        assert!(status.success(), "cannot send {signal} to {}", self.name);
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn end(mut self) -> Ended {
        // Read first: a program whose lines are not read waits, and does not end.
        let mut stdout = Vec::new();
        while let Some(line) = self.line() {
            stdout.push(line);
        }
        let stdout = stdout.join("\n");
        let Ok(status) = self.exit.recv_timeout(PATIENCE) else {
            panic!("{} still runs after {} s", self.name, PATIENCE.as_secs());
        };
        self.ended = Some(status);
        let stderr = self.stderr.take().map(|thread| thread.join().unwrap()).unwrap_or_default();
        Ended { status, stdout, stderr }
    }

    /// Whether it still runs.
    pub(crate) fn runs(&mut self) -> bool {
        if self.ended.is_none() {
            self.ended = self.exit.try_recv().ok();
        }
        self.ended.is_none()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.runs() {
            let _ = Command::new("kill").arg("-KILL").arg(&self.id).status();
            let _ = self.exit.recv_timeout(PATIENCE);
        }
        // If the test has failed, the process's standard error is printed.
        if std::thread::panicking()
            && let Some(stderr) = self.stderr.take()
        {
            eprintln!("--- standard error of {}\n{}", self.name, stderr.join().unwrap_or_default());
        }
    }
}

fn send_lines(stdout: impl Read, sender: &SyncSender<String>) {
    for line in BufReader::new(stdout).lines() {
        let Ok(line) = line else { return };
        if sender.send(line).is_err() {
            return;
        }
    }
}
