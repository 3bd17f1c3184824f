//! Ownership through `/scale`.

use crate::managed::scale;
use crate::managed::tests::{World, record};
use expect_test::expect;
use serde_json::json;
use steersman_machinery::Value;

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
