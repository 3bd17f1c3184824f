//! The requests of the garbage collector. Kinds are mapped to resources by discovery.

use crate::loops::cleanup::garbage_collector::attempt::{Answer, Server};
use crate::loops::cleanup::garbage_collector::identity::{Identity, Kind, Uid};
use crate::shared::refusal::{self, Refused};
use crate::shared::served::Catalog;
use hashbrown::HashMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::core::{ApiResource, DynamicResourceScope, PartialObjectMeta, Resource};
use kube::discovery::Scope;
use kube::{Api, Client};
use parking_lot::RwLock;
use serde_json::{Value, json};

pub(super) struct Requests {
    client: Client,
    kinds: RwLock<Kinds>,
}

#[derive(Default)]
struct Kinds {
    by_kind: HashMap<Kind, (ApiResource, Scope), std::hash::RandomState>,
    /// Incremented with every change of the kinds.
    generation: u64,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum RequestError {
    #[error("{api_version} {kind} is not served")]
    NotServed { api_version: Box<str>, kind: Box<str> },
    #[error(transparent)]
    Refused(#[from] Refused),
}

// === impl Requests ===

impl Requests {
    pub(super) fn new(client: Client) -> Requests {
        Requests { client, kinds: RwLock::default() }
    }

    /// Sets the kinds that are served. Kinds of a server that did not answer discovery are kept. Returns whether
    /// anything has changed.
    pub(super) fn set_kinds(&self, catalog: &Catalog) -> bool {
        let mut by_kind = HashMap::default();
        for served in &catalog.resources {
            let kind = kind_of(&served.resource);
            let place = (served.resource.clone(), served.scope.clone());
            if served.can("delete") || !by_kind.contains_key(&kind) {
                by_kind.entry(kind).or_insert(place);
            }
        }
        let mut kinds = self.kinds.write();
        for (kind, place) in &kinds.by_kind {
            if catalog.stale.contains(&(place.0.group.clone(), place.0.version.clone())) {
                by_kind.entry(kind.clone()).or_insert_with(|| place.clone());
            }
        }
        if kinds.by_kind == by_kind {
            return false;
        }
        *kinds = Kinds { by_kind, generation: kinds.generation + 1 };
        true
    }

    /// A number that changes with the served kinds.
    pub(super) fn generation(&self) -> u64 {
        self.kinds.read().generation
    }

    fn api<K>(&self, object: &Identity) -> Result<Api<K>, RequestError>
    where
        K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
    {
        let kinds = self.kinds.read();
        let Some((resource, scope)) = kinds.by_kind.get(&*object.kind) else {
            let Kind { api_version, kind } = (*object.kind).clone();
            return Err(RequestError::NotServed { api_version, kind });
        };
        let client = self.client.clone();
        Ok(match scope {
            Scope::Cluster => Api::all_with(client, resource),
            Scope::Namespaced => Api::namespaced_with(client, &object.namespace, resource),
        })
    }

    async fn merge(&self, object: &Identity, patch: Value) -> Result<Answer, RequestError> {
        let api = self.api::<DynamicObject>(object)?;
        answer(object, "change", api.patch_metadata(&object.name, &PatchParams::default(), &Patch::Merge(patch)).await)
    }

    /// Changes the owner references of exactly this object, and only of this version if one is given, by a strategic
    /// merge patch. If the server does not support such patches for the kind, the references in the version that was
    /// read are replaced.
    async fn patch_owners(
        &self,
        object: &Identity,
        version: Option<&str>,
        patch: Value,
        change: impl Fn(Vec<OwnerReference>) -> Vec<OwnerReference> + Send,
    ) -> Result<Result<ObjectMeta, Answer>, RequestError> {
        let api = self.api::<DynamicObject>(object)?;
        let params = PatchParams::default();
        let patched = api.patch_metadata(&object.name, &params, &Patch::Strategic(patch)).await;
        let patched = match patched {
            Err(kube::Error::Api(status)) if status.code == 415 => {
                let Some(live) = self.get(object).await? else { return Ok(Err(Answer::Gone)) };
                let is_other = version.is_some_and(|version| live.resource_version.as_deref() != Some(version));
                if is_other || Uid::from(live.uid.as_deref().unwrap_or_default()) != object.uid {
                    return Ok(Err(Answer::Conflict));
                }
                let owners = change(live.owner_references.unwrap_or_default());
                let metadata = json!({"ownerReferences": owners, "resourceVersion": live.resource_version});
                api.patch_metadata(&object.name, &params, &Patch::Merge(json!({"metadata": metadata}))).await
            }
            patched => patched,
        };
        match patched {
            Ok(object) => Ok(Ok(object.metadata)),
            Err(error) => answer::<()>(object, "change the owners of", Err(error)).map(Err),
        }
    }
}

impl Server for Requests {
    type Error = RequestError;

    fn scope(&self, kind: &Kind) -> Option<Scope> {
        self.kinds.read().by_kind.get(kind).map(|(_, scope)| scope.clone())
    }

    async fn get(&self, object: &Identity) -> Result<Option<ObjectMeta>, RequestError> {
        let api = self.api::<DynamicObject>(object)?;
        let found = api.get_metadata_opt(&object.name).await;
        Ok(found.map_err(Refused::to(format!("read {object}")))?.map(|found| found.metadata))
    }

    async fn delete(
        &self,
        object: &Identity,
        version: Option<&str>,
        policy: PropagationPolicy,
    ) -> Result<Answer, RequestError> {
        // Only the metadata of the answer is needed.
        let api = self.api::<PartialObjectMeta>(object)?;
        let preconditions =
            Preconditions { uid: Some(object.uid.to_string()), resource_version: version.map(str::to_owned) };
        let params = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
        answer(object, "delete", api.delete(&object.name, &params.preconditions(preconditions)).await)
    }

    async fn remove_owners(
        &self,
        object: &Identity,
        version: Option<&str>,
        owners: &[Uid],
    ) -> Result<Answer, RequestError> {
        let texts: Vec<String> = if owners.iter().any(Uid::is_digest) {
            let Some(live) = self.get(object).await? else { return Ok(Answer::Gone) };
            let references = live.owner_references.into_iter().flatten().map(|reference| reference.uid);
            references.filter(|uid| owners.contains(&Uid::from(uid.as_str()))).collect()
        } else {
            owners.iter().map(Uid::to_string).collect()
        };
        let removals: Vec<Value> = texts.iter().map(|uid| json!({"$patch": "delete", "uid": uid})).collect();
        let mut patch = json!({"metadata": {"uid": object.uid.to_string(), "ownerReferences": removals}});
        if let Some(version) = version {
            patch["metadata"]["resourceVersion"] = version.into();
        }
        let stays = |owner: &OwnerReference| !owners.contains(&Uid::from(owner.uid.as_str()));
        let changed =
            self.patch_owners(object, version, patch, |references| references.into_iter().filter(stays).collect());
        Ok(changed.await?.map_or_else(|answer| answer, |_| Answer::Done))
    }

    async fn unblock_owners(
        &self,
        object: &Identity,
        references: &[OwnerReference],
    ) -> Result<Option<ObjectMeta>, RequestError> {
        let unblocked =
            |reference: &OwnerReference| OwnerReference { block_owner_deletion: Some(false), ..reference.clone() };
        let free: Vec<OwnerReference> = references.iter().map(unblocked).collect();
        let patch = json!({"metadata": {"uid": object.uid.to_string(), "ownerReferences": free}});
        let unblock = |references: Vec<OwnerReference>| references.iter().map(unblocked).collect();
        let changed = self.patch_owners(object, None, patch, unblock).await?;
        Ok(changed.ok())
    }

    async fn set_finalizers(
        &self,
        object: &Identity,
        version: &str,
        finalizers: &[String],
    ) -> Result<Answer, RequestError> {
        let metadata = json!({"resourceVersion": version, "finalizers": finalizers});
        self.merge(object, json!({"metadata": metadata})).await
    }
}

/// The kind of a resource in the form of owner references.
pub(super) fn kind_of(resource: &ApiResource) -> Kind {
    Kind { api_version: resource.api_version.as_str().into(), kind: resource.kind.as_str().into() }
}

fn answer<T>(object: &Identity, what: &str, result: kube::Result<T>) -> Result<Answer, RequestError> {
    match result {
        Ok(_) => Ok(Answer::Done),
        Err(error) if refusal::is_gone(&error) => Ok(Answer::Gone),
        Err(error) if refusal::is_conflict(&error) => Ok(Answer::Conflict),
        Err(error) => Err(Refused::to(format!("{what} {object}"))(error).into()),
    }
}
