//! Tests of creates, updates and patches.

use crate::ownership::managed::keep_times;
use crate::ownership::managed::tests::OwnedObject;
use expect_test::expect;
use serde_json::json;
use steersman_machinery::value::remove_at;

#[test]
fn a_creator_owns_what_the_object_has_and_the_maps_it_made() {
    let mut owned = OwnedObject::config_map();
    owned.create("walk", json!({"metadata": {"labels": {"a": "1"}}, "data": {"k": "v"}, "binaryData": {"b": "AAE="}}));
    owned.check(expect![[
        r#"walk Update v1 {"f:binaryData":{".":{},"f:b":{}},"f:data":{".":{},"f:k":{}},"f:metadata":{"f:labels":{".":{},"f:a":{}}}}"#
    ]]);
}

#[test]
fn a_creator_of_a_pod_owns_defaults_but_not_the_structs_that_are_always_there() {
    let mut owned = OwnedObject::pod();
    owned.create(
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
    owned.check(expect![[
        r#"walk Update v1 {"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:command":{},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:resources":{},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},"f:enableServiceLinks":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}}"#
    ]]);
}

#[test]
fn a_creator_of_a_custom_resource_owns_its_spec_as_well() {
    let mut owned = OwnedObject::custom(json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"cidr": {"type": "string"}}}}}));
    owned.create("walk", json!({"spec": {"cidr": "10.0.0.0/8"}}));
    owned.check(expect![[r#"walk Update g.example/v1 {"f:spec":{".":{},"f:cidr":{}}}"#]]);
}

#[test]
fn a_custom_resource_without_a_schema_is_owned_field_by_field() {
    let mut owned = OwnedObject::custom(json!({}));
    owned.create("walk", json!({"spec": {"cidr": "10.0.0.0/8", "tags": ["a"]}}));
    owned.patch("two", |object| object["spec"]["tags"] = json!(["b"]));
    owned.check(expect![[r#"
        walk Update g.example/v1 {"f:spec":{".":{},"f:cidr":{}}}
        two Update g.example/v1 {"f:spec":{"f:tags":{}}}"#]]);
}

#[test]
fn an_update_takes_what_it_changes_and_forgets_what_it_removes() {
    let mut owned = OwnedObject::config_map();
    owned.create("one", json!({"data": {"a": "1", "b": "2", "c": "3"}}));
    owned.patch("two", |object| object["data"] = json!({"a": "1", "b": "two", "d": "4"}));
    owned.check(expect![[r#"
        one Update v1 {"f:data":{".":{},"f:a":{}}}
        two Update v1 {"f:data":{"f:b":{},"f:d":{}}}"#]]);
}

#[test]
fn a_write_that_changes_nothing_keeps_record_and_times() {
    let mut owned = OwnedObject::config_map();
    let before = owned.create("one", json!({"data": {"a": "1"}}));
    assert_eq!(owned.patch("two", |_| {}), before);
    assert_eq!(owned.patch("one", |object| object["data"]["a"] = json!("1")), before);
}

#[test]
fn a_client_that_does_not_know_the_record_does_not_lose_it() {
    let mut owned = OwnedObject::config_map();
    owned.create("one", json!({"data": {"a": "1"}}));
    let object = owned.object(json!({"data": {"a": "1"}, "metadata": {"uid": "u"}}));
    owned.put("two", object);
    owned.check(expect![[r#"one Update v1 {"f:data":{".":{},"f:a":{}}}"#]]);
}

#[test]
fn an_empty_record_or_entry_forgets_all_until_somebody_applies() {
    for reset in [json!([]), json!([{}])] {
        let mut owned = OwnedObject::config_map();
        owned.create("one", json!({"data": {"a": "1"}}));
        owned.patch("two", |object| object["metadata"]["managedFields"] = reset);
        owned.patch("two", |object| object["data"]["b"] = json!("2"));
        owned.check(expect![""]);
        owned.apply("three", json!({"data": {"a": "1"}}));
        owned.check(expect![[r#"
            three Apply v1 {"f:data":{"f:a":{}}}
            before-first-apply Update v1 {"f:data":{".":{},"f:a":{},"f:b":{}}}"#]]);
    }
}

#[test]
fn an_object_with_nothing_to_own_is_not_recorded() {
    let mut owned = OwnedObject::config_map();
    owned.create("one", json!({}));
    owned.patch("two", |object| object["data"] = json!({"a": "1"}));
    owned.check(expect![""]);
}

#[test]
fn a_record_that_a_client_sends_counts_and_one_it_garbles_does_not() {
    let mut owned = OwnedObject::config_map();
    owned.create("one", json!({"data": {"a": "1"}}));
    owned.patch("two", |object| object["metadata"]["managedFields"][0]["manager"] = json!("renamed"));
    owned.check(expect![[r#"renamed Update v1 {"f:data":{".":{},"f:a":{}}}"#]]);
    owned.patch("two", |object| object["metadata"]["managedFields"][0]["operation"] = json!("Steal"));
    owned.check(expect![[r#"renamed Update v1 {"f:data":{".":{},"f:a":{}}}"#]]);
}

#[test]
fn the_status_is_owned_through_its_subresource_only() {
    let mut owned = OwnedObject::deployment();
    owned.create("one", json!({"spec": {"replicas": 1}, "status": {"replicas": 3}}));
    owned.check(expect![[r#"one Update apps/v1 {"f:spec":{"f:replicas":{}}}"#]]);
    let mut object = owned.live.clone().unwrap();
    object["status"] = json!({"replicas": 2, "conditions": [{"type": "Available", "status": "True"}]});
    object["metadata"]["managedFields"] = json!([]);
    owned.put_to("one", "status", object);
    owned.check(expect![[r#"
        one Update apps/v1 {"f:spec":{"f:replicas":{}}}
        one Update/status apps/v1 {"f:status":{"f:conditions":{".":{},"k:{\"type\":\"Available\"}":{".":{},"f:lastTransitionTime":{},"f:lastUpdateTime":{},"f:status":{},"f:type":{}}},"f:replicas":{}}}"#]]);
}

#[test]
fn more_than_ten_updaters_are_folded_the_oldest_first() {
    let mut owned = OwnedObject::config_map();
    owned.create("m00", json!({"data": {"k00": "v"}}));
    for index in 1..13 {
        owned.patch(&format!("m{index:02}"), |object| object["data"][format!("k{index:02}")] = json!("v"));
    }
    owned.check(expect![[r#"
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
fn a_writer_without_a_name_is_unknown() {
    let mut owned = OwnedObject::config_map();
    owned.create("", json!({"immutable": true}));
    owned.check(expect![[r#"unknown Update v1 {"f:immutable":{}}"#]]);
}

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
fn who_changes_what_is_his_own_gets_a_new_time_and_his_place_in_the_order() {
    let mut owned = OwnedObject::deployment();
    owned.create("one", json!({"spec": {"replicas": 1}}));
    owned.patch("two", |object| object["metadata"]["labels"] = json!({"a": "1"}));
    let object = owned.patch("one", |object| object["spec"]["replicas"] = json!(2));
    owned.check(expect![[r#"
        two Update apps/v1 {"f:metadata":{"f:labels":{".":{},"f:a":{}}}}
        one Update apps/v1 {"f:spec":{"f:replicas":{}}}"#]]);
    assert_eq!(object["metadata"]["managedFields"][1]["time"], "2026-01-01T00:00:03Z");
    // Changing a field of another manager takes its ownership, and a removed field has no owner.
    owned.patch("two", |object| object["spec"]["replicas"] = json!(3));
    owned.patch("two", |object| {
        remove_at(object, &["metadata", "labels", "a"]);
    });
    owned.check(expect![[r#"two Update apps/v1 {"f:spec":{"f:replicas":{}}}"#]]);
}

#[test]
fn of_a_shared_field_only_who_changes_it_stays_an_owner() {
    let mut owned = OwnedObject::deployment();
    owned.create("one", json!({"spec": {"replicas": 1, "paused": true}}));
    owned.apply("two", json!({"metadata": {"labels": {"a": "1"}}, "spec": {"replicas": 1}}));
    owned.patch("one", |object| object["spec"]["replicas"] = json!(2));
    owned.check(expect![[r#"
        two Apply apps/v1 {"f:metadata":{"f:labels":{"f:a":{}}}}
        one Update apps/v1 {"f:spec":{"f:paused":{},"f:replicas":{}}}"#]]);
}

#[test]
fn a_set_of_an_older_schema_becomes_one_of_todays_with_the_next_update() {
    let schema = |list: &str| {
        let item = json!({"type": "object", "properties": {"name": {"type": "string"}, "port": {"type": "integer"}}});
        let mut ports = json!({"type": "array", "items": item, "x-kubernetes-list-type": list});
        if list == "map" {
            ports["x-kubernetes-list-map-keys"] = json!(["name"]);
        }
        let spec = json!({"type": "object", "properties": {"ports": ports, "replicas": {"type": "integer"}}});
        OwnedObject::custom(json!({"type": "object", "properties": {"spec": spec}}))
    };
    let mut owned = schema("map");
    owned.create("one", json!({"spec": {"replicas": 1, "ports": [{"name": "a", "port": 1}]}}));
    owned.schema = schema("atomic").schema;
    owned.patch("one", |object| object["spec"]["replicas"] = json!(2));
    owned.check(expect![[r#"one Update g.example/v1 {"f:spec":{".":{},"f:ports":{},"f:replicas":{}}}"#]]);
}

#[test]
fn an_object_with_an_item_that_lacks_its_key_has_no_owners() {
    let mut owned = OwnedObject::new("", "ServiceAccount", "io.k8s.api.core.v1.ServiceAccount");
    let account = owned.create("a", json!({"secrets": [{"name": "s"}], "automountServiceAccountToken": true}));
    assert!(account["metadata"]["managedFields"].is_array());
    for secrets in [json!([{"name": "s"}, {"kind": "Secret"}]), json!([{"kind": "Secret"}])] {
        owned.live = Some(account.clone());
        let mut changed = account.clone();
        changed["secrets"] = secrets;
        assert_eq!(owned.put("b", changed)["metadata"].get("managedFields"), None);
    }
}

#[test]
fn an_empty_list_within_a_value_of_one_owner_makes_it_another_value() {
    let mut owned = OwnedObject::new("rbac.authorization.k8s.io", "Role", "io.k8s.api.rbac.v1.Role");
    let role = owned.create("a", json!({"rules": [{"verbs": ["get"], "resources": ["pods"]}]}));
    let difference = |rules: serde_json::Value| {
        let mut changed = role.clone();
        changed["rules"] = rules;
        crate::ownership::fields::compare(owned.schema, &role, &changed).is_same()
    };
    assert!(difference(json!([{"verbs": ["get"], "resources": ["pods"]}])));
    assert!(!difference(json!([{"verbs": ["get"], "resources": ["pods"], "resourceNames": []}])));
}
