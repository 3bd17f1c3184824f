//! Token Secrets over the years: the server records their use and refuses invalid ones, and the loop deletes unused
//! ones.

use http::Request;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::ResourceExt as _;
use kube::client::Body;
use std::sync::atomic::{AtomicI64, Ordering};
use steersman::ObjectKey;
use steersman_testkit::{ControlPlane, Loops, Options};
use tower::ServiceExt as _;

const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
const LOOP: &str = "legacy-serviceaccount-token-cleaner";

/// The day on the clock of the control plane, since 1970.
static DAY: AtomicI64 = AtomicI64::new(20_000);

fn now() -> jiff::Timestamp {
    jiff::Timestamp::from_second(DAY.load(Ordering::SeqCst) * 86_400).unwrap()
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

/// The status code of a request with the token.
async fn code(plane: &ControlPlane, token: &str) -> u16 {
    let request = Request::get("/api").header("authorization", format!("Bearer {token}")).body(Body::empty()).unwrap();
    plane.service().oneshot(request).await.unwrap().status().as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_in_use_stays_and_one_that_nobody_uses_is_refused_and_goes() {
    let options = Options { clock: now, token_secrets: true, ..Options::default() };
    let plane = ControlPlane::try_start(options).await.unwrap();
    plane
        .apply("{kind: ServiceAccount, apiVersion: v1, metadata: {name: old}, secrets: [{name: used}, {name: idle}]}")
        .await;
    plane.until(&key("old"), |_: &ServiceAccount| true).await;
    let mut tokens = Vec::new();
    for name in ["used", "idle"] {
        plane
            .apply(&format!(
                "{{kind: Secret, apiVersion: v1, type: kubernetes.io/service-account-token, \
                 metadata: {{name: {name}, annotations: {{kubernetes.io/service-account.name: old}}}}}}"
            ))
            .await;
        let token = |secret: &Secret| secret.data.as_ref()?.get("token").cloned();
        let secret = plane.until(&key(name), |secret: &Secret| token(secret).is_some()).await;
        tokens.push(String::from_utf8(token(&secret).unwrap().0).unwrap());
    }
    let [used, idle] = tokens.try_into().unwrap();

    DAY.fetch_add(400, Ordering::SeqCst);
    assert_eq!(code(&plane, &used).await, 200);
    let today = now().to_zoned(jiff::tz::TimeZone::UTC).date().to_string();
    plane.until(&key("used"), |secret: &Secret| secret.labels().get(LAST_USED) == Some(&today)).await;
    let plane = plane.with_loops(Loops::only([LOOP])).await;
    plane.until(&key("idle"), |secret: &Secret| secret.labels().get(INVALID_SINCE) == Some(&today)).await;
    assert_eq!((code(&plane, &used).await, code(&plane, &idle).await), (200, 401));

    // The refused request counts as a use, so another year has to pass from here.
    let plane = plane.with_loops(Loops::none()).await;
    plane.until(&key("idle"), |secret: &Secret| secret.labels().contains_key(LAST_USED)).await;
    DAY.fetch_add(400, Ordering::SeqCst);
    assert_eq!(code(&plane, &used).await, 200);
    let today = now().to_zoned(jiff::tz::TimeZone::UTC).date().to_string();
    plane.until(&key("used"), |secret: &Secret| secret.labels().get(LAST_USED) == Some(&today)).await;
    let plane = plane.with_loops(Loops::only([LOOP])).await;
    plane.until_gone::<Secret>(&key("idle")).await;
    plane.until(&key("used"), |secret: &Secret| !secret.labels().contains_key(INVALID_SINCE)).await;
    assert_eq!((code(&plane, &used).await, code(&plane, &idle).await), (200, 401));
    plane.stop().await;
}
