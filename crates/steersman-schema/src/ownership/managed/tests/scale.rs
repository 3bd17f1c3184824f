//! Tests of ownership through `/scale`.

use crate::ownership::managed::tests::OwnedObject;
use crate::ownership::managed::{ApplyError, OnConflict, Writer, scale};
use expect_test::expect;
use serde_json::json;

/// Sets the replicas of the live object through its Scale.
fn scale_to(owned: &mut OwnedObject, manager: &str, replicas: u32) {
    let path = |_: &str| Some(vec!["spec".to_owned(), "replicas".to_owned()]);
    let live = owned.live.clone().unwrap();
    let mut object = live.clone();
    object["spec"]["replicas"] = json!(replicas);
    object["metadata"]["managedFields"] = json!([]);
    let writer = Writer { manager, subresource: "scale", time: "2026-01-01T00:01:00Z" };
    scale::on_update(&owned.kind("scale"), &writer, &live, &mut object, &path).unwrap();
    owned.store(object);
}

#[test]
fn who_scales_owns_the_replicas() {
    let mut owned = OwnedObject::deployment();
    owned.create("one", json!({"spec": {"replicas": 1, "paused": true}}));
    scale_to(&mut owned, "hpa", 3);
    owned.check(expect![[r#"
        one Update apps/v1 {"f:spec":{"f:paused":{}}}
        hpa Update/scale apps/v1 {"f:spec":{"f:replicas":{}}}"#]]);
    scale_to(&mut owned, "two", 4);
    owned.check(expect![[r#"
        one Update apps/v1 {"f:spec":{"f:paused":{}}}
        two Update/scale apps/v1 {"f:spec":{"f:replicas":{}}}"#]]);
}

#[test]
fn scaling_to_what_there_is_takes_nothing() {
    let mut owned = OwnedObject::deployment();
    let before = owned.apply("one", json!({"spec": {"replicas": 3}}));
    scale_to(&mut owned, "hpa", 3);
    assert_eq!(owned.live, Some(before));
}

#[test]
fn replicas_that_nobody_owned_stay_nobodys() {
    let mut owned = OwnedObject::deployment();
    owned.apply("one", json!({"spec": {"paused": true}}));
    scale_to(&mut owned, "kubectl", 3);
    owned.check(expect![[r#"one Apply apps/v1 {"f:spec":{"f:paused":{}}}"#]]);
}

/// Applies replicas to the Scale of the live object.
fn apply(
    owned: &mut OwnedObject,
    manager: &str,
    spec: &serde_json::Value,
    on_conflict: OnConflict,
) -> Result<(), ApplyError> {
    let path = |_: &str| Some(vec!["spec".to_owned(), "replicas".to_owned()]);
    let live = owned.live.clone().unwrap();
    let writer = Writer { manager, subresource: "scale", time: "2026-01-01T00:01:00Z" };
    let applied = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": spec});
    let object = scale::apply(&owned.kind("scale"), &writer, &live, &applied, on_conflict, &path)?;
    owned.store(object);
    Ok(())
}

#[test]
fn who_applies_a_scale_owns_the_replicas_of_the_object() {
    let mut owned = OwnedObject::deployment();
    owned.create("one", json!({"spec": {"replicas": 1, "paused": true}}));
    let refused = apply(&mut owned, "hpa", &json!({"replicas": 3}), OnConflict::Refuse).unwrap_err();
    assert!(matches!(&refused, ApplyError::Conflict { causes, .. } if causes.len() == 1), "{refused}");
    apply(&mut owned, "hpa", &json!({"replicas": 3}), OnConflict::Force).unwrap();
    assert_eq!(owned.live.as_ref().unwrap()["spec"]["replicas"], 3);
    owned.check(expect![[r#"
        hpa Apply/scale apps/v1 {"f:spec":{"f:replicas":{}}}
        one Update apps/v1 {"f:spec":{"f:paused":{}}}"#]]);
    apply(&mut owned, "hpa", &json!({"replicas": 4}), OnConflict::Refuse).unwrap();
    assert_eq!(owned.live.as_ref().unwrap()["spec"]["replicas"], 4);
}

#[test]
fn an_applied_scale_has_the_fields_of_a_scale_only() {
    let mut owned = OwnedObject::deployment();
    owned.create("one", json!({"spec": {"replicas": 1}}));
    let refused = apply(&mut owned, "hpa", &json!({"paused": true}), OnConflict::Force).unwrap_err();
    assert!(matches!(&refused, ApplyError::Malformed(text) if text.contains("paused")), "{refused}");
}
