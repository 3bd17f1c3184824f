//! Memory of tables and slabs that were large once: they keep the room of their largest size.

/// Smaller ones stay as they are.
const SMALL: usize = 1_024;

/// Whether a table should be shrunk to twice its entries. By then most of what it held has been removed, so that the copies cost less than
/// the removals did, and it can grow again before it is copied again.
pub(crate) fn is_sparse(len: usize, capacity: usize) -> bool {
    SMALL < capacity && len < capacity / 8
}

/// Adds a place of a slab that has become free to the list of these. Free places at the end are cut off instead.
pub(crate) fn release<T>(slab: &mut Vec<T>, free: &mut Vec<u32>, place: u32, is_free: impl Fn(&T) -> bool) {
    while slab.last().is_some_and(&is_free) {
        slab.pop();
    }
    if (place as usize) < slab.len() {
        free.push(place);
    } else if is_sparse(slab.len(), slab.capacity()) {
        slab.shrink_to(2 * slab.len());
    }
}

/// Takes a free place off the list; `None` if a new one must be made. Places that were cut off meanwhile are passed over: all of them are
/// off the list before the slab grows.
pub(crate) fn reuse<T>(slab: &[T], free: &mut Vec<u32>) -> Option<u32> {
    while let Some(place) = free.pop() {
        if (place as usize) < slab.len() {
            return Some(place);
        }
    }
    free.shrink_to(SMALL);
    None
}
