//! Stages, which set the behavior of Pods on simulated nodes and which nodes are away, on a whole control plane.

use crate::nodes::simulated::{container, is_ready, phase, pod_key, start, waits_for};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use steersman::ObjectKey;
use steersman_testkit::{ControlPlane, Loops};

/// A control plane with this number of nodes, once Stages are served.
async fn start_with_stages(n_nodes: usize) -> ControlPlane {
    let plane = start(n_nodes).await;
    until_served(&plane).await;
    plane
}

async fn until_served(plane: &ControlPlane) {
    let key = ObjectKey::cluster("stages.simulate.steersman.dev");
    let is_established = |definition: &CustomResourceDefinition| {
        let conditions = definition.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|one| one.type_ == "Established" && one.status == "True")
    };
    plane.until(&key, is_established).await;
}

fn stage(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "simulate.steersman.dev/v1alpha1", "kind": "Stage", "metadata": {"name": name}, "spec": spec})
}

async fn apply(plane: &ControlPlane, name: &str, spec: Value) {
    plane.apply(&stage(name, spec).to_string()).await;
}

async fn delete_stage(plane: &ControlPlane, name: &str) {
    let kind = kube::core::ApiResource {
        group: "simulate.steersman.dev".to_owned(),
        version: "v1alpha1".to_owned(),
        api_version: "simulate.steersman.dev/v1alpha1".to_owned(),
        kind: "Stage".to_owned(),
        plural: "stages".to_owned(),
    };
    let stages = Api::<DynamicObject>::all_with(plane.client(), &kind);
    stages.delete(name, &DeleteParams::default()).await.unwrap();
}

/// A Pod on `node-1` with one container `c`.
async fn run(plane: &ControlPlane, name: &str, app: &str, annotations: Value, restart_policy: &str) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": app}, "annotations": annotations},
        "spec": {"nodeName": "node-1", "restartPolicy": restart_policy, "containers": [{"name": "c", "image": "nginx"}]},
    });
    plane.apply(&pod.to_string()).await;
}

fn web() -> Value {
    json!({"matchLabels": {"app": "web"}})
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pods_that_a_stage_selects_fail_with_its_exit_code() {
    let plane = start_with_stages(1).await;
    apply(&plane, "fails", json!({"podSelector": web(), "failAfter": "0", "exitCode": 3})).await;
    run(&plane, "p", "web", json!({}), "Never").await;
    let pod = plane.until(&pod_key("p"), |pod| phase(pod) == "Failed").await;
    assert_eq!(container(&pod).state.unwrap().terminated.unwrap().exit_code, 3);
    run(&plane, "q", "db", json!({}), "Never").await;
    plane.until(&pod_key("q"), |pod| phase(pod) == "Succeeded").await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stage_that_comes_lets_what_runs_crash_unless_an_annotation_says_otherwise() {
    let plane = start_with_stages(1).await;
    run(&plane, "p", "web", json!({}), "Always").await;
    run(&plane, "spared", "web", json!({"simulate.steersman.dev/crash-loop": "false"}), "Always").await;
    plane.until(&pod_key("p"), is_ready).await;
    plane.until(&pod_key("spared"), is_ready).await;
    apply(&plane, "crashes", json!({"podSelector": web(), "crashLoop": true, "exitCode": 7})).await;
    let pod = plane.until(&pod_key("p"), |pod| waits_for(pod).as_deref() == Some("CrashLoopBackOff")).await;
    assert_eq!(container(&pod).last_state.unwrap().terminated.unwrap().exit_code, 7);
    let spared = Api::<Pod>::namespaced(plane.client(), "default").get("spared").await.unwrap();
    assert_eq!(container(&spared).restart_count, 0, "its annotation counts first");
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_goes_and_comes_with_a_stage_its_changes_and_its_deletion() {
    let plane = start_with_stages(1).await;
    run(&plane, "p", "web", json!({}), "Always").await;
    plane.until(&pod_key("p"), is_ready).await;
    apply(&plane, "never", json!({"podSelector": web(), "neverReady": true})).await;
    plane.until(&pod_key("p"), |pod| !is_ready(pod)).await;
    apply(&plane, "never", json!({"podSelector": {"matchLabels": {"app": "db"}}, "neverReady": true})).await;
    plane.until(&pod_key("p"), is_ready).await;
    let of_a_container = json!({"containers": [{"name": "c", "neverReady": true}]});
    apply(&plane, "of-a-container", of_a_container.clone()).await;
    plane.until(&pod_key("p"), |pod| !is_ready(pod)).await;
    delete_stage(&plane, "of-a-container").await;
    plane.until(&pod_key("p"), is_ready).await;
    apply(&plane, "of-a-container", of_a_container).await;
    plane.until(&pod_key("p"), |pod| !is_ready(pod)).await;
    // The weight decides, not the time of creation.
    apply(&plane, "ready", json!({"weight": 1, "neverReady": false})).await;
    let pod = plane.until(&pod_key("p"), is_ready).await;
    assert_eq!(container(&pod).restart_count, 0);
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stage_selects_by_labels_of_namespaces_and_nodes_as_they_are_at_the_time() {
    let plane = start_with_stages(1).await;
    run(&plane, "p", "web", json!({}), "Always").await;
    plane.until(&pod_key("p"), is_ready).await;
    let never = json!({
        "namespaceSelector": {"matchExpressions": [{"key": "broken", "operator": "Exists"}]},
        "nodeSelector": {"matchLabels": {"rack": "7"}},
        "neverReady": true,
    });
    apply(&plane, "never", never).await;
    let label = |key: &str, value: Value| Patch::Merge(json!({"metadata": {"labels": {key: value}}}));
    let namespaces = Api::<k8s_openapi::api::core::v1::Namespace>::all(plane.client());
    namespaces.patch("default", &PatchParams::default(), &label("broken", json!("yes"))).await.unwrap();
    let nodes = Api::<k8s_openapi::api::core::v1::Node>::all(plane.client());
    nodes.patch("node-1", &PatchParams::default(), &label("rack", json!("7"))).await.unwrap();
    plane.until(&pod_key("p"), |pod| !is_ready(pod)).await;
    namespaces.patch("default", &PatchParams::default(), &label("broken", Value::Null)).await.unwrap();
    plane.until(&pod_key("p"), is_ready).await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_a_stage_lets_go_away_is_not_heard_of_until_the_stage_is_deleted() {
    let plane = start_with_stages(2).await;
    let hostname = json!({"matchLabels": {"kubernetes.io/hostname": "node-1"}});
    apply(&plane, "away", json!({"nodeSelector": hostname, "goesAway": true})).await;
    // The Stage is known to be in force once a Stage that was created later is.
    let marker = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "marker"},
        "spec": {"nodeName": "node-2", "containers": [{"name": "c", "image": "nginx"}]}});
    plane.apply(&marker.to_string()).await;
    plane.until(&pod_key("marker"), is_ready).await;
    apply(&plane, "later", json!({"neverReady": true})).await;
    plane.until(&pod_key("marker"), |pod| !is_ready(pod)).await;
    delete_stage(&plane, "later").await;
    plane.until(&pod_key("marker"), is_ready).await;

    run(&plane, "p", "web", json!({}), "Always").await;
    let other = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "q"},
        "spec": {"nodeName": "node-2", "containers": [{"name": "c", "image": "nginx"}]}});
    plane.apply(&other.to_string()).await;
    plane.until(&pod_key("q"), is_ready).await;
    let pods = Api::<Pod>::namespaced(plane.client(), "default");
    assert_eq!(phase(&pods.get("p").await.unwrap()), "Pending");
    let leases = Api::<Lease>::namespaced(plane.client(), "kube-node-lease");
    let renewed = |lease: Lease| lease.spec.and_then(|spec| spec.renew_time);
    let before = renewed(leases.get("node-1").await.unwrap());
    delete_stage(&plane, "away").await;
    plane.until(&pod_key("p"), is_ready).await;
    assert!(renewed(leases.get("node-1").await.unwrap()) >= before);
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_stage_cannot_mean_is_refused_with_a_sentence() {
    let plane = start_with_stages(1).await;
    let duration = "must be a duration such as 500ms or 1m30s, or a range such as 1s..3s with the shorter one first";
    let quantity = "must be a quantity of at least 0, such as 250m or 64Mi";
    for (spec, want) in [
        (json!({"readyDelay": "soon"}), format!("spec.readyDelay: Invalid value: \"soon\": {duration}")),
        (json!({"pullDelay": "3s..1s"}), format!("spec.pullDelay: Invalid value: \"3s..1s\": {duration}")),
        (json!({"stopDelay": "-1s"}), format!("spec.stopDelay: Invalid value: \"-1s\": {duration}")),
        (json!({"usage": {"cpu": "much"}}), format!("spec.usage.cpu: Invalid value: \"much\": {quantity}")),
        (json!({"usage": {"memory": -1}}), format!("spec.usage.memory: Invalid value: -1: {quantity}")),
        (json!({"failAfter": "1s", "exitCode": 256}), "should be less than or equal to 255".to_owned()),
        (json!({"exitCode": 3}), "an exitCode needs failAfter or crashLoop".to_owned()),
        (
            json!({"crashLoop": true, "succeedAfter": "1s"}),
            "only one of succeedAfter, failAfter and crashLoop can be said of a container".to_owned(),
        ),
        (
            json!({"containers": [{"name": "c", "failAfter": "later"}]}),
            format!("spec.containers[0].failAfter: Invalid value: \"later\": {duration}"),
        ),
        (
            json!({"containers": [{"name": "c"}, {"name": "c"}]}),
            ".spec.containers: duplicate entries for key [name=\"c\"]".to_owned(),
        ),
        (json!({"goesAway": true}), "goesAway needs a nodeSelector that says which Nodes; {} selects all".to_owned()),
        (
            json!({"goesAway": true, "nodeSelector": {}, "podSelector": {}}),
            "goesAway is about Nodes: it does not go with podSelector, namespaces or namespaceSelector".to_owned(),
        ),
        (
            json!({"namespaces": ["a"], "namespaceSelector": {}}),
            "either namespaces or a namespaceSelector says which namespaces are meant, not both".to_owned(),
        ),
        (
            json!({"podSelector": {"matchExpressions": [{"key": "a", "operator": "Equals"}]}}),
            "Unsupported value: \"Equals\": supported values: ".to_owned(),
        ),
        (
            json!({"podSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}),
            "In and NotIn need values, Exists and DoesNotExist have none".to_owned(),
        ),
        (json!({"neverReady": "yes"}), ".spec.neverReady: expected boolean, got the string \"yes\"".to_owned()),
    ] {
        let refused = plane.try_apply(&stage("bad", spec.clone()).to_string()).await.unwrap_err();
        let says = chain(&refused);
        assert!(says.contains(&want), "{spec}: {says}");
    }
    let everything = json!({
        "weight": 5, "podSelector": web(), "namespaces": ["default", "shop"], "nodeSelector": {},
        "pullDelay": "0", "readyDelay": "1s..3s", "neverReady": false, "failAfter": "1h30m", "exitCode": 255,
        "livenessFailsAfter": "1.5h", "stopDelay": "500ms..0.6s", "imageMissing": false,
        "usage": {"cpu": 2, "memory": "64Mi"},
        "containers": [{"name": "c", "succeedAfter": "0..1us", "usage": {"cpu": "100m", "memory": 4_294_967_296_i64}}],
    });
    apply(&plane, "good", everything).await;
    plane.stop().await;
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_definition_pods_run_and_stages_are_read_again_when_it_is_back() {
    let plane = start_with_stages(1).await;
    apply(&plane, "never", json!({"neverReady": true})).await;
    run(&plane, "p", "web", json!({}), "Always").await;
    plane.until(&pod_key("p"), |pod| phase(pod) == "Running").await;
    let definitions = Api::<CustomResourceDefinition>::all(plane.client());
    let mut definition = definitions.get("stages.simulate.steersman.dev").await.unwrap();
    definitions.delete("stages.simulate.steersman.dev", &DeleteParams::default()).await.unwrap();
    plane.until(&pod_key("p"), is_ready).await;
    run(&plane, "q", "web", json!({}), "Always").await;
    plane.until(&pod_key("q"), is_ready).await;
    plane.until_gone::<CustomResourceDefinition>(&ObjectKey::cluster("stages.simulate.steersman.dev")).await;
    definition.metadata = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
        name: definition.metadata.name,
        ..Default::default()
    };
    definition.status = None;
    definitions.create(&kube::api::PostParams::default(), &definition).await.unwrap();
    until_served(&plane).await;
    apply(&plane, "never", json!({"neverReady": true})).await;
    plane.until(&pod_key("p"), |pod| !is_ready(pod)).await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stages_of_before_hold_for_the_first_pod_after_a_restart() {
    let plane = start_with_stages(1).await;
    apply(&plane, "fails", json!({"failAfter": "0", "exitCode": 4})).await;
    let plane = plane.with_loops(Loops::none()).await;
    run(&plane, "p", "web", json!({}), "Never").await;
    let plane = plane.with_loops(Loops::none().nodes(1)).await;
    let pod = plane.until(&pod_key("p"), |pod| matches!(phase(pod).as_str(), "Failed" | "Succeeded")).await;
    assert_eq!(container(&pod).state.unwrap().terminated.unwrap().exit_code, 4);
    plane.stop().await;
}
