//! WATCH: the events after a resourceVersion, as a stream.
//!
//! A watch is a cursor into the store's ring of recent events. Frames are made when the client reads them, so a slow
//! client delays no other; one that falls behind the ring gets an ERROR event instead of silently missing events. A
//! frame that is the same for several watches is encoded once and shared.

mod pending;
mod permission;
mod signals;

use crate::http::answer::Answer;
use crate::http::endpoint::context::Context;
use crate::http::endpoint::stored::select::Selection;
use crate::http::endpoint::stored::watch::pending::{Chunk, Pending};
use crate::http::endpoint::stored::watch::permission::Permission;
use crate::http::endpoint::stored::watch::signals::{Signal, Signals};
use crate::http::representation::{Columns, EventType, FrameKey, Representation, error_frame};
use crate::metrics::{Labels, OpenWatch};
use crate::shared::compute::{AnswerCompute, HEAVY_BYTES, NEVER};
use crate::shared::request::body::{Body, CHUNK_BYTES, Chunks, Error, PERMIT_PATIENCE};
use crate::shared::request::memory::Reservation;
use crate::shared::request::negotiate::{Form, Shape};
use crate::shared::request::options;
use crate::shared::request::payload::Payload;
use crate::shared::status::Failure;
use crate::state::State;
use bytes::Bytes;
use futures::{FutureExt as _, Stream};
use rand::Rng;
use serde_json::json;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;
use steersman_machinery::{Budget, Object, Revision, Value};
use steersman_storage::{At, Event, Kind, Page, ReadError, WatchError, Watcher};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

/// The interval of bookmarks for a client that asked for them, while there are no events.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
/// The time before its end at which a watch sends a last bookmark, from which the next watch can resume.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// The most events taken from the ring at a time.
const BATCH_MAX: usize = 256;
/// The longest that a watch with initial objects holds its permit while its client reads them.
const HOLD_MAX: Duration = Duration::from_secs(1);
/// The most initial objects converted to events at a time; fewer if they fill a chunk.
const INITIAL_BATCH: usize = 64;

/// The meaning of a bookmark.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Marks {
    /// All initial objects have been sent.
    EndOfInitial,
    /// The events up to its revision have been sent.
    Progress,
}

/// The events of one watch, as the frames that are sent.
#[derive(Debug)]
struct WatchStream {
    state: Arc<State>,
    /// Counts this watch as open, and the events that it sends.
    open: OpenWatch,
    representation: Representation,
    selection: Arc<Selection>,
    /// The memory of the selection.
    _memory: Reservation,
    /// Computes selections and initial objects that take long.
    rest: AnswerCompute,
    watcher: Watcher,
    signals: Signals,
    /// For a custom resource: notified when its definition may be gone.
    catalog_changes: Option<tokio::sync::watch::Receiver<()>>,
    /// `None` unless watches end when their users lose the permission.
    permission: Option<Permission>,
    /// The objects that exist when the watch begins, sent before any event. They become frames as the client reads them.
    initial: VecDeque<Arc<Object>>,
    /// Whether a bookmark is to mark the end of the initial objects.
    announces_end: bool,
    /// Events taken from the ring that are not frames yet.
    events: VecDeque<Arc<Event>>,
    /// Frames to send.
    pending: Pending,
    wants_bookmarks: bool,
    deadline: Instant,
    next_bookmark: Instant,
    last_bookmark_sent: bool,
    /// The columns of the next table.
    columns: Columns,
    /// Whether the definition is gone: the events left in the ring are sent, then the watch ends.
    is_ending: bool,
    is_over: bool,
    /// The revision of the last event that was sent, for bookmarks.
    revision: Revision,
}

pub(crate) async fn watch(cx: &Context<'_>) -> Result<Answer, Failure> {
    let representation = cx.representation(cx.negotiate(Shape::Stream)?)?;
    let encoding = representation.encoding();
    let options = options::List::parse(cx.query, options::Purpose::Watch)?;
    let selection = Selection::new(cx, &options)?;
    let body = match begin(cx, &options, representation, selection).await? {
        Ok(stream) => Body::chunks(WatchChunks::new(stream)),
        // A watch that cannot begin at its version gets an ERROR event in the stream, as clients expect.
        Err(failure) => Body::full(error_frame(&failure, encoding)),
    };
    Ok(Answer::watch(body, encoding))
}

/// Where a watch begins.
struct Start {
    /// The revision after which events are sent.
    after: Revision,
    /// The objects to send before them.
    initial: Vec<Arc<Object>>,
}

/// The start that a request asks for, or inside `Ok` the failure to send as an ERROR event.
async fn start(
    cx: &Context<'_>,
    options: &options::List,
    selection: &Selection,
) -> Result<Result<Start, Failure>, Failure> {
    let wanted = options.revision().map_err(|error| Failure::bad_request(format!("resourceVersion: {error}")))?;
    match wanted {
        Some(revision) if options.sends_initial_events != Some(true) => {
            let checked = check_reached(cx, revision).await?;
            return Ok(checked.map(|()| Start { after: revision, initial: Vec::new() }));
        }
        Some(revision) => cx.state.wait_for(revision).await?,
        None if options.takes_any() => {}
        None => {
            cx.state.sync_since(cx.operation.arrived).await?;
        }
    }
    let (resource, scope) = (cx.operation.storage(), cx.operation.list_scope());
    selection.expect(&cx.operation, cx.state.store.count_in(resource, &scope)).await;
    let budget = &cx.operation.budget;
    let keep = |object: &Object| selection.selects_within(object, budget);
    let list = cx.state.store.list_where(resource, &scope, At::Latest, Page::ALL, keep);
    let list = list.map_err(|error| Failure::of_read(&error))?;
    budget.check()?;
    let initial = match options.sends_initial_events {
        Some(false) => Vec::new(),
        _ => {
            selection.expect_refining(&cx.operation, &list.objects).await;
            selection.refine(list.objects, budget).await?
        }
    };
    Ok(Ok(Start { after: list.revision, initial }))
}

/// A watcher of the events after a revision, or inside `Ok` the failure to send as an ERROR event.
fn watcher(cx: &Context<'_>, selection: &Selection, after: Revision) -> Result<Result<Watcher, Failure>, Failure> {
    let (resource, scope) = (cx.operation.storage(), cx.operation.list_scope());
    match cx.state.store.watch_for(resource, scope, &selection.interest(), after) {
        Ok(watcher) => Ok(Ok(watcher)),
        Err(ReadError::Compacted { requested, oldest }) => {
            Ok(Err(Failure::expired(format!("too old resource version: {requested} ({oldest})"))))
        }
        Err(error) => Err(Failure::of_read(&error)),
    }
}

/// The labels that an open watch is counted under.
fn labels<'a>(cx: &Context<'a>) -> Labels<'a> {
    let attributes = cx.operation.attributes;
    Labels {
        verb: "WATCH",
        group: attributes.group,
        version: attributes.version,
        resource: attributes.resource,
        scope: if attributes.namespace.is_some() { "namespace" } else { "cluster" },
        ..Labels::default()
    }
}

/// The watch, or inside `Ok` the failure to send as an ERROR event, when it cannot begin at the requested version.
async fn begin(
    cx: &Context<'_>,
    options: &options::List,
    representation: Representation,
    selection: Selection,
) -> Result<Result<WatchStream, Failure>, Failure> {
    let mut memory = cx.state.memory.selectors.reserve(cx.payer);
    memory.grow_to(selection.bytes())?;
    let mut permission = Permission::new(cx);
    if let Some(permission) = &mut permission {
        // The permission may have been lost between the chain's question and the subscription to changes.
        permission.check(cx.state).await?;
    }
    let Start { after, initial } = match start(cx, options, &selection).await? {
        Ok(start) => start,
        Err(failure) => return Ok(Err(failure)),
    };
    let watcher = match watcher(cx, &selection, after)? {
        Ok(watcher) => watcher,
        Err(failure) => return Ok(Err(failure)),
    };
    let now = Instant::now();
    let timeout = options.timeout.unwrap_or_else(|| match cx.state.timeouts.watch_min {
        Duration::ZERO => NEVER,
        min => min.mul_f64(rand::rng().random_range(1.0..2.0)),
    });
    let mut stream = WatchStream {
        state: cx.state.clone(),
        open: cx.state.metrics.begin_watch(&labels(cx)),
        representation,
        selection: Arc::new(selection),
        _memory: memory,
        rest: cx.rest(),
        watcher,
        signals: Signals::none(),
        catalog_changes: cx.operation.resource().is_custom().then(|| cx.state.catalog_changes()),
        permission,
        initial: initial.into(),
        announces_end: options.sends_initial_events == Some(true) && options.wants_bookmarks,
        events: VecDeque::new(),
        pending: Pending::default(),
        wants_bookmarks: options.wants_bookmarks,
        deadline: now + timeout,
        next_bookmark: now + BOOKMARK_INTERVAL,
        // A shorter watch needs no bookmark before its end.
        last_bookmark_sent: timeout <= BOOKMARK_BEFORE_END,
        columns: Columns::Described,
        is_ending: false,
        is_over: false,
        revision: after,
    };
    stream.listen();
    // The definition may have been deleted while this waited for a version, before it subscribed to the catalog.
    stream.is_over = stream.catalog_changes.is_some() && !stream.is_served();
    Ok(Ok(stream))
}

/// Fails if a version is newer than the store. Such a version comes from a state of the store that was lost, or was
/// invented: a watch from there would skip all events until then, or wait for ever.
async fn check_reached(cx: &Context<'_>, revision: Revision) -> Result<Result<(), Failure>, Failure> {
    if revision <= cx.state.store.revision() {
        return Ok(Ok(()));
    }
    let current = cx.state.sync().await?;
    if revision <= current {
        return Ok(Ok(()));
    }
    let text = format!("unknown resource version: {revision} was never given out, the newest is {current}: list again");
    Ok(Err(Failure::expired(text)))
}

/// Makes the frame of an event, once for all watches with the same representation.
async fn make_frame(
    representation: &Representation,
    event: &Event,
    (word, columns): (EventType, Columns),
    key: Option<FrameKey>,
) -> Result<Bytes, Failure> {
    let object = || match (word, &event.previous) {
        // The object left the selection: the frame has its last selected state, at the revision of the change.
        (EventType::Unselected, Some(previous)) => Arc::new(previous.copy_at(event.revision)),
        _ => event.object.clone(),
    };
    let make = || {
        let converted = representation.convert(vec![object()]).now_or_never().and_then(Result::ok);
        let payload = converted.and_then(|converted| converted.into_iter().next());
        let frame = payload.and_then(|payload| representation.frame(word, &payload, columns).ok());
        frame.unwrap_or_default()
    };
    let shared = key.map_or_else(Bytes::new, |key| event.frame(key.0, make));
    if !shared.is_empty() {
        return Ok(shared);
    }
    // The conversion needs IO or fails. It is done here, outside the event's lock.
    let converted = representation.convert(vec![object()]).await?;
    let payload = converted.into_iter().next().unwrap_or_else(|| Payload::Stored(object()));
    representation.frame(word, &payload, columns)
}

/// Whether an object that is selected so far is selected in its converted form too.
async fn refine(selection: &Selection, object: Option<&Arc<Object>>, is_selected: bool) -> Result<bool, Failure> {
    let objects = object.filter(|_| is_selected).cloned().into_iter().collect();
    Ok(!selection.refine(objects, &Budget::default()).await?.is_empty())
}

impl WatchStream {
    /// The next frames in one buffer; `None` at the end.
    ///
    /// Events that are being selected, converted or written would be lost if the future were dropped before its end, which
    /// its owner never does.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(chunk) = self.make_chunk().await {
                return Some(chunk);
            }
            if self.is_over {
                return None;
            }
            // Checked before events are taken: on a busy resource there is always a next batch.
            if self.wake_at() <= Instant::now() {
                self.tick();
                continue;
            }
            if self.is_ending {
                match self.watcher.try_next_batch(BATCH_MAX) {
                    Ok(events) if events.is_empty() => self.is_over = true,
                    batch => self.take(batch),
                }
                continue;
            }
            // Both arms are cancel-safe: a batch that is not returned is not consumed, and signals keep their state.
            tokio::select! {
                biased;
                signal = &mut self.signals => self.heed(signal).await,
                batch = self.watcher.next_batch(BATCH_MAX) => self.take(batch),
            }
        }
    }

    /// Renews the signals, with the time of the next bookmark or of the end.
    fn listen(&mut self) {
        let (changes, permission) = (self.catalog_changes.clone(), self.permission.as_ref());
        self.signals = Signals::new(self.state.clone(), changes, permission, self.wake_at());
    }

    async fn heed(&mut self, signal: Signal) {
        match signal {
            Signal::Stopping => self.is_over = true,
            Signal::CatalogChanged => {
                if let Some(changes) = &mut self.catalog_changes {
                    changes.borrow_and_update();
                }
                // The events in the ring are sent first, so that the client sees the last deletions.
                self.is_ending = !self.is_served();
                self.listen();
            }
            Signal::PermissionDue => {
                let checked = match &mut self.permission {
                    Some(permission) => permission.check(&self.state).await,
                    None => Ok(()),
                };
                match checked {
                    Ok(()) => self.listen(),
                    Err(failure) => {
                        self.push_error(&failure);
                        self.is_over = true;
                    }
                }
            }
            // `next` compares the clock with the deadlines itself.
            Signal::Time => self.listen(),
        }
    }

    /// When the watch must act without an event: to end, or to send a bookmark.
    fn wake_at(&self) -> Instant {
        if self.wants_bookmarks { self.deadline.min(self.bookmark_due()) } else { self.deadline }
    }

    /// Makes frames of the objects and events at hand, until they fill a chunk.
    async fn make_chunk(&mut self) -> Option<Bytes> {
        while self.pending.bytes < CHUNK_BYTES && !self.is_over {
            // Yields to other tasks from time to time.
            tokio::task::coop::consume_budget().await;
            let made = if !self.initial.is_empty() {
                self.make_initial().await
            } else if std::mem::take(&mut self.announces_end) {
                self.bookmark(Marks::EndOfInitial).map(|frame| self.pending.push(vec![frame]))
            } else if let Some(event) = self.events.pop_front() {
                self.revision = event.revision;
                self.event_frame(&event).await.map(|frame| self.pending.push(frame.into_iter().collect()))
            } else {
                break;
            };
            // Leaving out the object would give the client a wrong state, so the watch ends.
            if let Err(failure) = made {
                self.push_error(&failure);
                self.is_over = true;
            }
        }
        let Chunk { bytes, frames } = self.pending.take()?;
        self.open.sent(frames, bytes.len());
        Some(bytes)
    }

    /// The number of initial objects that are sent next, and their bytes.
    fn next_initial(&self) -> (usize, usize) {
        let (mut batch, mut bytes) = (0, 0);
        for object in self.initial.iter().take(INITIAL_BATCH) {
            if CHUNK_BYTES <= bytes {
                break;
            }
            (batch, bytes) = (batch + 1, bytes + object.json().len());
        }
        (batch, bytes)
    }

    async fn make_initial(&mut self) -> Result<(), Failure> {
        let (batch, bytes) = self.next_initial();
        let objects: Vec<_> = self.initial.drain(..batch).collect();
        let (representation, mut columns) = (self.representation.clone(), self.columns);
        let n_read = if representation.is_verbatim() { 0 } else { bytes };
        let frames = async move {
            let mut frames = Vec::with_capacity(objects.len());
            for payload in representation.convert(objects).await? {
                let columns = std::mem::replace(&mut columns, Columns::Known);
                frames.push(representation.frame_pieces(EventType::Added, &payload, columns)?);
            }
            Ok::<_, Failure>(frames)
        };
        let frames = self.rest.carry_out(n_read, frames).await??;
        self.columns = Columns::Known;
        frames.into_iter().for_each(|pieces| self.pending.push(pieces));
        Ok(())
    }

    fn take(&mut self, batch: Result<Vec<Arc<Event>>, WatchError>) {
        match batch {
            Ok(events) => {
                if self.representation.form() == Form::Table {
                    self.representation.set_now(self.state.now());
                }
                self.events.extend(events);
            }
            Err(WatchError::Closed) => self.is_over = true,
            Err(WatchError::Lagged { oldest }) => {
                let failure = Failure::expired(format!("too old resource version: {} ({oldest})", self.revision));
                self.push_error(&failure);
                self.is_over = true;
            }
        }
    }

    /// The frame of an event, or `None` if the event does not concern this watch.
    async fn event_frame(&mut self, event: &Arc<Event>) -> Result<Option<Bytes>, Failure> {
        let Some(word) = self.word(event).await? else { return Ok(None) };
        let columns = std::mem::replace(&mut self.columns, Columns::Known);
        let representation = &self.representation;
        // A frame whose conversion calls a webhook is not made under the event's lock, where it cannot be awaited: the
        // webhook would be called twice.
        let key = representation.frame_key(word, columns).filter(|_| !representation.may_call());
        if let Some(made) = key.and_then(|key| event.made_frame(key.0)) {
            return Ok(Some(made));
        }
        let n_read = if representation.is_verbatim() { 0 } else { event.object.json().len() };
        if n_read < HEAVY_BYTES {
            return make_frame(representation, event, (word, columns), key).await.map(Some);
        }
        let (representation, event) = (representation.clone(), event.clone());
        let frame = async move { make_frame(&representation, &event, (word, columns), key).await };
        self.rest.carry_out(n_read, frame).await?.map(Some)
    }

    /// The type of an event for this watch: DELETED for an object that leaves the selection, ADDED for one that enters
    /// it.
    async fn word(&mut self, event: &Arc<Event>) -> Result<Option<EventType>, Failure> {
        if self.selection.is_everything() {
            return Ok(Some(match event.kind {
                Kind::Added => EventType::Added,
                Kind::Deleted => EventType::Deleted,
                Kind::Modified => EventType::Modified,
            }));
        }
        let before_and_after = [event.previous.as_ref(), Some(&event.object).filter(|_| event.kind != Kind::Deleted)];
        let n_bytes: usize = before_and_after.iter().flatten().map(|object| object.json().len()).sum();
        let is_passed =
            |object: &&Arc<Object>| self.selection.n_read(object) > 0 || self.selection.n_passed(object) > 0;
        let is_long = HEAVY_BYTES <= n_bytes && before_and_after.iter().flatten().any(is_passed);
        let selected = move |selection: &Selection, objects: [Option<&Arc<Object>>; 2]| {
            objects.map(|object| object.is_some_and(|object| selection.selects(object)))
        };
        let [was, is] = if !is_long {
            selected(&self.selection, before_and_after)
        } else {
            let (selection, objects) = (self.selection.clone(), before_and_after.map(|object| object.cloned()));
            let reading = async move { selected(&selection, objects.each_ref().map(Option::as_ref)) };
            self.rest.carry_out(n_bytes, reading).await?
        };
        let (was, is) = match self.selection.is_refined() {
            true => {
                let (selection, objects) = (self.selection.clone(), before_and_after.map(|object| object.cloned()));
                let refined = async move {
                    let [before, after] = objects.each_ref().map(Option::as_ref);
                    Ok::<_, Failure>((refine(&selection, before, was).await?, refine(&selection, after, is).await?))
                };
                self.rest.carry_out(n_bytes, refined).await??
            }
            false => (was, is),
        };
        Ok(match (was, is) {
            (false, false) => None,
            (false, true) => Some(EventType::Added),
            (true, true) => Some(EventType::Modified),
            (true, false) if event.kind == Kind::Deleted => Some(EventType::Deleted),
            (true, false) => Some(EventType::Unselected),
        })
    }

    fn bookmark_due(&self) -> Instant {
        let before_end = self.deadline.checked_sub(BOOKMARK_BEFORE_END).unwrap_or(self.deadline);
        if self.last_bookmark_sent { self.next_bookmark } else { self.next_bookmark.min(before_end) }
    }

    fn tick(&mut self) {
        let now = Instant::now();
        if now >= self.deadline {
            self.is_over = true;
            return;
        }
        if !self.wants_bookmarks || now < self.bookmark_due() {
            return;
        }
        self.last_bookmark_sent = self.deadline.duration_since(now) <= BOOKMARK_BEFORE_END;
        self.next_bookmark = now + BOOKMARK_INTERVAL;
        self.watcher.advance();
        self.revision = self.revision.max(self.watcher.progress());
        match self.bookmark(Marks::Progress) {
            Ok(frame) => self.pending.push(vec![frame]),
            Err(failure) => {
                self.push_error(&failure);
                self.is_over = true;
            }
        }
        self.listen();
    }

    fn bookmark(&self, marks: Marks) -> Result<Bytes, Failure> {
        let mut metadata = json!({"resourceVersion": self.revision.to_string(), "creationTimestamp": Value::Null});
        if marks == Marks::EndOfInitial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        self.representation.bookmark(&metadata)
    }

    fn push_error(&mut self, failure: &Failure) {
        self.pending.push(vec![error_frame(failure, self.representation.encoding())]);
    }

    /// Whether the kind is still served as it was when the watch began. After a change of the definition, objects are
    /// pruned and printed differently, so the client must list again. A kind whose definition is being deleted is
    /// watched to its end.
    fn is_served(&self) -> bool {
        let (catalog, served) = (self.state.catalog(), self.representation.served());
        let resource = &served.resource;
        let found = catalog.find(&resource.group, &served.version().name, &resource.plural);
        found.is_some_and(|found| found.resource.is_terminating() || found.resource.id == resource.id)
    }
}

/// A watch as the body of an answer.
struct WatchChunks {
    stream: Pin<Box<dyn Stream<Item = Part> + Send>>,
    /// The bytes of the initial objects that are sent next; none when all have been sent.
    initial_bytes: usize,
    /// Whether its initial objects are written for this watch alone.
    is_private: bool,
    /// The task that holds the permit of the request while the initial objects are sent, for [`HOLD_MAX`] at most and while the client reads.
    held: Option<AbortOnDropHandle<()>>,
    /// Whether the client has asked for a chunk since that task looked.
    is_read: Arc<AtomicBool>,
}

/// Bytes of a watch.
struct Part {
    bytes: Bytes,
    /// The bytes of the initial objects that are sent next.
    initial_bytes: usize,
}

impl WatchChunks {
    fn new(stream: WatchStream) -> WatchChunks {
        let stream = Box::new(stream);
        let (_, initial_bytes) = stream.next_initial();
        let is_private = !stream.representation.is_verbatim();
        let chunks = futures::stream::unfold(stream, |mut stream| async move {
            let bytes = stream.next().await?;
            Some((Part { bytes, initial_bytes: stream.next_initial().1 }, stream))
        });
        WatchChunks { stream: Box::pin(chunks), initial_bytes, is_private, held: None, is_read: Arc::default() }
    }
}

impl Chunks for WatchChunks {
    fn poll_chunk(&mut self, cx: &mut std::task::Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        let chunk = self.stream.as_mut().poll_next(cx);
        self.is_read.store(true, Ordering::Relaxed);
        if let Poll::Ready(part) = &chunk {
            self.initial_bytes = part.as_ref().map_or(0, |part| part.initial_bytes);
        }
        if chunk.is_pending() || self.initial_bytes == 0 {
            self.held = None;
        }
        chunk.map(|chunk| chunk.map(|chunk| Ok(chunk.bytes)))
    }

    fn next_bytes(&self) -> Option<usize> {
        (self.is_private && 0 < self.initial_bytes).then_some(self.initial_bytes)
    }

    fn first_bytes(&self) -> Option<usize> {
        self.is_private.then_some(0)
    }

    fn hold(&mut self, permit: Box<dyn Send>) {
        if 0 < self.initial_bytes {
            let (end, is_read) = (Instant::now() + HOLD_MAX, self.is_read.clone());
            self.held = Some(AbortOnDropHandle::new(tokio::spawn(async move {
                let _permit = permit;
                while Instant::now() < end {
                    tokio::time::sleep(PERMIT_PATIENCE).await;
                    if !is_read.swap(false, Ordering::Relaxed) {
                        break;
                    }
                }
            })));
        }
    }
}
