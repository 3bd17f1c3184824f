//! Keeps the served catalog up to date with the CustomResourceDefinitions in the store.
//!
//! One task, the [`follower`], reads every change of a definition once: it writes the definition's status and swaps in a
//! catalog with its resource. It keeps a summary of each definition, so that the cost of a change does not grow with the number
//! of definitions. Long work has tasks of its own: [`deletion`] deletes the objects of a definition that is being deleted,
//! [`rewriting`] rewrites stored objects after a change of their definition.
//!
//! The writer of a definition is answered when the definition is in force, so that the next request can use it.

mod deletion;
mod follower;
mod processed;
mod rewriting;

use crate::background::definitions::follower::Follower;
use crate::shared::conversion;
use crate::shared::follower::in_force::Reporting;
use crate::shared::operation::Operation;
use crate::shared::status::Failure;
use crate::state::State;
use crate::write::registry;
use std::borrow::Cow;
use std::sync::Arc;
use steersman_kinds::at_rest;
use steersman_kinds::catalog::{Catalog, Verb};
use steersman_kinds::crd;
use steersman_kinds::runtime_config::RuntimeConfig;
use steersman_machinery::{GroupResource, Object, ObjectKey, Value, value};
use steersman_storage::WriteError;
use tokio::task::JoinHandle;

/// The field manager of the statuses, named as upstream's.
const STATUS_MANAGER: &str = "kube-apiserver";

/// The default catalog of the built-in kinds.
#[cfg(test)]
pub(crate) fn built_in() -> Catalog {
    configured(&RuntimeConfig::default())
}

/// The catalog of the enabled built-in kinds. CustomResourceDefinitions are always served, because the follower depends
/// on them.
pub(crate) fn configured(config: &RuntimeConfig) -> Catalog {
    Catalog::new(steersman_kinds::builtin::resources(config).into_iter().chain([crd::resource()]))
}

/// Puts the definitions in the store in force and keeps doing so until the server stops.
///
/// # Errors
/// When the store cannot be read or written.
pub(crate) async fn start(state: &Arc<State>) -> Result<JoinHandle<()>, Failure> {
    let mut follower = Follower::new(state.clone());
    let revision = follower.read_all().await?;
    let state = state.clone();
    Ok(tokio::spawn(async move {
        let _reporting = Reporting(&state.definitions);
        follower.run(revision).await;
    }))
}

fn storage() -> GroupResource {
    GroupResource::new(crd::GROUP, crd::PLURAL)
}

/// Reads a stored definition, changes it and writes it back. `None` if it was written by another writer in the meantime: the
/// follower gets that event and reconciles again. A definition that is being deleted is removed with its last finalizer.
async fn update(
    state: &State,
    current: &Object,
    change: impl FnOnce(&mut Value),
) -> Result<Option<Arc<Object>>, Failure> {
    let mut value = parse(state, current)?;
    let before = value.clone();
    change(&mut value);
    if value == before { Ok(None) } else { write(state, current, value).await }
}

/// Parses a stored definition. Parsing is the main cost of definitions, so it is counted.
fn parse(state: &State, object: &Object) -> Result<Value, Failure> {
    state.definitions.count_parsed();
    conversion::parse(object)
}

async fn write(state: &State, current: &Object, mut value: Value) -> Result<Option<Arc<Object>>, Failure> {
    let written = if registry::is_done_waiting(&value) {
        state.store.delete(&storage(), &current.key, current.revision).await.map(|_| None)
    } else {
        // Built-in kinds are always served, so this one is found.
        let catalog = state.catalog();
        let served = catalog.find(crd::GROUP, "v1", crd::PLURAL).ok_or_else(Failure::unknown_resource)?;
        let mut operation = Operation::of_system(served, Verb::Update, state.now());
        operation.manager = Cow::Borrowed(STATUS_MANAGER);
        operation.attributes.name = Some(&current.key.name);
        operation.attributes.subresource = Some("status");
        registry::record(&operation, Some(&conversion::parse(current)?), &mut value).await;
        value::remove_at(&mut value, &["metadata", "resourceVersion"]);
        let draft = at_rest::draft(&served.resource, value).map_err(|error| Failure::internal(error.to_string()))?;
        state.store.update_with(&storage(), &current.key, current.revision, draft, &[]).await.map(Some)
    };
    match written {
        Ok(object) => Ok(object),
        Err(WriteError::Conflict { .. }) => Ok(None),
        Err(error) => Err(Failure::internal(format!("its status could not be written: {error}"))),
    }
}

fn key(definition: &str) -> ObjectKey {
    ObjectKey::cluster(definition)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::authn;
    use crate::access::authz::Authorization;
    use jiff::Timestamp;
    use serde_json::json;
    use steersman_storage::{Memory, Options, Store};

    #[tokio::test]
    async fn the_server_owns_the_status_that_it_writes() {
        let store = Store::open(Arc::new(Memory::new()), Options::default()).await.unwrap();
        let (authentication, authorization) = (authn::Options::default(), Authorization::default());
        let plugins = crate::write::admission::Plugins::default().asked();
        let state = State::new(store, authentication, authorization, plugins, built_in(), Timestamp::now);
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "x", "uid": "u", "managedFields": [{
                "manager": "m", "operation": "Update", "apiVersion": "apiextensions.k8s.io/v1",
                "time": "2025-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:group": {}}},
            }]},
            "spec": {"group": "example.com"},
        });
        let stored = state.store.create(&storage(), &key("x"), definition.to_string().into()).await.unwrap();
        let mut value = conversion::parse(&stored).unwrap();
        value["status"] = json!({"conditions": [{"type": "Established", "status": "True"}]});
        let written = write(&state, &stored, value).await.unwrap().unwrap();
        let written = conversion::parse(&written).unwrap();
        let entries = written["metadata"]["managedFields"].as_array().unwrap();
        let own = entries.iter().find(|entry| entry["manager"] == STATUS_MANAGER).unwrap();
        assert_eq!((&own["operation"], &own["subresource"]), (&json!("Update"), &json!("status")));
        assert!(own["fieldsV1"]["f:status"]["f:conditions"].is_object() && own["fieldsV1"].get("f:spec").is_none());
        assert!(entries.iter().any(|entry| entry["manager"] == "m"));
    }
}
