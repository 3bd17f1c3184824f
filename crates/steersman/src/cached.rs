//! One object as a cache holds it: decoded, or as the bytes the server sent.
//!
//! A decoded object is read for nothing and costs many times its bytes in memory; the bytes cost what they weigh and a
//! decoding for every read that [`recent`] has forgotten. Which of the two an informer holds is chosen with
//! [`CacheMode`]; whoever reads through a lister sees no difference.

mod packed;
mod recent;

use std::borrow::Cow;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;

use crate::cached::recent::Recent;
use crate::delta::DecodeError;
use crate::key::ObjectKey;
use crate::selection::CachedResource;

pub(crate) use crate::cached::packed::{HEADER, Packed};

/// How an informer holds its objects.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum CacheMode {
    /// As bytes: the JSON that the server sent, less what was pruned, decoded when it is read. For many objects of which
    /// few are read at a time.
    ///
    /// Memory is about the size of that JSON and some two hundred bytes for each object. A read decodes (some microseconds for
    /// each kilobyte) unless the object is among the `decoded_max` that are kept decoded. A handler that asks only for
    /// keys or metadata ([`EventHandler::on_event`](crate::cache::EventHandler::on_event)) decodes nothing; an index by a
    /// function of the whole object decodes each state of an object when it comes and when it goes, one by a function of
    /// the metadata only that. What cannot be decoded is found out when it is read or delivered, not when it arrives.
    Compact {
        /// How many objects are kept decoded besides their bytes. 0 keeps none.
        decoded_max: usize,
    },
    /// Decoded when they arrive. For objects that are read often, or whole lists of them.
    Typed,
}

/// One object as a cache holds it. Cheap to clone.
pub struct Cached<K> {
    held: Held<K>,
}

enum Held<K> {
    Decoded(Arc<K>),
    Packed(Packed),
}

/// Turns what a cache holds into what a reader wants, and remembers some of it.
pub(crate) struct Decoder<K> {
    /// `plural.group`, for errors.
    resource: Arc<str>,
    recent: Recent<K>,
}

// === impl CacheMode ===

impl CacheMode {
    /// As bytes, with 256 objects kept decoded.
    pub const COMPACT: Self = Self::Compact { decoded_max: 256 };

    pub(crate) fn decoded_max(self) -> usize {
        match self {
            Self::Compact { decoded_max } => decoded_max,
            Self::Typed => 0,
        }
    }
}

// === impl Cached ===

impl<K> Cached<K> {
    pub(crate) fn packed(packed: Packed) -> Self {
        Self { held: Held::Packed(packed) }
    }

    /// The object, if it need not be decoded.
    pub(crate) fn decoded(&self) -> Option<&Arc<K>> {
        match &self.held {
            Held::Decoded(object) => Some(object),
            Held::Packed(_) => None,
        }
    }

    /// Whether both are the very same object in memory, which they are at a resync.
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
    /// When it is held as bytes and they are no metadata.
    pub fn metadata(&self) -> Result<Cow<'_, ObjectMeta>, serde_json::Error> {
        match &self.held {
            Held::Decoded(object) => Ok(Cow::Borrowed(object.meta())),
            Held::Packed(packed) => serde_json::from_slice(packed.metadata()).map(Cow::Owned),
        }
    }

    /// Whether both can be states of one object: an object that was deleted and made again has another uid.
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
    pub(crate) fn new(resource: &str, decoded_max: usize) -> Self {
        Self { resource: resource.into(), recent: Recent::new(decoded_max) }
    }

    /// `plural.group` of what is decoded.
    pub(crate) fn resource(&self) -> &Arc<str> {
        &self.resource
    }
}

impl<K: CachedResource> Decoder<K> {
    /// The object behind `cached`, which is at `key`.
    pub(crate) fn decode(&self, key: &ObjectKey, cached: &Cached<K>) -> Result<Arc<K>, Arc<DecodeError>> {
        let packed = match &cached.held {
            Held::Decoded(object) => return Ok(Arc::clone(object)),
            Held::Packed(packed) => packed,
        };
        if let Some(known) = self.recent.find(key, packed) {
            return known;
        }
        let decoded = decode::<K>(packed.json()).map(Arc::new).map_err(|source| {
            Arc::new(DecodeError {
                resource: self.resource.to_string(),
                key: Some(key.clone()),
                resource_version: packed.resource_version().to_owned(),
                source,
            })
        });
        self.recent.keep(key, packed, &decoded);
        decoded
    }
}

/// Decodes one object. A decoder of the user's that panics has not decoded: nobody else is to go down with it.
pub(crate) fn decode<K: CachedResource>(json: &[u8]) -> Result<K, serde_json::Error> {
    catch_unwind(AssertUnwindSafe(|| serde_json::from_slice(json)))
        .unwrap_or_else(|_| Err(serde::de::Error::custom("the decoder of this type panicked")))
}

impl<K> fmt::Debug for Decoder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder").field("resource", &self.resource).field("recent", &self.recent).finish()
    }
}
