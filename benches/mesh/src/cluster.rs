//! The objects of the mesh in an API server: Services with endpoints, a route with weights, the Pods of the proxies.

use std::path::Path;

use anyhow::Context;
use bench_client::target::{Body, JSON, Target};
use bench_client::wire::Connection;
use futures::stream::{self, StreamExt as _};
use serde_json::{Value, json};
use tokio::time::{Duration, sleep};

pub(crate) const NAMESPACE: &str = "bench";
/// Connections on which objects are made.
const AT_ONCE: usize = 16;
const MERGE: &str = "application/merge-patch+json";

/// The mesh that is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) n_proxies: usize,
    pub(crate) n_services: usize,
    /// How many Services the Pod of each proxy calls; all without it.
    pub(crate) n_calls: Option<usize>,
    /// How many Pods call the same.
    pub(crate) replicas: usize,
}

/// An API server with one connection that writes one after another.
pub(crate) struct Cluster {
    target: Target,
    connection: Connection,
}

// === impl Shape ===

impl Shape {
    /// The Services that the Pod of a proxy calls: the one that all call, some of the others in turn, and the first Pod alone the last one.
    fn calls(&self, proxy: usize) -> Option<String> {
        let n_calls = self.n_calls?;
        let first = proxy / self.replicas * (n_calls - 1);
        // The first three belong to the route, the last one to one Pod.
        let n_others = self.n_services - 4;
        let others = (0..n_calls - 1).map(|step| service(3 + (first + step) % n_others));
        let mut calls: Vec<String> = std::iter::once(service(0)).chain(others).collect();
        if proxy == 0 {
            calls.push(service(self.n_services - 1));
        }
        Some(calls.join(","))
    }
}

pub(crate) fn service(number: usize) -> String {
    format!("s-{number}")
}

/// The name of what a proxy has of a Service's port.
pub(crate) fn resource(number: usize) -> String {
    format!("outbound|80||{}.{NAMESPACE}.svc", service(number))
}

impl Cluster {
    pub(crate) async fn connect(target: Target) -> anyhow::Result<Cluster> {
        let connection = target.connect().await?;
        Ok(Cluster { target, connection })
    }

    /// Sends a request, whose answer must be a success.
    async fn ask(&mut self, method: &str, path: &str, media_type: &'static str, body: &[u8]) -> anyhow::Result<Value> {
        let mut request = Vec::new();
        let body = (!body.is_empty()).then_some(Body { media_type, bytes: body });
        self.target.request(&mut request, method, path, JSON, body);
        let (status, answer) = self.connection.ask(&request).await.with_context(|| format!("{method} {path}"))?;
        let text = String::from_utf8_lossy(&answer);
        anyhow::ensure!((200..300).contains(&status), "{method} {path}: {status}: {text}");
        Ok(serde_json::from_slice(&answer).unwrap_or_default())
    }

    pub(crate) async fn create(&mut self, path: &str, object: &Value) -> anyhow::Result<()> {
        self.ask("POST", path, JSON, object.to_string().as_bytes()).await.map(drop)
    }

    pub(crate) async fn patch(&mut self, path: &str, patch: &Value) -> anyhow::Result<()> {
        self.ask("PATCH", path, MERGE, patch.to_string().as_bytes()).await.map(drop)
    }

    pub(crate) async fn delete(&mut self, path: &str) -> anyhow::Result<()> {
        self.ask("DELETE", path, JSON, b"{\"gracePeriodSeconds\":0}").await.map(drop)
    }

    /// Sets the share of the second of two Services, in percent.
    pub(crate) async fn weigh(&mut self, percent: usize) -> anyhow::Result<()> {
        let patch = json!({"spec": {"rules": [rule(percent)]}});
        self.patch(&format!("/apis/gateway.networking.k8s.io/v1/namespaces/{NAMESPACE}/httproutes/web"), &patch).await
    }

    /// Sets the endpoints of a Service.
    pub(crate) async fn endpoints(&mut self, number: usize, hosts: &[usize]) -> anyhow::Result<()> {
        let patch = json!({"endpoints": endpoints(number, hosts)});
        let name = service(number);
        self.patch(&format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices/{name}"), &patch).await
    }

    /// Makes all objects.
    pub(crate) async fn fill(&mut self, shape: Shape, definitions: &Path) -> anyhow::Result<()> {
        let entries =
            std::fs::read_dir(definitions).with_context(|| format!("cannot read {}", definitions.display()))?;
        for entry in entries {
            let path = entry.context("cannot read the definitions")?.path();
            let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            for document in text.split("\n---").filter(|document| document.contains("kind: CustomResourceDefinition")) {
                let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
                self.ask("POST", definitions, "application/yaml", document.trim_start_matches("---").as_bytes())
                    .await?;
            }
        }
        self.create(
            "/api/v1/namespaces",
            &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        )
        .await?;
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        // A control loop may have been faster.
        let _ = self.create(&format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts"), &account).await;
        let mut objects = Vec::with_capacity(shape.n_proxies + 2 * shape.n_services);
        for number in 0..shape.n_services {
            objects.push((format!("/api/v1/namespaces/{NAMESPACE}/services"), service_object(number)));
            let path = format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices");
            objects.push((path, slice_object(number)));
        }
        objects.extend((0..shape.n_proxies).map(|number| {
            (format!("/api/v1/namespaces/{NAMESPACE}/pods"), pod_object(&format!("p-{number}"), shape.calls(number)))
        }));
        let parts: Vec<&[(String, Value)]> = objects.chunks(objects.len().div_ceil(AT_ONCE)).collect();
        let made = stream::iter(parts).map(|part| {
            let target = self.target.clone();
            async move {
                let mut cluster = Cluster::connect(target).await?;
                for (path, object) in part {
                    cluster.create(path, object).await?;
                }
                anyhow::Ok(())
            }
        });
        let made: Vec<anyhow::Result<()>> = made.buffer_unordered(AT_ONCE).collect().await;
        made.into_iter().collect::<anyhow::Result<()>>()?;
        let path = format!("/apis/gateway.networking.k8s.io/v1/namespaces/{NAMESPACE}/httproutes");
        let route = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": "web"},
            "spec": {"parentRefs": [{"group": "", "kind": "Service", "name": service(0)}], "rules": [rule(0)]},
        });
        // The definition is served a moment after it was made.
        let mut tries = 0;
        while let Err(error) = self.create(&path, &route).await {
            tries += 1;
            anyhow::ensure!(tries < 100, error);
            sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }
}

fn rule(percent: usize) -> Value {
    let backend = |number: usize, weight: usize| json!({"name": service(number), "port": 80, "weight": weight});
    json!({"backendRefs": [backend(1, 100 - percent), backend(2, percent)]})
}

fn service_object(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": service(number)},
        "spec": {"ports": [{"name": "http", "port": 80, "targetPort": 8080}]},
    })
}

fn endpoints(number: usize, hosts: &[usize]) -> Value {
    let address = |host: &usize| format!("10.{}.{}.{}", 128 + number / 250 % 100, number % 250, host % 250 + 1);
    hosts.iter().map(|host| json!({"addresses": [address(host)], "conditions": {"ready": true}})).collect()
}

fn slice_object(number: usize) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": service(number), "labels": {"kubernetes.io/service-name": service(number)}},
        "ports": [{"name": "http", "port": 8080}], "endpoints": endpoints(number, &[0, 1, 2]),
    })
}

pub(crate) fn pod_object(name: &str, calls: Option<String>) -> Value {
    let annotations = calls.map(|calls| json!({"mesh.steersman.dev/calls": calls}));
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations},
        "spec": {"automountServiceAccountToken": false, "containers": [{"name": "main", "image": "main"}]},
    })
}
