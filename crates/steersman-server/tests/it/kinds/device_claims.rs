//! Claims on devices.

use crate::support::{TestServer, text};
use serde_json::{Value, json};

const GROUP: &str = "/apis/resource.k8s.io/v1/namespaces/default";
const REFUSED: &str = "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace";

#[tokio::test]
async fn devices_that_others_use_are_claimed_in_labelled_namespaces_alone() {
    let test = TestServer::new().await;
    let http = test.http();
    let spec = |has_access: bool| {
        let exactly = json!({"deviceClassName": "gpu", "adminAccess": has_access});
        json!({"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "gpu"}}, {"name": "b", "exactly": exactly}]}})
    };
    let claim = |name: &str, has_access| json!({"metadata": {"name": name}, "spec": spec(has_access)});
    let template = json!({"metadata": {"name": "t"}, "spec": {"spec": spec(true)}});
    http.post(&format!("{GROUP}/resourceclaims"), &claim("usual", false)).await.ok();
    let claims = (format!("{GROUP}/resourceclaims"), claim("c", true));
    let templates = (format!("{GROUP}/resourceclaimtemplates"), template);
    for (path, object) in [&claims, &templates] {
        let answer = http.post(path, object).await;
        let cause = answer.json()["details"]["causes"][0].clone();
        assert_eq!((answer.code, text(&cause, "/field")), (422, "spec.devices.requests[1].adminAccess"));
        assert_eq!(text(&cause, "/message"), format!("Forbidden: {REFUSED}"));
    }
    let device = json!({"request": "a", "driver": "d.example.com", "pool": "p", "device": "d", "adminAccess": true});
    let status: Value = json!({"status": {"allocation": {"devices": {"results": [device]}}}});
    let answer = http.merge(&format!("{GROUP}/resourceclaims/usual/status"), &status).await;
    let blamed = text(&answer.json(), "/details/causes/0/field").to_owned();
    assert_eq!((answer.code, blamed.as_str()), (422, "status.allocation.devices.results[0].adminAccess"));

    let labels = json!({"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}});
    http.merge("/api/v1/namespaces/default", &labels).await.ok();
    for (path, object) in [&claims, &templates] {
        http.post(path, object).await.ok();
    }
    http.merge(&format!("{GROUP}/resourceclaims/usual/status"), &status).await.ok();
}
