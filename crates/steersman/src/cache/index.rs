//! The handle of an index of a cache, with the type of its values. Only adding the index returns one, so that no lookup
//! can name an index that does not exist. Its data is in the cache, [`crate::cache::indexer`].

use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::cache::indexer::{Function, Indexer};
use crate::cache::lister::{Lister, LookupError};
use crate::shared::key::ObjectKey;
use crate::shared::selection::CachedResource;

/// Finds the objects of one cache by values of type `V`. Clones share the index.
///
/// [`Informer::add_index`](crate::cache::Informer::add_index) gives one. As with a [`Lister`], every read is
/// [`LookupError::NotSynced`] until the cache is filled for the first time.
///
/// ```no_run
/// # use k8s_openapi::api::core::v1::{ConfigMap, Pod};
/// # use steersman::cache::{Index, Informer};
/// # use steersman::{LookupError, ObjectKey};
/// fn mounted(pod: &Pod) -> Vec<ObjectKey> {
///     let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
///     let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
///     volumes.filter_map(|volume| Some(ObjectKey::namespaced(namespace, &volume.config_map.as_ref()?.name))).collect()
/// }
///
/// # fn find(pods: &Informer<Pod>, config: &ConfigMap) -> Result<(), LookupError> {
/// let by_config: Index<Pod, ObjectKey> = pods.add_index(mounted);
/// let by_node = pods.add_index(|pod| pod.spec.as_ref()?.node_name.clone());
/// let using_it = by_config.get(&ObjectKey::of(config))?;
/// let on_node = by_node.get("node-1")?;
/// # Ok(()) }
/// ```
pub struct Index<K, V> {
    lister: Lister<K>,
    /// The number of the index in the cache, whose values are of type `V`.
    number: usize,
    values: PhantomData<fn(&V) -> V>,
}

// === impl Index ===

impl<K: CachedResource, V: Eq + Hash + Send + Sync + 'static> Index<K, V> {
    /// The objects under `value`, in no order.
    ///
    /// # Errors
    /// [`LookupError::NotSynced`].
    pub fn get<Q>(&self, value: &Q) -> Result<Vec<Arc<K>>, LookupError>
    where
        V: Borrow<Q>,
        Q: ?Sized + Eq + Hash,
    {
        Ok(self.lister.filled()?.indexed::<V, Q>(self.number, value))
    }

    /// The objects under `value` whose metadata passes, in no order. Objects held as bytes are decoded only if they
    /// pass.
    ///
    /// # Errors
    /// [`LookupError::NotSynced`].
    pub fn get_where<Q>(&self, value: &Q, passes: impl Fn(&ObjectMeta) -> bool) -> Result<Vec<Arc<K>>, LookupError>
    where
        V: Borrow<Q>,
        Q: ?Sized + Eq + Hash,
    {
        Ok(self.lister.filled()?.indexed_where::<V, Q>(self.number, value, passes))
    }

    /// The keys of the objects under `value`, in no order. Decodes nothing.
    ///
    /// # Errors
    /// [`LookupError::NotSynced`].
    pub fn keys<Q>(&self, value: &Q) -> Result<Vec<ObjectKey>, LookupError>
    where
        V: Borrow<Q>,
        Q: ?Sized + Eq + Hash,
    {
        Ok(self.lister.filled()?.indexed_keys::<V, Q>(self.number, value))
    }

    /// The number of objects under `value`. Decodes nothing.
    ///
    /// # Errors
    /// [`LookupError::NotSynced`].
    pub fn count<Q>(&self, value: &Q) -> Result<usize, LookupError>
    where
        V: Borrow<Q>,
        Q: ?Sized + Eq + Hash,
    {
        Ok(self.lister.filled()?.indexed_count::<V, Q>(self.number, value))
    }

    /// The values under which objects exist, in no order.
    ///
    /// # Errors
    /// [`LookupError::NotSynced`].
    pub fn values(&self) -> Result<Vec<V>, LookupError>
    where
        V: Clone,
    {
        Ok(self.lister.filled()?.indexed_values(self.number))
    }
}

impl<K, V> Clone for Index<K, V> {
    fn clone(&self) -> Self {
        Self { lister: self.lister.clone(), number: self.number, values: PhantomData }
    }
}

impl<K, V> fmt::Debug for Index<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index").field("values", &std::any::type_name::<V>()).finish_non_exhaustive()
    }
}

// === impl Indexer ===

impl<K: CachedResource> Indexer<K> {
    /// Adds an index and fills it from the present objects, at any time.
    ///
    /// `function` returns the values under which an object is found (a `Vec`, an `Option`, an array), always the same
    /// for the same object. It runs under the write lock, so it must be quick and must not read this cache. If it
    /// panics, the object is not in this index. Where objects are held as bytes, each of their states is decoded for it
    /// when it arrives: prefer [`Indexer::add_metadata_index`] there.
    ///
    /// An index lives as long as the cache. If it is added twice, it is kept twice: share the handle.
    pub fn add_index<V, I>(&self, function: impl Fn(&K) -> I + Send + Sync + 'static) -> Index<K, V>
    where
        V: Eq + Hash + Send + Sync + 'static,
        I: IntoIterator<Item = V>,
    {
        self.handle(Function::Object(Box::new(move |object| function(object).into_iter().collect())))
    }

    /// As [`Indexer::add_index`], by a function of the metadata alone. [`crate::cache::index_by`] has some.
    pub fn add_metadata_index<V, I>(&self, function: impl Fn(&ObjectMeta) -> I + Send + Sync + 'static) -> Index<K, V>
    where
        V: Eq + Hash + Send + Sync + 'static,
        I: IntoIterator<Item = V>,
    {
        self.handle(Function::Metadata(Box::new(move |metadata| function(metadata).into_iter().collect())))
    }

    fn handle<V: Eq + Hash + Send + Sync + 'static>(&self, function: Function<K, V>) -> Index<K, V> {
        Index { number: self.add(function), lister: Lister::new(self.clone()), values: PhantomData }
    }
}
