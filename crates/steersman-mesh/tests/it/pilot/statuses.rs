//! Statuses of routes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::json;
use steersman::{ObjectKey, patch};
use steersman_mesh::pilot::gateway_api::gateway_networking_k8s_io::v1::HTTPRoute;
use steersman_xds::Source as _;

use super::{Mesh, service, split};

const CONTROLLER: &str = "mesh.steersman.dev/pilot";

fn key() -> ObjectKey {
    ObjectKey::namespaced("default", "split")
}

/// The conditions of the pilot's entry, as `TYPE STATUS REASON`.
fn conditions(route: &HTTPRoute) -> Vec<String> {
    let parents = route.status.iter().flat_map(|status| &status.parents);
    let ours = parents.filter(|parent| parent.controller_name == CONTROLLER);
    let text = |condition: &Condition| format!("{} {} {}", condition.type_, condition.status, condition.reason);
    ours.flat_map(|parent| parent.conditions.iter().map(text)).collect()
}

#[tokio::test]
async fn a_route_is_told_what_becomes_of_it() {
    let mesh = Mesh::start().await;
    mesh.plane.apply(&service("default", "web", "10.9.0.1")).await;
    mesh.plane.apply(&service("default", "v1", "10.9.0.2")).await;
    mesh.plane.apply(&split("default", 1, 1)).await;
    let missing = [
        "Accepted True Accepted",
        "ResolvedRefs False BackendNotFound",
        "mesh.steersman.dev/Programmed Unknown NoProxies",
    ];
    mesh.plane.until(&key(), |route: &HTTPRoute| conditions(route) == missing).await;

    mesh.plane.apply(&service("default", "v2", "10.9.0.3")).await;
    mesh.pod("default", "client", "10.9.1.1", json!({})).await;
    let stream = mesh.proxy("default", "client").await;
    let pending =
        ["Accepted True Accepted", "ResolvedRefs True ResolvedRefs", "mesh.steersman.dev/Programmed False Pending"];
    let route = mesh.plane.until(&key(), |route: &HTTPRoute| conditions(route) == pending).await;
    let parents = route.status.unwrap().parents;
    assert_eq!(parents[0].conditions[2].message, "0 of 1 proxies");
    assert_eq!(parents[0].conditions[0].observed_generation, route.metadata.generation);

    mesh.proxies.ended(stream.id);
    let gone =
        ["Accepted True Accepted", "ResolvedRefs True ResolvedRefs", "mesh.steersman.dev/Programmed Unknown NoProxies"];
    mesh.plane.until(&key(), |route: &HTTPRoute| conditions(route) == gone).await;
    mesh.stop().await;
}

#[tokio::test]
async fn entries_of_others_stay_and_an_entry_goes_with_its_parent() {
    let mesh = Mesh::start().await;
    mesh.plane.apply(&split("default", 1, 1)).await;
    mesh.plane
        .until(&key(), |route: &HTTPRoute| {
            conditions(route).first().is_some_and(|one| one == "Accepted False NoMatchingParent")
        })
        .await;
    let other = json!({
        "controllerName": "example.com/other",
        "parentRef": {"group": "", "kind": "Service", "name": "web"},
        "conditions": [{
            "type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
    });
    // The other controller reads, adds its entry, and writes: the pilot's stays.
    let route = mesh.plane.until(&key(), |_: &HTTPRoute| true).await;
    let mut parents = serde_json::to_value(&route.status.unwrap().parents).unwrap();
    parents.as_array_mut().unwrap().push(other);
    let status = json!({"status": {"parents": parents}});
    patch::merge_subresource::<HTTPRoute>(&mesh.plane.client(), &key(), "status", &status).await.unwrap();

    let without =
        json!({"spec": {"parentRefs": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "web"}]}});
    patch::merge::<HTTPRoute>(&mesh.plane.client(), &key(), &without).await.unwrap();
    let route = mesh.plane.until(&key(), |route: &HTTPRoute| conditions(route).is_empty()).await;
    let left: Vec<String> = route.status.unwrap().parents.into_iter().map(|parent| parent.controller_name).collect();
    assert_eq!(left, ["example.com/other"]);
    mesh.stop().await;
}
