//! Objects sorted by key, with fast counting: the number of objects in a range is known without visiting them.
//!
//! A vector of chunks, each a sorted vector of at most `CHUNK_MAX` objects. A million objects are some thousands of
//! chunks, so a position is found by two binary searches and counted by adding lengths; an insertion moves the pointers
//! of one chunk.

use std::ops::Bound;
use std::sync::Arc;
use steersman_machinery::{Object, ObjectKey};

/// A full chunk is split in two.
const CHUNK_MAX: usize = 512;

/// Objects of one resource; no key twice.
#[derive(Debug, Default)]
pub(crate) struct Sorted {
    /// No chunk is empty; every key of a chunk is before every key of the next.
    chunks: Vec<Vec<Arc<Object>>>,
    length: usize,
}

/// A position between two objects.
#[derive(Clone, Copy, Debug)]
struct Position {
    chunk: usize,
    at: usize,
}

impl Sorted {
    /// Builds it from objects that are sorted by key.
    pub(crate) fn new(objects: Vec<Arc<Object>>) -> Sorted {
        debug_assert!(objects.is_sorted_by(|a, b| a.key < b.key), "in order, no key twice");
        let length = objects.len();
        // Three quarters full, so that the first insertions split no chunk.
        let chunks = objects.chunks(CHUNK_MAX / 4 * 3).map(<[_]>::to_vec).collect();
        Sorted { chunks, length }
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(crate) fn get(&self, key: &ObjectKey) -> Option<&Arc<Object>> {
        self.find(key).ok().map(|place| &self.chunks[place.chunk][place.at])
    }

    /// Inserts an object. Returns the one with the same key, which it replaces.
    pub(crate) fn replace(&mut self, object: Arc<Object>) -> Option<Arc<Object>> {
        let place = match self.find(&object.key) {
            Ok(place) => return Some(std::mem::replace(&mut self.chunks[place.chunk][place.at], object)),
            Err(place) => place,
        };
        self.length += 1;
        let Some(chunk) = self.chunks.get_mut(place.chunk) else {
            self.chunks.push(vec![object]);
            return None;
        };
        chunk.insert(place.at, object);
        if CHUNK_MAX < chunk.len() {
            // Splitting near the end leaves full chunks behind when keys arrive in ascending order.
            let at = if place.at + 1 == chunk.len() { chunk.len() - 1 } else { chunk.len() / 2 };
            let behind = chunk.split_off(at);
            chunk.shrink_to(CHUNK_MAX);
            self.chunks.insert(place.chunk + 1, behind);
        }
        None
    }

    pub(crate) fn take(&mut self, key: &ObjectKey) -> Option<Arc<Object>> {
        let place = self.find(key).ok()?;
        self.length -= 1;
        let chunk = &mut self.chunks[place.chunk];
        let object = chunk.remove(place.at);
        if chunk.is_empty() {
            self.chunks.remove(place.chunk);
        } else if chunk.len() < chunk.capacity() / 4 {
            chunk.shrink_to(chunk.capacity() / 2);
        }
        Some(object)
    }

    /// The objects between two bounds, in order. Crossed bounds have nothing between them.
    pub(crate) fn range(
        &self,
        lower: Bound<&ObjectKey>,
        upper: Bound<&ObjectKey>,
    ) -> impl Iterator<Item = &Arc<Object>> {
        let (start, end) = (self.start(lower), self.end(upper));
        let chunks = self.chunks.get(start.chunk..).unwrap_or_default().iter().enumerate();
        chunks.take_while(move |(n, _)| start.chunk + n <= end.chunk).flat_map(move |(n, chunk)| {
            let from = if n == 0 { start.at } else { 0 };
            let to = if start.chunk + n == end.chunk { end.at } else { chunk.len() };
            chunk.get(from..to).unwrap_or_default()
        })
    }

    /// The number of objects between two bounds.
    pub(crate) fn count(&self, lower: Bound<&ObjectKey>, upper: Bound<&ObjectKey>) -> usize {
        self.rank(self.end(upper)).saturating_sub(self.rank(self.start(lower)))
    }

    fn rank(&self, place: Position) -> usize {
        self.chunks[..place.chunk].iter().map(Vec::len).sum::<usize>() + place.at
    }

    fn start(&self, lower: Bound<&ObjectKey>) -> Position {
        match lower {
            Bound::Unbounded => Position { chunk: 0, at: 0 },
            Bound::Included(key) => self.find(key).unwrap_or_else(|place| place),
            Bound::Excluded(key) => {
                self.find(key).map_or_else(|place| place, |place| Position { at: place.at + 1, ..place })
            }
        }
    }

    fn end(&self, upper: Bound<&ObjectKey>) -> Position {
        match upper {
            Bound::Unbounded => Position { chunk: self.chunks.len(), at: 0 },
            Bound::Excluded(key) => self.find(key).unwrap_or_else(|place| place),
            Bound::Included(key) => {
                self.find(key).map_or_else(|place| place, |place| Position { at: place.at + 1, ..place })
            }
        }
    }

    /// The position of a key, or the one at which it would be inserted.
    fn find(&self, key: &ObjectKey) -> Result<Position, Position> {
        // The last chunk that begins at or before the key.
        let behind = self.chunks.partition_point(|chunk| chunk.first().is_some_and(|first| first.key <= *key));
        let chunk = behind.saturating_sub(1);
        let Some(objects) = self.chunks.get(chunk) else { return Err(Position { chunk: 0, at: 0 }) };
        match objects.binary_search_by(|object| object.key.cmp(key)) {
            Ok(at) => Ok(Position { chunk, at }),
            Err(at) => Err(Position { chunk, at }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use std::collections::BTreeMap;
    use steersman_machinery::Revision;

    fn object(n: u64, revision: u64) -> Arc<Object> {
        let key = ObjectKey::namespaced("a", format!("{n:05}"));
        Arc::new(Object::decode(key, Revision(revision), br#"{"metadata":{}}"#).unwrap())
    }

    #[test]
    fn it_is_a_sorted_map_that_counts() {
        for seed in 0..6 {
            let mut random = StdRng::seed_from_u64(seed);
            let n_keys = [10, 700, 4_000][seed as usize % 3];
            let mut model: BTreeMap<ObjectKey, u64> = BTreeMap::new();
            let mut sorted = Sorted::default();
            if seed % 2 == 0 {
                sorted = Sorted::new((0..n_keys).map(|n| object(n, 1)).collect());
                model = (0..n_keys).map(|n| (object(n, 1).key.clone(), 1)).collect();
            }
            for step in 2..6_000 {
                let object = object(random.random_range(0..n_keys), step);
                // It mostly grows at first, and mostly shrinks later.
                if random.random_bool(if step < 4_000 { 0.3 } else { 0.8 }) {
                    let taken = sorted.take(&object.key).map(|taken| taken.revision.0);
                    assert_eq!(taken, model.remove(&object.key), "seed {seed}");
                } else {
                    let before = sorted.replace(object.clone()).map(|before| before.revision.0);
                    assert_eq!(before, model.insert(object.key.clone(), step), "seed {seed}");
                }
                assert_eq!(sorted.len(), model.len());
                if step % 37 == 0 {
                    let (a, b) = (random.random_range(0..n_keys), random.random_range(0..n_keys));
                    let (low, high) =
                        (self::object(a.min(b), 0).key.clone(), self::object(a.max(b) + 1, 0).key.clone());
                    let bounds = match step % 3 {
                        0 => (Bound::Unbounded, Bound::Excluded(&high)),
                        1 => (Bound::Included(&low), Bound::Unbounded),
                        _ => (Bound::Excluded(&low), Bound::Included(&high)),
                    };
                    let want: Vec<_> = model.range::<ObjectKey, _>(bounds).map(|(_, revision)| *revision).collect();
                    let got: Vec<_> = sorted.range(bounds.0, bounds.1).map(|object| object.revision.0).collect();
                    assert_eq!(got, want, "seed {seed}, step {step}");
                    assert_eq!(sorted.count(bounds.0, bounds.1), want.len(), "seed {seed}, step {step}");
                    let crossed = (Bound::Excluded(&high), Bound::Excluded(&low));
                    assert_eq!(
                        (sorted.range(crossed.0, crossed.1).count(), sorted.count(crossed.0, crossed.1)),
                        (0, 0)
                    );
                }
            }
        }
    }
}
