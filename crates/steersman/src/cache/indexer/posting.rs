//! The objects under one value of an index.

use hashbrown::HashMap;

use crate::shared::sparse::is_sparse;

/// Up to this size, members are searched linearly.
const SEARCHED_MAX: usize = 16;

/// Slots, each with the data that a reader of the index needs, side by side so that a read touches nothing else.
#[derive(Debug)]
pub(super) struct Posting<M> {
    members: Vec<(u32, M)>,
    /// The position of each slot in `members`; empty while they are few.
    places: HashMap<u32, u32>,
}

impl<M> Default for Posting<M> {
    fn default() -> Self {
        Self { members: Vec::new(), places: HashMap::new() }
    }
}

impl<M> Posting<M> {
    pub(super) fn members(&self) -> &[(u32, M)] {
        &self.members
    }

    /// Adds `slot`, or replaces its member.
    pub(super) fn set(&mut self, slot: u32, member: M) {
        if let Some(place) = self.place(slot) {
            self.members[place].1 = member;
            return;
        }
        self.members.push((slot, member));
        let place = self.members.len() - 1;
        if !self.places.is_empty() {
            self.places.insert(slot, index(place));
        } else if self.members.len() > SEARCHED_MAX {
            self.places = self.members.iter().enumerate().map(|(place, (slot, _))| (*slot, index(place))).collect();
        }
    }

    /// Removes `slot`; the last member moves to its position.
    pub(super) fn remove(&mut self, slot: u32) {
        let Some(place) = self.place(slot) else { return };
        self.members.swap_remove(place);
        if self.places.is_empty() {
            return;
        }
        self.places.remove(&slot);
        if let Some((moved, _)) = self.members.get(place) {
            self.places.insert(*moved, index(place));
        }
        if self.members.len() <= SEARCHED_MAX / 2 {
            self.places = HashMap::new();
            self.members.shrink_to_fit();
        } else if is_sparse(self.places.len(), self.places.capacity()) {
            self.places.shrink_to(2 * self.places.len());
            self.members.shrink_to(2 * self.members.len());
        }
    }

    fn place(&self, slot: u32) -> Option<usize> {
        if self.places.is_empty() {
            return self.members.iter().position(|(known, _)| *known == slot);
        }
        self.places.get(&slot).map(|&place| place as usize)
    }
}

fn index(place: usize) -> u32 {
    u32::try_from(place).expect("invariant: there are no more members than slots, whose numbers fit")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::{any, proptest};

    use super::*;

    proptest! {
        #[test]
        fn a_posting_is_a_map(steps in proptest::collection::vec((0..40_u32, any::<Option<u8>>()), 0..200)) {
            let (mut posting, mut model) = (Posting::default(), BTreeMap::new());
            for (slot, member) in steps {
                match member {
                    Some(member) => {
                        posting.set(slot, member);
                        model.insert(slot, member);
                    }
                    None => {
                        posting.remove(slot);
                        model.remove(&slot);
                    }
                }
                assert_eq!(posting.members().len(), model.len());
                assert_eq!(posting.members().iter().copied().collect::<BTreeMap<_, _>>(), model);
            }
        }
    }
}
