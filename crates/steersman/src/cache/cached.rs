//! One object as a cache holds it: decoded, or as the bytes the server sent.
//!
//! A decoded object is read without cost and takes many times its bytes in memory. Bytes take only their own size, but
//! each read of an object that no reader holds and that [`recent`] has dropped costs a decoding. [`CacheMode`] chooses
//! between the two; readers of a lister see no difference.

mod late;
mod packed;
mod recent;

use std::borrow::Cow;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;

use crate::cache::cached::recent::{Purpose, Recent};
use crate::shared::decode_error::DecodeError;
use crate::shared::key::ObjectKey;
use crate::shared::selection::CachedResource;

pub(crate) use crate::cache::cached::packed::Packed;
pub(crate) use crate::cache::cached::recent::Keep;

/// A type whose values are larger than this, without their heap allocations, is wide: most of its memory is room for
/// fields that are not set. Pods, everything with a template of Pods, Nodes and volumes are wide.
const WIDE_BYTES: usize = 1_024;

/// The fraction of a wide type's objects that is kept decoded.
const WIDE_DECODED_DIVISOR: usize = 8;

/// At least this many objects of a wide type are kept decoded.
const WIDE_DECODED_LEAST: usize = 256;

/// How an informer holds its objects. The default is [`CacheMode::Auto`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum CacheMode {
    /// As [`CacheMode::Compact`] for types whose values are wider than 1 KB without the content of their lists and
    /// texts: Pods, kinds with a template of Pods, Nodes, volumes. As [`CacheMode::Typed`] for all others.
    ///
    /// An eighth of the objects held as bytes is kept decoded, at least 256: the most recently read ones.
    #[default]
    Auto,
    /// As bytes: the JSON that the server sent, without the pruned members, decoded when it is read. For many objects
    /// of which few are read at a time.
    ///
    /// Memory is about the size of that JSON and some two hundred bytes for each object. A read decodes (some
    /// microseconds for each kilobyte) unless a reader still holds the object decoded, or it is among the `decoded_max`
    /// that are kept decoded; then the reader gets the same `Arc`. A handler that asks only for keys or metadata
    /// ([`EventHandler::on_event`](crate::cache::EventHandler::on_event)) decodes nothing; an index by a function of
    /// the whole object decodes each state of an object when it arrives, one by a function of the metadata only the
    /// metadata. A handler that asks for objects decodes each state too, and its objects are not kept. An object that
    /// cannot be decoded is noticed when it is read or delivered, not when it arrives.
    Compact {
        /// The number of objects kept decoded besides their bytes: the most recently read ones. With 0 none are kept,
        /// and readers do not share decoded objects.
        decoded_max: usize,
    },
    /// Decoded when they arrive. For objects that are read often, or whole lists of them.
    Typed,
}

/// The effect of a mode on one type.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Holding {
    Bytes(Keep),
    Decoded,
}

/// One object as a cache holds it. Cheap to clone.
pub struct Cached<K> {
    held: Held<K>,
}

enum Held<K> {
    Decoded(Arc<K>),
    Packed(Packed<K>),
}

/// Decodes cached objects for readers, and keeps some of them decoded.
pub(crate) struct Decoder<K> {
    /// `plural.group`, for errors.
    resource: Arc<str>,
    recent: Recent<K>,
}

// === impl CacheMode ===

impl CacheMode {
    /// As bytes, with 256 objects kept decoded.
    pub const COMPACT: Self = Self::Compact { decoded_max: 256 };

    /// How objects of the type `K` are held in this mode.
    pub(crate) fn holding<K>(self) -> Holding {
        match self {
            Self::Auto if size_of::<K>() > WIDE_BYTES => {
                Holding::Bytes(Keep::Share { divisor: WIDE_DECODED_DIVISOR, least: WIDE_DECODED_LEAST })
            }
            Self::Auto | Self::Typed => Holding::Decoded,
            Self::Compact { decoded_max } => Holding::Bytes(Keep::AtMost(decoded_max)),
        }
    }
}

impl Holding {
    /// The number of objects to keep decoded besides their bytes.
    pub(crate) fn keep(self) -> Keep {
        match self {
            Self::Bytes(keep) => keep,
            Self::Decoded => Keep::AtMost(0),
        }
    }
}

// === impl Cached ===

impl<K> Cached<K> {
    pub(crate) fn packed(packed: Packed<K>) -> Self {
        Self { held: Held::Packed(packed) }
    }

    /// The object, if it is held decoded.
    pub(crate) fn decoded(&self) -> Option<&Arc<K>> {
        match &self.held {
            Held::Decoded(object) => Some(object),
            Held::Packed(_) => None,
        }
    }

    /// Whether [`Cached::known`] is likely to give an object.
    pub(crate) fn is_likely_known(&self) -> bool {
        match &self.held {
            Held::Decoded(_) => true,
            Held::Packed(packed) => packed.was_read(),
        }
    }

    /// The object, if it need not be decoded: it is held decoded, or was decoded lately.
    pub(crate) fn known(&self) -> Option<Arc<K>> {
        match &self.held {
            Held::Decoded(object) => Some(Arc::clone(object)),
            Held::Packed(packed) => packed.known().and_then(Result::ok),
        }
    }

    /// Whether both are the same object in memory, as they are at a resync.
    pub fn ptr_eq(a: &Self, b: &Self) -> bool {
        match (&a.held, &b.held) {
            (Held::Decoded(a), Held::Decoded(b)) => Arc::ptr_eq(a, b),
            (Held::Packed(a), Held::Packed(b)) => Packed::ptr_eq(a, b),
            (Held::Decoded(_), Held::Packed(_)) | (Held::Packed(_), Held::Decoded(_)) => false,
        }
    }
}

impl<K: Resource> Cached<K> {
    /// `metadata.resourceVersion`; empty if there is none.
    pub fn resource_version(&self) -> &str {
        match &self.held {
            Held::Decoded(object) => object.meta().resource_version.as_deref().unwrap_or_default(),
            Held::Packed(packed) => packed.resource_version(),
        }
    }

    /// `metadata.uid`; empty if there is none.
    pub fn uid(&self) -> &str {
        match &self.held {
            Held::Decoded(object) => object.meta().uid.as_deref().unwrap_or_default(),
            Held::Packed(packed) => packed.uid(),
        }
    }

    /// The metadata, without decoding the rest.
    ///
    /// # Errors
    /// When it is held as bytes that are not valid metadata.
    pub fn metadata(&self) -> Result<Cow<'_, ObjectMeta>, serde_json::Error> {
        match &self.held {
            Held::Decoded(object) => Ok(Cow::Borrowed(object.meta())),
            Held::Packed(packed) => serde_json::from_str(packed.metadata()).map(Cow::Owned),
        }
    }

    /// Calls `read` with the metadata: those of the decoded object, where a reader holds it, and otherwise without
    /// decoding the rest.
    ///
    /// # Errors
    /// When it is held as bytes that are not valid metadata.
    pub(crate) fn with_metadata<R>(&self, read: impl FnOnce(&ObjectMeta) -> R) -> Result<R, serde_json::Error> {
        match self.known() {
            Some(object) => Ok(read(object.meta())),
            None => self.metadata().map(|metadata| read(&metadata)),
        }
    }

    /// Whether both can be states of one object: an object that was deleted and created again has another uid.
    pub(crate) fn is_same_object(&self, other: &Self) -> bool {
        let (uid, other) = (self.uid(), other.uid());
        uid == other || uid.is_empty() || other.is_empty()
    }

    /// Whether both are the same version of the same object.
    pub(crate) fn is_same_version(&self, other: &Self) -> bool {
        let version = self.resource_version();
        !version.is_empty() && version == other.resource_version() && self.uid() == other.uid()
    }
}

impl<K> From<Arc<K>> for Cached<K> {
    fn from(object: Arc<K>) -> Self {
        Self { held: Held::Decoded(object) }
    }
}

impl<K> Clone for Cached<K> {
    fn clone(&self) -> Self {
        let held = match &self.held {
            Held::Decoded(object) => Held::Decoded(Arc::clone(object)),
            Held::Packed(packed) => Held::Packed(packed.clone()),
        };
        Self { held }
    }
}

impl<K> fmt::Debug for Cached<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.held {
            Held::Decoded(_) => f.write_str("Cached(decoded)"),
            Held::Packed(packed) => write!(f, "Cached({} bytes)", packed.json().len()),
        }
    }
}

// === impl Decoder ===

impl<K> Decoder<K> {
    pub(crate) fn new(resource: &str, keep: Keep) -> Self {
        Self { resource: resource.into(), recent: Recent::new(keep) }
    }

    /// Sets the number of objects in the cache.
    pub(crate) fn set_objects(&self, n_objects: usize) {
        self.recent.set_objects(n_objects);
    }

    /// Sets the number of handlers that get each object.
    pub(crate) fn set_handlers(&self, n_handlers: usize) {
        self.recent.set_handlers(n_handlers);
    }

    /// `plural.group` of the type.
    pub(crate) fn resource(&self) -> &Arc<str> {
        &self.resource
    }
}

impl<K: CachedResource> Decoder<K> {
    /// Decodes `cached`, whose key is `key`, for a reader.
    pub(crate) fn decode(&self, key: &ObjectKey, cached: &Cached<K>) -> Result<Arc<K>, Arc<DecodeError>> {
        self.decode_for(Purpose::Read, key, cached)
    }

    /// Decodes `cached` for a handler or an index, which gets every object that changes.
    pub(crate) fn decode_delivered(&self, key: &ObjectKey, cached: &Cached<K>) -> Result<Arc<K>, Arc<DecodeError>> {
        self.decode_for(Purpose::Delivery, key, cached)
    }

    fn decode_for(&self, purpose: Purpose, key: &ObjectKey, cached: &Cached<K>) -> Result<Arc<K>, Arc<DecodeError>> {
        let packed = match &cached.held {
            Held::Decoded(object) => return Ok(Arc::clone(object)),
            Held::Packed(packed) => packed,
        };
        if let Some(known) = packed.known() {
            return known;
        }
        let outcome = decode::<K>(packed.json()).map(Arc::new).map_err(|source| {
            Arc::new(DecodeError {
                resource: self.resource.to_string(),
                key: Some(key.clone()),
                resource_version: packed.resource_version().to_owned(),
                source,
            })
        });
        self.recent.keep(packed, outcome, purpose)
    }
}

/// Decodes one object. If that fails, times that are too late for its type are brought forward and it is tried again.
pub(crate) fn decode<K: CachedResource>(json: &str) -> Result<K, serde_json::Error> {
    decode_exactly(json).or_else(|error| match late::brought_forward(json) {
        Some(json) => decode_exactly(&json),
        None => Err(error),
    })
}

/// A decoder of the user's that panics counts as a failure to decode, so that nothing else fails with it.
///
/// Decodes a text, not bytes: otherwise serde_json would check each string in it for UTF-8 again.
fn decode_exactly<K: CachedResource>(json: &str) -> Result<K, serde_json::Error> {
    catch_unwind(AssertUnwindSafe(|| serde_json::from_str(json)))
        .unwrap_or_else(|_| Err(serde::de::Error::custom("the decoder of this type panicked")))
}

impl<K> fmt::Debug for Decoder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder").field("resource", &self.resource).field("recent", &self.recent).finish()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
    use k8s_openapi::api::batch::v1::{CronJob, Job};
    use k8s_openapi::api::core::v1::{ConfigMap, Endpoints, Node, PersistentVolume, Pod, Secret, Service};
    use k8s_openapi::api::discovery::v1::EndpointSlice;
    use kube::core::{DynamicObject, PartialObjectMeta};

    use super::*;

    fn is_decoded<K>() -> bool {
        CacheMode::Auto.holding::<K>() == Holding::Decoded
    }

    #[test]
    fn wide_types_are_held_as_bytes_and_the_rest_decoded() {
        let pods = [is_decoded::<Pod>(), is_decoded::<Job>(), is_decoded::<CronJob>()];
        let templates = [is_decoded::<Deployment>(), is_decoded::<ReplicaSet>()];
        let sets = [is_decoded::<DaemonSet>(), is_decoded::<StatefulSet>()];
        let hosts = [is_decoded::<Node>(), is_decoded::<PersistentVolume>()];
        assert_eq!((pods, templates, sets, hosts), ([false; 3], [false; 2], [false; 2], [false; 2]));
        let small = [is_decoded::<ConfigMap>(), is_decoded::<Secret>(), is_decoded::<Service>()];
        let endpoints = [is_decoded::<Endpoints>(), is_decoded::<EndpointSlice>()];
        let dynamic = [is_decoded::<DynamicObject>(), is_decoded::<PartialObjectMeta<Pod>>()];
        assert_eq!((small, endpoints, dynamic), ([true; 3], [true; 2], [true; 2]));
    }
}
