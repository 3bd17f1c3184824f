//! Faults, cuts and compacted history, as seen by a client.

use crate::{code, configs, create};
use futures::TryStreamExt as _;
use kube::api::{WatchEvent, WatchParams};
use std::pin::pin;
use steersman_testkit::{ControlPlane, Fault};

#[tokio::test]
async fn faults_happen_as_often_as_asked_for_and_to_whom() {
    let plane = ControlPlane::start().await;
    let api = configs(&plane);
    plane.fail_next(2, Fault::Refused(429));
    assert_eq!(code(api.get("c").await), 429);
    assert_eq!(code(api.get("c").await), 429);
    assert_eq!(code(api.get("c").await), 404);
    plane.fail_next_where(1, Fault::Refused(500), |method, _| method == "POST");
    assert_eq!(code(api.get("c").await), 404);
    assert_eq!(plane.n_faults_left(), 1);
    assert_eq!(code(api.create(&Default::default(), &crate::config("c")).await), 500);
    assert_eq!(code(api.get("c").await), 404);
}

#[tokio::test]
async fn a_broken_connection_says_nothing_of_what_was_done() {
    let plane = ControlPlane::start().await;
    let api = configs(&plane);
    for (fault, want) in [(Fault::Unsent, false), (Fault::Unanswered, true)] {
        plane.fail_next(1, fault);
        assert_eq!(code(api.create(&Default::default(), &crate::config("c")).await), 0);
        assert_eq!(api.get_opt("c").await.unwrap().is_some(), want);
    }
}

#[tokio::test]
async fn manifests_meet_no_faults() {
    let plane = ControlPlane::start().await;
    plane.fail_next(1, Fault::Refused(500));
    plane.apply("{kind: ConfigMap, apiVersion: v1, metadata: {name: c}}").await;
    assert_eq!(plane.n_faults_left(), 1);
}

#[tokio::test]
async fn a_cut_watch_ends_with_an_error_and_a_new_one_goes_on() {
    let plane = ControlPlane::start().await;
    let api = configs(&plane);
    let first = create(&api, "first").await;
    let version = first.metadata.resource_version.unwrap();
    let mut events = pin!(api.watch(&WatchParams::default(), &version).await.unwrap());
    plane.cut_watches();
    assert!(events.try_next().await.is_err());
    create(&api, "second").await;
    let mut events = pin!(api.watch(&WatchParams::default(), &version).await.unwrap());
    let Some(WatchEvent::Added(second)) = events.try_next().await.unwrap() else { panic!("no event") };
    assert_eq!(second.metadata.name.as_deref(), Some("second"));
}

#[tokio::test]
async fn forgotten_history_is_told() {
    let plane = ControlPlane::start().await;
    let api = configs(&plane);
    let version = create(&api, "first").await.metadata.resource_version.unwrap();
    create(&api, "second").await;
    plane.compact().await;
    let mut events = pin!(api.watch(&WatchParams::default(), &version).await.unwrap());
    let Some(WatchEvent::Error(status)) = events.try_next().await.unwrap() else { panic!("no error") };
    assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
}
