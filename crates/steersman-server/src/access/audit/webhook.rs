//! The audit log sent to a webhook. A task posts lists of events in batches, so that no request waits; in blocking mode
//! each event is sent alone while its request waits. Follows apiserver's `plugin/pkg/audit/{webhook,buffered}`.
//!
//! The queue is bounded in events and in bytes, and so are batches and the calls under way: an event that finds no room is lost and counted. A
//! webhook that fails is tried again a few times; then its events are lost and counted, and nothing else suffers.

use crate::access::audit::{Event, Sink};
use crate::shared::webhook::Client;
use bytes::Bytes;
use futures::future::BoxFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The timeout of one call.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum size in bytes of the events that wait to be sent or are being sent.
const WAITING_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes of the events of one batch, unless it is a single one.
const BATCH_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Batches under way at a time; the next waits in the queue.
const CALLS_MAX: usize = 16;
/// Batches that become text at a time. Meanwhile the bodies of an event are trees, which take many times as much as its bytes.
const TEXTS_MAX: usize = 2;
/// How long the last batches may take when the server ends.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// How events are sent. The names are those of kube-apiserver's flags.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Whether a request waits until its event was sent.
    pub is_blocking: bool,
    /// The maximum number of events that wait to be sent.
    pub buffer_size: usize,
    /// The maximum number of events in a batch.
    pub batch_max_size: usize,
    /// The maximum time for which an event waits for others of its batch.
    pub batch_max_wait: Duration,
    /// The rate limit of batches; `None`: no limit.
    pub throttle: Option<Throttle>,
    /// The pause after the first failure of a call. Each further pause is half as long again.
    pub initial_backoff: Duration,
}

/// A rate limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throttle {
    /// Batches per second on average; more than zero.
    pub qps: f64,
    /// Batches at once, after a time with fewer.
    pub burst: u32,
}

/// Takes events for a webhook.
#[derive(Debug)]
pub struct Webhook {
    events: mpsc::Sender<Message>,
    shared: Arc<Shared>,
}

/// The handle of the task that sends the events that the webhook accepts.
#[derive(Debug)]
pub struct Sender {
    events: mpsc::Sender<Message>,
    task: JoinHandle<Option<()>>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    client: Client,
    settings: Settings,
    waiting_bytes: AtomicUsize,
    /// For making texts.
    texts: Semaphore,
    failed: AtomicU64,
    /// The tasks of the calls that requests wait for.
    awaited: TaskTracker,
    /// Cancelled when nothing is sent any more.
    ended: CancellationToken,
}

#[derive(Debug)]
enum Message {
    End,
    Event(Box<Event>),
}

/// A token bucket: it fills with time, and each batch takes a token.
#[derive(Debug)]
struct Bucket {
    throttle: Throttle,
    tokens: f64,
    filled_at: Instant,
}

impl Default for Settings {
    /// The defaults of kube-apiserver's flags.
    fn default() -> Settings {
        Settings {
            is_blocking: false,
            buffer_size: 10_000,
            batch_max_size: 400,
            batch_max_wait: Duration::from_secs(30),
            throttle: Some(Throttle { qps: 10.0, burst: 15 }),
            initial_backoff: Duration::from_secs(10),
        }
    }
}

// === impl Webhook ===

impl Webhook {
    /// Starts the task that sends events to the client's endpoint.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn start(client: Client, settings: Settings) -> (Webhook, Sender) {
        let (sender, receiver) = mpsc::channel(settings.buffer_size.max(1));
        let (waiting_bytes, failed) = (AtomicUsize::new(0), AtomicU64::new(0));
        let (awaited, ended) = (TaskTracker::new(), CancellationToken::new());
        let texts = Semaphore::new(TEXTS_MAX);
        let shared = Arc::new(Shared { client, settings, waiting_bytes, texts, failed, awaited, ended: ended.clone() });
        let task = tokio::spawn(ended.run_until_cancelled_owned(send_all(receiver, shared.clone())));
        (Webhook { events: sender.clone(), shared: shared.clone() }, Sender { events: sender, task, shared })
    }
}

impl Sender {
    /// Sends the waiting events, for a few seconds at most, and ends the task.
    pub async fn close(self) {
        self.shared.awaited.close();
        let end = async {
            // An error means that the task has ended already.
            let _ = self.events.send(Message::End).await;
            let _ = self.task.await;
            self.shared.awaited.wait().await;
        };
        if tokio::time::timeout(END_TIMEOUT, end).await.is_err() {
            self.shared.ended.cancel();
            tracing::warn!("the audit webhook did not take the last events in time: they are lost");
        }
    }
}

impl Sink for Webhook {
    fn take(&self, event: Event) -> bool {
        let size = event.size();
        if !self.shared.reserve(size) {
            return false;
        }
        let is_taken = self.events.try_send(Message::Event(Box::new(event))).is_ok();
        if !is_taken {
            self.shared.release(size);
        }
        is_taken
    }

    fn is_blocking(&self) -> bool {
        self.shared.settings.is_blocking
    }

    fn write(&self, event: Event) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            if !self.shared.settings.is_blocking {
                return self.take(event);
            }
            let size = event.size();
            if !self.shared.reserve(size) {
                return false;
            }
            // In its own task, so that the event is sent even if the client disconnects while it waits.
            let shared = self.shared.clone();
            let sent = self.shared.awaited.spawn(async move {
                shared.ended.run_until_cancelled(shared.send_counted(vec![event], size)).await.is_some()
            });
            // The task counts a failed call.
            sent.await.unwrap_or(false)
        })
    }

    fn n_failed(&self) -> u64 {
        self.shared.failed.load(Ordering::Relaxed)
    }
}

// === sending ===

async fn send_all(mut events: mpsc::Receiver<Message>, shared: Arc<Shared>) {
    let permits = Arc::new(Semaphore::new(CALLS_MAX));
    let mut bucket = shared.settings.throttle.map(Bucket::new);
    let mut calls = JoinSet::new();
    loop {
        let (batch, is_end) = next_batch(&mut events, &shared.settings).await;
        if !batch.is_empty() {
            if let Some(bucket) = &mut bucket {
                tokio::time::sleep_until(bucket.next(Instant::now())).await;
            }
            // The semaphore is never closed.
            let permit = permits.clone().acquire_owned().await;
            let shared = shared.clone();
            calls.spawn(async move {
                let _permit = permit;
                let size = batch.iter().map(Event::size).sum();
                shared.send_counted(batch, size).await;
            });
        }
        while calls.try_join_next().is_some() {}
        if is_end {
            break;
        }
    }
    while calls.join_next().await.is_some() {}
}

/// The events of the next batch, and whether it is the last.
async fn next_batch(events: &mut mpsc::Receiver<Message>, settings: &Settings) -> (Vec<Event>, bool) {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    let mut deadline = None;
    while batch.len() < settings.batch_max_size.max(1) && bytes < BATCH_BYTES_MAX {
        let next = match deadline {
            None => events.recv().await,
            Some(deadline) => match tokio::time::timeout_at(deadline, events.recv()).await {
                Ok(next) => next,
                Err(_) => break,
            },
        };
        match next {
            Some(Message::Event(event)) => {
                bytes += event.size();
                batch.push(*event);
            }
            Some(Message::End) | None => return (batch, true),
        }
        deadline = deadline.or_else(|| Some(Instant::now() + settings.batch_max_wait));
    }
    (batch, false)
}

impl Shared {
    /// Counts the bytes of an event as waiting, if there is room for them.
    fn reserve(&self, size: usize) -> bool {
        let waiting = self.waiting_bytes.fetch_add(size, Ordering::Relaxed);
        let has_room = waiting.saturating_add(size) <= WAITING_BYTES_MAX;
        if !has_room {
            self.release(size);
        }
        has_room
    }

    fn release(&self, size: usize) {
        self.waiting_bytes.fetch_sub(size, Ordering::Relaxed);
    }

    /// Sends a batch of this size, whose bytes are no longer counted as waiting, and counts its events if it was not
    /// accepted.
    async fn send_counted(&self, batch: Vec<Event>, size: usize) {
        let n_events = batch.len() as u64;
        let text = self.text(batch).await;
        // The text takes the place of the events. It may be longer, which keeps others out until it is sent.
        let n_bytes = text.as_ref().map_or(0, Bytes::len);
        self.waiting_bytes.fetch_add(n_bytes, Ordering::Relaxed);
        self.release(size);
        let is_taken = match text {
            Some(text) => self.send(text).await,
            None => false,
        };
        if !is_taken {
            self.failed.fetch_add(n_events, Ordering::Relaxed);
        }
        self.release(n_bytes);
    }

    /// The text of a batch. Bodies become JSON here, which for large ones takes long.
    async fn text(&self, batch: Vec<Event>) -> Option<Bytes> {
        let _permit = self.texts.acquire().await.ok()?;
        tokio::task::spawn_blocking(move || list(&batch)).await.ok()
    }

    /// Sends a batch; false if it was not taken.
    async fn send(&self, body: Bytes) -> bool {
        match self.client.post_again_after(self.settings.initial_backoff, &body, TIMEOUT).await {
            Ok(_) => true,
            Err(error) => {
                tracing::warn!(%error, "the audit webhook failed: its events are lost");
                false
            }
        }
    }
}

/// An `EventList`.
fn list(batch: &[Event]) -> Bytes {
    let mut body = br#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":["#.to_vec();
    for (index, event) in batch.iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        body.extend_from_slice(event.to_line().trim_ascii_end());
    }
    body.extend_from_slice(b"]}\n");
    body.into()
}

impl Bucket {
    fn new(throttle: Throttle) -> Bucket {
        Bucket { throttle, tokens: f64::from(throttle.burst), filled_at: Instant::now() }
    }

    /// The time at which the next batch may be sent; counts it as sent.
    fn next(&mut self, now: Instant) -> Instant {
        let Throttle { qps, burst } = self.throttle;
        let filled = now.saturating_duration_since(self.filled_at).as_secs_f64() * qps;
        self.tokens = (self.tokens + filled).min(f64::from(burst)) - 1.0;
        self.filled_at = self.filled_at.max(now);
        if self.tokens >= 0.0 { now } else { now + Duration::from_secs_f64(-self.tokens / qps) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_batch_has_room_for_one_event_at_least() {
        let (sender, mut receiver) = mpsc::channel(1);
        sender.send(Message::End).await.unwrap();
        let settings = Settings { batch_max_size: 0, ..Settings::default() };
        let (_, is_end) = next_batch(&mut receiver, &settings).await;
        assert!(is_end, "the message was read");
    }

    #[tokio::test(start_paused = true)]
    async fn batches_are_sent_at_once_and_then_at_a_rate() {
        let start = Instant::now();
        let mut bucket = Bucket::new(Throttle { qps: 10.0, burst: 2 });
        let mut after = |now: Instant| bucket.next(now).duration_since(start).as_millis();
        assert_eq!([after(start), after(start), after(start), after(start)], [0, 0, 100, 200]);
        let later = start + Duration::from_secs(10);
        assert_eq!([after(later), after(later), after(later)], [10_000, 10_000, 10_100]);
    }
}
