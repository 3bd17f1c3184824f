//! A reconciler that has written must not decide again from a cache that has not seen it yet.
//!
//! [`ConsistencyStore`] remembers, per key of the controller, the newest version it wrote of each resource, and says
//! whether the caches have got there. Nobody waits: the key comes back later, the worker goes on with others. After
//! Kubernetes' `pkg/controller/util/consistency`. To wait for one write where it is made, see
//! [`Lister::wait_for`](crate::Lister::wait_for).

use std::fmt;
use std::sync::Arc;

use hashbrown::HashMap;
use kube::Resource;
use parking_lot::Mutex;

use crate::key::ObjectKey;
use crate::lister::Lister;
use crate::reconcile::ReconcileError;
use crate::selection::{CachedResource, resource_name};

/// Says whether caches have seen what a reconciler wrote. Clones are the same store.
///
/// ```
/// # use k8s_openapi::api::core::v1::Pod;
/// # use steersman::{Action, ConsistencyStore, ObjectKey, ReconcileError, StaleCache};
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
/// One entry is kept per key that wrote, until the caches have seen it.
#[derive(Clone, Default)]
pub struct ConsistencyStore {
    shared: Arc<Shared>,
}

/// A cache has not seen a write yet. As the error of a reconciler, it makes the key run again soon.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the cache of {resource} has not seen version {version} yet, in which {key:?} was written")]
pub struct StaleCache {
    /// `plural.group` of what was written.
    pub resource: String,
    /// What was written.
    pub key: ObjectKey,
    /// Its version.
    pub version: String,
}

#[derive(Default)]
struct Shared {
    /// By resource.
    caches: Mutex<HashMap<String, Arc<Covers>>>,
    /// The newest write of each resource by each key.
    written: Mutex<HashMap<ObjectKey, HashMap<String, Written>>>,
}

/// Whether a cache has seen a version of an object.
type Covers = dyn Fn(&ObjectKey, &str) -> bool + Send + Sync;

struct Written {
    key: ObjectKey,
    version: String,
}

impl ReconcileError for StaleCache {}

impl ConsistencyStore {
    /// A store that knows no cache yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks the cache of `lister` about writes of objects of type `K`.
    pub fn covers<K>(self, lister: &Lister<K>) -> Self
    where
        K: CachedResource,
        K::DynamicType: Default,
    {
        self.covers_with(&K::DynamicType::default(), lister)
    }

    /// As [`ConsistencyStore::covers`], for a type that is known at run time.
    pub fn covers_with<K: CachedResource>(self, dynamic: &K::DynamicType, lister: &Lister<K>) -> Self {
        let lister = lister.clone();
        let covers = Arc::new(move |key: &ObjectKey, version: &str| lister.has_seen(key, version));
        self.shared.caches.lock().insert(resource_name::<K>(dynamic), covers);
        self
    }

    /// The reconcile of `owner` wrote `object`, which is what the server answered.
    ///
    /// Only the newest write of each resource is kept: a cache that has seen it has seen the earlier ones. Versions that
    /// are no numbers cannot be compared, and nothing ever waits for them.
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
        let mut written = self.shared.written.lock();
        let of_owner = written.entry(owner.clone()).or_default();
        let resource = resource_name::<K>(dynamic);
        match of_owner.get(&resource) {
            Some(known) if is_at_least(&known.version, version) => {}
            _ => {
                let write = Written { key: ObjectKey::of(object), version: version.to_owned() };
                of_owner.insert(resource, write);
            }
        }
    }

    /// Whether the caches have seen everything that the reconciles of `owner` wrote. Ask first in every reconcile.
    ///
    /// Writes of resources without a cache are not waited for.
    ///
    /// # Errors
    /// [`StaleCache`], about one write that is missing.
    pub fn ensure_ready(&self, owner: &ObjectKey) -> Result<(), StaleCache> {
        let mut written = self.shared.written.lock();
        let Some(of_owner) = written.get_mut(owner) else { return Ok(()) };
        // Lock order: writes, then caches.
        let caches = self.shared.caches.lock();
        of_owner
            .retain(|resource, write| caches.get(resource).is_some_and(|covers| !covers(&write.key, &write.version)));
        let missing = of_owner.iter().next().map(|(resource, write)| StaleCache {
            resource: resource.clone(),
            key: write.key.clone(),
            version: write.version.clone(),
        });
        match missing {
            None => {
                written.remove(owner);
                Ok(())
            }
            Some(stale) => Err(stale),
        }
    }

    /// Forgets what the reconciles of `owner` wrote, because it is gone for good.
    pub fn clear(&self, owner: &ObjectKey) {
        self.shared.written.lock().remove(owner);
    }

    /// How many keys wrote something that the caches were not asked about since.
    pub fn len(&self) -> usize {
        self.shared.written.lock().len()
    }

    /// Whether nothing is waited for.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
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
