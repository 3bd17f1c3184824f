//! The delayed keys: a binary heap of places by due time. Each entry has its position in the heap, so that its time can
//! change and it can be removed.

use tokio::time::Instant;

use crate::control::queue::entries::{Entries, NOWHERE, index_to_place};
use crate::control::queue::priority::Priority;

#[derive(Debug)]
pub(super) struct Delayed {
    heap: Vec<u32>,
}

impl Delayed {
    pub(super) fn new() -> Self {
        Self { heap: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// The key that is due first.
    pub(super) fn first(&self) -> Option<u32> {
        self.heap.first().copied()
    }

    /// The key that can be removed with the least work.
    pub(super) fn last(&self) -> Option<u32> {
        self.heap.last().copied()
    }

    pub(super) fn next_due<T>(&self, entries: &Entries<T>) -> Option<Instant> {
        entries[self.first()?].due
    }

    /// Adds the key at `place`, whose time is set. Returns whether it is due first.
    pub(super) fn push<T>(&mut self, entries: &mut Entries<T>, place: u32) -> bool {
        entries[place].heap_at = index_to_place(self.heap.len());
        self.heap.push(place);
        self.moved_forward(entries, place)
    }

    /// Restores the order after the time of `place` was set or moved forward. Returns whether it is due first.
    pub(super) fn moved_forward<T>(&mut self, entries: &mut Entries<T>, place: u32) -> bool {
        self.sift_up(entries, entries[place].heap_at as usize);
        self.first() == Some(place)
    }

    /// Removes the key at `place`, if it is here. Returns the priority that its add set.
    pub(super) fn remove<T>(&mut self, entries: &mut Entries<T>, place: u32) -> Option<Priority> {
        let entry = &mut entries[place];
        let at = std::mem::replace(&mut entry.heap_at, NOWHERE);
        if at == NOWHERE {
            return None;
        }
        let asked = entry.asked.take();
        self.heap.swap_remove(at as usize);
        if let Some(&moved) = self.heap.get(at as usize) {
            entries[moved].heap_at = at;
            self.sift_up(entries, at as usize);
            self.sift_down(entries, entries[moved].heap_at as usize);
        }
        asked
    }

    fn due_at<T>(&self, entries: &Entries<T>, at: usize) -> Option<Instant> {
        entries[self.heap[at]].due
    }

    fn sift_up<T>(&mut self, entries: &mut Entries<T>, mut at: usize) {
        while at > 0 {
            let parent = (at - 1) / 2;
            if self.due_at(entries, parent) <= self.due_at(entries, at) {
                return;
            }
            self.swap(entries, parent, at);
            at = parent;
        }
    }

    fn sift_down<T>(&mut self, entries: &mut Entries<T>, mut at: usize) {
        loop {
            let children = [2 * at + 1, 2 * at + 2].into_iter().filter(|&child| child < self.heap.len());
            let Some(least) = children.min_by_key(|&child| self.due_at(entries, child)) else { return };
            if self.due_at(entries, at) <= self.due_at(entries, least) {
                return;
            }
            self.swap(entries, at, least);
            at = least;
        }
    }

    fn swap<T>(&mut self, entries: &mut Entries<T>, a: usize, b: usize) {
        self.heap.swap(a, b);
        for at in [a, b] {
            entries[self.heap[at]].heap_at = index_to_place(at);
        }
    }
}
