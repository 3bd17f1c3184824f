//! Maintains the APIServices of the groups that this server serves.
//!
//! Follows upstream's autoregistration: APIServices of built-in groups are made when the server starts, those of
//! definitions come and go with the served groups. One that leads elsewhere although this server serves the version has no
//! effect, and says so.

use crate::background::upkeep::{create, delete, edit};
use crate::shared::aggregation::{priority, remotes};
use crate::shared::conversion;
use crate::shared::operation::seconds;
use crate::shared::status::Failure;
use crate::state::State;
use futures::future;
use serde_json::json;
use std::collections::HashMap;
use steersman_kinds::builtin::cluster::api_service::GROUP;
use steersman_kinds::builtin::cluster::resource_metrics;
use steersman_kinds::catalog::{Catalog, Served};
use steersman_machinery::value::{at, set_at};
use steersman_machinery::{GroupResource, Object, ObjectKey, Revision, Value};
use steersman_storage::{At, Page, Scope};

const PLURAL: &str = "apiservices";
const MANAGER: &str = "kube-apiserver";
/// The label of APIServices that the server maintains.
const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
/// The most APIServices written at a time.
const WRITES_AT_A_TIME: usize = 64;

/// The resources that a pass depends on, beside the catalog.
pub(super) fn resources() -> [GroupResource; 1] {
    [GroupResource::new(GROUP, PLURAL)]
}

/// A wanted APIService.
#[derive(Clone, Copy)]
struct DesiredApiService<'a> {
    group: &'a str,
    version: &'a str,
    owner: Owner,
    /// The priority of the group, and that of the version.
    priority: (i64, i64),
}

/// The owner of an APIService, in the value of its label.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Owner {
    /// The APIService is made when the server starts, and not maintained afterwards.
    Nobody,
    /// The server maintains the APIService.
    Server,
}

/// Maintains the APIServices, and remembers the revisions that are as wanted, so that they are not parsed at every
/// pass.
#[derive(Default)]
pub(super) struct Keeper {
    checked: HashMap<Box<str>, Revision>,
}

/// The APIServices of the catalog by name. As upstream, the group of APIServices itself has none.
fn wanted(catalog: &Catalog) -> HashMap<String, DesiredApiService<'_>> {
    let versions = catalog.groups().iter().flat_map(|group| group.served());
    let versions = versions.filter(|version| *version.group != *GROUP);
    let wanted = versions.filter_map(|version| {
        let (group, version, is_built_in) = (&*version.group, &*version.name, version.has_built_in());
        let (owner, priority) = match is_built_in {
            true => (Owner::Nobody, priority::of_built_in(group, version)?),
            false => (Owner::Server, priority::OF_CUSTOM),
        };
        Some((format!("{version}.{group}"), DesiredApiService { group, version, owner, priority }))
    });
    wanted.collect()
}

impl DesiredApiService<'_> {
    fn spec(&self) -> Value {
        let (group_priority, version_priority) = self.priority;
        let mut spec = json!({
            "version": self.version, "groupPriorityMinimum": group_priority, "versionPriority": version_priority,
        });
        if !self.group.is_empty() {
            spec["group"] = Value::from(self.group);
        }
        spec
    }
}

impl Owner {
    /// The value of the label.
    fn label(self) -> &'static str {
        match self {
            Owner::Nobody => "onstart",
            Owner::Server => "true",
        }
    }
}

/// Makes the missing ones of built-in groups. Concurrently, so that they share commits of the store.
///
/// # Errors
/// When the store cannot be written.
pub(super) async fn make(state: &State) -> Result<(), Failure> {
    let catalog = state.catalog();
    let Some(served) = catalog.find(GROUP, "v1", PLURAL) else { return Ok(()) };
    let missing = wanted(&catalog).into_iter().filter(|(_, one)| one.owner == Owner::Nobody);
    create_all(state, served, missing.collect()).await
}

impl Keeper {
    /// Brings all APIServices up to date.
    ///
    /// # Errors
    /// When the store cannot be read or written.
    pub(super) async fn pass(&mut self, state: &State) -> Result<(), Failure> {
        state.sync().await?;
        offer_resource_metrics(state);
        let catalog = state.catalog();
        let Some(served) = catalog.find(GROUP, "v1", PLURAL) else { return Ok(()) };
        let mut wanted = wanted(&catalog);
        let mut checked = HashMap::new();
        let list = state.store.list(&served.resource.storage, &Scope::All, At::Latest, Page::ALL);
        for object in list.map_err(|error| Failure::of_read(&error))?.objects {
            let name = &*object.key.name;
            match (object.meta().label(MANAGED), wanted.remove(name)) {
                (Some(label), None) if is_taken_over(label, &object)? => judge(state, served, &object).await?,
                (Some(_), None) => delete(state, served, name).await?,
                (Some(_), Some(wanted)) => {
                    if self.checked.get(name) != Some(&object.revision) {
                        match wanted.owner {
                            Owner::Server => restore(state, served, &object, wanted).await?,
                            // It may lead to another server, or have done so until now.
                            Owner::Nobody => judge(state, served, &object).await?,
                        }
                    }
                    checked.insert(object.key.name.clone(), object.revision);
                }
                // It belongs to a user and is left alone.
                (None, _) => judge(state, served, &object).await?,
            }
        }
        self.checked = checked;
        let missing = wanted.into_iter().filter(|(_, one)| one.owner == Owner::Server).collect();
        create_all(state, served, missing).await
    }
}

async fn create_all(
    state: &State,
    served: &Served,
    missing: Vec<(String, DesiredApiService<'_>)>,
) -> Result<(), Failure> {
    for some in missing.chunks(WRITES_AT_A_TIME) {
        let writes = some.iter().map(|(name, wanted)| {
            let object = json!({
                "kind": "APIService", "apiVersion": served.api_version(),
                "metadata": {"name": name, "labels": {MANAGED: wanted.owner.label()}}, "spec": wanted.spec(),
            });
            create(state, served, MANAGER, object)
        });
        future::try_join_all(writes).await?;
    }
    Ok(())
}

/// Whether an APIService that the server made at a start, by its label, now belongs to another server.
fn is_taken_over(label: &str, found: &Object) -> Result<bool, Failure> {
    Ok(label == Owner::Nobody.label() && at(&conversion::parse(found)?, &["spec", "service"]).is_some())
}

/// Restores the spec of an APIService that the server maintains.
async fn restore(state: &State, served: &Served, found: &Object, wanted: DesiredApiService<'_>) -> Result<(), Failure> {
    let tree = conversion::parse(found)?;
    let spec = wanted.spec();
    if at(&tree, &["spec"]) == Some(&spec) {
        return Ok(());
    }
    let set = |service: &mut Value| {
        set_at(service, &["spec"], spec.clone());
    };
    edit(state, served, None, &found.key.name, MANAGER, &set).await
}

/// Writes into an APIService of a user that it is available, if this server answers for it. What is true of other servers
/// `crate::background::upkeep::remotes` finds out.
async fn judge(state: &State, served: &Served, found: &Object) -> Result<(), Failure> {
    let Some(remote) = state.remotes.named(&found.key.name) else {
        let wanted = condition("True", "Local", "Local APIServices are always available".to_owned());
        return write_condition(state, served, found, &wanted).await;
    };
    if !remotes::is_local(&state.catalog(), &remote.group, &remote.version) {
        return Ok(());
    }
    let why = format!(
        "this server serves {}/{} itself and does not pass requests for it on: delete what defines it here, or this APIService",
        remote.group, remote.version
    );
    write_condition(state, served, found, &condition("False", "ServedLocally", why)).await
}

/// Writes the condition `Available` into the APIService of another server.
///
/// # Errors
/// When the store cannot be read or written.
pub(super) async fn set_available(state: &State, name: &str, wanted: &Value) -> Result<(), Failure> {
    let catalog = state.catalog();
    let Some(served) = catalog.find(GROUP, "v1", PLURAL) else { return Ok(()) };
    let found = state.get(&served.resource.storage, &ObjectKey::cluster(name)).await?;
    let Some(found) = found else { return Ok(()) };
    write_condition(state, served, &found, wanted).await
}

async fn write_condition(state: &State, served: &Served, found: &Object, wanted: &Value) -> Result<(), Failure> {
    let tree = conversion::parse(found)?;
    if current(&tree).is_some_and(|current| is_same(current, wanted)) {
        return Ok(());
    }
    let now = seconds(state.now());
    let set = |service: &mut Value| set_condition(service, wanted, &now);
    edit(state, served, Some("status"), &found.key.name, MANAGER, &set).await
}

pub(super) fn condition(status: &str, reason: &str, message: String) -> Value {
    json!({"type": "Available", "status": status, "reason": reason, "message": message})
}

fn current(service: &Value) -> Option<&Value> {
    let mut all = at(service, &["status", "conditions"]).and_then(Value::as_array).into_iter().flatten();
    all.find(|one| one["type"] == "Available")
}

fn is_same(a: &Value, b: &Value) -> bool {
    ["status", "reason", "message"].iter().all(|field| a[field] == b[field])
}

/// Sets the condition. Its transition time changes only with its status.
fn set_condition(service: &mut Value, wanted: &Value, now: &str) {
    let time = match current(service) {
        Some(current) if current["status"] == wanted["status"] => current["lastTransitionTime"].clone(),
        _ => Value::from(now),
    };
    let mut wanted = wanted.clone();
    wanted["lastTransitionTime"] = time;
    let all = at(service, &["status", "conditions"]).and_then(Value::as_array).into_iter().flatten();
    let mut all: Vec<Value> = all.filter(|one| one["type"] != "Available").cloned().collect();
    all.push(wanted);
    set_at(service, &["status", "conditions"], Value::from(all));
}

/// Serves resource metrics if there is a source, unless an APIService says that another server serves them.
pub(crate) fn offer_resource_metrics(state: &State) {
    let Some(offer) = &state.resource_metrics else { return };
    let is_elsewhere =
        state.remotes.named(&format!("{}.{}", resource_metrics::VERSION, resource_metrics::GROUP)).is_some();
    let next = |catalog: &Catalog| match is_elsewhere {
        true => offer.removed_from(catalog),
        false => offer.added_to(catalog),
    };
    if next(&state.catalog()).is_some() {
        state.serve_next(|catalog| next(catalog).unwrap_or_else(|| catalog.clone()));
    }
}
