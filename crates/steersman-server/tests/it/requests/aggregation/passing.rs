//! Requests are passed on to another server, and its answers come back.

use crate::requests::aggregation::{FAR, Far, SERVICES};
use crate::support::{Options, text};
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use serde_json::{Value, json};
use steersman_server::user::User;
use steersman_server::{Concurrency, authn};

const THINGS: &str = "/apis/far.example.com/v1/namespaces/default/things";

#[tokio::test]
async fn every_verb_is_passed_on_in_the_name_of_the_user_and_with_the_certificate_of_the_front_proxy() {
    let far = Far::registered().await;
    let user = User {
        uid: "7".to_owned(),
        extra: [("Scopes".to_owned(), vec!["all".to_owned()])].into(),
        ..User::master("jane")
    };
    let http = far.test.http_of(user);
    for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS] {
        let request = Request::builder()
            .method(method.clone())
            .uri(format!("{THINGS}/a%20b?x=1&y=%2F"))
            .header("authorization", "Bearer secret")
            .header("x-remote-user", "root")
            .header("x-remote-group", "system:masters")
            .header("x-remote-extra-more", "1")
            .header("audit-id", "an-id")
            .header("x-mine", "kept");
        let answer = http.raw(request.body(Full::<Bytes>::from("{}")).unwrap()).await;
        assert_eq!((answer.code, answer.header("x-far")), (201, Some("1")), "{method}");
        assert_eq!((answer.header("access-control-allow-origin"), answer.header("audit-id")), (None, Some("an-id")));
        assert_eq!(answer.json(), json!({"kind": "Thing"}));
        let received = far.received().pop().unwrap();
        assert_eq!((received.method, received.path), (method, format!("{THINGS}/a%20b?x=1&y=%2F")));
        assert!(received.has_certificate && received.body == "{}");
        let all = |name: &str| -> Vec<&str> {
            received.headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
        };
        assert_eq!((all("x-remote-user"), all("x-remote-uid")), (vec!["jane"], vec!["7"]));
        assert_eq!(all("x-remote-group"), ["system:masters", "system:authenticated"]);
        assert_eq!((all("x-remote-extra-scopes"), all("x-remote-extra-more")), (vec!["all"], vec![]));
        assert_eq!((all("authorization"), all("audit-id"), all("x-mine")), (vec![], vec!["an-id"], vec!["kept"]));
    }
}

#[tokio::test]
async fn who_may_not_send_a_request_reaches_nobody() {
    let far = Far::registered().await;
    let refused = far.test.http_as("bob").get(THINGS).await;
    assert_eq!(refused.refusal(), (403, "Forbidden".to_owned()));
    let nobody = far.test.server.service();
    let answer = crate::support::Http(nobody).get(THINGS).await;
    assert_eq!(answer.code, 401);
    assert!(far.received().is_empty());
}

#[tokio::test]
async fn headers_of_a_proxy_before_this_server_are_not_passed_on() {
    let proxies = authn::RequestHeader {
        username_headers: vec!["x-sso-user".parse().unwrap()],
        ..authn::RequestHeader::of_proxy("sso")
    };
    let far = Far::with(super::Discovery::Classic, |options| Options {
        authentication: authn::Options { request_header: Some(proxies), ..options.authentication },
        ..options
    })
    .await;
    far.register().await;
    let request = Request::get(THINGS).header("x-sso-user", "root").body(Full::<Bytes>::default()).unwrap();
    assert_eq!(far.http().raw(request).await.code, 201);
    assert_eq!(far.received()[0].headers.get("x-sso-user"), None);
}

#[tokio::test]
async fn a_server_that_is_gone_is_told_in_upstreams_words() {
    let mut far = Far::registered().await;
    far.end().await;
    let answer = far.http().get(THINGS).await;
    assert_eq!(answer.code, 503);
    let said = answer.body_text();
    assert!(said.starts_with("error trying to reach service: ") && said.contains("refused"), "{said}");
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_not_trusted_unless_all_are() {
    let far = Far::start().await;
    let other = Far::start().await;
    let mut service = far.api_service();
    service["spec"]["caBundle"] = json!(other.ca);
    far.http().post(SERVICES, &service).await.ok();
    assert_eq!(far.reason(|reason| reason != "Passed").await, "FailedDiscoveryCheck");
    let answer = far.http().get(THINGS).await;
    assert_eq!((answer.code, answer.body_text().as_str()), (503, "service unavailable\n"));
    let unverified = json!({"spec": {"caBundle": null, "insecureSkipTLSVerify": true}});
    far.http().merge(&format!("{SERVICES}/v1.far.example.com"), &unverified).await.ok();
    far.reason(|reason| reason == "Passed").await;
    assert_eq!(far.http().get(THINGS).await.code, 201);
}

#[tokio::test]
async fn a_redirect_is_refused_and_so_is_a_request_that_comes_back() {
    let far = Far::registered().await;
    let redirected = far.http().get(&format!("{FAR}/redirect")).await;
    assert_eq!((redirected.code, redirected.header("location")), (502, None));
    far.http().get(THINGS).await;
    let from = far.received().last().unwrap().headers["steersman-proxied-by"].clone();
    let request = Request::get(THINGS).header("steersman-proxied-by", from).body(Full::<Bytes>::default()).unwrap();
    let answer = far.http().raw(request).await;
    assert_eq!(answer.code, 508);
    assert!(answer.body_text().starts_with("this server sent this request itself"));
    assert_eq!(far.received().iter().filter(|one| one.path == THINGS).count(), 1);
}

#[tokio::test]
async fn a_request_counts_among_those_in_flight_until_its_client_disconnects() {
    let concurrency = Concurrency { has_priority_and_fairness: false, reads_max: 1, writes_max: 1 };
    let far = Far::with(super::Discovery::Aggregated, |options| Options { concurrency, ..options }).await;
    far.register().await;
    let http = far.http();
    let hanging = tokio::spawn(async move { http.get(&format!("{FAR}/hang")).await });
    far.arrived().await;
    assert_eq!(far.http().get(crate::support::CONFIGS).await.code, 429);
    hanging.abort();
    far.dropped().await;
    assert_eq!(far.http().get(crate::support::CONFIGS).await.code, 200);
}

#[tokio::test]
async fn what_this_server_serves_is_not_shadowed() {
    let far = Far::start().await;
    let http = far.http();
    let definition = json!({
        "metadata": {"name": "hats.far.example.com"},
        "spec": {
            "group": "far.example.com", "scope": "Namespaced", "names": {"plural": "hats", "kind": "Hat"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    });
    http.post(SERVICES, &far.api_service()).await.ok();
    far.reason(|reason| reason == "Passed").await;
    http.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await.ok();
    assert_eq!(far.reason(|reason| reason != "Passed").await, "ServedLocally");
    let hats = http.get("/apis/far.example.com/v1/namespaces/default/hats").await.ok();
    assert_eq!(text(&hats, "/kind"), "HatList");
    let elsewhere = json!({"spec": {"caBundle": far.ca, "service": {"namespace": "default", "name": "far"}}});
    http.merge(&format!("{SERVICES}/v1.apps"), &elsewhere).await.ok();
    let deployments = http.get("/apis/apps/v1/deployments").await.ok();
    assert_eq!(text(&deployments, "/kind"), "DeploymentList");
    assert!(far.received().is_empty());
}

#[tokio::test]
async fn other_servers_are_told_which_proxies_to_believe() {
    let far = Far::with(super::Discovery::Aggregated, |options| {
        let headers = authn::RequestHeader::of_proxy("front-proxy-client");
        let published_proxies = Some(authn::TrustedProxies { ca: "THE CA".to_owned(), headers });
        Options { authentication: authn::Options { published_proxies, ..options.authentication }, ..options }
    })
    .await;
    let config = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let published = far.http().get(config).await.ok();
    let want: Value = json!({
        "requestheader-allowed-names": "[\"front-proxy-client\"]",
        "requestheader-client-ca-file": "THE CA",
        "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
        "requestheader-group-headers": "[\"X-Remote-Group\"]",
        "requestheader-uid-headers": "[\"X-Remote-Uid\"]",
        "requestheader-username-headers": "[\"X-Remote-User\"]",
    });
    assert_eq!(published["data"], want);
}
