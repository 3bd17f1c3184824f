//! The newest committed changes of an engine, in memory, and a notification of new ones.
//!
//! An engine publishes changes after they are durable; each watch is a cursor (a revision) that pulls them. If a cursor is older
//! than the kept changes, an engine with a log on disk reads the missing ones from there.

use crate::kv::{Batch, BoxFuture, Error, Event, Watch};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use steersman_machinery::Revision;
use tokio::sync::watch;

/// The most changes that one pull returns, plus the rest of a transaction.
pub(crate) const PULL_EVENTS_MAX: usize = 512;
/// The most times that one read, or one commit, is done again because the file was written anew.
pub(crate) const RENEWALS_MAX: usize = 3;

/// The number of times that an engine has written its file anew since it was opened, because the file was damaged.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Renewals(pub(crate) u64);

#[derive(Debug)]
pub(crate) struct Tail {
    newest: watch::Sender<Newest>,
    kept: Mutex<Kept>,
}

/// The value whose changes wake the watches.
#[derive(Clone, Copy, Debug)]
struct Newest {
    closed: bool,
    renewals: Renewals,
    revision: Revision,
}

#[derive(Debug)]
struct Kept {
    /// Ascending by revision; has every change after `floor` up to the newest.
    events: VecDeque<Event>,
    floor: Revision,
    weight: usize,
}

/// The result of a pull.
pub(crate) enum Pull {
    Events(Vec<Event>),
    Nothing,
    /// The changes right after the cursor are no longer kept; those after this revision are.
    Older(Revision),
}

/// A watch of the tail alone: changes that are no longer kept count as compacted.
pub(crate) struct Cursor {
    after: Revision,
    newest: watch::Receiver<Newest>,
    /// As of the last wake-up.
    renewals: Renewals,
    tail: Arc<Tail>,
}

/// A file that is written anew when a read finds damage in it.
pub(crate) trait Renewing: Sync {
    /// The number of renewals before a read, for [`Renewing::is_renewed`].
    fn renewals(&self) -> Renewals;
    /// Whether a read that failed may be done again, since the file is another one now.
    fn is_renewed(&self, seen: Renewals) -> BoxFuture<'_, bool>;
}

/// The attempts to do one read: it is done again if it fails and the file is another one by then, at most [`RENEWALS_MAX`] times.
pub(crate) struct Attempts<'a, F> {
    file: &'a F,
    n_renewals: usize,
    /// As of before the attempt.
    seen: Renewals,
}

/// Reads changes that the tail no longer has.
pub(crate) trait Older: Renewing + Send + 'static {
    /// Changes after `after`, as whole transactions, at most about `PULL_EVENTS_MAX`; the tail has those after `floor`.
    fn older(&self, after: Revision, floor: Revision) -> Result<Vec<Event>, Error>;
}

/// A watch over the tail and the changes before it.
pub(crate) struct Reader<O> {
    cursor: Cursor,
    older: O,
}

// === impl Tail ===

impl Tail {
    pub(crate) fn new(at: Revision) -> Tail {
        let kept = Kept { events: VecDeque::new(), floor: at, weight: 0 };
        let newest = Newest { closed: false, renewals: Renewals::default(), revision: at };
        Tail { newest: watch::Sender::new(newest), kept: Mutex::new(kept) }
    }

    pub(crate) fn revision(&self) -> Revision {
        self.newest.borrow().revision
    }

    /// Makes durable changes visible, whole transactions in order, and wakes the watches.
    pub(crate) fn publish(&self, events: Vec<Event>) {
        let Some(last) = events.last() else { return };
        let revision = last.revision;
        {
            let mut kept = self.kept.lock();
            kept.weight += events.iter().map(Event::weight).sum::<usize>();
            kept.events.extend(events);
        }
        self.newest.send_modify(|newest| newest.revision = revision);
    }

    /// Drops the oldest changes until at most this many, of at most this weight, are left.
    pub(crate) fn shrink(&self, events_max: usize, weight_max: usize) {
        let mut kept = self.kept.lock();
        while kept.events.len() > events_max || kept.weight > weight_max {
            let Some(oldest) = kept.events.front().map(|event| event.revision) else { break };
            kept.drop_through(oldest);
        }
    }

    /// Drops changes up to and including a revision.
    pub(crate) fn drop_through(&self, revision: Revision) {
        self.kept.lock().drop_through(revision);
    }

    /// Wakes the watches: more keys may be damaged now.
    pub(crate) fn renew(&self, renewals: Renewals) {
        self.newest.send_modify(|newest| newest.renewals = renewals);
    }

    /// Ends the watches once they have handed out everything.
    pub(crate) fn close(&self) {
        self.newest.send_modify(|newest| newest.closed = true);
    }

    fn pull(&self, after: Revision) -> Pull {
        let kept = self.kept.lock();
        if after < kept.floor {
            return Pull::Older(kept.floor);
        }
        let start = kept.events.partition_point(|event| event.revision <= after);
        let mut end = kept.events.len().min(start + PULL_EVENTS_MAX);
        // A transaction is never split, because the cursor is a revision.
        while end < kept.events.len() && kept.events[end].revision == kept.events[end - 1].revision {
            end += 1;
        }
        if start == end { Pull::Nothing } else { Pull::Events(kept.events.range(start..end).cloned().collect()) }
    }
}

impl Kept {
    fn drop_through(&mut self, revision: Revision) {
        while let Some(event) = self.events.pop_front_if(|event| event.revision <= revision) {
            self.weight -= event.weight();
        }
        self.floor = self.floor.max(revision);
    }
}

// === impl Attempts ===

impl<'a, F: Renewing> Attempts<'a, F> {
    /// Must be called before the first attempt.
    pub(crate) fn new(file: &'a F) -> Attempts<'a, F> {
        Attempts { file, n_renewals: 0, seen: file.renewals() }
    }

    /// Whether to read again after an attempt with this outcome.
    pub(crate) async fn is_next(&mut self, failure: Option<&Error>) -> bool {
        let may_renew = self.n_renewals < RENEWALS_MAX && matches!(failure, Some(Error::Read { .. }));
        if !may_renew || !self.file.is_renewed(self.seen).await {
            return false;
        }
        self.n_renewals += 1;
        self.seen = self.file.renewals();
        true
    }
}

// === impl Cursor, Reader ===

impl Cursor {
    pub(crate) fn new(tail: Arc<Tail>, after: Revision) -> Cursor {
        let newest = tail.newest.subscribe();
        let renewals = newest.borrow().renewals;
        Cursor { after, newest, renewals, tail }
    }

    /// Waits for changes. The newest revision is marked as seen before the changes are read, so that one published in
    /// between is not missed.
    async fn next_from(
        &mut self,
        older: impl Fn(Revision, Revision) -> Result<Vec<Event>, Error>,
    ) -> Result<Batch, Error> {
        loop {
            let Newest { closed, renewals, .. } = *self.newest.borrow_and_update();
            let events = match self.tail.pull(self.after) {
                Pull::Events(events) => events,
                Pull::Older(floor) => older(self.after, floor)?,
                Pull::Nothing => Vec::new(),
            };
            if let Some(last) = events.last() {
                self.after = last.revision;
                return Ok(Batch { progress: last.revision, events });
            }
            if renewals != self.renewals {
                self.renewals = renewals;
                return Ok(Batch { events, progress: self.after });
            }
            if closed || self.newest.changed().await.is_err() {
                return Err(Error::Closed);
            }
        }
    }
}

impl Watch for Cursor {
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, Error>> {
        Box::pin(self.next_from(|requested, oldest| Err(Error::Compacted { requested, oldest })))
    }
}

impl<O: Older> Reader<O> {
    pub(crate) fn new(cursor: Cursor, older: O) -> Reader<O> {
        Reader { cursor, older }
    }
}

impl<O: Older> Watch for Reader<O> {
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, Error>> {
        let Reader { cursor, older } = self;
        Box::pin(async move {
            let mut attempts = Attempts::new(older);
            loop {
                let next = cursor.next_from(|after, floor| older.older(after, floor)).await;
                if !attempts.is_next(next.as_ref().err()).await {
                    return next;
                }
            }
        })
    }
}
