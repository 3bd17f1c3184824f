//! The places that are called, each with its open connections: bounded in number.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// The maximum number of places with open connections; beyond, the least recently used one is closed.
const PLACES_MAX: usize = 256;

/// The transports of the places that were called last.
pub(in crate::shared) struct Places<P, T> {
    by_place: HashMap<P, Called<T>>,
    /// The number of calls.
    now: u64,
}

struct Called<T> {
    transport: Arc<T>,
    at: u64,
}

impl<P, T> Default for Places<P, T> {
    fn default() -> Places<P, T> {
        Places { by_place: HashMap::new(), now: 0 }
    }
}

impl<P: Clone + Eq + Hash, T> Places<P, T> {
    pub(in crate::shared) fn find(&mut self, place: &P) -> Option<Arc<T>> {
        self.now += 1;
        let called = self.by_place.get_mut(place)?;
        called.at = self.now;
        Some(called.transport.clone())
    }

    /// Adds a transport, unless another call has added one first: then that one is returned.
    pub(in crate::shared) fn insert(&mut self, place: P, transport: Arc<T>) -> Arc<T> {
        if let Some(found) = self.find(&place) {
            return found;
        }
        if self.by_place.len() >= PLACES_MAX
            && let Some(oldest) =
                self.by_place.iter().min_by_key(|(_, called)| called.at).map(|(place, _)| place.clone())
        {
            self.by_place.remove(&oldest);
        }
        self.by_place.insert(place, Called { transport: transport.clone(), at: self.now });
        transport
    }
}
