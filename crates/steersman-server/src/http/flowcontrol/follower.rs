//! Keeps priority and fairness up to date with the FlowSchemas and PriorityLevelConfigurations in the store.
//!
//! One task reads all of them again when one has changed: there are few, and changes are rare. It writes the condition
//! `Dangling` of a schema whose level does not exist, and divides the seats again every ten seconds. Unreadable objects
//! are left out and logged; the mandatory levels and schemas are in force in any case.

use crate::http::flowcontrol::{FlowControl, spec};
use crate::shared::operation::Operation;
use crate::shared::status::Failure;
use crate::state::State;
use crate::write::registry::{self, Change};
use futures::{StreamExt as _, stream};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use steersman_kinds::catalog::Verb;
use steersman_machinery::{GroupResource, Object, Revision, value};
use steersman_storage::{At, Page, Scope, WatchError, Watcher};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};

const GROUP: &str = "flowcontrol.apiserver.k8s.io";
const VERSION: &str = "v1";
const SCHEMAS: &str = "flowschemas";
const LEVELS: &str = "prioritylevelconfigurations";
/// The field manager of the statuses, named as upstream's.
const STATUS_MANAGER: &str = "api-priority-and-fairness-config-consumer-v1";

/// The interval at which seats are divided again.
const DIVISION_INTERVAL: Duration = Duration::from_secs(10);
/// The pause after a failure.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);
/// The most statuses written at a time, so that they share commits of the store.
const WRITES_AT_A_TIME: usize = 64;
/// The most changes taken at a time.
const BATCH_MAX: usize = 1024;

/// Puts the objects in the store in force and keeps doing so until the server stops.
///
/// # Errors
/// When the store cannot be read.
pub(crate) async fn start(state: &Arc<State>, control: Arc<FlowControl>) -> Result<JoinHandle<()>, Failure> {
    let follower = Follower { state: state.clone(), control };
    let revision = follower.read_all().await?;
    Ok(tokio::spawn(follower.run(revision)))
}

struct Follower {
    state: Arc<State>,
    control: Arc<FlowControl>,
}

impl Drop for Follower {
    /// Ends all waits for objects to come into force, however the task ends.
    fn drop(&mut self) {
        self.control.progress().end();
    }
}

impl Follower {
    async fn run(self, from: Revision) {
        let mut after = from;
        let mut division = tokio::time::interval_at(Instant::now() + DIVISION_INTERVAL, DIVISION_INTERVAL);
        division.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.state.is_stopping() {
            let watchers = [SCHEMAS, LEVELS].map(|name| self.state.store.watch(&storage(name), Scope::All, after));
            if let [Ok(schemas), Ok(levels)] = watchers {
                self.follow([schemas, levels], &mut division).await;
            }
            if self.state.is_stopping() {
                return;
            }
            match self.read_all().await {
                Ok(revision) => after = revision,
                Err(failure) => {
                    tracing::error!(message = failure.status.message, "flow schemas cannot be read; trying again");
                    // Both arms are cancel-safe: they have no state.
                    tokio::select! {
                        () = self.state.stopping() => return,
                        () = tokio::time::sleep(RETRY_INTERVAL) => {}
                    }
                }
            }
        }
    }

    /// Waits until an object has changed, or until the server stops.
    async fn follow(&self, watchers: [Watcher; 2], division: &mut tokio::time::Interval) {
        let [mut schemas, mut levels] = watchers;
        loop {
            // All arms are cancel-safe: a batch that is not returned is not consumed, and an interval keeps its time.
            tokio::select! {
                () = self.state.stopping() => return,
                changed = schemas.next_batch(BATCH_MAX) => return self.note(changed).await,
                changed = levels.next_batch(BATCH_MAX) => return self.note(changed).await,
                _ = division.tick() => self.control.divide(),
            }
        }
    }

    async fn note<T>(&self, changed: Result<T, WatchError>) {
        if let Err(WatchError::Closed) = changed {
            // The store is closed before the server stops only if the server is being abandoned.
            self.state.stopping().await;
        }
    }

    /// Puts everything in the store in force. Returns the revision that was read.
    async fn read_all(&self) -> Result<Revision, Failure> {
        let revision = self.state.sync().await?;
        let list = |name: &str| {
            let list = self.state.store.list(&storage(name), &Scope::All, At::Latest, Page::ALL);
            list.map_err(|error| Failure::of_read(&error))
        };
        let (schemas, levels) = (list(SCHEMAS)?, list(LEVELS)?);
        let readable = read(&levels.objects, spec::Level::read);
        let names: BTreeSet<Box<str>> = readable.iter().map(|level| level.name.clone()).collect();
        self.control.apply(readable, read(&schemas.objects, spec::Schema::read));
        // A watch from here sees the written statuses as changes; they are read once more and found to be right.
        let revision = revision.min(schemas.revision).min(levels.revision);
        self.control.progress().report(revision);
        let updates: Vec<_> = schemas.objects.iter().map(|schema| self.update_status(schema, &names)).collect();
        stream::iter(updates).buffer_unordered(WRITES_AT_A_TIME).collect::<()>().await;
        Ok(revision)
    }

    /// Writes the condition `Dangling` of a schema, unless it is already right.
    async fn update_status(&self, object: &Object, levels: &BTreeSet<Box<str>>) {
        let Ok(schema) = spec::Schema::read(object) else { return };
        let is_dangling = !levels.contains(&schema.level) && !matches!(&*schema.level, spec::EXEMPT | spec::CATCH_ALL);
        let Ok(current) = serde_json::from_slice::<Value>(object.json()) else { return };
        let now = crate::shared::operation::seconds(self.state.now());
        if with_condition(&current, &schema.level, is_dangling, &now).is_none() {
            return;
        }
        let catalog = self.state.catalog();
        let Some(served) = catalog.find(GROUP, VERSION, SCHEMAS) else { return };
        let mut system = Operation::of_system(served, Verb::Update, self.state.now());
        system.attributes.name = Some(&object.key.name);
        system.attributes.subresource = Some("status");
        let mut owner = Operation::of_system(served, Verb::Patch, self.state.now());
        owner.manager = Cow::Borrowed(STATUS_MANAGER);
        owner.options.is_forced = true;
        owner.attributes.name = Some(&object.key.name);
        owner.attributes.subresource = Some("status");
        let assign = |schema_now: &mut Value| {
            let level = value::str_at(schema_now, &["spec", "priorityLevelConfiguration", "name"]).unwrap_or_default();
            // A schema that names another level by now has changed, so it is examined again.
            if level == &*schema.level
                && let Some(mut changed) = with_condition(schema_now, &schema.level, is_dangling, &now)
            {
                own_condition(&owner, schema_now, &mut changed)?;
                *schema_now = changed;
            }
            Ok(())
        };
        match registry::write(&self.state, &mut system, &Change::Assign(&assign)).await {
            Ok(_) => {}
            // It was deleted in the meantime.
            Err(failure) if failure.code() == 404 => {}
            Err(failure) => {
                let message = &failure.status.message;
                tracing::warn!(schema = %object.key.name, message, "the status of a flow schema cannot be written");
            }
        }
    }
}

/// The storage of the resources that [`FlowControl::progress`] is about.
pub(crate) fn resources() -> [GroupResource; 2] {
    [SCHEMAS, LEVELS].map(storage)
}

fn storage(name: &str) -> GroupResource {
    GroupResource::new(GROUP, name)
}

fn read<T>(objects: &[Arc<Object>], read: impl Fn(&Object) -> Result<T, String>) -> Vec<T> {
    let one = |object: &Arc<Object>| {
        let found = read(object);
        found.inspect_err(|why| tracing::warn!(name = %object.key.name, %why, "left out of priority and fairness")).ok()
    };
    objects.iter().filter_map(one).collect()
}

/// Records who owns the condition `Dangling`, as an apply of it would.
fn own_condition(owner: &Operation<'_>, schema: &Value, changed: &mut Value) -> Result<(), Failure> {
    const MANAGED_FIELDS: [&str; 2] = ["metadata", "managedFields"];
    let conditions = value::at(changed, &["status", "conditions"]).and_then(Value::as_array).into_iter().flatten();
    let own: Vec<&Value> = conditions.filter(|condition| condition["type"] == "Dangling").collect();
    let applied = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "FlowSchema",
        "metadata": {"name": owner.name()}, "status": {"conditions": own},
    });
    let mut merged = registry::apply(owner, Some(schema), &applied)?;
    if let Some(record) = value::remove_at(&mut merged, &MANAGED_FIELDS) {
        value::set_at(changed, &MANAGED_FIELDS, record);
    }
    Ok(())
}

/// The schema with the condition `Dangling`; `None` if it already has it.
fn with_condition(schema: &Value, level: &str, is_dangling: bool, now: &str) -> Option<Value> {
    let (status, reason, end) = match is_dangling {
        true => ("True", "NotFound", "but there is no such object"),
        false => ("False", "Found", "and it exists"),
    };
    let message = format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?} {end}");
    let conditions = value::at(schema, &["status", "conditions"]).and_then(Value::as_array);
    let is_it = |condition: &&Value| value::str_at(condition, &["type"]) == Some("Dangling");
    let before = conditions.and_then(|conditions| conditions.iter().find(is_it));
    let is_same =
        |key: &str, wanted: &str| before.is_some_and(|condition| value::str_at(condition, &[key]) == Some(wanted));
    if is_same("status", status) && is_same("reason", reason) && is_same("message", &message) {
        return None;
    }
    let since = before.filter(|_| is_same("status", status)).and_then(|one| one.get("lastTransitionTime"));
    let since = since.cloned().unwrap_or_else(|| now.into());
    let condition = json!({
        "type": "Dangling", "status": status, "lastTransitionTime": since, "reason": reason, "message": message,
    });
    let others = conditions.into_iter().flatten().filter(|condition| !is_it(condition)).cloned();
    let conditions: Vec<Value> = others.chain([condition]).collect();
    let mut changed = schema.clone();
    value::set_at(&mut changed, &["status", "conditions"], conditions.into());
    Some(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_owns_the_condition_that_it_writes() {
        let catalog = crate::background::definitions::built_in();
        let served = catalog.find(GROUP, VERSION, SCHEMAS).unwrap();
        let mut owner = Operation::of_system(served, Verb::Patch, "2026-01-01T00:00:00Z".parse().unwrap());
        owner.manager = Cow::Borrowed(STATUS_MANAGER);
        owner.options.is_forced = true;
        owner.attributes.name = Some("s");
        owner.attributes.subresource = Some("status");
        let schema = json!({
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
            "metadata": {"name": "s", "managedFields": [{
                "manager": "m", "operation": "Update", "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
                "time": "2025-01-01T00:00:00Z", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {"f:matchingPrecedence": {}}},
            }]},
            "spec": {"matchingPrecedence": 5, "priorityLevelConfiguration": {"name": "l"}},
        });
        let mut changed = with_condition(&schema, "l", true, "2026-01-01T00:00:00Z").unwrap();
        own_condition(&owner, &schema, &mut changed).unwrap();
        let entries = changed["metadata"]["managedFields"].as_array().unwrap();
        let own = entries.iter().find(|entry| entry["manager"] == STATUS_MANAGER).unwrap();
        assert_eq!((&own["operation"], &own["subresource"]), (&json!("Apply"), &json!("status")));
        let fields = ["f:lastTransitionTime", "f:message", "f:reason", "f:status", "f:type"];
        let condition = own["fieldsV1"].pointer("/f:status/f:conditions/k:{\"type\":\"Dangling\"}").unwrap();
        assert!(fields.iter().all(|field| condition.get(*field).is_some()), "{own}");
        assert!(entries.iter().any(|entry| entry["manager"] == "m"));
    }

    #[test]
    fn a_condition_says_whether_the_level_exists_and_since_when() {
        let schema = json!({"spec": {}, "status": {"conditions": [{"type": "Other", "status": "True"}]}});
        let dangling = with_condition(&schema, "l", true, "t1").unwrap();
        assert_eq!(
            dangling["status"]["conditions"],
            json!([{"type": "Other", "status": "True"}, {
                "type": "Dangling", "status": "True", "lastTransitionTime": "t1", "reason": "NotFound",
                "message": "This FlowSchema references the PriorityLevelConfiguration object named \"l\" but there is no such object",
            }])
        );
        assert_eq!(with_condition(&dangling, "l", true, "t2"), None);
        let other = with_condition(&dangling, "m", true, "t2").unwrap();
        assert_eq!(other["status"]["conditions"][1]["lastTransitionTime"], "t1");
        let found = with_condition(&dangling, "l", false, "t2").unwrap();
        assert_eq!(found["status"]["conditions"][1]["lastTransitionTime"], "t2");
        assert_eq!(found["status"]["conditions"][1]["reason"], "Found");
    }
}
