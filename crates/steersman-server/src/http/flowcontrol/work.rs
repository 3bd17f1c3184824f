//! The expected work of a request: how many seats of its priority level it takes, and for how long.
//!
//! Follows apiserver's `flowcontrol/request`: a list takes seats by the number of objects that it reads, and a write
//! keeps seats for a moment after its end, while its event goes out to watchers. Everything else takes one seat.

use crate::shared::request::query::Query;
use std::time::Duration;

/// The most seats of a single request.
const SEATS_MAX: u32 = 10;
/// The largest share of a level's seats for a single request.
const SEATS_SHARE_MAX: f64 = 0.15;
/// Objects of a list per seat.
const OBJECTS_PER_SEAT: usize = 100;
/// Watchers of a written object per seat.
const WATCHES_PER_SEAT: usize = 10;
/// The time for which [`WATCHES_PER_SEAT`] watchers keep a seat. Upstream assumes 5 ms; here a delivery costs about 6 us.
const EVENT_DURATION: Duration = Duration::from_micros(100);
/// The assumed duration of a request until the real one is known.
const DURATION_GUESS: Duration = Duration::from_millis(3);

/// The expected work of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WorkEstimate {
    /// Seats while it is carried out. At least one.
    pub(crate) seats: u32,
    /// Seats afterwards, for `final_duration`.
    pub(crate) final_seats: u32,
    pub(crate) final_duration: Duration,
}

/// The properties of a request that determine its work.
pub(crate) enum Kind<'a> {
    /// A list, or the initial events of a watch, of a resource with this number of objects.
    List { query: &'a Query, n_objects: usize },
    /// Any request whose cost does not depend on the number of objects.
    Other,
    /// A write, with the number of watchers that may receive its event.
    Write { n_watchers: usize },
}

impl WorkEstimate {
    /// One seat, and none afterwards.
    pub(crate) const ONE: WorkEstimate = WorkEstimate { seats: 1, final_seats: 0, final_duration: Duration::ZERO };

    /// The work of a request at a level where one request may take up to `seats_max` seats.
    pub(crate) fn estimate(kind: &Kind<'_>, seats_max: u32) -> WorkEstimate {
        match kind {
            Kind::List { query, n_objects } => {
                let seats = objects_read(query, *n_objects).div_ceil(OBJECTS_PER_SEAT);
                WorkEstimate { seats: bounded(seats, seats_max), ..WorkEstimate::ONE }
            }
            Kind::Other => WorkEstimate::ONE,
            Kind::Write { n_watchers } if *n_watchers < WATCHES_PER_SEAT => WorkEstimate::ONE,
            Kind::Write { n_watchers } => {
                let wanted = n_watchers.div_ceil(WATCHES_PER_SEAT);
                let final_seats = bounded(wanted, seats_max);
                // With fewer seats than wanted, each is kept longer, so that the product stays the same.
                let all = EVENT_DURATION.saturating_mul(u32::try_from(wanted).unwrap_or(u32::MAX));
                WorkEstimate { final_seats, final_duration: all / final_seats, ..WorkEstimate::ONE }
            }
        }
    }

    /// Seat-seconds before the request's duration is known.
    pub(super) fn guessed_seconds(&self) -> f64 {
        f64::from(self.seats) * DURATION_GUESS.as_secs_f64() + self.final_seconds()
    }

    /// Seat-seconds of a request with this duration.
    pub(super) fn seconds(&self, took: Duration) -> f64 {
        f64::from(self.seats) * took.as_secs_f64() + self.final_seconds()
    }

    fn final_seconds(&self) -> f64 {
        f64::from(self.final_seats) * self.final_duration.as_secs_f64()
    }
}

/// The seconds that each seat in use has been charged in advance.
pub(super) fn guess_seconds() -> f64 {
    DURATION_GUESS.as_secs_f64()
}

/// The most seats of one request at a level with this many seats.
pub(super) fn seats_max(level_seats: u32) -> u32 {
    // The value is at most ten, so the cast loses nothing.
    ((f64::from(level_seats) * SEATS_SHARE_MAX).ceil() as u32).clamp(1, SEATS_MAX)
}

fn bounded(seats: usize, seats_max: u32) -> u32 {
    u32::try_from(seats).unwrap_or(u32::MAX).clamp(1, seats_max.max(1))
}

/// The number of objects that a list reads. A page ends early, unless a selector keeps it from being filled.
fn objects_read(query: &Query, n_objects: usize) -> usize {
    let selects = ["fieldSelector", "labelSelector"].iter().any(|name| query.non_empty(name).is_some());
    match query.non_empty("limit").and_then(|limit| limit.parse::<usize>().ok()) {
        Some(limit) if limit > 0 && !selects => n_objects.min(limit),
        _ => n_objects,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(query: &str, n_objects: usize, seats_max: u32) -> u32 {
        WorkEstimate::estimate(&Kind::List { query: &Query::parse(query), n_objects }, seats_max).seats
    }

    #[test]
    fn a_list_takes_seats_by_the_objects_that_it_looks_at() {
        assert_eq!([0, 1, 100, 101, 950, 1_000_000].map(|n| list("", n, 10)), [1, 1, 1, 2, 10, 10]);
        assert_eq!(list("limit=150", 100_000, 10), 2);
        assert_eq!(list("limit=150&labelSelector=a%3Db", 100_000, 10), 10);
        assert_eq!(list("limit=0", 100_000, 3), 3);
    }

    #[test]
    fn a_write_keeps_seats_while_its_event_goes_out() {
        let write = |n_watchers, seats_max| WorkEstimate::estimate(&Kind::Write { n_watchers }, seats_max);
        assert_eq!(write(9, 10), WorkEstimate::ONE);
        assert_eq!(write(10, 10), WorkEstimate { final_seats: 1, final_duration: EVENT_DURATION, ..WorkEstimate::ONE });
        // Fewer seats for longer give the same seat-seconds.
        assert_eq!(
            write(1000, 10),
            WorkEstimate { final_seats: 10, final_duration: EVENT_DURATION * 10, ..WorkEstimate::ONE }
        );
        assert_eq!(
            write(1000, 5),
            WorkEstimate { final_seats: 5, final_duration: EVENT_DURATION * 20, ..WorkEstimate::ONE }
        );
    }

    #[test]
    fn no_request_takes_a_large_share_of_a_level() {
        assert_eq!([0, 6, 7, 13, 49, 245].map(seats_max), [1, 1, 2, 2, 8, 10]);
    }
}
