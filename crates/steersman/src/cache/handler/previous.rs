//! The previous state of an object that changed.

use std::cell::OnceCell;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;

use crate::cache::cached::Cached;

/// The previous state of an object that changed.
///
/// Where objects are held as bytes ([`CacheMode::Compact`](crate::cache::CacheMode)), it is decoded when it is first
/// read: few handlers read it.
pub struct Previous<'a, K> {
    state: State<'a, K>,
    metadata: OnceCell<Option<ObjectMeta>>,
}

enum State<'a, K> {
    Decoded(&'a Arc<K>),
    Held { object: &'a Cached<K>, decode: &'a dyn Fn() -> Option<Arc<K>>, decoded: OnceCell<Option<Arc<K>>> },
}

impl<'a, K> Previous<'a, K> {
    pub(super) fn held(object: &'a Cached<K>, decode: &'a dyn Fn() -> Option<Arc<K>>) -> Self {
        Self { state: State::Held { object, decode, decoded: OnceCell::new() }, metadata: OnceCell::new() }
    }

    /// The previous state; `None` if it cannot be decoded.
    pub fn object(&self) -> Option<&Arc<K>> {
        match &self.state {
            State::Decoded(object) => Some(object),
            State::Held { decode, decoded, .. } => decoded.get_or_init(decode).as_ref(),
        }
    }

    /// Whether this is the same object as `new`, as at a resync.
    pub(super) fn is(&self, new: &Arc<K>) -> bool {
        matches!(&self.state, State::Decoded(object) if Arc::ptr_eq(object, new))
    }
}

impl<K: Resource> Previous<'_, K> {
    /// The metadata, without decoding the rest; `None` if they cannot be decoded.
    pub fn metadata(&self) -> Option<&ObjectMeta> {
        match &self.state {
            State::Decoded(object) => Some(object.meta()),
            State::Held { object, .. } => {
                self.metadata.get_or_init(|| object.with_metadata(Clone::clone).ok()).as_ref()
            }
        }
    }

    /// `metadata.resourceVersion`, without decoding anything; empty if it is absent.
    pub fn resource_version(&self) -> &str {
        match &self.state {
            State::Decoded(object) => object.meta().resource_version.as_deref().unwrap_or_default(),
            State::Held { object, .. } => object.resource_version(),
        }
    }
}

/// For tests of handlers and predicates.
impl<'a, K> From<&'a Arc<K>> for Previous<'a, K> {
    fn from(object: &'a Arc<K>) -> Self {
        Self { state: State::Decoded(object), metadata: OnceCell::new() }
    }
}

impl<K: fmt::Debug> fmt::Debug for Previous<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Previous").field(&self.object()).finish()
    }
}
