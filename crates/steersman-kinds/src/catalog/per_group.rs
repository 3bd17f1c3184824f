//! What is derived from each group of a catalog, such as its documents, and kept while the group stays the same.

use crate::catalog::{Catalog, Group};
use std::sync::Arc;

/// Something made of every group of one catalog.
#[derive(Debug)]
pub struct PerGroup<T> {
    /// In the order of the catalog: sorted by name.
    entries: Vec<(Arc<Group>, Arc<T>)>,
}

impl<T> PerGroup<T> {
    /// Makes it of every group of a catalog.
    pub fn new(catalog: &Catalog, make: impl Fn(&Group) -> T) -> PerGroup<T> {
        PerGroup { entries: catalog.groups().iter().map(|group| (group.clone(), Arc::new(make(group)))).collect() }
    }

    /// Takes over what was made of groups that are the same in the next catalog. Of the others it is made anew, given
    /// what there was for the group before.
    pub fn after(&self, catalog: &Catalog, make: impl Fn(&Group, Option<&T>) -> T) -> PerGroup<T> {
        let entry = |group: &Arc<Group>| match self.entry(&group.name) {
            Some((same, made)) if Arc::ptr_eq(same, group) => (group.clone(), made.clone()),
            before => (group.clone(), Arc::new(make(group, before.map(|(_, made)| &**made)))),
        };
        PerGroup { entries: catalog.groups().iter().map(entry).collect() }
    }

    /// What was made of a group.
    pub fn get(&self, group: &str) -> Option<&T> {
        self.entry(group).map(|(_, made)| &**made)
    }

    /// Every group with what was made of it, sorted by the group's name.
    pub fn iter(&self) -> impl Iterator<Item = (&Group, &T)> {
        self.entries.iter().map(|(group, made)| (&**group, &**made))
    }

    fn entry(&self, group: &str) -> Option<&(Arc<Group>, Arc<T>)> {
        let at = self.entries.binary_search_by(|(one, _)| (*one.name).cmp(group)).ok()?;
        Some(&self.entries[at])
    }
}
