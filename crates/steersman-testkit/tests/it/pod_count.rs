//! The controller in the documentation of the library works.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod};
use kube::api::{Api, DeleteParams};
use steersman::ObjectKey;
use steersman_testkit::{ControlPlane, Options};

#[path = "../../../steersman/examples/pod_count.rs"]
#[expect(dead_code, reason = "its main makes a client from a kubeconfig")]
mod example;

fn pod(name: &str) -> String {
    format!("{{kind: Pod, apiVersion: v1, metadata: {{name: {name}}}, spec: {{containers: [{{name: a, image: a}}]}}}}")
}

async fn until_counted(plane: &ControlPlane, count: &str) {
    let key = ObjectKey::namespaced("default", "pod-count");
    plane.until(&key, |config: &ConfigMap| config.data.as_ref().is_some_and(|data| data["pods"] == count)).await;
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_a_namespace_that_asks_for_it_are_counted() {
    let options = Options { patience: Duration::from_secs(600), ..Options::default() };
    let plane = ControlPlane::try_start(options).await.unwrap();
    let story = async {
        plane.apply(&pod("one")).await;
        plane.apply("{kind: Namespace, apiVersion: v1, metadata: {name: default, labels: {count-pods: 'true'}}}").await;
        until_counted(&plane, "1").await;
        plane.apply(&pod("two")).await;
        until_counted(&plane, "2").await;
        let pods: Api<Pod> = Api::default_namespaced(plane.client());
        pods.delete("one", &DeleteParams::default().grace_period(0)).await.unwrap();
        until_counted(&plane, "1").await;
    };
    example::run(plane.client(), story).await.unwrap();
    let events: Api<Event> = Api::all(plane.client());
    let events = events.list(&kube::api::ListParams::default()).await.unwrap();
    assert!(events.items.iter().any(|event| event.reason.as_deref() == Some("Counted")), "{events:?}");
    plane.stop().await;
}
