//! Keeps what is served in step with the CustomResourceDefinitions in the store.
//!
//! One task, the [`follower`], reads every change of a definition once: it gives the definition its status and swaps in a
//! catalog with its resource. It keeps what it needs of each definition, so that a change costs the definition that changed
//! and not those that are there. Work that takes long has tasks of its own: [`deletion`] deletes the objects of a definition
//! on its way out, [`rewriting`] gives stored objects the form of a definition that has changed.
//!
//! The writer of a definition is answered when the definition is in force, so that the next request can use it.

mod deletion;
mod follower;
mod known;
mod rewriting;

use crate::at_rest;
use crate::catalog::Catalog;
use crate::conversion;
use crate::crd;
use crate::definitions::follower::Follower;
use crate::in_force::Reporting;
use crate::registry;
use crate::state::State;
use crate::status::Failure;
use std::sync::Arc;
use steersman_machinery::{GroupResource, Object, ObjectKey, Value, value};
use steersman_storage::WriteError;
use tokio::task::JoinHandle;

/// What is served without any definition.
pub(crate) fn built_in() -> Catalog {
    Catalog::new(crate::builtin::resources().into_iter().chain([crd::resource()]))
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

/// Reads a stored definition, changes it and writes it back, unless somebody else has changed it since: the follower
/// hears of that, and comes back to it. A definition that is being deleted goes with its last finalizer.
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

/// The tree of a stored definition. How often that is done is counted: it is what definitions cost.
fn parse(state: &State, object: &Object) -> Result<Value, Failure> {
    state.definitions.count_parsed();
    conversion::parse(object)
}

async fn write(state: &State, current: &Object, mut value: Value) -> Result<Option<Arc<Object>>, Failure> {
    let written = if registry::is_done_waiting(&value) {
        state.store.delete(&storage(), &current.key, current.revision).await.map(|_| None)
    } else {
        value::remove_at(&mut value, &["metadata", "resourceVersion"]);
        // A kind that is built in is served for as long as the server runs.
        let catalog = state.catalog();
        let served = catalog.find(crd::GROUP, "v1", crd::PLURAL).ok_or_else(Failure::unknown_resource)?;
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
