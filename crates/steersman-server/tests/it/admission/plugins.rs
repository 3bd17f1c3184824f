//! Admission plugins that depend on other objects, and the options that enable and disable them.

use crate::support::{Answer, Http, Options, TestServer, allow_all, options, text};
use serde_json::{Value, json};
use std::sync::Arc;
use steersman_server::admission::Plugins;
use steersman_server::authz::Authorization;
use steersman_server::user::User;
use steersman_storage::{Memory, Store};

const PODS: &str = "/api/v1/namespaces/default/pods";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const NODES: &str = "/api/v1/nodes";

async fn test(authorization: Authorization, enabled: &[&str], disabled: &[&str]) -> TestServer {
    let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await.unwrap();
    let admission = Plugins::default().with(enabled, disabled).unwrap();
    let options = Options { admission, ..options(&store, authorization) };
    TestServer::of(store, options).await
}

fn as_node(test: &TestServer, name: &str) -> Http {
    Http(test.server.service_as(User::authenticated(format!("system:node:{name}"), ["system:nodes".to_owned()])))
}

fn pod(name: &str, spec: Value) -> Value {
    let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    pod
}

#[track_caller]
fn check_refused(answer: &Answer, want: &str) {
    let said = answer.json();
    assert_eq!((answer.code, text(&said, "/message")), (403, want));
}

#[tokio::test]
async fn a_pod_gets_its_account_and_the_token_of_it() {
    let test = test(Authorization::default(), &["ServiceAccount"], &[]).await;
    let http = test.http();
    let missing = http.post(PODS, &pod("p", json!({"serviceAccountName": "robot"}))).await;
    let why =
        "pods \"p\" is forbidden: error looking up service account default/robot: serviceaccount \"robot\" not found";
    check_refused(&missing, why);
    // The creation waits for the account `default`.
    let early = tokio::spawn({
        let http = http.clone();
        async move { http.post(PODS, &pod("early", json!({}))).await }
    });
    let account = json!({"metadata": {"name": "default"}, "imagePullSecrets": [{"name": "registry"}]});
    http.post(ACCOUNTS, &account).await.ok();
    let made = early.await.unwrap().ok();
    assert_eq!((text(&made, "/spec/serviceAccountName"), text(&made, "/spec/serviceAccount")), ("default", "default"));
    assert_eq!(made["spec"]["imagePullSecrets"], json!([{"name": "registry"}]));
    let volume = &made["spec"]["volumes"][0];
    assert!(text(volume, "/name").starts_with("kube-api-access-"), "{volume}");
    assert_eq!(volume["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"], 3607);
    assert_eq!(made["spec"]["containers"][0]["volumeMounts"][0]["name"], volume["name"]);
    let without = http.post(PODS, &pod("without", json!({"automountServiceAccountToken": false}))).await.ok();
    assert_eq!(without["spec"].get("volumes"), None);
}

#[tokio::test]
async fn an_account_lets_its_pods_use_only_the_secrets_it_names() {
    let test = test(Authorization::default(), &["ServiceAccount"], &[]).await;
    let http = test.http();
    let enforcing = json!({"kubernetes.io/enforce-mountable-secrets": "true"});
    http.post(ACCOUNTS, &json!({"metadata": {"name": "strict", "annotations": enforcing}, "secrets": [{"name": "s"}]}))
        .await
        .ok();
    let with = |name: &str, secret: &str| {
        let volumes = json!([{"name": "v", "secret": {"secretName": secret}}]);
        pod(name, json!({"serviceAccountName": "strict", "volumes": volumes}))
    };
    http.post(PODS, &with("known", "s")).await.ok();
    let why = "pods \"p\" is forbidden: volume with secret.secretName=\"t\" is not allowed because service account strict does not reference that secret";
    check_refused(&http.post(PODS, &with("p", "t")).await, why);
}

#[tokio::test]
async fn without_the_plugin_pods_need_no_account() {
    let test = TestServer::new().await;
    let made = test.http().post(PODS, &pod("p", json!({}))).await.ok();
    assert_eq!(made["spec"].get("serviceAccountName"), None);
}

#[tokio::test]
async fn claims_and_volumes_are_protected_where_somebody_unprotects_them() {
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let plain = TestServer::new().await.http().post(claims, &claim).await.ok();
    assert_eq!(plain["metadata"].get("finalizers"), None);
    let test = test(Authorization::default(), &["StorageObjectInUseProtection"], &[]).await;
    let made = test.http().post(claims, &claim).await.ok();
    assert_eq!(made["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
}

#[tokio::test]
async fn a_claim_grows_when_its_class_lets_it() {
    let test = TestServer::new().await;
    let http = test.http();
    for (name, grows) in [("fixed", false), ("growing", true)] {
        let class = json!({"metadata": {"name": name}, "provisioner": "example.com/x", "allowVolumeExpansion": grows});
        http.post("/apis/storage.k8s.io/v1/storageclasses", &class).await.ok();
    }
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let more = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    let bound = json!({"status": {"phase": "Bound"}});
    for name in ["fixed", "growing"] {
        let claim = json!({"metadata": {"name": name}, "spec": {
            "storageClassName": name, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
            "volumeName": "v",
        }});
        http.post(claims, &claim).await.ok();
        http.merge(&format!("{claims}/{name}/status"), &bound).await.ok();
    }
    http.merge(&format!("{claims}/growing"), &more).await.ok();
    let why = "persistentvolumeclaims \"fixed\" is forbidden: only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize";
    check_refused(&http.merge(&format!("{claims}/fixed"), &more).await, why);
}

#[tokio::test]
async fn a_bound_pod_gets_the_labels_of_its_place() {
    let test = TestServer::new().await;
    let http = test.http();
    let labels = json!({"topology.kubernetes.io/zone": "z1", "topology.kubernetes.io/region": "r1", "other": "o"});
    http.post(NODES, &json!({"metadata": {"name": "n", "labels": labels}})).await.ok();
    http.post(PODS, &pod("p", json!({}))).await.ok();
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    http.post(&format!("{PODS}/p/binding"), &binding).await.ok();
    let bound = http.get(&format!("{PODS}/p")).await.ok();
    let want = json!({"topology.kubernetes.io/region": "r1", "topology.kubernetes.io/zone": "z1"});
    assert_eq!(bound["metadata"]["labels"], want);
    let born = http.post(PODS, &pod("q", json!({"nodeName": "n"}))).await.ok();
    assert_eq!(born["metadata"]["labels"], want);
}

#[tokio::test]
async fn a_new_node_is_kept_free_of_pods_unless_told_otherwise() {
    let node = json!({"metadata": {"name": "n"}});
    let tainted = TestServer::new().await.http().post(NODES, &node).await.ok();
    assert_eq!(tainted["spec"]["taints"], json!([{"effect": "NoSchedule", "key": "node.kubernetes.io/not-ready"}]));
    let test = test(Authorization::default(), &[], &["TaintNodesByCondition"]).await;
    assert_eq!(test.http().post(NODES, &node).await.ok()["spec"], json!({}));
}

#[tokio::test]
async fn a_pod_grows_no_further_than_its_node() {
    let test = TestServer::new().await;
    let http = test.http();
    http.post(NODES, &json!({"metadata": {"name": "n"}})).await.ok();
    let allocatable =
        json!({"status": {"allocatable": {"cpu": "1", "memory": "1Gi"}, "capacity": {"cpu": "1", "memory": "1Gi"}}});
    http.merge(&format!("{NODES}/n/status"), &allocatable).await.ok();
    let containers = json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m"}}}]);
    http.post(PODS, &pod("p", json!({"nodeName": "n", "containers": containers}))).await.ok();
    let resize =
        |cpu: &str| json!([{"op": "replace", "path": "/spec/containers/0/resources/requests/cpu", "value": cpu}]);
    http.json_patch(&format!("{PODS}/p/resize"), &resize("1")).await.ok();
    let refused = http.json_patch(&format!("{PODS}/p/resize"), &resize("2")).await;
    let why = "pods \"p\" is forbidden: node didn't have enough allocatable resources: cpu, requested: 2000, allocatable: 1000";
    check_refused(&refused, why);
    assert_eq!(text(&refused.json(), "/details/causes/0/reason"), "NodeCapacity");
}

#[tokio::test]
async fn who_may_not_delete_an_object_does_not_choose_its_owners() {
    let test = test(Authorization::default(), &["OwnerReferencesPermissionEnforcement"], &[]).await;
    let admin = test.http();
    let owner = admin.post("/api/v1/namespaces/default/configmaps", &json!({"metadata": {"name": "owner"}})).await.ok();
    let rules =
        json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "update", "patch"]}]);
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    admin.post(&format!("{roles}/roles"), &json!({"metadata": {"name": "r"}, "rules": rules})).await.ok();
    let binding = json!({
        "metadata": {"name": "r"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
    });
    admin.post(&format!("{roles}/rolebindings"), &binding).await.ok();
    let alice = test.http_as("alice");
    let owned = |name: &str, blocks: bool| {
        let reference = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"], "blockOwnerDeletion": blocks,
        });
        json!({"metadata": {"name": name, "ownerReferences": [reference]}})
    };
    let maps = "/api/v1/namespaces/default/configmaps";
    alice.post(maps, &owned("free", false)).await.ok();
    let blocking = alice.post(maps, &owned("blocking", true)).await;
    let why = "configmaps \"blocking\" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>";
    check_refused(&blocking, why);
    admin.post(maps, &json!({"metadata": {"name": "plain"}})).await.ok();
    let changed = alice.merge(&format!("{maps}/plain"), &owned("plain", false)).await;
    let why = "configmaps \"plain\" is forbidden: cannot set an ownerRef on a resource you can't delete: , <nil>";
    check_refused(&changed, why);
    admin.post(maps, &owned("of-admin", true)).await.ok();
}

/// An attacker has the certificate of a node, whose writes would be allowed if only the authorizer checked them.
#[tokio::test]
async fn a_node_does_not_become_an_account_that_it_makes_a_pod_for() {
    let test = test(Authorization::default(), &[], &[]).await;
    let (admin, node) = (test.http(), as_node(&test, "evil"));
    let accounts = "/api/v1/namespaces/kube-system/serviceaccounts";
    let account = "clusterrole-aggregation-controller";
    admin.post(accounts, &json!({"metadata": {"name": account}})).await.ok();
    let pods = "/api/v1/namespaces/kube-system/pods";
    let of_account = pod("p", json!({"nodeName": "evil", "serviceAccountName": account}));
    check_refused(
        &node.post(pods, &of_account).await,
        "pods \"p\" is forbidden: pod does not have \"kubernetes.io/config.mirror\" annotation, node \"evil\" can only create mirror pods",
    );
    let mut mirror = of_account.clone();
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    let refused = node.post(pods, &mirror).await;
    assert_eq!(refused.code, 403, "{}", refused.body_text());
    // The node cannot request a token either that is bound to the pod of another node.
    let made = admin.post(pods, &pod("p", json!({"nodeName": "good", "serviceAccountName": account}))).await.ok();
    let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": made["metadata"]["uid"]});
    let token = node.post(&format!("{accounts}/{account}/token"), &json!({"spec": {"boundObjectRef": bound}})).await;
    assert_eq!(token.code, 403, "{}", token.body_text());
    // The node cannot attract pods of others by changing their nodes either.
    admin.post(NODES, &json!({"metadata": {"name": "good"}})).await.ok();
    check_refused(
        &node.merge(&format!("{NODES}/good"), &json!({"metadata": {"labels": {"x": "y"}}})).await,
        "nodes \"good\" is forbidden: node \"evil\" is not allowed to modify node \"good\"",
    );
}

#[tokio::test]
async fn nodes_are_restricted_where_they_are_authorized_by_their_pods_and_nobody_has_switched_it_off() {
    for (authorization, disabled, want) in [
        (Authorization::default(), &[][..], 403),
        (Authorization::default(), &["NodeRestriction"][..], 201),
        (allow_all(), &[][..], 201),
    ] {
        let test = test(authorization, &[], disabled).await;
        let made = as_node(&test, "n1").post(NODES, &json!({"metadata": {"name": "n2"}})).await;
        assert_eq!(made.code, want, "{disabled:?} {}", made.body_text());
    }
}

#[tokio::test]
async fn a_node_writes_what_is_its_own() {
    let test = test(allow_all(), &["NodeRestriction"], &[]).await;
    let (admin, node) = (test.http(), as_node(&test, "n1"));
    node.post(NODES, &json!({"metadata": {"name": "n1", "labels": {"kubernetes.io/hostname": "n1"}}})).await.ok();
    check_refused(
        &node.post(NODES, &json!({"metadata": {"name": "n2"}})).await,
        "nodes \"n2\" is forbidden: node \"n1\" is not allowed to modify node \"n2\"",
    );
    let role = json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}});
    check_refused(
        &node.merge(&format!("{NODES}/n1"), &role).await,
        "nodes \"n1\" is forbidden: is not allowed to modify labels: node-role.kubernetes.io/control-plane",
    );
    check_refused(
        &node.merge(&format!("{NODES}/n1"), &json!({"spec": {"taints": null}})).await,
        "nodes \"n1\" is forbidden: node \"n1\" is not allowed to modify taints",
    );
    for (name, of) in [("own", "n1"), ("foreign", "n2")] {
        admin.post(PODS, &pod(name, json!({"nodeName": of}))).await.ok();
    }
    let status = json!({"status": {"message": "m"}});
    node.merge(&format!("{PODS}/own/status"), &status).await.ok();
    check_refused(
        &node.merge(&format!("{PODS}/foreign/status"), &status).await,
        "pods \"foreign\" is forbidden: node \"n1\" can only update pod status for pods with spec.nodeName set to itself",
    );
    check_refused(
        &node.delete(&format!("{PODS}/foreign")).await,
        "pods \"foreign\" is forbidden: node \"n1\" can only delete pods with spec.nodeName set to itself",
    );
    check_refused(
        &node.post(PODS, &pod("plain", json!({"nodeName": "n1"}))).await,
        "pods \"plain\" is forbidden: pod does not have \"kubernetes.io/config.mirror\" annotation, node \"n1\" can only create mirror pods",
    );
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    node.post(leases, &json!({"metadata": {"name": "n1"}})).await.ok();
    check_refused(
        &node.post(leases, &json!({"metadata": {"name": "n2"}})).await,
        "leases.coordination.k8s.io \"n2\" is forbidden: can only access node lease with the same name as the requesting node",
    );
    admin.post(PODS, &pod("other", json!({"nodeName": "n2"}))).await.ok();
    // Users who are not nodes are not restricted.
    admin.post(NODES, &json!({"metadata": {"name": "n2"}})).await.ok();
}

#[tokio::test]
async fn a_node_gets_tokens_of_its_own_pods() {
    let test = test(allow_all(), &["NodeRestriction"], &[]).await;
    let (admin, node) = (test.http(), as_node(&test, "n1"));
    admin.post(ACCOUNTS, &json!({"metadata": {"name": "a"}})).await.ok();
    let path = format!("{ACCOUNTS}/a/token");
    let unbound = node.post(&path, &json!({"spec": {}})).await;
    check_refused(&unbound, "serviceaccounts \"a\" is forbidden: node requested token not bound to a pod");
    let elsewhere = admin.post(PODS, &pod("p", json!({"nodeName": "n2", "serviceAccountName": "a"}))).await.ok();
    let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": elsewhere["metadata"]["uid"]});
    check_refused(
        &node.post(&path, &json!({"spec": {"boundObjectRef": bound}})).await,
        "serviceaccounts \"a\" is forbidden: node requested token bound to a pod scheduled on a different node",
    );
}
