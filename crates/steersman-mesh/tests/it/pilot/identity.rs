//! Which Pod a proxy belongs to.

use std::sync::Arc;

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use steersman_mesh::pilot::{AUDIENCE, Trust};
use steersman_testkit::Fault;
use steersman_xds::{Peer, Refusal, Source as _, StreamId, Subscriber, Token};

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

/// The words of the API server, which may name its address, are not for whoever asks.
#[tokio::test]
async fn a_peer_does_not_learn_why_its_token_cannot_be_checked() {
    let mesh = Mesh::trusting(Trust::default()).await;
    mesh.plane.fail_next_where(usize::MAX, Fault::Refused(403), |_, path| path.ends_with("/tokenreviews"));
    let subscriber = Arc::new(Subscriber { token: Some(Token::new("x")), ..node("default", "client") });
    let refused = loop {
        match mesh.proxies.subscribe(StreamId(1), &subscriber).await {
            Err(Refusal::NotReady) => tokio::task::yield_now().await,
            Err(refusal) => break refusal,
            Ok(_) => panic!("the token is not valid"),
        }
    };
    let expected = "the token of the proxy cannot be checked now; ask again".to_owned();
    assert_eq!(refused, Refusal::Unknown(expected));
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
    mesh.connect(&Subscriber { peer: peer.clone(), ..node("other", "somebody") }).await.unwrap();
    // An address of two Pods says nothing.
    mesh.pod("default", "second", "10.9.1.1", json!({})).await;
    let subscriber = Arc::new(Subscriber { peer, ..node("other", "somebody") });
    let refused = loop {
        match mesh.proxies.subscribe(StreamId(1000), &subscriber).await {
            Err(refusal) => break refusal,
            // The cache is behind.
            Ok(_) => tokio::task::yield_now().await,
        }
    };
    assert_eq!(refused, Refusal::Unknown("more than one Pod has the address 10.9.1.1".to_owned()));
    // Whatever it says of itself.
    assert!(refusal(mesh.connect(&node("default", "client")).await).starts_with("Unauthenticated"));
    mesh.stop().await;
}
