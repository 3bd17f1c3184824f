//! Measures the cost of many definitions: creates them one after another, as a tool that installs operators does, and
//! prints the seconds since the beginning.
//!
//! `cargo run --release -p steersman-server --example definitions [COUNT]`, 200 by default. Everything runs in this
//! process, in memory, so that only the server's own work is measured.

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use steersman_server::user::User;
use steersman_server::{Options, Server, Service};
use steersman_storage::{Memory, Store};
use tokio::time::Instant;
use tower::ServiceExt as _;

const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// The number of groups of the definitions.
const GROUPS: usize = 10;
/// The number of properties, which makes a definition about 18 KB.
const PROPERTIES: usize = 60;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count = std::env::args().nth(1).map_or(Ok(200), |count| count.parse())?;
    let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await?;
    let server = Server::start(Options::new(store.clone())).await?;
    let service = server.service_as(User::master("admin"));
    println!("{count} definitions of {} bytes", definition(0).to_string().len());
    let begun = Instant::now();
    for index in 0..count {
        let code = send(&service, Method::POST, PATH, definition(index).to_string()).await?;
        assert_eq!(code, 201, "the definition {index} was not created");
        if (index + 1) % (count / 4).max(1) == 0 {
            println!("{:>5} definitions: {:.2} s", index + 1, begun.elapsed().as_secs_f64());
        }
    }
    for path in ["/openapi/v2", "/openapi/v3", "/apis", "/openapi/v2"] {
        let begun = Instant::now();
        send(&service, Method::GET, path, String::new()).await?;
        println!("GET {path}: {:.3} s", begun.elapsed().as_secs_f64());
    }
    let begun = Instant::now();
    send(&service, Method::POST, PATH, definition(count).to_string()).await?;
    send(&service, Method::GET, "/openapi/v2", String::new()).await?;
    println!("one more definition and GET /openapi/v2: {:.3} s", begun.elapsed().as_secs_f64());
    server.stop().await;
    store.close().await?;
    Ok(())
}

async fn send(service: &Service, method: Method, path: &str, body: String) -> Result<u16, Box<dyn std::error::Error>> {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let request = request.body(Full::new(Bytes::from(body)))?;
    let (head, body) = service.clone().oneshot(request).await?.into_parts();
    body.collect().await?;
    Ok(head.status.as_u16())
}

/// A definition like those of operators: many properties, each with a description.
fn definition(index: usize) -> Value {
    let group = format!("g{}.example.com", index % GROUPS);
    let (plural, kind) = (format!("widgets{index}"), format!("Widget{index}"));
    let properties: Map<String, Value> = (0..PROPERTIES)
        .map(|property| {
            let description = "What this field is for, in a sentence or two as operators write them. It says what is \
                meant by a value, which one is taken where none is given, and what becomes of it when it changes.";
            let schema = match property % 3 {
                0 => json!({"type": "string", "description": description, "maxLength": 63, "default": "x"}),
                1 => json!({"type": "object", "description": description, "properties": {"replicas": {"type": "integer", "minimum": 0}, "name": {"type": "string"}}}),
                _ => json!({"type": "array", "description": description, "items": {"type": "object", "properties": {"key": {"type": "string"}}}}),
            };
            (format!("property{property}"), schema)
        })
        .collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "additionalPrinterColumns": [{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": properties}, "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                }}},
            }],
        },
    })
}
