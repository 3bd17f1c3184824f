//! Which Stages select which Pods and Nodes.

use super::*;
use kube::CustomResourceExt;
use serde_json::{Value, json};

fn stage(name: &str, spec: Value) -> Stage {
    serde_json::from_value(json!({
        "apiVersion": "simulate.steersman.dev/v1alpha1", "kind": "Stage", "metadata": {"name": name}, "spec": spec,
    }))
    .unwrap()
}

fn stages(all: &[(&str, Value)]) -> Stages {
    let all: Vec<Stage> = all.iter().map(|(name, spec)| stage(name, spec.clone())).collect();
    let (stages, faults) = Stages::of(&all);
    assert_eq!(faults, Vec::<String>::new());
    stages
}

fn labels(all: Value) -> Labels {
    serde_json::from_value(all).unwrap()
}

fn pod() -> Pod {
    serde_json::from_value(
        json!({"metadata": {"name": "p", "namespace": "shop", "labels": {"app": "web", "tier": "1"}}}),
    )
    .unwrap()
}

/// The delay in seconds until a container of a Pod is ready, by which the tests identify Stages.
fn ready_delay(stages: &Stages) -> Option<u64> {
    let layers = stages.about(&pod(), &labels(json!({"team": "a"})), &labels(json!({"rack": "7"})));
    let behaviors = Behaviors::of(&Layer::default(), &layers);
    behaviors.container("c").ready_delay.map(|range| range.least.as_secs())
}

#[test]
fn a_stage_is_for_the_pods_that_all_its_selectors_select() {
    let expression = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
    for (selectors, is_selected) in [
        (json!({}), true),
        (json!({"podSelector": {}}), true),
        (json!({"podSelector": {"matchLabels": {"app": "web"}}}), true),
        (json!({"podSelector": {"matchLabels": {"app": "web", "tier": "2"}}}), false),
        (json!({"podSelector": expression("tier", "In", &["1", "2"])}), true),
        (json!({"podSelector": expression("tier", "NotIn", &["1", "2"])}), false),
        (json!({"podSelector": expression("color", "NotIn", &["red"])}), true),
        (json!({"podSelector": expression("color", "Exists", &[])}), false),
        (json!({"podSelector": expression("color", "DoesNotExist", &[])}), true),
        (json!({"podSelector": expression("app", "Resembles", &["web"])}), false),
        (json!({"namespaces": ["default", "shop"]}), true),
        (json!({"namespaces": ["default"]}), false),
        (json!({"namespaceSelector": {"matchLabels": {"team": "a"}}}), true),
        (json!({"namespaceSelector": {"matchLabels": {"team": "b"}}}), false),
        (json!({"nodeSelector": {"matchLabels": {"rack": "7"}}}), true),
        (json!({"nodeSelector": {"matchLabels": {"rack": "8"}}}), false),
        (json!({"namespaces": ["shop"], "nodeSelector": {"matchLabels": {"rack": "8"}}}), false),
    ] {
        let mut spec = selectors.clone();
        spec["readyDelay"] = json!("1s");
        assert_eq!(ready_delay(&stages(&[("s", spec)])).is_some(), is_selected, "{selectors}");
    }
}

#[test]
fn the_greatest_weight_counts_and_then_the_name() {
    let delay = |seconds: u32, weight: i32| json!({"weight": weight, "readyDelay": format!("{seconds}s")});
    for (all, want) in [
        (vec![("a", delay(1, 0)), ("b", delay(2, 1))], 2),
        (vec![("b", delay(2, 0)), ("a", delay(1, 0))], 1),
        (vec![("a", delay(1, -1)), ("b", json!({"readyDelay": "2s"}))], 2),
        (vec![("a", json!({"weight": 9, "neverReady": true})), ("b", delay(2, 0))], 2),
        (
            vec![
                ("a", json!({"weight": 9, "podSelector": {"matchLabels": {"app": "db"}}, "readyDelay": "1s"})),
                ("b", delay(2, 0)),
            ],
            2,
        ),
    ] {
        assert_eq!(ready_delay(&stages(&all)), Some(want), "{all:?}");
    }
}

#[test]
fn a_node_is_away_as_the_first_stage_says_that_says_anything_of_it() {
    let rack = |weight: i32, goes_away: bool| json!({"weight": weight, "goesAway": goes_away, "nodeSelector": {"matchLabels": {"rack": "7"}}});
    let all = |goes_away: bool| json!({"goesAway": goes_away, "nodeSelector": {}});
    for (given, is_away) in [
        (vec![], false),
        (vec![("a", rack(0, true))], true),
        (vec![("a", all(true)), ("b", rack(1, false))], false),
        (vec![("a", all(false)), ("b", rack(0, true))], false),
        (vec![("a", json!({"nodeSelector": {}, "neverReady": true})), ("b", rack(0, true))], true),
        // Without a nodeSelector, no Node goes away; the definition rejects such a Stage.
        (vec![("a", json!({"goesAway": true}))], false),
    ] {
        assert_eq!(stages(&given).is_away(&labels(json!({"rack": "7"}))), is_away, "{given:?}");
    }
    assert!(!stages(&[("a", rack(0, true))]).is_away(&Labels::new()));
}

#[test]
fn everything_that_annotations_say_a_stage_says_too() {
    let spec = json!({
        "pullDelay": "1s", "readyDelay": "2s", "neverReady": true, "failAfter": "3s", "exitCode": 4,
        "livenessFailsAfter": "5s", "stopDelay": "6s", "imageMissing": true, "usage": {"cpu": "250m", "memory": "1Ki"},
    });
    let annotations = [
        ("delay", "1s"),
        ("ready-delay", "2s"),
        ("never-ready", "true"),
        ("fail-after", "3s"),
        ("exit-code", "4"),
        ("liveness-fails-after", "5s"),
        ("stop-delay", "6s"),
        ("image-missing", "true"),
        ("cpu-usage", "250m"),
        ("memory-usage", "1Ki"),
    ];
    let mut annotated = pod();
    let annotations = annotations.map(|(key, value)| (format!("simulate.steersman.dev/{key}"), value.to_owned()));
    annotated.metadata.annotations = Some(annotations.into());
    let (layer, faults) = Layer::of(&annotated);
    assert_eq!(faults, Vec::<String>::new());
    assert_eq!(stages(&[("s", spec)]).about(&pod(), &Labels::new(), &Labels::new())[0].general, layer);
    for (spec, want) in [(json!({"crashLoop": true}), Some(true)), (json!({}), None)] {
        assert_eq!(stages(&[("s", spec)]).all[0].layers.general.crash_loop, want);
    }
}

#[test]
fn what_gets_past_the_definition_and_cannot_be_read_is_said_and_left_out() {
    let odd = json!({"readyDelay": "soon", "usage": {"cpu": -1}, "containers": [{"name": "c", "stopDelay": "9x"}]});
    let (stages, faults) = Stages::of(&[stage("s", odd)]);
    assert_eq!(faults.len(), 3, "{faults:?}");
    assert_eq!(faults[0], "the field readyDelay of the stage \"s\" cannot be used: \"soon\"");
    assert_eq!(stages.all[0].layers.general, Layer::default());
}

#[test]
fn the_definition_has_one_schema_with_a_description_and_rules_for_each_field() {
    let definition = serde_json::to_value(Stage::crd()).unwrap();
    assert_eq!(definition["metadata"]["name"], "stages.simulate.steersman.dev");
    assert_eq!(definition["spec"]["scope"], "Cluster");
    let spec = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    for field in ["weight", "podSelector", "pullDelay", "goesAway", "usage", "containers"] {
        assert!(spec["properties"][field]["description"].is_string(), "{field}: {spec:#}");
    }
    assert_eq!(spec["x-kubernetes-validations"].as_array().unwrap().len(), 5);
    let container = &spec["properties"]["containers"]["items"];
    assert!(container["properties"]["pullDelay"]["x-kubernetes-validations"].is_array(), "{container:#}");
    assert_eq!(container["required"], json!(["name"]));
    let text = definition.to_string();
    for word in ["anyOf", "oneOf", "$ref", "x-kubernetes-preserve-unknown-fields"] {
        assert!(!text.contains(word), "{word}: {definition:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_takes_the_definition() {
    let plane = steersman_testkit::ControlPlane::start().await;
    plane.apply(&serde_json::to_string(&Stage::crd()).unwrap()).await;
    plane.stop().await;
}
