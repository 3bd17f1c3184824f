//! The steps of `core/server-side-apply.walk`, `core/object-life.walk` and others, replayed on values.

use crate::decode;
use crate::fields::FieldSet;
use crate::managed::scale;
use crate::managed::{
    ApplyError, Kind, OnConflict, OneVersion, Origin, Versions, Writer, keep_times, on_apply, on_update,
};
use crate::{Definitions, Schema};
use expect_test::{Expect, expect};
use proptest::collection::{btree_map, vec};
use proptest::prelude::{Just, Strategy, prop_oneof, proptest};
use proptest::{prop_assert, prop_assert_eq};
use serde_json::json;
use std::sync::LazyLock;
use steersman_machinery::value::{at, remove_at, set_at};
use steersman_machinery::{GroupVersionKind, Value};

static STATUS: LazyLock<FieldSet> = LazyLock::new(|| FieldSet::of_names(&[&["status"]]));
static NOTHING: FieldSet = FieldSet::EMPTY;

/// One object in a world of its own: writes go through the record, nothing else is done to them.
struct World {
    gvk: GroupVersionKind,
    schema: &'static Schema,
    origin: Origin,
    live: Option<Value>,
    seconds: u32,
}

impl World {
    fn new(group: &str, kind: &str, definition: &str) -> World {
        let schema = Definitions::builtin().schema(definition).unwrap();
        World { gvk: GroupVersionKind::new(group, "v1", kind), schema, origin: Origin::BuiltIn, live: None, seconds: 0 }
    }

    fn config_map() -> World {
        World::new("", "ConfigMap", "io.k8s.api.core.v1.ConfigMap")
    }

    fn deployment() -> World {
        World::new("apps", "Deployment", "io.k8s.api.apps.v1.Deployment")
    }

    fn pod() -> World {
        World::new("", "Pod", "io.k8s.api.core.v1.Pod")
    }

    fn custom(schema: Value) -> World {
        let schema: &'static Schema = Box::leak(Box::new(Schema::from_json(&schema)));
        let gvk = GroupVersionKind::new("g.example", "v1", "Thing");
        World { gvk, schema, origin: Origin::Custom, live: None, seconds: 0 }
    }

    fn kind<'a>(&'a self, subresource: &str) -> Kind<'a> {
        let reset = if subresource == "status" { &NOTHING } else { &*STATUS };
        Kind { gvk: &self.gvk, schema: self.schema, origin: self.origin, reset, versions: &OneVersion }
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

    /// What the server does to every body and to what a patch or apply made.
    fn decode(&self, object: &mut Value) {
        if self.origin == Origin::BuiltIn {
            let entries = at(object, &["metadata", "managedFields"]).cloned();
            decode::normalize(self.schema, object);
            // An empty record means something, unlike other empty lists.
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
        on_update(&self.kind(subresource), &writer, self.live.as_ref(), &mut object).unwrap();
        self.store(object)
    }

    fn create(&mut self, manager: &str, fields: Value) -> Value {
        let object = self.object(fields);
        self.put(manager, object)
    }

    /// Changes the live object as a patch does.
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

// === updates ===

#[test]
fn a_creator_owns_what_the_object_has_and_the_maps_it_made() {
    let mut world = World::config_map();
    world.create("walk", json!({"metadata": {"labels": {"a": "1"}}, "data": {"k": "v"}, "binaryData": {"b": "AAE="}}));
    world.check(expect![[
        r#"walk Update v1 {"f:binaryData":{".":{},"f:b":{}},"f:data":{".":{},"f:k":{}},"f:metadata":{"f:labels":{".":{},"f:a":{}}}}"#
    ]]);
}

#[test]
fn a_creator_of_a_pod_owns_defaults_but_not_the_structs_that_are_always_there() {
    let mut world = World::pod();
    world.create(
        "walk",
        json!({
            "metadata": {"labels": {"app": "myapp"}},
            "spec": {
                "containers": [{
                    "command": ["sh"], "image": "busybox", "imagePullPolicy": "Always", "name": "c", "resources": {},
                    "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}],
                "dnsPolicy": "ClusterFirst", "enableServiceLinks": true, "restartPolicy": "Always",
                "schedulerName": "default-scheduler", "securityContext": {}, "terminationGracePeriodSeconds": 30
            },
            "status": {}
        }),
    );
    world.check(expect![[
        r#"walk Update v1 {"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:command":{},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:resources":{},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},"f:enableServiceLinks":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}}"#
    ]]);
}

#[test]
fn a_creator_of_a_custom_resource_owns_its_spec_as_well() {
    let mut world = World::custom(json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"cidr": {"type": "string"}}}}}));
    world.create("walk", json!({"spec": {"cidr": "10.0.0.0/8"}}));
    world.check(expect![[r#"walk Update g.example/v1 {"f:spec":{".":{},"f:cidr":{}}}"#]]);
}

#[test]
fn a_custom_resource_without_a_schema_is_owned_field_by_field() {
    let mut world = World::custom(json!({}));
    world.create("walk", json!({"spec": {"cidr": "10.0.0.0/8", "tags": ["a"]}}));
    world.patch("two", |object| object["spec"]["tags"] = json!(["b"]));
    world.check(expect![[r#"
        walk Update g.example/v1 {"f:spec":{".":{},"f:cidr":{}}}
        two Update g.example/v1 {"f:spec":{"f:tags":{}}}"#]]);
}

#[test]
fn an_update_takes_what_it_changes_and_forgets_what_it_removes() {
    let mut world = World::config_map();
    world.create("one", json!({"data": {"a": "1", "b": "2", "c": "3"}}));
    world.patch("two", |object| object["data"] = json!({"a": "1", "b": "two", "d": "4"}));
    world.check(expect![[r#"
        one Update v1 {"f:data":{".":{},"f:a":{}}}
        two Update v1 {"f:data":{"f:b":{},"f:d":{}}}"#]]);
}

#[test]
fn a_write_that_changes_nothing_keeps_record_and_times() {
    let mut world = World::config_map();
    let before = world.create("one", json!({"data": {"a": "1"}}));
    assert_eq!(world.patch("two", |_| {}), before);
    assert_eq!(world.patch("one", |object| object["data"]["a"] = json!("1")), before);
}

#[test]
fn a_client_that_does_not_know_the_record_does_not_lose_it() {
    let mut world = World::config_map();
    world.create("one", json!({"data": {"a": "1"}}));
    let object = world.object(json!({"data": {"a": "1"}, "metadata": {"uid": "u"}}));
    world.put("two", object);
    world.check(expect![[r#"one Update v1 {"f:data":{".":{},"f:a":{}}}"#]]);
}

#[test]
fn an_empty_record_or_entry_forgets_all_until_somebody_applies() {
    for reset in [json!([]), json!([{}])] {
        let mut world = World::config_map();
        world.create("one", json!({"data": {"a": "1"}}));
        world.patch("two", |object| object["metadata"]["managedFields"] = reset);
        world.patch("two", |object| object["data"]["b"] = json!("2"));
        world.check(expect![""]);
        world.apply("three", json!({"data": {"a": "1"}}));
        world.check(expect![[r#"
            three Apply v1 {"f:data":{"f:a":{}}}
            before-first-apply Update v1 {"f:data":{".":{},"f:a":{},"f:b":{}}}"#]]);
    }
}

#[test]
fn an_object_with_nothing_to_own_is_not_recorded() {
    let mut world = World::config_map();
    world.create("one", json!({}));
    world.patch("two", |object| object["data"] = json!({"a": "1"}));
    world.check(expect![""]);
}

#[test]
fn a_record_that_a_client_sends_counts_and_one_it_garbles_does_not() {
    let mut world = World::config_map();
    world.create("one", json!({"data": {"a": "1"}}));
    world.patch("two", |object| object["metadata"]["managedFields"][0]["manager"] = json!("renamed"));
    world.check(expect![[r#"renamed Update v1 {"f:data":{".":{},"f:a":{}}}"#]]);
    world.patch("two", |object| object["metadata"]["managedFields"][0]["operation"] = json!("Steal"));
    world.check(expect![[r#"renamed Update v1 {"f:data":{".":{},"f:a":{}}}"#]]);
}

#[test]
fn the_status_is_owned_through_its_subresource_only() {
    let mut world = World::deployment();
    world.create("one", json!({"spec": {"replicas": 1}, "status": {"replicas": 3}}));
    world.check(expect![[r#"one Update apps/v1 {"f:spec":{"f:replicas":{}}}"#]]);
    let mut object = world.live.clone().unwrap();
    object["status"] = json!({"replicas": 2, "conditions": [{"type": "Available", "status": "True"}]});
    object["metadata"]["managedFields"] = json!([]);
    world.put_to("one", "status", object);
    world.check(expect![[r#"
        one Update apps/v1 {"f:spec":{"f:replicas":{}}}
        one Update/status apps/v1 {"f:status":{"f:conditions":{".":{},"k:{\"type\":\"Available\"}":{".":{},"f:lastTransitionTime":{},"f:lastUpdateTime":{},"f:status":{},"f:type":{}}},"f:replicas":{}}}"#]]);
}

#[test]
fn more_than_ten_updaters_are_folded_the_oldest_first() {
    let mut world = World::config_map();
    world.create("m00", json!({"data": {"k00": "v"}}));
    for index in 1..13 {
        world.patch(&format!("m{index:02}"), |object| object["data"][format!("k{index:02}")] = json!("v"));
    }
    world.check(expect![[r#"
        ancient-changes Update v1 {"f:data":{".":{},"f:k00":{},"f:k01":{},"f:k02":{},"f:k03":{}}}
        m04 Update v1 {"f:data":{"f:k04":{}}}
        m05 Update v1 {"f:data":{"f:k05":{}}}
        m06 Update v1 {"f:data":{"f:k06":{}}}
        m07 Update v1 {"f:data":{"f:k07":{}}}
        m08 Update v1 {"f:data":{"f:k08":{}}}
        m09 Update v1 {"f:data":{"f:k09":{}}}
        m10 Update v1 {"f:data":{"f:k10":{}}}
        m11 Update v1 {"f:data":{"f:k11":{}}}
        m12 Update v1 {"f:data":{"f:k12":{}}}"#]]);
}

#[test]
fn an_object_that_does_not_fit_its_schema_keeps_the_old_record() {
    let mut world = World::config_map();
    world.create("one", json!({"data": {"a": "1"}}));
    let mut object = world.object(json!({"dota": {}, "metadata": {"uid": "u"}}));
    let writer = Writer { manager: "two", subresource: "", time: "2026-01-01T00:00:00Z" };
    let error = on_update(&world.kind(""), &writer, world.live.as_ref(), &mut object).unwrap_err();
    assert_eq!(error.to_string(), ".dota: field not declared in schema");
    assert_eq!(record(&object), record(world.live.as_ref().unwrap()));
}

#[test]
fn a_writer_without_a_name_is_unknown() {
    let mut world = World::config_map();
    world.create("", json!({"immutable": true}));
    world.check(expect![[r#"unknown Update v1 {"f:immutable":{}}"#]]);
}

// === apply: server-side-apply.walk ===

/// The walk up to its conflict: `one` and `two` share `s`.
fn shared() -> World {
    let mut world = World::config_map();
    world.apply("one", json!({"metadata": {"labels": {"l": "1"}}, "data": {"k": "v", "s": "shared"}}));
    world.apply("two", json!({"data": {"s": "shared", "t": "two"}}));
    world
}

#[test]
fn an_applier_owns_what_it_applies() {
    let mut world = World::config_map();
    let object = world.apply("one", json!({"metadata": {"labels": {"l": "1"}}, "data": {"k": "v", "s": "shared"}}));
    assert_eq!(object["data"], json!({"k": "v", "s": "shared"}));
    world.check(expect![[r#"one Apply v1 {"f:data":{"f:k":{},"f:s":{}},"f:metadata":{"f:labels":{"f:l":{}}}}"#]]);
}

#[test]
fn two_appliers_share_an_equal_value() {
    let world = shared();
    assert_eq!(world.live.as_ref().unwrap()["data"], json!({"k": "v", "s": "shared", "t": "two"}));
    world.check(expect![[r#"
        one Apply v1 {"f:data":{"f:k":{},"f:s":{}},"f:metadata":{"f:labels":{"f:l":{}}}}
        two Apply v1 {"f:data":{"f:s":{},"f:t":{}}}"#]]);
}

#[test]
fn a_conflict_names_manager_and_field() {
    let mut world = shared();
    let before = world.live.clone();
    let wish = json!({"metadata": {"labels": {"l": "2"}}, "data": {"k": "other", "s": "shared", "t": "two"}});
    check_conflict(
        world.try_apply("two", wish, OnConflict::Refuse),
        expect![[r#"
            Apply failed with 2 conflicts: conflicts with "one":
            - .data.k
            - .metadata.labels.l
            ---
            FieldManagerConflict .data.k conflict with "one"
            FieldManagerConflict .metadata.labels.l conflict with "one""#]],
    );
    assert_eq!(world.live, before);
}

/// After `two` took over `k` and the label by force.
fn forced() -> World {
    let mut world = shared();
    let wish = json!({"metadata": {"labels": {"l": "2"}}, "data": {"k": "other", "s": "shared", "t": "two"}});
    world.try_apply("two", wish, OnConflict::Force).unwrap();
    world
}

#[test]
fn force_takes_fields_over() {
    let world = forced();
    let live = world.live.as_ref().unwrap();
    assert_eq!((&live["data"]["k"], &live["metadata"]["labels"]["l"]), (&json!("other"), &json!("2")));
    world.check(expect![[r#"
        one Apply v1 {"f:data":{"f:s":{}}}
        two Apply v1 {"f:data":{"f:k":{},"f:s":{},"f:t":{}},"f:metadata":{"f:labels":{"f:l":{}}}}"#]]);
}

#[test]
fn what_an_applier_leaves_out_goes_if_nobody_else_has_it() {
    let mut world = forced();
    let object = world.apply("two", json!({"metadata": {"labels": {"l": "2"}}, "data": {"k": "other"}}));
    assert_eq!(object["data"], json!({"k": "other", "s": "shared"}));
}

#[test]
fn an_update_takes_from_appliers_and_the_next_apply_conflicts_with_it() {
    let mut world = forced();
    let wish = json!({"metadata": {"labels": {"l": "2"}}, "data": {"k": "other"}});
    world.apply("two", wish.clone());
    world.patch("hand", |object| object["data"]["k"] = json!("by hand"));
    world.check(expect![[r#"
        one Apply v1 {"f:data":{"f:s":{}}}
        two Apply v1 {"f:metadata":{"f:labels":{"f:l":{}}}}
        hand Update v1 {"f:data":{"f:k":{}}}"#]]);
    check_conflict(
        world.try_apply("two", wish, OnConflict::Refuse),
        expect![[r#"
            Apply failed with 1 conflict: conflict with "hand" using v1: .data.k
            ---
            FieldManagerConflict .data.k conflict with "hand" using v1"#]],
    );
}

#[test]
fn conflicts_with_several_managers_are_told_by_manager() {
    let mut world = World::deployment();
    world.create("b", json!({"spec": {"replicas": 1, "paused": true}}));
    world.apply("a", json!({"spec": {"minReadySeconds": 5}}));
    let mut object = world.live.clone().unwrap();
    object["metadata"]["labels"] = json!({"x": "1"});
    world.put_to("b", "status", object);
    check_conflict(
        world.try_apply(
            "c",
            json!({"metadata": {"labels": {"x": "2"}}, "spec": {"replicas": 2, "paused": false, "minReadySeconds": 6}}),
            OnConflict::Refuse,
        ),
        expect![[r#"
            Apply failed with 4 conflicts: conflicts with "a":
            - .spec.minReadySeconds
            conflicts with "b" using apps/v1:
            - .spec.paused
            - .spec.replicas
            conflicts with "b" with subresource "status" using apps/v1:
            - .metadata.labels.x
            ---
            FieldManagerConflict .spec.minReadySeconds conflict with "a"
            FieldManagerConflict .spec.paused conflict with "b" using apps/v1
            FieldManagerConflict .spec.replicas conflict with "b" using apps/v1
            FieldManagerConflict .metadata.labels.x conflict with "b" with subresource "status" using apps/v1"#]],
    );
}

#[test]
fn a_request_that_is_no_apply_of_this_kind_is_refused() {
    let mut world = shared();
    for (applied, want) in [
        (json!({"metadata": {"name": "a"}}), "invalid object type: /, Kind="),
        (json!({"apiVersion": "v1", "kind": "Secret"}), "invalid object type: /v1, Kind=Secret"),
        (json!({"apiVersion": "apps/v2", "kind": "ConfigMap"}), "invalid object type: apps/v2, Kind=ConfigMap"),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"managedFields": [{"manager": "x"}]}}),
            "metadata.managedFields must be nil",
        ),
    ] {
        let error = world.try_apply_as_is("two", "", &applied, OnConflict::Refuse).unwrap_err();
        assert_eq!(error, ApplyError::Malformed(want.to_owned()));
    }
}

#[test]
fn an_unknown_field_is_refused() {
    let error = shared().try_apply("two", json!({"dota": {"k": "v"}}), OnConflict::Refuse).unwrap_err();
    let want = "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .dota: field not declared in schema";
    assert_eq!(error, ApplyError::Invalid(want.to_owned()));
}

#[test]
fn the_same_key_twice_is_refused() {
    let wish = json!({"spec": {"template": {"spec": {"containers": [
        {"name": "c", "image": "x"}, {"name": "c", "image": true}]}}}});
    let error = World::deployment().try_apply("two", wish, OnConflict::Refuse).unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to create typed patch object (/a; apps/v1, Kind=Deployment): errors:\n  \
         .spec.template.spec.containers: duplicate entries for key [name=\"c\"]\n  \
         .spec.template.spec.containers[name=\"c\"].image: expected string, got &value.valueUnstructured{Value:true}"
    );
}

/// The walk's Deployment, `two` having added a variable and a container.
fn sidecar() -> World {
    let mut world = World::deployment();
    world.apply(
        "one",
        json!({"spec": {
            "selector": {"matchLabels": {"app": "d"}},
            "template": {
                "metadata": {"labels": {"app": "d"}},
                "spec": {"containers": [{"name": "c", "image": "i", "env": [{"name": "A", "value": "1"}]}]}}}}),
    );
    world.apply(
        "two",
        json!({"spec": {"template": {"spec": {"containers": [
            {"name": "c", "env": [{"name": "B", "value": "2"}]},
            {"name": "side", "image": "s"}]}}}}),
    );
    world
}

#[test]
fn lists_of_maps_merge_by_key_each_item_owned_by_who_applied_it() {
    let world = sidecar();
    assert_eq!(
        world.live.as_ref().unwrap()["spec"]["template"]["spec"]["containers"],
        json!([
            {"name": "c", "image": "i", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}], "resources": {}},
            {"name": "side", "image": "s", "resources": {}}])
    );
    world.check(expect![[r#"
        one Apply apps/v1 {"f:spec":{"f:selector":{},"f:template":{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:env":{"k:{\"name\":\"A\"}":{".":{},"f:name":{},"f:value":{}}},"f:image":{},"f:name":{}}}}}}}
        two Apply apps/v1 {"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:env":{"k:{\"name\":\"B\"}":{".":{},"f:name":{},"f:value":{}}},"f:name":{}},"k:{\"name\":\"side\"}":{".":{},"f:image":{},"f:name":{}}}}}}}"#]]);
}

#[test]
fn leaving_all_out_takes_all_away_that_was_ones_own() {
    let mut world = sidecar();
    let object = world.apply("two", json!({}));
    assert_eq!(
        object["spec"]["template"]["spec"]["containers"],
        json!([{"name": "c", "image": "i", "env": [{"name": "A", "value": "1"}], "resources": {}}])
    );
    let managers: Vec<&Value> =
        object["metadata"]["managedFields"].as_array().unwrap().iter().map(|entry| &entry["manager"]).collect();
    assert_eq!(managers, ["one"]);
}

#[test]
fn a_status_is_applied_through_its_subresource() {
    let mut world = sidecar();
    let applied = world.object(json!({"status": {"replicas": 2}}));
    let object = world.try_apply_as_is("st", "status", &applied, OnConflict::Refuse).unwrap();
    assert_eq!(object["status"]["replicas"], 2);
    let entry = json!({
        "apiVersion": "apps/v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {"f:replicas": {}}},
        "manager": "st", "operation": "Apply", "subresource": "status", "time": "2026-01-01T00:00:03Z"});
    assert_eq!(object["metadata"]["managedFields"][2], entry);
}

#[test]
fn a_repeated_apply_changes_nothing_not_even_times() {
    let mut world = sidecar();
    let before = world.live.clone().unwrap();
    let again = json!({"spec": {"template": {"spec": {"containers": [
        {"name": "c", "env": [{"name": "B", "value": "2"}]},
        {"name": "side", "image": "s"}]}}}});
    assert_eq!(world.apply("two", again), before);
}

#[test]
fn kubectl_takes_over_what_it_applied_on_the_client() {
    let annotation = "kubectl.kubernetes.io/last-applied-configuration";
    let client_side = |data: Value| {
        let last = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"annotations": {}, "name": "a"}, "data": data});
        json!({"metadata": {"annotations": {annotation: format!("{last}\n")}}, "data": data})
    };
    let mut world = World::config_map();
    world.create("kubectl-client-side-apply", client_side(json!({"a": "1", "b": "2"})));
    // Both values differ from the live ones, which are as last applied: no conflict for kubectl, one for others.
    let wish = json!({"data": {"a": "one", "b": "<two>"}});
    check_conflict(
        world.try_apply("other", wish.clone(), OnConflict::Refuse),
        expect![[r#"
            Apply failed with 2 conflicts: conflicts with "kubectl-client-side-apply" using v1:
            - .data.a
            - .data.b
            ---
            FieldManagerConflict .data.a conflict with "kubectl-client-side-apply" using v1
            FieldManagerConflict .data.b conflict with "kubectl-client-side-apply" using v1"#]],
    );
    let object = world.apply("kubectl", wish);
    assert_eq!(object["data"], json!({"a": "one", "b": "<two>"}));
    assert_eq!(
        object["metadata"]["annotations"][annotation],
        "{\"apiVersion\":\"v1\",\"data\":{\"a\":\"one\",\"b\":\"\\u003ctwo\\u003e\"},\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"a\"}}\n"
    );
    // What somebody changed since is a conflict for kubectl as well, and only that.
    world.patch("hand", |object| object["data"]["a"] = json!("by hand"));
    check_conflict(
        world.try_apply("kubectl", json!({"data": {"a": "1", "b": "2"}}), OnConflict::Refuse),
        expect![[r#"
            Apply failed with 1 conflict: conflict with "hand" using v1: .data.a
            ---
            FieldManagerConflict .data.a conflict with "hand" using v1"#]],
    );
}

#[test]
fn what_nobody_owns_goes_with_the_map_it_is_in_and_not_before() {
    let mut world = World::config_map();
    world.apply("one", json!({"data": {"a": "1"}}));
    world.apply("two", json!({"data": {"b": "2"}}));
    // Admission set this one: it is in nobody's record.
    set_at(world.live.as_mut().unwrap(), &["data", "z"], json!("admitted"));
    assert_eq!(world.apply("one", json!({}))["data"], json!({"b": "2", "z": "admitted"}));
    assert_eq!(at(&world.apply("two", json!({})), &["data"]), None);
}

#[test]
fn a_live_record_that_cannot_be_read_refuses_apply() {
    let mut world = shared();
    world.live.as_mut().unwrap()["metadata"]["managedFields"][1]["fieldsV1"] = json!({"nonsense": {}});
    let error = world.try_apply("two", json!({}), OnConflict::Refuse).unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to decode managed fields: the fields of entry 1 of metadata.managedFields cannot be read: \
         \"nonsense\" is not a path element: it must begin with `f:`, `k:`, `v:` or `i:`"
    );
}

// === versions ===

/// In `v2` of the kind `spec.size` is called `spec.amount`.
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
    let world = World::custom(json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"size": {"type": "integer"}, "name": {"type": "string"}}}}}));
    let versions = renamed();
    let kind = Kind { versions: &versions, ..world.kind("") };
    let v2 = GroupVersionKind::new("g.example", "v2", "Thing");
    let v1_as_other = &OnlyV1(world.schema, &versions);
    let in_v2 = Kind { gvk: &v2, schema: &versions.v2, versions: v1_as_other, ..kind };
    let writer = |manager| Writer { manager, subresource: "", time: "2026-01-01T00:00:00Z" };

    let applied_v2 = json!({"apiVersion": "g.example/v2", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"amount": 3, "name": "x"}});
    let stored_v2 = on_apply(&in_v2, &writer("two"), None, &applied_v2, OnConflict::Refuse).unwrap();
    let stored = versions.convert(&stored_v2, "g.example/v1").unwrap();

    let applied_v1 = world.object(json!({"spec": {"size": 4}}));
    check_conflict(
        on_apply(&kind, &writer("one"), Some(&stored), &applied_v1, OnConflict::Refuse),
        expect![[r#"
            Apply failed with 1 conflict: conflict with "two": .spec.amount
            ---
            FieldManagerConflict .spec.amount conflict with "two""#]],
    );
    // Applying nothing in the other version takes away what was applied in the first.
    let nothing = world.object(json!({}));
    let object = on_apply(&kind, &writer("two"), Some(&stored), &nothing, OnConflict::Refuse).unwrap();
    assert_eq!(at(&object, &["spec"]), None);
    assert_eq!(object["apiVersion"], "g.example/v1");
    // A version nobody serves any more leaves no trace.
    let gone = Kind { versions: &OneVersion, ..kind };
    let object = on_apply(&gone, &writer("one"), Some(&stored), &applied_v1, OnConflict::Refuse).unwrap();
    assert_eq!(record(&object), r#"one Apply g.example/v1 {"f:spec":{"f:size":{}}}"#);
}

/// The kind seen from `v2`.
struct OnlyV1<'a>(&'a Schema, &'a Renamed);

impl Versions for OnlyV1<'_> {
    fn schema(&self, api_version: &str) -> Option<&Schema> {
        (api_version == "g.example/v1").then_some(self.0)
    }

    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, String> {
        self.1.convert(object, api_version)
    }
}

// === times and scale ===

#[test]
fn times_stay_if_nothing_else_differs() {
    let live =
        json!({"metadata": {"resourceVersion": "1", "managedFields": [{"manager": "a", "time": "t1"}]}, "data": {}});
    let mut new = live.clone();
    new["metadata"]["managedFields"][0]["time"] = json!("t2");
    remove_at(&mut new, &["metadata", "resourceVersion"]);
    let mut same = new.clone();
    keep_times(&live, &mut same);
    assert_eq!(same["metadata"]["managedFields"], live["metadata"]["managedFields"]);
    let mut changed = new.clone();
    changed["data"]["k"] = json!("v");
    keep_times(&live, &mut changed);
    assert_eq!(changed["metadata"]["managedFields"][0]["time"], "t2");
    new["metadata"]["managedFields"][0]["manager"] = json!("b");
    keep_times(&live, &mut new);
    assert_eq!(new["metadata"]["managedFields"][0]["time"], "t2");
}

#[test]
fn who_scales_owns_the_replicas() {
    let replicas = |_: &str| Some(vec!["spec".to_owned(), "replicas".to_owned()]);
    let mut world = World::deployment();
    world.create("one", json!({"spec": {"replicas": 1, "paused": true}}));
    let entries = |object: &Value| object["metadata"]["managedFields"].clone();
    let before = entries(world.live.as_ref().unwrap());
    let of_scale = scale::to_scale(Some(&before), &replicas).unwrap();

    let mut scaling = World::new("autoscaling", "Scale", "io.k8s.api.autoscaling.v1.Scale");
    let mut object = scaling.object(json!({"metadata": {"uid": "u"}, "spec": {"replicas": 1}}));
    object["metadata"]["managedFields"] = of_scale;
    assert_eq!(record(&object), r#"one Update autoscaling/v1 {"f:spec":{"f:replicas":{}}}"#);
    scaling.live = Some(object.clone());
    let unchanged = scale::to_object(Some(&before), Some(&entries(&object)), "apps/v1", &replicas).unwrap();
    assert_eq!(unchanged, before);

    object["spec"]["replicas"] = json!(3);
    scaling.put_to("hpa", "scale", object);
    let of_scale = entries(scaling.live.as_ref().unwrap());
    let after = scale::to_object(Some(&before), Some(&of_scale), "apps/v1", &replicas).unwrap();
    expect![[r#"
        hpa Update/scale apps/v1 {"f:spec":{"f:replicas":{}}}
        one Update apps/v1 {"f:spec":{"f:paused":{}}}"#]]
    .assert_eq(&record(&json!({"metadata": {"managedFields": after}})));
}

// === properties ===

/// A configuration of a Deployment, out of few names so that managers meet.
fn wish() -> impl Strategy<Value = Value> {
    let text = || prop_oneof![Just("1"), Just("2")];
    let texts = || btree_map("[a-c]", text(), 0..3);
    let env = vec(("[A-C]", text()), 0..3)
        .prop_map(|pairs| unique("name", pairs.into_iter().map(|(name, value)| json!({"name": name, "value": value}))));
    let args = vec("[x-z]", 0..3);
    let container = ("[c-e]", proptest::option::of(text()), env, args)
        .prop_map(|(name, image, env, args)| json!({"name": name, "env": env, "args": args, "image": image}));
    let finalizers = vec("[a-c]", 0..3)
        .prop_map(|names| unique("", names.into_iter().map(|name| json!(format!("example.com/{name}")))));
    let parts = (texts(), finalizers, vec(container, 0..3), proptest::option::of(0..3), texts());
    parts.prop_map(|(labels, finalizers, containers, replicas, selector)| {
        let containers = unique("name", containers.into_iter());
        let mut wish = json!({
            "metadata": {"labels": labels, "finalizers": finalizers},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": selector},
                "template": {"spec": {"containers": containers}}}});
        drop_empty(&mut wish);
        wish
    })
}

/// Nobody wishes for nothing.
fn drop_empty(value: &mut Value) {
    let is_something = |value: &mut Value| {
        drop_empty(value);
        let is_empty = value.as_object().is_some_and(serde_json::Map::is_empty) || *value == json!([]);
        !is_empty && !value.is_null()
    };
    match value {
        Value::Object(fields) => fields.retain(|_, value| is_something(value)),
        Value::Array(items) => items.iter_mut().for_each(drop_empty),
        _ => {}
    }
}

/// The first of each key; without a key, of each value.
fn unique(key: &str, items: impl Iterator<Item = Value>) -> Vec<Value> {
    let mut kept: Vec<Value> = Vec::new();
    for item in items {
        let identity = |item: &Value| if key.is_empty() { item.clone() } else { item[key].clone() };
        if kept.iter().all(|other| identity(other) != identity(&item)) {
            kept.push(item);
        }
    }
    kept
}

/// The object without its record's times, which hang on the order of writes.
fn timeless(mut object: Value) -> Value {
    if let Some(entries) = object["metadata"]["managedFields"].as_array_mut() {
        entries.iter_mut().for_each(|entry| entry["time"] = Value::Null);
        entries.sort_by_key(Value::to_string);
    }
    object
}

proptest! {
    #[test]
    fn applying_twice_is_applying_once(first in wish(), other in wish(), wish in wish()) {
        let mut world = World::deployment();
        world.apply("me", first);
        world.try_apply("other", other, OnConflict::Force).unwrap();
        let once = world.try_apply("me", wish.clone(), OnConflict::Force).unwrap();
        let twice = world.try_apply("me", wish, OnConflict::Refuse).unwrap();
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn what_is_applied_is_owned_and_there(first in wish(), other in wish(), wish in wish()) {
        let mut world = World::deployment();
        world.try_apply("other", other, OnConflict::Force).unwrap();
        world.try_apply("me", first, OnConflict::Force).unwrap();
        let object = world.try_apply("me", wish.clone(), OnConflict::Force).unwrap();
        let named = FieldSet::of(world.schema, &world.object(wish));
        let has = FieldSet::of(world.schema, &object);
        // A list or map that is wished empty is not there if others did not fill it; nothing else may be missing.
        for path in named.difference(&has).paths() {
            let beneath = has.paths().iter().any(|other| other.0.starts_with(&path.0));
            prop_assert!(beneath, "{} is missing", path);
        }
    }

    #[test]
    fn managers_of_disjoint_fields_commute(
        labels in btree_map("[a-c]", "[x-z]", 1..3),
        annotations in btree_map("[a-c]", "[x-z]", 1..3),
        mine in "[c-d]",
        theirs in "[e-f]",
    ) {
        let one = json!({"metadata": {"labels": labels}, "spec": {"template": {"spec": {"volumes": [{"name": mine, "emptyDir": {}}]}}}});
        let two = json!({"metadata": {"annotations": annotations}, "spec": {"template": {"spec": {"containers": [{"name": theirs}]}}}});
        let run = |order: [(&str, &Value); 2]| {
            let mut world = World::deployment();
            for (manager, wish) in order {
                world.apply(manager, wish.clone());
            }
            timeless(world.live.unwrap())
        };
        prop_assert_eq!(run([("one", &one), ("two", &two)]), run([("two", &two), ("one", &one)]));
    }

    #[test]
    fn applying_nothing_undoes_an_apply(other in wish(), wish in wish()) {
        let mut world = World::deployment();
        let before = world.apply("other", other);
        let Ok(_) = world.try_apply("me", wish, OnConflict::Refuse) else {
            return Ok(());
        };
        let after = world.apply("me", json!({}));
        let data = |mut object: Value| {
            remove_at(&mut object, &["metadata", "managedFields"]);
            FieldSet::of(world.schema, &object)
        };
        prop_assert_eq!(data(after).leaves(), data(before).leaves());
    }

    #[test]
    fn every_field_that_an_update_changes_is_the_updaters(old in wish(), new in wish()) {
        let mut world = World::deployment();
        let mut old = world.object(old);
        old["spec"]["paused"] = json!(true);
        world.put("one", old);
        let mut new = world.object(new);
        new["metadata"]["uid"] = json!("u");
        let object = world.put("two", new);
        let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        let of = |manager: &str| {
            let entry = entries.iter().find(|entry| entry["manager"] == manager);
            entry.map(|entry| FieldSet::from_value(&entry["fieldsV1"]).unwrap()).unwrap_or_default()
        };
        prop_assert!(of("one").intersection(&of("two")).is_empty());
        let mut bare = object.clone();
        remove_at(&mut bare, &["metadata", "managedFields"]);
        let has = FieldSet::of(world.schema, &bare);
        let always_there = FieldSet::of(world.schema, &world.kind("").nothing());
        let identity = FieldSet::of_names(&[&["metadata", "name"], &["metadata", "uid"]]);
        let owned = of("one").union(&of("two")).union(&always_there).union(&identity);
        let orphans = has.leaves().difference(&owned);
        prop_assert!(orphans.is_empty(), "{:?}", orphans.paths());
    }
}
