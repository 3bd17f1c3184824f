//! Mirrors the objects of one selection into a delta queue: list, watch, resume, relist, and never give up.
//!
//! Behaviour follows client-go's `tools/cache/reflector.go`: a streaming list where the server has it, LIST + WATCH
//! where not; a watch that ends is resumed at the last version without a relist; a version that expired costs one
//! relist; too many requests cost a wait and nothing else. Failures are logged when they change, not each time.
//!
//! The bytes are decoded by `wire`. After the first fill, an object that a relist repeats at the version of the cache
//! is not decoded again: the cached `Arc` is used.

mod decoding;
mod failure;
mod monitor;
mod request;

pub use crate::list_watch::delta::{BATCH_MAX, Closed, DELTAS_MAX, Delta, DeltaFifo, DeltaSender, Entry, delta_fifo};
pub use crate::shared::backoff::Limits as BackoffLimits;
pub use crate::shared::decode_error::DecodeError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde::Serialize;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cache::cached::CacheMode;
use crate::cache::indexer::Indexer;
use crate::list_watch::transform::Transform;
use crate::list_watch::wire::event::{self, EventType, RawEvent};
use crate::list_watch::wire::lines::Lines;
use crate::list_watch::wire::list::ListScanner;
use crate::shared::backoff::{Backoff, Limits};
use crate::shared::clock;
use crate::shared::selection::{CachedResource, Scope, Selection, Target};

use crate::list_watch::reflector::decoding::{Decoded, Decoding, Reuse};

pub(crate) use crate::list_watch::reflector::failure::{Failure, Kind};
pub(crate) use crate::list_watch::reflector::monitor::Monitor;

/// How long the server may take to begin an answer, or to continue a list.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// How long after its requested lifetime a watch is taken for dead.
const WATCH_GRACE: Duration = Duration::from_secs(15);
/// A streaming list that stalls this long without its closing bookmark is given up for LIST + WATCH.
const BOOKMARK_TIMEOUT: Duration = Duration::from_secs(30);
/// A watch that ends sooner than this, without an event, counts as a failure.
const SHORT_WATCH: Duration = Duration::from_secs(1);
/// The longest wait, before jitter, for a type that the server does not serve (yet).
const NOT_SERVED_WAIT_MAX: Duration = Duration::from_secs(2);
/// The longest wait that a server can ask for. Servers ask for seconds; a proxy between them and us may ask for an hour
/// or a century, and a cache that nobody fills meanwhile costs more than a request now and then.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);
/// After this many consecutive failures that a resume may cure, a relist is tried.
const RESUMES_MAX: u32 = 3;

/// At most 2 to this power, less one, LISTs come between two attempts at a streaming list.
const LISTS_DUE_BITS: u32 = 5;

/// How a reflector lists and watches. The defaults suit; change them for tests and odd servers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReflectorOptions {
    /// Waits after failures.
    pub backoff: Limits,
    /// How the objects are held.
    pub cache: CacheMode,
    /// A watch without a byte for this long is taken for dead and resumed.
    pub idle_timeout: Duration,
    /// How to get the initial state.
    pub initial: InitialList,
    /// Page size of lists that the server must read from its store. Lists from its cache have no pages.
    pub page_limit: u32,
    /// Members removed from every object before it is decoded or held, as paths of keys. Default:
    /// `metadata.managedFields`.
    pub prune: Vec<Vec<String>>,
    /// The shortest and the longest lifetime asked of the server for one watch; each watch draws its own, so that many
    /// watches do not reconnect together.
    pub watch_lifetime: (Duration, Duration),
}

/// How to get the initial state.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum InitialList {
    /// LIST, then WATCH.
    Paged,
    /// A watch that begins with the state (`sendInitialEvents`). Falls back to LIST, then WATCH, where the server
    /// refuses that, or it fails, or its end does not come; the streaming list is tried again the next time the state
    /// is needed, or some times later.
    Streaming,
}

/// Keeps one selection of one type mirrored into a delta queue, by one watch, or by one for each of several namespaces.
pub struct Reflector<K> {
    client: Client,
    target: Target,
    options: ReflectorOptions,
    monitor: Arc<Monitor>,
    decoding: Decoding<K>,
    backoff: Backoff,
    /// Everything up to this version has been pushed. Empty before the first list.
    version: String,
    /// Nothing has been listed yet, so any state that the server has at hand is news.
    is_first: bool,
    /// The next list must not begin at `version`: the server could not serve it, or readers may have seen newer
    /// objects. The server is asked for its newest state instead.
    is_version_unusable: bool,
    /// The number of LISTs to make before a streaming list is tried again.
    n_lists_due: u32,
    /// The number of consecutive streaming lists that were refused or did not come to their end.
    n_unended: u32,
    /// Changes when somebody has waited too long for what the watch does not bring.
    relists: watch::Receiver<Option<Instant>>,
}

/// An open watch.
#[derive(Debug)]
struct Stream {
    body: Body,
    lines: Lines,
    /// When the server should have ended the watch.
    deadline: Instant,
    opened: Instant,
    n_events: u64,
}

/// Why a list did not come to its end.
enum Unfilled {
    Closed(Closed),
    Failed(Failure),
}

/// The next request after a failure, once the wait is over.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Next {
    Relist,
    Resume,
}

// === impl ReflectorOptions ===

impl Default for ReflectorOptions {
    fn default() -> Self {
        Self {
            backoff: Limits::default(),
            cache: CacheMode::Auto,
            idle_timeout: Duration::from_secs(5 * 60),
            initial: InitialList::Streaming,
            page_limit: 500,
            prune: vec![vec!["metadata".to_owned(), "managedFields".to_owned()]],
            watch_lifetime: (Duration::from_secs(5 * 60), Duration::from_secs(10 * 60)),
        }
    }
}

impl ReflectorOptions {
    /// Sets [`ReflectorOptions::backoff`].
    pub fn backoff(mut self, backoff: Limits) -> Self {
        self.backoff = backoff;
        self
    }

    /// Sets [`ReflectorOptions::cache`].
    pub fn cache(mut self, cache: CacheMode) -> Self {
        self.cache = cache;
        self
    }

    /// Sets [`ReflectorOptions::idle_timeout`].
    pub fn idle_timeout(mut self, idle_timeout: Duration) -> Self {
        self.idle_timeout = idle_timeout;
        self
    }

    /// Sets [`ReflectorOptions::initial`].
    pub fn initial(mut self, initial: InitialList) -> Self {
        self.initial = initial;
        self
    }

    /// Sets [`ReflectorOptions::page_limit`].
    pub fn page_limit(mut self, page_limit: u32) -> Self {
        self.page_limit = page_limit;
        self
    }

    /// Sets [`ReflectorOptions::prune`].
    pub fn prune(mut self, prune: Vec<Vec<String>>) -> Self {
        self.prune = prune;
        self
    }

    /// Sets [`ReflectorOptions::watch_lifetime`].
    pub fn watch_lifetime(mut self, watch_lifetime: (Duration, Duration)) -> Self {
        self.watch_lifetime = watch_lifetime;
        self
    }
}

// === impl Reflector ===

impl<K: CachedResource> Reflector<K> {
    /// A reflector for a type whose group, version and resource are known at run time; for others, `dynamic` is `&()`.
    ///
    /// `known` is the cache that the deltas are applied to, or a new one. With several namespaces, each has a list and
    /// a watch of its own, and the cache has the scope of all of them ([`Indexer::scoped`]).
    pub fn new(
        client: Client,
        dynamic: &K::DynamicType,
        selection: Selection,
        options: ReflectorOptions,
        known: Indexer<K>,
    ) -> Self {
        let target = Target::of::<K>(dynamic, selection);
        let monitor = Arc::new(Monitor::new(&target));
        Self::with_target(client, target, options, known, monitor)
    }

    /// Changes each object before it is pushed; see [`InformerFactory::transform`](crate::InformerFactory::transform).
    pub fn transform(self, transform: impl Fn(&mut K) + Send + Sync + 'static) -> Self
    where
        K: Serialize,
    {
        self.transformed(Some(Arc::new(Transform::new(transform))))
    }

    pub(crate) fn transformed(mut self, transform: Option<Arc<Transform<K>>>) -> Self {
        self.decoding.transform = transform;
        self
    }

    pub(crate) fn with_target(
        client: Client,
        target: Target,
        options: ReflectorOptions,
        known: Indexer<K>,
        monitor: Arc<Monitor>,
    ) -> Self {
        Self {
            client,
            backoff: Backoff::new(options.backoff),
            relists: known.relists(),
            decoding: Decoding::new(&target, &options, known),
            target,
            options,
            monitor,
            version: String::new(),
            is_first: true,
            is_version_unusable: false,
            n_lists_due: 0,
            n_unended: 0,
        }
    }

    /// Lists and watches until `stop`, or until the receiver of the deltas is dropped.
    pub async fn run(self, deltas: DeltaSender<K>, stop: CancellationToken) {
        if self.target.parts.is_empty() {
            return self.watch(deltas, stop).await;
        }
        // Dropping the set aborts the watches.
        let mut parts = JoinSet::new();
        for target in &self.target.parts {
            let known = self.decoding.known().clone();
            let (client, options) = (self.client.clone(), self.options.clone());
            let part = Self::with_target(client, target.clone(), options, known, Arc::clone(&self.monitor));
            let part = part.transformed(self.decoding.transform.clone());
            parts.spawn(part.watch(deltas.clone(), stop.clone()).boxed());
        }
        drop(deltas);
        while parts.join_next().await.is_some() {}
    }

    /// Lists and watches one part of the selection, with one watch.
    async fn watch(mut self, deltas: DeltaSender<K>, stop: CancellationToken) {
        tokio::select! {
            biased;
            // Cancel safe: state outside `self` is never half changed, and a cancelled push has not pushed.
            () = stop.cancelled() => {}
            closed = self.cycles(&deltas) => tracing::debug!(watch = %self.target, ?closed, "reflector ends"),
        }
        self.monitor.stopped(&self.target);
    }

    fn scope(&self) -> Scope {
        self.target.selection.scope.clone()
    }

    async fn cycles(&mut self, deltas: &DeltaSender<K>) -> Closed {
        loop {
            let why = match self.fill(deltas).await {
                Ok((resource_version, stream)) => {
                    self.version.clone_from(&resource_version);
                    self.is_first = false;
                    self.is_version_unusable = false;
                    if let Err(closed) = deltas.push(Delta::ListEnded { scope: self.scope(), resource_version }).await {
                        return closed;
                    }
                    // Whoever asked meanwhile has this list, or asks again.
                    self.relists.mark_unchanged();
                    self.monitor.heard(&self.target);
                    match self.follow(deltas, stream).await {
                        Ok(why) => why,
                        Err(closed) => return closed,
                    }
                }
                Err(Unfilled::Closed(closed)) => return closed,
                Err(Unfilled::Failed(failure)) => {
                    self.pause(&failure).await;
                    failure.kind
                }
            };
            self.monitor.relisting(&self.target, why);
        }
    }

    /// Pushes the complete state without the mark of its end. Returns its version, and, where it came by watch, the
    /// watch to go on with.
    async fn fill(&mut self, deltas: &DeltaSender<K>) -> Result<(String, Option<Stream>), Unfilled> {
        // Whoever asked for a list before gets this one.
        self.relists.mark_unchanged();
        if self.options.initial == InitialList::Streaming && self.n_lists_due == 0 {
            let mut streamed = self.stream_list(deltas).await;
            if let Err(Unfilled::Failed(failure)) = &streamed
                && matches!(failure.kind, Kind::Expired | Kind::TooLargeVersion)
            {
                self.is_version_unusable = true;
                streamed = self.stream_list(deltas).await;
            }
            match streamed {
                Ok((version, stream)) => {
                    self.n_unended = 0;
                    return Ok((version, Some(stream)));
                }
                Err(Unfilled::Closed(closed)) => return Err(closed.into()),
                Err(Unfilled::Failed(failure)) => self.fall_back(failure)?,
            }
        } else {
            self.n_lists_due = self.n_lists_due.saturating_sub(1);
        }
        let listed = match self.list(deltas, self.options.page_limit).await {
            Err(Unfilled::Failed(failure)) if matches!(failure.kind, Kind::Expired | Kind::TooLargeVersion) => {
                // Either the version is unusable, or a page token expired: one request for everything, from now.
                self.is_version_unusable = true;
                self.list(deltas, 0).await
            }
            listed => listed,
        };
        listed.map(|version| (version, None))
    }

    /// Handles a failed streaming list. `Ok`: try a LIST at once.
    fn fall_back(&mut self, failure: Failure) -> Result<(), Failure> {
        match failure.kind {
            // A LIST would fare no better.
            Kind::NotServed | Kind::TooManyRequests => Err(failure),
            // A proxy between the server and us may let a LIST through and not a watch that begins with everything.
            Kind::Transport => {
                self.n_lists_due = 1;
                Err(failure)
            }
            Kind::Invalid | Kind::Malformed | Kind::NoBookmark => {
                tracing::debug!(watch = %self.target, %failure, "no streaming list, using LIST");
                // The failure may be temporary, and a server may be upgraded: the streaming list is tried again ever
                // more rarely, but never given up.
                self.n_lists_due = (1 << self.n_unended) - 1;
                self.n_unended = (self.n_unended + 1).min(LISTS_DUE_BITS);
                Ok(())
            }
            Kind::Expired | Kind::Idle | Kind::Internal | Kind::Refused | Kind::Stale | Kind::TooLargeVersion => Ok(()),
        }
    }

    /// The cache begins to show objects of a list that may break off. Another server may be behind this one: only its
    /// newest state is certain to be no older than those objects.
    fn begin_showing(&mut self) {
        self.is_version_unusable = true;
    }

    /// LIST, page by page where the server reads from its store. Returns the version of the list.
    async fn list(&mut self, deltas: &DeltaSender<K>, page_limit: u32) -> Result<String, Unfilled> {
        let version = match (self.is_version_unusable, self.is_first) {
            (true, _) => String::new(),
            (false, true) => "0".to_owned(),
            (false, false) => self.version.clone(),
        };
        let (mut page, reuse) = (String::new(), self.reuse());
        deltas.push(Delta::ListBegun { scope: self.scope() }).await?;
        loop {
            let request = request::list(&self.target, &version, page_limit, &page);
            let mut body = self.send(request).await?;
            let mut scanner = ListScanner::default();
            while let Some(chunk) = next_chunk(&mut body, Instant::now() + ANSWER_TIMEOUT).await? {
                scanner.push(&chunk);
                while let Some(item) = scanner.next_item().map_err(Failure::from)? {
                    let delta = match self.decoding.object(&item, reuse) {
                        Decoded::Entry(entry) => Delta::Added(entry),
                        Decoded::Undecodable(error) => Delta::Undecodable(error),
                    };
                    self.begin_showing();
                    deltas.push(delta).await?;
                }
            }
            let envelope = scanner.finish().map_err(|error| Failure::malformed("the list", &error))?;
            let next = envelope.metadata.next_page;
            if next.is_empty() {
                return Ok(envelope.metadata.resource_version);
            }
            if next == page {
                // A repeated request would get the same page again, for ever.
                return Err(Failure::new(Kind::Malformed, "the list goes on with the page it has just sent").into());
            }
            page = next;
        }
    }

    /// A watch that begins with the state. Returns its version and the watch once the closing bookmark is there.
    async fn stream_list(&mut self, deltas: &DeltaSender<K>) -> Result<(String, Stream), Unfilled> {
        let version = if self.is_version_unusable { String::new() } else { self.version.clone() };
        let mut stream = self.open(&version, InitialList::Streaming).await?;
        let reuse = self.reuse();
        deltas.push(Delta::ListBegun { scope: self.scope() }).await?;
        loop {
            let line = match stream.next_line(BOOKMARK_TIMEOUT).await {
                Ok(Some(line)) => line,
                // The next streaming list might not end either: a LIST is made instead.
                Ok(None) => {
                    return Err(Failure::new(Kind::Malformed, "the streaming list ended before its bookmark").into());
                }
                Err(failure) if failure.kind == Kind::Idle => {
                    return Err(Failure::new(Kind::NoBookmark, "the streaming list stalled before its bookmark").into());
                }
                Err(failure) => return Err(failure.into()),
            };
            let event = read_event(&line)?;
            if event.event_type == EventType::Bookmark {
                let bookmark = event::bookmark(&event.object);
                if bookmark.ends_initial_events() {
                    return Ok((bookmark.resource_version, stream));
                }
                continue;
            }
            let delta = self.delta(&event, reuse)?;
            self.begin_showing();
            deltas.push(delta).await?;
        }
    }

    /// Watches from `self.version` on, resuming as long as that can work. Returns when a relist is due, and why it is.
    async fn follow(&mut self, deltas: &DeltaSender<K>, mut open: Option<Stream>) -> Result<Kind, Closed> {
        let mut n_resumes = 0;
        loop {
            let stream = match open.take() {
                Some(stream) => Ok(stream),
                None => self.open(&self.version.clone(), InitialList::Paged).await,
            };
            let failure = match stream {
                Ok(mut stream) => {
                    self.monitor.connected(&self.target);
                    let ended = self.consume(&mut stream, deltas).await?;
                    let was_short = stream.n_events == 0 && stream.opened.elapsed() < SHORT_WATCH;
                    if stream.n_events > 0 {
                        n_resumes = 0;
                    }
                    match ended {
                        Err(failure) => failure,
                        Ok(()) if was_short => Failure::new(Kind::Transport, "the watch ended as soon as it began"),
                        // The server ends every watch some day; that is not a failure.
                        Ok(()) => continue,
                    }
                }
                Err(failure) => failure,
            };
            let next = match failure.kind {
                Kind::Idle | Kind::TooManyRequests => Next::Resume,
                Kind::Internal | Kind::Transport if n_resumes < RESUMES_MAX => Next::Resume,
                // A list that may be as old as what the cache has would not help.
                Kind::Stale | Kind::TooLargeVersion => {
                    self.is_version_unusable = true;
                    Next::Relist
                }
                _ => Next::Relist,
            };
            if matches!(failure.kind, Kind::Internal | Kind::Transport) {
                n_resumes += 1;
            }
            self.pause(&failure).await;
            if next == Next::Relist {
                return Ok(failure.kind);
            }
        }
    }

    /// Reads one watch to its end.
    async fn consume(&mut self, stream: &mut Stream, deltas: &DeltaSender<K>) -> Result<Result<(), Failure>, Closed> {
        loop {
            let line = tokio::select! {
                biased;
                Ok(()) = self.relists.changed() => {
                    let message = "a controller has waited for too long for what it wrote";
                    return Ok(Err(Failure::new(Kind::Stale, message)));
                }
                line = stream.next_line(self.options.idle_timeout) => line,
            };
            let event = match line {
                Ok(Some(line)) => read_event(&line),
                Ok(None) => return Ok(Ok(())),
                Err(failure) => return Ok(Err(failure)),
            };
            let event = match event {
                Ok(event) => event,
                Err(failure) => return Ok(Err(failure)),
            };
            stream.n_events += 1;
            let delta = match self.delta(&event, Reuse::Never) {
                Ok(delta) => delta,
                Err(failure) => return Ok(Err(failure)),
            };
            if let Some(version) = delta.resource_version() {
                version.clone_into(&mut self.version);
            }
            self.monitor.heard(&self.target);
            deltas.push(delta).await?;
        }
    }

    /// The delta for an event of a watch.
    fn delta(&mut self, event: &RawEvent, reuse: Reuse) -> Result<Delta<K>, Failure> {
        Ok(match event.event_type {
            EventType::Added | EventType::Modified => match self.decoding.event(event, reuse) {
                Decoded::Entry(entry) if event.event_type == EventType::Added => Delta::Added(entry),
                Decoded::Entry(entry) => Delta::Modified(entry),
                Decoded::Undecodable(error) => Delta::Undecodable(error),
            },
            EventType::Bookmark => {
                let resource_version = event::bookmark(&event.object).resource_version;
                Delta::Bookmark { scope: self.scope(), resource_version }
            }
            EventType::Deleted => match self.decoding.event(event, Reuse::Never) {
                Decoded::Entry(Entry { key, object }) => Delta::Deleted { key, object: Some(object) },
                Decoded::Undecodable(error) => match error.key.clone() {
                    Some(key) => Delta::Deleted { key, object: None },
                    None => Delta::Undecodable(error),
                },
            },
            EventType::Error => return Err(Failure::of_error_event(&event.object)),
        })
    }

    /// Nothing is reused in the first list.
    fn reuse(&self) -> Reuse {
        if self.is_first { Reuse::Never } else { Reuse::Cached }
    }

    async fn open(&self, version: &str, initial: InitialList) -> Result<Stream, Failure> {
        let (shortest, longest) = self.options.watch_lifetime;
        let lifetime = shortest + longest.saturating_sub(shortest).mul_f64(rand::random::<f64>());
        // Servers do not accept a longer lifetime than this as a number of seconds.
        let lifetime = lifetime.min(clock::FAR);
        let request = request::watch(&self.target, version, lifetime, initial);
        let body = self.send(request).await?;
        let opened = Instant::now();
        Ok(Stream { body, lines: Lines::default(), deadline: opened + lifetime + WATCH_GRACE, opened, n_events: 0 })
    }

    /// Sends a request and returns the body of a good answer.
    async fn send(&self, request: Result<http::Request<Body>, http::Error>) -> Result<Body, Failure> {
        let request = request.map_err(|error| Failure::chain(Kind::Refused, "the request cannot be built", &error))?;
        let sent = tokio::time::timeout(ANSWER_TIMEOUT, self.client.send(request)).await;
        let response = sent
            .map_err(|_| Failure::new(Kind::Transport, "the server did not begin to answer within 60s"))?
            .map_err(|error| Failure::chain(Kind::Transport, "the server cannot be reached", &error))?;
        if response.status().is_success() {
            return Ok(response.into_body());
        }
        Err(Failure::of_response(response, Instant::now() + ANSWER_TIMEOUT).await)
    }

    /// Waits as long as `failure` asks for.
    async fn pause(&mut self, failure: &Failure) {
        self.monitor.failed(&self.target, failure);
        let (now, dice) = (Instant::now(), rand::random::<f64>());
        let wait = match failure.kind {
            Kind::Expired | Kind::Idle | Kind::Stale => self.backoff.next_first_free(now, dice),
            Kind::NotServed => self.backoff.next(now, dice).min(NOT_SERVED_WAIT_MAX.mul_f64(1.0 + dice)),
            _ => self.backoff.next(now, dice),
        };
        let retry_after = failure.retry_after.unwrap_or_default().min(RETRY_AFTER_MAX);
        tokio::time::sleep(wait.max(retry_after)).await;
    }
}

impl<K> fmt::Debug for Reflector<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reflector").field("target", &self.target).finish_non_exhaustive()
    }
}

// === impl Unfilled ===

impl From<Closed> for Unfilled {
    fn from(closed: Closed) -> Self {
        Self::Closed(closed)
    }
}

impl From<Failure> for Unfilled {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

// === impl Stream ===

impl Stream {
    /// The next line of the watch, `None` at its end. A last line without its newline was cut off and is dropped.
    async fn next_line(&mut self, idle_timeout: Duration) -> Result<Option<Bytes>, Failure> {
        loop {
            if let Some(line) = self.lines.next_line()? {
                if line.trim_ascii().is_empty() {
                    continue;
                }
                return Ok(Some(line));
            }
            let deadline = self.deadline.min(clock::after(Instant::now(), idle_timeout));
            match next_chunk(&mut self.body, deadline).await? {
                Some(chunk) => self.lines.push(chunk),
                None => return Ok(None),
            }
        }
    }
}

async fn next_chunk(body: &mut Body, deadline: Instant) -> Result<Option<Bytes>, Failure> {
    loop {
        let frame = tokio::time::timeout_at(deadline, body.frame())
            .await
            .map_err(|_| Failure::new(Kind::Idle, "the server has been silent for too long"))?;
        match frame {
            None => return Ok(None),
            Some(Err(error)) => return Err(Failure::chain(Kind::Transport, "the answer broke off", &error)),
            Some(Ok(frame)) => {
                if let Ok(chunk) = frame.into_data() {
                    return Ok(Some(chunk));
                }
            }
        }
    }
}

/// Parses a line. A line that is not an event may still be a bare Status, whose message is better than "no event".
fn read_event(line: &Bytes) -> Result<RawEvent, Failure> {
    event::parse(line).ok_or_else(|| Failure::of_stray_line(line))
}
