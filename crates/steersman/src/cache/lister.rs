//! Typed reads from a cache, however it holds its objects. They never ask the server, so they work while the server is
//! away. Before the first list is in the cache every read fails: an object that is not in the cache yet may exist.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{Selector, SelectorExt};

use crate::cache::indexer::{Found, Indexer};
use crate::control::consistency::is_at_least;
use crate::control::reconcile::ReconcileError;
use crate::shared::decode_error::DecodeError;
use crate::shared::key::ObjectKey;
use crate::shared::selection::{CachedResource, Scope};

/// Reads the objects of one informer. Clones share the cache; every answer is an `Arc`, never a copy. To read by
/// anything else than key, namespace and labels, use an [`Index`](crate::cache::Index).
///
/// Until the cache is filled for the first time, every read is [`LookupError::NotSynced`]. A controller does not start
/// its workers before the caches of its factory are filled, so its reconciler gets this error only from an informer
/// that was made later, or one of another factory.
pub struct Lister<K> {
    indexer: Indexer<K>,
}

/// Why a cache could not be read.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LookupError {
    /// The object does not exist, as far as the cache knows. For a reconciler: it was deleted.
    #[error("{resource} {key:?} not found")]
    NotFound {
        /// `plural.group` of the type.
        resource: Arc<str>,
        /// The requested key.
        key: ObjectKey,
    },
    /// The cache is of other namespaces, so the state of objects in this one is unknown. Reading again does not help.
    #[error("nothing is known of {resource} in namespace {namespace}: they are watched {scope}")]
    NotSelected {
        /// `plural.group` of the type.
        resource: Arc<str>,
        /// The requested namespace.
        namespace: String,
        /// The scope of the cache.
        scope: Scope,
    },
    /// The cache has not had its first list, so the state of all objects is unknown. Never treat this as deleted:
    /// return it as an error, so that the key comes back.
    #[error("the cache of {resource} is not filled yet: wait for its informer to sync, or read again later")]
    NotSynced {
        /// `plural.group` of the type.
        resource: Arc<str>,
    },
    /// The object exists, but its current state cannot be decoded. Never treat this as deleted.
    #[error("{key:?} exists, but its current state cannot be decoded")]
    Undecodable {
        /// The requested key.
        key: ObjectKey,
        /// The error of decoding it.
        #[source]
        source: Arc<DecodeError>,
    },
}

/// The cache did not come to cover a version in time.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the cache did not reach version {wanted} of {key:?} within {waited:?}: it is at {reached:?}")]
pub struct WaitError {
    /// The key of the object.
    pub key: ObjectKey,
    /// The version that was awaited.
    pub wanted: String,
    /// The version of the cache when time was up.
    pub reached: String,
    /// How long the wait lasted.
    pub waited: Duration,
}

/// Not terminal: the cache catches up.
impl ReconcileError for WaitError {}

// === impl Lister ===

impl<K: CachedResource> Lister<K> {
    /// Reads from `indexer`.
    pub fn new(indexer: Indexer<K>) -> Self {
        Self { indexer }
    }

    /// The object at `key`.
    ///
    /// # Errors
    /// [`LookupError::NotFound`] if it does not exist, [`LookupError::Undecodable`] if it exists and cannot be decoded,
    /// [`LookupError::NotSynced`] if neither is known yet, [`LookupError::NotSelected`] if it is in a namespace that is not
    /// watched.
    pub fn get(&self, key: &ObjectKey) -> Result<Arc<K>, LookupError> {
        match self.filled_in(key.namespace())?.get(key) {
            Found::Absent => {
                let resource = Arc::clone(self.indexer.decoder().resource());
                Err(LookupError::NotFound { resource, key: key.clone() })
            }
            Found::Object(object) => Ok(object),
            Found::Undecodable(source) => Err(LookupError::Undecodable { key: key.clone(), source }),
        }
    }

    /// The object at `key`; `None` if it does not exist, which is usually no error: it was deleted.
    ///
    /// # Errors
    /// As [`Lister::get`], but for [`LookupError::NotFound`].
    pub fn find(&self, key: &ObjectKey) -> Result<Option<Arc<K>>, LookupError> {
        match self.get(key) {
            Ok(object) => Ok(Some(object)),
            Err(LookupError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether an object exists at `key`, undecodable or not. Decodes nothing.
    ///
    /// # Errors
    /// [`LookupError::NotSynced`], [`LookupError::NotSelected`].
    pub fn contains(&self, key: &ObjectKey) -> Result<bool, LookupError> {
        Ok(self.filled_in(key.namespace())?.contains(key))
    }

    /// Every object, in no order; see [`Indexer::list`]. Where objects are held as bytes, as Pods are, this decodes
    /// every object that was not read lately, some twenty microseconds each: look up by an index or select by labels,
    /// or choose [`InformerFactory::typed`](crate::InformerFactory::typed).
    ///
    /// # Errors
    /// [`LookupError::NotSynced`].
    pub fn list(&self) -> Result<Vec<Arc<K>>, LookupError> {
        Ok(self.filled()?.list())
    }

    /// Every object in `namespace`, in no order.
    ///
    /// # Errors
    /// [`LookupError::NotSynced`], [`LookupError::NotSelected`].
    pub fn list_in(&self, namespace: &str) -> Result<Vec<Arc<K>>, LookupError> {
        Ok(self.filled_in(Some(namespace))?.list_in(namespace))
    }

    /// Every object whose labels match, in no order.
    ///
    /// # Errors
    /// [`LookupError::NotSynced`].
    pub fn select(&self, selector: &Selector) -> Result<Vec<Arc<K>>, LookupError> {
        if selector.selects_all() {
            return self.list();
        }
        Ok(self.filled()?.list_where(|metadata| is_selected(metadata, selector)))
    }

    /// Every object in `namespace` whose labels match, in no order.
    ///
    /// # Errors
    /// [`LookupError::NotSynced`], [`LookupError::NotSelected`].
    pub fn select_in(&self, namespace: &str, selector: &Selector) -> Result<Vec<Arc<K>>, LookupError> {
        if selector.selects_all() {
            return self.list_in(namespace);
        }
        Ok(self.filled_in(Some(namespace))?.list_in_where(namespace, |metadata| is_selected(metadata, selector)))
    }

    /// The key of every object that exists, undecodable ones included, in no order.
    ///
    /// # Errors
    /// [`LookupError::NotSynced`].
    pub fn keys(&self) -> Result<Vec<ObjectKey>, LookupError> {
        Ok(self.filled()?.keys())
    }

    /// The number of objects that exist.
    ///
    /// # Errors
    /// [`LookupError::NotSynced`].
    pub fn len(&self) -> Result<usize, LookupError> {
        Ok(self.filled()?.len())
    }

    /// Whether no object exists.
    ///
    /// # Errors
    /// [`LookupError::NotSynced`].
    pub fn is_empty(&self) -> Result<bool, LookupError> {
        Ok(self.filled()?.is_empty())
    }

    /// The cache, once it has had its first list. It is never emptied again.
    pub(crate) fn filled(&self) -> Result<&Indexer<K>, LookupError> {
        if self.indexer.is_filled() {
            return Ok(&self.indexer);
        }
        Err(LookupError::NotSynced { resource: Arc::clone(self.indexer.decoder().resource()) })
    }

    /// As [`Lister::filled`], if the objects of `namespace` are watched.
    pub(crate) fn filled_in(&self, namespace: Option<&str>) -> Result<&Indexer<K>, LookupError> {
        if let Some(namespace) = namespace.filter(|_| !self.selects(namespace)) {
            let resource = Arc::clone(self.indexer.decoder().resource());
            let scope = self.indexer.scope().clone();
            return Err(LookupError::NotSelected { resource, namespace: namespace.to_owned(), scope });
        }
        self.filled()
    }

    /// Whether the objects of `namespace` are watched.
    pub(crate) fn selects(&self, namespace: Option<&str>) -> bool {
        let namespace = namespace.filter(|namespace| !namespace.is_empty());
        namespace.is_none_or(|namespace| self.indexer.scope().contains(namespace))
    }

    /// Waits until the cache has a write of the caller: `resource_version` of the object at `key`, or anything newer.
    ///
    /// For code outside reconcilers. A reconciler that waits here keeps a worker from other keys;
    /// [`ConsistencyStore`](crate::control::consistency::ConsistencyStore) has its key come back instead.
    ///
    /// If the server's versions are not numbers, the object itself must arrive at exactly that version.
    ///
    /// # Errors
    /// [`WaitError`] when `deadline` has passed.
    ///
    /// # Cancel safety
    /// Only waits.
    pub async fn wait_for(&self, key: &ObjectKey, resource_version: &str, deadline: Duration) -> Result<(), WaitError> {
        let mut versions = self.indexer.versions();
        let reached = async {
            loop {
                if self.covers(key, resource_version, versions.borrow_and_update().of(key.namespace())) {
                    return;
                }
                // This does not fail: `self.indexer` holds the sender.
                if versions.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::time::timeout(deadline, reached).await.map_err(|_| WaitError {
            key: key.clone(),
            wanted: resource_version.to_owned(),
            reached: self.indexer.version_in(key.namespace()),
            waited: deadline,
        })
    }

    /// Whether the cache has `resource_version` of the object at `key`, or anything newer; as [`Lister::wait_for`],
    /// without the wait.
    pub fn has_seen(&self, key: &ObjectKey, resource_version: &str) -> bool {
        self.covers(key, resource_version, &self.indexer.version_in(key.namespace()))
    }

    /// The version up to which the cache covers `namespace`, or everything.
    pub(crate) fn version_in(&self, namespace: Option<&str>) -> String {
        match namespace {
            None => self.indexer.resource_version(),
            Some(_) => self.indexer.version_in(namespace),
        }
    }

    /// Has the cache listed anew; see [`Indexer::relist`].
    pub(crate) fn relist(&self, pause: Duration) {
        self.indexer.relist(pause);
    }

    /// Whether the cache no longer shows the object with `uid` at `key`, or shows that it is being deleted.
    pub(crate) fn has_seen_deletion(&self, key: &ObjectKey, uid: &str) -> bool {
        self.indexer.is_filled() && self.indexer.is_gone_or_going(key, uid)
    }

    fn covers(&self, key: &ObjectKey, wanted: &str, reached: &str) -> bool {
        if is_at_least(reached, wanted) {
            return true;
        }
        self.indexer.version_of(key).is_some_and(|version| version == wanted || is_at_least(&version, wanted))
    }
}

impl<K> Clone for Lister<K> {
    fn clone(&self) -> Self {
        Self { indexer: self.indexer.clone() }
    }
}

impl<K> fmt::Debug for Lister<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lister").field("indexer", &self.indexer).finish()
    }
}

fn is_selected(metadata: &ObjectMeta, selector: &Selector) -> bool {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    selector.matches(metadata.labels.as_ref().unwrap_or(&NONE))
}
