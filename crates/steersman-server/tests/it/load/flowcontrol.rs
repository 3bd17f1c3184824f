//! Priority and fairness at the boundary: the requests that are admitted while a client floods the server.

use crate::support::{Answer, CONFIGS, Http, Options, TestServer, allow_all, config, options};
use futures::future::join_all;
use futures::stream::{FuturesUnordered, StreamExt as _};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use steersman_machinery::{GroupResource, ObjectKey};
use steersman_server::Concurrency;
use steersman_server::user::User;
use steersman_storage::{Memory, Store};
use tokio::time::Instant;

const SCHEMA_HEADER: &str = "x-kubernetes-pf-flowschema-uid";
const LEVEL_HEADER: &str = "x-kubernetes-pf-prioritylevel-uid";

fn resource(name: &str) -> GroupResource {
    GroupResource::new("flowcontrol.apiserver.k8s.io", name)
}

async fn store_level(store: &Store, name: &str, shares: u32, response: Value) {
    let limited = json!({"nominalConcurrencyShares": shares, "limitResponse": response});
    let level = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
        "metadata": {
            "name": name, "uid": format!("level-{name}"), "annotations": {"apf.kubernetes.io/autoupdate-spec": "false"},
        },
        "spec": {"type": "Limited", "limited": limited},
    });
    let key = ObjectKey::cluster(name);
    store.create(&resource("prioritylevelconfigurations"), &key, level.to_string().into()).await.unwrap();
}

async fn store_schema(store: &Store, name: &str, level: &str, group: &str) {
    let any = ["*"];
    let schema = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
        "metadata": {"name": name, "uid": format!("schema-{name}")},
        "spec": {
            "priorityLevelConfiguration": {"name": level}, "matchingPrecedence": 100, "distinguisherMethod": {"type": "ByUser"},
            "rules": [{"subjects": [{"kind": "Group", "group": {"name": group}}],
                "resourceRules": [{"verbs": any, "apiGroups": any, "resources": any, "namespaces": any, "clusterScope": true}],
                "nonResourceRules": [{"verbs": any, "nonResourceURLs": any}]}],
        },
    });
    store.create(&resource("flowschemas"), &ObjectKey::cluster(name), schema.to_string().into()).await.unwrap();
}

fn queues() -> Value {
    json!({"type": "Queue", "queuing": {"queues": 64, "handSize": 4, "queueLengthLimit": 20}})
}

/// A server with ten seats for people and ten for the system.
async fn test() -> TestServer {
    let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await.unwrap();
    // The server's other levels have no seats here, so that the numbers below concern two levels only.
    for name in ["system", "node-high", "leader-election", "workload-high", "workload-low", "global-default"] {
        store_level(&store, name, 0, queues()).await;
    }
    // The mandatory level has five shares.
    store_level(&store, "people", 50, queues()).await;
    store_level(&store, "loops", 50, queues()).await;
    store_schema(&store, "loops", "loops", "system:loops").await;
    store_schema(&store, "people", "people", "system:authenticated").await;
    let concurrency = Concurrency { reads_max: 15, writes_max: 6, ..Concurrency::default() };
    TestServer::of(store.clone(), Options { concurrency, ..options(&store, allow_all()) }).await
}

fn as_user(test: &TestServer, name: &str, groups: &[&str]) -> Http {
    let user = User::authenticated(name, groups.iter().map(|group| (*group).to_owned()));
    Http(test.server.service_as(user))
}

async fn fill(http: &Http) {
    // More than is written before an answer begins, so that a list whose client does not read keeps its seats.
    for index in 0..3 {
        let data = json!({"metadata": {"name": format!("c{index}")}, "data": {"a": "x".repeat(200_000)}});
        http.post(CONFIGS, &data).await.ok();
    }
}

#[tokio::test]
async fn answers_say_how_their_request_was_classified() {
    let test = test().await;
    let alice = as_user(&test, "alice", &[]);
    let ids = |answer: &Answer| [SCHEMA_HEADER, LEVEL_HEADER].map(|name| answer.header(name).map(str::to_owned));
    let people = ["schema-people", "level-people"].map(|id| Some(id.to_owned()));
    assert_eq!(ids(&alice.get(&format!("{CONFIGS}/none")).await), people);
    assert_eq!(ids(&alice.get("/nonsense").await), people);
    let looping = as_user(&test, "controller", &["system:loops"]);
    assert_eq!(ids(&looping.get("/version").await), ["schema-loops", "level-loops"].map(|id| Some(id.to_owned())));
}

#[tokio::test(start_paused = true)]
async fn a_flood_is_queued_and_refused_while_others_go_on() {
    let test = test().await;
    let (alice, bob) = (as_user(&test, "alice", &[]), as_user(&test, "bob", &[]));
    let looping = as_user(&test, "controller", &["system:loops"]);
    fill(&looping).await;
    // Ten lists whose clients do not read take all seats of the level, for a tenth of a second.
    let unread = join_all((0..10).map(|_| alice.unread(CONFIGS))).await;
    let begun = Instant::now();
    let mut flood: FuturesUnordered<_> = (0..500).map(|_| alice.get(CONFIGS)).collect();
    let refused = loop {
        let answer = flood.next().await.unwrap();
        if answer.code == 429 {
            break answer;
        }
    };
    assert_eq!(refused.body_text(), "Too many requests, please try again later.\n");
    assert_eq!(
        (refused.header("retry-after"), refused.header("content-type")),
        (Some("1"), Some("text/plain; charset=utf-8"))
    );
    // Another level is not affected: its requests do not wait.
    looping.post(CONFIGS, &config("loop")).await.ok();
    assert_eq!(begun.elapsed(), Duration::ZERO);
    // Another user of the same level waits for a seat, but not for the flood: the seats are released after a tenth of a second.
    bob.get(&format!("{CONFIGS}/c0")).await.ok();
    assert!(begun.elapsed() <= Duration::from_millis(200), "{:?}", begun.elapsed());
    let codes: Vec<u16> = flood.map(|answer| answer.code).collect().await;
    assert!(codes.iter().all(|code| matches!(code, 200 | 429)), "{codes:?}");
    drop(unread);
    let metrics = as_user(&test, "bob", &[]).get("/metrics").await.body_text();
    let people = r#"flow_schema="people",priority_level="people""#;
    for line in [
        format!("apiserver_flowcontrol_current_inqueue_requests{{{people}}} 0"),
        "apiserver_flowcontrol_nominal_limit_seats{priority_level=\"people\"} 10".to_owned(),
        "apiserver_flowcontrol_request_concurrency_in_use{priority_level=\"loops\"} 0".to_owned(),
    ] {
        assert!(metrics.contains(&line), "{line} is not in\n{metrics}");
    }
    // Requests that found no place in a queue are counted as rejected.
    let rejected = format!("apiserver_flowcontrol_rejected_requests_total{{{people},reason=\"queue-full\"}} ");
    assert!(metrics.contains(&rejected), "{metrics}");
    let levels = bob.get("/debug/api_priority_and_fairness/dump_priority_levels").await.body_text();
    assert!(levels.lines().any(|line| line.starts_with("loops, 0, true, false, 0, 0, ")), "{levels}");
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_longer_than_a_quarter_of_the_time_that_a_request_has() {
    let test = test().await;
    let alice = as_user(&test, "alice", &[]);
    fill(&as_user(&test, "controller", &["system:loops"])).await;
    let unread = join_all((0..10).map(|_| alice.unread(CONFIGS))).await;
    let begun = Instant::now();
    let refused = alice.get(&format!("{CONFIGS}/c0?timeout=200ms")).await;
    assert_eq!((refused.code, begun.elapsed()), (429, Duration::from_millis(50)));
    drop(unread);
    alice.get(&format!("{CONFIGS}/c0?timeout=2s")).await.ok();
}

#[tokio::test(start_paused = true)]
async fn watches_whose_clients_do_not_read_keep_nobody_waiting() {
    let test = test().await;
    let (alice, bob) = (as_user(&test, "alice", &[]), as_user(&test, "bob", &[]));
    fill(&as_user(&test, "controller", &["system:loops"])).await;
    let watches = format!("{CONFIGS}?watch=true&resourceVersion=0");
    let unread = join_all((0..10).map(|_| alice.unread(&watches))).await;
    let begun = Instant::now();
    bob.get(&format!("{CONFIGS}/c0")).await.ok();
    let waited = begun.elapsed();
    assert!(!waited.is_zero() && waited <= Duration::from_millis(200), "{waited:?}");
    drop(unread);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_levels_is_in_force_at_once() {
    let test = test().await;
    let alice = as_user(&test, "alice", &["team"]);
    store_level(&test.store, "closed", 0, json!({"type": "Reject"})).await;
    store_schema(&test.store, "a-team", "closed", "team").await;
    // The follower needs some turns of the runtime.
    tokio::time::sleep(Duration::from_millis(10)).await;
    let answer = alice.get("/version").await;
    assert_eq!((answer.code, answer.header(SCHEMA_HEADER)), (200, Some("schema-a-team")));
    let bob = as_user(&test, "bob", &["team"]);
    fill(&as_user(&test, "controller", &["system:loops"])).await;
    // The level has no seat, so one request executes at a time.
    let mut unread = alice.unread(CONFIGS).await;
    assert_eq!(bob.get("/version").await.code, 429);
    while unread.frame().await.is_some() {}
    assert_eq!(bob.get("/version").await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn a_schema_without_a_level_is_left_out() {
    let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await.unwrap();
    store_schema(&store, "dangling", "none", "system:authenticated").await;
    let test = TestServer::of(store.clone(), options(&store, allow_all())).await;
    let answer = as_user(&test, "alice", &[]).get("/version").await;
    let default = test.http().get("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/global-default").await.ok();
    assert_eq!((answer.code, answer.header(SCHEMA_HEADER)), (200, default["metadata"]["uid"].as_str()));
}

#[tokio::test(start_paused = true)]
async fn without_priority_and_fairness_reads_and_writes_have_a_limit_each() {
    let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await.unwrap();
    let concurrency = Concurrency { has_priority_and_fairness: false, reads_max: 3, writes_max: 1 };
    let test = TestServer::of(store.clone(), Options { concurrency, ..options(&store, allow_all()) }).await;
    let http = test.http();
    fill(&http).await;
    let unread = join_all((0..3).map(|_| http.unread(CONFIGS))).await;
    assert_eq!(http.get(CONFIGS).await.code, 429);
    http.post(CONFIGS, &config("c")).await.ok();
    drop(unread);
    // The tasks that guard the bodies end at their next turn.
    tokio::time::sleep(Duration::from_millis(10)).await;
    let answer = http.get(CONFIGS).await;
    assert_eq!((answer.code, answer.header(SCHEMA_HEADER)), (200, None));
}
