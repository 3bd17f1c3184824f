//! The objects that a list has yet to send, and the time for which they are kept for a slow client.
//!
//! While a client reads, the list holds its objects, shared with the cache. When the client keeps the server waiting
//! for [`PERMIT_PATIENCE`], the permit of the request is released, and after [`PATIENCE`] the objects; when it reads on, the rest comes page by
//! page from the store's history. A client so slow that it uses up [`CREDIT_MAX`] is cut off.
//!
//! A client that does not read therefore holds one chunk and one key, until the transport closes its connection.

use crate::shared::request::body::{CHUNK_BYTES, Error, PERMIT_PATIENCE};
use crate::shared::status::Failure;
use parking_lot::Mutex;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use steersman_machinery::{Object, ObjectKey};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// The time for which a client may keep the server waiting before its objects are released. Longer than a hiccup of the
/// network, and short enough that many such clients do not hold much memory.
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest that a client may go without reading: half the timeout of a request.
const CREDIT_MAX: Duration = Duration::from_secs(30);
/// The credit that a client gets for each byte of a chunk: at 16 KiB a second it is never cut off.
const CREDIT_PER_BYTE: Duration = Duration::from_nanos(1_000_000_000 / (16 * 1024));
/// The number of objects read from history at a time: fewer, at least one, if so many of the largest would have more than these bytes.
const PAGE_OBJECTS: usize = 256;
const PAGE_BYTES: usize = 4 << 20;

/// Reads at most this many objects after a key again, as of the list's revision.
pub(crate) type Reload = Box<dyn Fn(ObjectKey, usize) -> Page + Send + Sync>;

/// A read of a page that is in progress.
pub(crate) type Page = Pin<Box<dyn Future<Output = Result<Vec<Arc<Object>>, Failure>> + Send>>;

/// The next part of a list.
pub(super) enum Next {
    End,
    Objects(Vec<Arc<Object>>),
    /// Objects to await and hand to [`Supply::resume`].
    Page(Page),
}

/// The objects that a list has yet to send.
pub(super) struct Supply {
    state: Mutex<State>,
    reload: Option<Reload>,
}

struct State {
    /// The next objects: all that are left, unless some were released.
    held: std::vec::IntoIter<Arc<Object>>,
    /// The number of objects left that are not in `held`.
    n_let_go: usize,
    /// The key of the last object that was returned.
    after: Option<ObjectKey>,
    /// The bytes of the largest object that was returned.
    largest: usize,
    permit: Option<Box<dyn Send>>,
    /// The time since which a chunk has been waiting for the client; `None` while the server makes the next one.
    waiting_since: Option<Instant>,
    /// The time after `waiting_since` at which the client is cut off.
    credit: Duration,
    is_cut: bool,
}

/// The task that watches the speed of a client for as long as its list lasts.
pub(super) struct Guard(JoinHandle<()>);

impl Supply {
    pub(super) fn new(objects: Vec<Arc<Object>>, reload: Option<Reload>) -> Supply {
        let state = State {
            held: objects.into_iter(),
            n_let_go: 0,
            after: None,
            largest: 0,
            permit: None,
            waiting_since: None,
            credit: CREDIT_MAX,
            is_cut: false,
        };
        Supply { state: Mutex::new(state), reload }
    }

    /// The next objects: at most this many, and no more bytes than this, except that a single object may be larger.
    pub(super) fn next(&self, objects_max: usize, bytes_max: usize) -> Result<Next, Failure> {
        let mut state = self.state.lock();
        if state.is_cut {
            return Err(Failure::internal(Error::TooSlow.to_string()));
        }
        if state.held.len() == 0 && state.n_let_go > 0 {
            let (Some(reload), Some(after)) = (&self.reload, &state.after) else {
                return Err(Failure::internal("the rest of a list was let go"));
            };
            let n_objects = (PAGE_BYTES / state.largest.max(1)).clamp(1, PAGE_OBJECTS);
            return Ok(Next::Page(reload(after.clone(), state.n_let_go.min(n_objects))));
        }
        let (mut next, mut bytes) = (Vec::new(), 0);
        while let Some(object) = state.held.as_slice().first().filter(|_| next.len() < objects_max) {
            bytes += object.json().len();
            if bytes_max < bytes && !next.is_empty() {
                break;
            }
            next.extend(state.held.next());
        }
        state.largest = next.iter().map(|object| object.json().len()).fold(state.largest, usize::max);
        let Some(last) = next.last() else { return Ok(Next::End) };
        state.after = Some(last.key.clone());
        Ok(Next::Objects(next))
    }

    /// The expected size of the next chunk, if it is written as it is stored.
    pub(super) fn next_bytes(&self) -> usize {
        let state = self.state.lock();
        state.held.as_slice().first().map_or(state.largest, |object| object.json().len()).max(CHUNK_BYTES)
    }

    /// Continues with objects that were read again.
    pub(super) fn resume(&self, page: Vec<Arc<Object>>) -> Result<(), Failure> {
        if page.is_empty() {
            return Err(Failure::internal("the rest of a list is not in the store's history"));
        }
        let mut state = self.state.lock();
        state.n_let_go = state.n_let_go.saturating_sub(page.len());
        state.held = page.into_iter();
        Ok(())
    }

    /// Called when the client asks for the next chunk. Until it gets one, the time does not count against the client.
    pub(super) fn asked(&self) {
        let mut state = self.state.lock();
        if let Some(since) = state.waiting_since.take() {
            state.credit = state.credit.saturating_sub(Instant::now().duration_since(since));
        }
    }

    /// Called when the client gets a chunk of this many bytes.
    pub(super) fn taken(&self, bytes: usize) {
        let mut state = self.state.lock();
        // A chunk with a large object may take longer to read than a client may otherwise pause.
        let for_chunk = CREDIT_PER_BYTE.saturating_mul(u32::try_from(bytes).unwrap_or(u32::MAX));
        state.credit = (state.credit + for_chunk).min(CREDIT_MAX.max(for_chunk));
        state.waiting_since = Some(Instant::now());
    }

    pub(super) fn hold(&self, permit: Box<dyn Send>) {
        let mut state = self.state.lock();
        if !state.is_cut {
            state.permit = Some(permit);
        }
    }

    pub(super) fn is_cut(&self) -> bool {
        self.state.lock().is_cut
    }

    /// Called when the whole list is written: releases the permit.
    pub(super) fn end(&self) {
        self.state.lock().permit = None;
    }

    /// Releases what has been held too long, and returns when to check again; `None` after the client was cut off.
    fn look(&self, now: Instant) -> Option<Instant> {
        let mut state = self.state.lock();
        let Some(since) = state.waiting_since else { return Some(now + PERMIT_PATIENCE) };
        let (patient_until, cut_at) = (since + PATIENCE, since + state.credit);
        if cut_at <= now {
            state.is_cut = true;
            state.let_go();
            return None;
        }
        if state.permit.is_some() {
            let permit_until = since + PERMIT_PATIENCE;
            if now < permit_until {
                return Some(permit_until.min(cut_at));
            }
            state.permit = None;
        }
        if now < patient_until {
            return Some(patient_until.min(cut_at));
        }
        if self.reload.is_some() {
            state.let_go();
        }
        // The client may read on and pause again.
        Some(cut_at.min(now + PATIENCE))
    }
}

impl State {
    fn let_go(&mut self) {
        self.permit = None;
        // Without a last key there is no position to continue from. The first chunk is made before the guard starts.
        if self.after.is_some() || self.is_cut {
            self.n_let_go += self.held.len();
            self.held = Vec::new().into_iter();
        }
    }
}

impl Guard {
    /// Called when the first chunk is made.
    pub(super) fn new(supply: &Arc<Supply>) -> Guard {
        supply.state.lock().waiting_since = Some(Instant::now());
        let supply = supply.clone();
        Guard(tokio::spawn(async move {
            let mut next = Some(Instant::now());
            while let Some(at) = next {
                tokio::time::sleep_until(at).await;
                next = supply.look(Instant::now());
            }
        }))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.abort();
    }
}
