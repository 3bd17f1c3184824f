//! Expectations by example: when a key may be acted on again.

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use serde_json::json;

use super::*;
use crate::handler::{Arrival, Deleted};

fn key() -> ObjectKey {
    ObjectKey::namespaced("a", "set")
}

fn pod(uid: &str, owner: &str, is_going: bool) -> Arc<Pod> {
    let deleted = is_going.then_some("2026-01-01T00:00:00Z");
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": "1", "controller": true});
    let meta =
        json!({"namespace": "a", "name": uid, "uid": uid, "deletionTimestamp": deleted, "ownerReferences": [owner]});
    Arc::new(serde_json::from_value(json!({ "metadata": meta })).expect("a test writes metadata as it is defined"))
}

#[tokio::test(start_paused = true)]
async fn a_key_waits_for_all_that_was_expected() {
    let expectations = Expectations::new();
    assert_eq!(expectations.pending(&key()), None);
    expectations.expect_creations(&key(), 2);
    expectations.expect_deletions(&key(), ["x".to_owned()]);
    expectations.creation_observed(&key());
    expectations.creation_failed(&key());
    assert_eq!(expectations.pending(&key()), Some(Expectations::TIMEOUT));
    assert_eq!(expectations.pending(&ObjectKey::namespaced("a", "other")), None);
    expectations.deletion_observed(&key(), "x");
    assert_eq!(expectations.pending(&key()), None);
    expectations.expect_creations(&key(), 0);
    assert_eq!(expectations.pending(&key()), None, "nothing is not waited for");
    expectations.expect_creations(&key(), 1);
    expectations.forget(&key());
    assert_eq!(expectations.pending(&key()), None);
}

#[tokio::test(start_paused = true)]
async fn a_key_waits_no_longer_than_the_timeout_after_the_last_expectation() {
    let expectations = Expectations::new();
    expectations.expect_creations(&key(), 1);
    tokio::time::advance(Duration::from_secs(200)).await;
    assert_eq!(expectations.pending(&key()), Some(Duration::from_secs(100)));
    expectations.expect_creations(&key(), 1);
    tokio::time::advance(Duration::from_secs(299)).await;
    assert_eq!(expectations.pending(&key()), Some(Duration::from_secs(1)));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(expectations.pending(&key()), None);
}

#[tokio::test(start_paused = true)]
async fn an_observer_lowers_expectations_and_names_the_owners() {
    let expectations = Expectations::new();
    let observe = expectations.observer::<ReplicaSet, Pod>();
    let other = ObjectKey::namespaced("a", "other");
    expectations.expect_creations(&key(), 1);
    assert_eq!(observe(&Change::Added(&pod("1", "other", false), Arrival::Later)), std::slice::from_ref(&other));
    assert!(expectations.pending(&key()).is_some(), "it is another's");
    assert_eq!(observe(&Change::Added(&pod("2", "set", false), Arrival::Later)), [key()]);
    assert_eq!(expectations.pending(&key()), None);

    expectations.expect_deletions(&key(), ["1".to_owned(), "2".to_owned()]);
    let (alive, going) = (pod("1", "set", false), pod("1", "set", true));
    for change in [Change::Updated { old: &alive, new: &going }, Change::Deleted(&Deleted::Final(going.clone()))] {
        assert_eq!(observe(&change), [key()]);
        assert!(expectations.pending(&key()).is_some(), "one deletion counts once");
    }
    observe(&Change::Deleted(&Deleted::Final(pod("2", "set", false))));
    assert_eq!(expectations.pending(&key()), None);
    expectations.expect_deletions(&key(), ["1".to_owned()]);
    observe(&Change::Updated { old: &alive, new: &going });
    assert_eq!(expectations.pending(&key()), None, "the beginning is enough");
    let (old, new) = (pod("3", "set", false), pod("3", "other", false));
    assert_eq!(observe(&Change::Updated { old: &old, new: &new }), [other, key()]);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_being_deleted_when_it_appears_was_not_created() {
    let expectations = Expectations::new();
    let observe = expectations.observer::<ReplicaSet, Pod>();
    expectations.expect_creations(&key(), 1);
    expectations.expect_deletions(&key(), ["1".to_owned()]);
    observe(&Change::Added(&pod("1", "set", true), Arrival::Initial));
    assert!(expectations.pending(&key()).is_some());
    expectations.creation_observed(&key());
    assert_eq!(expectations.pending(&key()), None);
}

#[tokio::test(start_paused = true)]
async fn batches_double_run_at_once_and_stop_after_one_with_a_failure() {
    let batches = Mutex::new(Vec::new());
    let started = Instant::now();
    let task = |number: usize| {
        batches.lock().push((number, started.elapsed().as_secs()));
        async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if number == 4 { Err("scripted") } else { Ok(()) }
        }
    };
    assert_eq!(slow_start(100, &task).await, (6, Some("scripted")));
    assert_eq!(*batches.lock(), [(0, 0), (1, 1), (2, 1), (3, 2), (4, 2), (5, 2), (6, 2)]);
    assert_eq!(slow_start(4, task).await, (4, None));
    assert_eq!(slow_start(0, task).await, (0, None));
}
