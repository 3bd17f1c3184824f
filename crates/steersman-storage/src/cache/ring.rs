//! The recent history of one resource: its events in order, bounded by number, bytes and age.
//!
//! Positions are absolute: an event keeps its number when older ones are dropped, so a cursor is one integer. A reader whose
//! cursor is before the oldest event has lost history and must list again.
//!
//! The deletion of an object that was lost to damage has a revision at which clients may have listed the object. A watch from that revision
//! gets the deletion for as long as it is here: until a newer event has come. Then the ring no longer takes a watch from that revision, and
//! its client lists again, at a later one.

use crate::cache::event::Event;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use steersman_machinery::Revision;
use tokio::time::Instant;

/// The most events kept per resource, the final size of upstream's watch cache.
pub(crate) const EVENTS_MAX: usize = 100_000;
/// The most bytes kept per resource besides current objects. A resumed watch or the next page of a list that needs more
/// reads it from the engine; a running watch that is this far behind is cut off.
pub(crate) const BYTES_MAX: usize = 16 * 1024 * 1024;
/// The longest that an event is kept. Watches can be resumed, and continue tokens are valid, for this long when the
/// other bounds allow it: longer than the 75 s that clients count on, shorter than the 10 minutes within which a
/// continue token must expire.
pub(crate) const AGE_MAX: Duration = Duration::from_secs(300);

/// The number of newest events whose frames are kept. Watchers further behind encode their own.
const FRAMED_EVENTS_MAX: usize = 1_024;
/// The longest that an event keeps its frames. Watchers that keep up have sent it long before; without this bound the
/// frames of a burst would stay until as many further events come.
const FRAMED_AGE_MAX: Duration = Duration::from_secs(5);

/// The bounds of the history of each resource. Beyond a bound the oldest events are dropped; readers that still need
/// them get [`crate::WatchError::Lagged`] or [`crate::ReadError::Compacted`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// The longest that an event is kept.
    pub age: Duration,
    /// The approximate number of bytes: of the events themselves, and of content that is no longer current.
    pub bytes: usize,
    /// The most events.
    pub events: usize,
}

#[derive(Debug)]
pub(crate) struct Ring {
    bytes: usize,
    /// The absolute position of `slots[0]`.
    first: u64,
    /// Every event after this revision is in the ring.
    floor: Revision,
    /// The absolute position of the oldest event that may have frames.
    framed: u64,
    newest: Revision,
    slots: VecDeque<Slot>,
}

#[derive(Debug)]
struct Slot {
    at: Instant,
    event: Arc<Event>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { age: AGE_MAX, bytes: BYTES_MAX, events: EVENTS_MAX }
    }
}

impl Ring {
    /// An empty ring, whose history begins after `floor`.
    pub(crate) fn new(floor: Revision) -> Ring {
        Ring { bytes: 0, first: 0, floor, framed: 0, newest: floor, slots: VecDeque::new() }
    }

    /// Appends the next event. The caller trims.
    pub(crate) fn push(&mut self, event: Arc<Event>, now: Instant) {
        debug_assert!(self.newest <= event.revision, "events come in order");
        self.newest = event.revision;
        self.bytes += event.history_bytes();
        self.slots.push_back(Slot { at: now, event });
    }

    /// Drops the oldest events, and the frames of old events, until all bounds hold.
    pub(crate) fn trim(&mut self, limits: &Limits, now: Instant) {
        while let Some(oldest) = self.slots.front() {
            let excess = self.slots.len() > limits.events || self.bytes > limits.bytes;
            // A client that lists again may get the revision of the loss, so the loss stays until a newer event has come. There are at
            // most as many losses as there were objects in memory.
            if oldest.event.is_loss() && oldest.event.revision == self.newest {
                break;
            }
            if !excess && now.duration_since(oldest.at) <= limits.age {
                break;
            }
            self.drop_oldest();
        }
        if self.slots.is_empty() && self.slots.capacity() > FRAMED_EVENTS_MAX {
            self.slots.shrink_to_fit();
        }
        self.forget_frames(now);
    }

    fn forget_frames(&mut self, now: Instant) {
        self.framed = self.framed.max(self.first);
        while let Some(slot) = self.at_slot(self.framed) {
            let n_framed = self.end() - self.framed;
            if n_framed <= FRAMED_EVENTS_MAX as u64 && now.duration_since(slot.at) <= FRAMED_AGE_MAX {
                break;
            }
            slot.event.forget_frames();
            self.framed += 1;
        }
    }

    /// Drops history up to and including a revision. Losses at that revision stay for watches that begin after it.
    pub(crate) fn drop_through(&mut self, revision: Revision) {
        while self.slots.front().is_some_and(|slot| !slot.event.is_after(revision)) {
            self.drop_oldest();
        }
        self.floor = self.floor.max(revision);
    }

    /// Drops all history: it begins anew after a revision, to which changes have led that are not known.
    pub(crate) fn restart(&mut self, revision: Revision) {
        while self.slots.front().is_some_and(|slot| slot.event.revision <= revision) {
            self.drop_oldest();
        }
        self.floor = self.floor.max(revision);
        self.newest = self.newest.max(revision);
    }

    fn drop_oldest(&mut self) {
        if let Some(slot) = self.slots.pop_front() {
            self.first += 1;
            self.bytes -= slot.event.history_bytes();
            // A watch that begins at the revision of a loss would not get it any more.
            self.floor = if slot.event.is_loss() { slot.event.revision.next() } else { slot.event.revision };
        }
    }

    /// History after this revision is complete.
    pub(crate) fn floor(&self) -> Revision {
        self.floor
    }

    /// The revision of the newest event, even if it has been dropped.
    pub(crate) fn newest(&self) -> Revision {
        self.newest
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The position of the oldest event in the ring.
    pub(crate) fn start(&self) -> u64 {
        self.first
    }

    /// The position after the newest event.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    /// The position of the first event after a revision.
    pub(crate) fn position_after(&self, revision: Revision) -> u64 {
        self.first + self.slots.partition_point(|slot| slot.event.revision <= revision) as u64
    }

    /// The position of the first event for a watch that begins after a revision.
    pub(crate) fn position_of_watch(&self, after: Revision) -> u64 {
        self.first + self.slots.partition_point(|slot| !slot.event.is_after(after)) as u64
    }

    /// The event at a position; `None` if it is not in the ring.
    pub(crate) fn at(&self, position: u64) -> Option<&Arc<Event>> {
        self.at_slot(position).map(|slot| &slot.event)
    }

    fn at_slot(&self, position: u64) -> Option<&Slot> {
        let at = usize::try_from(position.checked_sub(self.first)?).ok()?;
        self.slots.get(at)
    }

    /// The events from a position on, which must not be before [`Ring::start`].
    pub(crate) fn from(&self, position: u64) -> impl Iterator<Item = &Arc<Event>> {
        let skip = usize::try_from(position.saturating_sub(self.first)).unwrap_or(usize::MAX).min(self.slots.len());
        self.slots.range(skip..).map(|slot| &slot.event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::event::Kind;
    use steersman_machinery::{Object, ObjectKey};

    fn event(revision: u64) -> Arc<Event> {
        let object =
            |at| Arc::new(Object::decode(ObjectKey::cluster("x"), Revision(at), br#"{"metadata":{}}"#).unwrap());
        Arc::new(Event::new(Kind::Modified, object(revision), Some(object(revision - 1))))
    }

    /// The number of events that still have the frame that was made first.
    fn n_framed(ring: &Ring) -> usize {
        let is_kept = |event: &&Arc<Event>| event.frame(1, || "again".into()) == "first";
        ring.from(ring.start()).filter(is_kept).count()
    }

    #[test]
    fn frames_go_when_their_events_are_no_longer_new_even_if_nothing_else_happens() {
        let start = Instant::now();
        let mut ring = Ring::new(Revision(0));
        for revision in 1..=10 {
            let event = event(revision);
            event.frame(1, || "first".into());
            ring.push(event, start + Duration::from_secs(revision));
        }
        let mut n_framed_after = |seconds| {
            ring.trim(&Limits::default(), start + Duration::from_secs(seconds));
            n_framed(&ring)
        };
        assert_eq!((n_framed_after(6), n_framed_after(12), n_framed_after(16)), (10, 4, 0));
        assert_eq!(ring.end() - ring.start(), 10, "the events themselves stay");
    }

    #[test]
    fn only_the_newest_events_keep_frames() {
        let now = Instant::now();
        let mut ring = Ring::new(Revision(0));
        for revision in 1..=FRAMED_EVENTS_MAX as u64 + 7 {
            let event = event(revision);
            event.frame(1, || "first".into());
            ring.push(event, now);
        }
        ring.trim(&Limits::default(), now);
        assert_eq!(n_framed(&ring), FRAMED_EVENTS_MAX);
    }

    #[track_caller]
    fn check(limits: Limits, want_floor: u64) {
        let start = Instant::now();
        let mut ring = Ring::new(Revision(10));
        for revision in 11..=20 {
            ring.push(event(revision), start + Duration::from_secs(revision));
        }
        let end = ring.end();
        ring.trim(&limits, start + Duration::from_secs(20));
        assert_eq!((ring.floor(), ring.end()), (Revision(want_floor), end));
        assert_eq!(ring.position_after(Revision(want_floor)), ring.start());
        let left: Vec<u64> = ring.from(ring.start()).map(|event| event.revision.0).collect();
        assert_eq!(left, (want_floor + 1..=20).collect::<Vec<_>>());
    }

    #[test]
    fn the_oldest_go_first_whatever_the_bound() {
        let limits = Limits::default();
        let weight = event(11).history_bytes();
        check(limits, 10);
        check(Limits { events: 3, ..limits }, 17);
        check(Limits { bytes: 4 * weight, ..limits }, 16);
        check(Limits { age: Duration::from_secs(5), ..limits }, 14);
        check(Limits { events: 0, ..limits }, 20);
    }
}
