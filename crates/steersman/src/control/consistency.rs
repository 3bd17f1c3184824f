//! Keeps a reconciler that has written from deciding again on a cache that does not have its write yet.
//!
//! [`ConsistencyStore`] remembers, per key of the controller, what its reconciles wrote and deleted, and says whether the
//! caches have got there. Nobody waits: the key comes back later, the worker goes on with others. That is what a reconciler
//! wants. After Kubernetes' `pkg/controller/util/consistency`, and in place of its expectations: where the answer to a
//! write was lost, the key is held back for a time. Where a cache does not get there for minutes, its watch is broken off and its
//! objects are listed anew.
//!
//! Code outside a reconciler that needs one write in the cache before it goes on waits for it where it writes:
//! [`Lister::wait_for`](crate::Lister::wait_for).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use kube::Resource;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::cache::lister::Lister;
use crate::control::reconcile::ReconcileError;
use crate::shared::clock;
use crate::shared::key::ObjectKey;
use crate::shared::selection::{CachedResource, resource_name};

/// A key that has waited this long is logged, once: the watch of a cache may stand still. The reflector gives a silent
/// watch up after [`ReflectorOptions::idle_timeout`](crate::list_watch::reflector::ReflectorOptions::idle_timeout).
const REPORTED_AFTER: Duration = Duration::from_secs(60);

/// After this long the cache that a key waits for is listed anew, and after as long again if that did not help: one list of a cache,
/// however many keys wait for it. Kubernetes' expectations expire after the same time.
const RELISTED_AFTER: Duration = Duration::from_secs(5 * 60);

/// Says whether caches have seen what a reconciler wrote and deleted. Clones are the same store.
///
/// ```
/// # use k8s_openapi::api::core::v1::Pod;
/// # use steersman::consistency::{ConsistencyStore, StaleCache};
/// # use steersman::{Action, ObjectKey, ReconcileError};
/// struct Context {
///     // ConsistencyStore::new().covers(&pods.lister())
///     written: ConsistencyStore,
/// #   client: kube::Client,
/// }
/// # #[derive(Debug, thiserror::Error)]
/// # enum Error { #[error("stale")] Stale(#[from] StaleCache), #[error("kube")] Kube(#[from] kube::Error) }
/// # impl ReconcileError for Error {}
/// # async fn create_pod(_: &kube::Client, _: &ObjectKey) -> Result<Pod, kube::Error> { Ok(Pod::default()) }
///
/// async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, Error> {
///     cx.written.ensure_ready(&key)?;
///     let pod = create_pod(&cx.client, &key).await?;
///     cx.written.wrote_at(&key, &pod);
///     Ok(Action::AwaitChange)
/// }
/// ```
///
/// Bounded by the keys that wrote and were not checked since: for each, the newest write of each resource in each
/// namespace, and its deletions until the caches have them.
#[derive(Clone, Default)]
pub struct ConsistencyStore {
    shared: Arc<Shared>,
}

/// A cache does not have a write of a reconciler yet. As the error of a reconciler, it makes the key run again soon.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StaleCache {
    /// A deletion that the cache does not have.
    #[error("the cache of {resource} still shows {key:?}, which was deleted")]
    Deletion {
        /// `plural.group` of the deleted object.
        resource: String,
        /// The key of the deleted object.
        key: ObjectKey,
        /// How long the key of the reconciler has been waiting.
        waited: Duration,
    },
    /// A request without an answer, which may or may not have been done.
    #[error("the answer to a write was lost, and what it did may not be in the caches for another {left:?}")]
    Unanswered {
        /// How long the key is still held back.
        left: Duration,
        /// How long the key of the reconciler has been waiting.
        waited: Duration,
    },
    /// A write that the cache does not have.
    #[error("the cache of {resource} has not seen version {version} yet, in which {key:?} was written")]
    Write {
        /// `plural.group` of the written object.
        resource: String,
        /// The key of the written object.
        key: ObjectKey,
        /// The resource version of the write.
        version: String,
        /// How long the key of the reconciler has been waiting.
        waited: Duration,
    },
}

#[derive(Default)]
struct Shared {
    /// The caches by resource.
    caches: Mutex<HashMap<String, Arc<dyn Cache>>>,
    /// By the key whose reconciles wrote.
    done: Mutex<HashMap<ObjectKey, Done>>,
}

/// Answers, for a cache of any type, whether it has a write.
trait Cache: Send + Sync {
    /// Whether the cache has this version of an object, or a newer one. Also true for an object in a namespace that the
    /// cache does not watch.
    fn has_seen(&self, key: &ObjectKey, version: &str) -> bool;
    /// Whether the object is gone from the cache, or has a `deletionTimestamp` there.
    fn has_seen_deletion(&self, key: &ObjectKey, uid: &str) -> bool;
    /// Breaks off its watch and lists anew, unless it was asked to within `pause`.
    fn relist(&self, pause: Duration);
}

/// The writes of the reconciles of one key that were not checked since.
#[derive(Default)]
struct Done {
    /// The newest write of each resource in each namespace, since a cache of several namespaces has a watch for each.
    written: HashMap<ResourceScope, Written>,
    deleted: Vec<Deleted>,
    /// Until when a request without an answer holds the key back.
    unanswered_until: Option<Instant>,
    /// When a check first found a write missing.
    waiting_since: Option<Instant>,
    /// The long wait has been logged.
    is_reported: bool,
}

/// The resource and namespace of a write.
#[derive(Clone, Eq, Hash, PartialEq)]
struct ResourceScope {
    resource: String,
    /// Empty for cluster-scoped objects.
    namespace: String,
}

struct Written {
    key: ObjectKey,
    version: String,
}

#[derive(Eq, PartialEq)]
struct Deleted {
    resource: String,
    key: ObjectKey,
    uid: String,
}

impl<K: CachedResource> Cache for Lister<K> {
    fn has_seen(&self, key: &ObjectKey, version: &str) -> bool {
        !self.selects(key.namespace()) || self.has_seen(key, version)
    }

    fn has_seen_deletion(&self, key: &ObjectKey, uid: &str) -> bool {
        self.has_seen_deletion(key, uid)
    }

    fn relist(&self, pause: Duration) {
        self.relist(pause);
    }
}

impl StaleCache {
    /// The resource whose cache is behind.
    fn resource(&self) -> Option<&str> {
        match self {
            Self::Deletion { resource, .. } | Self::Write { resource, .. } => Some(resource),
            Self::Unanswered { .. } => None,
        }
    }

    /// How long the key of the reconciler has been waiting for the caches.
    pub fn waited(&self) -> Duration {
        match self {
            Self::Deletion { waited, .. } | Self::Unanswered { waited, .. } | Self::Write { waited, .. } => *waited,
        }
    }
}

impl ReconcileError for StaleCache {
    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Unanswered { left, .. } => Some(*left),
            Self::Deletion { .. } | Self::Write { .. } => None,
        }
    }
}

impl ConsistencyStore {
    /// A store that covers no cache yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks writes of objects of type `K` against the cache of `lister`.
    pub fn covers<K>(self, lister: &Lister<K>) -> Self
    where
        K: CachedResource,
        K::DynamicType: Default,
    {
        self.covers_with(&K::DynamicType::default(), lister)
    }

    /// As [`ConsistencyStore::covers`], for a type that is known at run time.
    pub fn covers_with<K: CachedResource>(self, dynamic: &K::DynamicType, lister: &Lister<K>) -> Self {
        self.shared.caches.lock().insert(resource_name::<K>(dynamic), Arc::new(lister.clone()));
        self
    }

    /// Records that the reconcile of `owner` wrote `object`, which is the server's answer.
    ///
    /// Only the newest write of each resource in each namespace is kept: a cache that has it has the earlier ones
    /// there. Versions that are not numbers cannot be compared, so nothing waits for them; nor does anything wait for
    /// writes in a namespace that the cache does not watch.
    pub fn wrote_at<K>(&self, owner: &ObjectKey, object: &K)
    where
        K: Resource,
        K::DynamicType: Default,
    {
        self.wrote_at_with(&K::DynamicType::default(), owner, object);
    }

    /// As [`ConsistencyStore::wrote_at`], for a type that is known at run time.
    pub fn wrote_at_with<K: Resource>(&self, dynamic: &K::DynamicType, owner: &ObjectKey, object: &K) {
        let Some(version) = object.meta().resource_version.as_deref().filter(|version| is_version(version)) else {
            return;
        };
        let mut done = self.shared.done.lock();
        let written = &mut done.entry(owner.clone()).or_default().written;
        let key = ObjectKey::of(object);
        let namespace = key.namespace().unwrap_or_default().to_owned();
        let place = ResourceScope { resource: resource_name::<K>(dynamic), namespace };
        match written.get(&place) {
            Some(known) if is_at_least(&known.version, version) => {}
            _ => drop(written.insert(place, Written { key, version: version.to_owned() })),
        }
    }

    /// Records that the reconcile of `owner` deleted `object`, in the state before the deletion. The cache has the
    /// deletion when it has another object of that name or none, or shows that this one waits for its finalizers.
    pub fn deleted<K>(&self, owner: &ObjectKey, object: &K)
    where
        K: Resource,
        K::DynamicType: Default,
    {
        self.deleted_with(&K::DynamicType::default(), owner, object);
    }

    /// As [`ConsistencyStore::deleted`], for a type that is known at run time.
    pub fn deleted_with<K: Resource>(&self, dynamic: &K::DynamicType, owner: &ObjectKey, object: &K) {
        let Some(uid) = object.meta().uid.clone() else { return };
        let deleted = Deleted { resource: resource_name::<K>(dynamic), key: ObjectKey::of(object), uid };
        let mut done = self.shared.done.lock();
        let known = &mut done.entry(owner.clone()).or_default().deleted;
        if !known.contains(&deleted) {
            known.push(deleted);
        }
    }

    /// Records that a request of the reconcile of `owner` got no answer: it may have been done, under a name that only
    /// the server knows. The key is held back for `wait`: longer than a request and a watch take, and not so long that
    /// a request that was never done matters. Not needed where a second attempt finds the result of the first, because
    /// both use the same name.
    pub fn unanswered(&self, owner: &ObjectKey, wait: Duration) {
        let until = clock::after(Instant::now(), wait);
        let mut done = self.shared.done.lock();
        let known = &mut done.entry(owner.clone()).or_default().unanswered_until;
        *known = (*known).max(Some(until));
    }

    /// Checks that the caches have everything that the reconciles of `owner` wrote. Call it first in every reconcile.
    ///
    /// Resources without a cache are not waited for. A cache that `owner` has waited for more than five minutes is listed anew, which the
    /// metric `steersman_informer_relists_total` counts with the reason `stale`.
    ///
    /// # Errors
    /// [`StaleCache`] names one write that is missing.
    pub fn ensure_ready(&self, owner: &ObjectKey) -> Result<(), StaleCache> {
        let mut all = self.shared.done.lock();
        let Some(done) = all.get_mut(owner) else { return Ok(()) };
        // Lock order: what was done, then caches.
        let caches = self.shared.caches.lock();
        match done.missing(&caches) {
            None => {
                all.remove(owner);
                Ok(())
            }
            Some(stale) => {
                if REPORTED_AFTER <= stale.waited() && !std::mem::replace(&mut done.is_reported, true) {
                    let waited = stale.waited();
                    tracing::warn!(key = %owner, ?waited, %stale, "a watch seems to stand still: the key waits for it");
                }
                if RELISTED_AFTER <= stale.waited()
                    && let Some(cache) = stale.resource().and_then(|resource| caches.get(resource))
                {
                    cache.relist(RELISTED_AFTER);
                }
                Err(stale)
            }
        }
    }

    /// Drops the writes recorded for `owner`. Call it when `owner` is gone for good.
    pub fn clear(&self, owner: &ObjectKey) {
        self.shared.done.lock().remove(owner);
    }

    /// The number of keys with writes that were not found in the caches yet.
    pub fn len(&self) -> usize {
        self.shared.done.lock().len()
    }

    /// Whether nothing is waited for.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Done {
    /// Drops the writes that the caches have, and returns one that they do not have.
    fn missing(&mut self, caches: &HashMap<String, Arc<dyn Cache>>) -> Option<StaleCache> {
        self.written.retain(|place, write| {
            caches.get(&place.resource).is_some_and(|cache| !cache.has_seen(&write.key, &write.version))
        });
        self.deleted.retain(|Deleted { resource, key, uid }| {
            caches.get(resource).is_some_and(|cache| !cache.has_seen_deletion(key, uid))
        });
        let now = Instant::now();
        self.unanswered_until = self.unanswered_until.filter(|until| now < *until);
        let waited = now.saturating_duration_since(*self.waiting_since.get_or_insert(now));
        let written = self.written.iter().next().map(|(place, Written { key, version })| StaleCache::Write {
            resource: place.resource.clone(),
            key: key.clone(),
            version: version.clone(),
            waited,
        });
        let deleted = self.deleted.first().map(|Deleted { resource, key, .. }| StaleCache::Deletion {
            resource: resource.clone(),
            key: key.clone(),
            waited,
        });
        let unanswered = self
            .unanswered_until
            .map(|until| StaleCache::Unanswered { left: until.saturating_duration_since(now), waited });
        written.or(deleted).or(unanswered)
    }
}

impl fmt::Debug for ConsistencyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsistencyStore").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// Whether a resource version is a number that can be compared: decimal, without a leading zero.
pub(crate) fn is_version(text: &str) -> bool {
    !text.is_empty() && !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether version `a` is `b` or newer, as far as both can be compared.
pub(crate) fn is_at_least(a: &str, b: &str) -> bool {
    is_version(a) && is_version(b) && (a.len(), a) >= (b.len(), b)
}
