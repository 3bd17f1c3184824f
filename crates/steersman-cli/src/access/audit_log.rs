//! The audit log in a file or on standard output: a line of JSON for every event.
//!
//! A thread formats and writes the lines, so that neither a large body nor a slow disk holds up a request. Its queue is
//! bounded in events and in bytes; events that do not fit are dropped and counted. A file that cannot be written, as on
//! a full disk, stops nothing: the program's log reports it once, and again after a successful write in between.

mod rotation;

use crate::Failure;
use crate::access::audit_log::rotation::{Limits, Rotating};
use crate::args::{AuditMode, AuditOptions};
use futures::future::BoxFuture;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use steersman_server::audit::{Event, Sink};
use tokio::sync::oneshot;

/// The most bytes of events that wait to be written.
const WAITING_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes of the lines that are written together, unless it is a single one.
const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The checked options of the log, before it starts.
#[derive(Debug)]
pub(crate) struct Plan {
    output: Output,
    mode: AuditMode,
    buffer: usize,
    batch_max: usize,
}

/// Receives the server's events.
#[derive(Debug)]
struct AuditLog {
    mode: AuditMode,
    events: SyncSender<Message>,
    shared: Arc<Shared>,
}

/// The state shared by requests and the thread.
#[derive(Debug, Default)]
struct Shared {
    waiting_bytes: AtomicUsize,
    failed: AtomicU64,
}

/// The thread that writes the log.
#[derive(Debug)]
pub(crate) struct Writer {
    events: SyncSender<Message>,
    thread: JoinHandle<()>,
}

#[derive(Debug)]
enum Message {
    End,
    /// An event, with the sender that reports when it is written, if its request waits.
    Event(Box<Event>, Option<oneshot::Sender<bool>>),
}

#[derive(Debug)]
enum Output {
    File(Rotating),
    Stdout,
}

// === impl Plan ===

impl Plan {
    /// Opens the log, if one is configured.
    pub(crate) fn new(options: &AuditOptions) -> Result<Option<Plan>, Failure> {
        let Some(path) = &options.audit_log_path else { return Ok(None) };
        let output = match path.as_path() {
            dash if dash == Path::new("-") => Output::Stdout,
            path => Output::File(Rotating::open(path, Limits::new(options)).map_err(|error| {
                Failure::Refused(format!(
                    "cannot write the audit log {}: {error}; choose another file with --audit-log-path, or - for standard output",
                    path.display()
                ))
            })?),
        };
        let (buffer, batch_max) = (options.audit_log_batch_buffer_size, options.audit_log_batch_max_size);
        Ok(Some(Plan { output, mode: options.audit_log_mode, buffer, batch_max }))
    }

    /// Starts the thread. The log must be closed after the server has stopped.
    pub(crate) fn start(self) -> io::Result<(Arc<dyn Sink>, Writer)> {
        let Plan { mut output, mode, buffer, batch_max } = self;
        let (sender, receiver) = sync_channel(buffer);
        let shared = Arc::new(Shared::default());
        let of_thread = shared.clone();
        let thread = std::thread::Builder::new()
            .name("audit-log".to_owned())
            .spawn(move || write(&receiver, &mut output, batch_max, &of_thread))?;
        let log = AuditLog { mode, events: sender.clone(), shared };
        Ok((Arc::new(log), Writer { events: sender, thread }))
    }
}

impl Writer {
    /// Writes the queued events, and ends. Blocks.
    pub(crate) fn close(self) {
        // An error means that the thread has already ended.
        let _ = self.events.send(Message::End);
        let _ = self.thread.join();
    }
}

// === impl AuditLog ===

impl AuditLog {
    fn send(&self, event: Event, written: Option<oneshot::Sender<bool>>) -> bool {
        let size = event.size();
        let waiting = self.shared.waiting_bytes.fetch_add(size, Ordering::Relaxed);
        let is_sent = waiting.saturating_add(size) <= WAITING_BYTES_MAX
            && self.events.try_send(Message::Event(Box::new(event), written)).is_ok();
        if !is_sent {
            self.shared.waiting_bytes.fetch_sub(size, Ordering::Relaxed);
        }
        is_sent
    }
}

impl Sink for AuditLog {
    fn take(&self, event: Event) -> bool {
        self.send(event, None)
    }

    fn is_blocking(&self) -> bool {
        self.mode == AuditMode::Blocking
    }

    fn write(&self, event: Event) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            let (sender, written) = oneshot::channel();
            // The thread counts a failed write, as for every other event.
            self.send(event, Some(sender)) && (written.await.is_ok())
        })
    }

    fn n_failed(&self) -> u64 {
        self.shared.failed.load(Ordering::Relaxed)
    }
}

fn write(events: &Receiver<Message>, output: &mut Output, batch_max: usize, shared: &Shared) {
    let mut is_well = true;
    while let Ok(first) = events.recv() {
        let (mut is_end, mut lines, mut waiting) = (false, Vec::new(), Vec::new());
        let (mut line_bytes, mut event_bytes) = (0, 0);
        let mut next = Some(first);
        while let Some(message) = next {
            match message {
                Message::End => is_end = true,
                Message::Event(event, written) => {
                    let line = event.to_line();
                    line_bytes += line.len();
                    event_bytes += event.size();
                    lines.push(line);
                    waiting.extend(written);
                }
            }
            let is_full = is_end || batch_max.max(1) <= lines.len() || BATCH_BYTES_MAX <= line_bytes;
            next = if is_full { None } else { events.try_recv().ok() };
        }
        let outcome = output.write(&lines);
        // Only now, so that what is written slowly keeps others out.
        shared.waiting_bytes.fetch_sub(event_bytes, Ordering::Relaxed);
        match &outcome {
            Ok(()) => is_well = true,
            Err(error) => {
                shared.failed.fetch_add(lines.len() as u64, Ordering::Relaxed);
                // Logged once, not for every event.
                if is_well {
                    tracing::warn!(%error, "the audit log cannot be written");
                }
                is_well = false;
            }
        }
        for one in waiting {
            // Its request may be gone.
            let _ = one.send(outcome.is_ok());
        }
        if is_end {
            return;
        }
    }
}

impl Output {
    fn write(&mut self, lines: &[Vec<u8>]) -> io::Result<()> {
        match self {
            Output::File(file) => file.write(lines),
            Output::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(&lines.concat())?;
                stdout.flush()
            }
        }
    }
}
