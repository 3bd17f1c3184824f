//! One index: the objects by the values of a function.

use std::any::Any;
use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use hashbrown::{Equivalent, HashMap, HashSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::cache::cached::{Cached, Decoder};
use crate::cache::indexer::posting::Posting;
use crate::shared::key::ObjectKey;
use crate::shared::selection::CachedResource;
use crate::shared::sparse::is_sparse;

/// Computes the values under which an object is found.
pub(crate) enum Function<K, V> {
    Metadata(Box<Values<ObjectMeta, V>>),
    Object(Box<Values<K, V>>),
}

type Values<T, V> = dyn Fn(&T) -> Vec<V> + Send + Sync;

/// An index by values of any type, for the cache.
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

/// An index by the values of a function. The postings hold the objects. No posting is empty.
pub(super) struct ByFunction<K, V> {
    function: Function<K, V>,
    postings: HashMap<Arc<V>, Posting<Cached<K>>>,
    /// The values of the objects that are held as bytes, by their slots: computing them again would take a decoding. An
    /// object without values has no entry.
    filed: HashMap<u32, Filed<V>>,
}

/// Above this number of values, they are put into a hash set to be compared.
const MANY_VALUES: usize = 16;

/// The values under which an object is found. Most have one.
enum Filed<V> {
    Many(Box<[Arc<V>]>),
    One(Arc<V>),
}

/// A value to look up among shared ones.
struct Sought<'a, Q: ?Sized>(&'a Q);

/// An index by namespace, which the key has: nothing is computed, and it never changes, so that updates cost nothing.
/// The objects are in their slots. No posting is empty.
#[derive(Default)]
pub(super) struct ByNamespace {
    postings: HashMap<String, Posting<()>>,
}

// === impl ByFunction ===

impl<K, V: Eq + Hash> ByFunction<K, V> {
    pub(super) fn new(function: Function<K, V>) -> Self {
        Self { function, postings: HashMap::new(), filed: HashMap::new() }
    }

    /// The objects under `value` with their slots.
    pub(super) fn objects<Q>(&self, value: &Q) -> &[(u32, Cached<K>)]
    where
        V: Borrow<Q>,
        Q: ?Sized + Eq + Hash,
    {
        self.postings.get(&Sought(value)).map(Posting::members).unwrap_or_default()
    }

    /// Every value under which an object exists.
    pub(super) fn used_values(&self) -> Vec<V>
    where
        V: Clone,
    {
        self.postings.keys().map(|value| V::clone(value)).collect()
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
        let Self { function, postings, filed } = self;
        let after = new.map(|new| function.values(key, new, decoder)).unwrap_or_default();
        {
            // Most objects have one or two values, but one of a user may have a hundred thousand.
            let many: Option<HashSet<&V>> = (MANY_VALUES < after.len()).then(|| after.iter().collect());
            let mut leave = |value: &V| {
                let stays = many.as_ref().map_or_else(|| after.contains(value), |many| many.contains(value));
                if !stays {
                    remove(postings, &Sought(value), slot);
                }
            };
            match (filed.remove(&slot), old) {
                (Some(filed), _) => filed.values().iter().for_each(|value| leave(value)),
                (None, Some(old)) if old.decoded().is_some() => {
                    function.values(key, old, decoder).iter().for_each(leave);
                }
                // An object held as bytes without an entry had no values.
                (None, _) => {}
            }
        }
        if is_sparse(filed.len(), filed.capacity()) {
            filed.shrink_to(2 * filed.len());
        }
        let Some(new) = new else { return };
        let values = after.into_iter().map(|value| set(postings, value, slot, new.clone()));
        match new.decoded() {
            Some(_) => values.for_each(drop),
            None => drop(Filed::of(values.collect()).and_then(|values| filed.insert(slot, values))),
        }
    }
}

// === impl Filed ===

impl<V> Filed<V> {
    fn of(mut values: Vec<Arc<V>>) -> Option<Self> {
        match values.len() {
            0 => None,
            1 => values.pop().map(Self::One),
            _ => Some(Self::Many(values.into())),
        }
    }

    fn values(&self) -> &[Arc<V>] {
        match self {
            Self::Many(values) => values,
            Self::One(value) => std::slice::from_ref(value),
        }
    }
}

// === impl Sought ===

impl<Q: ?Sized + Hash> Hash for Sought<'_, Q> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl<V: Borrow<Q>, Q: ?Sized + Eq> Equivalent<Arc<V>> for Sought<'_, Q> {
    fn equivalent(&self, known: &Arc<V>) -> bool {
        *self.0 == *V::borrow(known)
    }
}

// === impl ByNamespace ===

impl ByNamespace {
    /// The slots of the objects in `namespace`; with the empty string, those of cluster-scoped objects.
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
        // A panic must not end the informer; it has changed nothing in the cache.
        let values = catch_unwind(AssertUnwindSafe(|| match self {
            Self::Metadata(function) => object.with_metadata(|metadata| function(metadata)).unwrap_or_default(),
            Self::Object(function) => {
                decoder.decode_delivered(key, object).map(|object| function(&object)).unwrap_or_default()
            }
        }));
        values.unwrap_or_else(|_| {
            tracing::error!("an index function panicked; the object is not in that index");
            Vec::new()
        })
    }
}

/// Adds `slot` under `value`, and returns the shared value of the index.
fn set<V: Eq + Hash, M>(postings: &mut HashMap<Arc<V>, Posting<M>>, value: V, slot: u32, member: M) -> Arc<V> {
    if let Some((known, posting)) = postings.get_key_value_mut(&Sought(&value)) {
        posting.set(slot, member);
        return Arc::clone(known);
    }
    let value = Arc::new(value);
    postings.entry(Arc::clone(&value)).or_default().set(slot, member);
    value
}

fn remove<V, Q, M>(postings: &mut HashMap<V, Posting<M>>, value: &Q, slot: u32)
where
    V: Eq + Hash,
    Q: ?Sized + Equivalent<V> + Hash,
{
    if let Some(posting) = postings.get_mut(value) {
        posting.remove(slot);
        if posting.members().is_empty() {
            postings.remove(value);
            if is_sparse(postings.len(), postings.capacity()) {
                postings.shrink_to(2 * postings.len());
            }
        }
    }
}
