//! Default classes for objects that name none, and warnings for writers of pods.

use crate::support::{TestServer, text};
use serde_json::json;

#[tokio::test]
async fn a_claim_and_an_ingress_get_the_default_class() {
    let test = TestServer::new().await;
    let http = test.http();
    let marked = |mark: &str| json!({"name": "usual", "annotations": {mark: "true"}});
    let storage =
        json!({"metadata": marked("storageclass.kubernetes.io/is-default-class"), "provisioner": "example.com/x"});
    http.post("/apis/storage.k8s.io/v1/storageclasses", &storage).await.ok();
    let ingress = json!({"metadata": marked("ingressclass.kubernetes.io/is-default-class"), "spec": {"controller": "example.com/x"}});
    http.post("/apis/networking.k8s.io/v1/ingressclasses", &ingress).await.ok();

    let claim = |name: &str, class: serde_json::Value| {
        json!({"metadata": {"name": name}, "spec": {
            "storageClassName": class, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        }})
    };
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let given = http.post(claims, &claim("a", json!(null))).await.ok();
    assert_eq!(text(&given, "/spec/storageClassName"), "usual");
    let own = http.post(claims, &claim("b", json!(""))).await.ok();
    assert_eq!(own["spec"]["storageClassName"], "");
    let backend = json!({"service": {"name": "s", "port": {"number": 80}}});
    let plain = json!({"metadata": {"name": "i"}, "spec": {"defaultBackend": backend}});
    let given = http.post("/apis/networking.k8s.io/v1/namespaces/default/ingresses", &plain).await.ok();
    assert_eq!(text(&given, "/spec/ingressClassName"), "usual");
}

#[tokio::test]
async fn who_creates_a_pod_is_warned_and_who_changes_it_is_not() {
    let test = TestServer::new().await;
    let http = test.http();
    let containers =
        json!([{"name": "a", "image": "i", "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}]);
    let pods = "/api/v1/namespaces/default/pods";
    let created = http.post(pods, &json!({"metadata": {"name": "p"}, "spec": {"containers": containers}})).await;
    let warning = "299 - \"spec.containers[0].env[1]: hides previous definition of \\\"A\\\", which may be dropped when using apply\"";
    assert_eq!((created.code, created.header("warning")), (201, Some(warning)));
    let changed = http.merge(&format!("{pods}/p"), &json!({"metadata": {"labels": {"a": "b"}}})).await;
    assert_eq!((changed.code, changed.header("warning")), (200, None));
    let classless = json!({"metadata": {"name": "q"}, "spec": {"runtimeClassName": "none", "containers": [{"name": "a", "image": "i"}]}});
    let refused = http.post(pods, &classless).await;
    let why = "pods \"q\" is forbidden: pod rejected: RuntimeClass \"none\" not found";
    assert_eq!((refused.code, text(&refused.json(), "/message")), (403, why));
}
