//! Measures creations that wait for initializers: `cargo run --release --example waiting`.
//!
//! Ten thousand creations wait at the same time, then one initializer finishes with all of them. Requests come from
//! within the process: a connection takes memory of its own in addition. Prints bytes of the process for each, with the
//! object and without the wait.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use std::error::Error;
use std::sync::Arc;
use steersman_server::user::User;
use steersman_server::{Options, RuntimeConfig, Server, Service};
use steersman_storage::{Memory, Store};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tower::ServiceExt as _;

const CREATIONS: usize = 10_000;
const CONFIGS: &str = "/api/v1/namespaces/default/configmaps";
const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1alpha1/initializerconfigurations";
const NAME: &str = "example.initializer.kubernetes.io";

#[tokio::main(flavor = "multi_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await?;
    let server = Server::start(Options {
        runtime_config: RuntimeConfig::default().with_initializers(),
        ..Options::new(store.clone())
    });
    let server = server.await?;
    let service = server.service_as(User::master("admin"));
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]);
    let initializers = json!([{"name": NAME, "rules": rules, "timeoutSeconds": 600}]);
    let configuration = json!({"metadata": {"name": "c"}, "initializers": initializers});
    send(&service, "POST", CONFIGURATIONS, &configuration).await?;

    // For comparison, objects that wait although no request waits for them.
    let before = resident()?;
    for number in 0..CREATIONS {
        send(&service, "POST", &format!("{CONFIGS}?includeUninitialized=true"), &config("idle", number)).await?;
    }
    let idle = resident()?;
    let mut creations = JoinSet::new();
    let begun = Instant::now();
    for number in 0..CREATIONS {
        let service = service.clone();
        creations.spawn(async move {
            send(&service, "POST", CONFIGS, &config("w", number)).await.map_err(|error| error.to_string())
        });
    }
    while store.uninitialized().iter().map(|(_, objects)| objects.len()).sum::<usize>() < 2 * CREATIONS {
        tokio::task::yield_now().await;
    }
    println!("creations that wait       {:>8.0} /s", per(CREATIONS, begun));
    let waiting = resident()?;
    println!("object and its event      {:>8.0} bytes", (idle - before) as f64 / CREATIONS as f64);
    println!("object, event and wait    {:>8.0} bytes", (waiting - idle) as f64 / CREATIONS as f64);
    let begun = Instant::now();
    for _ in 0..100 {
        send(&service, "GET", &format!("{CONFIGS}?limit=1"), &Value::Null).await?;
    }
    println!("list of none of {:>6}    {:>8.0} us", 2 * CREATIONS, begun.elapsed().as_secs_f64() * 1e4);
    let begun = Instant::now();
    let done = json!({"metadata": {"initializers": null}});
    for number in 0..CREATIONS {
        send(&service, "PATCH", &format!("{CONFIGS}/w-{number}"), &done).await?;
    }
    while let Some(created) = creations.join_next().await {
        created??;
    }
    println!("initialized and answered  {:>8.0} /s", per(CREATIONS, begun));
    server.stop().await;
    Ok(())
}

fn config(base: &str, number: usize) -> Value {
    json!({"metadata": {"name": format!("{base}-{number}")}, "data": {"k": "v"}})
}

fn per(n: usize, begun: Instant) -> f64 {
    n as f64 / begun.elapsed().as_secs_f64()
}

async fn send(service: &Service, method: &str, path: &str, body: &Value) -> Result<(), Box<dyn Error>> {
    let media_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("content-type", media_type);
    let response = service.clone().oneshot(request.body(Full::new(Bytes::from(body.to_string())))?).await?;
    let status = response.status();
    let answer = response.into_body().collect().await?.to_bytes();
    if status.is_success() { Ok(()) } else { Err(String::from_utf8_lossy(&answer).into()) }
}

/// The resident memory of this process in bytes.
fn resident() -> Result<i64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS in /proc/self/status")?;
    let kilobytes: i64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kilobytes * 1024)
}
