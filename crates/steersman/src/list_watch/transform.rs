//! A user's function that changes objects before a cache holds them, so that unread fields cost no memory.

use std::any::{Any, TypeId};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use hashbrown::HashMap;
use serde::Serialize;
use serde::de::Error;

use crate::shared::selection::CachedResource;

/// Changes each object of type `K` before it is held.
pub(crate) struct Transform<K> {
    change: Box<dyn Fn(&mut K) + Send + Sync>,
    /// Appends an object as JSON.
    write: fn(&K, &mut Vec<u8>) -> Result<(), serde_json::Error>,
}

/// Transforms by the type of their objects.
#[derive(Clone, Default)]
pub(crate) struct Transforms {
    by_type: Arc<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
}

// === impl Transform ===

impl<K: CachedResource> Transform<K> {
    pub(crate) fn new(change: impl Fn(&mut K) + Send + Sync + 'static) -> Self
    where
        K: Serialize,
    {
        Self { change: Box::new(change), write: |object, json| serde_json::to_writer(json, object) }
    }

    /// The object to hold. Its name, namespace, uid and version are kept, because the cache identifies objects by them.
    pub(crate) fn apply(&self, mut object: K) -> Result<K, serde_json::Error> {
        let meta = object.meta();
        let (name, namespace) = (meta.name.clone(), meta.namespace.clone());
        let (uid, resource_version) = (meta.uid.clone(), meta.resource_version.clone());
        // A panic of the user's function affects only this object.
        catch_unwind(AssertUnwindSafe(|| (self.change)(&mut object)))
            .map_err(|_| serde_json::Error::custom("the transform of this type panicked"))?;
        let meta = object.meta_mut();
        (meta.name, meta.namespace) = (name, namespace);
        (meta.uid, meta.resource_version) = (uid, resource_version);
        Ok(object)
    }

    /// Appends `object` as JSON.
    pub(crate) fn write(&self, object: &K, json: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        (self.write)(object, json)
    }
}

impl<K> fmt::Debug for Transform<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Transform")
    }
}

// === impl Transforms ===

impl Transforms {
    /// Adds a transform, or replaces an earlier one of the same type.
    pub(crate) fn set<K: CachedResource>(&mut self, transform: Transform<K>) {
        Arc::make_mut(&mut self.by_type).insert(TypeId::of::<K>(), Arc::new(transform));
    }

    pub(crate) fn of<K: CachedResource>(&self) -> Option<Arc<Transform<K>>> {
        Arc::clone(self.by_type.get(&TypeId::of::<K>())?).downcast().ok()
    }
}
