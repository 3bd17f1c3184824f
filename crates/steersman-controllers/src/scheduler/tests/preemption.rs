//! Which Pods are deleted for a more important one.

use super::{Effect, TestCluster, asks, key, merge, node, pod, reference};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

fn placed(name: &str, node: &str, priority: i32, cpu: &str, over: Value) -> Pod {
    let mut all = asks(json!({"cpu": cpu}));
    merge(&mut all, json!({"spec": {"nodeName": node, "priority": priority}}));
    merge(&mut all, over);
    pod(name, all)
}

fn important(cpu: &str) -> Pod {
    let mut all = asks(json!({"cpu": cpu}));
    merge(&mut all, json!({"spec": {"priority": 100}}));
    pod("important", all)
}

/// The node and the victims of the only preemption among effects.
#[track_caller]
fn victims(effects: &[Effect]) -> (String, Vec<String>) {
    let of = |effect: &Effect| match effect {
        Effect::Preempt { node, victims, .. } => {
            Some((node.to_string(), victims.iter().map(|pod| pod.key.name().to_owned()).collect()))
        }
        _ => None,
    };
    effects.iter().find_map(of).unwrap_or_else(|| panic!("nobody has to go: {effects:?}"))
}

#[test]
fn the_least_important_and_fewest_go_and_the_pod_waits_for_their_room() {
    let mut test_cluster = TestCluster::with_nodes([node("a", json!({})), node("b", json!({}))]);
    test_cluster.pod(&placed("a1", "a", 50, "4", json!({})));
    test_cluster.pod(&placed("b1", "b", 10, "2", json!({})));
    test_cluster.pod(&placed("b2", "b", 5, "2", json!({})));
    test_cluster.pod(&important("2"));
    let effects = test_cluster.effects();
    assert_eq!(victims(&effects), ("b".to_owned(), vec!["b2".to_owned()]));
    let Effect::Report(report) = &effects[0] else { panic!("{effects:?}") };
    assert_eq!(report.message, "0/2 nodes are available: 2 Insufficient cpu.");
    assert_eq!(report.nominated.as_deref(), Some("b"));
    let waiting = reference("important");
    test_cluster.state.pod_gone(&key("b2"), test_cluster.now);
    assert!(test_cluster.effects().is_empty(), "the requests are still under way");
    test_cluster.done(&waiting);
    test_cluster.done(&waiting);
    // Another Pod of the same priority does not get the room.
    let mut thief = asks(json!({"cpu": "2"}));
    merge(&mut thief, json!({"spec": {"priority": 1}}));
    test_cluster.pod(&pod("thief", thief));
    assert_eq!(test_cluster.bindings(), [("important".to_owned(), "b".to_owned())]);
}

#[test]
fn lower_pods_do_not_get_the_room_that_was_made() {
    let mut test_cluster = TestCluster::with_nodes([node("a", json!({}))]);
    test_cluster.pod(&placed("victim", "a", 0, "4", json!({})));
    test_cluster.pod(&important("4"));
    test_cluster.effects();
    test_cluster.state.pod_gone(&key("victim"), test_cluster.now);
    let mut thief = asks(json!({"cpu": "2"}));
    merge(&mut thief, json!({"spec": {"priority": 1}}));
    let refusal = test_cluster.refusal_of(&pod("thief", thief));
    assert!(refusal.starts_with("0/1 nodes are available: 1 Insufficient cpu."), "{refusal}");
}

#[test]
fn a_pod_that_never_preempts_says_so() {
    let mut test_cluster = TestCluster::with_nodes([node("a", json!({}))]);
    test_cluster.pod(&placed("low", "a", 0, "4", json!({})));
    let mut pod = important("2");
    pod.spec.as_mut().unwrap().preemption_policy = Some("Never".to_owned());
    assert_eq!(
        test_cluster.refusal_of(&pod),
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: not eligible due to preemptionPolicy=Never."
    );
}

#[test]
fn where_going_does_not_help_nobody_goes() {
    let mut test_cluster = TestCluster::with_nodes([node("a", json!({}))]);
    test_cluster.pod(&placed("low", "a", 0, "1", json!({})));
    test_cluster.pod(&placed("high", "a", 200, "2", json!({})));
    assert_eq!(
        test_cluster.refusal_of(&important("3")),
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are available: 1 Insufficient cpu."
    );
}

#[test]
fn budgets_are_kept_where_that_is_possible() {
    let mut test_cluster = TestCluster::with_nodes([node("a", json!({})), node("b", json!({}))]);
    let guarded = json!({"metadata": {"labels": {"app": "guarded"}}});
    test_cluster.pod(&placed("guarded", "a", 0, "4", guarded));
    test_cluster.pod(&placed("other", "b", 50, "4", json!({})));
    let budget = json!({"spec": {"selector": {"matchLabels": {"app": "guarded"}}}, "status": {"disruptionsAllowed": 0,
        "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}});
    test_cluster.state.budget_changed(&key("budget"), Some(&serde_json::from_value(budget).unwrap()));
    test_cluster.pod(&important("4"));
    assert_eq!(victims(&test_cluster.effects()), ("b".to_owned(), vec!["other".to_owned()]));
}

#[test]
fn while_victims_end_nobody_else_has_to_go() {
    let mut test_cluster = TestCluster::with_nodes([node("a", json!({})), node("b", json!({}))]);
    test_cluster.pod(&placed("victim", "a", 0, "4", json!({})));
    test_cluster.pod(&placed("other", "b", 50, "4", json!({})));
    test_cluster.pod(&important("4"));
    assert_eq!(victims(&test_cluster.effects()).1, ["victim"]);
    let waiting = reference("important");
    test_cluster.done(&waiting);
    test_cluster.done(&waiting);
    let ending = json!({
        "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"},
        "status": {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]},
    });
    test_cluster.pod(&placed("victim", "a", 0, "4", ending));
    test_cluster.pass(std::time::Duration::from_secs(300));
    let effects = test_cluster.effects();
    let [Effect::Report(report)] = effects.as_slice() else { panic!("{effects:?}") };
    assert!(
        report.message.ends_with("preemption: not eligible due to a terminating pod on the nominated node."),
        "{}",
        report.message
    );
}

#[test]
fn room_that_is_no_longer_kept_helps_others() {
    let mut test_cluster = TestCluster::with_nodes([node("a", json!({}))]);
    test_cluster.pod(&placed("victim", "a", 0, "4", json!({})));
    test_cluster.pod(&important("4"));
    test_cluster.effects();
    let waiting = reference("important");
    test_cluster.state.pod_gone(&key("victim"), test_cluster.now);
    let mut other = asks(json!({"cpu": "2"}));
    merge(&mut other, json!({"spec": {"priority": 1}}));
    test_cluster.refusal_of(&pod("other", other));
    test_cluster.done(&reference("other"));
    // A more important Pod takes a part of the room, so that the rest is too little.
    test_cluster.pod(&placed("system", "a", 2_000, "1", json!({})));
    test_cluster.done(&waiting);
    test_cluster.done(&waiting);
    assert_eq!(test_cluster.bindings(), [("other".to_owned(), "a".to_owned())]);
}

#[test]
fn a_pod_waits_for_the_room_that_is_being_made_although_no_event_has_shown_it_yet() {
    let mut test_cluster = TestCluster::with_nodes([node("a", json!({})), node("b", json!({}))]);
    test_cluster.pod(&placed("victim", "a", 0, "4", json!({})));
    test_cluster.pod(&placed("other", "b", 50, "4", json!({})));
    test_cluster.pod(&important("4"));
    assert_eq!(victims(&test_cluster.effects()).1, ["victim"]);
    // An event that may help makes the next attempt start as soon as the requests have ended.
    test_cluster.pod(&placed("system", "taken", 2_000, "4", json!({})));
    test_cluster.node(&node("taken", json!({"status": {"allocatable": {"cpu": "5"}}})));
    let waiting = reference("important");
    test_cluster.done(&waiting);
    test_cluster.state.preempted(&waiting, &[reference("victim")], Ok(()), test_cluster.now);
    // The victim's condition is written before its deletion, and arrives after the answers.
    let condition = json!({"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"});
    let condition = json!({"status": {"conditions": [condition], "startTime": "2026-01-01T00:00:00Z"}});
    for (over, cpu) in [(json!({}), "6"), (condition, "7")] {
        test_cluster.pod(&placed("victim", "a", 0, "4", over));
        let effects = test_cluster.effects();
        assert!(matches!(effects.as_slice(), [Effect::Report(_)]), "{effects:?}");
        test_cluster.done(&waiting);
        test_cluster.node(&node("taken", json!({"status": {"allocatable": {"cpu": cpu}}})));
    }
    test_cluster.state.pod_gone(&key("victim"), test_cluster.now);
    assert_eq!(test_cluster.bindings(), [("important".to_owned(), "a".to_owned())]);
}

#[test]
fn the_answer_to_a_preemption_is_not_about_a_later_pod_of_the_victims_name() {
    let mut test_cluster = TestCluster::with_nodes([node("a", json!({}))]);
    test_cluster.pod(&placed("victim", "a", 0, "4", json!({})));
    test_cluster.pod(&important("4"));
    assert_eq!(victims(&test_cluster.effects()).1, ["victim"]);
    test_cluster.pod(&placed("victim", "a", 0, "4", json!({"metadata": {"uid": "later"}})));
    let waiting = reference("important");
    test_cluster.done(&waiting);
    test_cluster.state.preempted(&waiting, &[reference("victim")], Ok(()), test_cluster.now);
    test_cluster.pass(std::time::Duration::from_secs(300));
    assert_eq!(victims(&test_cluster.effects()).1, ["victim"], "the later one goes as well");
}
