//! Measures how fast an informer fills its cache and handles updates, and its memory, from pre-made bytes.
//!
//! 20,000 Pods of about 5 KB, a third of each managedFields. Run with `paged` or `streaming`, with `auto`, `compact` or
//! `typed`, and with `strip` for a transform that leaves little.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use k8s_openapi::api::core::v1::Pod;
use kube::client::Body;
use serde_json::{Value, json};
use steersman::cache::{CacheMode, Event, EventHandler, EventKind};
use steersman::reflector::{InitialList, ReflectorOptions};
use steersman::{InformerFactory, Scope};
use tokio::time::Instant;

const OBJECTS: usize = 20_000;
const EVENTS: usize = 40_000;
const WAIT: Duration = Duration::from_secs(600);

/// Counts updates by key, as a work queue would get them.
struct Counter {
    updates: Arc<AtomicU64>,
}

impl EventHandler<Pod> for Counter {
    fn on_event(&mut self, event: &Event<'_, Pod>) {
        if event.kind() == EventKind::Updated {
            self.updates.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn main() {
    let Ok(runtime) = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() else {
        return println!("no runtime");
    };
    let asked = |word: &str| std::env::args().any(|argument| argument == word);
    let initial = if asked("paged") { InitialList::Paged } else { InitialList::Streaming };
    let cache = match (asked("compact"), asked("typed")) {
        (true, _) => CacheMode::COMPACT,
        (false, true) => CacheMode::Typed,
        (false, false) => CacheMode::Auto,
    };
    let options = ReflectorOptions::default().initial(initial).cache(cache);
    runtime.block_on(run(options, asked("strip")));
}

async fn run(options: ReflectorOptions, strips: bool) {
    // All bytes are made before the clock starts.
    let items: Vec<String> = (0..OBJECTS).map(|number| pod(number, number + 1)).collect();
    let list = chunks(
        std::iter::once(r#"{"kind":"PodList","metadata":{"resourceVersion":"900000"},"items":["#.to_owned())
            .chain(
                items
                    .iter()
                    .enumerate()
                    .map(|(number, item)| if number == 0 { item.clone() } else { format!(",{item}") }),
            )
            .chain(std::iter::once("]}".to_owned())),
    );
    let annotations = json!({"k8s.io/initial-events-end": "true"});
    let end = json!({"metadata": {"resourceVersion": "900000", "annotations": annotations}});
    let stream = chunks(items.iter().map(|item| line("ADDED", item)).chain(std::iter::once(line("BOOKMARK", &end))));
    let updates = chunks((0..EVENTS).map(|number| line("MODIFIED", &pod(number % OBJECTS, 1_000_000 + number))));
    drop(items);

    let (go, gone) = tokio::sync::watch::channel(false);
    let service = tower::service_fn(move |request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let (mut gone, updates) = (gone.clone(), updates.clone());
        let (list, stream) = (list.clone(), stream.clone());
        async move {
            let later = futures::stream::once(async move {
                // This does not fail: the sender lives as long as the benchmark.
                drop(gone.wait_for(|go| *go).await);
            })
            .flat_map(move |()| futures::stream::iter(updates.clone()))
            .chain(futures::stream::pending());
            let body = if !query.contains("watch=true") {
                futures::stream::iter(list).boxed()
            } else if query.contains("sendInitialEvents") {
                futures::stream::iter(stream).chain(later).boxed()
            } else {
                later.boxed()
            };
            let body = StreamBody::new(body.map(|chunk| Ok::<_, Infallible>(Frame::data(chunk))));
            Ok::<_, Infallible>(Response::new(body.boxed_unsync()))
        }
    });
    let before = resident_mb();
    let client = kube::Client::new(service, "default");
    let factory = InformerFactory::new(client).options(options.clone());
    let factory = if strips { factory.transform(strip) } else { factory };
    let pods = factory.informer::<Pod>(Scope::All);
    let updates = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&updates);
    pods.add_handler(Counter { updates: counter });
    let started = Instant::now();
    let _running = factory.start();
    if pods.wait_synced(WAIT).await.is_err() {
        return println!("not synced");
    }
    println!(
        "{:?}, {:?}: synced in {:.2}s, {} MB",
        options.initial,
        options.cache,
        started.elapsed().as_secs_f64(),
        resident_mb() - before
    );
    let started = Instant::now();
    go.send_replace(true);
    let mut versions = tokio::time::interval(Duration::from_millis(1));
    while pods.indexer().resource_version() != (1_000_000 + EVENTS - 1).to_string() {
        versions.tick().await;
    }
    let rate = EVENTS as f64 / started.elapsed().as_secs_f64();
    println!(
        "{rate:.0} updates/s into the cache, {} heard, {} MB",
        updates.load(Ordering::Relaxed),
        resident_mb() - before
    );
}

/// Leaves the metadata and the node name of a Pod.
fn strip(pod: &mut Pod) {
    (pod.metadata.annotations, pod.status) = (None, None);
    let Some(spec) = &mut pod.spec else { return };
    spec.containers.clear();
    (spec.volumes, spec.tolerations) = (None, None);
}

fn line(event_type: &str, object: &impl std::fmt::Display) -> String {
    format!("{{\"type\":\"{event_type}\",\"object\":{object}}}\n")
}

/// The texts in pieces, as they would come from a socket.
fn chunks(texts: impl Iterator<Item = String>) -> Vec<Bytes> {
    let whole: String = texts.collect();
    whole.as_bytes().chunks(64 << 10).map(Bytes::copy_from_slice).collect()
}

/// A Pod of about 5 KB. Only the parts that differ are made each time.
fn pod(number: usize, version: usize) -> String {
    static TEMPLATE: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    let template = TEMPLATE.get_or_init(|| {
        let fields: serde_json::Map<String, Value> = (0..30).map(|i| (format!("f:field-{i}"), json!({".": {}, "f:name": {}}))).collect();
        let env: Vec<Value> = (0..16).map(|i| json!({"name": format!("VARIABLE_{i}"), "value": format!("some value of variable {i}")})).collect();
        let conditions: Vec<Value> = ["Ready", "Initialized", "PodScheduled", "ContainersReady"]
            .iter()
            .map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}))
            .collect();
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "NAME", "namespace": "default", "resourceVersion": "VERSION", "uid": "6c3bba6e-NAME",
                "labels": {"app": "web", "tier": "front", "pod-template-hash": "7d4b8c6f9"},
                "annotations": {"example.com/checksum": "0123456789abcdef0123456789abcdef"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d4b8c6f9", "uid": "1", "controller": true}],
                "managedFields": [{"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": fields}}],
            },
            "spec": {
                "containers": [{
                    "name": "web", "image": "registry.example.com/team/web:1.2.3", "env": env,
                    "ports": [{"containerPort": 8080, "protocol": "TCP"}],
                    "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "1", "memory": "256Mi"}},
                    "volumeMounts": [{"name": "config", "mountPath": "/etc/config"}, {"name": "token", "mountPath": "/var/run/secrets"}],
                }],
                "volumes": [{"name": "config", "configMap": {"name": "web"}}, {"name": "token", "emptyDir": {}}],
                "nodeName": "node-1", "restartPolicy": "Always", "serviceAccountName": "default",
                "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
            },
            "status": {
                "phase": "Running", "podIP": "10.0.0.1", "hostIP": "192.168.0.1", "startTime": "2026-01-01T00:00:00Z", "conditions": conditions,
                "containerStatuses": [{"name": "web", "ready": true, "restartCount": 0, "image": "registry.example.com/team/web:1.2.3", "imageID": "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}],
            },
        })
        .to_string()
    });
    template.replace("NAME", &format!("web-7d4b8c6f9-{number}")).replace("VERSION", &version.to_string())
}

fn resident_mb() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.trim().parse::<i64>().ok());
    resident.unwrap_or_default() / 1_024
}
