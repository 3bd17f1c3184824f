//! Attacks that ended or stopped the server before it had budgets, one by one. The cost of a request is compared with
//! that of a harmless one of the same size, in processor time of the server.

use std::fmt::Write as _;

use serde_json::json;
use steersman_hostile::attack::{self, Results};
use steersman_hostile::client::Request;
use steersman_hostile::requests;
use steersman_hostile::stage;

use crate::security::hostile::{Attacked, check, refusal};

/// The processor time that a busy machine and the rest of the server may add to a request. A quadratic computation
/// takes minutes.
const SLACK_S: f64 = 4.0;

async fn attacked(home: &std::path::Path) -> Attacked {
    let attacked = Attacked::start(home);
    stage::set_users(&mut attacked.admin()).await.unwrap();
    attacked
}

/// Sends the requests as both users, all concurrently.
async fn send(attacked: &Attacked, make: impl Fn(&str) -> Request, n: usize) -> Results {
    let both = (0..n).map(|index| (index, make(stage::USERS[index % stage::USERS.len()].0))).collect();
    let results = attack::run(&attacked.target, attacked.server, both).await.unwrap();
    check(&results);
    results
}

/// The processor time that one request of the first user takes, and its status.
async fn cost(attacked: &Attacked, request: &Request) -> (f64, u16) {
    let before = attacked.server.cpu_s().unwrap();
    let outcome = attacked.user().send(request).await;
    assert_eq!(outcome.fault(), None);
    (attacked.server.cpu_s().unwrap() - before, outcome.answer.unwrap().status)
}

fn target(namespace: &str, field: &str, n: usize, item: &str) -> Request {
    let items = vec![item; n].join(",");
    let body = format!(
        r#"{{"apiVersion":"hostile.example.com/v1","kind":"Target","metadata":{{"name":"a"}},"spec":{{"{field}":[{items}]}}}}"#
    );
    let path = format!("/apis/hostile.example.com/v1/namespaces/{namespace}/targets?dryRun=All");
    Request::new("attack", "POST", path, "application/json", body)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn defaults_that_multiply_are_refused_before_they_are_built() {
    let home = tempfile::tempdir().unwrap();
    let attacked = attacked(home.path()).await;
    for n in [100_000, 900_000] {
        let results = send(&attacked, |namespace| target(namespace, "defaults", n, "{}"), 4).await;
        for (_, outcome) in &results.hostile {
            refusal(outcome);
        }
    }
    attacked.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_of_many_empty_containers_are_refused_while_others_read() {
    let home = tempfile::tempdir().unwrap();
    let attacked = attacked(home.path()).await;
    let path = |namespace: &str| format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
    let of_protobuf = |namespace: &str| {
        let body = requests::protobuf_object("v1", "Pod", 2, 700_000);
        Request::new("protobuf", "POST", path(namespace), "application/vnd.kubernetes.protobuf", body)
    };
    let of_json = |namespace: &str| {
        let items = vec!["{}"; 100_000].join(",");
        let body = format!(
            r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"a"}},"spec":{{"containers":[{items}]}}}}"#
        );
        Request::new("json", "POST", path(namespace), "application/json", body)
    };
    let mut results = send(&attacked, of_protobuf, 4).await;
    results.hostile.extend(send(&attacked, of_json, 8).await.hostile);
    for (_, outcome) in &results.hostile {
        let (_, said) = refusal(outcome);
        assert!(said.len() < 10_000, "the refusal is long: {said}");
    }
    attacked.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_word_of_a_long_enum_costs_what_the_first_does() {
    let home = tempfile::tempdir().unwrap();
    let attacked = attacked(home.path()).await;
    let words = |number: usize| target(stage::USERS[0].0, "words", 20_000, &format!("\"word-{number}\""));
    let (first, _) = cost(&attacked, &words(0)).await;
    let (last, _) = cost(&attacked, &words(stage::WORDS - 1)).await;
    assert!(last < 3.0 * first + SLACK_S, "the last word takes {last} s, the first {first} s");
    attacked.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retaining_keys_costs_about_what_merging_them_does() {
    const KEYS: usize = 30_000;
    let home = tempfile::tempdir().unwrap();
    let attacked = attacked(home.path()).await;
    let (mut fields, mut names) = (String::new(), String::new());
    for index in 0..KEYS {
        let _ = write!(fields, "{}\"k{index}\":\"\"", if index == 0 { "" } else { "," });
        let _ = write!(names, "{}\"k{}\"", if index == 0 { "" } else { "," }, KEYS - 1 - index);
    }
    let collection = format!("/api/v1/namespaces/{}/configmaps", stage::USERS[0].0);
    let object =
        format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"keys"}},"data":{{{fields}}}}}"#);
    attacked.user().ok(&Request::new("", "POST", &*collection, "application/json", object)).await.unwrap();
    let patch = |data: String| {
        let path = format!("{collection}/keys?dryRun=All");
        Request::new("", "PATCH", path, "application/strategic-merge-patch+json", format!("{{\"data\":{{{data}}}}}"))
    };
    let (merging, _) = cost(&attacked, &patch(fields)).await;
    let (retaining, _) = cost(&attacked, &patch(format!("\"$retainKeys\":[{names}]"))).await;
    assert!(retaining < 3.0 * merging + SLACK_S, "retaining takes {retaining} s, merging {merging} s");
    attacked.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_operations_at_the_front_of_a_long_list_are_cut_short() {
    let home = tempfile::tempdir().unwrap();
    let attacked = attacked(home.path()).await;
    let namespace = stage::USERS[0].0;
    // The list has as many numbers as the server accepts: half as many after each refusal.
    let mut n = stage::NUMBERS;
    loop {
        let items = vec!["0"; n].join(",");
        let body = format!(
            r#"{{"apiVersion":"hostile.example.com/v1","kind":"Target","metadata":{{"name":"numbers"}},"spec":{{"numbers":[{items}]}}}}"#
        );
        let path = format!("/apis/hostile.example.com/v1/namespaces/{namespace}/targets");
        let outcome = attacked.user().send(&Request::new("", "POST", path, "application/json", body)).await;
        if outcome.answer.as_ref().is_ok_and(|answer| answer.status == 201) {
            break;
        }
        n /= 2;
        assert!(n > 1_000, "{outcome:?}");
    }
    for operation in [
        json!({"op": "move", "from": format!("/spec/numbers/{}", n - 1), "path": "/spec/numbers/0"}),
        json!({"op": "add", "path": "/spec/numbers/0", "value": 0}),
    ] {
        let path = format!("/apis/hostile.example.com/v1/namespaces/{namespace}/targets/numbers?dryRun=All");
        let body = json!(vec![operation; 10_000]).to_string();
        let (took, status) =
            cost(&attacked, &Request::new("", "PATCH", path, "application/json-patch+json", body)).await;
        // 10,000 moves of 9 MB would take many times this.
        assert!(took < 4.0 * SLACK_S, "answered {status} after {took} s of processor time");
    }
    attacked.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_whose_time_is_up_before_it_begins_is_answered_504() {
    let home = tempfile::tempdir().unwrap();
    let attacked = attacked(home.path()).await;
    let outcome =
        attacked.user().send(&Request::get(format!("/api/v1/namespaces/{}/pods?timeout=1ns", stage::USERS[0].0))).await;
    assert_eq!(refusal(&outcome).0, 504);
    attacked.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reviews_of_many_rules_take_bounded_memory() {
    const ROLES: usize = 8;
    const RULES: usize = 5_000;
    let home = tempfile::tempdir().unwrap();
    let attacked = attacked(home.path()).await;
    let mut admin = attacked.admin();
    for (namespace, _) in stage::USERS {
        let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}");
        for role in 0..ROLES {
            let rule = |index: usize| json!({"apiGroups": [""], "resources": ["pods"], "resourceNames": [format!("p{role}-{index}")], "verbs": ["get"]});
            let rules: Vec<_> = (0..RULES).map(rule).collect();
            let name = format!("role-{role}");
            let object = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name}, "rules": rules});
            admin.ok(&Request::json("", "POST", format!("{rbac}/roles"), &object)).await.unwrap();
            let binding = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": namespace}],
            });
            admin.ok(&Request::json("", "POST", format!("{rbac}/rolebindings"), &binding)).await.unwrap();
        }
    }
    let review = |namespace: &str| {
        let object = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": namespace},
        });
        Request::json("review", "POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", &object)
    };
    send(&attacked, review, 40).await;
    attacked.stop();
}
