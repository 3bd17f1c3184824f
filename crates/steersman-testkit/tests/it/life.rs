//! Control planes start, restart and stop, and authorize their clients.

use crate::{code, configs, create};
use futures::TryStreamExt as _;
use http::Request;
use http_body_util::Empty;
use kube::api::WatchParams;
use std::pin::pin;
use steersman_testkit::{ControlPlane, Options, User};
use tower::ServiceExt as _;

#[tokio::test]
async fn planes_of_one_process_know_nothing_of_each_other() {
    let (one, other) = tokio::join!(ControlPlane::start(), ControlPlane::start());
    create(&configs(&one), "c").await;
    assert_eq!(code(configs(&other).get("c").await), 404);
}

#[tokio::test]
async fn a_restart_keeps_objects_and_clients_and_ends_watches() {
    let plane = ControlPlane::start().await;
    let api = configs(&plane);
    let before = create(&api, "c").await;
    let version = before.metadata.resource_version.clone().unwrap();
    let mut events = pin!(api.watch(&WatchParams::default(), &version).await.unwrap());
    plane.restart().await;
    assert!(events.try_next().await.unwrap().is_none());
    assert_eq!(api.get("c").await.unwrap(), before);
    let after = create(&api, "d").await.metadata.resource_version.unwrap();
    assert!(after.parse::<u64>().unwrap() > version.parse().unwrap());
}

#[tokio::test]
async fn a_stopped_plane_refuses_connections() {
    let plane = ControlPlane::start().await;
    let api = configs(&plane);
    let mut events = pin!(api.watch(&WatchParams::default(), "0").await.unwrap());
    plane.stop().await;
    assert!(events.try_next().await.unwrap().is_none());
    assert_eq!(code(api.get("c").await), 0);
}

#[tokio::test]
async fn a_dropped_plane_ends_its_watches() {
    let plane = ControlPlane::start().await;
    let api = configs(&plane);
    let mut events = pin!(api.watch(&WatchParams::default(), "0").await.unwrap());
    drop(plane);
    assert!(events.try_next().await.unwrap().is_none());
}

#[tokio::test]
async fn users_are_who_they_are() {
    let plane =
        ControlPlane::try_start(Options { tokens: "secret,alice,1".to_owned(), ..Options::default() }).await.unwrap();
    let bob = plane.client_as(User::authenticated("bob", []));
    assert_eq!(code(bob.request_text(get("/api/v1/nodes")).await), 403);
    let service = plane.service();
    let unknown = service.clone().oneshot(get("/api").map(|_| Empty::new())).await.unwrap();
    assert_eq!(unknown.status(), 401);
    let mut known = get("/api").map(|_| Empty::new());
    known.headers_mut().insert("authorization", "Bearer secret".parse().unwrap());
    assert_eq!(service.oneshot(known).await.unwrap().status(), 200);
}

fn get(path: &str) -> Request<Vec<u8>> {
    Request::get(path).body(Vec::new()).unwrap()
}
