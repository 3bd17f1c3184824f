//! The lists that fill a cache, and the version up to which it covers its scope: one of each, or, where several
//! namespaces are watched, one of each for every namespace.

use std::collections::BTreeMap;

use crate::shared::key::ObjectKey;
use crate::shared::selection::Scope;

/// The lists of a cache.
pub(super) struct Lists {
    whole: List,
    /// In place of `whole` where several namespaces are watched; each has its entry from the start.
    by_namespace: BTreeMap<String, List>,
}

/// One of the lists and its predecessors.
#[derive(Default)]
pub(super) struct List {
    /// Counts up. At the end of a list, objects marked with an older number are swept.
    number: u32,
    /// The list that has begun and not ended.
    listing: Option<Listing>,
    /// A list has ended before.
    is_filled: bool,
}

#[derive(Default)]
struct Listing {
    /// The list had an object whose name cannot be read.
    has_nameless: bool,
}

/// The versions up to which a cache covers its scope. An empty version covers nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Covered {
    whole: String,
    /// In place of `whole` where several namespaces are watched; each has its entry from the start.
    by_namespace: BTreeMap<String, String>,
}

// === impl Lists ===

impl Lists {
    pub(super) fn new(scope: &Scope) -> Self {
        let by_namespace = namespaces(scope).map(|name| (name.clone(), List::default())).collect();
        Self { whole: List::default(), by_namespace }
    }

    /// The list that has the objects of `namespace`.
    pub(super) fn of(&self, namespace: Option<&str>) -> &List {
        namespace.and_then(|namespace| self.by_namespace.get(namespace)).unwrap_or(&self.whole)
    }

    pub(super) fn of_mut(&mut self, namespace: Option<&str>) -> &mut List {
        namespace.and_then(|namespace| self.by_namespace.get_mut(namespace)).unwrap_or(&mut self.whole)
    }

    /// The mark for an object that is listed or changed now.
    pub(super) fn mark(&self, key: &ObjectKey) -> u32 {
        self.of(key.namespace()).number
    }

    /// Whether each list has ended once.
    pub(super) fn is_filled(&self) -> bool {
        match self.by_namespace.is_empty() {
            true => self.whole.is_filled,
            false => self.by_namespace.values().all(|list| list.is_filled),
        }
    }

    /// Records an object whose name cannot be read: it may be in any namespace.
    pub(super) fn note_nameless(&mut self) {
        for list in std::iter::once(&mut self.whole).chain(self.by_namespace.values_mut()) {
            if let Some(listing) = &mut list.listing {
                listing.has_nameless = true;
            }
        }
    }
}

// === impl List ===

impl List {
    pub(super) fn is_listing(&self) -> bool {
        self.listing.is_some()
    }

    pub(super) fn begin(&mut self) {
        self.number = self.number.wrapping_add(1);
        self.listing = Some(Listing::default());
    }

    /// Ends the list. Returns whether objects that it did not contain are gone: if a name could not be read, that
    /// object might be any of them, and the next list tries again.
    pub(super) fn end(&mut self) -> bool {
        self.is_filled = true;
        self.listing.take().is_some_and(|listing| !listing.has_nameless)
    }
}

// === impl Covered ===

impl Covered {
    /// Covers nothing of `scope`.
    pub(super) fn nothing(scope: &Scope) -> Self {
        let by_namespace = namespaces(scope).map(|name| (name.clone(), String::new())).collect();
        Self { whole: String::new(), by_namespace }
    }

    /// The version up to which `namespace` is covered.
    pub(crate) fn of(&self, namespace: Option<&str>) -> &str {
        namespace.and_then(|namespace| self.by_namespace.get(namespace)).unwrap_or(&self.whole)
    }

    /// The version up to which everything is covered. With several namespaces, the lowest of their versions, which must
    /// be numbers.
    pub(crate) fn all(&self) -> String {
        if self.by_namespace.is_empty() {
            return self.whole.clone();
        }
        let numbers: Option<Vec<u64>> = self.by_namespace.values().map(|version| version.parse().ok()).collect();
        numbers.and_then(|numbers| numbers.into_iter().min()).map(|least| least.to_string()).unwrap_or_default()
    }

    /// Sets the version up to which `namespace` is covered.
    pub(super) fn set(&mut self, namespace: Option<&str>, version: &str) {
        let place = namespace.and_then(|namespace| self.by_namespace.get_mut(namespace)).unwrap_or(&mut self.whole);
        version.clone_into(place);
    }

    /// Takes over the versions that `news` has.
    pub(super) fn advance(&mut self, news: Self) {
        if !news.whole.is_empty() {
            self.whole = news.whole;
        }
        for (namespace, version) in news.by_namespace {
            if !version.is_empty() {
                self.by_namespace.insert(namespace, version);
            }
        }
    }
}

/// The namespaces of `scope`, if it has several.
fn namespaces(scope: &Scope) -> impl Iterator<Item = &String> {
    let several = match scope {
        Scope::All | Scope::Namespace(_) => None,
        Scope::Namespaces(names) => Some(names),
    };
    several.into_iter().flatten()
}
