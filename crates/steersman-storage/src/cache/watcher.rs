//! A reader of one resource's events: a cursor into its ring, and a notification when it has more.
//!
//! A watcher needs no channel and no task, so ten thousand idle ones cost ten thousand cursors. A watcher that begins before the
//! ring reads the engine's history until it has caught up; one that falls behind the ring later fails with `Lagged`.

use crate::cache::Cache;
use crate::cache::event::{Event, Kind};
use crate::cache::interest::{Group, Interest, Pending};
use crate::cache::resource::{ResourceCache, Scope};
use crate::key;
use crate::kv::{self, Change, Kv, Past};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use steersman_machinery::{Object, ObjectKey, Revision};

/// The most events examined under one lock, so that a watcher of a quiet namespace does not delay writes to a busy
/// resource.
const SCAN_EVENTS_MAX: usize = 4_096;

/// The most changes read at a time from the engine's history, approximately.
const LOG_EVENTS_MAX: usize = 512;

/// The reason why a watch ended.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum WatchError {
    /// The store was closed; everything before that was returned.
    #[error("the store is closed")]
    Closed,
    /// The reader was slower than the history allows. List again.
    #[error("the watch fell behind: events up to revision {oldest} are gone")]
    Lagged {
        /// The oldest revision after which a watch can start.
        oldest: Revision,
    },
}

/// Returns the events of one resource in order, each once.
#[derive(Debug)]
pub struct Watcher {
    after: Revision,
    cache: Arc<Cache>,
    cursor: Cursor,
    interest: Interest,
    log: Log,
    progress: Revision,
    resource: Arc<ResourceCache>,
    scope: Scope,
}

/// The position from which a watcher reads.
#[derive(Debug)]
enum Cursor {
    /// In the engine's log, after `progress`, since the ring no longer has the next events. Has the events that were
    /// read but not returned yet.
    Log(VecDeque<Arc<Event>>),
    /// In the ring, at this absolute position.
    Ring(Arc<Group>, u64),
}

/// The source of the history from before the ring.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) kv: Arc<dyn Kv>,
    /// The engine had history after this revision when the watch began.
    pub(crate) oldest: Revision,
    /// The prefix of the watched keys.
    pub(crate) prefix: Bytes,
}

/// The result of reading the ring once.
struct Scan {
    events: Vec<Arc<Event>>,
    /// Whether the scan stopped at the limit of events under one lock.
    is_cut: bool,
}

impl Watcher {
    /// A watcher of the events after a revision; `Err` with the oldest possible one if the history does not reach back
    /// that far.
    pub(crate) fn new(
        cache: Arc<Cache>,
        resource: Arc<ResourceCache>,
        log: Log,
        scope: Scope,
        interest: Interest,
        after: Revision,
    ) -> Result<Watcher, Revision> {
        let cursor = match resource.join(&scope, &interest, after) {
            Ok((group, position)) => Cursor::Ring(group, position),
            Err(_) if log.oldest <= after => Cursor::Log(VecDeque::new()),
            Err(floor) => return Err(floor.min(log.oldest)),
        };
        Ok(Watcher { after, cache, cursor, interest, log, progress: after, resource, scope })
    }

    /// The next events, at least one and at most `events_max`. Waits until there is one.
    ///
    /// # Errors
    /// When the reader was too slow or the store was closed.
    ///
    /// # Cancel safety
    /// A dropped future has consumed nothing.
    pub async fn next_batch(&mut self, events_max: usize) -> Result<Vec<Arc<Event>>, WatchError> {
        // Yields from time to time, even if the reader is always behind.
        tokio::task::coop::consume_budget().await;
        let events_max = events_max.max(1);
        loop {
            match &self.cursor {
                Cursor::Log(read) if read.is_empty() => self.read_log().await?,
                Cursor::Log(_) => {}
                Cursor::Ring(group, _) => {
                    let group = group.clone();
                    // Created before the events are read, so that an event published in between ends the wait.
                    let published = group.published.notified();
                    let events = self.try_next_batch(events_max)?;
                    if !events.is_empty() {
                        return Ok(events);
                    }
                    published.await;
                    continue;
                }
            }
            let events = self.try_next_batch(events_max)?;
            if !events.is_empty() {
                return Ok(events);
            }
        }
    }

    /// Reads more of the log, or switches to the ring if that has the next events.
    async fn read_log(&mut self) -> Result<(), WatchError> {
        let through = match self.resource.join(&self.scope, &self.interest, self.progress) {
            Ok((group, position)) => {
                self.cursor = Cursor::Ring(group, position);
                return Ok(());
            }
            Err(floor) => floor,
        };
        let after = self.progress;
        let past = Past { after, limit: LOG_EVENTS_MAX, prefix: self.log.prefix.clone(), through };
        let found = self.log.kv.history(past).await.map_err(|error| match error {
            kv::Error::Compacted { oldest, .. } => WatchError::Lagged { oldest },
            kv::Error::Closed => WatchError::Closed,
            error => {
                tracing::error!(cause = %error, "history cannot be read: a watch ends");
                WatchError::Lagged { oldest: through }
            }
        })?;
        let mut progress = found.progress.max(after);
        let mut events = VecDeque::new();
        for change in found.changes {
            let revision = change.event.revision;
            match past_event(change) {
                Ok(event) => events.extend(event.filter(|event| self.scope.sees(&self.interest, event)).map(Arc::new)),
                Err(Unknown) => {
                    // Events before the transaction are returned first; the next read begins with it.
                    progress = Revision(revision.0 - 1);
                    events.retain(|event: &Arc<Event>| event.revision < revision);
                    if progress == after {
                        return Err(WatchError::Lagged { oldest: revision });
                    }
                    break;
                }
            }
        }
        self.cursor = Cursor::Log(events);
        self.progress = progress;
        Ok(())
    }

    /// The available events, at most `events_max`. While the watch reads the engine's history, those are the events
    /// that [`Watcher::next_batch`] has read and not yet returned.
    ///
    /// # Errors
    /// When the reader was too slow, or the store was closed and nothing is left.
    pub fn try_next_batch(&mut self, events_max: usize) -> Result<Vec<Arc<Event>>, WatchError> {
        if let Cursor::Log(read) = &mut self.cursor {
            return Ok(read.drain(..read.len().min(events_max)).collect());
        }
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

    /// Every matching event up to this revision has been returned.
    pub fn progress(&self) -> Revision {
        match &self.cursor {
            Cursor::Log(read) => read.front().map_or(self.progress, |next| before(next)),
            Cursor::Ring(..) => self.progress,
        }
    }

    /// Skips events that do not match, and returns the progress, for the bookmark of an idle watch. Stops before an
    /// event that has yet to be returned.
    pub fn advance(&mut self) -> Revision {
        // A reader that has lagged keeps its progress; the next batch returns the error.
        while let Ok(Scan { is_cut: true, .. }) = self.scan(0, self.cache.applied().revision) {}
        self.progress()
    }

    /// Whether no event is left to read.
    fn is_at_end(&self) -> bool {
        let Cursor::Ring(group, position) = &self.cursor else { return false };
        self.resource.read(|state| match group.pending(*position, 1, &state.ring) {
            Pending::All => state.ring.end() <= *position,
            Pending::Lost => false,
            Pending::Positions(positions) => positions.is_empty(),
        })
    }

    /// Reads the ring once. The caller has read `applied` before: the ring has every event up to it.
    fn scan(&mut self, events_max: usize, applied: Revision) -> Result<Scan, WatchError> {
        let Watcher { after, cursor: Cursor::Ring(group, position), progress, resource, .. } = self else {
            return Ok(Scan { events: Vec::new(), is_cut: false });
        };
        resource.read(|state| {
            let ring = &state.ring;
            let hand_out = HandOut { after: *after, events_max, position };
            let (events, stopped, next) = match group.pending(*hand_out.position, SCAN_EVENTS_MAX, ring) {
                Pending::Lost => return Err(WatchError::Lagged { oldest: ring.floor() }),
                Pending::All => {
                    let numbered = (*hand_out.position..).zip(ring.from(*hand_out.position).take(SCAN_EVENTS_MAX));
                    let (events, stopped) = hand_out.take(numbered);
                    (events, stopped, ring.at(*position))
                }
                Pending::Positions(positions) => {
                    let is_all = positions.len() < SCAN_EVENTS_MAX;
                    let numbered = positions.iter().filter_map(|position| Some((*position, ring.at(*position)?)));
                    let (events, stopped) = hand_out.take(numbered);
                    if is_all && !stopped {
                        *position = ring.end();
                    }
                    // The group has no events before its next position.
                    let next = positions.iter().find(|next| *position <= **next);
                    let next = next.or(positions.last().filter(|_| !is_all));
                    (events, stopped, next.and_then(|position| ring.at(*position)))
                }
            };
            let seen = next.map_or(applied.max(ring.newest()), |next| before(next));
            *progress = seen.max(*progress);
            Ok(Scan { events, is_cut: !stopped && next.is_some() })
        })
    }
}

/// The revision before an event.
fn before(event: &Event) -> Revision {
    Revision(event.revision.0.saturating_sub(1))
}

/// Collects the events of one scan.
struct HandOut<'a> {
    after: Revision,
    events_max: usize,
    /// Moved past the events that were taken.
    position: &'a mut u64,
}

impl HandOut<'_> {
    /// The events, and whether it stopped at the limit with more left.
    fn take<'e>(self, numbered: impl Iterator<Item = (u64, &'e Arc<Event>)>) -> (Vec<Arc<Event>>, bool) {
        let mut events = Vec::new();
        for (position, event) in numbered {
            if event.is_after(self.after) {
                if events.len() == self.events_max {
                    *self.position = position;
                    return (events, true);
                }
                events.push(event.clone());
            }
            *self.position = position + 1;
        }
        (events, false)
    }
}

/// The previous state of an object is missing or unreadable, so the effect of a change on a watch is unknown: the watch
/// must end, so that its client lists again.
struct Unknown;

/// Decodes a change of the log as an event. `None` if the stored value is no object: the object keeps its previous
/// state, as it does for watches that run while the value is stored.
fn past_event(change: Change) -> Result<Option<Event>, Unknown> {
    let Change { event: kv::Event { key, revision, value }, previous } = change;
    let Some((_, _, printed)) = key::split(&key) else { return Ok(None) };
    let decode = |revision, value: &[u8]| Object::decode(ObjectKey::parse(printed), revision, value).ok().map(Arc::new);
    let previous = match previous {
        Some(entry) => Some(decode(entry.revision, &entry.value).ok_or(Unknown)?),
        None => None,
    };
    let Some(value) = value else {
        let last = previous.ok_or(Unknown)?;
        return Ok(Some(Event::deleted(last, revision)));
    };
    let kind = if previous.is_some() { Kind::Modified } else { Kind::Added };
    Ok(decode(revision, &value).map(|object| Event::new(kind, object, previous)))
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if let Cursor::Ring(group, _) = &self.cursor {
            self.resource.leave(group);
        }
    }
}
