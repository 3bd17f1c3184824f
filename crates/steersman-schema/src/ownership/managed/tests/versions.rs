//! Tests of records in other versions than the request's.

use crate::ownership::managed::tests::{OwnedObject, check_conflict, record};
use crate::ownership::managed::{Kind, OnConflict, OneVersion, Versions, Writer, on_apply, on_update};
use crate::{Definitions, Schema};
use expect_test::expect;
use serde_json::json;
use steersman_machinery::value::{at, remove_at, set_at};
use steersman_machinery::{GroupVersionKind, Value};

/// A kind whose `spec.size` is called `spec.amount` in `v2`.
struct Renamed {
    v2: Schema,
}

fn renamed() -> Renamed {
    let spec = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"amount": {"type": "integer"}, "name": {"type": "string"}}}}});
    Renamed { v2: Schema::from_json(&spec) }
}

impl Versions for Renamed {
    fn schema(&self, api_version: &str) -> Option<&Schema> {
        (api_version == "g.example/v2").then_some(&self.v2)
    }

    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, String> {
        let mut object = object.clone();
        let (from, to) = if api_version == "g.example/v2" { ("size", "amount") } else { ("amount", "size") };
        if let Some(value) = remove_at(&mut object, &["spec", from]) {
            set_at(&mut object, &["spec", to], value);
        }
        set_at(&mut object, &["apiVersion"], json!(api_version));
        Ok(object)
    }
}

#[test]
fn owners_keep_the_version_they_wrote_in() {
    let owned = OwnedObject::custom(json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"size": {"type": "integer"}, "name": {"type": "string"}}}}}));
    let versions = renamed();
    let kind = Kind { versions: &versions, ..owned.kind("") };
    let v2 = GroupVersionKind::new("g.example", "v2", "Thing");
    let v1_as_other = &OnlyV1(owned.schema, &versions);
    let in_v2 = Kind { gvk: &v2, schema: &versions.v2, versions: v1_as_other, ..kind };
    let writer = |manager| Writer { manager, subresource: "", time: "2026-01-01T00:00:00Z" };

    let applied_v2 = json!({"apiVersion": "g.example/v2", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"amount": 3, "name": "x"}});
    let stored_v2 = on_apply(&in_v2, &writer("two"), None, &applied_v2, OnConflict::Refuse).unwrap();
    let stored = versions.convert(&stored_v2, "g.example/v1").unwrap();

    let applied_v1 = owned.object(json!({"spec": {"size": 4}}));
    check_conflict(
        on_apply(&kind, &writer("one"), Some(&stored), &applied_v1, OnConflict::Refuse),
        expect![[r#"
            Apply failed with 1 conflict: conflict with "two": .spec.amount
            ---
            FieldManagerConflict .spec.amount conflict with "two""#]],
    );
    // Applying nothing in the other version removes the fields that were applied in the first.
    let nothing = owned.object(json!({}));
    let object = on_apply(&kind, &writer("two"), Some(&stored), &nothing, OnConflict::Refuse).unwrap();
    assert_eq!(at(&object, &["spec"]), None);
    assert_eq!(object["apiVersion"], "g.example/v1");
    // Records in a version that is no longer served are dropped.
    let gone = Kind { versions: &OneVersion, ..kind };
    let object = on_apply(&gone, &writer("one"), Some(&stored), &applied_v1, OnConflict::Refuse).unwrap();
    assert_eq!(record(&object), r#"one Apply g.example/v1 {"f:spec":{"f:size":{}}}"#);
}

/// A kind whose conversion fails.
struct Broken;

impl Versions for Broken {
    fn schema(&self, _api_version: &str) -> Option<&Schema> {
        Definitions::builtin().schema("io.k8s.api.core.v1.ConfigMap")
    }

    fn convert(&self, _object: &Value, _api_version: &str) -> Result<Value, String> {
        Err("the conversion webhook does not answer".to_owned())
    }
}

#[test]
fn an_object_that_does_not_convert_keeps_its_record() {
    let mut owned = OwnedObject::config_map();
    owned.create("one", json!({"data": {"a": "1"}}));
    set_at(&mut owned.live.as_mut().unwrap()["metadata"]["managedFields"][0], &["apiVersion"], json!("v0"));
    let mut object = owned.live.clone().unwrap();
    object["data"]["a"] = json!("2");
    let writer = Writer { manager: "two", subresource: "", time: "2026-01-01T00:00:00Z" };
    let kind = Kind { versions: &Broken, ..owned.kind("") };
    let error = on_update(&kind, &writer, owned.live.as_ref(), &mut object).unwrap_err();
    assert_eq!(error.to_string(), "the conversion webhook does not answer");
    assert_eq!(record(&object), r#"one Update v0 {"f:data":{".":{},"f:a":{}}}"#);
    let applied = owned.object(json!({"data": {"a": "3"}}));
    let error = on_apply(&kind, &writer, owned.live.as_ref(), &applied, OnConflict::Refuse).unwrap_err();
    assert_eq!(error.to_string(), "failed to compare objects: the conversion webhook does not answer");
}

/// The kind for requests in `v2`.
struct OnlyV1<'a>(&'a Schema, &'a Renamed);

impl Versions for OnlyV1<'_> {
    fn schema(&self, api_version: &str) -> Option<&Schema> {
        (api_version == "g.example/v1").then_some(self.0)
    }

    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, String> {
        self.1.convert(object, api_version)
    }
}
