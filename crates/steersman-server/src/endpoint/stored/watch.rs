//! Watches: events from a version on, as a stream.
//!
//! A watch is a cursor into the store's ring. What it sends is made when the client takes it: a slow client holds up nobody,
//! and falls out of the ring with an ERROR event instead of missing something in silence.

use crate::answer::Answer;
use crate::codec;
use crate::endpoint::context::Context;
use crate::endpoint::stored::select::Selection;
use crate::negotiate::{Encoding, Form, Negotiated, Shape, negotiate};
use crate::operation::Operation;
use crate::options;
use crate::render;
use crate::state::State;
use crate::status::Failure;
use crate::{catalog::Served, query::Query, request_info::Target, user::User};
use bytes::{BufMut, Bytes, BytesMut};
use http::HeaderMap;
use rand::Rng;
use serde_json::json;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use steersman_machinery::{Object, Revision, Value};
use steersman_storage::{At, Event, Kind, Page, ReadError, WatchError, Watcher};
use tokio::time::Instant;

/// Without a client's wish a watch ends after this long, or up to twice as long: not all at once.
const TIMEOUT_MIN: Duration = Duration::from_secs(1800);
/// How often a client that asked for them gets a bookmark while nothing else happens.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
/// So long before its end a watch sends a last bookmark, so that the next can go on from there.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// Events taken from the ring at a time.
const BATCH_MAX: usize = 256;
/// The format of plain JSON frames of built-in and custom objects in their stored form, for the frames that watchers share.
const FORMAT_JSON: u32 = 0;

/// The events of one watch, as the frames that are sent.
#[derive(Debug)]
pub(crate) struct WatchStream {
    request: Arc<Request>,
    watcher: Watcher,
    /// Of a custom resource: tells when its definition may be gone.
    catalog_changes: Option<tokio::sync::watch::Receiver<()>>,
    selection: Selection,
    negotiated: Negotiated,
    /// What is sent before anything else: the objects that are there already. They become frames as the client takes them.
    initial: VecDeque<Arc<Object>>,
    /// Whether a bookmark says that those were all.
    announces_end: bool,
    /// Frames that are ready.
    pending: VecDeque<Bytes>,
    wants_bookmarks: bool,
    deadline: Instant,
    next_bookmark: Instant,
    last_bookmark_sent: bool,
    has_sent_columns: bool,
    is_over: bool,
    /// The version that was sent last, for bookmarks.
    revision: Revision,
}

/// What of the request outlives its answer's beginning.
#[derive(Debug)]
struct Request {
    state: Arc<State>,
    served: Served,
    target: Target,
    user: User,
    query: Query,
}

pub(crate) async fn watch(cx: &Context<'_>) -> Result<Answer, Failure> {
    let negotiated = negotiate(cx.headers, Shape::Stream)?;
    let options = options::List::parse(cx.query, true)?;
    let selection = Selection::new(cx, &options)?;
    let sends_initial = options.sends_initial_events == Some(true);
    let wanted = options.revision().map_err(|error| Failure::unclassified(format!("resourceVersion: {error}")))?;
    let mut initial = Vec::new();
    let after = match wanted {
        Some(revision) if !sends_initial => revision,
        _ => {
            match wanted {
                Some(revision) => cx.state.wait_for(revision).await?,
                None if options.takes_any() => {}
                None => {
                    cx.state.sync().await?;
                }
            }
            let keep = |object: &Object| selection.selects(cx, object);
            let list = cx.state.store.list_where(
                cx.operation.storage(),
                &cx.operation.list_scope(),
                At::Latest,
                Page::ALL,
                keep,
            );
            let list = list.map_err(|error| Failure::of_read(&error))?;
            if options.sends_initial_events != Some(false) {
                initial = list.objects;
            }
            list.revision
        }
    };
    let watcher = match cx.state.store.watch(cx.operation.storage(), cx.operation.list_scope(), after) {
        Ok(watcher) => watcher,
        // A version of the future or of the past is told within the stream, as clients expect it.
        Err(ReadError::Compacted { requested, oldest }) => {
            let failure = Failure::expired(format!("too old resource version: {requested} ({oldest})"));
            return Ok(Answer::stream(WatchAnswer::Error(failure), negotiated));
        }
        Err(error) => return Ok(Answer::stream(WatchAnswer::Error(Failure::of_read(&error)), negotiated)),
    };
    let now = Instant::now();
    let timeout = options.timeout.unwrap_or_else(|| TIMEOUT_MIN.mul_f64(rand::rng().random_range(1.0..2.0)));
    let mut stream = WatchStream {
        request: Arc::new(Request {
            state: cx.state.clone(),
            served: cx.operation.served.clone(),
            target: cx.target.clone(),
            user: cx.operation.user.clone(),
            query: cx.query.clone(),
        }),
        watcher,
        catalog_changes: cx.operation.resource().is_custom().then(|| cx.state.catalog_changes()),
        selection,
        negotiated,
        initial: initial.into(),
        announces_end: sends_initial && options.wants_bookmarks,
        pending: VecDeque::new(),
        wants_bookmarks: options.wants_bookmarks,
        deadline: now + timeout,
        next_bookmark: now + BOOKMARK_INTERVAL,
        // A watch that is over in a moment needs no bookmark to go on from.
        last_bookmark_sent: timeout <= BOOKMARK_BEFORE_END,
        has_sent_columns: false,
        is_over: false,
        revision: after,
    };
    // The definition may have gone while a version was waited for, before its changes were listened to.
    stream.is_over = stream.catalog_changes.is_some() && !stream.request.is_served();
    Ok(Answer::stream(WatchAnswer::Events(Box::new(stream)), negotiated))
}

/// What a watch is answered with.
#[derive(Debug)]
pub(crate) enum WatchAnswer {
    /// One event that says why there are none.
    Error(Failure),
    Events(Box<WatchStream>),
}

/// The frame of an ERROR event.
pub(crate) fn error_frame(failure: &Failure) -> Bytes {
    let mut frame =
        codec::encode(&json!({"type": "ERROR", "object": &*failure.status}), Encoding::Json, false).to_vec();
    frame.push(b'\n');
    frame.into()
}

impl WatchStream {
    /// The next frames, together; `None` at the end.
    ///
    /// # Cancel safety
    /// What was taken from the ring is sent by the next call if this one is dropped.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(frames) = self.take_pending() {
                return Some(frames);
            }
            if self.is_over {
                return None;
            }
            let wake = if self.wants_bookmarks { self.deadline.min(self.bookmark_due()) } else { self.deadline };
            // Looked at first: batches may never cease to come.
            if wake <= Instant::now() {
                self.tick();
                continue;
            }
            // Every arm is cancel-safe: a batch that is not returned stays behind the cursor, the others have no state.
            // Batches go before the end of the kind, so that a client hears of the last deletions.
            tokio::select! {
                biased;
                () = self.request.state.stopping() => self.is_over = true,
                batch = self.watcher.next_batch(BATCH_MAX) => self.take(batch),
                () = changed(&mut self.catalog_changes) => self.is_over = !self.request.is_served(),
                () = tokio::time::sleep_until(wake) => self.tick(),
            }
        }
    }

    fn take_pending(&mut self) -> Option<Bytes> {
        const CHUNK_BYTES: usize = 64 * 1024;
        if self.pending.is_empty() && !self.initial.is_empty() {
            let request = self.request.clone();
            let headers = HeaderMap::new();
            let cx = request.context(&headers);
            let mut bytes = 0;
            while let Some(object) = self.initial.pop_front() {
                let frame = self.frame(&cx, "ADDED", &object);
                bytes += frame.as_ref().map_or(0, Bytes::len);
                self.pending.extend(frame);
                if bytes >= CHUNK_BYTES {
                    break;
                }
            }
        }
        if self.initial.is_empty() && std::mem::take(&mut self.announces_end) {
            let frame = self.bookmark(true);
            self.pending.push_back(frame);
        }
        let first = self.pending.pop_front()?;
        if self.pending.is_empty() {
            return Some(first);
        }
        let mut chunk = BytesMut::from(&*first);
        while let Some(frame) = self.pending.front().filter(|frame| chunk.len() + frame.len() <= CHUNK_BYTES) {
            chunk.put_slice(frame);
            self.pending.pop_front();
        }
        Some(chunk.freeze())
    }

    fn take(&mut self, batch: Result<Vec<Arc<Event>>, WatchError>) {
        let events = match batch {
            Ok(events) => events,
            Err(WatchError::Closed) => {
                self.is_over = true;
                return;
            }
            Err(WatchError::Lagged { oldest }) => {
                let failure = Failure::expired(format!("too old resource version: {} ({oldest})", self.revision));
                self.pending.push_back(error_frame(&failure));
                self.is_over = true;
                return;
            }
        };
        let request = self.request.clone();
        let headers = HeaderMap::new();
        let cx = request.context(&headers);
        for event in events {
            self.revision = event.revision;
            let frame = self.event_frame(&cx, &event);
            self.pending.extend(frame);
        }
    }

    /// An event as this watch sees it: an object that leaves the selection is deleted for it, one that enters is added.
    fn event_frame(&mut self, cx: &Context<'_>, event: &Event) -> Option<Bytes> {
        if self.selection.is_everything() {
            let word = match event.kind {
                Kind::Added => "ADDED",
                Kind::Deleted => "DELETED",
                Kind::Modified => "MODIFIED",
            };
            let is_plain = self.negotiated.form == Form::Object
                && cx.operation.strategy().is_stored_form(cx.operation.resource(), cx.operation.version());
            if is_plain {
                return Some(event.frame(FORMAT_JSON, || plain_frame(word, event.object.json())));
            }
            return self.frame(cx, word, &event.object);
        }
        let was = event.previous.as_ref().is_some_and(|previous| self.selection.selects(cx, previous));
        let is = event.kind != Kind::Deleted && self.selection.selects(cx, &event.object);
        match (was, is) {
            (false, false) => None,
            (false, true) => self.frame(cx, "ADDED", &event.object),
            (true, true) => self.frame(cx, "MODIFIED", &event.object),
            (true, false) if event.kind == Kind::Deleted => self.frame(cx, "DELETED", &event.object),
            // It left the selection: what it was last, at the version of the change.
            (true, false) => {
                let previous = event.previous.as_ref()?;
                let stamped = render::at_revision(previous, event.revision)?;
                self.frame(cx, "DELETED", &stamped)
            }
        }
    }

    fn frame(&mut self, cx: &Context<'_>, word: &str, object: &Object) -> Option<Bytes> {
        let is_plain = self.negotiated.form == Form::Object
            && cx.operation.strategy().is_stored_form(cx.operation.resource(), cx.operation.version());
        if is_plain {
            return Some(plain_frame(word, object.json()));
        }
        let tree = render::event_object(cx, object, self.negotiated.form, !self.has_sent_columns).ok()?;
        self.has_sent_columns = true;
        let json = codec::encode(&tree, Encoding::Json, false);
        Some(plain_frame(word, &json))
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
        let frame = self.bookmark(false);
        self.pending.push_back(frame);
    }

    fn bookmark(&self, ends_initial_events: bool) -> Bytes {
        let kind = self.request.served.kind();
        let mut metadata = json!({"resourceVersion": self.revision.to_string(), "creationTimestamp": Value::Null});
        if ends_initial_events {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = json!({"kind": kind.kind, "apiVersion": kind.api_version(), "metadata": metadata});
        plain_frame("BOOKMARK", &codec::encode(&object, Encoding::Json, false))
    }
}

impl Request {
    /// Whether the kind is still there, as it was when the watch began. One that has changed is another: its objects are
    /// stored, pruned and printed otherwise, and the client begins anew. One that is going is watched to its end.
    fn is_served(&self) -> bool {
        let catalog = self.state.catalog();
        let found = catalog.find(&self.target.group, &self.target.version, &self.target.resource);
        found
            .is_some_and(|found| found.resource.is_terminating() || Arc::ptr_eq(&found.resource, &self.served.resource))
    }

    fn context<'a>(&'a self, headers: &'a HeaderMap) -> Context<'a> {
        Context {
            state: &self.state,
            operation: Operation::new(&self.served, self.target.attributes("watch"), &self.user, self.state.now()),
            target: &self.target,
            query: &self.query,
            headers,
            abandoned: None,
        }
    }
}

async fn changed(catalog_changes: &mut Option<tokio::sync::watch::Receiver<()>>) {
    match catalog_changes {
        // The sender lives as long as the server, which ends the watch by other means.
        Some(changes) => drop(changes.changed().await),
        None => std::future::pending().await,
    }
}

fn plain_frame(word: &str, object: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(object.len() + 32);
    frame.put_slice(b"{\"type\":\"");
    frame.put_slice(word.as_bytes());
    frame.put_slice(b"\",\"object\":");
    frame.put_slice(object);
    frame.put_slice(b"}\n");
    frame.freeze()
}
