//! One index: which objects are found under which values.

use std::any::Any;
use std::borrow::Borrow;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};

use hashbrown::HashMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::cached::{Cached, Decoder};
use crate::indexer::posting::Posting;
use crate::key::ObjectKey;
use crate::selection::CachedResource;

/// Computes the values under which an object is found.
pub(crate) enum Function<K, V> {
    Metadata(Box<Values<ObjectMeta, V>>),
    Object(Box<Values<K, V>>),
}

type Values<T, V> = dyn Fn(&T) -> Vec<V> + Send + Sync;

/// An index by values of any type, as the cache sees it that keeps it.
pub(super) trait AnyIndex<K>: Any + Send + Sync {
    /// Moves the object at `key`, which is in `slot`, from the values of its old state to those of its new one.
    fn update(
        &mut self,
        slot: u32,
        key: &ObjectKey,
        states: (Option<&Cached<K>>, Option<&Cached<K>>),
        decoder: &Decoder<K>,
    );
}

/// An index by what a function gives. The postings hold the objects. No posting is empty.
pub(super) struct ByFunction<K, V> {
    function: Function<K, V>,
    postings: HashMap<V, Posting<Cached<K>>>,
}

/// By the namespace, which the key has: nothing to compute, and it never changes, so that updates cost nothing. The objects are
/// in their slots. No posting is empty.
#[derive(Default)]
pub(super) struct ByNamespace {
    postings: HashMap<String, Posting<()>>,
}

// === impl ByFunction ===

impl<K, V: Eq + Hash> ByFunction<K, V> {
    pub(super) fn new(function: Function<K, V>) -> Self {
        Self { function, postings: HashMap::new() }
    }

    /// The objects under `value` with their slots.
    pub(super) fn objects<Q>(&self, value: &Q) -> &[(u32, Cached<K>)]
    where
        V: Borrow<Q>,
        Q: ?Sized + Eq + Hash,
    {
        self.postings.get(value).map(Posting::members).unwrap_or_default()
    }

    /// Every value that has an object.
    pub(super) fn used_values(&self) -> Vec<V>
    where
        V: Clone,
    {
        self.postings.keys().cloned().collect()
    }
}

impl<K: CachedResource, V: Eq + Hash + Send + Sync + 'static> AnyIndex<K> for ByFunction<K, V> {
    fn update(
        &mut self,
        slot: u32,
        key: &ObjectKey,
        (old, new): (Option<&Cached<K>>, Option<&Cached<K>>),
        decoder: &Decoder<K>,
    ) {
        let Self { function, postings } = self;
        let values = |object: Option<&Cached<K>>| object.map(|object| function.values(key, object, decoder));
        let (before, after) = (values(old).unwrap_or_default(), values(new).unwrap_or_default());
        for value in before.iter().filter(|value| !after.contains(value)) {
            remove(postings, value, slot);
        }
        for value in after {
            if let Some(new) = new {
                postings.entry(value).or_default().set(slot, new.clone());
            }
        }
    }
}

// === impl ByNamespace ===

impl ByNamespace {
    /// The slots of the objects in `namespace`; of those that are in none, with the empty string.
    pub(super) fn slots(&self, namespace: &str) -> &[(u32, ())] {
        self.postings.get(namespace).map(Posting::members).unwrap_or_default()
    }

    pub(super) fn insert(&mut self, slot: u32, key: &ObjectKey) {
        let namespace = key.namespace().unwrap_or_default();
        match self.postings.get_mut(namespace) {
            Some(posting) => posting.set(slot, ()),
            None => self.postings.entry(namespace.to_owned()).or_default().set(slot, ()),
        }
    }

    pub(super) fn remove(&mut self, slot: u32, key: &ObjectKey) {
        remove(&mut self.postings, key.namespace().unwrap_or_default(), slot);
    }
}

// === impl Function ===

impl<K: CachedResource, V> Function<K, V> {
    /// An object that cannot be decoded has no values; its readers get the error.
    fn values(&self, key: &ObjectKey, object: &Cached<K>, decoder: &Decoder<K>) -> Vec<V> {
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

fn remove<V, Q, M>(postings: &mut HashMap<V, Posting<M>>, value: &Q, slot: u32)
where
    V: Borrow<Q> + Eq + Hash,
    Q: ?Sized + Eq + Hash,
{
    if let Some(posting) = postings.get_mut(value) {
        posting.remove(slot);
        if posting.members().is_empty() {
            postings.remove(value);
        }
    }
}
