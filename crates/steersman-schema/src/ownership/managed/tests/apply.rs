//! The steps of `core/server-side-apply.walk`, and cases that they leave out.

use crate::ownership::managed::tests::{OwnedObject, check_conflict};
use crate::ownership::managed::{ApplyError, OnConflict};
use expect_test::expect;
use serde_json::json;
use steersman_machinery::Value;
use steersman_machinery::value::{at, set_at};

/// The walk up to its conflict: `one` and `two` both own `s`.
fn shared() -> OwnedObject {
    let mut owned = OwnedObject::config_map();
    owned.apply("one", json!({"metadata": {"labels": {"l": "1"}}, "data": {"k": "v", "s": "shared"}}));
    owned.apply("two", json!({"data": {"s": "shared", "t": "two"}}));
    owned
}

#[test]
fn an_applier_owns_what_it_applies() {
    let mut owned = OwnedObject::config_map();
    let object = owned.apply("one", json!({"metadata": {"labels": {"l": "1"}}, "data": {"k": "v", "s": "shared"}}));
    assert_eq!(object["data"], json!({"k": "v", "s": "shared"}));
    owned.check(expect![[r#"one Apply v1 {"f:data":{"f:k":{},"f:s":{}},"f:metadata":{"f:labels":{"f:l":{}}}}"#]]);
}

#[test]
fn two_appliers_share_an_equal_value() {
    let owned = shared();
    assert_eq!(owned.live.as_ref().unwrap()["data"], json!({"k": "v", "s": "shared", "t": "two"}));
    owned.check(expect![[r#"
        one Apply v1 {"f:data":{"f:k":{},"f:s":{}},"f:metadata":{"f:labels":{"f:l":{}}}}
        two Apply v1 {"f:data":{"f:s":{},"f:t":{}}}"#]]);
}

#[test]
fn a_conflict_names_manager_and_field() {
    let mut owned = shared();
    let before = owned.live.clone();
    let wish = json!({"metadata": {"labels": {"l": "2"}}, "data": {"k": "other", "s": "shared", "t": "two"}});
    check_conflict(
        owned.try_apply("two", wish, OnConflict::Refuse),
        expect![[r#"
            Apply failed with 2 conflicts: conflicts with "one":
            - .data.k
            - .metadata.labels.l
            ---
            FieldManagerConflict .data.k conflict with "one"
            FieldManagerConflict .metadata.labels.l conflict with "one""#]],
    );
    assert_eq!(owned.live, before);
}

/// The state after `two` took over `k` and the label by force.
fn forced() -> OwnedObject {
    let mut owned = shared();
    let wish = json!({"metadata": {"labels": {"l": "2"}}, "data": {"k": "other", "s": "shared", "t": "two"}});
    owned.try_apply("two", wish, OnConflict::Force).unwrap();
    owned
}

#[test]
fn force_takes_fields_over() {
    let owned = forced();
    let live = owned.live.as_ref().unwrap();
    assert_eq!((&live["data"]["k"], &live["metadata"]["labels"]["l"]), (&json!("other"), &json!("2")));
    owned.check(expect![[r#"
        one Apply v1 {"f:data":{"f:s":{}}}
        two Apply v1 {"f:data":{"f:k":{},"f:s":{},"f:t":{}},"f:metadata":{"f:labels":{"f:l":{}}}}"#]]);
}

#[test]
fn what_an_applier_leaves_out_goes_if_nobody_else_has_it() {
    let mut owned = forced();
    let object = owned.apply("two", json!({"metadata": {"labels": {"l": "2"}}, "data": {"k": "other"}}));
    assert_eq!(object["data"], json!({"k": "other", "s": "shared"}));
}

#[test]
fn an_update_takes_from_appliers_and_the_next_apply_conflicts_with_it() {
    let mut owned = forced();
    let wish = json!({"metadata": {"labels": {"l": "2"}}, "data": {"k": "other"}});
    owned.apply("two", wish.clone());
    owned.patch("hand", |object| object["data"]["k"] = json!("by hand"));
    owned.check(expect![[r#"
        one Apply v1 {"f:data":{"f:s":{}}}
        two Apply v1 {"f:metadata":{"f:labels":{"f:l":{}}}}
        hand Update v1 {"f:data":{"f:k":{}}}"#]]);
    check_conflict(
        owned.try_apply("two", wish, OnConflict::Refuse),
        expect![[r#"
            Apply failed with 1 conflict: conflict with "hand" using v1: .data.k
            ---
            FieldManagerConflict .data.k conflict with "hand" using v1"#]],
    );
}

#[test]
fn conflicts_with_several_managers_are_told_by_manager() {
    let mut owned = OwnedObject::deployment();
    owned.create("b", json!({"spec": {"replicas": 1, "paused": true}}));
    owned.apply("a", json!({"spec": {"minReadySeconds": 5}}));
    let mut object = owned.live.clone().unwrap();
    object["metadata"]["labels"] = json!({"x": "1"});
    owned.put_to("b", "status", object);
    check_conflict(
        owned.try_apply(
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
    let mut owned = shared();
    for (applied, want) in [
        (json!({"metadata": {"name": "a"}}), "invalid object type: /, Kind="),
        (json!({"apiVersion": "v1", "kind": "Secret"}), "invalid object type: /v1, Kind=Secret"),
        (json!({"apiVersion": "apps/v2", "kind": "ConfigMap"}), "invalid object type: apps/v2, Kind=ConfigMap"),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"managedFields": [{"manager": "x"}]}}),
            "metadata.managedFields must be nil",
        ),
    ] {
        let error = owned.try_apply_as_is("two", "", &applied, OnConflict::Refuse).unwrap_err();
        assert_eq!(error, ApplyError::Malformed(want.to_owned()));
    }
}

#[test]
fn a_record_with_something_that_is_no_object_counts_as_none() {
    let mut owned = shared();
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "managedFields": [null]}});
    let made = owned.try_apply_as_is("two", "", &applied, OnConflict::Refuse).unwrap();
    assert_eq!(made, shared().try_apply("two", json!({}), OnConflict::Refuse).unwrap());
}

#[test]
fn an_unknown_field_is_refused() {
    let error = shared().try_apply("two", json!({"dota": {"k": "v"}}), OnConflict::Refuse).unwrap_err();
    let want = "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .dota: field not declared in schema";
    assert_eq!(error, ApplyError::Malformed(want.to_owned()));
}

#[test]
fn the_same_key_twice_is_refused() {
    let wish = json!({"spec": {"template": {"spec": {"containers": [
        {"name": "c", "image": "x"}, {"name": "c", "image": true}]}}}});
    let error = OwnedObject::deployment().try_apply("two", wish, OnConflict::Refuse).unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to create typed patch object (/a; apps/v1, Kind=Deployment): \
         .spec.template.spec.containers: duplicate entries for key [name=\"c\"]; \
         .spec.template.spec.containers[name=\"c\"].image: expected string, got true"
    );
}

/// The walk's Deployment, after `two` has added a variable and a container.
fn sidecar() -> OwnedObject {
    let mut owned = OwnedObject::deployment();
    owned.apply(
        "one",
        json!({"spec": {
            "selector": {"matchLabels": {"app": "d"}},
            "template": {
                "metadata": {"labels": {"app": "d"}},
                "spec": {"containers": [{"name": "c", "image": "i", "env": [{"name": "A", "value": "1"}]}]}}}}),
    );
    owned.apply(
        "two",
        json!({"spec": {"template": {"spec": {"containers": [
            {"name": "c", "env": [{"name": "B", "value": "2"}]},
            {"name": "side", "image": "s"}]}}}}),
    );
    owned
}

#[test]
fn lists_of_maps_merge_by_key_each_item_owned_by_who_applied_it() {
    let owned = sidecar();
    assert_eq!(
        owned.live.as_ref().unwrap()["spec"]["template"]["spec"]["containers"],
        json!([
            {"name": "c", "image": "i", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}], "resources": {}},
            {"name": "side", "image": "s", "resources": {}}])
    );
    owned.check(expect![[r#"
        one Apply apps/v1 {"f:spec":{"f:selector":{},"f:template":{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:env":{"k:{\"name\":\"A\"}":{".":{},"f:name":{},"f:value":{}}},"f:image":{},"f:name":{}}}}}}}
        two Apply apps/v1 {"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:env":{"k:{\"name\":\"B\"}":{".":{},"f:name":{},"f:value":{}}},"f:name":{}},"k:{\"name\":\"side\"}":{".":{},"f:image":{},"f:name":{}}}}}}}"#]]);
}

#[test]
fn leaving_all_out_takes_all_away_that_was_ones_own() {
    let mut owned = sidecar();
    let object = owned.apply("two", json!({}));
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
    let mut owned = sidecar();
    let applied = owned.object(json!({"status": {"replicas": 2}}));
    let object = owned.try_apply_as_is("st", "status", &applied, OnConflict::Refuse).unwrap();
    assert_eq!(object["status"]["replicas"], 2);
    let entry = json!({
        "apiVersion": "apps/v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {"f:replicas": {}}},
        "manager": "st", "operation": "Apply", "subresource": "status", "time": "2026-01-01T00:00:03Z"});
    assert_eq!(object["metadata"]["managedFields"][2], entry);
}

#[test]
fn a_repeated_apply_changes_nothing_not_even_times() {
    let mut owned = sidecar();
    let before = owned.live.clone().unwrap();
    let again = json!({"spec": {"template": {"spec": {"containers": [
        {"name": "c", "env": [{"name": "B", "value": "2"}]},
        {"name": "side", "image": "s"}]}}}});
    assert_eq!(owned.apply("two", again), before);
}

#[test]
fn an_applier_of_what_is_there_already_is_recorded_without_a_time() {
    let mut owned = OwnedObject::config_map();
    owned.create("one", json!({"data": {"a": "1"}}));
    let object = owned.apply("two", json!({"data": {"a": "1"}}));
    assert_eq!(
        object["metadata"]["managedFields"][0],
        json!({
            "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:a": {}}},
            "manager": "two", "operation": "Apply"})
    );
}

#[test]
fn kubectl_takes_over_what_it_applied_on_the_client() {
    let annotation = "kubectl.kubernetes.io/last-applied-configuration";
    let client_side = |data: Value| {
        let last = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"annotations": {}, "name": "a"}, "data": data});
        json!({"metadata": {"annotations": {annotation: format!("{last}\n")}}, "data": data})
    };
    let mut owned = OwnedObject::config_map();
    owned.create("kubectl-client-side-apply", client_side(json!({"a": "1", "b": "2"})));
    // Both values differ from the live ones, which are as last applied: no conflict for kubectl, but one for others.
    let wish = json!({"data": {"a": "one", "b": "<two>"}});
    check_conflict(
        owned.try_apply("other", wish.clone(), OnConflict::Refuse),
        expect![[r#"
            Apply failed with 2 conflicts: conflicts with "kubectl-client-side-apply" using v1:
            - .data.a
            - .data.b
            ---
            FieldManagerConflict .data.a conflict with "kubectl-client-side-apply" using v1
            FieldManagerConflict .data.b conflict with "kubectl-client-side-apply" using v1"#]],
    );
    let object = owned.apply("kubectl", wish);
    assert_eq!(object["data"], json!({"a": "one", "b": "<two>"}));
    assert_eq!(
        object["metadata"]["annotations"][annotation],
        "{\"apiVersion\":\"v1\",\"data\":{\"a\":\"one\",\"b\":\"\\u003ctwo\\u003e\"},\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"a\"}}\n"
    );
    // A value that another manager has changed since is a conflict for kubectl as well, and only that.
    owned.patch("hand", |object| object["data"]["a"] = json!("by hand"));
    check_conflict(
        owned.try_apply("kubectl", json!({"data": {"a": "1", "b": "2"}}), OnConflict::Refuse),
        expect![[r#"
            Apply failed with 1 conflict: conflict with "hand" using v1: .data.a
            ---
            FieldManagerConflict .data.a conflict with "hand" using v1"#]],
    );
}

#[test]
fn what_nobody_owns_goes_with_the_map_it_is_in_and_not_before() {
    let mut owned = OwnedObject::config_map();
    owned.apply("one", json!({"data": {"a": "1"}}));
    owned.apply("two", json!({"data": {"b": "2"}}));
    // This field was set by admission: it is in no manager's record.
    set_at(owned.live.as_mut().unwrap(), &["data", "z"], json!("admitted"));
    assert_eq!(owned.apply("one", json!({}))["data"], json!({"b": "2", "z": "admitted"}));
    assert_eq!(at(&owned.apply("two", json!({})), &["data"]), None);
}

#[test]
fn a_live_record_that_cannot_be_read_refuses_apply() {
    let mut owned = shared();
    owned.live.as_mut().unwrap()["metadata"]["managedFields"][1]["fieldsV1"] = json!({"nonsense": {}});
    let error = owned.try_apply("two", json!({}), OnConflict::Refuse).unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to decode managed fields: the fields of entry 1 of metadata.managedFields cannot be read: \
         \"nonsense\" is not a path element: it must begin with `f:`, `k:`, `v:` or `i:`"
    );
}
