//! The examples of the library work against a real API server.
#![expect(dead_code, reason = "their mains make clients from a kubeconfig")]

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};
use serde_json::json;
use steersman::metrics::{Metrics, MetricsFormat};
use steersman::{ObjectKey, conditions, finalizers, owners};
use steersman_testkit::{ControlPlane, Options};
use tokio::sync::mpsc;

#[path = "../../../steersman/examples/dynamic_types.rs"]
mod dynamic_types;
#[path = "../../../steersman/examples/election_metrics.rs"]
mod election_metrics;
#[path = "../../../steersman/examples/events_conditions.rs"]
mod events_conditions;
#[path = "../../../steersman/examples/finalizer.rs"]
mod finalizer;
#[path = "../../../steersman/examples/informer_index.rs"]
mod informer_index;
#[path = "../../../steersman/examples/minimal.rs"]
mod minimal;
#[path = "../../../steersman/examples/opentelemetry.rs"]
mod opentelemetry;
#[path = "../../../steersman/examples/owned_objects.rs"]
mod owned_objects;
#[path = "../../../steersman/examples/work_queue.rs"]
mod work_queue;

use crate::configs;

/// A control plane whose waits may take long: time is paused, so that they cost nothing.
async fn plane() -> ControlPlane {
    let options = Options { patience: Duration::from_secs(600), ..Options::default() };
    ControlPlane::try_start(options).await.unwrap()
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

fn config(rest: &str) -> String {
    format!("{{kind: ConfigMap, apiVersion: v1, {rest}}}")
}

fn entry(config: &ConfigMap, name: &str) -> Option<String> {
    config.data.as_ref()?.get(name).cloned()
}

#[tokio::test(start_paused = true)]
async fn minimal_greets_who_asks() {
    let plane = plane().await;
    let story = async {
        plane.apply(&config("metadata: {name: c, namespace: default}, data: {name: Ada}")).await;
        plane.until(&key("c"), |config| entry(config, "greeting").as_deref() == Some("Hello, Ada!")).await;
        plane.apply(&config("metadata: {name: c, namespace: default}, data: {name: Grace}")).await;
        plane.until(&key("c"), |config| entry(config, "greeting").as_deref() == Some("Hello, Grace!")).await;
    };
    minimal::run(plane.client(), story).await.unwrap();
    plane.stop().await;
}

#[tokio::test(start_paused = true)]
async fn informer_index_finds_the_pods_that_mount_a_config() {
    let plane = plane().await;
    for (pod, config) in [("a", "one"), ("b", "two"), ("c", "one")] {
        let volumes = format!("volumes: [{{name: v, configMap: {{name: {config}}}}}]");
        let spec = format!("spec: {{containers: [{{name: c, image: c}}], {volumes}}}");
        plane.apply(&format!("{{kind: Pod, apiVersion: v1, metadata: {{name: {pod}}}, {spec}}}")).await;
    }
    assert_eq!(informer_index::users(plane.client(), &"default/one".parse().unwrap()).await.unwrap(), ["a", "c"]);
    assert_eq!(informer_index::users(plane.client(), &"default/none".parse().unwrap()).await.unwrap(), [""; 0]);
    plane.stop().await;
}

#[tokio::test(start_paused = true)]
async fn finalizer_makes_and_removes_what_is_outside() {
    let (plane, buckets) = (plane().await, finalizer::Buckets::default());
    let story = async {
        plane.apply(&config("metadata: {name: c, namespace: default, labels: {bucket: wanted}}")).await;
        plane.until(&key("c"), |config: &ConfigMap| finalizers::contains(config, "example.com/bucket")).await;
        while buckets.names() != ["default/c"] {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        configs(&plane).delete("c", &DeleteParams::default()).await.unwrap();
        plane.until_gone::<ConfigMap>(&key("c")).await;
        assert_eq!(buckets.names(), [""; 0], "it goes before the object does");
    };
    finalizer::run(plane.client(), buckets.clone(), story).await.unwrap();
    plane.stop().await;
}

#[tokio::test(start_paused = true)]
async fn owned_objects_are_made_and_repaired() {
    let plane = plane().await;
    let story = async {
        let template = "selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: c}]}}";
        let metadata = "metadata: {name: web, namespace: default, labels: {publish-scale: 'true'}}";
        plane
            .apply(&format!("{{kind: Deployment, apiVersion: apps/v1, {metadata}, spec: {{replicas: 3, {template}}}}}"))
            .await;
        let is_right = |config: &ConfigMap| entry(config, "replicas").as_deref() == Some("3");
        let made: ConfigMap = plane.until(&key("web-scale"), is_right).await;
        assert_eq!(owners::controller_of(&made).unwrap().name, "web");
        let wrong = json!({"data": {"replicas": "9"}});
        configs(&plane).patch("web-scale", &PatchParams::default(), &Patch::Merge(wrong)).await.unwrap();
        plane.until(&key("web-scale"), is_right).await;
        configs(&plane).delete("web-scale", &DeleteParams::default()).await.unwrap();
        plane.until(&key("web-scale"), is_right).await;
    };
    owned_objects::run(plane.client(), story).await.unwrap();
    plane.stop().await;
}

const DOORS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: doors.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Door, plural: doors, singular: door}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

fn door(key: &str) -> String {
    format!(
        "{{kind: Door, apiVersion: example.com/v1, metadata: {{name: front, namespace: default}}, spec: {{key: '{key}'}}}}"
    )
}

#[tokio::test(start_paused = true)]
async fn events_conditions_say_how_an_object_is() {
    use events_conditions::Door;

    let plane = plane().await;
    plane.apply(DOORS).await;
    let story = async {
        let is = |generation: i64, is_ready: bool| {
            move |door: &Door| {
                let conditions = door.status.as_ref().map(|status| &*status.conditions).unwrap_or_default();
                conditions::is_current(conditions, "Ready", Some(generation))
                    && conditions::is_true(conditions, "Ready") == is_ready
            }
        };
        plane.apply(&door("")).await;
        plane.until(&key("front"), is(1, false)).await;
        plane.apply(&door("brass")).await;
        plane.until(&key("front"), is(2, true)).await;
    };
    events_conditions::run(plane.client(), story).await.unwrap();
    let events = Api::<Event>::all(plane.client()).list(&ListParams::default()).await.unwrap();
    let reasons: BTreeSet<String> = events.items.into_iter().filter_map(|event| event.reason).collect();
    assert_eq!(reasons, BTreeSet::from(["Locked".to_owned(), "NoKey".to_owned()]));
    plane.stop().await;
}

#[tokio::test(start_paused = true)]
async fn election_metrics_has_one_leader_and_counts_what_it_does() {
    let plane = plane().await;
    let replica = || {
        let metrics = Metrics::new();
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        (metrics.clone(), election_metrics::replica(plane.client(), metrics, any_port).unwrap())
    };
    let ((first_metrics, first), (second_metrics, second)) = (replica(), replica());
    assert_ne!(first.address(), second.address());
    let (leads, waits) = (first.leadership().unwrap(), second.leadership().unwrap());
    let says =
        |metrics: &Metrics, line: &str| metrics.encode(MetricsFormat::Prometheus).lines().any(|found| found == line);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let standby = tokio::spawn(election_metrics::run(second, async { drop(stopped.await) }));
    let n_namespaces = Api::<Namespace>::all(plane.client()).list(&ListParams::default()).await.unwrap().items.len();
    let story = async {
        while !leads.is_leading() && !waits.is_leading() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let metrics = if leads.is_leading() { &first_metrics } else { &second_metrics };
        while !says(metrics, &format!("namespaces_looked_at_total {n_namespaces}")) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let statuses = [&first_metrics, &second_metrics]
            .map(|metrics| says(metrics, r#"leader_election_master_status{name="namespace-counter"} 1"#));
        assert_eq!(statuses.iter().filter(|leads| **leads).count(), 1);
    };
    election_metrics::run(first, story).await.unwrap();
    stop.send(()).unwrap();
    standby.await.unwrap().unwrap();
    plane.stop().await;
}

#[tokio::test(start_paused = true)]
async fn dynamic_types_labels_every_object_of_a_kind() {
    use events_conditions::Door;

    let plane = plane().await;
    plane.apply(DOORS).await;
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("example.com", "v1", "Door"), "doors");
    let story = async {
        plane.apply(&door("brass")).await;
        let is_seen = |door: &Door| door.metadata.labels.iter().flatten().any(|(name, _)| name == "example.com/seen");
        plane.until(&key("front"), is_seen).await;
    };
    dynamic_types::run(plane.client(), resource, story).await.unwrap();
    plane.stop().await;
}

#[tokio::test(start_paused = true)]
async fn work_queue_reports_what_becomes_of_pods() {
    let plane = plane().await;
    let (sender, mut reports) = mpsc::channel(100);
    let story = async {
        plane
            .apply("{kind: Pod, apiVersion: v1, metadata: {name: a}, spec: {containers: [{name: c, image: c}]}}")
            .await;
        assert_eq!(reports.recv().await.unwrap(), "default/a is Pending");
        let pods = Api::<Pod>::default_namespaced(plane.client());
        pods.delete("a", &DeleteParams::default().grace_period(0)).await.unwrap();
        while reports.recv().await.unwrap() != "default/a is gone" {}
    };
    work_queue::run(plane.client(), move |text| sender.try_send(text).unwrap(), story).await.unwrap();
    plane.stop().await;
}

#[tokio::test]
async fn opentelemetry_exports_a_span_for_every_reconcile() {
    let plane = plane().await;
    plane.apply(&config("metadata: {name: c, namespace: default}, data: {a: b}")).await;
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    // With a single subscriber, tracing asks whether it wants a span on the first thread that creates it, which may be
    // another test's.
    let _other = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::new());
    // The subscriber is set for this thread only, on which all of this test runs.
    let _guard = tracing::subscriber::set_default(opentelemetry::subscriber(&provider));
    let exported = exporter.clone();
    let story = async move {
        while !exported.get_finished_spans().unwrap().iter().any(|span| span.name == "reconcile") {
            tokio::task::yield_now().await;
        }
    };
    opentelemetry::run(plane.client(), story).await.unwrap();
    let spans = exporter.get_finished_spans().unwrap();
    let span = spans.iter().find(|span| span.name == "reconcile").unwrap();
    let attribute = |name: &str| {
        let found = span.attributes.iter().find(|attribute| attribute.key.as_str() == name);
        found.map(|attribute| attribute.value.to_string()).unwrap_or_default()
    };
    assert_eq!((attribute("controller"), attribute("result")), ("configmap".to_owned(), "success".to_owned()));
    assert!(span.events.iter().any(|event| event.name == "looked at a ConfigMap"), "{:?}", span.events);
    plane.stop().await;
}
