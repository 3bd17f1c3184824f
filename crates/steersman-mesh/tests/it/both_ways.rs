//! The initializer and the webhook give the same Pods.

use serde_json::{Value, json};
use steersman_mesh::inject::{CONFIGURED, FRAGMENT, Fragment, RECORD};

use crate::environment::{DOCUMENT, Environment, MYAPP, Ways, containers, names, pod};

const NATIVE: &str = include_str!("../../../../manifests/mesh/envoy-native.yaml");

/// The text of a ConfigMap's fragment.
fn fragment_of(manifest: &str) -> String {
    let map: Value = serde_saphyr::from_str(manifest).unwrap();
    map["data"]["config"].as_str().unwrap().to_owned()
}

fn document() -> String {
    fragment_of(include_str!("../../../../manifests/mesh/envoy-initializer.yaml"))
}

fn myapp() -> Value {
    serde_saphyr::from_str(MYAPP).unwrap()
}

/// The parts of a Pod that the injector writes, without those that differ between any two Pods.
fn text(pod: &Value) -> String {
    json!({
        "labels": pod["metadata"]["labels"], "annotations": pod["metadata"]["annotations"], "spec": pod["spec"]
    })
    .to_string()
}

/// The Pod as it comes out of the initializer, of the webhook, and of both.
async fn each_way(fragment: &str, pod: &Value) -> [Value; 3] {
    let environment = Environment::without_fragment().await;
    environment.fragment(fragment).await;
    let name = pod["metadata"]["name"].as_str().unwrap();
    environment.initialize().await;
    let injector = environment.inject(Ways::Initializer).await;
    let by_initializer = environment.create(pod).await.unwrap();
    environment.delete(name).await;
    injector.stop().await;

    let injector = environment.inject(Ways::Both).await;
    let by_both = environment.create(pod).await.unwrap();
    injector.until_metric("pods_injected_total{way=\"webhook\"} 1").await;
    injector.until_metric("pods_skipped_total{way=\"initializer\",reason=\"injected\"} 1").await;
    environment.delete(name).await;

    let initializers = "/apis/admissionregistration.k8s.io/v1alpha1/initializerconfigurations/envoy-config";
    let request = http::Request::delete(initializers).body(Vec::new()).unwrap();
    environment.client().request::<Value>(request).await.unwrap();
    let by_webhook = environment.create(pod).await.unwrap();
    injector.stop().await;
    [by_initializer, by_webhook, by_both]
}

#[tokio::test]
async fn the_documents_pod_is_the_same_byte_for_byte() {
    let [by_initializer, by_webhook, by_both] = each_way(&document(), &myapp()).await;
    assert_eq!(containers(&by_webhook), ["myapp-container", "envoy"]);
    assert_eq!(by_webhook["metadata"]["annotations"][FRAGMENT], Fragment::parse(&document()).unwrap().hash());
    assert!(by_webhook["metadata"]["annotations"][RECORD].as_str().unwrap().contains("envoy-conf"));
    assert_eq!(text(&by_initializer), text(&by_webhook));
    assert_eq!(text(&by_both), text(&by_webhook));
}

#[tokio::test]
async fn a_native_sidecar_with_gates_and_metadata_is_the_same_byte_for_byte() {
    let more = format!(
        "{}readinessGates: [{{conditionType: {CONFIGURED}}}]\nmetadata: {{labels: {{mesh: \"on\"}}, annotations: {{a: b}}}}\nimagePullSecrets: [{{name: mirror}}]\n",
        fragment_of(NATIVE)
    );
    let mut pod = myapp();
    pod["spec"]["initContainers"] = json!([{"name": "migrate", "image": "m"}]);
    let [by_initializer, by_webhook, by_both] = each_way(&more, &pod).await;
    assert_eq!(names(&by_webhook, "initContainers"), ["envoy", "migrate"]);
    assert_eq!(by_webhook["spec"]["readinessGates"], json!([{"conditionType": CONFIGURED}]));
    assert_eq!(by_webhook["spec"]["terminationGracePeriodSeconds"], 40);
    assert_eq!(by_webhook["metadata"]["labels"]["mesh"], "on");
    assert_eq!(text(&by_initializer), text(&by_webhook));
    assert_eq!(text(&by_both), text(&by_webhook));
}

#[tokio::test]
async fn the_fragments_of_the_manifests_are_good() {
    for manifest in [document(), fragment_of(NATIVE), DOCUMENT.to_owned()] {
        Fragment::parse(&manifest).unwrap();
    }
    // The recommended one does not keep Pods out of a namespace that enforces the strictest level.
    let environment = Environment::without_fragment().await;
    environment.fragment(&fragment_of(NATIVE)).await;
    environment.namespace("strict", json!({"pod-security.kubernetes.io/enforce": "restricted"})).await;
    let injector = environment.inject(Ways::Webhook).await;
    let mut restricted = pod("restricted");
    restricted["spec"]["containers"][0]["securityContext"] = json!({
        "runAsNonRoot": true, "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    });
    let made = environment.create_in("strict", &restricted).await.unwrap();
    assert_eq!(names(&made, "initContainers"), ["envoy"]);
    injector.stop().await;
}
