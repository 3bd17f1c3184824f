//! One named index: which objects are found under which values.

use std::panic::{AssertUnwindSafe, catch_unwind};

use hashbrown::HashMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::cached::{Cached, Decoder};
use crate::indexer::posting::Posting;
use crate::key::ObjectKey;
use crate::selection::CachedResource;

/// Computes the values under which an object is found.
pub(super) enum Function<K> {
    Metadata(Box<Values<ObjectMeta>>),
    Object(Box<Values<K>>),
}

type Values<T> = dyn Fn(&T) -> Vec<String> + Send + Sync;

/// No posting is empty.
pub(super) enum Index<K> {
    /// By what the function gives. The postings hold the objects.
    Function { function: Function<K>, postings: HashMap<String, Posting<Cached<K>>> },
    /// By the namespace, which the key has: nothing to compute, and it never changes, so that updates cost nothing. The
    /// objects are in their slots.
    Namespace { postings: HashMap<String, Posting<()>> },
}

impl<K> Index<K> {
    pub(super) fn by(function: Function<K>) -> Self {
        Self::Function { function, postings: HashMap::new() }
    }

    pub(super) fn by_namespace() -> Self {
        Self::Namespace { postings: HashMap::new() }
    }

    /// The slots under `value`.
    pub(super) fn slots(&self, value: &str) -> Vec<u32> {
        match self {
            Self::Function { .. } => self.objects(value).unwrap_or_default().iter().map(|(slot, _)| *slot).collect(),
            Self::Namespace { postings } => {
                postings.get(value).map(Posting::members).unwrap_or_default().iter().map(|(slot, ())| *slot).collect()
            }
        }
    }

    /// The objects under `value` with their slots; `None` where the index holds none.
    pub(super) fn objects(&self, value: &str) -> Option<&[(u32, Cached<K>)]> {
        match self {
            Self::Function { postings, .. } => Some(postings.get(value).map(Posting::members).unwrap_or_default()),
            Self::Namespace { .. } => None,
        }
    }

    /// Every value that has an object.
    pub(super) fn used_values(&self) -> Vec<String> {
        match self {
            Self::Function { postings, .. } => postings.keys().cloned().collect(),
            Self::Namespace { postings } => postings.keys().cloned().collect(),
        }
    }
}

impl<K: CachedResource> Index<K> {
    /// Moves the object at `key`, which is in `slot`, from the values of `old` to those of `new`.
    pub(super) fn update(
        &mut self,
        slot: u32,
        key: &ObjectKey,
        (old, new): (Option<&Cached<K>>, Option<&Cached<K>>),
        decoder: &Decoder<K>,
    ) {
        match self {
            Self::Function { function, postings } => {
                let values = |object: Option<&Cached<K>>| object.map(|object| function.values(key, object, decoder));
                let (before, after) = (values(old).unwrap_or_default(), values(new).unwrap_or_default());
                for value in before.iter().filter(|value| !after.contains(value)) {
                    remove(postings, value, slot);
                }
                for value in after {
                    if let Some(new) = new {
                        set(postings, &value, slot, new.clone());
                    }
                }
            }
            Self::Namespace { postings } => {
                let namespace = key.namespace().unwrap_or_default();
                match (old.is_some(), new.is_some()) {
                    (false, true) => set(postings, namespace, slot, ()),
                    (true, false) => remove(postings, namespace, slot),
                    (true, true) | (false, false) => {}
                }
            }
        }
    }
}

impl<K: CachedResource> Function<K> {
    /// An object that cannot be decoded has no values; its readers get the error.
    fn values(&self, key: &ObjectKey, object: &Cached<K>, decoder: &Decoder<K>) -> Vec<String> {
        // A panic must not take the informer down with it; it has changed nothing of ours.
        let values = catch_unwind(AssertUnwindSafe(|| match self {
            Self::Metadata(function) => object.metadata().map(|metadata| function(&metadata)).unwrap_or_default(),
            Self::Object(function) => decoder.decode(key, object).map(|object| function(&object)).unwrap_or_default(),
        }));
        values.unwrap_or_else(|_| {
            tracing::error!("an index function panicked; the object is not in that index");
            Vec::new()
        })
    }
}

fn set<M>(postings: &mut HashMap<String, Posting<M>>, value: &str, slot: u32, member: M) {
    match postings.get_mut(value) {
        Some(posting) => posting.set(slot, member),
        None => postings.entry(value.to_owned()).or_default().set(slot, member),
    }
}

fn remove<M>(postings: &mut HashMap<String, Posting<M>>, value: &str, slot: u32) {
    if let Some(posting) = postings.get_mut(value) {
        posting.remove(slot);
        if posting.members().is_empty() {
            postings.remove(value);
        }
    }
}
