//! Interruptions in the middle of a write: the client disconnects, or the kind is removed.

use crate::custom::definitions::{DEFINITIONS, KITES, definition, kite, spec, until_gone};
use crate::kinds::services::{SERVICES, check_taken, greedy};
use crate::store::engine::{Engine, puts};
use crate::support::{Answer, CONFIGS, Http, TestServer, config, names, version};
use std::sync::Arc;
use std::time::Duration;
use steersman_machinery::GroupResource;
use steersman_storage::kv::{BoxFuture, Txn};
use tokio::sync::watch;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Gate {
    /// Transactions are committed, but not acknowledged.
    Behind,
    /// Transactions that put a kite are not committed.
    BeforeKites,
    Open,
}

/// A server on an engine with a gate, and the sender that sets the gate.
async fn gated() -> (TestServer, watch::Sender<Gate>) {
    let (sender, gate) = watch::channel(Gate::Open);
    let pass = move |shut: Gate| -> BoxFuture<'static, ()> {
        let mut gate = gate.clone();
        Box::pin(async move {
            gate.wait_for(|gate| *gate != shut).await.unwrap();
        })
    };
    let before = pass.clone();
    let engine = Engine::new(move |txn| {
        let passed = is_about_kites(txn).then(|| before(Gate::BeforeKites));
        Box::pin(async move {
            if let Some(passed) = passed {
                passed.await;
            }
            Ok(())
        })
    });
    (TestServer::on(Arc::new(engine.answering_after(move || pass(Gate::Behind)))).await, sender)
}

/// Whether a transaction puts a kite. The name of their definition contains "kites", too.
fn is_about_kites(txn: &Txn) -> bool {
    puts(txn, "kites") && !puts(txn, "customresourcedefinitions")
}

/// Begins a request, waits until the engine has its write, and drops it.
async fn abandon<T>(test: &TestServer, request: impl Future<Output = T>) {
    let before = test.store.revision();
    let written = test.store.wait_for(before.next(), tokio::time::Instant::now() + Duration::from_secs(60));
    // A request that was answered has not been interrupted.
    tokio::select! {
        _ = request => panic!("the gate is open"),
        written = written => written.unwrap(),
    }
}

#[tokio::test]
async fn a_service_keeps_what_it_has_though_its_client_went_away() {
    let (test, gate) = gated().await;
    gate.send_replace(Gate::Behind);
    abandon(&test, test.http().post(SERVICES, &greedy("first"))).await;
    gate.send_replace(Gate::Open);
    check_taken(&test.http().post(SERVICES, &greedy("second")).await);
}

#[tokio::test]
async fn what_a_service_had_is_free_though_the_client_of_its_deletion_went_away() {
    let (test, gate) = gated().await;
    let http = test.http();
    http.post(SERVICES, &greedy("first")).await.ok();
    test.store.sync().await.unwrap();
    gate.send_replace(Gate::Behind);
    abandon(&test, http.delete(&format!("{SERVICES}/first"))).await;
    gate.send_replace(Gate::Open);
    let second = async {
        while http.post(SERVICES, &greedy("second")).await.code != 201 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), second).await.unwrap();
}

#[tokio::test]
async fn a_server_stops_when_the_last_write_is_done() {
    let (test, gate) = gated().await;
    gate.send_replace(Gate::Behind);
    abandon(&test, test.http().post(CONFIGS, &config("c"))).await;
    let mut stopped = Box::pin(test.server.stop());
    for _ in 0..100 {
        assert!(futures::poll!(stopped.as_mut()).is_pending());
        tokio::task::yield_now().await;
    }
    gate.send_replace(Gate::Open);
    stopped.await;
}

#[tokio::test]
async fn a_deletion_of_many_ends_with_its_client() {
    let (test, gate) = gated().await;
    let http = test.http();
    let count = || test.store.count(&GroupResource::new("", "configmaps"));
    test.store.sync().await.unwrap();
    let n_own = count();
    for index in 0..200 {
        http.post(CONFIGS, &config(&format!("c{index}"))).await.ok();
    }
    test.store.sync().await.unwrap();
    gate.send_replace(Gate::Behind);
    abandon(&test, http.delete(CONFIGS)).await;
    gate.send_replace(Gate::Open);
    test.server.stop().await;
    test.store.sync().await.unwrap();
    // The deletions that had begun are done, 64 at most; no more were begun.
    let n_deleted = n_own + 200 - count();
    assert!(n_deleted <= 64, "{n_deleted} objects were deleted");
}

#[tokio::test]
async fn nothing_is_left_behind_by_a_creation_that_a_definition_overtook() {
    let (test, gate) = gated().await;
    let http = test.http();
    http.post(DEFINITIONS, &definition(&spec())).await.ok();
    gate.send_replace(Gate::BeforeKites);
    let creation = tokio::spawn({
        let http = test.http();
        async move { http.post(KITES, &kite("late", 1)).await.code }
    });
    // The creation has reached the engine.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    until_gone(&http).await;
    gate.send_replace(Gate::Open);
    assert_eq!(creation.await.unwrap(), 405);
    http.post(DEFINITIONS, &definition(&spec())).await.ok();
    assert_eq!(http.get(KITES).await.ok()["items"], serde_json::json!([]));
}

/// Creates a kite, and changes its namespace while the creation waits at the gate of the engine.
async fn create_while(in_between: impl AsyncFnOnce(&Http)) -> (Answer, serde_json::Value) {
    const NAMESPACE: &str = "/api/v1/namespaces/n";
    const KITES: &str = "/apis/example.com/v1/namespaces/n/kites";
    let (test, gate) = gated().await;
    let http = test.http();
    http.post(DEFINITIONS, &definition(&spec())).await.ok();
    http.post("/api/v1/namespaces", &config("n")).await.ok();
    gate.send_replace(Gate::BeforeKites);
    let creation = tokio::spawn({
        let http = test.http();
        async move { http.post(KITES, &kite("late", 1)).await }
    });
    // The creation has reached the engine.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    in_between(&http).await;
    gate.send_replace(Gate::Open);
    let answer = creation.await.unwrap();
    assert_eq!(http.get(NAMESPACE).await.code, 200);
    (answer, http.get(KITES).await.ok())
}

#[tokio::test]
async fn nothing_is_created_in_a_namespace_that_began_to_end() {
    let (answer, kites) = create_while(async |http| {
        http.delete("/api/v1/namespaces/n").await.ok();
    })
    .await;
    assert_eq!(answer.refusal(), (403, "Forbidden".to_owned()));
    assert_eq!(answer.json()["details"]["causes"][0]["reason"], "NamespaceTerminating");
    assert_eq!(names(&kites), Vec::<String>::new());
}

#[tokio::test]
async fn a_creation_goes_on_though_its_namespace_was_changed() {
    let (answer, kites) = create_while(async |http| {
        http.merge("/api/v1/namespaces/n", &serde_json::json!({"metadata": {"labels": {"a": "b"}}})).await.ok();
    })
    .await;
    assert_eq!((answer.code, names(&kites)), (201, vec!["late".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_a_definition_overtook_ends() {
    let test = TestServer::new().await;
    let http = test.http();
    let now = version(&http.post(DEFINITIONS, &definition(&spec())).await.ok());
    let begun = tokio::time::Instant::now();
    let later = now + 50;
    let streamed = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let path = format!("{KITES}?{streamed}&resourceVersion={later}");
    let overtake = async {
        until_gone(&http).await;
        while version(&http.post(CONFIGS, &serde_json::json!({"metadata": {"generateName": "c-"}})).await.ok()) < later
        {
        }
    };
    let (mut kites, ()) = tokio::join!(http.watch(&path), overtake);
    assert_eq!(kites.next().await, None);
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}
