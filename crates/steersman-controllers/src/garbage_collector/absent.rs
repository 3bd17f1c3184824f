//! Owners that do not exist, so that the server is asked once for many dependents. A uid never comes back: what is absent stays so.

use crate::garbage_collector::identity::Identity;
use hashbrown::HashSet;

/// Identities, of which the ones used least lately are forgotten.
#[derive(Debug)]
pub(super) struct Absent {
    /// Used since the last turn.
    young: HashSet<Identity, std::hash::RandomState>,
    /// Used in the turn before, and not since.
    old: HashSet<Identity, std::hash::RandomState>,
    young_max: usize,
}

impl Absent {
    /// Remembers at least half of `max`, and never more than that.
    pub(super) fn at_most(max: usize) -> Absent {
        Absent { young: HashSet::default(), old: HashSet::default(), young_max: (max / 2).max(1) }
    }

    pub(super) fn insert(&mut self, identity: Identity) {
        if self.young.len() >= self.young_max && !self.young.contains(&identity) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(identity);
    }

    /// Whether it is known to be absent. It is remembered longer then.
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
    use crate::garbage_collector::identity::{Names, Uid};

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
