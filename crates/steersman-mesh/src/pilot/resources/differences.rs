//! The keys under which two maps differ.

use std::collections::BTreeMap;

/// Calls `differs` with each key whose value is not the same in both.
pub(crate) fn differences<K: Ord, V>(
    old: &BTreeMap<K, V>,
    new: &BTreeMap<K, V>,
    is_same: impl Fn(&V, &V) -> bool,
    mut differs: impl FnMut(&K),
) {
    let (mut left, mut right) = (old.iter().peekable(), new.iter().peekable());
    loop {
        let order = match (left.peek(), right.peek()) {
            (Some(one), Some(two)) => one.0.cmp(two.0),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (None, None) => return,
        };
        let one = if order.is_le() { left.next() } else { None };
        let two = if order.is_ge() { right.next() } else { None };
        match (one, two) {
            (Some(one), Some(two)) if is_same(one.1, two.1) => {}
            (Some((key, _)), _) | (None, Some((key, _))) => differs(key),
            (None, None) => return,
        }
    }
}
