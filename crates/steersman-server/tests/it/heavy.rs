//! Heavy requests: they compute beside small ones, users take turns, and they end in time.

use crate::support::{Answer, CONFIGS, Http, Options, World, allow_all, config, options, text, version};
use http::Method;
use serde_json::{Value, json};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::mpsc;
use steersman_server::Compute;
use steersman_storage::{Memory, Store};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

/// The most heavy requests of one user that have not begun.
const WAITING_OF_USER_MAX: usize = 128;

/// A server that computes heavy requests one at a time, on a thread behind a gate.
struct Gated {
    world: World,
    gate: Option<mpsc::SyncSender<()>>,
    runtime: Option<Runtime>,
}

impl Gated {
    async fn new() -> Gated {
        let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await.unwrap();
        Gated::on(store).await
    }

    async fn on(store: Store) -> Gated {
        let runtime = Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        let compute = Compute::default().on(runtime.handle().clone()).slots(NonZeroUsize::MIN);
        let world = World::of(store.clone(), Options { compute, ..options(&store, allow_all()) }).await;
        let (gate, opened) = mpsc::sync_channel(0);
        runtime.spawn_blocking(move || opened.recv());
        Gated { world, gate: Some(gate), runtime: Some(runtime) }
    }

    fn open(&mut self) {
        self.gate = None;
    }

    /// Waits until this many heavy requests compute and wait.
    async fn until(&self, computing: usize, waiting: usize) {
        let line = |state: &str, n: usize| format!("steersman_heavy_requests{{state=\"{state}\"}} {n}\n");
        let want = [line("computing", computing), line("waiting", waiting)];
        loop {
            let metrics = self.world.http().get("/metrics").await.body_text();
            if want.iter().all(|line| metrics.contains(line)) {
                return;
            }
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for Gated {
    fn drop(&mut self) {
        self.open();
        self.runtime.take().unwrap().shutdown_background();
    }
}

fn large(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"a": "x".repeat(100_000)}})
}

fn post(http: Http, object: Value) -> JoinHandle<Answer> {
    tokio::spawn(async move { http.post(CONFIGS, &object).await })
}

#[tokio::test]
async fn small_requests_are_answered_while_a_large_one_computes() {
    let mut gated = Gated::new().await;
    let http = gated.world.http();
    http.post(CONFIGS, &config("small")).await.ok();
    let heavy = post(http.clone(), large("large"));
    gated.until(1, 0).await;
    let small = format!("{CONFIGS}/small");
    http.get(&small).await.ok();
    http.get(CONFIGS).await.ok();
    http.merge(&small, &json!({"data": {"a": "b"}})).await.ok();
    http.delete(&small).await.ok();
    assert!(!heavy.is_finished());
    gated.open();
    assert_eq!(heavy.await.unwrap().code, 201);
}

#[tokio::test]
async fn a_small_patch_of_a_large_object_is_a_large_request_and_so_is_its_indented_form() {
    let before = World::new().await;
    before.http().post(CONFIGS, &large("large")).await.ok();
    let mut gated = Gated::on(before.store).await;
    let (http, path) = (gated.world.http(), format!("{CONFIGS}/large"));
    let patch = tokio::spawn({
        let (http, path) = (http.clone(), path.clone());
        async move { http.merge(&path, &json!({"data": {"b": "c"}})).await }
    });
    gated.until(1, 0).await;
    let pretty = tokio::spawn({
        let (http, path) = (http.clone(), path.clone());
        async move { http.get(&format!("{path}?pretty=true")).await }
    });
    gated.until(1, 1).await;
    // The stored form is only copied, so this is no heavy request.
    http.get(&path).await.ok();
    gated.open();
    patch.await.unwrap().ok();
    pretty.await.unwrap().ok();
}

#[tokio::test]
async fn users_take_turns_with_their_large_requests() {
    let mut gated = Gated::new().await;
    let (alice, bob) = (gated.world.http_as("alice"), gated.world.http_as("bob"));
    let first = post(alice.clone(), large("a1"));
    gated.until(1, 0).await;
    let second = post(alice.clone(), large("a2"));
    gated.until(1, 1).await;
    let third = post(alice, large("a3"));
    gated.until(1, 2).await;
    let other = post(bob, large("b1"));
    gated.until(1, 3).await;
    gated.open();
    let mut versions = Vec::new();
    for request in [first, second, other, third] {
        versions.push(version(&request.await.unwrap().ok()));
    }
    assert!(versions.is_sorted(), "bob's came last, and is the third: {versions:?}");
}

#[tokio::test]
async fn a_user_with_too_many_large_requests_is_told_to_wait_for_them() {
    let mut gated = Gated::new().await;
    let http = gated.world.http();
    let first = post(http.clone(), large("first"));
    gated.until(1, 0).await;
    let waiting: Vec<_> = (0..WAITING_OF_USER_MAX).map(|n| post(http.clone(), large(&format!("c{n}")))).collect();
    gated.until(1, WAITING_OF_USER_MAX).await;
    let refused = http.post(CONFIGS, &large("late")).await;
    assert_eq!(refused.refusal(), (429, "TooManyRequests".to_owned()));
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(
        text(&refused.json(), "/message"),
        "128 large requests of the user \"admin\" are waiting for their turn to be computed, which is the most for one user; wait for their answers, or send smaller ones"
    );
    assert!(
        gated.world.http().get("/metrics").await.body_text().contains("steersman_heavy_requests_refused_total 1\n")
    );
    let other = post(gated.world.http_as("bob"), large("of-bob"));
    gated.until(1, WAITING_OF_USER_MAX + 1).await;
    gated.open();
    for request in waiting.into_iter().chain([first, other]) {
        assert_eq!(request.await.unwrap().code, 201);
    }
    http.post(CONFIGS, &large("late")).await.ok();
}

#[tokio::test(start_paused = true)]
async fn a_large_request_whose_turn_does_not_come_in_time_does_nothing() {
    let mut gated = Gated::new().await;
    let http = gated.world.http();
    let first = post(http.clone(), large("first"));
    gated.until(1, 0).await;
    let late = http.post(&format!("{CONFIGS}?timeout=5s"), &large("late")).await;
    assert_eq!(late.refusal(), (504, "Timeout".to_owned()));
    gated.until(1, 0).await;
    gated.open();
    // The paused clock may have passed the first request's limit, too.
    let _first = first.await.unwrap();
    assert_eq!(http.get(&format!("{CONFIGS}/late")).await.code, 404);
}

#[tokio::test]
async fn a_request_without_time_is_answered_with_504_and_does_nothing() {
    let world = World::new().await;
    let http = world.http();
    http.post(CONFIGS, &config("c")).await.ok();
    let path = format!("{CONFIGS}/c");
    for (method, path, body) in [
        (Method::GET, CONFIGS, ""),
        (Method::GET, &path, ""),
        (Method::POST, CONFIGS, r#"{"metadata": {"name": "d"}}"#),
        (Method::DELETE, &path, ""),
        (Method::DELETE, CONFIGS, ""),
    ] {
        let answer = http.send(method.clone(), &format!("{path}?timeout=1ns"), "application/json", body).await;
        assert_eq!(answer.refusal(), (504, "Timeout".to_owned()), "{method} {path}");
        assert_eq!(text(&answer.json(), "/message"), "Timeout: request did not complete within the allotted timeout");
    }
    http.get(&path).await.ok();
    assert_eq!(http.get(&format!("{CONFIGS}/d")).await.code, 404);
}
