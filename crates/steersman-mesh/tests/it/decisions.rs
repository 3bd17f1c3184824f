//! The rules by which Pods get the sidecar, at a server.

use serde_json::json;
use steersman_mesh::inject::{ASK, INJECT};

use crate::environment::{Environment, Ways, containers, options, pod};

#[tokio::test]
async fn labels_and_annotations_of_pods_and_namespaces_decide_in_both_ways() {
    for ways in [Ways::Initializer, Ways::Webhook] {
        let environment = Environment::start().await;
        for (name, value) in [("with", "true"), ("without", "false")] {
            let namespace =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {INJECT: value}}});
            environment.plane.apply(&namespace.to_string()).await;
            let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}});
            environment.plane.apply(&account.to_string()).await;
        }
        if ways == Ways::Initializer {
            environment.initialize().await;
        }
        let injector = environment.inject(ways).await;
        let mut labeled = pod("labeled");
        labeled["metadata"]["labels"] = json!({INJECT: "true"});
        let mut refusing = pod("refusing");
        refusing["metadata"]["labels"] = json!({INJECT: "false"});
        let mut asking = pod("asking");
        asking["metadata"]["annotations"] = json!({ASK: "true"});
        for (namespace, made, expected) in [
            ("with", pod("plain"), 2),
            ("with", refusing.clone(), 1),
            ("without", pod("plain"), 1),
            ("without", labeled, 2),
            ("without", asking, 2),
            ("default", pod("plain"), 2),
            ("default", refusing, 1),
        ] {
            let made = environment.create_in(namespace, &made).await.unwrap();
            assert_eq!(containers(&made).len(), expected, "{ways:?} {namespace} {}", made["metadata"]["name"]);
            assert_eq!(made["metadata"].get("initializers"), None);
        }
        injector.stop().await;
    }
}

#[tokio::test]
async fn what_is_never_injected_is_released_at_once() {
    let environment = Environment::start().await;
    environment.initialize().await;
    let mut options = options(Ways::Initializer);
    options.policy.never.push([("app".to_owned(), "db".to_owned())].into());
    let injector = environment.inject_as(environment.client(), Ways::Initializer, options).await;
    let mut host = pod("host");
    host["spec"]["hostNetwork"] = true.into();
    let mut own = pod("envoy-initializer");
    own["metadata"]["labels"] = json!({"app": "envoy-initializer"});
    let mut istio = pod("istio");
    istio["metadata"]["annotations"] = json!({"sidecar.istio.io/status": "{}"});
    let mut linkerd = pod("linkerd");
    linkerd["spec"]["containers"][0]["name"] = "linkerd-proxy".into();
    let mut present = pod("present");
    present["spec"]["containers"][0]["name"] = "envoy".into();
    let mut database = pod("database");
    database["metadata"]["labels"] = json!({"app": "db"});
    for (made, reason) in [
        (host, "host_network"),
        (own, "own"),
        (istio, "other_mesh"),
        (linkerd, "other_mesh"),
        (present, "present"),
        (database, "selector"),
    ] {
        let made = environment.create(&made).await.unwrap();
        assert_eq!(containers(&made).len(), 1, "{reason}");
        assert_eq!(made["metadata"]["annotations"].get("mesh.steersman.dev/fragment"), None);
        let n_skipped = if made["metadata"]["name"] == "linkerd" { 2 } else { 1 };
        injector
            .until_metric(&format!("pods_skipped_total{{way=\"initializer\",reason=\"{reason}\"}} {n_skipped}"))
            .await;
    }
    injector.stop().await;
}
