//! Open watches of users who lose the permission for them.

use crate::support::{CONFIGS, TestServer, Watch, config, options, text};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use steersman_server::Options;
use steersman_server::authz::{Attributes, Authorization, Authorizer, Rules, Verdict, WatchAuthorization};
use steersman_server::user::User;
use steersman_storage::{Memory, Store};
use tokio::time::Instant;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";

/// A server with a role `reads` about ConfigMaps, of which there is one.
async fn test(watch_authorization: WatchAuthorization, authorization: Authorization) -> TestServer {
    let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await.unwrap();
    let options = Options { watch_authorization, ..options(&store, authorization) };
    let test = TestServer::of(store, options).await;
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}]);
    test.http().post(&format!("{RBAC}/roles"), &json!({"metadata": {"name": "reads"}, "rules": rules})).await.ok();
    test.http().post(CONFIGS, &config("first")).await.ok();
    test
}

fn binding(name: &str, user: &str) -> Value {
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reads"});
    json!({"metadata": {"name": name}, "roleRef": role, "subjects": [{"kind": "User", "name": user}]})
}

/// The next event, which says why the watch ends.
#[track_caller]
fn check_refusal(event: &Value, message: &str) {
    assert_eq!(text(event, "/type"), "ERROR", "{event}");
    assert_eq!((text(event, "/object/reason"), &event["object"]["code"]), ("Forbidden", &json!(403)), "{event}");
    assert_eq!(text(event, "/object/message"), message);
}

async fn added(watch: &mut Watch, name: &str) {
    assert_eq!(watch.next_name().await.unwrap(), ("ADDED".to_owned(), name.to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_with_a_403_when_the_binding_of_its_user_is_deleted() {
    let test = test(WatchAuthorization::WhileOpen, Authorization::default()).await;
    let (admin, alice) = (test.http(), test.http_as("alice"));
    let bindings = format!("{RBAC}/rolebindings");
    for (name, user) in [("alice", "alice"), ("twice", "alice"), ("bob", "bob")] {
        admin.post(&bindings, &binding(name, user)).await.ok();
    }
    let (mut watch, mut of_bob) = (alice.watch(CONFIGS).await, test.http_as("bob").watch(CONFIGS).await);
    added(&mut watch, "first").await;
    admin.delete(&format!("{bindings}/twice")).await.ok();
    admin.post(CONFIGS, &config("before")).await.ok();
    added(&mut watch, "before").await;

    let (begun, lost) = (Instant::now(), admin.delete(&format!("{bindings}/alice")).await);
    lost.ok();
    check_refusal(
        &watch.next().await.unwrap(),
        "configmaps is forbidden: User \"alice\" cannot watch resource \"configmaps\" in API group \"\" in the namespace \"default\"; the watch ends because the permission for it was lost",
    );
    assert!(begun.elapsed() <= Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(watch.next().await, None);
    assert_eq!(alice.get(CONFIGS).await.code, 403, "who lists again is refused");

    added(&mut of_bob, "first").await;
    admin.post(CONFIGS, &config("after")).await.ok();
    added(&mut of_bob, "before").await;
    added(&mut of_bob, "after").await;
}

#[tokio::test(start_paused = true)]
async fn without_the_option_a_watch_outlives_the_permission_as_in_kube_apiserver() {
    let test = test(WatchAuthorization::AtStart, Authorization::default()).await;
    let (admin, alice) = (test.http(), test.http_as("alice"));
    admin.post(&format!("{RBAC}/rolebindings"), &binding("alice", "alice")).await.ok();
    let mut watch = alice.watch(&format!("{CONFIGS}?timeoutSeconds=600")).await;
    added(&mut watch, "first").await;
    admin.delete(&format!("{RBAC}/rolebindings/alice")).await.ok();
    tokio::time::sleep(Duration::from_secs(300)).await;
    admin.post(CONFIGS, &config("after")).await.ok();
    added(&mut watch, "after").await;
    assert_eq!(watch.next().await, None, "its time is over");
}

#[tokio::test(start_paused = true)]
async fn a_node_s_watch_ends_with_the_pod_that_it_is_for() {
    let test = test(WatchAuthorization::WhileOpen, Authorization::default()).await;
    let admin = test.http();
    admin.post(CONFIGS, &config("c")).await.ok();
    admin.post("/api/v1/nodes", &json!({"metadata": {"name": "n"}})).await.ok();
    let volumes = json!([{"name": "v", "configMap": {"name": "c"}}]);
    let spec = json!({"nodeName": "n", "containers": [{"name": "c", "image": "i"}], "volumes": volumes, "serviceAccountName": "default"});
    let pods = "/api/v1/namespaces/default/pods";
    admin.post("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "default"}})).await.ok();
    admin.post(pods, &json!({"metadata": {"name": "p"}, "spec": spec})).await.ok();

    let node = test.http_of(User::authenticated("system:node:n", ["system:nodes".to_owned()]));
    let path = format!("{CONFIGS}?fieldSelector=metadata.name%3Dc");
    while node.get(&path).await.code != 200 {
        // The node authorizer learns of a Pod a moment after its write.
        tokio::task::yield_now().await;
    }
    let mut watch = node.watch(&path).await;
    added(&mut watch, "c").await;
    admin.delete(&format!("{pods}/p?gracePeriodSeconds=0")).await.ok();
    check_refusal(
        &watch.next().await.unwrap(),
        "configmaps \"c\" is forbidden: User \"system:node:n\" cannot watch resource \"configmaps\" in API group \"\" in the namespace \"default\": no relationship found between node 'n' and this object; the watch ends because the permission for it was lost",
    );
}

/// Says what it is told to, and nothing of its changes.
#[derive(Debug)]
struct Told(Mutex<Verdict>);

impl Authorizer for Told {
    fn authorize<'a>(&'a self, _: &'a User, _: &'a Attributes<'a>) -> BoxFuture<'a, Verdict> {
        let verdict = self.0.lock().unwrap().clone();
        Box::pin(async { verdict })
    }

    fn rules_for<'a>(&'a self, _: &'a User, _: &'a str) -> BoxFuture<'a, Rules> {
        Box::pin(async { Rules::default() })
    }
}

#[tokio::test(start_paused = true)]
async fn an_authorizer_that_says_nothing_of_its_changes_is_asked_within_a_minute_and_one_that_fails_takes_nothing_away()
{
    let told = Arc::new(Told(Mutex::new(Verdict::ALLOW)));
    let test = test(WatchAuthorization::WhileOpen, Authorization::Custom(told.clone())).await;
    let mut watch = test.http_as("alice").watch(CONFIGS).await;
    added(&mut watch, "first").await;
    let tell = |verdict: Verdict| *told.0.lock().unwrap() = verdict;

    tell(Verdict { error: Some("nobody is there".to_owned()), ..Verdict::NO_OPINION });
    tokio::time::timeout(Duration::from_secs(600), watch.next()).await.expect_err("it goes on");
    tell(Verdict::NO_OPINION);
    let begun = Instant::now();
    let refusal = watch.next().await.unwrap();
    assert!(begun.elapsed() <= Duration::from_secs(61), "{:?}", begun.elapsed());
    assert_eq!((text(&refusal, "/type"), &refusal["object"]["code"]), ("ERROR", &json!(403)));
    assert_eq!(watch.next().await, None);
}
