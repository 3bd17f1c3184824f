//! Measures admission webhooks on this machine: `cargo run --release -p steersman-server --example webhooks`.
//!
//! Sixty-four workers create ConfigMaps through the service, on a store in memory: without any webhook, with a thousand
//! webhooks for other resources, with one that validates and with one that changes the object. The webhook is on
//! loopback, without TLS, in this process: its work is part of the figures.

use bytes::Bytes;
use futures::future;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use steersman_server::user::User;
use steersman_server::webhook::Services;
use steersman_server::{Options, Server, Service};
use steersman_storage::{Memory, Store};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tower::ServiceExt as _;

const N_WORKERS: usize = 64;
const N_REQUESTS: usize = 20_000;
const N_OTHERS: usize = 1_000;
const CONFIGS: &str = "/api/v1/namespaces/default/configmaps";
const VALIDATING: &str = "validatingwebhookconfigurations";
const MUTATING: &str = "mutatingwebhookconfigurations";

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(serve(listener));
    let mapping = format!("default/hook=http://{address}").parse()?;
    let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await?;
    let options = Options { webhook_services: Services::new([mapping])?, ..Options::new(store) };
    let server = Server::start(options).await?;
    let service = server.service_as(User::master("admin"));
    creates(&service, "no webhook").await?;
    for index in 0..N_OTHERS {
        register(&service, VALIDATING, &format!("other-{index}"), "secrets").await?;
    }
    creates(&service, "1,000 about others").await?;
    register(&service, VALIDATING, "one", "configmaps").await?;
    creates(&service, "one validates").await?;
    send(&service, Method::DELETE, &path(VALIDATING, "/one"), &Value::Null).await?;
    register(&service, MUTATING, "one", "configmaps").await?;
    creates(&service, "one mutates").await?;
    server.stop().await;
    Ok(())
}

async fn creates(service: &Service, what: &str) -> Result<(), Failure> {
    let prefix = what.replace([' ', ','], "-");
    let started = Instant::now();
    let worker = |worker: usize| {
        let (service, prefix) = (service.clone(), prefix.clone());
        tokio::spawn(async move {
            for index in 0..N_REQUESTS / N_WORKERS {
                let object = json!({"metadata": {"name": format!("{prefix}-{worker}-{index}")}, "data": {"a": "b"}});
                send(&service, Method::POST, CONFIGS, &object).await?;
            }
            Ok::<_, Failure>(())
        })
    };
    for ended in future::join_all((0..N_WORKERS).map(worker)).await {
        ended??;
    }
    println!("{what:<20} {:>8.0} creates/s", N_REQUESTS as f64 / started.elapsed().as_secs_f64());
    Ok(())
}

async fn register(service: &Service, plural: &str, name: &str, resource: &str) -> Result<(), Failure> {
    let webhook = json!({
        "name": "a.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"service": {"namespace": "default", "name": "hook", "path": "/"}},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": [resource]}],
    });
    let object = json!({"metadata": {"name": name}, "webhooks": [webhook]});
    send(service, Method::POST, &path(plural, ""), &object).await
}

fn path(plural: &str, rest: &str) -> String {
    format!("/apis/admissionregistration.k8s.io/v1/{plural}{rest}")
}

/// A webhook that allows everything, and only adds a label if it is a mutating one.
async fn serve(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        let service = service_fn(|request: Request<Incoming>| async move {
            let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
            let review: Value = serde_json::from_slice(&body).unwrap_or_default();
            let mut response = json!({"uid": review["request"]["uid"], "allowed": true});
            if review["request"]["object"]["metadata"].get("uid").is_none() {
                // [{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]
                response["patch"] =
                    "W3sib3AiOiJhZGQiLCJwYXRoIjoiL21ldGFkYXRhL2xhYmVscyIsInZhbHVlIjp7ImEiOiJiIn19XQ==".into();
                response["patchType"] = "JSONPatch".into();
            }
            let answer = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(answer.to_string()))))
        });
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        tokio::spawn(connection);
    }
}

async fn send(service: &Service, method: Method, path: &str, body: &Value) -> Result<(), Failure> {
    let bytes = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let (head, body) = service.clone().oneshot(request.body(Full::new(bytes))?).await?.into_parts();
    let bytes = body.collect().await?.to_bytes();
    if !head.status.is_success() {
        return Err(format!("{path}: {} {}", head.status, String::from_utf8_lossy(&bytes)).into());
    }
    Ok(())
}
