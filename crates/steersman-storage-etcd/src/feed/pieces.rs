//! Events of one watch in the pieces in which etcd sends them, put together to whole revisions: a state machine without IO.

use crate::proto::{Event, WatchResponse, answered_at, number_of, revision_of};
use steersman_machinery::Revision;

/// The events of a watch that are not returned yet.
#[derive(Debug)]
pub(crate) struct Pieces {
    /// All events up to this revision were handed out.
    progress: Revision,
    /// Events after `progress`; the last revision among them may be incomplete.
    rest: Vec<Event>,
}

impl Pieces {
    pub(crate) fn new(progress: Revision) -> Pieces {
        Pieces { progress, rest: Vec::new() }
    }

    pub(crate) fn progress(&self) -> Revision {
        self.progress
    }

    /// Where a watch begins that has the rest: at a revision that exists, and not at the one after it. etcd says nothing of
    /// progress to a watch that begins in the future, so that on an idle etcd it would pass for dead. Zero would mean the
    /// newest.
    pub(crate) fn start_revision(&self) -> i64 {
        number_of(self.progress).max(1)
    }

    /// Drops what is incomplete, since the stream that had it broke.
    pub(crate) fn start_over(&mut self) {
        self.rest.clear();
    }

    /// Takes up an answer of the stream that is neither its beginning nor its end. Returns the events that are whole now,
    /// each once and in order; `None` if nothing moved.
    pub(crate) fn take(&mut self, answer: WatchResponse) -> Option<Vec<Event>> {
        if answer.events.is_empty() && !answer.fragment && self.rest.is_empty() {
            // Only an answer without events says that there are none up to its revision. A member that lags behind may
            // say an earlier one than another did.
            let revision = answered_at(answer.header);
            let has_moved = self.progress < revision;
            self.progress = revision.max(self.progress);
            return has_moved.then(Vec::new);
        }
        let progress = self.progress;
        self.rest.extend(answer.events.into_iter().filter(|event| progress < event_revision(event)));
        let last = self.rest.last().map(event_revision)?;
        let n_whole = if answer.fragment {
            self.rest.partition_point(|event| event_revision(event) < last)
        } else {
            self.rest.len()
        };
        let whole: Vec<Event> = self.rest.drain(..n_whole).collect();
        self.progress = event_revision(whole.last()?);
        Some(whole)
    }
}

pub(crate) fn event_revision(event: &Event) -> Revision {
    event.kv.as_ref().map_or(Revision::ZERO, |kv| revision_of(kv.mod_revision))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{KeyValue, ResponseHeader};

    fn answer(header: i64, revisions: &[i64], fragment: bool) -> WatchResponse {
        let event = |revision: &i64| Event {
            kv: Some(KeyValue { mod_revision: *revision, ..KeyValue::default() }),
            ..Event::default()
        };
        WatchResponse {
            header: Some(ResponseHeader { cluster_id: 1, revision: header }),
            events: revisions.iter().map(event).collect(),
            fragment,
            ..WatchResponse::default()
        }
    }

    #[track_caller]
    fn check(pieces: &mut Pieces, answer: WatchResponse, whole: Option<&[u64]>, progress: u64) {
        let taken = pieces.take(answer);
        let taken = taken.map(|events| events.iter().map(|event| event_revision(event).0).collect::<Vec<_>>());
        assert_eq!((taken.as_deref(), pieces.progress().0), (whole, progress));
    }

    #[test]
    fn a_revision_is_handed_out_whole() {
        let mut pieces = Pieces::new(Revision(4));
        check(&mut pieces, answer(9, &[5, 5, 6, 6], true), Some(&[5, 5]), 5);
        check(&mut pieces, answer(9, &[6], true), None, 5);
        check(&mut pieces, answer(9, &[6, 7], false), Some(&[6, 6, 6, 6, 7]), 7);
    }

    #[test]
    fn only_an_answer_without_events_shows_progress() {
        let mut pieces = Pieces::new(Revision(4));
        check(&mut pieces, answer(9, &[5], false), Some(&[5]), 5);
        check(&mut pieces, answer(9, &[], false), Some(&[]), 9);
        check(&mut pieces, answer(8, &[], false), None, 9);
        check(&mut pieces, answer(9, &[10], true), None, 9);
        check(&mut pieces, answer(12, &[], false), Some(&[10]), 10);
    }

    #[test]
    fn a_watch_begins_at_a_revision_that_exists() {
        let mut pieces = Pieces::new(Revision(0));
        assert_eq!(pieces.start_revision(), 1);
        check(&mut pieces, answer(9, &[], false), Some(&[]), 9);
        assert_eq!(pieces.start_revision(), 9);
        check(&mut pieces, answer(9, &[9, 10], false), Some(&[10]), 10);
    }

    #[test]
    fn events_that_come_again_are_dropped() {
        let mut pieces = Pieces::new(Revision(4));
        check(&mut pieces, answer(9, &[5, 6], true), Some(&[5]), 5);
        pieces.start_over();
        check(&mut pieces, answer(9, &[5, 6, 7], false), Some(&[6, 7]), 7);
        check(&mut pieces, answer(9, &[6, 7], false), None, 7);
    }
}
