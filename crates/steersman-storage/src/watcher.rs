//! A reader of one resource's events: a cursor into its ring, and the resource's doorbell.
//!
//! No channel and no task, so ten thousand idle ones cost ten thousand cursors. One that falls behind the ring is cut off.

use crate::cache::Cache;
use crate::event::Event;
use crate::ring::Ring;
use crate::shelf::{Scope, Shelf};
use std::sync::Arc;
use steersman_machinery::Revision;
use tokio::sync::watch;

/// Most events looked at under one lock, so that a watcher of a quiet namespace does not hold up a busy resource.
const SCAN_EVENTS_MAX: usize = 4_096;

/// Why a watch ended.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum WatchError {
    /// The store was closed; everything before was handed out.
    #[error("the store is closed")]
    Closed,
    /// The reader was slower than history is long. List again.
    #[error("the watch fell behind: events up to revision {oldest} are gone")]
    Lagged {
        /// The oldest revision a watch can start after.
        oldest: Revision,
    },
}

/// Hands out the events of one resource in order, each once.
#[derive(Debug)]
pub struct Watcher {
    after: Revision,
    bell: watch::Receiver<()>,
    cache: Arc<Cache>,
    /// The absolute position in the ring of the next event to look at.
    position: u64,
    progress: Revision,
    scope: Scope,
    shelf: Arc<Shelf>,
}

/// One look under the lock.
struct Scan {
    events: Vec<Arc<Event>>,
    /// Whether there was more to look at than one lock allows.
    is_cut: bool,
}

impl Watcher {
    /// After a revision; `Err` with the oldest possible one when that is forgotten.
    pub(crate) fn new(
        cache: Arc<Cache>,
        shelf: Arc<Shelf>,
        scope: Scope,
        after: Revision,
    ) -> Result<Watcher, Revision> {
        let bell = shelf.listen();
        let position = shelf.read(|state| {
            if after < state.ring.floor() { Err(state.ring.floor()) } else { Ok(state.ring.position_after(after)) }
        })?;
        Ok(Watcher { after, bell, cache, position, progress: after, scope, shelf })
    }

    /// The next events, at least one and at most `events_max`. Waits for them.
    ///
    /// # Errors
    /// When the reader was too slow or the store was closed.
    ///
    /// # Cancel safety
    /// A dropped future has consumed nothing.
    pub async fn next_batch(&mut self, events_max: usize) -> Result<Vec<Arc<Event>>, WatchError> {
        // A reader that is always behind must not keep its thread.
        tokio::task::coop::consume_budget().await;
        loop {
            // Heard before looking, so a ring between look and wait is not lost.
            self.bell.borrow_and_update();
            let events = self.try_next_batch(events_max.max(1))?;
            if !events.is_empty() {
                return Ok(events);
            }
            // The shelf is held, so its bell cannot go away.
            if self.bell.changed().await.is_err() {
                return Err(WatchError::Closed);
            }
        }
    }

    /// The events that are there, at most `events_max`.
    ///
    /// # Errors
    /// When the reader was too slow, or the store was closed and nothing is left.
    pub fn try_next_batch(&mut self, events_max: usize) -> Result<Vec<Arc<Event>>, WatchError> {
        loop {
            let applied = self.cache.applied();
            let scan = self.scan(events_max, applied.revision)?;
            if !scan.events.is_empty() || !scan.is_cut {
                if scan.events.is_empty() && applied.closed && self.is_at_end() {
                    return Err(WatchError::Closed);
                }
                return Ok(scan.events);
            }
        }
    }

    /// Everything up to here has been handed out or was not asked for.
    pub fn progress(&self) -> Revision {
        self.progress
    }

    /// Looks past events outside the scope without handing anything out, and says how far that got: what a bookmark of an
    /// idle watch says. Stops before an event that is yet to be handed out.
    pub fn advance(&mut self) -> Revision {
        // A reader that has lagged keeps what it had; the next batch tells.
        while let Ok(Scan { is_cut: true, .. }) = self.scan(0, self.cache.applied().revision) {}
        self.progress
    }

    fn is_at_end(&self) -> bool {
        self.shelf.read(|state| state.ring.end() <= self.position)
    }

    /// `applied` was read before: every event up to it is in the ring.
    fn scan(&mut self, events_max: usize, applied: Revision) -> Result<Scan, WatchError> {
        let shelf = self.shelf.clone();
        shelf.read(|state| {
            let ring = &state.ring;
            if self.position < ring.start() {
                return Err(WatchError::Lagged { oldest: ring.floor() });
            }
            let mut events = Vec::new();
            let mut is_full = false;
            for event in ring.from(self.position).take(SCAN_EVENTS_MAX) {
                if self.after < event.revision && self.scope.contains(&event.object.key) {
                    is_full = events.len() == events_max;
                    if is_full {
                        break;
                    }
                    events.push(event.clone());
                }
                self.position += 1;
            }
            self.progress = self.progress.max(self.seen(ring, applied));
            Ok(Scan { events, is_cut: !is_full && self.position < ring.end() })
        })
    }

    /// The newest revision of which nothing is left to look at.
    fn seen(&self, ring: &Ring, applied: Revision) -> Revision {
        match ring.from(self.position).next() {
            Some(next) => Revision(next.revision.0 - 1),
            None => applied.max(ring.newest()),
        }
    }
}
