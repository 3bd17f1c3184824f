//! The keys that are ready to be taken: a list for each priority, linked through the entries.

use crate::control::queue::entries::{Entries, NOWHERE};

/// How often a waiting priority may be passed over before it gets a turn.
const PASSES_MAX: u32 = 16;

/// The lists by priority, lowest first.
#[derive(Debug)]
pub(super) struct Ready {
    lists: [List; 3],
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
    len: usize,
    /// How often this priority was passed over since it last had a turn.
    n_passes: u32,
}

impl Ready {
    pub(super) fn new() -> Self {
        Self { lists: [List { first: NOWHERE, last: NOWHERE, len: 0, n_passes: 0 }; 3], len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// How many keys are ready, by priority, lowest first.
    pub(super) fn depths(&self) -> [usize; 3] {
        self.lists.map(|list| list.len)
    }

    /// Any of the keys.
    pub(super) fn any(&self) -> Option<u32> {
        self.lists.iter().map(|list| list.first).find(|&place| place != NOWHERE)
    }

    /// Appends the key at `place` to the list of its priority.
    pub(super) fn push<T>(&mut self, entries: &mut Entries<T>, place: u32) {
        self.len += 1;
        let list = &mut self.lists[entries[place].priority as usize];
        let last = std::mem::replace(&mut list.last, place);
        list.len += 1;
        if last == NOWHERE {
            list.first = place;
        } else {
            entries[last].next = place;
        }
        let entry = &mut entries[place];
        entry.previous = last;
        entry.next = NOWHERE;
    }

    /// Takes the key at `place` out of the list of its priority.
    pub(super) fn remove<T>(&mut self, entries: &mut Entries<T>, place: u32) {
        self.len -= 1;
        let entry = &entries[place];
        let (previous, next) = (entry.previous, entry.next);
        let list = &mut self.lists[entry.priority as usize];
        list.len -= 1;
        match previous {
            NOWHERE => list.first = next,
            previous => entries[previous].next = next,
        }
        match next {
            NOWHERE => list.last = previous,
            next => entries[next].previous = previous,
        }
    }

    /// Takes the next key to process.
    pub(super) fn pop<T>(&mut self, entries: &mut Entries<T>) -> Option<u32> {
        let place = self.lists[self.next_priority()?].first;
        self.remove(entries, place);
        Some(place)
    }

    /// The priority whose turn it is: the highest, unless a lower one was passed over too often.
    fn next_priority(&mut self) -> Option<usize> {
        let highest = (0..self.lists.len()).rev().find(|&priority| self.lists[priority].first != NOWHERE)?;
        let mut turn = highest;
        for priority in (0..highest).rev() {
            let list = &mut self.lists[priority];
            if list.first == NOWHERE {
                continue;
            }
            list.n_passes += 1;
            if list.n_passes > PASSES_MAX && turn == highest {
                turn = priority;
            }
        }
        self.lists[turn].n_passes = 0;
        Some(turn)
    }
}
