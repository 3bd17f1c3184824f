//! Data derived from each group of a catalog, such as its documents, and kept while the group stays the same.

use crate::catalog::{Catalog, Group};
use std::sync::Arc;

/// A value derived from every group of one catalog.
#[derive(Debug)]
pub struct PerGroup<T> {
    /// Sorted by name, like the catalog.
    entries: Vec<(Arc<Group>, Arc<T>)>,
}

impl<T> PerGroup<T> {
    /// Derives a value from every group of a catalog.
    pub fn new(catalog: &Catalog, make: impl Fn(&Group) -> T) -> PerGroup<T> {
        PerGroup { entries: catalog.groups().iter().map(|group| (group.clone(), Arc::new(make(group)))).collect() }
    }

    /// Keeps the values of groups that are the same in the next catalog, and derives the others anew, given the
    /// previous value of the group.
    pub fn after(&self, catalog: &Catalog, make: impl Fn(&Group, Option<&T>) -> T) -> PerGroup<T> {
        let entry = |group: &Arc<Group>| match self.entry(&group.name) {
            Some((same, made)) if Arc::ptr_eq(same, group) => (group.clone(), made.clone()),
            before => (group.clone(), Arc::new(make(group, before.map(|(_, made)| &**made)))),
        };
        PerGroup { entries: catalog.groups().iter().map(entry).collect() }
    }

    /// The value of a group.
    pub fn get(&self, group: &str) -> Option<&T> {
        self.entry(group).map(|(_, made)| &**made)
    }

    /// Every group with its value, sorted by the group's name.
    pub fn iter(&self) -> impl Iterator<Item = (&Group, &T)> {
        self.entries.iter().map(|(group, made)| (&**group, &**made))
    }

    fn entry(&self, group: &str) -> Option<&(Arc<Group>, Arc<T>)> {
        let at = self.entries.binary_search_by(|(one, _)| (*one.name).cmp(group)).ok()?;
        Some(&self.entries[at])
    }
}
