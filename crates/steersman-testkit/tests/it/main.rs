//! The testkit at its boundary: the behavior that a test may rely on.
#![expect(clippy::unwrap_used, reason = "everything here is a test; clippy recognises only the functions marked so")]

mod bad_days;
mod codegen;
mod examples;
mod library;
mod life;
mod line;
mod permissions;
mod pod_count;
mod webhook;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use steersman_testkit::ControlPlane;

/// ConfigMaps of the namespace `default`.
fn configs(plane: &ControlPlane) -> Api<ConfigMap> {
    Api::default_namespaced(plane.client())
}

fn config(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

async fn create(api: &Api<ConfigMap>, name: &str) -> ConfigMap {
    api.create(&PostParams::default(), &config(name)).await.unwrap()
}

/// The HTTP status code of a request that the server refused; 0 if the connection broke.
fn code<T: std::fmt::Debug>(outcome: Result<T, kube::Error>) -> u16 {
    match outcome.unwrap_err() {
        kube::Error::Api(status) => status.code,
        _ => 0,
    }
}
