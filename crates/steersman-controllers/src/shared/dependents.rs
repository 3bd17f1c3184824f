//! The objects of a kind that an owner controls or may adopt: found through an index, adopted and released.
//!
//! Follows upstream's `pkg/controller/controller_ref_manager.go`: an owner adopts objects without a controller that its
//! selector matches, and releases objects that it does not match any more.

use crate::shared::refusal::{self, Error, Refused};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Patch, PatchParams};
use kube::core::{Resource, Selector, SelectorExt as _};
use kube::{Api, Client};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use steersman::cache::{CachedResource, Index, Informer};
use steersman::{LookupError, owners};

/// An index of objects by their controller.
pub(crate) struct Dependents<K> {
    index: Index<K, ControllerKey>,
}

/// The index key of an object.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum ControllerKey {
    /// The uid of its controller.
    Controlled(String),
    /// Its namespace, if it has no controller.
    Free(String),
}

/// An owner, to claim objects for.
pub(crate) struct Claim<'a, O> {
    pub(crate) client: &'a Client,
    pub(crate) owner: &'a O,
    pub(crate) selector: &'a Selector,
}

// === impl Dependents ===

impl<K> Dependents<K>
where
    K: CachedResource + Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    /// Adds the index to an informer.
    pub(crate) fn of(informer: &Informer<K>) -> Dependents<K> {
        let index = informer.add_metadata_index(|metadata| {
            let controller = metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
            Some(match controller {
                Some(owner) => ControllerKey::Controlled(owner.uid.clone()),
                None => ControllerKey::Free(metadata.namespace.clone().unwrap_or_default()),
            })
        });
        Dependents { index }
    }

    /// The objects that an owner controls.
    pub(crate) fn controlled_by(&self, uid: &str) -> Result<Vec<Arc<K>>, LookupError> {
        self.index.get(&ControllerKey::Controlled(uid.to_owned()))
    }

    /// The objects that an owner controls and whose metadata passes. Other objects are not decoded.
    pub(crate) fn controlled_where(
        &self,
        uid: &str,
        passes: impl Fn(&ObjectMeta) -> bool,
    ) -> Result<Vec<Arc<K>>, LookupError> {
        self.index.get_where(&ControllerKey::Controlled(uid.to_owned()), passes)
    }

    /// The objects without a controller in a namespace whose metadata passes. Other objects are not decoded.
    pub(crate) fn free_in(
        &self,
        namespace: &str,
        passes: impl Fn(&ObjectMeta) -> bool,
    ) -> Result<Vec<Arc<K>>, LookupError> {
        self.index.get_where(&ControllerKey::Free(namespace.to_owned()), passes)
    }
}

// === impl Claim ===

impl<O> Claim<'_, O>
where
    O: Clone + Debug + DeserializeOwned + Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    /// The objects that belong to the owner after this call: those that it controls and its selector matches, and
    /// matching objects without a controller, which are adopted. Objects that it controls and does not match are
    /// released.
    ///
    /// # Errors
    /// When the cache is not filled, or the server refuses a change.
    pub(crate) async fn of<K>(&self, dependents: &Dependents<K>) -> Result<Vec<Arc<K>>, Error>
    where
        K: CachedResource + Clone + Debug + DeserializeOwned + Serialize,
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        self.of_those(dependents, |_| true).await
    }

    /// Like [`Claim::of`], for objects that must have a finalizer: an adopted object gets it together with its owner
    /// reference, and is passed to `adopted`, because the cache does not show it yet.
    ///
    /// # Errors
    /// As for [`Claim::of`].
    pub(crate) async fn of_held<K>(
        &self,
        dependents: &Dependents<K>,
        finalizer: &str,
        adopted: impl Fn(&K),
    ) -> Result<Vec<Arc<K>>, Error>
    where
        K: CachedResource + Clone + Debug + DeserializeOwned + Serialize,
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        self.claim(dependents, |_| true, &[finalizer], adopted).await
    }

    /// Like [`Claim::of`], for objects that pass `counts`. Others are neither adopted nor released.
    ///
    /// # Errors
    /// As for [`Claim::of`].
    pub(crate) async fn of_those<K>(
        &self,
        dependents: &Dependents<K>,
        counts: impl Fn(&K) -> bool,
    ) -> Result<Vec<Arc<K>>, Error>
    where
        K: CachedResource + Clone + Debug + DeserializeOwned + Serialize,
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        self.claim(dependents, counts, &[], |_| {}).await
    }

    async fn claim<K>(
        &self,
        dependents: &Dependents<K>,
        counts: impl Fn(&K) -> bool,
        finalizers: &[&str],
        adopted: impl Fn(&K),
    ) -> Result<Vec<Arc<K>>, Error>
    where
        K: CachedResource + Clone + Debug + DeserializeOwned + Serialize,
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        let meta = self.owner.meta();
        let is_ending = meta.deletion_timestamp.is_some();
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let api = Api::<K>::namespaced(self.client.clone(), namespace);
        let mut owned = Vec::new();
        for object in dependents.controlled_by(meta.uid.as_deref().unwrap_or_default())? {
            if !counts(&object) {
                continue;
            }
            if self.matches(object.meta()) {
                owned.push(object);
            } else if !is_ending {
                self.release(&api, &*object).await?;
            }
        }
        if is_ending {
            return Ok(owned);
        }
        let mut may_adopt = None;
        for object in
            dependents.free_in(namespace, |metadata| metadata.deletion_timestamp.is_none() && self.matches(metadata))?
        {
            if !counts(&object) {
                continue;
            }
            let may_adopt = match may_adopt {
                Some(known) => known,
                None => *may_adopt.insert(self.is_there().await?),
            };
            if may_adopt && let Some(object) = self.adopt(&api, &*object, finalizers).await? {
                adopted(&object);
                owned.push(Arc::new(object));
            }
        }
        Ok(owned)
    }

    fn matches(&self, metadata: &ObjectMeta) -> bool {
        selects(self.selector, metadata)
    }

    /// Whether the server still has the owner, and it is not being deleted: the cache may lag behind.
    async fn is_there(&self) -> Result<bool, Refused> {
        let meta = self.owner.meta();
        let (namespace, name) =
            (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
        let found = Api::<O>::namespaced(self.client.clone(), namespace).get_opt(name).await;
        let found = found.map_err(Refused::to(format!("read the owner {name:?}")))?;
        Ok(found.is_some_and(|found| found.meta().uid == meta.uid && found.meta().deletion_timestamp.is_none()))
    }

    async fn adopt<K>(&self, api: &Api<K>, object: &K, finalizers: &[&str]) -> Result<Option<K>, Refused>
    where
        K: Clone + Debug + DeserializeOwned + Resource,
    {
        let Some(owner) = self.owner.controller_owner_ref(&()) else { return Ok(None) };
        let reference = json!({
            "apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid,
            "controller": true, "blockOwnerDeletion": true,
        });
        let mut metadata = json!({"ownerReferences": [reference]});
        if !finalizers.is_empty() {
            metadata["finalizers"] = json!(finalizers);
        }
        self.patch(api, object, metadata).await
    }

    async fn release<K>(&self, api: &Api<K>, object: &K) -> Result<(), Refused>
    where
        K: Clone + Debug + DeserializeOwned + Resource,
    {
        let uid = self.owner.meta().uid.clone();
        self.patch(api, object, json!({"ownerReferences": [{"$patch": "delete", "uid": uid}]})).await.map(|_| ())
    }

    /// The patched object; `None` if the object is gone or was replaced by another one.
    async fn patch<K>(&self, api: &Api<K>, object: &K, mut metadata: serde_json::Value) -> Result<Option<K>, Refused>
    where
        K: Clone + Debug + DeserializeOwned + Resource,
    {
        let name = object.meta().name.as_deref().unwrap_or_default();
        metadata["uid"] = json!(object.meta().uid);
        let patch = json!({"metadata": metadata});
        match api.patch(name, &PatchParams::default(), &Patch::Strategic(patch)).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if refusal::is_outdated(&error) || refusal::is_invalid(&error) => Ok(None),
            Err(error) => Err(Refused::to(format!("change the owners of {name:?}"))(error)),
        }
    }
}

/// Whether an object may be adopted by an owner that selects it: it has no controller, is not being deleted, and has
/// labels.
pub(crate) fn is_adoptable(metadata: &ObjectMeta) -> bool {
    let is_free = metadata.owner_references.iter().flatten().all(|owner| owner.controller != Some(true));
    is_free && metadata.deletion_timestamp.is_none() && metadata.labels.is_some()
}

/// Whether the selector of an owner matches an object. An empty selector matches nothing here, in contrast to
/// elsewhere.
pub(crate) fn selects(selector: &Selector, metadata: &ObjectMeta) -> bool {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    !selector.selects_all() && selector.matches(metadata.labels.as_ref().unwrap_or(&NONE))
}

/// The controller reference to `owner`. `None` if `owner` lacks a name or a uid, because it did not come from the
/// server.
pub(crate) fn reference_to<O: Resource<DynamicType = ()>>(owner: &O) -> Option<OwnerReference> {
    owner.controller_owner_ref(&()).map(|reference| OwnerReference { block_owner_deletion: Some(true), ..reference })
}

/// Whether the owner with this uid controls an object.
pub(crate) fn is_controlled_by(object: &impl Resource, uid: Option<&str>) -> bool {
    owners::controller_of(object).is_some_and(|owner| Some(&*owner.uid) == uid)
}
