//! A cache behind the methods of `kube::Api`, for code that was written against those. Requests that a cache cannot
//! answer fail with an error and are never sent to the server.

mod selector;

use std::fmt;
use std::future::{Ready, ready};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ListMeta, ObjectMeta};
use kube::api::{ListParams, ObjectList, VersionMatch};
use kube::core::{PartialObjectMeta, PartialObjectMetaExt, Status, TypeMeta};

use crate::cache::indexer::Metadata;
use crate::cache::lister::{Lister, LookupError};
use crate::cache::reader::selector::Selectors;
use crate::control::consistency::is_at_least;
use crate::shared::key::ObjectKey;
use crate::shared::selection::CachedResource;

pub use crate::cache::reader::selector::SelectorError;

/// Reads a cache with the methods that `kube::Api` has for reading.
///
/// ```no_run
/// # use k8s_openapi::api::core::v1::Pod;
/// # use kube::api::ListParams;
/// # use steersman::cache::{Informer, Reader};
/// # async fn read(informer: &Informer<Pod>) -> Result<(), kube::Error> {
/// // Before: let pods: Api<Pod> = Api::namespaced(client, "shop");
/// let pods = Reader::namespaced(&informer.lister(), "shop");
/// let web = pods.get("web").await?;
/// let of_app = pods.list(&ListParams::default().labels("app=web,tier in (front, back)")).await?;
/// # Ok(()) }
/// ```
///
/// The errors are those of `kube::Api` too: an object that does not exist is a `kube::Error::Api` with the status
/// `NotFound`. All others are a `kube::Error::Service`, whose source is a [`LookupError`] or a [`ReadError`]. Objects
/// are copied out of the cache; a [`Lister`] makes no copies, and has indexes beside it.
pub struct Reader<K> {
    lister: Lister<K>,
    /// Empty: all namespaces, or cluster-scoped objects.
    namespace: String,
}

/// Why a cache cannot answer a request that a server can.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// A list with a continue token.
    #[error("a cache gives whole lists, and has no use for the continue token {token:?}: list without it")]
    Continue {
        /// The continue token.
        token: String,
    },
    /// A list at exactly one version.
    #[error(
        "a cache moves on, and gives no list at exactly version {wanted:?}: ask it for one that is not older, or ask the server"
    )]
    Exact {
        /// The version.
        wanted: String,
    },
    /// A selector that the cache does not support.
    #[error(transparent)]
    Selector(#[from] SelectorError),
    /// A version that the cache does not have.
    #[error("the cache is at version {reached:?}, and {wanted:?} was asked for: wait for it, or ask the server")]
    Version {
        /// The version of the cache.
        reached: String,
        /// The version requested.
        wanted: String,
    },
}

// === impl Reader ===

impl<K: CachedResource> Reader<K> {
    /// Reads cluster-scoped objects, or those of all namespaces, as `Api::all` does.
    pub fn all(lister: &Lister<K>) -> Self {
        Self::namespaced(lister, "")
    }

    /// Reads the objects of one namespace, as `Api::namespaced` does.
    pub fn namespaced(lister: &Lister<K>, namespace: &str) -> Self {
        Self { lister: lister.clone(), namespace: namespace.to_owned() }
    }

    /// The object `name`.
    ///
    /// # Errors
    /// As of `kube::Api::get`, without those of the network; see [`Reader`].
    pub fn get(&self, name: &str) -> Ready<kube::Result<K>> {
        ready(self.find(name))
    }

    /// The object `name`, if it exists.
    ///
    /// # Errors
    /// As [`Reader::get`].
    pub fn get_opt(&self, name: &str) -> Ready<kube::Result<Option<K>>> {
        ready(optional(self.find(name)))
    }

    /// The metadata of the object `name`. Decodes nothing else.
    ///
    /// # Errors
    /// As [`Reader::get`].
    pub fn get_metadata(&self, name: &str) -> Ready<kube::Result<PartialObjectMeta<K>>> {
        ready(self.find_metadata(name))
    }

    /// The metadata of the object `name`, if it exists. Decodes nothing else.
    ///
    /// # Errors
    /// As [`Reader::get`].
    pub fn get_metadata_opt(&self, name: &str) -> Ready<kube::Result<Option<PartialObjectMeta<K>>>> {
        ready(optional(self.find_metadata(name)))
    }

    /// The objects that `params` select, by namespace and name: all of them, whatever the limit, as a server may do
    /// too.
    ///
    /// Label selectors work as with a server, field selectors only for `metadata.name` and `metadata.namespace`.
    ///
    /// # Errors
    /// [`ReadError`] for requests that a cache cannot answer, [`LookupError`].
    pub fn list(&self, params: &ListParams) -> Ready<kube::Result<ObjectList<K>>> {
        ready(self.found(params, |passes| {
            let lister = &self.lister;
            let found = match self.namespace.as_str() {
                "" => lister.filled()?.list_where(passes),
                namespace => lister.filled_in(Some(namespace))?.list_in_where(namespace, passes),
            };
            Ok(found.into_iter().map(|object| (ObjectKey::of(&*object), Arc::unwrap_or_clone(object))).collect())
        }))
    }

    /// As [`Reader::list`], for the metadata. Decodes nothing else.
    ///
    /// # Errors
    /// As [`Reader::list`].
    pub fn list_metadata(&self, params: &ListParams) -> Ready<kube::Result<ObjectList<PartialObjectMeta<K>>>>
    where
        PartialObjectMeta<K>: Clone,
    {
        ready(self.found(params, |passes| {
            let namespace = Some(self.namespace.as_str()).filter(|namespace| !namespace.is_empty());
            let all = self.lister.filled_in(namespace)?.metadata_in(namespace);
            let selected = all.into_iter().filter(|(_, metadata)| passes(metadata));
            Ok(selected.map(|(key, metadata)| (key, metadata.into_response_partial())).collect())
        }))
    }

    fn key(&self, name: &str) -> ObjectKey {
        ObjectKey::namespaced(&self.namespace, name)
    }

    fn find(&self, name: &str) -> kube::Result<K> {
        self.lister.get(&self.key(name)).map(Arc::unwrap_or_clone).map_err(to_kube)
    }

    fn find_metadata(&self, name: &str) -> kube::Result<PartialObjectMeta<K>> {
        let key = self.key(name);
        let indexer = self.lister.filled_in(key.namespace()).map_err(to_kube)?;
        match indexer.metadata_of(&key) {
            Metadata::Absent => {
                let resource = Arc::clone(indexer.decoder().resource());
                Err(to_kube(LookupError::NotFound { resource, key }))
            }
            Metadata::Known(metadata) => Ok(metadata.into_response_partial()),
            Metadata::Unreadable => self.find(name).map(|object| object.meta().clone().into_response_partial()),
        }
    }

    fn found<T: Clone>(
        &self,
        params: &ListParams,
        read: impl FnOnce(&dyn Fn(&ObjectMeta) -> bool) -> Result<Vec<(ObjectKey, T)>, LookupError>,
    ) -> kube::Result<ObjectList<T>> {
        // Read before the objects, which may be newer: a watch from this version on gets every later change.
        let version = self.version();
        let selectors = check(params, &version).map_err(|error| kube::Error::Service(Box::new(error)))?;
        let mut found = read(&|metadata| selectors.match_metadata(metadata)).map_err(to_kube)?;
        found.sort_by(|(one, _), (other, _)| (one.namespace(), one.name()).cmp(&(other.namespace(), other.name())));
        let metadata = ListMeta { resource_version: Some(version), ..ListMeta::default() };
        let types = TypeMeta { api_version: "v1".to_owned(), kind: "List".to_owned() };
        Ok(ObjectList { types, metadata, items: found.into_iter().map(|(_, item)| item).collect() })
    }

    /// The version up to which the cache covers the objects of this reader.
    fn version(&self) -> String {
        self.lister.version_in(Some(self.namespace.as_str()).filter(|namespace| !namespace.is_empty()))
    }
}

impl<K> Clone for Reader<K> {
    fn clone(&self) -> Self {
        Self { lister: self.lister.clone(), namespace: self.namespace.clone() }
    }
}

impl<K> fmt::Debug for Reader<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

/// Checks that a cache at version `reached` can answer `params`, and returns the selectors.
fn check(params: &ListParams, reached: &str) -> Result<Selectors, ReadError> {
    if let Some(token) = params.continue_token.as_ref().filter(|token| !token.is_empty()) {
        return Err(ReadError::Continue { token: token.clone() });
    }
    if let Some(wanted) = params.resource_version.as_ref().filter(|wanted| !matches!(wanted.as_str(), "" | "0")) {
        if matches!(params.version_match, Some(VersionMatch::Exact)) {
            return Err(ReadError::Exact { wanted: wanted.clone() });
        }
        if reached != *wanted && !is_at_least(reached, wanted) {
            return Err(ReadError::Version { reached: reached.to_owned(), wanted: wanted.clone() });
        }
    }
    let (labels, fields) = (params.label_selector.as_deref(), params.field_selector.as_deref());
    Ok(Selectors::parse(labels.unwrap_or_default(), fields.unwrap_or_default())?)
}

fn optional<T>(found: kube::Result<T>) -> kube::Result<Option<T>> {
    match found {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
        found => found.map(Some),
    }
}

/// The error in the form of `kube::Api`.
fn to_kube(error: LookupError) -> kube::Error {
    match &error {
        LookupError::NotFound { .. } => {
            kube::Error::Api(Status::failure(&error.to_string(), "NotFound").with_code(404).boxed())
        }
        _ => kube::Error::Service(Box::new(error)),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::cache::indexer::Indexer;
    use crate::list_watch::delta::Delta;
    use crate::shared::selection::Scope;

    #[test]
    fn a_list_claims_no_version_that_the_cache_reached_while_it_was_read() {
        let indexer = Indexer::<ConfigMap>::new();
        let reach = |version: &str| {
            let resource_version = version.to_owned();
            let list =
                [Delta::ListBegun { scope: Scope::All }, Delta::ListEnded { scope: Scope::All, resource_version }];
            indexer.apply(&mut list.into(), &mut Vec::new());
        };
        reach("5");
        let reader = Reader::all(&Lister::new(indexer.clone()));
        let list = reader.found(&ListParams::default(), |_| {
            reach("6");
            Ok(Vec::<(ObjectKey, ConfigMap)>::new())
        });
        assert_eq!(list.unwrap().metadata.resource_version.as_deref(), Some("5"));
        assert_eq!(reader.version(), "6");
    }
}
