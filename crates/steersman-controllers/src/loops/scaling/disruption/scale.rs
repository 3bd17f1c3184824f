//! The total number of Pods that the controllers of given Pods want.
//!
//! ReplicaSets (or the Deployments above them), StatefulSets and ReplicationControllers are read from caches; other
//! controllers are read through their subresource `scale`.

use crate::shared::discovery::{Kinds, Within};
use crate::shared::refusal;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use steersman::{InformerFactory, Lister, LookupError, ObjectKey, Scope, owners};

pub(crate) struct Scales {
    client: Client,
    kinds: Kinds,
    deployments: Lister<Deployment>,
    replica_sets: Lister<ReplicaSet>,
    replication_controllers: Lister<ReplicationController>,
    stateful_sets: Lister<StatefulSet>,
}

/// The sum of the replicas of controllers.
#[derive(Debug, Default)]
pub(crate) struct Scale {
    pub(crate) count: i32,
    /// The names of Pods without a controller.
    pub(crate) unmanaged: Vec<String>,
}

/// Why the number is unknown.
pub(crate) enum Unknown {
    Owner(String),
    Read(LookupError),
}

impl From<LookupError> for Unknown {
    fn from(error: LookupError) -> Unknown {
        Unknown::Read(error)
    }
}

impl Scales {
    pub(crate) fn new(informers: &InformerFactory, client: Client) -> Scales {
        Scales {
            kinds: Kinds::new(client.clone()),
            client,
            deployments: informers.informer(Scope::All).lister(),
            replica_sets: informers.informer(Scope::All).lister(),
            replication_controllers: informers.informer(Scope::All).lister(),
            stateful_sets: informers.informer(Scope::All).lister(),
        }
    }

    pub(crate) async fn of_pods(&self, pods: &[Arc<Pod>]) -> Result<Scale, Unknown> {
        let mut scale = Scale::default();
        // The number that each controller wants, counted once per controller, and the owners of Pods that were visited.
        let mut wanted: BTreeMap<String, i32> = BTreeMap::new();
        let mut seen: BTreeSet<String> = BTreeSet::new();
        for pod in pods {
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            let Some(owner) = owners::controller_of(&**pod) else {
                scale.unmanaged.push(name.to_owned());
                continue;
            };
            if !seen.insert(owner.uid.clone()) {
                continue;
            }
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            match self.of_owner(owner, namespace).await? {
                Some((uid, count)) => drop(wanted.insert(uid, count)),
                None => return Err(Unknown::Owner(format!("found no controllers for pod {name:?}"))),
            }
        }
        scale.count = wanted.into_values().fold(0, i32::saturating_add);
        Ok(scale)
    }

    /// The uid of the controller that sets the number of Pods, and that number.
    async fn of_owner(&self, owner: &OwnerReference, namespace: &str) -> Result<Option<(String, i32)>, Unknown> {
        let key = ObjectKey::namespaced(namespace, &owner.name);
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        let found = match (group, &*owner.kind) {
            ("", "ReplicationController") => {
                let found = self.replication_controllers.find(&key)?;
                found
                    .filter(|one| one.metadata.uid.as_ref() == Some(&owner.uid))
                    .map(|one| (owner.uid.clone(), one.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)))
            }
            ("apps", "StatefulSet") => {
                let found = self.stateful_sets.find(&key)?;
                found
                    .filter(|one| one.metadata.uid.as_ref() == Some(&owner.uid))
                    .map(|one| (owner.uid.clone(), one.spec.replicas.unwrap_or(1)))
            }
            ("apps" | "extensions", "ReplicaSet") => {
                let found = self.replica_sets.find(&key)?;
                match found.filter(|one| one.metadata.uid.as_ref() == Some(&owner.uid)) {
                    Some(replica_set) => self.of_replica_set(&replica_set, namespace)?,
                    None => None,
                }
            }
            _ => None,
        };
        match found {
            Some(found) => Ok(Some(found)),
            None => self.of_scale(owner, namespace).await,
        }
    }

    fn of_replica_set(&self, replica_set: &ReplicaSet, namespace: &str) -> Result<Option<(String, i32)>, LookupError> {
        let Some(above) = owners::controller_of(replica_set).filter(|above| above.kind == "Deployment") else {
            let count = replica_set.spec.replicas.unwrap_or(1);
            return Ok(replica_set.metadata.uid.clone().map(|uid| (uid, count)));
        };
        let deployment = self.deployments.find(&ObjectKey::namespaced(namespace, &above.name))?;
        let deployment = deployment.filter(|one| one.metadata.uid.as_ref() == Some(&above.uid));
        Ok(deployment.map(|one| (above.uid.clone(), one.spec.replicas.unwrap_or(1))))
    }

    async fn of_scale(&self, owner: &OwnerReference, namespace: &str) -> Result<Option<(String, i32)>, Unknown> {
        let unknown = |error: &kube::Error| Unknown::Owner(refusal::message(error));
        let found = self.kinds.find(Within::Version(owner.api_version.clone()), &owner.kind).await;
        let found = found.map_err(|error| unknown(&error))?.ok_or_else(|| {
            Unknown::Owner(format!("no matches for kind {:?} in version {:?}", owner.kind, owner.api_version))
        })?;
        let path = format!("{}/{}/scale", found.path(namespace), owner.name);
        let request = http::Request::get(path).body(Vec::new());
        let request = request.map_err(|error| Unknown::Owner(error.to_string()))?;
        let scale: Value = match self.client.request(request).await {
            Ok(scale) => scale,
            Err(error) if refusal::is_gone(&error) && found.has_scale => return Ok(None),
            Err(error) if refusal::is_gone(&error) => {
                let plural = &found.resource.name;
                let group = owner.api_version.split_once('/').map(|(group, _)| format!(".{group}")).unwrap_or_default();
                return Err(Unknown::Owner(format!("{plural}{group} does not implement the scale subresource")));
            }
            Err(error) => return Err(unknown(&error)),
        };
        if scale["metadata"]["uid"].as_str() != Some(&owner.uid) {
            return Ok(None);
        }
        let count = scale["spec"]["replicas"].as_i64().unwrap_or_default();
        Ok(Some((owner.uid.clone(), i32::try_from(count).unwrap_or(i32::MAX))))
    }
}
