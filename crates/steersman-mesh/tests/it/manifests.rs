//! The manifests grant what the injector needs, and no more.

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::rbac::v1::{ClusterRole, Role};
use serde_json::json;
use steersman::ObjectKey;
use steersman_mesh::inject::{Certificate, NAME, Options, PATH, rules};
use steersman_mesh::permissions::missing;
use steersman_testkit::{ControlPlane, User};

use crate::environment::{DOCUMENT, Environment, Ways, containers, options, pod};

/// All files of the kustomization, in its order.
const BASE: [&str; 6] = [
    include_str!("../../../../manifests/mesh/injector/namespace.yaml"),
    include_str!("../../../../manifests/mesh/injector/rbac.yaml"),
    include_str!("../../../../manifests/mesh/injector/deployment.yaml"),
    include_str!("../../../../manifests/mesh/injector/service.yaml"),
    include_str!("../../../../manifests/mesh/injector/disruption.yaml"),
    include_str!("../../../../manifests/mesh/injector/webhook.yaml"),
];
const INITIALIZER: &str = include_str!("../../../../manifests/mesh/injector/initializer.yaml");
const ACCOUNT: &str = "system:serviceaccount:mesh-system:mesh-injector";

/// The options in the Deployment's arguments.
fn deployed(ways: Ways) -> Options {
    let mut options = options(ways);
    options.config_map = ObjectKey::namespaced("mesh-system", "envoy-initializer");
    if let Some(webhook) = &mut options.webhook {
        webhook.certificate = Certificate::SelfSigned {
            secret: ObjectKey::namespaced("mesh-system", "mesh-injector-webhook"),
            configuration: NAME.to_owned(),
            services: vec![ObjectKey::namespaced("mesh-system", NAME)],
            hosts: vec!["127.0.0.1".to_owned()],
        };
    }
    options
}

#[tokio::test]
async fn the_service_account_may_do_what_the_injector_needs_and_no_more() {
    let plane = ControlPlane::start().await;
    for manifest in BASE {
        plane.apply(manifest).await;
    }
    let client = plane.client_as(User::authenticated(ACCOUNT, []));
    let needed = rules(&deployed(Ways::Webhook));
    assert_eq!(missing(&client, &needed).await.unwrap(), []);
    let of_cluster = kube::Api::<ClusterRole>::all(plane.client());
    let mut granted = of_cluster.get(NAME).await.unwrap().rules.unwrap();
    let of_namespace = kube::Api::<Role>::namespaced(plane.client(), "mesh-system");
    granted.extend(of_namespace.get(NAME).await.unwrap().rules.unwrap());
    assert_eq!(granted.len(), needed.len());
    for needed in &needed {
        let is_same = |granted: &&k8s_openapi::api::rbac::v1::PolicyRule| {
            granted.resources.as_deref() == Some([needed.resource.to_owned()].as_slice())
                && granted.verbs == needed.verbs
                && granted.resource_names == needed.name.clone().map(|name| vec![name])
        };
        assert_eq!(granted.iter().filter(is_same).count(), 1, "{needed:?}");
    }
    let both = rules(&deployed(Ways::Both));
    let said: Vec<String> = missing(&client, &both).await.unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(said.len(), 4);
    assert_eq!(
        said[3],
        "may not initialize pods: add to its ClusterRole the rule {apiGroups: [\"\"], resources: [\"pods\"], verbs: [\"list\", \"watch\", \"patch\", \"initialize\"]}"
    );
    plane.apply(INITIALIZER).await;
    assert_eq!(missing(&client, &both).await.unwrap(), []);
}

#[tokio::test]
async fn the_injector_works_with_the_rules_of_the_manifests() {
    for ways in [Ways::Webhook, Ways::Initializer] {
        let environment = Environment::without_fragment().await;
        for manifest in BASE {
            environment.plane.apply(manifest).await;
        }
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "envoy-initializer", "namespace": "mesh-system"},
            "data": {"config": DOCUMENT}
        });
        environment.plane.apply(&map.to_string()).await;
        if ways == Ways::Initializer {
            environment.no_longer_call(NAME).await;
            environment.plane.apply(INITIALIZER).await;
            environment.initialize().await;
        }
        let client = environment.plane.client_as(User::authenticated(ACCOUNT, []));
        let injector = environment.inject_as(client, ways, deployed(ways)).await;
        let made = environment.create(&pod("one")).await.unwrap();
        assert_eq!(containers(&made), ["web", "envoy"], "{ways:?}");
        let mut refused = pod("two");
        refused["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80}]);
        let (_, message) = environment.refused(&refused).await;
        environment
            .until_event(&format!("Pod/two SidecarRefused: {}", &message[message.find("the sidecar").unwrap()..]))
            .await;
        injector.until_metric("missing_requirements 0").await;
        injector.stop().await;
    }
}

/// The webhook of the manifests asks about those Pods alone that the injector would inject.
#[tokio::test]
async fn the_selectors_of_the_manifest_choose_namespaces_and_pods_that_ask() {
    let environment = Environment::start().await;
    let injector = environment.inject(Ways::Webhook).await;
    // The same entries, with this process in place of the Service.
    let manifest: serde_json::Value = serde_saphyr::from_str(BASE[5]).unwrap();
    let mut manifest = manifest;
    for webhook in manifest["webhooks"].as_array_mut().unwrap() {
        assert_eq!(webhook["clientConfig"]["service"]["path"], PATH);
        webhook["clientConfig"] = json!({"url": format!("https://{}{PATH}", injector.webhook.unwrap())});
    }
    environment.no_longer_call(NAME).await;
    environment.plane.apply(&manifest.to_string()).await;
    let is_trusted = |hook: &MutatingWebhookConfiguration| {
        hook.webhooks.iter().flatten().all(|webhook| webhook.client_config.ca_bundle.is_some())
    };
    environment.plane.until(&ObjectKey::cluster(NAME), is_trusted).await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"mesh.steersman.dev/inject": "true"}}});
    environment.plane.apply(&namespace.to_string()).await;
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "shop"}});
    environment.plane.apply(&account.to_string()).await;
    let mut asking = pod("asking");
    asking["metadata"]["annotations"] = json!({"initializer.kubernetes.io/envoy": "true"});
    let mut refusing = pod("refusing");
    refusing["metadata"]["labels"] = json!({"mesh.steersman.dev/inject": "false"});
    for (namespace, made, expected) in
        [("default", pod("plain"), 1), ("default", asking, 2), ("shop", pod("plain"), 2), ("shop", refusing, 1)]
    {
        let made = environment.create_in(namespace, &made).await.unwrap();
        assert_eq!(containers(&made).len(), expected, "{namespace} {}", made["metadata"]["name"]);
    }
    // Only two calls were made.
    assert!(injector.has_metric("pods_injected_total{way=\"webhook\"} 2"));
    assert!(!injector.metrics.encode(steersman::metrics::MetricsFormat::Prometheus).contains("pods_skipped_total{"));
    injector.stop().await;
}
