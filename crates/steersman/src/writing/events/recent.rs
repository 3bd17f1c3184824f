//! A table of bounded size.

use std::hash::Hash;

use hashbrown::HashMap;
use tokio::time::Instant;

/// The most entries of a table.
pub(crate) const REMEMBERED_MAX: usize = 4_096;

/// A table that drops its least recently used entry.
#[derive(Debug)]
pub(crate) struct Recent<K, V> {
    pub(crate) entries: HashMap<K, (Instant, V)>,
}

impl<K: Clone + Eq + Hash, V> Recent<K, V> {
    pub(crate) fn new() -> Self {
        Self { entries: HashMap::new() }
    }

    /// The value of `key`, made by `new` if absent, and the time of its last use.
    pub(crate) fn entry(&mut self, now: Instant, key: K, new: impl FnOnce() -> V) -> (Instant, &mut V) {
        if self.entries.len() >= REMEMBERED_MAX && !self.entries.contains_key(&key) {
            self.forget_quarter();
        }
        let (used, value) = self.entries.entry(key).or_insert_with(|| (now, new()));
        (std::mem::replace(used, now), value)
    }

    fn forget_quarter(&mut self) {
        let mut times: Vec<Instant> = self.entries.values().map(|(used, _)| *used).collect();
        let (_, &mut limit, _) = times.select_nth_unstable(REMEMBERED_MAX / 4);
        let mut n_to_forget = REMEMBERED_MAX / 4;
        self.entries.retain(|_, (used, _)| {
            let forget = *used <= limit && n_to_forget > 0;
            n_to_forget -= usize::from(forget);
            !forget
        });
    }
}
