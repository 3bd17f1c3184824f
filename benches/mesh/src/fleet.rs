//! All fake proxies together: what they have taken, and when.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::messages::Kind;
use crate::pilot::Pilot;
use crate::proxy::{self, Memory};

/// A text that proxies have, by its place in the table of all.
pub(crate) type Id = u32;

/// How long proxies may take for anything.
const LIMIT: Duration = Duration::from_secs(300);
/// The pause of a proxy before it connects again.
const AGAIN: Duration = Duration::from_millis(50);
/// The pause after which nothing more is expected.
const QUIET: Duration = Duration::from_millis(500);

/// All proxies.
#[derive(Default)]
pub(crate) struct Fleet {
    texts: Mutex<Texts>,
    pub(crate) bytes_down: AtomicUsize,
    pub(crate) bytes_up: AtomicUsize,
    /// Connections that were not taken, and made again.
    pub(crate) n_retries: AtomicUsize,
    /// The responses to each proxy.
    messages: Vec<AtomicUsize>,
    /// Whether each proxy has everything that it asked for since it connected.
    whole: Vec<AtomicBool>,
    n_whole: AtomicUsize,
    expected: Mutex<Option<Expected>>,
    last: Mutex<Option<Instant>>,
    progress: Notify,
    /// The first reason for which a stream has ended while it should not.
    failure: Mutex<Option<String>>,
    may_end: AtomicBool,
}

/// Texts, each once.
#[derive(Default)]
struct Texts {
    ids: HashMap<Bytes, Id>,
    all: Vec<Bytes>,
}

/// How much a proxy has of what it asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum View {
    Partial,
    Whole,
}

/// A change that proxies will acknowledge.
struct Expected {
    kind: Kind,
    name: Id,
    start: Instant,
    /// The time of each acknowledgement.
    times: Vec<Duration>,
    n_wanted: usize,
}

// === impl Fleet ===

impl Fleet {
    pub(crate) fn new(n_proxies: usize) -> Arc<Fleet> {
        let messages = (0..n_proxies).map(|_| AtomicUsize::new(0)).collect();
        let whole = (0..n_proxies).map(|_| AtomicBool::new(false)).collect();
        Arc::new(Fleet { messages, whole, ..Fleet::default() })
    }

    /// Starts every proxy. They connect again when the pilot goes away.
    pub(crate) fn start(self: &Arc<Fleet>, pilot: &Pilot) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        for number in 0..self.messages.len() {
            let (fleet, address) = (self.clone(), pilot.address);
            tasks.spawn(async move {
                let mut memory = Memory::default();
                loop {
                    if let Err(error) = proxy::run(&fleet, number, address, &mut memory).await {
                        fleet.ended(number, &format!("{error:#}"));
                    }
                    sleep(AGAIN).await;
                }
            });
        }
        tasks
    }

    pub(crate) fn id(&self, text: &[u8]) -> Id {
        let mut texts = self.texts.lock();
        if let Some(id) = texts.ids.get(text) {
            return *id;
        }
        let id = Id::try_from(texts.all.len()).unwrap_or(Id::MAX);
        let text = Bytes::copy_from_slice(text);
        texts.all.push(text.clone());
        texts.ids.insert(text, id);
        id
    }

    pub(crate) fn text(&self, id: Id) -> Bytes {
        self.texts.lock().all.get(id as usize).cloned().unwrap_or_default()
    }

    /// A proxy has acknowledged a response with these resources.
    pub(crate) fn acknowledged(&self, number: usize, kind: Kind, names: &[Id], view: View) {
        let now = Instant::now();
        self.messages[number].fetch_add(1, Ordering::Relaxed);
        *self.last.lock() = Some(now);
        if view == View::Whole && !self.whole[number].swap(true, Ordering::Relaxed) {
            self.n_whole.fetch_add(1, Ordering::Relaxed);
            self.progress.notify_one();
        }
        if let Some(expected) = &mut *self.expected.lock()
            && expected.kind == kind
            && names.contains(&expected.name)
        {
            expected.times.push(now - expected.start);
            if expected.times.len() == expected.n_wanted {
                self.progress.notify_one();
            }
        }
    }

    fn ended(&self, number: usize, why: &str) {
        if self.whole[number].swap(false, Ordering::Relaxed) {
            self.n_whole.fetch_sub(1, Ordering::Relaxed);
        }
        if !self.may_end.load(Ordering::Relaxed) {
            self.failure.lock().get_or_insert_with(|| format!("proxy {number}: {why}"));
            self.progress.notify_one();
        }
    }

    /// From now on streams may end.
    pub(crate) fn allow_ends(&self) {
        self.may_end.store(true, Ordering::Relaxed);
    }

    /// Waits until every proxy has everything that it asked for.
    pub(crate) async fn until_whole(&self) -> anyhow::Result<()> {
        let all = self.messages.len();
        let done = async {
            while self.n_whole.load(Ordering::Relaxed) < all && self.check().is_ok() {
                self.progress.notified().await;
            }
        };
        let n_whole = || self.n_whole.load(Ordering::Relaxed);
        timeout(LIMIT, done).await.with_context(|| format!("{} of {all} proxies have everything", n_whole()))?;
        self.check()
    }

    /// Notes that `n_wanted` proxies will acknowledge a change that begins now.
    pub(crate) fn expect(&self, kind: Kind, name: &str, n_wanted: usize) {
        let name = self.id(name.as_bytes());
        let times = Vec::with_capacity(n_wanted);
        *self.expected.lock() = Some(Expected { kind, name, start: Instant::now(), times, n_wanted });
    }

    /// The times from [`Fleet::expect`] until each proxy has acknowledged the change.
    pub(crate) async fn until_acknowledged(&self) -> anyhow::Result<Vec<Duration>> {
        let is_done = || self.expected.lock().as_ref().is_none_or(|expected| expected.times.len() >= expected.n_wanted);
        let done = async {
            while !is_done() && self.check().is_ok() {
                self.progress.notified().await;
            }
        };
        let waited = timeout(LIMIT, done).await;
        let expected = self.expected.lock().take().context("nothing is expected")?;
        let (n, n_wanted) = (expected.times.len(), expected.n_wanted);
        waited.with_context(|| format!("{n} of {n_wanted} proxies have acknowledged a change"))?;
        self.check()?;
        Ok(expected.times)
    }

    /// Waits until no proxy is told anything any more, and says when the last one was.
    pub(crate) async fn until_quiet(&self) -> anyhow::Result<Instant> {
        loop {
            let last = self.last.lock().context("no proxy was told anything")?;
            let quiet = last.elapsed();
            if quiet >= QUIET {
                return Ok(last);
            }
            sleep(QUIET - quiet).await;
        }
    }

    /// The number of responses to each proxy so far.
    pub(crate) fn messages(&self) -> Vec<usize> {
        self.messages.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    fn check(&self) -> anyhow::Result<()> {
        match &*self.failure.lock() {
            Some(failure) => anyhow::bail!("{failure}"),
            None => Ok(()),
        }
    }
}
