//! A reader of one resource's events: a cursor into its ring, and the signal that there are more.
//!
//! No channel and no task, so ten thousand idle ones cost ten thousand cursors. One that falls behind the ring is cut off.

use crate::cache::Cache;
use crate::event::Event;
use crate::interest::{Group, Interest, Pending};
use crate::resource_cache::{ResourceCache, Scope};
use crate::ring::Ring;
use std::sync::Arc;
use steersman_machinery::Revision;

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
    cache: Arc<Cache>,
    group: Arc<Group>,
    /// The absolute position in the ring of the next event to look at.
    position: u64,
    progress: Revision,
    resource: Arc<ResourceCache>,
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
        resource: Arc<ResourceCache>,
        scope: &Scope,
        interest: &Interest,
        after: Revision,
    ) -> Result<Watcher, Revision> {
        let (group, position) = resource.join(scope, interest, after)?;
        Ok(Watcher { after, cache, group, position, progress: after, resource })
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
        let group = self.group.clone();
        loop {
            // Made before looking: what is published between look and wait ends the wait.
            let published = group.published.notified();
            let events = self.try_next_batch(events_max.max(1))?;
            if !events.is_empty() {
                return Ok(events);
            }
            published.await;
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

    /// Looks past what is not of interest without handing anything out, and says how far that got: what a bookmark of an
    /// idle watch says. Stops before an event that is yet to be handed out.
    pub fn advance(&mut self) -> Revision {
        // A reader that has lagged keeps what it had; the next batch tells.
        while let Ok(Scan { is_cut: true, .. }) = self.scan(0, self.cache.applied().revision) {}
        self.progress
    }

    /// Nothing of the group is left to look at.
    fn is_at_end(&self) -> bool {
        self.resource.read(|state| match self.group.pending(self.position, 1, &state.ring) {
            Pending::All => state.ring.end() <= self.position,
            Pending::Lost => false,
            Pending::Own(positions) => positions.is_empty(),
        })
    }

    /// `applied` was read before: every event up to it is in the ring.
    fn scan(&mut self, events_max: usize, applied: Revision) -> Result<Scan, WatchError> {
        let resource = self.resource.clone();
        resource.read(|state| {
            let ring = &state.ring;
            match self.group.pending(self.position, SCAN_EVENTS_MAX, ring) {
                Pending::Lost => Err(WatchError::Lagged { oldest: ring.floor() }),
                Pending::All => {
                    let events = ring.from(self.position).take(SCAN_EVENTS_MAX);
                    let numbered = (self.position..).zip(events);
                    let (events, stopped) = self.hand_out(numbered, events_max);
                    self.finish(ring, applied, events, stopped, ring.at(self.position))
                }
                Pending::Own(positions) => {
                    let is_all = positions.len() < SCAN_EVENTS_MAX;
                    let last = positions.last().copied();
                    let numbered = positions.iter().filter_map(|position| Some((*position, ring.at(*position)?)));
                    let (events, stopped) = self.hand_out(numbered, events_max);
                    if is_all && !stopped {
                        self.position = ring.end();
                    }
                    // Between here and the next event of the group there is nothing.
                    let next = positions.iter().find(|position| self.position <= **position);
                    let next = next.or(last.filter(|_| !is_all).as_ref()).and_then(|position| ring.at(*position));
                    self.finish(ring, applied, events, stopped, next)
                }
            }
        })
    }

    /// Takes the numbered events, and whether it stopped before one that is too many.
    fn hand_out<'a>(
        &mut self,
        numbered: impl Iterator<Item = (u64, &'a Arc<Event>)>,
        events_max: usize,
    ) -> (Vec<Arc<Event>>, bool) {
        let mut events = Vec::new();
        for (position, event) in numbered {
            if self.after < event.revision {
                if events.len() == events_max {
                    self.position = position;
                    return (events, true);
                }
                events.push(event.clone());
            }
            self.position = position + 1;
        }
        (events, false)
    }

    /// `next` is an event before which there is nothing left to look at.
    fn finish(
        &mut self,
        ring: &Ring,
        applied: Revision,
        events: Vec<Arc<Event>>,
        stopped: bool,
        next: Option<&Arc<Event>>,
    ) -> Result<Scan, WatchError> {
        let seen = match next {
            Some(next) => Revision(next.revision.0.saturating_sub(1)),
            None => applied.max(ring.newest()),
        };
        self.progress = self.progress.max(seen);
        Ok(Scan { events, is_cut: !stopped && next.is_some() })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.resource.leave(&self.group);
    }
}
