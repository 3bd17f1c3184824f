//! Pod security by the labels of a namespace.

use crate::support::{TestServer, text};
use serde_json::json;

#[tokio::test]
async fn a_namespace_holds_its_pods_to_a_level() {
    let test = TestServer::new().await;
    let http = test.http();
    let labels =
        json!({"pod-security.kubernetes.io/enforce": "strict", "pod-security.kubernetes.io/warn-version": "1.30"});
    let bad = http.post("/api/v1/namespaces", &json!({"metadata": {"name": "bad", "labels": labels}})).await;
    assert_eq!((bad.code, bad.json()["details"]["causes"].as_array().unwrap().len()), (422, 2));

    let labels =
        json!({"pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/warn": "restricted"});
    http.post("/api/v1/namespaces", &json!({"metadata": {"name": "a", "labels": labels}})).await.ok();
    let plain = json!({"metadata": {"name": "plain"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let warned = http.post("/api/v1/namespaces/a/pods", &plain).await;
    assert_eq!(warned.code, 201);
    assert!(
        warned
            .header("warning")
            .unwrap()
            .starts_with("299 - \"would violate PodSecurity \\\"restricted:latest\\\": allow")
    );
    let host = json!({"metadata": {"name": "host"}, "spec": {"hostNetwork": true, "containers": [{"name": "c", "image": "i"}]}});
    let refused = http.post("/api/v1/namespaces/a/pods", &host).await;
    let why =
        "pods \"host\" is forbidden: violates PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)";
    assert_eq!((refused.code, text(&refused.json(), "/message")), (403, why));

    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": host["spec"]});
    let deployment =
        json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    let warned = http.post("/apis/apps/v1/namespaces/a/deployments", &deployment).await;
    assert!(warned.code == 201 && warned.header("warning").unwrap().contains("host namespaces (hostNetwork=true)"));

    let stricter = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    let told = http.merge("/api/v1/namespaces/a", &stricter).await;
    let warnings: Vec<&str> = told.headers.get_all("warning").iter().map(|value| value.to_str().unwrap()).collect();
    assert_eq!(
        warnings,
        [
            "299 - \"existing pods in namespace \\\"a\\\" violate the new PodSecurity enforce level \\\"restricted:latest\\\"\"",
            "299 - \"plain: allowPrivilegeEscalation != false, unrestricted capabilities, runAsNonRoot != true, seccompProfile\"",
        ]
    );
}
