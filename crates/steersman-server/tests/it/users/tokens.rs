//! Tokens of service accounts: requested, used, reviewed.

use crate::support::{Http, TestServer};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::{Method, Request};
use http_body_util::Full;
use serde_json::{Value, json};
use steersman_server::authn::{self, ServiceAccountOptions, TokenSecrets};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const WHOAMI: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

async fn account(http: &Http, name: &str) {
    let created = http.post(ACCOUNTS, &json!({"metadata": {"name": name}})).await;
    assert_eq!(created.code, 201);
}

/// Requests a token.
async fn token(http: &Http, spec: Value) -> Value {
    let answer = http.post(&format!("{ACCOUNTS}/sa/token"), &json!({"spec": spec})).await;
    answer.ok()
}

async fn whoami(test: &TestServer, token: &str) -> (u16, Value) {
    let request = Request::builder()
        .method(Method::POST)
        .uri(WHOAMI)
        .header("content-type", "application/json")
        .header("authorization", format!("Bearer {token}"));
    let answer = Http(test.server.service()).raw(request.body(Full::from("{}")).unwrap()).await;
    (answer.code, answer.json()["status"]["userInfo"].clone())
}

#[tokio::test]
async fn an_account_signs_in_with_the_token_it_was_given() {
    let test = TestServer::new().await;
    let http = test.http();
    account(&http, "sa").await;
    let issued = token(&http, json!({})).await;
    assert_eq!(issued["metadata"]["name"], "sa");
    assert_eq!(issued["metadata"]["namespace"], "default");
    assert_eq!((&issued["kind"], &issued["apiVersion"]), (&json!("TokenRequest"), &json!("authentication.k8s.io/v1")));
    assert_eq!(
        issued["spec"],
        json!({"audiences": ["https://kubernetes.default.svc"], "boundObjectRef": null, "expirationSeconds": 3600})
    );
    let text = issued["status"]["token"].as_str().unwrap();
    let (code, user) = whoami(&test, text).await;
    assert_eq!((code, &user["username"]), (201, &json!("system:serviceaccount:default:sa")));
    assert_eq!(
        user["groups"],
        json!(["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"])
    );
    let id = &user["extra"]["authentication.kubernetes.io/credential-id"][0];
    assert!(id.as_str().unwrap().starts_with("JTI="), "{id}");

    let review = http.post(REVIEWS, &json!({"spec": {"token": text}})).await;
    let status = &review.json()["status"];
    assert_eq!((review.code, &status["authenticated"]), (201, &json!(true)));
    assert_eq!(status["user"], user);
    let review = http.post(REVIEWS, &json!({"spec": {"token": text, "audiences": ["vault"]}})).await;
    let status = review.json()["status"].clone();
    let why = "[invalid bearer token, token audiences [\"https://kubernetes.default.svc\"] is invalid for the target audiences [\"vault\"]]";
    assert_eq!(status, json!({"user": {}, "error": why}));
    assert_eq!(http.post(REVIEWS, &json!({"spec": {}})).await.code, 400);

    http.send(Method::DELETE, &format!("{ACCOUNTS}/sa"), "application/json", "").await;
    assert_eq!(whoami(&test, text).await.0, 401, "at once");
}

#[tokio::test]
async fn a_token_is_bound_to_an_object_that_is_there() {
    let test = TestServer::new().await;
    let http = test.http();
    account(&http, "sa").await;
    let ask = async |reference: Value| {
        let body = json!({"spec": {"boundObjectRef": reference}});
        let answer = http.post(&format!("{ACCOUNTS}/sa/token"), &body).await;
        let value = answer.json();
        (answer.code, value["message"].as_str().unwrap_or_default().to_owned())
    };
    let refused = ask(json!({"kind": "Deployment", "apiVersion": "apps/v1", "name": "d"})).await;
    assert_eq!(refused, (400, "cannot bind token to object of type apps/v1, Kind=Deployment".to_owned()));
    let refused = ask(json!({"kind": "Pod", "apiVersion": "v1", "name": "p"})).await;
    assert_eq!(refused, (404, "pods \"p\" not found".to_owned()));
    let pod = json!({
        "metadata": {"name": "p"}, "spec": {"serviceAccountName": "other", "containers": [{"name": "c", "image": "i"}]},
    });
    assert_eq!(http.post("/api/v1/namespaces/default/pods", &pod).await.code, 201);
    let refused = ask(json!({"kind": "Pod", "apiVersion": "v1", "name": "p"})).await;
    assert_eq!(refused.0, 400);
    assert!(refused.1.starts_with("cannot bind token for serviceaccount \"sa\" to pod running with"), "{refused:?}");
}

/// Waits until a Secret is as wanted.
async fn secret_until(http: &Http, name: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
    let mut watch = http.watch(&format!("{SECRETS}?fieldSelector=metadata.name={name}")).await;
    while let Some(event) = watch.next().await {
        if is_wanted(&event) {
            return event["object"].clone();
        }
    }
    panic!("the watch of {name} has ended")
}

#[tokio::test]
async fn a_secret_for_a_token_is_filled_and_ends_with_its_account() {
    let token_secrets = Some(TokenSecrets { ca: Some("a CA".to_owned()) });
    let service_accounts = ServiceAccountOptions { token_secrets, ..ServiceAccountOptions::default() };
    let test = TestServer::authenticating(authn::Options { service_accounts, ..authn::Options::default() }).await;
    let http = test.http();
    account(&http, "sa").await;
    let secret = |name: &str, account: &str| {
        json!({
            "metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": account}},
            "type": "kubernetes.io/service-account-token",
        })
    };
    let has_token = |event: &Value| event["object"]["data"]["token"].is_string();
    http.post(SECRETS, &secret("t", "sa")).await.ok();
    let filled = secret_until(&http, "t", has_token).await;
    let text = |key: &str| {
        let bytes = STANDARD.decode(filled["data"][key].as_str().unwrap()).unwrap();
        String::from_utf8(bytes).unwrap()
    };
    assert_eq!((text("ca.crt"), text("namespace")), ("a CA".to_owned(), "default".to_owned()));
    let uid = http.get(&format!("{ACCOUNTS}/sa")).await.json()["metadata"]["uid"].clone();
    assert_eq!(filled["metadata"]["annotations"]["kubernetes.io/service-account.uid"], uid);
    let old = text("token");
    let (code, user) = whoami(&test, &old).await;
    assert_eq!((code, &user["username"], &user["uid"]), (201, &json!("system:serviceaccount:default:sa"), &uid));

    // A removed token is set again.
    http.merge(&format!("{SECRETS}/t"), &json!({"data": {"token": null}})).await.ok();
    secret_until(&http, "t", has_token).await;
    // A Secret whose account does not exist is deleted.
    http.post(SECRETS, &secret("nobodys", "nobody")).await.ok();
    let gone = async |name: &str| {
        while http.get(&format!("{SECRETS}/{name}")).await.code != 404 {
            tokio::task::yield_now().await;
        }
    };
    gone("nobodys").await;
    http.delete(&format!("{ACCOUNTS}/sa")).await.ok();
    assert_eq!(whoami(&test, &old).await.0, 401);
    gone("t").await;
}

#[tokio::test]
async fn the_use_of_a_token_in_a_secret_is_recorded_and_one_that_is_marked_as_invalid_is_refused() {
    let token_secrets = Some(TokenSecrets::default());
    let service_accounts = ServiceAccountOptions { token_secrets, ..ServiceAccountOptions::default() };
    let test = TestServer::authenticating(authn::Options { service_accounts, ..authn::Options::default() }).await;
    let http = test.http();
    account(&http, "sa").await;
    let annotations = json!({"kubernetes.io/service-account.name": "sa"});
    let secret = json!({
        "metadata": {"name": "t", "annotations": annotations}, "type": "kubernetes.io/service-account-token",
    });
    http.post(SECRETS, &secret).await.ok();
    let filled = secret_until(&http, "t", |event| event["object"]["data"]["token"].is_string()).await;
    assert!(filled["metadata"]["labels"].is_null(), "nobody has used it");
    let token = String::from_utf8(STANDARD.decode(filled["data"]["token"].as_str().unwrap()).unwrap()).unwrap();
    let used = async || {
        let request = Request::get("/api").header("authorization", format!("Bearer {token}"));
        Http(test.server.service()).raw(request.body(Full::<bytes::Bytes>::default()).unwrap()).await
    };
    let answer = used().await;
    assert_eq!((answer.code, answer.header("warning")), (200, None), "somebody made the Secret by hand");
    let last_used =
        |event: &Value| event["object"]["metadata"]["labels"]["kubernetes.io/legacy-token-last-used"].clone();
    let recorded = secret_until(&http, "t", |event| last_used(event).is_string()).await;
    let day = recorded["metadata"]["labels"]["kubernetes.io/legacy-token-last-used"].as_str().unwrap();
    assert!(day.parse::<jiff::civil::Date>().is_ok(), "{day}");
    assert_eq!(used().await.code, 200);
    let after = http.get(&format!("{SECRETS}/t")).await.ok();
    assert_eq!(after["metadata"]["resourceVersion"], recorded["metadata"]["resourceVersion"], "once a day");

    // Older versions of Kubernetes created such Secrets themselves and listed them in the account.
    http.merge(&format!("{ACCOUNTS}/sa"), &json!({"secrets": [{"name": "t"}]})).await.ok();
    let warning = "299 - \"Use tokens from the TokenRequest API or manually created secret-based tokens instead of auto-generated secret-based tokens.\"";
    assert_eq!(used().await.header("warning"), Some(warning));

    let mark = |day: Value| json!({"metadata": {"labels": {"kubernetes.io/legacy-token-invalid-since": day}}});
    http.merge(&format!("{SECRETS}/t"), &mark(json!("2026-01-01"))).await.ok();
    assert_eq!(used().await.code, 401);
    let review = http.post(REVIEWS, &json!({"spec": {"token": token}})).await.json();
    let why = "[invalid bearer token, the token in secret default/t for service account default/sa has been marked invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the 'kubernetes.io/legacy-token-invalid-since' label from the secret to temporarily allow use of this token]";
    assert_eq!(review["status"], json!({"user": {}, "error": why}));
    http.merge(&format!("{SECRETS}/t"), &mark(Value::Null)).await.ok();
    assert_eq!(used().await.code, 200);
}

#[tokio::test]
async fn the_keys_of_the_issuer_are_published_and_verify_its_tokens() {
    let test = TestServer::new().await;
    let http = test.http();
    account(&http, "sa").await;
    let configuration = http.get("/.well-known/openid-configuration").await;
    assert_eq!(configuration.headers["cache-control"], "public, max-age=3600");
    assert_eq!(
        configuration.json(),
        json!({
            "issuer": "https://kubernetes.default.svc",
            "jwks_uri": "https://localhost:6443/openid/v1/jwks",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        })
    );
    let keys = http.get("/openid/v1/jwks").await;
    assert_eq!(keys.headers["content-type"], "application/jwk-set+json");
    let key = keys.json()["keys"][0].clone();
    assert_eq!((&key["kty"], &key["crv"], &key["use"]), (&json!("EC"), &json!("P-256"), &json!("sig")));
    let bytes = |text: &Value| URL_SAFE_NO_PAD.decode(text.as_str().unwrap()).unwrap();
    let point = [&[4][..], &bytes(&key["x"]), &bytes(&key["y"])].concat();
    let issued = token(&http, json!({})).await;
    let (signed, signature) = issued["status"]["token"].as_str().unwrap().rsplit_once('.').unwrap();
    ring::signature::UnparsedPublicKey::new(&ring::signature::ECDSA_P256_SHA256_FIXED, point)
        .verify(signed.as_bytes(), &bytes(&json!(signature)))
        .unwrap();
    assert_eq!(test.http_as("alice").get("/openid/v1/jwks").await.code, 403);
}
