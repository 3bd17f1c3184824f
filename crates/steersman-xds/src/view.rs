//! All that one proxy should have.

use crate::kind::Kind;
use crate::resource::Resource;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Resources of one type, by name. Clones share the memory.
#[derive(Clone, Debug, Default)]
pub struct Set(Arc<[Arc<Resource>]>);

/// All that one proxy should have. Proxies that should have the same share one.
///
/// Views may share sets, and sets share resources: two of which most is shared compare quickly.
#[derive(Clone, Debug, Default)]
pub struct View {
    sets: [Set; Kind::ALL.len()],
}

// === impl Set ===

impl Set {
    /// The resources by name. Of several with one name the last one counts.
    #[must_use]
    pub fn new(resources: impl IntoIterator<Item = Arc<Resource>>) -> Set {
        let by_name: BTreeMap<_, _> =
            resources.into_iter().map(|resource| (resource.name().clone(), resource)).collect();
        Set(by_name.into_values().collect())
    }

    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Resource>> {
        let place = self.0.binary_search_by(|resource| (**resource.name()).cmp(name)).ok()?;
        self.0.get(place)
    }

    /// The resources, sorted by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<Resource>> {
        self.0.iter()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Calls `differs` with each name whose resource is not the same in `other`.
    pub(crate) fn compare(&self, other: &Set, mut differs: impl FnMut(&Arc<str>)) {
        if Arc::ptr_eq(&self.0, &other.0) {
            return;
        }
        // Most is the same: comparing pointers is a fraction of comparing names.
        let (mut left, mut right) = (&*self.0, &*other.0);
        let n_same = left.iter().zip(right).take_while(|(one, two)| Arc::ptr_eq(one, two)).count();
        (left, right) = (&left[n_same..], &right[n_same..]);
        let n_same = left.iter().rev().zip(right.iter().rev()).take_while(|(one, two)| Arc::ptr_eq(one, two)).count();
        (left, right) = (&left[..left.len() - n_same], &right[..right.len() - n_same]);
        let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
        loop {
            let order = match (left.peek(), right.peek()) {
                (Some(one), Some(two)) => one.name().cmp(two.name()),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (None, None) => return,
            };
            let one = if order.is_le() { left.next() } else { None };
            let two = if order.is_ge() { right.next() } else { None };
            match (one, two) {
                (Some(one), Some(two)) if Arc::ptr_eq(one, two) || one.version() == two.version() => {}
                (Some(one), _) | (None, Some(one)) => differs(one.name()),
                (None, None) => return,
            }
        }
    }
}

impl FromIterator<Arc<Resource>> for Set {
    fn from_iter<I: IntoIterator<Item = Arc<Resource>>>(resources: I) -> Set {
        Set::new(resources)
    }
}

// === impl View ===

impl View {
    #[must_use]
    pub fn new() -> View {
        View::default()
    }

    /// Replaces the resources of a type.
    ///
    /// # Panics
    /// If a resource is of another type.
    #[must_use]
    pub fn with(mut self, kind: Kind, set: Set) -> View {
        assert!(set.iter().all(|resource| resource.kind() == kind), "a set of {kind} has resources of another type");
        self.sets[kind.index()] = set;
        self
    }

    #[must_use]
    pub fn set(&self, kind: Kind) -> &Set {
        &self.sets[kind.index()]
    }

    #[must_use]
    pub fn get(&self, kind: Kind, name: &str) -> Option<&Arc<Resource>> {
        self.set(kind).get(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn set(resources: &[(&str, &'static str)]) -> Set {
        let resource =
            |(name, content): &(&str, &'static str)| Resource::from_bytes(Kind::Cluster, *name, Bytes::from(*content));
        resources.iter().map(|pair| Arc::new(resource(pair))).collect()
    }

    #[test]
    fn comparison_names_what_was_added_changed_and_removed() {
        let mut names = Vec::new();
        let old = set(&[("a", "1"), ("b", "1"), ("d", "1"), ("e", "1")]);
        let new = set(&[("b", "1"), ("c", "1"), ("d", "2"), ("e", "1"), ("f", "1")]);
        old.compare(&new, |name| names.push(name.to_string()));
        assert_eq!(names, ["a", "c", "d", "f"]);
    }

    #[test]
    fn the_last_of_a_name_counts() {
        let set = set(&[("a", "1"), ("b", "1"), ("a", "2")]);
        assert_eq!(set.len(), 2);
        assert_eq!(set.get("a").unwrap().bytes(), "2");
        assert!(set.get("c").is_none());
    }
}
