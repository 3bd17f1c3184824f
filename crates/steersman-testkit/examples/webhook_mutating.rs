//! A mutating webhook: pods with a certain label get an Envoy container beside their own.
//!
//! It runs here against a control plane in the same process. In a cluster it listens on all addresses, with
//! `service(..)` in place of `host(..)`, and `steersman::client(..)` makes the client.

use std::net::SocketAddr;

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{ConfigMapVolumeSource, Container, Pod, Volume, VolumeMount};
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use steersman::webhook::{Admission, Denial, SelfSigned, Webhooks};
use steersman::{Manager, ObjectKey};
use steersman_testkit::ControlPlane;

struct Sidecar {
    image: String,
}

async fn inject(mut pod: Pod, request: &Admission<Pod>, sidecar: &Sidecar) -> Result<Pod, Denial> {
    let Some(spec) = &mut pod.spec else { return Ok(pod) };
    // The webhook is called again after another one has changed the pod: a present container is not added twice.
    if spec.containers.iter().any(|container| container.name == "envoy") {
        return Ok(pod);
    }
    spec.containers.push(Container {
        name: "envoy".to_owned(),
        image: Some(sidecar.image.clone()),
        volume_mounts: Some(vec![VolumeMount {
            name: "envoy-config".to_owned(),
            mount_path: "/etc/envoy".to_owned(),
            ..VolumeMount::default()
        }]),
        ..Container::default()
    });
    spec.volumes.get_or_insert_default().push(Volume {
        name: "envoy-config".to_owned(),
        config_map: Some(ConfigMapVolumeSource { name: "envoy-config".to_owned(), ..ConfigMapVolumeSource::default() }),
        ..Volume::default()
    });
    request.audit("injected", &sidecar.image);
    Ok(pod)
}

/// Serves until `end` completes, which gets the address.
async fn run<E: Future<Output = ()>>(
    client: kube::Client,
    end: impl FnOnce(SocketAddr) -> E,
) -> Result<(), Box<dyn std::error::Error>> {
    let certificates =
        SelfSigned::new(client.clone(), "default", "sidecar-injector").host("127.0.0.1").mutating("sidecar-injector");
    let server = Webhooks::new()
        .mutate("/inject", inject, Sidecar { image: "envoyproxy/envoy:v1.31.0".to_owned() })
        .bind(SocketAddr::from(([127, 0, 0, 1], 0)), certificates)?;
    let end = end(server.address());
    Manager::new(client).webhooks(server).run(end).await?;
    Ok(())
}

/// It has no `caBundle`: the server writes it.
fn configuration(address: SocketAddr) -> String {
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "sidecar-injector"},
        "webhooks": [{
            "name": "sidecar-injector.example.com",
            "clientConfig": {"url": format!("https://{address}/inject")},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
            "objectSelector": {"matchLabels": {"sidecar": "envoy"}},
            "reinvocationPolicy": "IfNeeded",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"]
        }]
    });
    configuration.to_string()
}

fn pod(name: &str, sidecar: &str) -> Pod {
    let pod = json!({
        "metadata": {"name": name, "labels": {"sidecar": sidecar}},
        "spec": {"containers": [{"name": "app", "image": "app:1"}]}
    });
    serde_json::from_value(pod).expect("invariant: this is a pod")
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let plane = ControlPlane::start().await;
    let story = async |address| {
        plane.apply(&configuration(address)).await;
        let is_trusted = |hook: &MutatingWebhookConfiguration| {
            hook.webhooks.iter().flatten().all(|webhook| webhook.client_config.ca_bundle.is_some())
        };
        plane.until(&ObjectKey::cluster("sidecar-injector"), is_trusted).await;

        let pods: Api<Pod> = Api::namespaced(plane.client(), "default");
        for (sidecar, expected) in [("envoy", vec!["app", "envoy"]), ("none", vec!["app"])] {
            let made = pods.create(&PostParams::default(), &pod(sidecar, sidecar)).await.expect("the pod is admitted");
            let spec = made.spec.unwrap_or_default();
            let names: Vec<&str> = spec.containers.iter().map(|container| &*container.name).collect();
            assert_eq!(names, expected);
            println!("a pod with the label sidecar={sidecar} has the containers {names:?}");
        }
    };
    run(plane.client(), story).await?;
    plane.stop().await;
    Ok(())
}

#[test]
fn a_pod_that_asks_for_it_gets_a_sidecar() {
    main().unwrap();
}
