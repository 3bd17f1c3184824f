//! Remembers owners that do not exist, so that the server is asked once for many dependents. A uid is never reused, so
//! an absent owner stays absent.

use crate::loops::cleanup::garbage_collector::identity::Identity;
use hashbrown::HashSet;

/// The most bytes of all entries: the owner's identity in an owner reference may be of any length.
const BYTES_MAX: usize = 8 << 20;

/// A set of identities that forgets the least recently used ones.
#[derive(Debug)]
pub(super) struct Absent {
    /// Used since the last rotation.
    young: HashSet<Identity, std::hash::RandomState>,
    /// Used between the last two rotations, and not since.
    old: HashSet<Identity, std::hash::RandomState>,
    young_max: usize,
    /// The bytes of `young`. At most half of [`BYTES_MAX`].
    n_young_bytes: usize,
}

impl Absent {
    /// A set that remembers at most `max` identities, and at least half as many unless they are too long.
    pub(super) fn at_most(max: usize) -> Absent {
        Absent { young: HashSet::default(), old: HashSet::default(), young_max: (max / 2).max(1), n_young_bytes: 0 }
    }

    pub(super) fn insert(&mut self, identity: Identity) {
        let n_bytes = identity.n_bytes();
        // An identity this long is not remembered: the server is asked for each of its dependents.
        if n_bytes > BYTES_MAX / 2 || self.young.contains(&identity) {
            return;
        }
        if self.young.len() >= self.young_max || self.n_young_bytes + n_bytes > BYTES_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
            self.n_young_bytes = 0;
        }
        self.n_young_bytes += n_bytes;
        self.young.insert(identity);
    }

    /// How many bytes are remembered.
    #[cfg(test)]
    pub(super) fn n_bytes(&self) -> usize {
        self.young.iter().chain(&self.old).map(Identity::n_bytes).sum()
    }

    /// Whether the identity is known to be absent. This counts as a use.
    pub(super) fn contains(&mut self, identity: &Identity) -> bool {
        if self.young.contains(identity) {
            return true;
        }
        match self.old.take(identity) {
            Some(known) => {
                self.insert(known);
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loops::cleanup::garbage_collector::identity::{Names, Uid};

    #[test]
    fn what_is_used_is_remembered_and_the_rest_is_bounded() {
        let (mut names, mut absent) = (Names::default(), Absent::at_most(10));
        let mut one = |n: usize| {
            let kind = names.kind("v1", "ConfigMap");
            let text = n.to_string();
            Identity { kind, namespace: "".into(), name: "a".into(), uid: Uid::from(text.as_str()) }
        };
        let used = one(0);
        absent.insert(used.clone());
        for n in 1..1_000 {
            absent.insert(one(n));
            assert!(absent.contains(&used));
            assert!(absent.young.len() + absent.old.len() <= 10);
        }
        assert!(absent.contains(&one(999)) && !absent.contains(&one(1)));
    }
}
