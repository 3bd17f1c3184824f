//! Field paths and sets of them: the fields that a manager owns, and the fields that a write changed.
//!
//! A [`FieldSet`] is the FieldsV1 of a `managedFields` entry. Paths name struct fields and map keys (`f:`), items of
//! keyed lists (`k:`), items of sets (`v:`) and, in theory, positions in lists (`i:`). A schema says which of these a
//! value has: [`FieldSet::of`] collects them from a value, [`compare`] from two. The semantics are those of
//! `structured-merge-diff`, which kube-apiserver uses; clients see them in `managedFields` and in the conflicts of
//! server-side apply.
//!
//! A path can be a member without members beneath it, and the reverse: `{"f:data": {"f:a": {}}}` owns `data.a` but not
//! `data` itself; with `".": {}` beside `f:a` it owns both.

mod codec;
pub(crate) mod compare;
pub(crate) mod element;
pub(crate) mod go;
pub(crate) mod merge;
pub(crate) mod reconcile;
pub(crate) mod remove;
pub(crate) mod shape;
pub(crate) mod typed;
pub(crate) mod written;

pub use crate::ownership::fields::codec::ParseError;
pub use crate::ownership::fields::compare::{Comparison, compare};
pub use crate::ownership::fields::element::{Element, Literal, Path};

/// A set of field paths, as a tree.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FieldSet {
    /// Sorted. Each entry is a member or has members beneath it.
    entries: Vec<(Element, Entry)>,
}

/// One step of the tree.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Entry {
    /// Whether the path that ends here is in the set.
    member: bool,
    /// The members beneath, which may exist without this entry being a member.
    beneath: FieldSet,
}

/// The number of paths that may still be listed. A path may be as long as its object, so the bytes of the paths are
/// counted too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) n_paths: usize,
    pub(crate) n_bytes: usize,
}

// === impl Room ===

impl Room {
    fn is_limited(&self) -> bool {
        self.n_bytes < usize::MAX
    }

    fn is_empty(&self) -> bool {
        self.n_paths == 0 || self.n_bytes == 0
    }

    fn take(&mut self, n_bytes: usize) {
        self.n_paths = self.n_paths.saturating_sub(1);
        self.n_bytes = self.n_bytes.saturating_sub(n_bytes);
    }
}

// === impl FieldSet ===

impl FieldSet {
    pub const EMPTY: FieldSet = FieldSet { entries: Vec::new() };

    pub fn new() -> FieldSet {
        FieldSet::EMPTY
    }

    /// The set of these paths of field names, such as `&[&["metadata", "name"], &["status"]]`.
    pub fn of_names(paths: &[&[&str]]) -> FieldSet {
        let mut set = FieldSet::new();
        for path in paths {
            let elements: Vec<Element> = path.iter().map(|name| Element::Field((*name).to_owned())).collect();
            set.insert(&elements);
        }
        set
    }

    /// Adds one path, without its parents. The empty path is the whole object, which has no owner: it is not added.
    pub fn insert(&mut self, path: &[Element]) {
        if let Some(entry) = self.entry(path) {
            entry.member = true;
        }
    }

    /// The entry at a path, inserted with the entries above it: the caller makes it a member or gives it members.
    fn entry(&mut self, path: &[Element]) -> Option<&mut Entry> {
        let (first, rest) = path.split_first()?;
        Some(rest.iter().fold(self.entry_of(first), |entry, element| entry.beneath.entry_of(element)))
    }

    fn entry_of(&mut self, element: &Element) -> &mut Entry {
        let place = match self.place(element) {
            Ok(place) => place,
            Err(place) => {
                self.entries.insert(place, (element.clone(), Entry::default()));
                place
            }
        };
        &mut self.entries[place].1
    }

    fn get(&self, element: &Element) -> Option<&Entry> {
        self.place(element).ok().map(|place| &self.entries[place].1)
    }

    fn place(&self, element: &Element) -> Result<usize, usize> {
        self.entries.binary_search_by(|(have, _)| have.cmp(element))
    }

    /// Whether exactly this path is in the set.
    pub fn contains(&self, path: &[Element]) -> bool {
        let Some((last, way)) = path.split_last() else {
            return false;
        };
        let parent = way.iter().try_fold(self, |set, element| set.beneath(element));
        parent.is_some_and(|set| set.has(last))
    }

    /// Whether the path of this one element is in the set.
    pub(crate) fn has(&self, element: &Element) -> bool {
        self.get(element).is_some_and(|entry| entry.member)
    }

    /// The members beneath an element, without it.
    pub(crate) fn beneath(&self, element: &Element) -> Option<&FieldSet> {
        self.get(element).map(|entry| &entry.beneath).filter(|beneath| !beneath.is_empty())
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether every path is in the other set.
    pub fn is_subset(&self, other: &FieldSet) -> bool {
        self.entries.iter().all(|(element, ours)| {
            other
                .get(element)
                .is_some_and(|theirs| (theirs.member || !ours.member) && ours.beneath.is_subset(&theirs.beneath))
        })
    }

    /// The number of paths in the set.
    pub fn len(&self) -> usize {
        self.entries.iter().map(|(_, entry)| usize::from(entry.member) + entry.beneath.len()).sum()
    }

    /// The union of many sets. Sets of similar size are united first, so each element is copied at most a logarithmic
    /// number of times.
    pub(crate) fn union_of(mut sets: Vec<FieldSet>) -> FieldSet {
        while 1 < sets.len() {
            let mut pairs = Vec::with_capacity(sets.len().div_ceil(2));
            let mut rest = sets.into_iter();
            while let Some(mut first) = rest.next() {
                if let Some(second) = rest.next() {
                    first.add(&second);
                }
                pairs.push(first);
            }
            sets = pairs;
        }
        sets.pop().unwrap_or_default()
    }

    /// Every path: at each level first the members, then those beneath them. Conflicts are reported in this order.
    pub fn paths(&self) -> Vec<Path> {
        self.first_paths(&mut Room { n_paths: usize::MAX, n_bytes: usize::MAX })
    }

    /// The first paths in the same order, up to the limits of `room`.
    pub(crate) fn first_paths(&self, room: &mut Room) -> Vec<Path> {
        let mut paths = Vec::new();
        self.collect(&mut Vec::new(), room, &mut paths);
        paths
    }

    fn collect(&self, way: &mut Vec<Element>, room: &mut Room, paths: &mut Vec<Path>) {
        for element in self.entries.iter().filter(|(_, entry)| entry.member).map(|(element, _)| element) {
            if room.is_empty() {
                return;
            }
            way.push(element.clone());
            let path = Path(way.clone());
            if room.is_limited() {
                room.take(path.to_string().len());
            }
            paths.push(path);
            way.pop();
        }
        for (element, entry) in self.entries.iter().filter(|(_, entry)| !entry.beneath.is_empty()) {
            if room.is_empty() {
                return;
            }
            way.push(element.clone());
            entry.beneath.collect(way, room, paths);
            way.pop();
        }
    }

    /// The paths that are in either set.
    #[must_use]
    pub fn union(&self, other: &FieldSet) -> FieldSet {
        let mut united = self.clone();
        united.add(other);
        united
    }

    /// Adds every path of another set.
    pub fn add(&mut self, other: &FieldSet) {
        if other.is_empty() {
            return;
        }
        if self.is_empty() {
            *self = other.clone();
            return;
        }
        let mut united = Vec::with_capacity(self.entries.len().max(other.entries.len()));
        let mut theirs = other.entries.iter().peekable();
        for (element, mut ours) in std::mem::take(&mut self.entries) {
            while let Some(before) = theirs.next_if(|(other, _)| *other < element) {
                united.push(before.clone());
            }
            if let Some((_, theirs)) = theirs.next_if(|(other, _)| *other == element) {
                ours.member |= theirs.member;
                ours.beneath.add(&theirs.beneath);
            }
            united.push((element, ours));
        }
        united.extend(theirs.cloned());
        self.entries = united;
    }

    /// The paths that are in both sets.
    #[must_use]
    pub fn intersection(&self, other: &FieldSet) -> FieldSet {
        self.each(|element, ours| {
            let theirs = other.get(element)?;
            let beneath = ours.beneath.intersection(&theirs.beneath);
            Some(Entry { member: ours.member && theirs.member, beneath })
        })
    }

    /// The paths that are here and not in the other set, path by path: subtracting `a` leaves `a.b`.
    #[must_use]
    pub fn difference(&self, other: &FieldSet) -> FieldSet {
        let mut left = self.clone();
        left.subtract(other);
        left
    }

    /// Removes the paths of another set, path by path.
    pub fn subtract(&mut self, other: &FieldSet) {
        if other.is_empty() {
            return;
        }
        self.entries.retain_mut(|(element, ours)| {
            if let Some(theirs) = other.get(element) {
                ours.member &= !theirs.member;
                ours.beneath.subtract(&theirs.beneath);
            }
            ours.member || !ours.beneath.is_empty()
        });
    }

    /// The paths that are here and neither in the other set nor beneath one of its paths: subtracting `a` removes `a.b`
    /// too.
    #[must_use]
    pub fn recursive_difference(&self, other: &FieldSet) -> FieldSet {
        let mut left = self.clone();
        left.subtract_recursive(other);
        left
    }

    /// Removes the paths of another set and those beneath them.
    pub fn subtract_recursive(&mut self, other: &FieldSet) {
        if other.is_empty() {
            return;
        }
        self.entries.retain_mut(|(element, ours)| match other.get(element) {
            Some(theirs) if theirs.member => false,
            Some(theirs) => {
                ours.beneath.subtract_recursive(&theirs.beneath);
                ours.member || !ours.beneath.is_empty()
            }
            None => true,
        });
    }

    /// The members that have no members beneath them.
    #[must_use]
    pub fn leaves(&self) -> FieldSet {
        self.each(|_, ours| {
            Some(Entry { member: ours.member && ours.beneath.is_empty(), beneath: ours.beneath.leaves() })
        })
    }

    /// The paths for which the predicate is true.
    #[must_use]
    pub fn filter(&self, mut keep: impl FnMut(&Path) -> bool) -> FieldSet {
        let mut kept = FieldSet::new();
        for path in self.paths().iter().filter(|path| keep(path)) {
            kept.insert(&path.0);
        }
        kept
    }

    /// The set of the changed entries, without those that are neither a member nor have members beneath them.
    fn each(&self, mut change: impl FnMut(&Element, &Entry) -> Option<Entry>) -> FieldSet {
        let changed = self.entries.iter().filter_map(|(element, entry)| {
            let entry = change(element, entry)?;
            (entry.member || !entry.beneath.is_empty()).then(|| (element.clone(), entry))
        });
        FieldSet { entries: changed.collect() }
    }
}

#[cfg(test)]
mod tests;
