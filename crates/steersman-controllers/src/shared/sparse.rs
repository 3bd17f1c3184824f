//! Memory of tables that were large once: a hash table keeps the room of its largest size.

use std::hash::{BuildHasher, Hash};

/// Smaller tables stay as they are.
const SMALL: usize = 1_024;

/// A table that can be shrunk.
pub(crate) trait Sparse {
    /// To be called after removals: shrinks a table of which less than an eighth is used. By then most of what it held has been removed, so
    /// that the copies cost less than the removals did.
    fn shrink_if_sparse(&mut self);
}

fn is_sparse(len: usize, capacity: usize) -> bool {
    SMALL < capacity && len < capacity / 8
}

impl<K: Eq + Hash, V, S: BuildHasher> Sparse for hashbrown::HashMap<K, V, S> {
    fn shrink_if_sparse(&mut self) {
        if is_sparse(self.len(), self.capacity()) {
            self.shrink_to(2 * self.len());
        }
    }
}

impl<K: Eq + Hash, V, S: BuildHasher> Sparse for std::collections::HashMap<K, V, S> {
    fn shrink_if_sparse(&mut self) {
        if is_sparse(self.len(), self.capacity()) {
            self.shrink_to(2 * self.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_gives_its_memory_back_when_most_of_it_is_removed() {
        let mut table: hashbrown::HashMap<u32, u32> = (0..100_000).map(|number| (number, number)).collect();
        for number in 10..100_000 {
            table.remove(&number);
            table.shrink_if_sparse();
        }
        assert!(table.capacity() <= SMALL);
        assert_eq!((0..10).filter_map(|number| table.get(&number).copied()).sum::<u32>(), 45);
    }
}
