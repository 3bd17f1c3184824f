//! The sending end of a recorder, on its own task: it decides what to send ([`Memory`]), keeps what waits ([`Outbox`]),
//! and sends.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use kube::Client;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::shared::chain::Chain;
use crate::writing::events::correlate::Correlator;
use crate::writing::events::outbox::{Outbox, Target, Verdict};
use crate::writing::events::series::Series;
use crate::writing::events::stats::Stats;
use crate::writing::events::{Effect, Message, RecordedEvent};

/// How many times one event is tried while the server is away, and the wait between tries; the first wait is shorter at
/// random, so that events do not all come back at once.
const TRIES_MAX: u32 = 12;
const RETRY_WAIT: Duration = Duration::from_secs(10);
/// How long the server may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The shortest time between two log lines about lost events.
const LOG_WAIT: Duration = Duration::from_secs(60);

pub(crate) struct Sink {
    client: Client,
    memory: Memory,
    stats: Arc<Stats>,
    outbox: Outbox,
    requests: FuturesUnordered<BoxFuture<'static, Answer>>,
    /// Flushes that wait until this many effects of the outbox are done.
    flushes: Vec<(u64, oneshot::Sender<()>)>,
    full: Complaint,
    failed: Complaint,
}

/// The events sent so far, by the API that they were sent to.
pub(crate) enum Memory {
    /// core/v1.
    Counted(Correlator),
    /// events.k8s.io/v1.
    Series(Series),
}

struct Answer {
    target: Target,
    is_patch: bool,
    n_tries: u32,
    result: Result<(), kube::Error>,
}

/// A repeated problem that is logged now and then, with its count.
#[derive(Debug, Default)]
struct Complaint {
    last: Option<Instant>,
    n_since: u64,
}

// === impl Sink ===

impl Sink {
    pub(crate) fn new(client: Client, memory: Memory, stats: Arc<Stats>) -> Self {
        Self {
            client,
            memory,
            stats,
            outbox: Outbox::default(),
            requests: FuturesUnordered::new(),
            flushes: Vec::new(),
            full: Complaint::default(),
            failed: Complaint::default(),
        }
    }

    /// Sends until all senders are gone and everything is sent or given up.
    pub(crate) async fn run(mut self, mut receiver: mpsc::Receiver<Message>) {
        let mut is_open = true;
        let mut n_full = 0;
        loop {
            self.send_ready();
            let outbox = &self.outbox;
            for (_, done) in self.flushes.extract_if(.., |(n, _)| outbox.is_done(*n)) {
                // The recorder may have stopped waiting.
                done.send(()).ok();
            }
            let n_full_now = self.stats.n_full.load(Ordering::Relaxed);
            if let Some(n) = self.full.note(n_full_now - std::mem::replace(&mut n_full, n_full_now)) {
                tracing::warn!(n, "events were dropped because too many wait to be sent");
            }
            if !is_open && self.outbox.is_empty() {
                return;
            }
            let has_room = !self.outbox.is_full();
            let due = self.outbox.next_due();
            // All arms are cancel safe: they only wait, and the changes are made in their handlers.
            tokio::select! {
                message = receiver.recv(), if is_open && has_room => match message {
                    None => {
                        is_open = false;
                        self.push(Memory::flush);
                    }
                    Some(Message::Flush(done)) => {
                        self.push(Memory::flush);
                        self.flushes.push((self.outbox.n_pushed(), done));
                    }
                    Some(Message::RecordedEvent(note)) => self.push(|memory| memory.step(*note).into_iter().collect()),
                },
                effects = self.memory.due(), if has_room => effects.into_iter().for_each(|effect| self.outbox.push(effect)),
                Some(answer) = self.requests.next() => self.answered(answer),
                () = sleep_until(due) => {}
            }
        }
    }

    fn push(&mut self, say: impl FnOnce(&mut Memory) -> Vec<Effect>) {
        say(&mut self.memory).into_iter().for_each(|effect| self.outbox.push(effect));
    }

    fn send_ready(&mut self) {
        while let Some((target, effect, n_tries)) = self.outbox.next(Instant::now()) {
            let (client, api) = (self.client.clone(), self.memory.api());
            self.requests.push(Box::pin(async move {
                let is_patch = effect.patch.is_some();
                let sent = tokio::time::timeout(ANSWER_TIMEOUT, send(client, api, effect)).await;
                let silent = |_| Err(kube::Error::Service("the server does not answer".into()));
                Answer { target, is_patch, n_tries, result: sent.unwrap_or_else(silent) }
            }));
        }
    }

    fn answered(&mut self, answer: Answer) {
        let verdict = match &answer.result {
            Ok(()) => Verdict::Sent,
            Err(error) => verdict(&answer, error),
        };
        match verdict {
            Verdict::Again(_) | Verdict::MakeAnew => {}
            Verdict::GiveUp => self.give_up(&answer),
            Verdict::Sent => {
                self.stats.n_sent.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.outbox.answered(answer.target, verdict);
    }

    fn give_up(&mut self, answer: &Answer) {
        let Err(error) = &answer.result else { return };
        let counter = if is_final(error) { &self.stats.n_refused } else { &self.stats.n_unanswered };
        counter.fetch_add(1, Ordering::Relaxed);
        // The object goes with its namespace, so nobody would read the event.
        if matches!(error, kube::Error::Api(status) if is_of_terminating_namespace(status)) {
            tracing::debug!(error = %Chain(error), "an event was too late for its namespace");
        } else if let Some(n) = self.failed.note(1) {
            let (namespace, name) = &answer.target;
            tracing::warn!(n, namespace, name, error = %Chain(error), "an event could not be recorded");
        }
    }
}

/// The outcome of a failed request: try again while the server is away, never when it refuses.
fn verdict(answer: &Answer, error: &kube::Error) -> Verdict {
    let code = match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    };
    if !answer.is_patch && code == Some(409) && answer.n_tries > 1 {
        // An earlier try was done, but its answer never came.
        return Verdict::Sent;
    }
    if answer.is_patch && code == Some(404) {
        // The event expired on the server; create a new one.
        return Verdict::MakeAnew;
    }
    if is_final(error) || answer.n_tries >= TRIES_MAX {
        return Verdict::GiveUp;
    }
    let share = if answer.n_tries == 1 { rand::random::<f64>() } else { 1.0 };
    Verdict::Again(Instant::now() + RETRY_WAIT.mul_f64(share))
}

/// Whether another try could only fail again: no request could be made, or the server refuses it and is not merely
/// busy.
fn is_final(error: &kube::Error) -> bool {
    match error {
        kube::Error::HttpError(_) | kube::Error::SerdeError(_) => true,
        kube::Error::Api(status) => status.code != 429 && status.code < 500,
        _ => false,
    }
}

async fn send(client: Client, api: &str, effect: Effect) -> Result<(), kube::Error> {
    let Effect { namespace, name, event, patch } = effect;
    let collection = format!("{api}/namespaces/{namespace}/events");
    let (method, uri, content_type, body) = match patch {
        None => (http::Method::POST, collection, "application/json", event),
        Some(patch) => (http::Method::PATCH, format!("{collection}/{name}"), "application/merge-patch+json", patch),
    };
    let request = http::Request::builder()
        .method(method)
        .uri(uri)
        .header(http::header::CONTENT_TYPE, content_type)
        .body(serde_json::to_vec(&body).map_err(kube::Error::SerdeError)?)
        .map_err(kube::Error::HttpError)?;
    client.request_text(request).await.map(drop)
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        None => std::future::pending().await,
        Some(due) => tokio::time::sleep_until(due).await,
    }
}

/// Whether an answer says that the namespace is terminating, in the form that kube-apiserver uses.
fn is_of_terminating_namespace(status: &kube::core::Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

// === impl Memory ===

impl Memory {
    /// The API group and version of the events.
    fn api(&self) -> &'static str {
        match self {
            Self::Counted(_) => "/api/v1",
            Self::Series(_) => "/apis/events.k8s.io/v1",
        }
    }

    fn step(&mut self, note: RecordedEvent) -> Option<Effect> {
        match self {
            Self::Counted(correlator) => correlator.step(Instant::now(), note),
            Self::Series(series) => series.step(Instant::now(), note),
        }
    }

    /// Waits until an effect is due without a new event, and returns all that are due.
    async fn due(&mut self) -> Vec<Effect> {
        match self {
            Self::Counted(_) => std::future::pending().await,
            Self::Series(series) => match series.next_due() {
                None => std::future::pending().await,
                Some(due) => {
                    tokio::time::sleep_until(due).await;
                    series.tick(Instant::now())
                }
            },
        }
    }

    fn flush(&mut self) -> Vec<Effect> {
        match self {
            Self::Counted(_) => Vec::new(),
            Self::Series(series) => series.flush(Instant::now()),
        }
    }
}

// === impl Complaint ===

impl Complaint {
    /// Adds `n` to the count, and returns the count since the last line if another line is due.
    fn note(&mut self, n: u64) -> Option<u64> {
        self.n_since += n;
        let is_time = self.last.is_none_or(|last| last.elapsed() >= LOG_WAIT);
        if self.n_since == 0 || !is_time {
            return None;
        }
        self.last = Some(Instant::now());
        Some(std::mem::take(&mut self.n_since))
    }
}
