//! The order of Pods, and the events that make one try again.

use super::{Effect, TestCluster, asks, key, merge, node, pod, reference};
use crate::scheduler::state::Reason;
use serde_json::json;
use std::time::Duration;

#[test]
fn important_pods_come_first_and_then_the_older() {
    let mut test_cluster = TestCluster::with_nodes([node("n", json!({}))]);
    test_cluster.pod(&pod("first", json!({})));
    test_cluster.pod(&pod("second", json!({})));
    test_cluster.pod(&pod("important", json!({"spec": {"priority": 7}})));
    let names: Vec<String> = test_cluster.bindings().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["important", "first", "second"]);
}

#[test]
fn gated_pods_wait_until_the_last_gate_is_gone() {
    let mut test_cluster = TestCluster::with_nodes([node("n", json!({}))]);
    test_cluster.pod(&pod("p", json!({"spec": {"schedulingGates": [{"name": "g"}]}})));
    assert!(test_cluster.effects().is_empty());
    assert_eq!(test_cluster.node_of(&pod("p", json!({}))), "n");
}

#[test]
fn a_pod_that_is_to_have_devices_finds_no_node() {
    let mut test_cluster = TestCluster::with_nodes([node("n", json!({}))]);
    let claims = json!([{"name": "gpu", "resourceClaimName": "gpu"}]);
    let refusal = test_cluster.refusal_of(&pod("p", json!({"spec": {"resourceClaims": claims}})));
    let why = "0/1 nodes are available: the pod has resource claims, and nothing allocates devices here.";
    assert!(refusal.contains(why), "{refusal}");
}

#[test]
fn pods_of_another_scheduler_are_left_alone() {
    let mut test_cluster = TestCluster::with_nodes([node("n", json!({}))]);
    test_cluster.pod(&pod("p", json!({"spec": {"schedulerName": "mine"}})));
    assert!(test_cluster.effects().is_empty());
}

#[test]
fn only_an_event_that_can_help_makes_a_pod_try_again() {
    let mut test_cluster = TestCluster::with_nodes([node("n", json!({}))]);
    let large = asks(json!({"cpu": "6"}));
    test_cluster.refusal_of(&pod("p", large));
    test_cluster.done(&reference("p"));
    test_cluster.node(&node("n", json!({"metadata": {"labels": {"new": "label"}}})));
    test_cluster.node(&node("small", json!({})));
    assert!(test_cluster.effects().is_empty(), "neither has six cores");
    test_cluster.node(&node("n", json!({"status": {"allocatable": {"cpu": "8"}}})));
    assert_eq!(test_cluster.bindings(), [("p".to_owned(), "n".to_owned())]);
}

#[test]
fn a_pod_that_goes_makes_room() {
    let mut test_cluster = TestCluster::with_nodes([node("n", json!({}))]);
    test_cluster.node_of(&pod("a", asks(json!({"cpu": "3"}))));
    test_cluster.refusal_of(&pod("b", asks(json!({"cpu": "3"}))));
    test_cluster.done(&reference("b"));
    test_cluster.state.pod_gone(&key("a"), test_cluster.now);
    assert_eq!(test_cluster.bindings(), [("b".to_owned(), "n".to_owned())]);
}

#[test]
fn after_five_minutes_a_pod_is_tried_without_any_event() {
    let mut test_cluster = TestCluster::with_nodes([node("n", json!({}))]);
    test_cluster.refusal_of(&pod("p", asks(json!({"cpu": "6"}))));
    test_cluster.done(&reference("p"));
    test_cluster.pass(Duration::from_secs(299));
    assert!(test_cluster.effects().is_empty());
    assert_eq!(test_cluster.state.next_wake(), Some(test_cluster.now + Duration::from_secs(1)));
    test_cluster.pass(Duration::from_secs(1));
    assert_eq!(test_cluster.effects().len(), 1);
}

#[test]
fn a_binding_that_fails_is_reported_and_tried_again_after_a_growing_delay() {
    let mut test_cluster = TestCluster::with_nodes([node("n", json!({}))]);
    test_cluster.node_of(&pod("p", asks(json!({"cpu": "3"}))));
    for seconds in [1, 2, 4, 8, 10, 10] {
        test_cluster.state.bound(&reference("p"), Err("no luck".to_owned()), test_cluster.now);
        let effects = test_cluster.effects();
        let [Effect::Report(report)] = effects.as_slice() else { panic!("{effects:?}") };
        assert_eq!(report.reason, Reason::SchedulerError);
        assert_eq!(report.message, "no luck");
        test_cluster.done(&reference("p"));
        test_cluster.pass(Duration::from_millis(seconds * 1_000 - 1));
        assert!(test_cluster.effects().is_empty(), "it is not yet time");
        test_cluster.pass(Duration::from_millis(1));
        assert_eq!(test_cluster.bindings(), [("p".to_owned(), "n".to_owned())]);
    }
}

#[test]
fn a_pod_that_was_deleted_while_it_was_bound_leaves_no_trace() {
    let mut test_cluster = TestCluster::with_nodes([node("n", json!({}))]);
    test_cluster.node_of(&pod("p", asks(json!({"cpu": "3"}))));
    test_cluster.state.pod_gone(&key("p"), test_cluster.now);
    test_cluster.state.bound(&reference("p"), Err("not found".to_owned()), test_cluster.now);
    assert!(test_cluster.effects().is_empty());
    assert_eq!(test_cluster.node_of(&pod("q", asks(json!({"cpu": "4"})))), "n");
}

#[test]
fn what_a_pod_takes_up_is_counted_once_when_its_binding_is_seen() {
    let mut test_cluster = TestCluster::with_nodes([node("n", json!({}))]);
    let spec = || asks(json!({"cpu": "2"}));
    test_cluster.node_of(&pod("a", spec()));
    let mut bound = spec();
    merge(&mut bound, json!({"spec": {"nodeName": "n"}}));
    test_cluster.pod(&pod("a", bound.clone()));
    test_cluster.state.bound(&reference("a"), Ok(()), test_cluster.now);
    test_cluster.pod(&pod("a", bound.clone()));
    assert_eq!(test_cluster.node_of(&pod("b", spec())), "n");
    merge(&mut bound, json!({"status": {"phase": "Succeeded"}}));
    test_cluster.pod(&pod("a", bound));
    assert_eq!(test_cluster.node_of(&pod("c", spec())), "n");
}

#[test]
fn a_pod_is_not_tried_again_while_its_condition_is_being_written() {
    let mut test_cluster = TestCluster::with_nodes([node("n", json!({}))]);
    test_cluster.refusal_of(&pod("p", asks(json!({"cpu": "6"}))));
    test_cluster.node(&node("large", json!({"status": {"allocatable": {"cpu": "8"}}})));
    assert!(test_cluster.effects().is_empty());
    test_cluster.done(&reference("p"));
    assert_eq!(test_cluster.bindings(), [("p".to_owned(), "large".to_owned())]);
}

#[test]
fn a_condition_that_says_so_already_is_not_written() {
    let mut test_cluster = TestCluster::with_nodes([node("n", json!({}))]);
    let message = test_cluster.refusal_of(&pod("p", asks(json!({"cpu": "6"}))));
    test_cluster.done(&reference("p"));
    let mut same = asks(json!({"cpu": "6"}));
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message, "observedGeneration": 1});
    merge(&mut same, json!({"status": {"conditions": [condition]}}));
    test_cluster.pod(&pod("p", same));
    assert!(test_cluster.effects().is_empty(), "its own condition is no reason to try again");
    test_cluster.pass(Duration::from_secs(300));
    let effects = test_cluster.effects();
    let [Effect::Report(report)] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!((report.condition, report.nominated.as_deref()), (None, None));
}

#[test]
fn a_resize_frees_the_room_of_a_pod_once_its_status_says_so() {
    let mut test_cluster = TestCluster::with_nodes([node("n", json!({}))]);
    let large = |generation: i64, wanted: &str, actual: &str| {
        let mut all = asks(json!({"cpu": wanted}));
        let status = json!({"name": "c", "resources": {"requests": {"cpu": actual}}, "image": "nginx", "imageID": "", "ready": true, "restartCount": 0});
        let over = json!({
            "metadata": {"generation": generation},
            "spec": {"nodeName": "n"},
            "status": {"containerStatuses": [status]},
        });
        merge(&mut all, over);
        pod("large", all)
    };
    test_cluster.pod(&large(1, "4", "4"));
    test_cluster.refusal_of(&pod("p", asks(json!({"cpu": "2"}))));
    test_cluster.done(&reference("p"));
    test_cluster.pod(&large(2, "1", "4"));
    assert!(test_cluster.effects().is_empty(), "the container has not been resized yet");
    test_cluster.pod(&large(2, "1", "1"));
    assert_eq!(test_cluster.bindings(), [("p".to_owned(), "n".to_owned())]);
}
