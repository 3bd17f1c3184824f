//! Replays recorded steps of a real kube-apiserver about `managedFields` on a single object.

mod apply;
mod properties;
mod scale;
mod update;
mod versions;

use crate::ownership::fields::FieldSet;
use crate::ownership::managed::{
    ApplyError, Kind, OnConflict, OneVersion, Origin, Writer, keep_times, on_apply, on_update,
};
use crate::values::decode;
use crate::{Definitions, Schema};
use expect_test::Expect;
use serde_json::json;
use std::sync::LazyLock;
use steersman_machinery::value::{at, set_at};
use steersman_machinery::{Budget, GroupVersionKind, Value};

static STATUS: LazyLock<FieldSet> = LazyLock::new(|| FieldSet::of_names(&[&["status"]]));
static NOTHING: FieldSet = FieldSet::EMPTY;
static UNLIMITED: LazyLock<Budget> = LazyLock::new(Budget::unlimited);

/// A single object: writes go through the record, without any other processing.
struct OwnedObject {
    gvk: GroupVersionKind,
    schema: &'static Schema,
    origin: Origin,
    live: Option<Value>,
    seconds: u32,
}

impl OwnedObject {
    fn new(group: &str, kind: &str, definition: &str) -> OwnedObject {
        let schema = Definitions::builtin().schema(definition).unwrap();
        OwnedObject {
            gvk: GroupVersionKind::new(group, "v1", kind),
            schema,
            origin: Origin::BuiltIn,
            live: None,
            seconds: 0,
        }
    }

    fn config_map() -> OwnedObject {
        OwnedObject::new("", "ConfigMap", "io.k8s.api.core.v1.ConfigMap")
    }

    fn deployment() -> OwnedObject {
        OwnedObject::new("apps", "Deployment", "io.k8s.api.apps.v1.Deployment")
    }

    fn pod() -> OwnedObject {
        OwnedObject::new("", "Pod", "io.k8s.api.core.v1.Pod")
    }

    fn custom(schema: Value) -> OwnedObject {
        let schema: &'static Schema = Box::leak(Box::new(Schema::from_json(&schema)));
        let gvk = GroupVersionKind::new("g.example", "v1", "Thing");
        OwnedObject { gvk, schema, origin: Origin::Custom, live: None, seconds: 0 }
    }

    fn kind<'a>(&'a self, subresource: &str) -> Kind<'a> {
        let reset = if subresource == "status" { &NOTHING } else { &*STATUS };
        Kind {
            gvk: &self.gvk,
            schema: self.schema,
            origin: self.origin,
            reset,
            versions: &OneVersion,
            budget: &UNLIMITED,
        }
    }

    fn api_version(&self) -> String {
        let group = &self.gvk.group;
        if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1") }
    }

    fn object(&self, fields: Value) -> Value {
        let mut object = json!({"apiVersion": self.api_version(), "kind": self.gvk.kind, "metadata": {"name": "a"}});
        for (key, value) in fields.as_object().unwrap() {
            match (object.get_mut(key).and_then(Value::as_object_mut), value) {
                (Some(old), Value::Object(new)) => old.extend(new.clone()),
                _ => object[key] = value.clone(),
            }
        }
        object
    }

    /// Decodes like the server, which does this to every body and to the result of every patch or apply.
    fn decode(&self, object: &mut Value) {
        if self.origin == Origin::BuiltIn {
            let entries = at(object, &["metadata", "managedFields"]).cloned();
            decode::normalize(self.schema, object);
            // An empty record has a meaning, unlike other empty lists.
            entries.into_iter().for_each(|entries| {
                set_at(object, &["metadata", "managedFields"], entries);
            });
        }
    }

    fn time(&mut self) -> String {
        self.seconds += 1;
        format!("2026-01-01T00:00:{:02}Z", self.seconds % 60)
    }

    fn store(&mut self, mut object: Value) -> Value {
        self.decode(&mut object);
        set_at(&mut object, &["metadata", "uid"], json!("u"));
        if let Some(live) = &self.live {
            keep_times(live, &mut object);
        }
        self.live = Some(object.clone());
        object
    }

    fn try_apply(&mut self, manager: &str, fields: Value, on_conflict: OnConflict) -> Result<Value, ApplyError> {
        let applied = self.object(fields);
        self.try_apply_as_is(manager, "", &applied, on_conflict)
    }

    fn try_apply_as_is(
        &mut self,
        manager: &str,
        subresource: &str,
        applied: &Value,
        on_conflict: OnConflict,
    ) -> Result<Value, ApplyError> {
        let time = self.time();
        let writer = Writer { manager, subresource, time: &time };
        let object = on_apply(&self.kind(subresource), &writer, self.live.as_ref(), applied, on_conflict)?;
        Ok(self.store(object))
    }

    fn apply(&mut self, manager: &str, fields: Value) -> Value {
        self.try_apply(manager, fields, OnConflict::Refuse).unwrap()
    }

    fn put(&mut self, manager: &str, object: Value) -> Value {
        self.put_to(manager, "", object)
    }

    fn put_to(&mut self, manager: &str, subresource: &str, mut object: Value) -> Value {
        let time = self.time();
        self.decode(&mut object);
        let writer = Writer { manager, subresource, time: &time };
        // The fast path must give the same result as decoding all sets of fields.
        let mut anew = object.clone();
        crate::ownership::managed::update::record_anew(&self.kind(subresource), &writer, self.live.as_ref(), &mut anew)
            .unwrap();
        on_update(&self.kind(subresource), &writer, self.live.as_ref(), &mut object).unwrap();
        assert_eq!(object, anew);
        self.store(object)
    }

    fn create(&mut self, manager: &str, fields: Value) -> Value {
        let object = self.object(fields);
        self.put(manager, object)
    }

    /// Changes the live object like a patch.
    fn patch(&mut self, manager: &str, change: impl FnOnce(&mut Value)) -> Value {
        let mut object = self.live.clone().unwrap();
        change(&mut object);
        self.put(manager, object)
    }

    /// One line for each entry, without times.
    #[track_caller]
    fn check(&self, want: Expect) {
        want.assert_eq(&record(self.live.as_ref().unwrap()));
    }
}

fn record(object: &Value) -> String {
    let entries = at(object, &["metadata", "managedFields"]).and_then(Value::as_array).cloned().unwrap_or_default();
    let line = |entry: Value| {
        let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        let subresource = text("subresource");
        let slash = if subresource.is_empty() { "" } else { "/" };
        assert_eq!(entry["fieldsType"], "FieldsV1");
        format!(
            "{} {}{slash}{subresource} {} {}",
            text("manager"),
            text("operation"),
            text("apiVersion"),
            entry["fieldsV1"]
        )
    };
    entries.into_iter().map(line).collect::<Vec<_>>().join("\n")
}

#[track_caller]
fn check_conflict(outcome: Result<Value, ApplyError>, want: Expect) {
    let Err(ApplyError::Conflict { message, causes }) = outcome else {
        panic!("no conflict: {outcome:?}");
    };
    let causes: Vec<String> =
        causes.iter().map(|cause| format!("{} {} {}", cause.reason, cause.field, cause.message)).collect();
    want.assert_eq(&format!("{message}\n---\n{}", causes.join("\n")));
}
