//! Roles and bindings: what they allow to whom, when they take effect, and who may write them.

use crate::support::{Answer, CONFIGS, Http, TestServer, config, serve, text};
use serde_json::{Value, json};
use std::sync::Arc;
use steersman_server::authz::{Authorization, Mode};
use steersman_server::user::User;
use steersman_storage::{Memory, Store};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

fn path(resource: &str) -> String {
    match resource {
        "roles" | "rolebindings" => format!("{RBAC}/namespaces/default/{resource}"),
        _ => format!("{RBAC}/{resource}"),
    }
}

fn role(name: &str, rules: Value) -> Value {
    json!({"metadata": {"name": name}, "rules": rules})
}

fn binding(name: &str, kind: &str, role: &str, subjects: Value) -> Value {
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role});
    json!({"metadata": {"name": name}, "roleRef": role, "subjects": subjects})
}

fn user(name: &str) -> Value {
    json!([{"kind": "User", "name": name}])
}

fn message(answer: &Answer) -> String {
    text(&answer.json(), "/message").to_owned()
}

/// A user who may write roles and bindings, but has no other rights to give away.
async fn may_write_access(test: &TestServer, name: &str) -> Http {
    let rules = json!([{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["*"], "verbs": ["create", "get", "update", "patch"]}]);
    test.http().post(&path("clusterroles"), &role("writes-access", rules)).await.ok();
    test.http()
        .post(&path("clusterrolebindings"), &binding("writes-access", "ClusterRole", "writes-access", user(name)))
        .await
        .ok();
    test.http_as(name)
}

#[tokio::test]
async fn a_grant_holds_from_the_answer_to_its_writer_until_the_answer_that_takes_it_away() {
    let test = TestServer::new().await;
    let (admin, alice) = (test.http(), test.http_as("alice"));
    for _ in 0..20 {
        assert_eq!(alice.get(CONFIGS).await.code, 403);
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]);
        admin.post(&path("roles"), &role("r", rules)).await.ok();
        admin.post(&path("rolebindings"), &binding("b", "Role", "r", user("alice"))).await.ok();
        assert_eq!(alice.get(CONFIGS).await.code, 200);
        assert_eq!(alice.get("/api/v1/configmaps").await.code, 403);
        assert_eq!(alice.get("/api/v1/namespaces/kube-system/configmaps").await.code, 403);
        assert_eq!(alice.post(CONFIGS, &config("c")).await.code, 403);

        let rules = json!([{"op": "replace", "path": "/rules/0/verbs", "value": ["create"]}]);
        admin.json_patch(&format!("{}/r", path("roles")), &rules).await.ok();
        assert_eq!(alice.get(CONFIGS).await.code, 403);
        assert_eq!(alice.post(&format!("{CONFIGS}?dryRun=All"), &config("c")).await.code, 201);

        admin.delete(&format!("{}/b", path("rolebindings"))).await.ok();
        assert_eq!(alice.post(CONFIGS, &config("c")).await.code, 403);
        admin.delete(&format!("{}/r", path("roles"))).await.ok();
    }
}

#[tokio::test]
async fn a_binding_is_for_users_groups_and_service_accounts() {
    let test = TestServer::new().await;
    let admin = test.http();
    let subjects = json!([
        {"kind": "User", "name": "alice"},
        {"kind": "Group", "name": "team"},
        {"kind": "ServiceAccount", "name": "robot"},
        {"kind": "ServiceAccount", "name": "robot", "namespace": "kube-system"},
    ]);
    admin.post(&path("rolebindings"), &binding("b", "ClusterRole", "view", subjects)).await.ok();
    let code = async |user: User| Http(test.server.service_as(user)).get(CONFIGS).await.code;
    let known = |name: &str, groups: &[&str]| User::authenticated(name, groups.iter().map(|group| (*group).to_owned()));
    for (user, want) in [
        (known("alice", &[]), 200),
        (known("team", &[]), 403),
        (known("bob", &["team"]), 200),
        (known("bob", &["alice"]), 403),
        (known("system:serviceaccount:default:robot", &[]), 200),
        (known("system:serviceaccount:kube-system:robot", &[]), 200),
        (known("system:serviceaccount:kube-public:robot", &[]), 403),
        (known("robot", &[]), 403),
    ] {
        let name = user.name.clone();
        assert_eq!(code(user).await, want, "{name}");
    }
}

#[tokio::test]
async fn a_review_tells_by_which_binding_and_a_refusal_which_role_is_missing() {
    let test = TestServer::new().await;
    let admin = test.http();
    let team = json!([{"kind": "User", "name": "bob"}, {"kind": "Group", "name": "team"}]);
    admin.post(&path("rolebindings"), &binding("b", "ClusterRole", "view", team)).await.ok();
    let review = json!({"spec": {"user": "alice", "groups": ["team"], "resourceAttributes":
        {"verb": "get", "resource": "pods", "namespace": "default"}}});
    let reviewed = admin.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review).await.ok();
    let want = r#"RBAC: allowed by RoleBinding "b/default" of ClusterRole "view" to Group "team""#;
    assert_eq!(reviewed["status"], json!({"allowed": true, "reason": want}));

    admin.post(&path("rolebindings"), &binding("dangling", "Role", "missing", user("alice"))).await.ok();
    let refused = test.http_as("alice").get(CONFIGS).await;
    assert!(
        message(&refused)
            .ends_with(r#"in the namespace "default": RBAC: role.rbac.authorization.k8s.io "missing" not found"#),
        "{refused:?}"
    );
    admin.post(&path("clusterrolebindings"), &binding("dangling", "ClusterRole", "none", user("alice"))).await.ok();
    let refused = test.http_as("alice").get(CONFIGS).await;
    let want = r#": RBAC: [clusterrole.rbac.authorization.k8s.io "none" not found, role.rbac.authorization.k8s.io "missing" not found]"#;
    assert!(message(&refused).ends_with(want), "{refused:?}");
    // If another binding allows the request, the missing role has no effect.
    admin.post(&path("rolebindings"), &binding("view", "ClusterRole", "view", user("alice"))).await.ok();
    assert_eq!(test.http_as("alice").get(CONFIGS).await.code, 200);
}

#[tokio::test]
async fn nobody_grants_what_he_has_not() {
    let test = TestServer::new().await;
    let alice = may_write_access(&test, "alice").await;
    let pods = || json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let refused = alice.post(&path("roles"), &role("r", pods())).await;
    let want = "roles.rbac.authorization.k8s.io \"r\" is forbidden: user \"alice\" (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"get\"]}";
    assert_eq!((refused.code, message(&refused).as_str()), (403, want));
    // All ways to write are checked: a new object by PUT or apply, a change, a dry run.
    let at = format!("{}/r", path("roles"));
    let whole = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"}, "rules": pods()});
    assert_eq!(alice.put(&at, &whole).await.code, 403);
    let apply = alice
        .send(http::Method::PATCH, &format!("{at}?fieldManager=m"), "application/apply-patch+yaml", whole.to_string())
        .await;
    assert_eq!(apply.code, 403);
    assert_eq!(alice.post(&format!("{}?dryRun=All", path("roles")), &role("r", pods())).await.code, 403);
    alice.post(&path("roles"), &role("r", json!([]))).await.ok();
    assert_eq!(alice.merge(&at, &json!({"rules": pods()})).await.code, 403);
    assert_eq!(alice.post(&path("clusterroles"), &role("r", pods())).await.code, 403);
    let to = |role: &str| binding("b", "ClusterRole", role, user("alice"));
    assert_eq!(alice.post(&path("rolebindings"), &to("cluster-admin")).await.code, 403);
    assert_eq!(alice.post(&path("clusterrolebindings"), &to("cluster-admin")).await.code, 403);
    assert_eq!(alice.post(&path("rolebindings"), &to("no-such")).await.refusal(), (404, "NotFound".to_owned()));
    // He may grant rights that he has, in the namespace where he has them.
    test.http().post(&path("rolebindings"), &binding("alice-views", "ClusterRole", "view", user("alice"))).await.ok();
    alice.merge(&at, &json!({"rules": pods()})).await.ok();
    alice.post(&path("rolebindings"), &to("view")).await.ok();
    assert_eq!(alice.post(&path("clusterrolebindings"), &to("view")).await.code, 403);
    assert_eq!(alice.post(&format!("{RBAC}/namespaces/kube-system/roles"), &role("r", pods())).await.code, 403);
    // A role that grants more than he has may lose its finalizers and change its owners, and nothing else.
    let more = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    test.http().merge(&at, &json!({"rules": more, "metadata": {"finalizers": ["a.b/c"]}})).await.ok();
    assert_eq!(alice.merge(&at, &json!({"metadata": {"labels": {"a": "b"}}})).await.code, 403);
    alice.merge(&at, &json!({"metadata": {"finalizers": null}})).await.ok();
}

#[tokio::test]
async fn escalate_and_bind_permit_it_for_the_role_that_they_name() {
    let test = TestServer::new().await;
    let alice = may_write_access(&test, "alice").await;
    let rules = json!([
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "resourceNames": ["known"], "verbs": ["escalate"]},
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "resourceNames": ["admin"], "verbs": ["bind"]},
    ]);
    test.http().post(&path("roles"), &role("more", rules)).await.ok();
    test.http().post(&path("rolebindings"), &binding("more", "Role", "more", user("alice"))).await.ok();
    test.http().post(&path("roles"), &role("known", json!([]))).await.ok();
    let all = json!({"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
    alice.merge(&format!("{}/known", path("roles")), &all).await.ok();
    assert_eq!(alice.post(&path("roles"), &role("other", all["rules"].clone())).await.code, 403);
    alice.post(&path("rolebindings"), &binding("a", "ClusterRole", "admin", user("bob"))).await.ok();
    assert_eq!(alice.post(&path("rolebindings"), &binding("e", "ClusterRole", "edit", user("bob"))).await.code, 403);
    let everywhere = binding("a", "ClusterRole", "admin", user("bob"));
    assert_eq!(alice.post(&path("clusterrolebindings"), &everywhere).await.code, 403);
}

#[tokio::test]
async fn only_a_full_administrator_aggregates() {
    let test = TestServer::new().await;
    let alice = may_write_access(&test, "alice").await;
    let mut aggregated = role("a", json!([]));
    aggregated["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]});
    let refused = alice.post(&path("clusterroles"), &aggregated).await;
    let want = "clusterroles.rbac.authorization.k8s.io \"a\" is forbidden: must have cluster-admin privileges to use the aggregationRule";
    assert_eq!((refused.code, message(&refused).as_str()), (403, want));
    // Nor may he turn an aggregated role into a plain one.
    test.http().post(&path("clusterroles"), &aggregated).await.ok();
    let at = format!("{}/a", path("clusterroles"));
    assert_eq!(alice.merge(&at, &json!({"aggregationRule": null})).await.code, 403);
    let admin = binding("alice", "ClusterRole", "cluster-admin", user("alice"));
    test.http().post(&path("clusterrolebindings"), &admin).await.ok();
    alice.merge(&at, &json!({"aggregationRule": null})).await.ok();
}

#[tokio::test]
async fn rules_that_combine_too_much_are_refused_at_once() {
    let test = TestServer::new().await;
    let alice = may_write_access(&test, "alice").await;
    let many: Vec<String> = (0..1000).map(|n| format!("r{n}")).collect();
    let rules = json!([{"apiGroups": many, "resources": many, "verbs": many}]);
    let refused = alice.post(&path("roles"), &role("r", rules)).await;
    assert!(refused.code == 403 && message(&refused).contains("combine more than 10000"), "{refused:?}");
}

#[tokio::test]
async fn an_aggregated_role_follows_those_that_it_selects() {
    let test = TestServer::new().await;
    let admin = test.http();
    let with_label = |name: &str, label: &str, resource: &str| {
        let mut role = role(name, json!([{"apiGroups": ["x.y"], "resources": [resource], "verbs": ["get"]}]));
        role["metadata"]["labels"] = json!({ label: "true" });
        role
    };
    // view aggregates it, edit aggregates view, and admin aggregates edit.
    let label = "rbac.authorization.k8s.io/aggregate-to-view";
    let mut watch =
        admin.watch(&format!("{}?watch=true&fieldSelector=metadata.name%3Dadmin", path("clusterroles"))).await;
    assert_eq!(watch.next().await.unwrap()["type"], "ADDED");
    admin.post(&path("clusterroles"), &with_label("more", label, "things")).await.ok();
    let has_things = |event: &Value| event["object"]["rules"].to_string().contains("things");
    assert!(has_things(&watch.next().await.unwrap()));
    for name in ["view", "edit"] {
        assert!(
            admin.get(&format!("{}/{name}", path("clusterroles"))).await.ok()["rules"].to_string().contains("things")
        );
    }
    admin.delete(&format!("{}/more", path("clusterroles"))).await.ok();
    assert!(!has_things(&watch.next().await.unwrap()));
}

#[tokio::test]
async fn the_roles_of_the_system_are_there_from_the_start_and_mended_at_the_next() {
    let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await.unwrap();
    let server = serve(&store, Authorization::default()).await;
    let admin = Http(server.service_as(User::master("admin")));
    let list = admin.get(&path("clusterroles")).await.ok();
    // As many as in Kubernetes, two for users who act on simulated nodes, and that of the approver of kubelets.
    assert_eq!(list["items"].as_array().unwrap().len(), 69 + 3);
    let revision = list["metadata"]["resourceVersion"].clone();
    let rules = admin.get(&format!("{}/admin", path("clusterroles"))).await.ok()["rules"].clone();
    assert!(rules.as_array().unwrap().len() > 20, "{rules}");
    server.stop().await;

    // A restart writes nothing if nothing is missing.
    let server = serve(&store, Authorization::default()).await;
    let admin = Http(server.service_as(User::master("admin")));
    assert_eq!(admin.get(&path("clusterroles")).await.ok()["metadata"]["resourceVersion"], revision);
    let at = |name: &str| format!("{}/{name}", path("clusterroles"));
    admin.delete(&at("system:node-proxier")).await.ok();
    let own = json!([{"apiGroups": ["own.io"], "resources": ["*"], "verbs": ["*"]}]);
    admin.merge(&at("system:kube-dns"), &json!({"rules": own, "metadata": {"labels": null}})).await.ok();
    let kept =
        json!({"rules": own, "metadata": {"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}}});
    admin.merge(&at("system:discovery"), &kept).await.ok();
    let bindings = path("clusterrolebindings");
    admin.delete(&format!("{bindings}/system:basic-user")).await.ok();
    admin.post(&bindings, &binding("system:basic-user", "ClusterRole", "other", user("alice"))).await.ok();
    let extra = json!({"subjects": [{"kind": "Group", "name": "extra", "apiGroup": "rbac.authorization.k8s.io"}]});
    admin.merge(&format!("{bindings}/system:monitoring"), &extra).await.ok();
    server.stop().await;

    let server = serve(&store, Authorization::default()).await;
    let admin = Http(server.service_as(User::master("admin")));
    admin.get(&at("system:node-proxier")).await.ok();
    let dns = admin.get(&at("system:kube-dns")).await.ok();
    assert_eq!(dns["metadata"]["labels"], json!({"kubernetes.io/bootstrapping": "rbac-defaults"}));
    let rules = dns["rules"].as_array().unwrap();
    assert_eq!((&rules[0], &rules[1]["resources"]), (&own[0], &json!(["endpoints"])), "{dns}");
    assert_eq!(admin.get(&at("system:discovery")).await.ok()["rules"], own);
    let basic = admin.get(&format!("{bindings}/system:basic-user")).await.ok();
    assert_eq!(
        (text(&basic, "/roleRef/name"), text(&basic, "/subjects/0/name")),
        ("system:basic-user", "system:authenticated")
    );
    let monitoring = admin.get(&format!("{bindings}/system:monitoring")).await.ok();
    let names: Vec<&str> =
        monitoring["subjects"].as_array().unwrap().iter().map(|subject| text(subject, "/name")).collect();
    assert_eq!(names, ["extra", "system:monitoring"]);
    server.stop().await;
}

#[tokio::test]
async fn authorizers_are_asked_in_turn_and_members_of_masters_before_all() {
    let world_of = async |modes: Vec<Mode>| {
        TestServer::with(steersman_storage::Options::default(), Authorization::Modes(modes)).await
    };
    let test = world_of(vec![Mode::AlwaysDeny]).await;
    assert_eq!(test.http().get(CONFIGS).await.code, 200);
    let refused = test.http_as("alice").get(CONFIGS).await;
    assert!(message(&refused).ends_with("in the namespace \"default\": Everything is forbidden."), "{refused:?}");
    let test = world_of(vec![Mode::Rbac, Mode::AlwaysAllow]).await;
    assert_eq!(test.http_as("alice").get(CONFIGS).await.code, 200);
    let test = world_of(vec![Mode::Rbac, Mode::AlwaysDeny]).await;
    assert_eq!(test.http_as("alice").get("/version").await.code, 200);
    assert_eq!(test.http_as("alice").get(CONFIGS).await.code, 403);
}
