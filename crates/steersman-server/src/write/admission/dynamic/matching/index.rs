//! Finds the configurations that may match a resource by its plural.

use crate::shared::operation::ResourceAttributes;
use crate::write::admission::action::Action;
use crate::write::admission::dynamic::matching::rule::Operations;
use crate::write::admission::dynamic::matching::{Criteria, Rules};
use hashbrown::HashMap;
use std::sync::Arc;

/// Configurations by the plurals of the resources that their rules name.
///
/// A lookup is one hash and allocates nothing; without any configuration it is a comparison. Equivalent resources of
/// two groups have the same plural, so they are found together.
#[derive(Debug)]
pub(crate) struct Index<T> {
    by_plural: HashMap<Box<str>, Candidates<T>>,
    /// The configurations that match every resource; used where no other configuration names the plural.
    others: Candidates<T>,
}

#[derive(Debug)]
struct Candidates<T> {
    /// The operations that any of the entries matches.
    operations: Operations,
    /// The entries, in the order in which they were given.
    entries: Vec<Arc<T>>,
}

impl<T> Default for Candidates<T> {
    fn default() -> Candidates<T> {
        Candidates { operations: Operations::default(), entries: Vec::new() }
    }
}

impl<T> Default for Index<T> {
    fn default() -> Index<T> {
        Index { by_plural: HashMap::new(), others: Candidates::default() }
    }
}

impl<T> Candidates<T> {
    fn push(&mut self, entry: &Arc<T>, operations: Operations) {
        self.operations = self.operations.with(operations);
        // The rules of one configuration are inserted one after the other.
        if !self.entries.last().is_some_and(|last| Arc::ptr_eq(last, entry)) {
            self.entries.push(entry.clone());
        }
    }
}

impl<T> Clone for Candidates<T> {
    fn clone(&self) -> Candidates<T> {
        Candidates { operations: self.operations, entries: self.entries.clone() }
    }
}

impl<T> Index<T> {
    /// An index of configurations, which keeps their order.
    pub(crate) fn new(entries: Vec<Arc<T>>, criteria: impl Fn(&T) -> &Criteria) -> Index<T> {
        let mut index = Index::default();
        for entry in &entries {
            index.insert(entry, criteria(entry));
        }
        index
    }

    fn insert(&mut self, entry: &Arc<T>, criteria: &Criteria) {
        let Rules::Listed(rules) = &criteria.rules else { return self.insert_for_all(entry, Operations::all()) };
        for rule in rules {
            for named in rule.resources() {
                let Some(plural) = named.plural() else {
                    self.insert_for_all(entry, rule.operations);
                    continue;
                };
                // Earlier configurations that match every resource come first here too.
                let found = self.by_plural.entry(plural.into()).or_insert_with(|| self.others.clone());
                found.push(entry, rule.operations);
            }
        }
    }

    fn insert_for_all(&mut self, entry: &Arc<T>, operations: Operations) {
        self.others.push(entry, operations);
        self.by_plural.values_mut().for_each(|found| found.push(entry, operations));
    }

    /// The configurations that may match such writes, in order.
    pub(crate) fn find(&self, action: Action, attributes: &ResourceAttributes<'_>) -> &[Arc<T>] {
        let found = match self.by_plural.is_empty() {
            true => &self.others,
            false => self.by_plural.get(attributes.resource).unwrap_or(&self.others),
        };
        if found.operations.has(action) { &found.entries } else { &[] }
    }
}
