//! Refusals and warnings: what creators are told, and the Events.

use serde_json::{Value, json};
use steersman_mesh::inject::INJECT;
use steersman_testkit::Fault;

use crate::environment::{Environment, Ways, containers, pod};

const PORT: &str = "the sidecar's container envoy and the Pod's container web both listen on port 80/TCP: change one";

fn on_port_80(name: &str) -> Value {
    let mut pod = pod(name);
    pod["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80}]);
    pod
}

fn owned(mut pod: Value, kind: &str) -> Value {
    pod["metadata"]["ownerReferences"] = json!([{"apiVersion": if kind == "Job" { "batch/v1" } else { "apps/v1" }, "kind": kind, "name": "owner", "uid": "u", "controller": true}]);
    pod
}

#[tokio::test]
async fn a_port_in_use_is_said_to_the_creator_and_at_the_owner() {
    let environment = Environment::start().await;
    let injector = environment.inject(Ways::Webhook).await;
    let (code, message) = environment.refused(&on_port_80("alone")).await;
    assert_eq!(code, 403);
    assert!(message.ends_with(PORT), "{message}");
    environment.until_event(&format!("Pod/alone SidecarRefused: {PORT}")).await;
    environment.refused(&owned(on_port_80("owned"), "ReplicaSet")).await;
    environment.until_event(&format!("ReplicaSet/owner SidecarRefused: {PORT}")).await;
    let mut unnamed = on_port_80("");
    unnamed["metadata"] = json!({"generateName": "web-"});
    environment.refused(&unnamed).await;
    environment.until_event(&format!("Namespace/default SidecarRefused: {PORT}")).await;
    assert!(injector.has_metric("pods_refused_total{way=\"webhook\",reason=\"port\"} 3"));
    injector.stop().await;

    environment.no_longer_call("mesh-injector").await;
    environment.initialize().await;
    let injector = environment.inject(Ways::Initializer).await;
    let (code, message) = environment.refused(&owned(on_port_80("waiting"), "StatefulSet")).await;
    assert_eq!(code, 403);
    assert!(message.ends_with(PORT), "{message}");
    environment.until_event(&format!("StatefulSet/owner SidecarRefused: {PORT}")).await;
    assert!(environment.pods("default").get_opt("waiting").await.unwrap().is_none(), "nothing of it is left");
    injector.stop().await;
}

#[tokio::test]
async fn an_event_about_a_pod_without_a_name_is_in_its_namespace() {
    let environment = Environment::start().await;
    environment.namespace("shop", json!({})).await;
    let injector = environment.inject(Ways::Webhook).await;
    let mut unnamed = on_port_80("");
    unnamed["metadata"] = json!({"generateName": "web-"});
    assert!(environment.create_in("shop", &unnamed).await.is_err());
    environment.until_event(&format!("Namespace/shop SidecarRefused: {PORT}")).await;
    let events = kube::Api::<k8s_openapi::api::core::v1::Event>::namespaced(environment.client(), "shop");
    let all = events.list(&Default::default()).await.unwrap().items;
    assert!(all.iter().any(|event| event.reason.as_deref() == Some("SidecarRefused")), "{all:#?}");
    injector.stop().await;
}

#[tokio::test]
async fn a_pod_that_asks_and_is_malformed_is_warned_about() {
    let environment = Environment::start().await;
    let injector = environment.inject(Ways::Webhook).await;
    let mut twice = pod("twice");
    twice["metadata"]["labels"] = json!({INJECT: "true"});
    twice["spec"]["containers"] = json!([{"name": "web", "image": "web"}, {"name": "web", "image": "web"}]);
    assert_eq!(environment.refused(&twice).await.0, 422);
    environment
        .until_event("Pod/twice SidecarWarning: the Pod asks for the sidecar and does not get it: it is malformed")
        .await;
    injector.stop().await;
}

#[tokio::test]
async fn a_pod_without_the_sidecar_that_the_server_does_not_release_is_refused_in_other_words() {
    let environment = Environment::start().await;
    environment.initialize().await;
    let injector = environment.inject(Ways::Initializer).await;
    let is_patch = |method: &http::Method, path: &str| method == http::Method::PATCH && path.ends_with("/pods/left");
    environment.plane.fail_next_where(1, Fault::Refused(403), is_patch);
    let mut left = pod("left");
    left["metadata"]["labels"] = json!({INJECT: "false"});
    let (code, message) = environment.refused(&left).await;
    assert_eq!(code, 403);
    assert!(message.ends_with("the Pod cannot be released: forbidden"), "{message}");
    assert!(injector.has_metric("pods_refused_total{way=\"initializer\",reason=\"server\"} 1"));
    // The warning that a value does not count belongs to a Pod that is not created.
    environment.plane.fail_next_where(1, Fault::Refused(403), |method, path| {
        method == http::Method::PATCH && path.ends_with("/pods/odd")
    });
    let mut odd = pod("odd");
    odd["metadata"]["labels"] = json!({INJECT: "yes"});
    let (_, message) = environment.refused(&odd).await;
    assert!(message.ends_with("the Pod with the sidecar is refused: forbidden"), "{message}");
    environment.until_event("Pod/odd SidecarRefused: the Pod with the sidecar is refused: forbidden").await;
    assert!(!environment.events().await.iter().any(|event| event.starts_with("Pod/odd SidecarWarning")));
    injector.stop().await;
}

#[tokio::test]
async fn a_dry_run_leaves_no_event() {
    let environment = Environment::start().await;
    let injector = environment.inject(Ways::Webhook).await;
    let params = kube::api::PostParams { dry_run: true, ..Default::default() };
    let dry: k8s_openapi::api::core::v1::Pod = serde_json::from_value(on_port_80("dry")).unwrap();
    assert!(environment.pods("default").create(&params, &dry).await.is_err());
    environment.refused(&on_port_80("wet")).await;
    environment.until_event(&format!("Pod/wet SidecarRefused: {PORT}")).await;
    let events = kube::Api::<k8s_openapi::api::core::v1::Event>::all(environment.client());
    let all = events.list(&Default::default()).await.unwrap().items;
    assert!(all.iter().all(|event| event.involved_object.name.as_deref() != Some("dry")), "{all:#?}");
    injector.stop().await;
}

#[tokio::test]
async fn a_jobs_pod_with_a_sidecar_that_never_ends_is_warned_about() {
    let environment = Environment::start().await;
    let injector = environment.inject(Ways::Webhook).await;
    let mut job = owned(pod("work"), "Job");
    job["spec"]["restartPolicy"] = "Never".into();
    let made = environment.create(&job).await.unwrap();
    assert_eq!(containers(&made), ["web", "envoy"]);
    environment
        .until_event("Job/owner SidecarWarning: the Job does not end while the container envoy runs: make it a native sidecar, an init container with restartPolicy Always, in the fragment")
        .await;
    injector.stop().await;
}

#[tokio::test]
async fn a_value_that_does_not_count_is_said_in_an_event() {
    let environment = Environment::start().await;
    environment.initialize().await;
    let injector = environment.inject(Ways::Initializer).await;
    let mut odd = pod("odd");
    odd["metadata"]["labels"] = json!({INJECT: "yes"});
    assert_eq!(containers(&environment.create(&odd).await.unwrap()).len(), 2);
    environment
        .until_event("Pod/odd SidecarWarning: the label mesh.steersman.dev/inject is \"yes\" and does not count: want \"true\" or \"false\"")
        .await;
    injector.stop().await;
}

#[tokio::test]
async fn a_pod_that_the_server_refuses_with_the_sidecar_is_refused_at_once() {
    let environment = Environment::start().await;
    environment.initialize().await;
    // There is room for the Pod alone.
    let range = json!({
        "apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "small"},
        "spec": {"limits": [{"type": "Container", "max": {"memory": "100Mi"}}]}
    });
    environment.plane.apply(&range.to_string()).await;
    environment.fragment("containers: [{name: envoy, image: e, resources: {limits: {memory: 500Mi}}}]").await;
    let injector = environment.inject(Ways::Initializer).await;
    let mut small = pod("small");
    small["spec"]["containers"][0]["resources"] = json!({"limits": {"memory": "50Mi"}});
    let (code, message) = environment.refused(&small).await;
    assert_eq!(code, 403);
    assert!(
        message.contains("the Pod with the sidecar is refused: ")
            && message.contains("maximum memory usage per Container is 100Mi"),
        "{message}"
    );
    assert!(injector.has_metric("pods_refused_total{way=\"initializer\",reason=\"server\"} 1"));
    injector.stop().await;
}
