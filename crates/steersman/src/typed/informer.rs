//! The informer of one kind, as generated code returns it, and a lister of one namespace.

use std::fmt;
use std::sync::Arc;

use crate::cache::factory::InformerFactory;
use crate::cache::informer::Informer;
use crate::cache::lister::{Lister, LookupError};
use crate::shared::key::ObjectKey;
use crate::shared::selection::{CachedResource, Scope, Selection};

/// Makes the informer and the lister of one kind, which share one watch with all users of the same factory and
/// selection. Nothing is watched before one of them is made.
pub struct TypedInformer<K: CachedResource> {
    factory: InformerFactory,
    dynamic: K::DynamicType,
    selection: Selection,
}

/// Reads the objects of one namespace from a cache.
pub struct NamespaceLister<K> {
    lister: Lister<K>,
    namespace: String,
}

// === impl TypedInformer ===

impl<K> TypedInformer<K>
where
    K: CachedResource,
    K::DynamicType: Default,
{
    /// The informer of `K` in all namespaces, by `factory`.
    pub fn new(factory: &InformerFactory) -> Self {
        Self { factory: factory.clone(), dynamic: K::DynamicType::default(), selection: Selection::from(Scope::All) }
    }
}

impl<K: CachedResource> TypedInformer<K> {
    /// Replaces the selection, which is all objects in all namespaces.
    pub fn select(mut self, selection: impl Into<Selection>) -> Self {
        self.selection = selection.into();
        self
    }

    /// The informer. Once the factory has been started, it runs.
    pub fn informer(&self) -> Informer<K> {
        self.factory.informer_with(&self.dynamic, self.selection.clone())
    }

    /// Reads from the informer's cache.
    pub fn lister(&self) -> Lister<K> {
        self.informer().lister()
    }
}

impl<K: CachedResource> fmt::Debug for TypedInformer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedInformer").field("selection", &self.selection).finish_non_exhaustive()
    }
}

// === impl NamespaceLister ===

impl<K: CachedResource> NamespaceLister<K> {
    /// The objects in `namespace` that `lister` reads.
    pub fn new(lister: &Lister<K>, namespace: impl Into<String>) -> Self {
        Self { lister: lister.clone(), namespace: namespace.into() }
    }

    /// The object `name`.
    ///
    /// # Errors
    /// As [`Lister::get`].
    pub fn get(&self, name: &str) -> Result<Arc<K>, LookupError> {
        self.lister.get(&ObjectKey::namespaced(&self.namespace, name))
    }

    /// Every object, in no order.
    ///
    /// # Errors
    /// As [`Lister::list_in`].
    pub fn list(&self) -> Result<Vec<Arc<K>>, LookupError> {
        self.lister.list_in(&self.namespace)
    }
}

impl<K> fmt::Debug for NamespaceLister<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamespaceLister").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}
