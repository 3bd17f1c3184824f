//! Addresses and ports of Services: each has one owner, and becomes free when that is gone.

use crate::support::{Http, TestServer, serve, text};
use futures::future::join_all;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use steersman_server::authz::Authorization;
use steersman_server::user::User;

pub(crate) const SERVICES: &str = "/api/v1/namespaces/default/services";

fn service(name: &str, spec: &Value) -> Value {
    let mut service = json!({"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    for (key, value) in spec.as_object().unwrap() {
        service["spec"][key] = value.clone();
    }
    service
}

/// A Service with a fixed address and port.
pub(crate) fn greedy(name: &str) -> Value {
    service(name, &json!({"clusterIP": "10.96.7.7", "ports": [{"port": 80, "nodePort": 30777}]}))
}

#[track_caller]
pub(crate) fn check_taken(answer: &crate::support::Answer) {
    assert_eq!(answer.refusal(), (422, "Invalid".to_owned()));
    let message = answer.json()["message"].to_string();
    for field in ["spec.clusterIPs", "spec.ports[0].nodePort"] {
        assert!(message.contains(field), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_two_services_have_the_same() {
    let test = TestServer::new().await;
    let writers = (0..150).map(|index| {
        let http = test.http();
        tokio::spawn(async move { http.post(SERVICES, &service(&format!("s{index}"), &json!({}))).await.ok() })
    });
    let made: Vec<Value> = join_all(writers).await.into_iter().map(|made| made.unwrap()).collect();
    let addresses: BTreeSet<&str> = made.iter().map(|made| text(made, "/spec/clusterIP")).collect();
    let ports: BTreeSet<u64> = made.iter().map(|made| made["spec"]["ports"][0]["nodePort"].as_u64().unwrap()).collect();
    assert_eq!((addresses.len(), ports.len()), (150, 150));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_who_name_the_same_one_gets_it() {
    let test = TestServer::new().await;
    let writers = (0..32).map(|index| {
        let http = test.http();
        tokio::spawn(async move { http.post(SERVICES, &greedy(&format!("s{index}"))).await.code })
    });
    let mut codes: Vec<u16> = join_all(writers).await.into_iter().map(|code| code.unwrap()).collect();
    codes.sort_unstable();
    assert_eq!((codes[0], &codes[1..]), (201, [422; 31].as_slice()));
}

/// Creates a Service with an address or port, releases it, and checks that another Service can have it.
async fn check_given_back(test: &TestServer, mut first: Value, let_go: impl AsyncFnOnce(&Http, String)) {
    let http = test.http();
    first["metadata"]["name"] = "first".into();
    http.post(SERVICES, &first).await.ok();
    check_taken(&http.post(SERVICES, &greedy("second")).await);
    let_go(&http, format!("{SERVICES}/first")).await;
    http.post(SERVICES, &greedy("second")).await.ok();
    http.delete(&format!("{SERVICES}/second")).await.ok();
    http.delete(&format!("{SERVICES}/first")).await;
}

#[tokio::test]
async fn what_a_service_had_is_free_when_it_is_gone() {
    let test = TestServer::new().await;
    check_given_back(&test, greedy(""), async |http, path| {
        http.delete(&path).await.ok();
    })
    .await;
    check_given_back(&test, greedy(""), async |http, _| {
        http.delete(SERVICES).await.ok();
    })
    .await;
    check_given_back(&test, greedy(""), async |http, path| {
        http.merge(&path, &json!({"spec": {"type": "ExternalName", "externalName": "example.com"}})).await.ok();
    })
    .await;
}

#[tokio::test]
async fn what_a_service_had_is_free_when_its_last_finalizer_goes() {
    let test = TestServer::new().await;
    let mut held = greedy("");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    check_given_back(&test, held, async |http, path| {
        http.delete(&path).await.ok();
        check_taken(&http.post(SERVICES, &greedy("second")).await);
        http.merge(&path, &json!({"metadata": {"finalizers": null}})).await.ok();
    })
    .await;
}

#[tokio::test]
async fn what_was_not_stored_takes_nothing() {
    let test = TestServer::new().await;
    let http = test.http();
    http.post(SERVICES, &service("there", &json!({}))).await.ok();
    assert_eq!(http.post(SERVICES, &greedy("there")).await.code, 409);
    assert_eq!(http.post(SERVICES, &greedy("Not-A-Name")).await.code, 422);
    http.post(&format!("{SERVICES}?dryRun=All"), &greedy("dry")).await.ok();
    http.merge(&format!("{SERVICES}/there?dryRun=All"), &json!({"spec": {"ports": [{"port": 80, "nodePort": 30777}]}}))
        .await
        .ok();
    http.post(SERVICES, &greedy("wet")).await.ok();
}

#[tokio::test]
async fn a_server_that_starts_anew_knows_what_is_taken() {
    let test = TestServer::new().await;
    test.http().post(SERVICES, &greedy("first")).await.ok();
    test.server.begin_stop();
    let next = serve(&test.store, Authorization::default()).await;
    check_taken(&Http(next.service_as(User::master("admin"))).post(SERVICES, &greedy("second")).await);
}
