//! Ownership through `/scale`.

use crate::managed::tests::World;
use crate::managed::{Writer, scale};
use expect_test::expect;
use serde_json::json;

/// Sets the replicas of the live object through its Scale.
fn scale_to(world: &mut World, manager: &str, replicas: u32) {
    let path = |_: &str| Some(vec!["spec".to_owned(), "replicas".to_owned()]);
    let live = world.live.clone().unwrap();
    let mut object = live.clone();
    object["spec"]["replicas"] = json!(replicas);
    object["metadata"]["managedFields"] = json!([]);
    let writer = Writer { manager, subresource: "scale", time: "2026-01-01T00:01:00Z" };
    scale::on_update(&world.kind("scale"), &writer, &live, &mut object, &path).unwrap();
    world.store(object);
}

#[test]
fn who_scales_owns_the_replicas() {
    let mut world = World::deployment();
    world.create("one", json!({"spec": {"replicas": 1, "paused": true}}));
    scale_to(&mut world, "hpa", 3);
    world.check(expect![[r#"
        one Update apps/v1 {"f:spec":{"f:paused":{}}}
        hpa Update/scale apps/v1 {"f:spec":{"f:replicas":{}}}"#]]);
    scale_to(&mut world, "two", 4);
    world.check(expect![[r#"
        one Update apps/v1 {"f:spec":{"f:paused":{}}}
        two Update/scale apps/v1 {"f:spec":{"f:replicas":{}}}"#]]);
}

#[test]
fn scaling_to_what_there_is_takes_nothing() {
    let mut world = World::deployment();
    let before = world.apply("one", json!({"spec": {"replicas": 3}}));
    scale_to(&mut world, "hpa", 3);
    assert_eq!(world.live, Some(before));
}

#[test]
fn replicas_that_nobody_owned_stay_nobodys() {
    let mut world = World::deployment();
    world.apply("one", json!({"spec": {"paused": true}}));
    scale_to(&mut world, "kubectl", 3);
    world.check(expect![[r#"one Apply apps/v1 {"f:spec":{"f:paused":{}}}"#]]);
}
