//! The scheduler's task beside other tasks.

use super::{asks, node, pod, without_extenders};
use crate::scheduler::requests::Requests;
use crate::scheduler::state::State;
use crate::scheduler::{Configuration, Shared, work};
use http::{Request, Response};
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::json;
use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const PODS: usize = 20;

#[tokio::test(start_paused = true)]
async fn others_get_their_turn_after_each_decision() {
    let mut state = State::new(Configuration::default(), Box::new(|_, _| None), 7);
    state.node_changed(&node("n", json!({})), Instant::now());
    for at in 0..PODS {
        state.pod_changed(&pod(&format!("p{at}"), asks(json!({"cpu": "1m"}))), Instant::now());
    }
    let shared = Shared { state: Mutex::new(state), wake: Notify::new() };
    // A server that never answers.
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let service = tower::service_fn(move |_: Request<Body>| {
        counted.fetch_add(1, Ordering::Relaxed);
        pending::<Result<Response<Body>, Infallible>>()
    });
    let requests =
        Requests::new(Client::new(service, "default"), &Configuration::default(), without_extenders(), Timestamp::now);
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let other = tokio::spawn(async move {
        let mut seen = vec![0];
        while seen.last().is_some_and(|n_sent| *n_sent < PODS) {
            tokio::task::yield_now().await;
            seen.push(sent.load(Ordering::Relaxed));
        }
        stopped.cancel();
        seen
    });
    work(&shared, requests, &stop).await.unwrap();
    let seen = other.await.unwrap();
    assert!(seen.windows(2).all(|turns| turns[1] - turns[0] < PODS / 4), "{seen:?}");
}
