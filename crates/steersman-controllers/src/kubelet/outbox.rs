//! What waits to be sent: so many requests of a kind are under way at a time, and the others wait in the order in which they came.
//!
//! Each kind of work of simulated nodes has one of its own, so that ten thousand of one kind do not hold up the others.

use std::collections::VecDeque;

/// Requests of a kind at a time.
pub(crate) const REQUESTS_MAX: usize = 64;

/// Work of one kind. Who puts something in sees to it that the same does not wait twice, which bounds it by the number of objects.
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

    /// What is to be sent next, if there is room for it. Unless it turns out to be done with, [`Outbox::begin`] follows.
    pub(crate) fn next(&mut self) -> Option<T> {
        if self.n_under_way < REQUESTS_MAX { self.waiting.pop_front() } else { None }
    }

    /// A request is under way.
    pub(crate) fn begin(&mut self) {
        self.n_under_way += 1;
    }

    /// A request has been answered.
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
