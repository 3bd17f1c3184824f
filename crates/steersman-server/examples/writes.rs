//! Measures requests on this machine: `cargo run --release -p steersman-server --example writes`.
//!
//! The requests run one after another on one thread, through the service and on a store in memory, so that only the
//! server's own work is measured, without TLS, HTTP framing and disk. Custom resources of about 650 bytes, as in `cargo
//! xtask bench`.

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use std::sync::Arc;
use steersman_server::user::User;
use steersman_server::{Options, Server, Service};
use steersman_storage::{Memory, Store};
use tokio::time::Instant;
use tower::ServiceExt as _;

const N_REQUESTS: usize = 5_000;
const N_OBJECTS: usize = 23_000;
const KITES: &str = "/apis/example.com/v1/namespaces/default/kites";

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await?;
    let options = Options::new(store);
    let server = Server::start(options).await?;
    let service = server.service_as(User::master("admin"));
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    send(&service, Method::POST, definitions, "application/json", &definition()).await?;

    let started = Instant::now();
    for index in 0..N_REQUESTS {
        send(&service, Method::POST, KITES, "application/json", &kite(index, "a")).await?;
    }
    print("create", N_REQUESTS, started);

    let started = Instant::now();
    for index in 0..N_REQUESTS {
        let patch = json!({"spec": {"note": format!("n{index}")}});
        send(&service, Method::PATCH, &path(index), "application/merge-patch+json", &patch).await?;
    }
    print("merge patch", N_REQUESTS, started);

    for round in ["first apply", "second apply"] {
        let started = Instant::now();
        for index in 0..N_REQUESTS {
            let path = format!("{}?fieldManager=bench&force=true", path(index));
            send(&service, Method::PATCH, &path, "application/apply-patch+yaml", &kite(index, round)).await?;
        }
        print(round, N_REQUESTS, started);
    }

    let started = Instant::now();
    for index in 0..N_REQUESTS {
        send(&service, Method::GET, &path(index), "application/json", &Value::Null).await?;
    }
    print("get", N_REQUESTS, started);

    for index in N_REQUESTS..N_OBJECTS {
        send(&service, Method::POST, KITES, "application/json", &kite(index, "a")).await?;
    }
    let started = Instant::now();
    send(&service, Method::DELETE, KITES, "application/json", &Value::Null).await?;
    println!("delete of a collection of {N_OBJECTS} {:>9.0} ms", started.elapsed().as_secs_f64() * 1e3);
    server.stop().await;
    Ok(())
}

fn print(what: &str, requests: usize, started: Instant) {
    println!("{what:<14} {:>8.1} us", started.elapsed().as_secs_f64() * 1e6 / requests as f64);
}

async fn send(service: &Service, method: Method, path: &str, kind: &str, body: &Value) -> Result<(), Failure> {
    let bytes = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    let request = Request::builder().method(method).uri(path).header("content-type", kind).body(Full::new(bytes))?;
    let (head, body) = service.clone().oneshot(request).await?.into_parts();
    let bytes = body.collect().await?.to_bytes();
    if !head.status.is_success() {
        return Err(format!("{path}: {} {}", head.status, String::from_utf8_lossy(&bytes)).into());
    }
    Ok(())
}

fn path(index: usize) -> String {
    format!("{KITES}/k{index:05}")
}

fn definition() -> Value {
    let texts = json!({"type": "object", "properties": {
        "note": {"type": "string"}, "region": {"type": "string"}, "cidr": {"type": "string"},
        "servers": {"type": "array", "items": {"type": "string"}},
        "links": {"type": "array", "items": {"type": "object", "properties": {
            "name": {"type": "string"}, "weight": {"type": "integer"}, "up": {"type": "boolean"},
        }}},
    }});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "kites.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "kites", "singular": "kite", "kind": "Kite", "listKind": "KiteList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": texts}}},
            }],
        },
    })
}

fn kite(index: usize, note: &str) -> Value {
    let name = format!("k{index:05}");
    json!({
        "apiVersion": "example.com/v1", "kind": "Kite",
        "metadata": {"name": name, "labels": {"app": "bench", "shard": format!("s{}", index % 16)}},
        "spec": {
            "note": note, "region": "eu-central-1", "cidr": "192.168.0.0/16",
            "servers": ["10.0.0.1", "10.0.0.2", "10.0.0.3"],
            "links": [{"name": "left", "weight": 3, "up": true}, {"name": "right", "weight": 5, "up": false}],
        },
    })
}
