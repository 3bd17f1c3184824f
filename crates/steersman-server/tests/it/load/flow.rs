//! The flow schemas and priority levels that every server has.

use crate::support::{TestServer, names, text};
use serde_json::{Value, json};
use std::time::Duration;

const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const LEVELS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";

/// Watches an object until it is as wanted.
async fn until(test: &TestServer, path: &str, name: &str, is_so: impl Fn(&Value) -> bool) {
    let http = test.http();
    let mut watch = http.watch(&format!("{path}?watch=1&fieldSelector=metadata.name={name}")).await;
    let wanted = async {
        loop {
            let event = watch.next().await.unwrap();
            if event["type"] != "DELETED" && is_so(&event["object"]) {
                return;
            }
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), wanted).await;
    waited.unwrap_or_else(|_| panic!("{name} does not become as wanted"));
}

#[tokio::test]
async fn a_server_has_its_levels_and_schemas_from_the_start() {
    let test = TestServer::new().await;
    let http = test.http();
    let levels = names(&http.get(LEVELS).await.ok());
    assert_eq!(
        levels,
        [
            "catch-all",
            "exempt",
            "global-default",
            "leader-election",
            "node-high",
            "system",
            "workload-high",
            "workload-low"
        ]
    );
    assert_eq!(names(&http.get(SCHEMAS).await.ok()).len(), 11);
    let exempt = http.get(&format!("{LEVELS}/exempt")).await.ok();
    assert_eq!(text(&exempt, "/metadata/annotations/apf.kubernetes.io~1autoupdate-spec"), "true");
}

#[tokio::test]
async fn what_is_missing_is_made_again_and_what_was_changed_comes_back() {
    let test = TestServer::new().await;
    let http = test.http();
    let kept = format!("{LEVELS}/system");
    http.merge(&kept, &json!({"spec": {"limited": {"nominalConcurrencyShares": 31}}})).await.ok();
    until(&test, LEVELS, "system", |level| level["spec"]["limited"]["nominalConcurrencyShares"] == 30).await;
    let own = json!({
        "metadata": {"annotations": {"apf.kubernetes.io/autoupdate-spec": "false"}},
        "spec": {"limited": {"nominalConcurrencyShares": 31}},
    });
    http.merge(&kept, &own).await.ok();
    let uid = http.get(&format!("{LEVELS}/catch-all")).await.ok()["metadata"]["uid"].clone();
    http.delete(&format!("{LEVELS}/catch-all")).await.ok();
    until(&test, LEVELS, "catch-all", |level| level["metadata"]["uid"] != uid).await;
    // By now a pass has seen the other level, too.
    let own = http.get(&kept).await.ok();
    assert_eq!(own["spec"]["limited"]["nominalConcurrencyShares"], 31);
}

#[tokio::test]
async fn a_schema_says_whether_its_level_is_there() {
    let test = TestServer::new().await;
    let http = test.http();
    let rule = json!({
        "subjects": [{"kind": "User", "user": {"name": "a"}}],
        "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/a"]}],
    });
    let schema = json!({
        "metadata": {"name": "mine"}, "spec": {"priorityLevelConfiguration": {"name": "later"}, "rules": [rule]},
    });
    http.post(SCHEMAS, &schema).await.ok();
    let condition = |schema: &Value, status: &str| text(schema, "/status/conditions/0/status") == status;
    until(&test, SCHEMAS, "mine", |schema| condition(schema, "True")).await;
    let level = json!({"metadata": {"name": "later"}, "spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}});
    http.post(LEVELS, &level).await.ok();
    until(&test, SCHEMAS, "mine", |schema| condition(schema, "False")).await;
}
