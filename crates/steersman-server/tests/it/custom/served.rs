//! The configuration of the groups, versions and resources that are served.

use crate::support::{TestServer, options, text};
use serde_json::json;
use std::sync::Arc;
use steersman_server::authz::Authorization;
use steersman_server::{Options, builtin};
use steersman_storage::{Memory, Store};

async fn test(config: &str) -> TestServer {
    let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await.unwrap();
    let runtime_config = builtin::runtime_config(config.split(',')).unwrap();
    TestServer::of(store.clone(), Options { runtime_config, ..options(&store, Authorization::default()) }).await
}

#[tokio::test]
async fn a_cron_job_of_the_old_version_is_one_of_todays() {
    let test = test("batch/v2alpha1=true").await;
    let http = test.http();
    let path = |version: &str| format!("/apis/batch/{version}/namespaces/default/cronjobs");
    let old = json!({"apiVersion": "batch/v2alpha1", "kind": "CronJob", "metadata": {"name": "hello"}, "spec": {
        "schedule": "*/1 * * * *",
        "jobTemplate": {"spec": {"template": {"spec": {
            "restartPolicy": "OnFailure", "containers": [{"name": "hello", "image": "busybox"}],
        }}}},
    }});
    let answer = http.post(&path("v2alpha1"), &old).await;
    let warning = answer.headers["warning"].to_str().unwrap();
    assert!(warning.contains("batch/v2alpha1 CronJob is deprecated"), "{warning}");
    let created = answer.ok();
    assert_eq!((text(&created, "/apiVersion"), text(&created, "/spec/concurrencyPolicy")), ("batch/v2alpha1", "Allow"));
    let stable = http.get(&format!("{}/hello", path("v1"))).await.ok();
    assert_eq!((text(&stable, "/apiVersion"), &stable["spec"]), ("batch/v1", &created["spec"]));
    http.merge(&format!("{}/hello", path("v1")), &json!({"spec": {"suspend": true}})).await.ok();
    let list = http.get(&path("v2alpha1")).await.ok();
    assert_eq!(text(&list, "/apiVersion"), "batch/v2alpha1");
    assert_eq!(list["items"][0]["spec"]["suspend"], true);
    let groups = http.get("/apis/batch").await.ok();
    assert_eq!(text(&groups, "/preferredVersion/version"), "v1");
    assert_eq!(http.get("/openapi/v3/apis/batch/v2alpha1").await.code, 200);
    let service = http.get("/apis/apiregistration.k8s.io/v1/apiservices/v2alpha1.batch").await.ok();
    assert_eq!(text(&service, "/spec/version"), "v2alpha1");
    let refused = json!({"apiVersion": "batch/v2alpha1", "kind": "CronJob", "metadata": {"name": "x"}, "spec": {}});
    assert_eq!(http.post(&path("v2alpha1"), &refused).await.code, 422);
}

#[tokio::test]
async fn versions_that_are_not_stable_are_off_unless_they_are_switched_on() {
    let usual = test("").await;
    assert_eq!(usual.http().get("/apis/networking.k8s.io/v1beta1").await.code, 404);
    let test = test("api/beta=true").await;
    let http = test.http();
    let own = http.get("/apis/networking.k8s.io/v1beta1/servicecidrs/kubernetes").await.ok();
    assert_eq!(
        (text(&own, "/apiVersion"), &own["spec"]["cidrs"]),
        ("networking.k8s.io/v1beta1", &json!(["10.96.0.0/16"]))
    );
    assert_eq!(http.get("/apis/resource.k8s.io/v1beta2/deviceclasses").await.code, 200);
    assert_eq!(http.get("/apis/batch/v2alpha1").await.code, 404);
}

#[tokio::test]
async fn what_is_switched_off_is_not_there() {
    let test = test("apps/v1=false,batch/v1/cronjobs=false").await;
    let http = test.http();
    assert_eq!(http.get("/apis/apps/v1/deployments").await.code, 404);
    assert_eq!(http.get("/apis/apps").await.code, 404);
    assert_eq!(http.get("/apis/batch/v1/cronjobs").await.code, 404);
    assert_eq!(http.get("/apis/batch/v1/jobs").await.code, 200);
    assert_eq!(http.get("/apis/apiregistration.k8s.io/v1/apiservices/v1.apps").await.code, 404);
}
