//! The objects that the server itself creates and maintains: priority levels and flow schemas, the APIServices of its
//! groups, and the record of the day since which it tracks old tokens. Also ends the wait for initializers, and asks the
//! servers behind other APIServices.
//!
//! Each kind of object has a pass, which compares the stored objects with the wanted ones and writes the difference. A
//! pass runs when the server starts, after every change that it depends on, and from time to time. Its writes go
//! through the registry like those of clients. Objects that are only made once, at the first start, are in
//! `crate::background::bootstrap`.

pub(crate) mod api_services;
pub(crate) mod flow;
mod initializers;
mod remotes;
mod token_tracking;

use crate::shared::operation::Operation;
use crate::shared::request::options;
use crate::shared::status::Failure;
use crate::state::State;
use crate::write::registry::{self, Change};
use futures::future;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use steersman_kinds::catalog::{Served, Verb};
use steersman_machinery::value::str_at;
use steersman_machinery::{GroupResource, ObjectKey, Value};
use steersman_storage::{Scope, WatchError, Watcher};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The time between passes if nothing has changed.
const INTERVAL: Duration = Duration::from_secs(60);
/// The pause after a failed pass.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// The most events taken at a time. They only say that something has changed.
const EVENTS_MAX: usize = 1024;

/// Makes the missing objects, and maintains all of them until the server stops.
///
/// # Errors
/// When the store cannot be read or written.
pub(crate) async fn start(state: &Arc<State>) -> Result<[JoinHandle<()>; 3], Failure> {
    let mut flow_changes = Changes::new(state, &flow::resources());
    let mut service_changes = Changes::new(state, &api_services::resources());
    let mut catalog_changes = state.catalog_changes();
    future::try_join(flow::pass(state), api_services::make(state)).await?;
    let (for_flow, for_services) = (state.clone(), state.clone());
    let flow = tokio::spawn(async move {
        let state = for_flow;
        let mut wait = INTERVAL;
        while flow_changes.next(&state, None, wait).await {
            wait = interval(flow::pass(&state).await, "flow schemas and priority levels");
        }
    });
    let services = tokio::spawn(async move {
        let state = for_services;
        let mut keeper = api_services::Keeper::default();
        loop {
            let wait = interval(keeper.pass(&state).await, "APIServices");
            if !service_changes.next(&state, Some(&mut catalog_changes), wait).await {
                return;
            }
        }
    });
    Ok([flow, services, remotes::start(state)])
}

/// Starts the task that ends objects' waits for initializers when their time has passed, until the server stops. `None`
/// if the server runs without initializers.
pub(crate) fn start_initialization(state: &Arc<State>) -> Option<JoinHandle<()>> {
    let configured = state.initializers.clone()?;
    Some(tokio::spawn(initializers::run(state.clone(), configured)))
}

/// Makes the record of token tracking, and maintains it until the server stops. It is in the namespace kube-system,
/// which must exist.
///
/// # Errors
/// When the store cannot be read or written.
pub(crate) async fn start_tracking(state: &Arc<State>) -> Result<JoinHandle<()>, Failure> {
    token_tracking::pass(state).await?;
    let state = state.clone();
    Ok(tokio::spawn(async move {
        // Both arms are cancel-safe: they have no state.
        while tokio::select! { () = state.stopping() => false, () = tokio::time::sleep(INTERVAL) => true } {
            interval(token_tracking::pass(&state).await, "record of the tracking of tokens");
        }
    }))
}

/// The time until the next pass after one with this outcome.
fn interval(outcome: Result<(), Failure>, what: &str) -> Duration {
    match outcome {
        Ok(()) => INTERVAL,
        Err(failure) => {
            tracing::warn!(error = failure.status.message, "the {what} could not be brought up to date; trying again");
            RETRY_INTERVAL
        }
    }
}

/// Waits for changes of some resources.
struct Changes {
    watched: Vec<(GroupResource, Watcher)>,
}

impl Changes {
    /// Everything written from now on counts as a change.
    fn new(state: &State, resources: &[GroupResource]) -> Changes {
        let watched = resources.iter().filter_map(|resource| Some((resource.clone(), watcher(state, resource)?)));
        Changes { watched: watched.collect() }
    }

    /// Waits for a change, but no longer than `wait`; false if the server stops.
    async fn next(&mut self, state: &State, catalog: Option<&mut watch::Receiver<()>>, wait: Duration) -> bool {
        let catalog_changed = async {
            let is_followed = match catalog {
                Some(catalog) => catalog.changed().await.is_ok(),
                None => false,
            };
            if !is_followed {
                future::pending::<()>().await;
            }
        };
        let batches = self.watched.iter_mut().map(|(_, watcher)| Box::pin(watcher.next_batch(EVENTS_MAX)));
        // Every arm is cancel-safe: batches that are not returned are not consumed, and the others have no state.
        let lagging = tokio::select! {
            () = state.stopping() => return false,
            (batch, index, _) = future::select_all(batches) => match batch {
                Ok(_) => None,
                Err(WatchError::Closed) => return false,
                Err(WatchError::Lagged { .. }) => Some(index),
            },
            () = catalog_changed => None,
            () = tokio::time::sleep(wait) => None,
        };
        if let Some((resource, behind)) = lagging.and_then(|index| self.watched.get_mut(index))
            && let Some(watcher) = watcher(state, resource)
        {
            *behind = watcher;
        }
        true
    }
}

/// A watcher from now on. The current revision is always part of the history.
fn watcher(state: &State, resource: &GroupResource) -> Option<Watcher> {
    state.store.watch(resource, Scope::All, state.store.revision()).ok()
}

/// Creates an object without a namespace as the server itself. An existing object is no failure.
async fn create(state: &State, served: &Served, manager: &'static str, object: Value) -> Result<(), Failure> {
    let name = str_at(&object, &["metadata", "name"]).unwrap_or_default();
    if state.get_own(&served.resource.storage, &ObjectKey::cluster(name)).await?.is_some() {
        return Ok(());
    }
    let mut operation = Operation::of_system(served, Verb::Create, state.now());
    operation.manager = Cow::Borrowed(manager);
    let mut object = object;
    operation.strategy().default(operation.version(), &mut object, &operation.budget)?;
    match registry::write(state, &mut operation, &Change::Create(object)).await {
        Err(failure) if !failure.is_already_exists() => Err(failure),
        _ => Ok(()),
    }
}

/// Changes an object without a namespace, or a subresource of it, as the server itself. A missing object is no failure.
async fn edit(
    state: &State,
    served: &Served,
    subresource: Option<&str>,
    name: &str,
    manager: &'static str,
    change: &(dyn Fn(&mut Value) + Send + Sync),
) -> Result<(), Failure> {
    let key = ObjectKey::cluster(name);
    let system = Operation::of_system(served, Verb::Update, state.now());
    let mut operation = system.on(Verb::Update, &key);
    operation.attributes.subresource = subresource;
    operation.manager = Cow::Borrowed(manager);
    let edit = |_: &mut Operation<'_>, current: &registry::Current| {
        let mut object = current.requested().clone();
        change(&mut object);
        Ok(object)
    };
    match registry::write(state, &mut operation, &Change::Edit(&edit)).await {
        Err(failure) if failure.code() != 404 => Err(failure),
        _ => Ok(()),
    }
}

/// Deletes an object without a namespace. A missing object is no failure.
async fn delete(state: &State, served: &Served, name: &str) -> Result<(), Failure> {
    let key = ObjectKey::cluster(name);
    let system = Operation::of_system(served, Verb::Delete, state.now());
    let mut operation = system.on(Verb::Delete, &key);
    match registry::write(state, &mut operation, &Change::Delete(&options::Delete::default())).await {
        Err(failure) if failure.code() != 404 => Err(failure),
        _ => Ok(()),
    }
}
