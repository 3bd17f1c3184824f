//! The rules of the manifest are enough.

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use steersman::{Manager, ObjectKey};
use steersman_mesh::pilot::gateway_api::gateway_networking_k8s_io::v1::HTTPRoute;
use steersman_mesh::pilot::{AUDIENCE, NAME, Trust};
use steersman_testkit::{ControlPlane, User};
use steersman_xds::{Subscriber, Token};

use super::{Mesh, node, service, split};

const RULES: &str = include_str!("../../../../../manifests/mesh/pilot/rbac.yaml");

#[tokio::test]
async fn the_rules_of_the_manifest_are_enough() {
    let plane = ControlPlane::start().await;
    plane.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: mesh-system}\n").await;
    plane.apply(RULES).await;
    let groups = ["system:serviceaccounts".to_owned(), "system:serviceaccounts:mesh-system".to_owned()];
    let pilot = User::authenticated("system:serviceaccount:mesh-system:mesh-pilot", groups);
    let manager = Manager::new(plane.client_as(pilot)).elect(NAME, "mesh-system");
    let mesh = Mesh::with(plane, manager, Trust::default()).await;

    mesh.plane.apply("apiVersion: v1\nkind: ServiceAccount\nmetadata: {namespace: default, name: proxy}\n").await;
    let pod: Pod = mesh.pod("default", "client", "10.9.1.1", json!({"spec": {"serviceAccountName": "proxy"}})).await;
    let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": "client", "uid": pod.metadata.uid});
    let request = json!({"spec": {"audiences": [AUDIENCE], "boundObjectRef": bound}});
    let request: TokenRequest = serde_json::from_value(request).unwrap();
    let accounts = Api::<ServiceAccount>::namespaced(mesh.plane.client(), "default");
    let answer = accounts.create_token_request("proxy", &PostParams::default(), &request).await.unwrap();
    let token = Token::new(answer.status.unwrap().token.unwrap());
    mesh.connect(&Subscriber { token: Some(token), ..node("", "") }).await.unwrap();

    mesh.plane.apply(&service("default", "web", "10.9.0.1")).await;
    mesh.plane.apply(&split("default", 1, 1)).await;
    let key = ObjectKey::namespaced("default", "split");
    mesh.plane
        .until(&key, |route: &HTTPRoute| route.status.as_ref().is_some_and(|status| !status.parents.is_empty()))
        .await;
    mesh.stop().await;
}
