//! Limits and quotas of a namespace: defaults, refusals, usage.

use crate::support::{Answer, CONFIGS, Http, TestServer, config, text};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";

async fn quota(http: &Http, hard: Value, used: Value) {
    http.post(QUOTAS, &json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).await.ok();
    http.merge(&format!("{QUOTAS}/q/status"), &json!({"status": {"hard": hard, "used": used}})).await.ok();
}

async fn used(http: &Http) -> Value {
    http.get(&format!("{QUOTAS}/q")).await.ok()["status"]["used"].clone()
}

#[track_caller]
fn refused(answer: &Answer, want: &str) {
    assert_eq!((answer.code, text(&answer.json(), "/message")), (403, want));
}

#[tokio::test]
async fn a_quota_counts_what_is_let_in_and_refuses_the_rest() {
    let test = TestServer::new().await;
    let http = test.http();
    quota(&http, json!({"configmaps": "2"}), json!({"configmaps": "0"})).await;
    http.post(CONFIGS, &config("a")).await.ok();
    assert_eq!(used(&http).await, json!({"configmaps": "1"}));
    http.post(&format!("{CONFIGS}?dryRun=All"), &config("b")).await.ok();
    assert_eq!(used(&http).await, json!({"configmaps": "1"}));
    http.post(CONFIGS, &json!({"metadata": {"generateName": "g-"}})).await.ok();
    let why = "configmaps \"c\" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=2, limited: configmaps=2";
    refused(&http.post(CONFIGS, &config("c")).await, why);
    assert_eq!(used(&http).await, json!({"configmaps": "2"}));
}

#[tokio::test]
async fn a_write_that_fails_gives_back_what_was_counted_for_it() {
    let test = TestServer::new().await;
    let http = test.http();
    http.post(CONFIGS, &config("a")).await.ok();
    quota(&http, json!({"count/configmaps": "5"}), json!({"count/configmaps": "1"})).await;
    assert_eq!(http.post(CONFIGS, &config("a")).await.refusal(), (409, "AlreadyExists".to_owned()));
    assert_eq!(used(&http).await, json!({"count/configmaps": "1"}));
}

#[tokio::test]
async fn many_at_once_get_exactly_what_a_quota_has() {
    let test = TestServer::new().await;
    let http = test.http();
    quota(&http, json!({"configmaps": "7"}), json!({"configmaps": "0"})).await;
    let posts = (0..20).map(|number| {
        let http = http.clone();
        tokio::spawn(async move { http.post(CONFIGS, &config(&format!("c{number}"))).await.code })
    });
    let mut codes = Vec::new();
    for post in posts.collect::<Vec<_>>() {
        codes.push(post.await.unwrap());
    }
    let n_created = codes.iter().filter(|code| **code == 201).count();
    assert_eq!((n_created, codes.iter().filter(|code| **code == 403).count()), (7, 13));
    assert_eq!(used(&http).await, json!({"configmaps": "7"}));
}

#[tokio::test]
async fn a_service_that_changes_its_type_is_counted_by_the_difference() {
    let test = TestServer::new().await;
    let http = test.http();
    let hard = json!({"services": "2", "services.nodeports": "1"});
    quota(&http, hard, json!({"services": "0", "services.nodeports": "0"})).await;
    let services = "/api/v1/namespaces/default/services";
    http.post(services, &json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}})).await.ok();
    http.merge(&format!("{services}/s"), &json!({"spec": {"type": "NodePort"}})).await.ok();
    assert_eq!(used(&http).await, json!({"services": "1", "services.nodeports": "1"}));
    let more = json!({"spec": {"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]}});
    let why = "services \"s\" is forbidden: exceeded quota: q, requested: services.nodeports=1, used: services.nodeports=1, limited: services.nodeports=1";
    refused(&http.merge(&format!("{services}/s"), &more).await, why);
    http.merge(
        &format!("{services}/s"),
        &json!({"spec": {"type": "ClusterIP", "ports": [{"port": 80, "nodePort": null}]}}),
    )
    .await
    .ok();
    assert_eq!(used(&http).await, json!({"services": "1", "services.nodeports": "0"}));
}

#[tokio::test]
async fn containers_get_the_limits_of_their_namespace_and_are_held_to_them() {
    let test = TestServer::new().await;
    let http = test.http();
    let limits = json!([{"type": "Container", "default": {"cpu": "200m"}, "defaultRequest": {"cpu": "100m"}, "max": {"cpu": "1"}}]);
    let range = json!({"metadata": {"name": "l"}, "spec": {"limits": limits}});
    http.post("/api/v1/namespaces/default/limitranges", &range).await.ok();
    let pod = |name: &str, resources: Value| json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}});
    let given = http.post(PODS, &pod("p", json!({}))).await.ok();
    assert_eq!(
        given["spec"]["containers"][0]["resources"],
        json!({"limits": {"cpu": "200m"}, "requests": {"cpu": "100m"}})
    );
    let note = "LimitRanger plugin set: cpu request for container c; cpu limit for container c";
    assert_eq!(given["metadata"]["annotations"]["kubernetes.io/limit-ranger"], note);
    let over = http.post(PODS, &pod("over", json!({"limits": {"cpu": "2"}}))).await;
    refused(&over, "pods \"over\" is forbidden: maximum cpu usage per Container is 1, but limit is 2");
}
