//! The access log: a line of JSON for every request, when its answer has been sent or abandoned.
//!
//! A thread writes the lines, so that a slow disk holds up no request. Lines that do not fit into its queue are
//! dropped, and the program's log has their number.

use crate::Failure;
use http::header::USER_AGENT;
use http::{HeaderMap, Request, Response};
use hyper::body::{Body, Buf as _, Frame, SizeHint};
use jiff::Timestamp;
use serde::Serialize;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use steersman_server::AuthenticatedUser;
use steersman_server::authz::Denied;
use tokio::time::Instant;

/// The most lines that wait to be written; some MB.
const LINES_MAX: usize = 8192;
/// The most bytes of a path and of a user agent that are logged, since the client chooses their length.
const TEXT_BYTES_MAX: usize = 2048;

/// Logs requests. Clones share the log.
#[derive(Clone, Debug)]
pub(crate) struct AccessLog {
    lines: SyncSender<Message>,
    /// The number of lines dropped since the last one that was queued.
    dropped: Arc<AtomicU64>,
}

/// The thread that writes the log.
#[derive(Debug)]
pub(crate) struct Writer {
    lines: SyncSender<Message>,
    thread: JoinHandle<()>,
}

#[derive(Debug)]
enum Message {
    End,
    Line(Vec<u8>),
}

/// A service whose requests are logged, if there is a log.
#[derive(Clone, Debug)]
pub(crate) struct Logged<S> {
    service: S,
    log: Option<AccessLog>,
    source_ip: Option<IpAddr>,
}

/// An answer that is awaited.
#[derive(Debug)]
pub(crate) struct Answer<F> {
    future: F,
    entry: Option<Box<Entry>>,
}

/// The body of an answer. The request is logged when the body is dropped.
#[derive(Debug)]
pub(crate) struct Counted<B> {
    body: B,
    entry: Option<Box<Entry>>,
}

/// One request, logged when it is dropped.
#[derive(Debug)]
struct Entry {
    log: AccessLog,
    began: Instant,
    line: Line,
}

/// The content of a line.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    /// The arrival of the request.
    time: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    audit_id: Option<String>,
    /// The user who sent the request; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    /// The impersonated user, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    impersonated_user: Option<String>,
    #[serde(rename = "sourceIP", skip_serializing_if = "Option::is_none")]
    source_ip: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_agent: Option<String>,
    method: String,
    /// Path and query.
    path: String,
    /// Absent if the client disconnected before the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    /// The reason of a refusal by authorization.
    #[serde(skip_serializing_if = "Option::is_none")]
    denied: Option<String>,
    /// The bytes of the answer's body.
    bytes: u64,
    /// The time from the request's head to the answer's last byte; for a watch, to its end.
    duration_ms: u64,
}

// === impl AccessLog ===

impl AccessLog {
    /// A log that appends to a file, or writes to standard output (`-`).
    pub(crate) fn open(path: &Path) -> Result<(AccessLog, Writer), Failure> {
        let refused = |error: io::Error| {
            Failure::Refused(format!(
                "cannot write the access log {}: {error}; choose another file with --access-log, or - for standard output",
                path.display()
            ))
        };
        let output: Box<dyn Write + Send> = if path == Path::new("-") {
            Box::new(io::stdout())
        } else {
            Box::new(OpenOptions::new().append(true).create(true).mode(0o600).open(path).map_err(refused)?)
        };
        AccessLog::to(output).map_err(refused)
    }

    fn to(output: Box<dyn Write + Send>) -> io::Result<(AccessLog, Writer)> {
        let (sender, receiver) = sync_channel(LINES_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let counter = dropped.clone();
        let thread = std::thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || write(&receiver, output, &counter))?;
        Ok((AccessLog { lines: sender.clone(), dropped }, Writer { lines: sender, thread }))
    }

    /// The service with its requests logged. `source` is their address; `None` for requests within the process.
    pub(crate) fn layer<S>(log: Option<AccessLog>, source: Option<SocketAddr>, service: S) -> Logged<S> {
        Logged { service, log, source_ip: source.map(|source| source.ip().to_canonical()) }
    }

    fn log(&self, line: &Line) {
        let Ok(mut text) = serde_json::to_vec(line) else { return };
        text.push(b'\n');
        match self.lines.try_send(Message::Line(text)) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
            // The server has ended, and with it its log.
            Err(TrySendError::Disconnected(_)) => {}
        }
    }
}

impl Writer {
    /// Writes the queued lines, and ends. Blocks.
    pub(crate) fn close(self) {
        // An error means that the thread has already ended.
        let _ = self.lines.send(Message::End);
        let _ = self.thread.join();
    }
}

fn write(lines: &Receiver<Message>, mut output: Box<dyn Write + Send>, dropped: &AtomicU64) {
    let mut is_well = true;
    let mut batch = Vec::new();
    while let Ok(first) = lines.recv() {
        let mut is_end = false;
        batch.clear();
        for message in std::iter::once(first).chain(lines.try_iter().take(LINES_MAX)) {
            match message {
                Message::End => is_end = true,
                Message::Line(line) => batch.extend_from_slice(&line),
            }
        }
        let written = output.write_all(&batch).and_then(|()| output.flush());
        match written {
            Ok(()) => is_well = true,
            // Logged once, not for every line.
            Err(error) if is_well => {
                is_well = false;
                tracing::warn!(%error, "the access log cannot be written");
            }
            Err(_) => {}
        }
        let lines = dropped.swap(0, Ordering::Relaxed);
        if lines > 0 {
            tracing::warn!(lines, "the access log is written too slowly: lines were dropped");
        }
        if is_end {
            return;
        }
    }
}

// === impl Logged ===

impl<S, B, R> tower::Service<Request<B>> for Logged<S>
where
    S: tower::Service<Request<B>, Response = Response<R>>,
    S::Future: Unpin,
{
    type Response = Response<Counted<R>>;
    type Error = S::Error;
    type Future = Answer<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let entry = self.log.as_ref().map(|log| Box::new(Entry::new(log.clone(), self.source_ip, &request)));
        Answer { future: self.service.call(request), entry }
    }
}

impl<F, R, E> Future for Answer<F>
where
    F: Future<Output = Result<Response<R>, E>> + Unpin,
{
    type Output = Result<Response<Counted<R>>, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = std::task::ready!(Pin::new(&mut self.future).poll(cx));
        let mut entry = self.entry.take();
        Poll::Ready(answer.map(|answer| {
            if let Some(entry) = &mut entry {
                entry.answered(&answer);
            }
            answer.map(|body| Counted { body, entry })
        }))
    }
}

impl<B: Body + Unpin> Body for Counted<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let (Some(Ok(frame)), Some(entry)) = (&frame, &mut self.entry)
            && let Some(data) = frame.data_ref()
        {
            entry.line.bytes += u64::try_from(data.remaining()).unwrap_or(u64::MAX);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

// === impl Entry ===

impl Entry {
    fn new<B>(log: AccessLog, source_ip: Option<IpAddr>, request: &Request<B>) -> Entry {
        let uri = request.uri();
        let path = uri.path_and_query().map_or(uri.path(), |path| path.as_str());
        let line = Line {
            time: Timestamp::now(),
            audit_id: None,
            user: None,
            impersonated_user: text(request.headers(), "impersonate-user"),
            source_ip,
            user_agent: text(request.headers(), USER_AGENT.as_str()),
            method: request.method().as_str().to_owned(),
            path: bounded(path),
            status: None,
            denied: None,
            bytes: 0,
            duration_ms: 0,
        };
        Entry { log, began: Instant::now(), line }
    }

    fn answered<R>(&mut self, answer: &Response<R>) {
        self.line.status = Some(answer.status().as_u16());
        self.line.audit_id = text(answer.headers(), "audit-id");
        self.line.denied = answer.extensions().get::<Denied>().map(|denied| bounded(&denied.0));
        self.line.user = answer.extensions().get::<AuthenticatedUser>().map(|user| user.0.name.clone());
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.line.duration_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.log.log(&self.line);
    }
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).map(|value| bounded(&String::from_utf8_lossy(value.as_bytes())))
}

fn bounded(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_BYTES_MAX)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::sync::Mutex;
    use tower::ServiceExt as _;

    /// An output that the test can read.
    #[derive(Clone, Default)]
    struct Output(Arc<Mutex<Vec<u8>>>);

    impl Write for Output {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_client_that_leaves_before_the_answer_is_logged_without_status() {
        let output = Output::default();
        let (log, writer) = AccessLog::to(Box::new(output.clone())).unwrap();
        let service = tower::service_fn(|_: Request<String>| Box::pin(std::future::pending::<Result<_, Infallible>>()));
        let _: fn(&Response<String>) = |_| {};
        let long = format!("/{}", "é".repeat(TEXT_BYTES_MAX));
        let request = Request::get(long).header("user-agent", "\"quoted\"").body(String::new()).unwrap();
        let answer = AccessLog::layer(Some(log), None, service).oneshot(request);
        let answer: Result<Result<Response<Counted<String>>, Infallible>, _> =
            tokio::time::timeout(std::time::Duration::ZERO, answer).await;
        answer.unwrap_err();
        writer.close();
        let line: serde_json::Value = serde_json::from_slice(&output.0.lock().unwrap()).unwrap();
        assert_eq!((&line["method"], &line["userAgent"]), (&"GET".into(), &"\"quoted\"".into()));
        assert!(line.get("status").is_none() && line["path"].as_str().unwrap().len() <= TEXT_BYTES_MAX, "{line}");
    }
}
