//! Measures how many Pods a second the scheduler binds, with 10 to 5,000 nodes.
//!
//! Runs the whole scheduler with its informers against a server that answers every request at once with a minimal body:
//! this measures the decisions, and the cost of sending a binding and an Event for each.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream;
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use jiff::Timestamp;
use kube::client::Body;
use serde_json::{Value, json};
use steersman::reflector::{InitialList, ReflectorOptions};
use steersman::{InformerFactory, Manager};
use steersman_controllers::scheduler::{Configuration, Scheduler};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const PODS: usize = 5_000;

fn main() {
    let Ok(runtime) = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() else {
        return println!("no runtime");
    };
    for n_nodes in [10, 100, 1_000, 5_000] {
        runtime.block_on(run(n_nodes));
    }
}

async fn run(n_nodes: usize) {
    // All bytes are made before the clock starts.
    let nodes = list("NodeList", (0..n_nodes).map(node));
    let pods = list("PodList", (0..PODS).map(pod));
    let none = list("List", std::iter::empty());
    let (count, mut n_bound) = watch::channel(0);
    let count = Arc::new(count);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (nodes, pods, none, count) = (nodes.clone(), pods.clone(), none.clone(), Arc::clone(&count));
        async move { Ok::<_, Infallible>(Response::new(answer(request, [nodes, pods, none], &count).await)) }
    });
    let client = kube::Client::new(service, "default");
    let options = ReflectorOptions::default().initial(InitialList::Paged);
    let manager = Manager::with_informers(InformerFactory::new(client.clone()).options(options));
    let stop = CancellationToken::new();
    let manager = Scheduler::add(manager, client, Configuration::default(), Timestamp::now);
    let running = tokio::spawn(manager.run(stop.clone().cancelled_owned()));
    let begun = n_bound.wait_for(|count| 0 < *count).await.map(|count| *count).unwrap_or_default();
    let started = Instant::now();
    drop(n_bound.wait_for(|count| *count == PODS).await);
    let rate = (PODS - begun) as f64 / started.elapsed().as_secs_f64();
    println!("{n_nodes} nodes: {rate:.0} Pods/s");
    stop.cancel();
    drop(running.await);
}

async fn answer(
    request: Request<Body>,
    [nodes, pods, none]: [Bytes; 3],
    count: &watch::Sender<usize>,
) -> UnsyncBoxBody<Bytes, Infallible> {
    let path = request.uri().path();
    let bytes = match (request.method(), path) {
        (&Method::GET, _) if request.uri().query().is_some_and(|query| query.contains("watch=true")) => {
            return StreamBody::new(stream::pending()).boxed_unsync();
        }
        (&Method::GET, "/api/v1/nodes") => nodes,
        (&Method::GET, "/api/v1/pods") => pods,
        (&Method::GET, _) => none,
        (_, path) if path.ends_with("/binding") => {
            count.send_modify(|count| *count += 1);
            Bytes::from_static(br#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}"#)
        }
        // Events and the like are returned as they were sent.
        _ => request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default(),
    };
    Full::new(bytes).boxed_unsync()
}

fn list(kind: &str, items: impl Iterator<Item = Value>) -> Bytes {
    let items: Vec<Value> = items.collect();
    json!({"kind": kind, "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}).to_string().into()
}

fn node(number: usize) -> Value {
    let name = format!("node-{number}");
    let labels = json!({"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": format!("zone-{}", number % 3)});
    json!({
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": {"cpu": "10k", "memory": "100Ti", "pods": "10k"}},
    })
}

fn pod(number: usize) -> Value {
    let application = format!("app-{}", number % 20);
    let requests = json!({"cpu": "100m", "memory": "128Mi"});
    json!({
        "metadata": {
            "name": format!("pod-{number}"),
            "namespace": "default",
            "uid": format!("uid-{number}"),
            "labels": {"app": application},
        },
        "spec": {
            "schedulerName": "default-scheduler",
            "containers": [{"name": "c", "image": "nginx", "resources": {"requests": requests}}],
        },
    })
}
