//! The objects that a list has still to send, and how long a client may keep them.
//!
//! A client who reads on has the objects held for it, shared with the cache. One that keeps the server waiting for
//! [`PATIENCE`] has not: from then on its objects are read page by page from the store's history, and its place among the
//! requests under way is another's. One that reads so slowly for so long that its [`CREDIT_MAX`] is used up is cut off.
//!
//! What a client that does not read keeps is therefore a chunk and a key; for how long is bounded, too.

use crate::body::Error;
use crate::status::Failure;
use parking_lot::Mutex;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use steersman_machinery::{Object, ObjectKey};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// How long a client may keep the server waiting before its objects are let go. Longer than a moment in which the network
/// stutters, far shorter than it takes to make many such clients.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a client may be without taking anything, at the most: half of what a request may take.
const CREDIT_MAX: Duration = Duration::from_secs(30);
/// How much of that a client gets back for a chunk that it takes. Who reads 64 KiB in four seconds, 16 KiB a second, is never
/// cut off; a telephone line of old would be.
const CREDIT_PER_CHUNK: Duration = Duration::from_secs(4);
/// Objects that are read from history at a time.
const PAGE_OBJECTS: usize = 256;

/// Reads so many of the objects behind a key once more, as of the list's revision.
pub(crate) type Reload = Box<dyn Fn(ObjectKey, usize) -> Page + Send + Sync>;

/// Objects that are being read.
pub(crate) type Page = Pin<Box<dyn Future<Output = Result<Vec<Arc<Object>>, Failure>> + Send>>;

/// What comes next in a list.
pub(super) enum Next {
    End,
    Objects(Vec<Arc<Object>>),
    /// To be handed to [`Supply::resume`] when it has been read.
    Page(Page),
}

/// What a list has still to send.
pub(super) struct Supply {
    state: Mutex<State>,
    reload: Option<Reload>,
}

struct State {
    /// The next objects; all that are left unless they were let go.
    held: std::vec::IntoIter<Arc<Object>>,
    /// How many of those left are not in `held`.
    n_let_go: usize,
    /// The last that was handed out.
    after: Option<ObjectKey>,
    permit: Option<OwnedSemaphorePermit>,
    taken_at: Instant,
    /// How long after `taken_at` the client is cut off.
    credit: Duration,
    is_cut: bool,
}

/// Watches over a client for as long as its list lasts.
pub(super) struct Guard(JoinHandle<()>);

impl Supply {
    pub(super) fn new(objects: Vec<Arc<Object>>, reload: Option<Reload>) -> Supply {
        let state = State {
            held: objects.into_iter(),
            n_let_go: 0,
            after: None,
            permit: None,
            taken_at: Instant::now(),
            credit: CREDIT_MAX,
            is_cut: false,
        };
        Supply { state: Mutex::new(state), reload }
    }

    /// The next objects, at the most so many.
    pub(super) fn next(&self, objects_max: usize) -> Result<Next, Failure> {
        let mut state = self.state.lock();
        if state.is_cut {
            return Err(Failure::internal(Error::TooSlow.to_string()));
        }
        if state.held.len() == 0 && state.n_let_go > 0 {
            let (Some(reload), Some(after)) = (&self.reload, &state.after) else {
                return Err(Failure::internal("the rest of a list was let go"));
            };
            return Ok(Next::Page(reload(after.clone(), state.n_let_go.min(PAGE_OBJECTS))));
        }
        let next: Vec<_> = state.held.by_ref().take(objects_max).collect();
        let Some(last) = next.last() else { return Ok(Next::End) };
        state.after = Some(last.key.clone());
        Ok(Next::Objects(next))
    }

    /// Goes on with objects that were read once more.
    pub(super) fn resume(&self, page: Vec<Arc<Object>>) -> Result<(), Failure> {
        if page.is_empty() {
            return Err(Failure::internal("the rest of a list is not in the store's history"));
        }
        let mut state = self.state.lock();
        state.n_let_go = state.n_let_go.saturating_sub(page.len());
        state.held = page.into_iter();
        Ok(())
    }

    /// The client has taken a chunk.
    pub(super) fn taken(&self) {
        let mut state = self.state.lock();
        let now = Instant::now();
        let left = state.credit.saturating_sub(now.duration_since(state.taken_at));
        state.credit = (left + CREDIT_PER_CHUNK).min(CREDIT_MAX);
        state.taken_at = now;
    }

    pub(super) fn hold(&self, permit: OwnedSemaphorePermit) {
        let mut state = self.state.lock();
        if !state.is_cut {
            state.permit = Some(permit);
        }
    }

    pub(super) fn is_cut(&self) -> bool {
        self.state.lock().is_cut
    }

    /// There is nothing left to make.
    pub(super) fn end(&self) {
        self.state.lock().permit = None;
    }

    /// Lets go of what has been kept for too long; when to look again, or nothing after the end.
    fn look(&self, now: Instant) -> Option<Instant> {
        let mut state = self.state.lock();
        let (patient_until, cut_at) = (state.taken_at + PATIENCE, state.taken_at + state.credit);
        if cut_at <= now {
            state.is_cut = true;
            state.let_go();
            return None;
        }
        if now < patient_until {
            return Some(patient_until.min(cut_at));
        }
        state.permit = None;
        if self.reload.is_some() {
            state.let_go();
        }
        // It may go on to read, and stop again.
        Some(cut_at.min(now + PATIENCE))
    }
}

impl State {
    fn let_go(&mut self) {
        self.permit = None;
        // Before the first object there is no key to go on from; the first chunk is made before there is a client.
        if self.after.is_some() || self.is_cut {
            self.n_let_go += self.held.len();
            self.held = Vec::new().into_iter();
        }
    }
}

impl Guard {
    pub(super) fn new(supply: &Arc<Supply>) -> Guard {
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
