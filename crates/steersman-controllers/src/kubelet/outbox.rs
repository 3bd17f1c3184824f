//! A queue of requests with a limit of concurrent ones. The others wait in order of arrival.
//!
//! Each kind of work has its own queue, so that ten thousand requests of one kind do not delay the others.

use std::collections::VecDeque;

/// The most concurrent requests of a kind.
pub(crate) const REQUESTS_MAX: usize = 64;

/// The queue of one kind of work. Callers do not add an object that waits already, which bounds it by the number of
/// objects.
#[derive(Debug)]
pub(crate) struct Outbox<T> {
    waiting: VecDeque<T>,
    n_under_way: usize,
}

// === impl Outbox ===

impl<T> Outbox<T> {
    pub(crate) fn push(&mut self, work: T) {
        self.waiting.push_back(work);
    }

    /// Takes the next work, if a request may be sent. The caller must call [`Outbox::begin`] unless the work is
    /// obsolete.
    pub(crate) fn next(&mut self) -> Option<T> {
        if self.n_under_way < REQUESTS_MAX { self.waiting.pop_front() } else { None }
    }

    /// Records that a request was sent.
    pub(crate) fn begin(&mut self) {
        self.n_under_way += 1;
    }

    /// Records that a request was answered.
    pub(crate) fn end(&mut self) {
        self.n_under_way = self.n_under_way.saturating_sub(1);
    }
}

impl<T> Default for Outbox<T> {
    fn default() -> Outbox<T> {
        Outbox { waiting: VecDeque::new(), n_under_way: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_bound_are_under_way_and_the_rest_follow_in_order() {
        let mut outbox = Outbox::default();
        (0..100).for_each(|work| outbox.push(work));
        let send = |outbox: &mut Outbox<i32>| {
            let mut sent = Vec::new();
            while let Some(work) = outbox.next() {
                outbox.begin();
                sent.push(work);
            }
            sent
        };
        assert_eq!(send(&mut outbox), (0..64).collect::<Vec<_>>());
        assert!(send(&mut outbox).is_empty());
        outbox.end();
        assert_eq!(send(&mut outbox), [64]);
    }

    #[test]
    fn what_is_not_sent_takes_no_room() {
        let mut outbox = Outbox::default();
        (0..100).for_each(|work| outbox.push(work));
        assert_eq!(std::iter::from_fn(|| outbox.next()).count(), 100);
    }
}
