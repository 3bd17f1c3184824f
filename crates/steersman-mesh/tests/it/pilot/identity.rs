//! Which Pod a proxy belongs to.

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use steersman_mesh::pilot::{AUDIENCE, Trust};
use steersman_xds::{Peer, Refusal, Subscriber, Token};

use super::{Mesh, node};

async fn token(mesh: &Mesh, audience: &str, pod: Option<&Pod>) -> Token {
    let mut spec = json!({"audiences": [audience]});
    if let Some(pod) = pod {
        spec["boundObjectRef"] =
            json!({"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid});
    }
    let request: TokenRequest = serde_json::from_value(json!({"spec": spec})).unwrap();
    let accounts = Api::<ServiceAccount>::namespaced(mesh.plane.client(), "default");
    let answer = accounts.create_token_request("proxy", &PostParams::default(), &request).await.unwrap();
    Token::new(answer.status.unwrap().token.unwrap())
}

fn refusal(refused: Result<super::Stream, Refusal>) -> String {
    match refused {
        Ok(_) => "accepted".to_owned(),
        Err(refusal) => format!("{refusal:?}"),
    }
}

#[tokio::test]
async fn a_token_that_is_bound_to_a_pod_is_enough_and_another_is_not() {
    let mesh = Mesh::trusting(Trust::default()).await;
    mesh.plane.apply("apiVersion: v1\nkind: ServiceAccount\nmetadata: {namespace: default, name: proxy}\n").await;
    let pod = mesh.pod("default", "client", "10.9.1.1", json!({"spec": {"serviceAccountName": "proxy"}})).await;
    let with = |token: Token| Subscriber { token: Some(token), ..node("other", "somebody") };

    let bound = token(&mesh, AUDIENCE, Some(&pod)).await;
    let stream = mesh.connect(&with(bound)).await.unwrap();
    assert_eq!(*stream.owner, *format!("default/client/{}", pod.metadata.uid.as_deref().unwrap()));

    let unbound = token(&mesh, AUDIENCE, None).await;
    let expected = r#"Forbidden("the token of \"system:serviceaccount:default:proxy\" is not bound to a Pod: use a projected volume of the Pod")"#;
    assert_eq!(refusal(mesh.connect(&with(unbound)).await), expected);
    let other = token(&mesh, "example.com", Some(&pod)).await;
    assert!(
        refusal(mesh.connect(&with(other)).await).starts_with("Unauthenticated(\"the token of the proxy is not valid")
    );
    assert!(refusal(mesh.connect(&with(Token::new("x"))).await).starts_with("Unauthenticated("));
    mesh.stop().await;
}

#[tokio::test]
async fn a_proxy_that_shows_nothing_is_refused() {
    let mesh = Mesh::trusting(Trust::default()).await;
    mesh.pod("default", "client", "10.9.1.1", json!({})).await;
    let peer = Peer { address: Some("10.9.1.1:4000".parse().unwrap()), certificate: None };
    let refused = refusal(mesh.connect(&Subscriber { peer, ..node("default", "client") }).await);
    assert!(refused.starts_with("Unauthenticated(\"the proxy does not show which Pod it belongs to"), "{refused}");
    mesh.stop().await;
}

#[tokio::test]
async fn the_address_of_a_pod_is_enough_where_addresses_are_trusted() {
    let mesh = Mesh::trusting(Trust { pod_addresses: true, ..Trust::default() }).await;
    mesh.pod("default", "client", "10.9.1.1", json!({})).await;
    let peer = Peer { address: Some("10.9.1.1:4000".parse().unwrap()), certificate: None };
    mesh.connect(&Subscriber { peer, ..node("other", "somebody") }).await.unwrap();
    // Whatever it says of itself.
    assert!(refusal(mesh.connect(&node("default", "client")).await).starts_with("Unauthenticated"));
    mesh.stop().await;
}
