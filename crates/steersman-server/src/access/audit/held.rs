//! The memory of bodies that are kept for events whose requests have not ended: answers that clients read slowly, above all.
//!
//! Bodies that a sink has taken are bounded by the sink.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most bytes that are kept. A body that finds no room is left out of its event.
const BYTES_MAX: usize = 64 << 20;

/// The bytes that all requests keep.
#[derive(Clone, Debug, Default)]
pub(super) struct Room(Arc<AtomicUsize>);

/// The bytes that one request keeps. Dropping it releases them.
#[derive(Debug)]
pub(super) struct Held {
    room: Room,
    bytes: usize,
}

impl Room {
    /// A count for a request that keeps nothing yet.
    pub(super) fn held(&self) -> Held {
        Held { room: self.clone(), bytes: 0 }
    }
}

impl Held {
    /// Keeps so many bytes more. False if there is no room for them.
    #[must_use]
    pub(super) fn add(&mut self, bytes: usize) -> bool {
        let before = self.room.0.fetch_add(bytes, Ordering::Relaxed);
        let has_room = before.saturating_add(bytes) <= BYTES_MAX;
        if has_room {
            self.bytes += bytes;
        } else {
            self.room.0.fetch_sub(bytes, Ordering::Relaxed);
        }
        has_room
    }

    /// Keeps so many bytes less.
    pub(super) fn remove(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.room.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.remove(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_requests_keep_is_bounded_and_given_back() {
        let room = Room::default();
        let (mut one, mut other) = (room.held(), room.held());
        assert!(one.add(BYTES_MAX - 10) && other.add(10) && !other.add(1));
        one.remove(1);
        assert!(other.add(1) && !other.add(1));
        drop(one);
        assert!(other.add(BYTES_MAX - 11) && !other.add(1));
        drop(other);
        assert_eq!(room.0.load(Ordering::Relaxed), 0);
    }
}
