//! One named index: which objects are found under which values.

use std::panic::{AssertUnwindSafe, catch_unwind};

use hashbrown::{HashMap, HashSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::cached::{Cached, Decoder};
use crate::key::ObjectKey;
use crate::selection::CachedResource;

/// Computes the values under which an object is found.
pub(super) enum Function<K> {
    Metadata(Box<Values<ObjectMeta>>),
    /// The namespace, which the key has: nothing to compute, and it never changes.
    Namespace,
    Object(Box<Values<K>>),
}

type Values<T> = dyn Fn(&T) -> Vec<String> + Send + Sync;

pub(super) struct Index<K> {
    function: Function<K>,
    /// Slots by value. No set is empty.
    postings: HashMap<String, HashSet<u32>>,
}

impl<K> Index<K> {
    pub(super) fn new(function: Function<K>) -> Self {
        Self { function, postings: HashMap::new() }
    }

    /// The slots under `value`.
    pub(super) fn slots(&self, value: &str) -> impl Iterator<Item = u32> {
        self.postings.get(value).into_iter().flatten().copied()
    }

    /// Every value that has a slot.
    pub(super) fn used_values(&self) -> impl Iterator<Item = &String> {
        self.postings.keys()
    }

    fn insert(&mut self, value: &str, slot: u32) {
        match self.postings.get_mut(value) {
            Some(slots) => drop(slots.insert(slot)),
            None => drop(self.postings.insert(value.to_owned(), HashSet::from_iter([slot]))),
        }
    }

    fn remove(&mut self, value: &str, slot: u32) {
        if let Some(slots) = self.postings.get_mut(value) {
            slots.remove(&slot);
            if slots.is_empty() {
                self.postings.remove(value);
            }
        }
    }
}

impl<K: CachedResource> Index<K> {
    /// Moves the slot of the object at `key` from the values of `old` to those of `new`. Values that both have are not
    /// touched.
    pub(super) fn update(
        &mut self,
        slot: u32,
        key: &ObjectKey,
        (old, new): (Option<&Cached<K>>, Option<&Cached<K>>),
        decoder: &Decoder<K>,
    ) {
        if matches!(self.function, Function::Namespace) {
            let namespace = key.namespace().unwrap_or_default();
            match (old.is_some(), new.is_some()) {
                (false, true) => self.insert(namespace, slot),
                (true, false) => self.remove(namespace, slot),
                (true, true) | (false, false) => {}
            }
            return;
        }
        let before = old.map(|object| self.values(key, object, decoder)).unwrap_or_default();
        let after = new.map(|object| self.values(key, object, decoder)).unwrap_or_default();
        if before == after {
            return;
        }
        for value in before.iter().filter(|value| !after.contains(value)) {
            self.remove(value, slot);
        }
        for value in after.iter().filter(|value| !before.contains(value)) {
            self.insert(value, slot);
        }
    }

    /// What cannot be decoded has no values: whoever reads it hears of the error.
    fn values(&self, key: &ObjectKey, object: &Cached<K>, decoder: &Decoder<K>) -> Vec<String> {
        // A panic must not take the informer down with it; it has changed nothing of ours.
        let values = catch_unwind(AssertUnwindSafe(|| match &self.function {
            Function::Metadata(function) => object.metadata().map(|metadata| function(&metadata)).unwrap_or_default(),
            Function::Namespace => vec![key.namespace().unwrap_or_default().to_owned()],
            Function::Object(function) => {
                decoder.decode(key, object).map(|object| function(&object)).unwrap_or_default()
            }
        }));
        values.unwrap_or_else(|_| {
            tracing::error!("an index function panicked; the object is not in that index");
            Vec::new()
        })
    }
}
