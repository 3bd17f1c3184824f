//! The condition `Available` of APIServices.

use crate::requests::aggregation::{FAR, Far, SERVICES, api_service};
use crate::support::text;
use serde_json::{Value, json};

const KUBE_SERVICES: &str = "/api/v1/namespaces/default/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

fn slice(name: &str, port_name: &str, is_ready: Option<bool>) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "near"}}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.1.2.3"], "conditions": {"ready": is_ready}}],
        "ports": [{"name": port_name, "port": 8443}],
    })
}

#[tokio::test]
async fn each_reason_follows_from_the_service_and_its_endpoints() {
    let far = Far::start().await;
    let http = far.http();
    let reference =
        json!({"insecureSkipTLSVerify": true, "service": {"namespace": "default", "name": "near", "port": 8443}});
    http.post(SERVICES, &api_service("far.example.com", reference)).await.ok();
    let path = format!("{SERVICES}?fieldSelector=metadata.name=v1.far.example.com");
    let mut watch = http.watch(&path).await;
    let mut next = async |last: &str| loop {
        let event = watch.next().await.unwrap();
        let condition = &event["object"]["status"]["conditions"][0];
        let (reason, message) = (text(condition, "/reason"), text(condition, "/message"));
        if !reason.is_empty() && reason != last {
            assert_ne!(condition["status"], "True");
            return (reason.to_owned(), message.to_owned());
        }
    };
    let (first, message) = next("").await;
    assert_eq!((first.as_str(), message.as_str()), ("ServiceNotFound", "service/near in \"default\" is not present"));
    let service = json!({"metadata": {"name": "near"}, "spec": {"ports": [{"name": "https", "port": 443}]}});
    http.post(KUBE_SERVICES, &service).await.ok();
    let (second, message) = next(&first).await;
    let want = "service/near in \"default\" is not listening on port 8443";
    assert_eq!((second.as_str(), message.as_str()), ("ServicePortError", want));
    let ports = json!({"spec": {"ports": [{"name": "https", "port": 8443}]}});
    http.merge(&format!("{KUBE_SERVICES}/near"), &ports).await.ok();
    let (third, message) = next(&second).await;
    let want = "cannot find endpointslices for service/near in \"default\"";
    assert_eq!((third.as_str(), message.as_str()), ("EndpointsNotFound", want));
    http.post(SLICES, &slice("a", "http", None)).await.ok();
    http.post(SLICES, &slice("b", "https", Some(false))).await.ok();
    let (fourth, message) = next(&third).await;
    let want = "endpointslices for service/near in \"default\" have no addresses with port name \"https\"";
    assert_eq!((fourth.as_str(), message.as_str()), ("MissingEndpoints", want));
    let answer = http.get(&format!("{FAR}/things")).await;
    assert_eq!((answer.code, answer.body_text().as_str()), (503, "service unavailable\n"));
}

#[tokio::test]
async fn a_name_outside_is_asked_as_it_is() {
    let far = Far::start().await;
    let http = far.http();
    let external =
        json!({"metadata": {"name": "outside"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    http.post(KUBE_SERVICES, &external).await.ok();
    let port = far.address.port();
    let reference = |port: u16| json!({"insecureSkipTLSVerify": true, "service": {"namespace": "default", "name": "outside", "port": port}});
    http.post(SERVICES, &api_service("far.example.com", reference(port))).await.ok();
    far.reason(|reason| reason == "Passed").await;
    assert_eq!(http.get(&format!("{FAR}/things")).await.code, 201);
}

#[tokio::test]
async fn a_server_that_goes_is_not_available_any_more() {
    let mut far = Far::registered().await;
    far.end().await;
    // A change of its APIService has it checked at once.
    let changed = json!({"spec": {"versionPriority": 16}});
    far.http().merge(&format!("{SERVICES}/v1.far.example.com"), &changed).await.ok();
    assert_eq!(far.reason(|reason| reason != "Passed").await, "FailedDiscoveryCheck");
    let service = far.http().get(&format!("{SERVICES}/v1.far.example.com")).await.ok();
    let message = text(&service, "/status/conditions/0/message");
    let want = "failing or missing response from https://far.default.svc:443/apis/far.example.com/v1: Get ";
    assert!(message.starts_with(want), "{message}");
    assert_eq!(text(&service, "/status/conditions/0/status"), "False");
    let answer = far.http().get(&format!("{FAR}/things")).await;
    assert_eq!((answer.code, answer.body_text().as_str()), (503, "service unavailable\n"));
}

#[tokio::test]
async fn one_that_is_answered_here_is_local() {
    let far = Far::start().await;
    far.http().post(SERVICES, &api_service("far.example.com", json!({}))).await.ok();
    assert_eq!(far.reason(|_| true).await, "Local");
    assert_eq!(far.http().get(&format!("{FAR}/things")).await.code, 404);
}
