//! Objects that are sent to a pod: a binding that assigns it a node, an eviction that deletes it.

use crate::support::{Answer, Http, TestServer, text, version};
use http::Method;
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

async fn pod(http: &Http, name: &str) -> Value {
    let pod = json!({
        "metadata": {"name": name, "labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    http.post(PODS, &pod).await.ok()
}

async fn bind(http: &Http, name: &str, binding: Value, query: &str) -> Answer {
    http.post(&format!("{PODS}/{name}/binding{query}"), &binding).await
}

fn binding(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "labels": {"x": "y"}},
        "target": {"kind": "Node", "name": "n"},
    })
}

async fn evict(http: &Http, name: &str) -> Answer {
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name},
        "deleteOptions": {"gracePeriodSeconds": 0},
    });
    http.post(&format!("{PODS}/{name}/eviction"), &eviction).await
}

#[tokio::test]
async fn a_binding_gives_a_pod_its_node_once() {
    let test = TestServer::new().await;
    let http = test.http();
    let before = pod(&http, "p").await;
    bind(&http, "p", binding("p"), "?dryRun=All").await.ok();
    assert_eq!(http.get(&format!("{PODS}/p")).await.ok(), before);

    let bound = bind(&http, "p", binding("p"), "").await;
    let success = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    assert_eq!((bound.code, bound.json()), (201, success));
    let after = http.get(&format!("{PODS}/p")).await.ok();
    assert_eq!((text(&after, "/spec/nodeName"), text(&after, "/metadata/labels/x")), ("n", "y"));
    assert_eq!(text(&after, "/status/conditions/0/type"), "PodScheduled");
    assert_eq!(after["metadata"]["managedFields"], before["metadata"]["managedFields"]);

    let again = bind(&http, "p", binding("p"), "").await.json();
    let message = "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"n\"";
    assert_eq!((&again["code"], text(&again, "/message")), (&json!(409), message));
}

#[tokio::test]
async fn a_binding_that_makes_no_sense_is_refused() {
    let test = TestServer::new().await;
    let http = test.http();
    pod(&http, "p").await;
    let message = "name in URL does not match name in Binding object";
    let misnamed = bind(&http, "p", binding("q"), "").await.json();
    assert_eq!((&misnamed["code"], text(&misnamed, "/message")), (&json!(400), message));
    let mut nowhere = binding("p");
    nowhere["target"] = json!({"kind": "Pod", "name": ""});
    assert_eq!(bind(&http, "p", nowhere, "").await.refusal(), (422, "Invalid".to_owned()));
    let mut other = binding("p");
    other["metadata"]["uid"] = json!("11111111-2222-3333-4444-555555555555");
    assert_eq!(bind(&http, "p", other, "").await.refusal(), (409, "Conflict".to_owned()));
    assert_eq!(bind(&http, "none", binding("none"), "").await.refusal(), (404, "NotFound".to_owned()));
    let mut odd = binding("p");
    odd["odd"] = json!(1);
    assert_eq!(bind(&http, "p", odd, "?fieldValidation=Strict").await.code, 400);
    assert_eq!(http.get(&format!("{PODS}/p/binding")).await.code, 405);
}

#[tokio::test]
async fn an_eviction_deletes_a_pod_that_no_budget_holds() {
    let test = TestServer::new().await;
    let http = test.http();
    pod(&http, "p").await;
    assert_eq!(evict(&http, "p").await.code, 201);
    assert_eq!(http.get(&format!("{PODS}/p")).await.code, 404);
    assert_eq!(evict(&http, "p").await.code, 404);
}

#[tokio::test]
async fn an_evicted_pod_says_so_before_it_ends() {
    let test = TestServer::new().await;
    let http = test.http();
    let mut versions = Vec::new();
    for name in ["dry", "held"] {
        let pod = json!({
            "metadata": {"name": name, "finalizers": ["example.com/held"]},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        });
        versions.push(version(&http.post(PODS, &pod).await.ok()));
    }
    let eviction = |name: &str, options: Value| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": options});
    let path = |name: &str| format!("{PODS}/{name}");
    let post = async |name: &str, options: Value| {
        http.post(&format!("{}/eviction", path(name)), &eviction(name, options)).await
    };
    assert_eq!(post("dry", json!({"dryRun": ["All"]})).await.code, 201);
    assert_eq!(version(&http.get(&path("dry")).await.ok()), versions[0], "a dry run changes nothing");
    let other = json!({"preconditions": {"resourceVersion": "1"}});
    assert_eq!(post("held", other).await.refusal(), (409, "Conflict".to_owned()));
    let other = json!({"preconditions": {"uid": "1"}});
    assert_eq!(post("held", other).await.refusal(), (409, "Conflict".to_owned()));
    assert_eq!(version(&http.get(&path("held")).await.ok()), versions[1], "nor does what is about another");
    let own = json!({"preconditions": {"resourceVersion": versions[1].to_string()}});
    assert_eq!(post("held", own).await.code, 201);
    let ending = http.get(&path("held")).await.ok();
    assert!(ending["metadata"]["deletionTimestamp"].is_string());
    let condition = &ending["status"]["conditions"][0];
    let want = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting", "lastProbeTime": null, "lastTransitionTime": condition["lastTransitionTime"],
    });
    assert_eq!(*condition, want);
    let before = version(&ending);
    assert_eq!(post("held", Value::Null).await.code, 201);
    assert_eq!(version(&http.get(&path("held")).await.ok()), before, "who evicts it once more changes nothing");
    let history = http.watch(&format!("{PODS}?fieldSelector=metadata.name=held&resourceVersion={}", versions[1])).await;
    let mut history = history;
    let first = history.next().await.unwrap();
    assert_eq!(text(&first, "/object/status/conditions/0/type"), "DisruptionTarget");
    assert!(first["object"]["metadata"]["deletionTimestamp"].is_null(), "the condition comes first");
}

/// An xorshift generator, seeded for each round.
struct Choices(u64);

impl Choices {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// Pods that do not count may be evicted although their budget allows no disruption. One that becomes ready before it
/// is deleted counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_ready_pod_gets_past_a_budget_although_it_was_not_ready_when_its_eviction_began() {
    const ROUNDS: u64 = 150;
    let test = TestServer::new().await;
    let http = test.http();
    let budget =
        json!({"metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}});
    http.post(BUDGETS, &budget).await.ok();
    let counted =
        json!({"status": {"observedGeneration": 1, "currentHealthy": 1, "desiredHealthy": 1, "disruptionsAllowed": 0}});
    http.merge(&format!("{BUDGETS}/web/status"), &counted).await.ok();
    let (mut n_evicted, mut n_refused) = (0, 0);
    for seed in 1..=ROUNDS {
        let mut choices = Choices(seed);
        pod(&http, "p").await;
        let status = |phase: &str, ready: &str| json!({"status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}});
        let phase = if choices.below(2) == 0 { "Pending" } else { "Running" };
        let before = http.merge(&format!("{PODS}/p/status"), &status(phase, "False")).await.ok();
        // Each runs in a task of its own, after a delay chosen by the seed.
        let mut turns = || choices.below(4) * choices.below(5_000);
        let (evicts_after, ready_after) = (turns(), turns());
        let wait = |turns: u64| (0..turns).for_each(|_| std::hint::spin_loop());
        let evicting = tokio::spawn({
            let http = http.clone();
            async move {
                wait(evicts_after);
                evict(&http, "p").await
            }
        });
        let becoming_ready = tokio::spawn({
            let (http, ready) = (http.clone(), status("Running", "True"));
            async move {
                wait(ready_after);
                http.merge(&format!("{PODS}/p/status"), &ready).await
            }
        });
        let evicted = evicting.await.unwrap();
        becoming_ready.await.unwrap();
        let mut watch = http.watch(&format!("{PODS}?resourceVersion={}&timeoutSeconds=1", version(&before))).await;
        match evicted.code {
            201 => {
                n_evicted += 1;
                let mut last = before;
                loop {
                    let event = watch.next().await.unwrap();
                    if event["object"]["metadata"]["deletionTimestamp"].is_string() {
                        break;
                    }
                    last = event["object"].clone();
                }
                let conditions = last["status"]["conditions"].as_array().unwrap();
                let is_ready = conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True");
                assert!(!is_ready, "seed {seed}: it was ready when it was deleted, and the budget allows nothing");
            }
            429 => {
                n_refused += 1;
                http.delete(&format!("{PODS}/p?gracePeriodSeconds=0")).await.ok();
            }
            code => panic!("seed {seed}: {code} {}", evicted.body_text()),
        }
        assert_eq!(http.get(&format!("{PODS}/p")).await.code, 404);
    }
    assert!(0 < n_evicted && 0 < n_refused, "both happen: {n_evicted} were evicted, {n_refused} were refused");
}

#[tokio::test]
async fn a_budget_is_asked_for_every_eviction_and_gives_what_it_has() {
    let test = TestServer::new().await;
    let http = test.http();
    for name in ["a", "b"] {
        pod(&http, name).await;
        let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        http.merge(&format!("{PODS}/{name}/status"), &status).await.ok();
    }
    let budget =
        json!({"metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}});
    http.post(BUDGETS, &budget).await.ok();
    let unseen = evict(&http, "a").await;
    assert_eq!((unseen.code, unseen.header("retry-after")), (429, Some("10")));

    let counted =
        json!({"status": {"observedGeneration": 1, "currentHealthy": 2, "desiredHealthy": 1, "disruptionsAllowed": 1}});
    http.merge(&format!("{BUDGETS}/web/status"), &counted).await.ok();
    assert_eq!(evict(&http, "a").await.code, 201);
    assert_eq!(http.get(&format!("{PODS}/a")).await.code, 404);
    let left = http.get(&format!("{BUDGETS}/web")).await.ok();
    assert_eq!(left["status"]["disruptionsAllowed"], 0);
    assert!(left["status"]["disruptedPods"]["a"].is_string());
    let refused = evict(&http, "b").await;
    assert_eq!((refused.code, refused.header("retry-after")), (429, None));
    let why = "The disruption budget web does not allow evicting pods currently";
    assert_eq!(text(&refused.json(), "/details/causes/0/message"), why);
}

/// One client removes Pods without a node as soon as they are marked, as podgc does, and another creates them again.
#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_succeeds_although_another_removes_the_pod_once_it_is_marked_and_spares_the_next_of_its_name() {
    const ROUNDS: usize = 200;
    let test = TestServer::new().await;
    let http = test.http();
    let first = pod(&http, "p").await;
    let mut watch = http.watch(&format!("{PODS}?resourceVersion={}", version(&first))).await;
    let others = test.http();
    let (tell, mut told) = tokio::sync::mpsc::channel(1);
    let collector = tokio::spawn(async move {
        let mut uid = text(&first, "/metadata/uid").to_owned();
        for _ in 0..ROUNDS {
            tell.send(()).await.unwrap();
            let marked = watch.next().await.unwrap();
            assert_eq!((text(&marked, "/type"), text(&marked, "/object/metadata/uid")), ("MODIFIED", &*uid));
            // Either client may remove it.
            others.delete(&format!("{PODS}/p")).await;
            assert_eq!(text(&watch.next().await.unwrap(), "/type"), "DELETED");
            uid = text(&pod(&others, "p").await, "/metadata/uid").to_owned();
            assert_eq!(text(&watch.next().await.unwrap(), "/type"), "ADDED");
        }
        uid
    });
    while told.recv().await.is_some() {
        http.delete(&format!("{PODS}/p")).await.ok();
    }
    let uid = collector.await.unwrap();
    assert_eq!(text(&http.get(&format!("{PODS}/p")).await.ok(), "/metadata/uid"), uid);
}

/// The mark changes the version of the Pod, but the deletion itself made that change.
#[tokio::test]
async fn a_pod_is_deleted_under_the_version_that_it_has_and_under_no_other() {
    let test = TestServer::new().await;
    let http = test.http();
    let made = pod(&http, "p").await;
    let at = |version: &str| json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"resourceVersion": version}});
    let path = format!("{PODS}/p");
    let delete =
        async |version: &str| http.send(Method::DELETE, &path, "application/json", at(version).to_string()).await;
    assert_eq!(delete("1").await.refusal(), (409, "Conflict".to_owned()));
    delete(text(&made, "/metadata/resourceVersion")).await.ok();
    assert_eq!(http.get(&path).await.code, 404);
}
