//! Measures reads in one process without a socket: lists in every form, and events to many watchers.
//!
//! `cargo run --release -p steersman-server --example reads [objects] [watchers]` prints a line for each. The objects are
//! ConfigMaps and custom resources of about 650 bytes.

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use std::process::ExitCode;
use std::sync::Arc;
use steersman_server::user::User;
use steersman_server::{Body, Options, Server, Service};
use steersman_storage::{Memory, Store};
use tokio::time::Instant;
use tower::ServiceExt as _;

const CONFIGS: &str = "/api/v1/namespaces/default/configmaps";
const CUPS: &str = "/apis/stable.example.com/v1/namespaces/default/cups";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

#[tokio::main]
async fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).map(|argument| argument.parse::<usize>().unwrap_or(0));
    let objects = numbers.next().unwrap_or(23_000);
    let watchers = numbers.next().unwrap_or(1_000);
    match run(objects, watchers).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

async fn run(objects: usize, watchers: usize) -> Result<(), Failure> {
    let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await?;
    let server = Server::start(Options::new(store.clone())).await?;
    let service = server.service_as(User::master("bench"));
    send(&service, Method::POST, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition()).await?;
    for index in 0..objects {
        send(&service, Method::POST, CUPS, &cup(index)).await?;
        send(&service, Method::POST, CONFIGS, &config(index)).await?;
    }
    for path in [CONFIGS, CUPS] {
        let name = path.rsplit('/').next().unwrap_or_default();
        for (form, accept, query) in [
            ("json", "application/json", ""),
            ("table", TABLE, ""),
            ("metadata", METADATA_LIST, ""),
            ("yaml", "application/yaml", ""),
            ("pretty", "application/json", "?pretty=true"),
        ] {
            let mut best = f64::MAX;
            let mut bytes = 0;
            for _ in 0..3 {
                let began = Instant::now();
                bytes = drain(get(&service, &format!("{path}{query}"), accept).await?).await?;
                best = best.min(began.elapsed().as_secs_f64());
            }
            let each = best * 1e6 / objects.max(1) as f64;
            println!("list {name:<10} {form:<9} {:>8.1} ms {each:>7.2} us/object {bytes:>10} bytes", best * 1e3);
        }
    }
    for (form, accept, query) in [
        ("everything", "application/json", ""),
        ("metadata", METADATA, ""),
        ("table", TABLE, ""),
        ("other field", "application/json", "&fieldSelector=spec.colour%3Dgreen"),
        ("other label", "application/json", "&labelSelector=nobody%3Dhas"),
    ] {
        // One task runs all clients, so tokio's budget of a task must not limit it.
        tokio::task::unconstrained(deliver(&service, &store, form, accept, query, watchers)).await?;
    }
    server.stop().await;
    store.close().await?;
    Ok(())
}

/// Writes events, and reads them with many watchers on this one task; prints the cost of an event per watcher.
async fn deliver(
    service: &Service,
    store: &Store,
    form: &str,
    accept: &str,
    query: &str,
    watchers: usize,
) -> Result<(), Failure> {
    const EVENTS: usize = 100;
    let mut bodies = Vec::with_capacity(watchers);
    for _ in 0..watchers {
        let path = format!("{CUPS}?watch=1&resourceVersion={}{query}", version(service).await?);
        bodies.push(get(service, &path, accept).await?);
    }
    let mut spent = std::time::Duration::ZERO;
    let mut bytes = 0;
    for round in 0..EVENTS {
        let change = json!({"apiVersion": "stable.example.com/v1", "kind": "Cup", "spec": {"round": round}});
        let request = Request::patch(format!("{CUPS}/cup-000000?form={}", form.len()))
            .header("content-type", "application/merge-patch+json")
            .body(Full::from(change.to_string()))?;
        service.clone().oneshot(request).await?.into_body().collect().await?;
        store.sync().await?;
        let began = Instant::now();
        for body in &mut bodies {
            if let std::task::Poll::Ready(Some(frame)) = futures::poll!(std::future::poll_fn(|cx| {
                http_body::Body::poll_frame(std::pin::Pin::new(&mut *body), cx)
            })) {
                bytes += frame?.into_data().map_or(0, |data| data.len());
            }
        }
        spent += began.elapsed();
    }
    let each = spent.as_secs_f64() * 1e6 / (EVENTS * watchers.max(1)) as f64;
    println!("watch {form:<12} {each:>7.2} us/event and watcher, {bytes} bytes");
    Ok(())
}

async fn version(service: &Service) -> Result<String, Failure> {
    let list = get(service, &format!("{CONFIGS}?limit=1"), "application/json").await?.collect().await?.to_bytes();
    let list: Value = serde_json::from_slice(&list)?;
    Ok(list["metadata"]["resourceVersion"].as_str().unwrap_or("0").to_owned())
}

async fn get(service: &Service, path: &str, accept: &str) -> Result<Body, Failure> {
    let request = Request::get(path).header("accept", accept).body(Full::<Bytes>::default())?;
    let response = service.clone().oneshot(request).await?;
    if !response.status().is_success() {
        return Err(format!("{path}: {}", response.status()).into());
    }
    Ok(response.into_body())
}

async fn drain(mut body: Body) -> Result<usize, Failure> {
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        bytes += frame?.into_data().map_or(0, |data| data.len());
    }
    Ok(bytes)
}

async fn send(service: &Service, method: Method, path: &str, body: &Value) -> Result<(), Failure> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .body(Full::from(body.to_string()))?;
    let response = service.clone().oneshot(request).await?;
    if !response.status().is_success() {
        let text = response.into_body().collect().await?.to_bytes();
        return Err(format!("{path}: {}", String::from_utf8_lossy(&text)).into());
    }
    Ok(())
}

fn config(index: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": format!("config-{index:06}"), "labels": {"app": "bench", "index": (index % 100).to_string()}},
        "data": {"a": "x".repeat(120), "b": "a text of\nseveral lines\n", "c": index.to_string()},
    })
}

fn cup(index: usize) -> Value {
    json!({
        "apiVersion": "stable.example.com/v1", "kind": "Cup",
        "metadata": {"name": format!("cup-{index:06}"), "labels": {"app": "bench", "index": (index % 100).to_string()}},
        "spec": {"colour": "red", "round": 0, "sizes": [1, 2, 3], "notes": "x".repeat(100)},
    })
}

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "cups.stable.example.com"},
        "spec": {
            "group": "stable.example.com", "scope": "Namespaced",
            "names": {"plural": "cups", "singular": "cup", "kind": "Cup"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {
                        "colour": {"type": "string"}, "round": {"type": "integer"}, "notes": {"type": "string"},
                        "sizes": {"type": "array", "items": {"type": "integer"}},
                    }},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                }}},
                "selectableFields": [{"jsonPath": ".spec.colour"}],
                "additionalPrinterColumns": [
                    {"name": "Colour", "type": "string", "jsonPath": ".spec.colour"},
                    {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
            }],
        },
    })
}
