//! The status of a budget for given Pods.

use super::*;
use serde_json::{Value, json};

const NOW: &str = "2026-01-01T10:00:00Z";

fn budget(spec: Value, status: Value) -> PodDisruptionBudget {
    let metadata = json!({"name": "b", "namespace": "shop", "generation": 3});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
}

fn pod(name: &str, is_ready: bool) -> Arc<Pod> {
    let ready = json!([{"type": "Ready", "status": if is_ready { "True" } else { "False" }}]);
    let pod = json!({"metadata": {"name": name}, "status": {"conditions": ready}});
    Arc::new(serde_json::from_value(pod).unwrap())
}

#[track_caller]
fn expected(spec: Value, scale: i32) -> String {
    let budget = budget(spec, json!({"disruptionsAllowed": 0}));
    match Limit::of(&budget).of_scale(scale) {
        Ok((count, healthy)) => format!("{healthy} of {count}"),
        Err(why) => why,
    }
}

#[test]
fn shares_are_rounded_up() {
    assert_eq!(expected(json!({"maxUnavailable": "34%"}), 3), "1 of 3");
    assert_eq!(expected(json!({"minAvailable": "34%"}), 3), "2 of 3");
    assert_eq!(expected(json!({"maxUnavailable": 5}), 3), "0 of 3");
    assert_eq!(expected(json!({"minAvailable": "100%"}), i32::MAX), format!("{0} of {0}", i32::MAX));
    assert_eq!(
        expected(json!({"minAvailable": "some"}), 3),
        "invalid value for IntOrString: invalid type: string is not a percentage"
    );
}

fn status(planned: Planned) -> Value {
    serde_json::to_value(planned.status.expect("a status is written").status).unwrap()
}

#[test]
fn a_status_says_how_many_may_go_and_is_written_once() {
    let one = budget(json!({"minAvailable": 2}), json!({"disruptionsAllowed": 0}));
    let pods = [pod("a", true), pod("b", true), pod("c", true)];
    let expected = Expected { count: 3, healthy: 2, unmanaged: Vec::new() };
    let planned = plan(&one, &pods, &expected, NOW.parse().unwrap());
    let written = planned.status.clone().unwrap();
    let said = status(planned);
    assert_eq!(said["disruptionsAllowed"], 1);
    assert_eq!(
        said["conditions"],
        json!([{"type": "DisruptionAllowed", "status": "True", "reason": "SufficientPods", "message": "",
            "observedGeneration": 3, "lastTransitionTime": NOW}])
    );
    assert!(plan(&written, &pods, &expected, NOW.parse().unwrap()).status.is_none());
    let said = status(plan(&written, &pods[..2], &expected, NOW.parse().unwrap()));
    assert_eq!(
        (&said["disruptionsAllowed"], &said["conditions"][0]["reason"]),
        (&json!(0), &json!("InsufficientPods"))
    );
    let absurd = Expected { count: i32::MAX, healthy: i32::MIN, unmanaged: Vec::new() };
    assert_eq!(status(plan(&written, &pods, &absurd, NOW.parse().unwrap()))["disruptionsAllowed"], i32::MAX);
}

#[test]
fn one_that_was_evicted_counts_as_gone_for_two_minutes() {
    let noted = json!({"disruptionsAllowed": 0, "disruptedPods": {"a": "2026-01-01T09:59:00Z", "gone": NOW}});
    let one = budget(json!({"minAvailable": 1}), noted);
    let pods = [pod("a", true), pod("b", true)];
    let expected = Expected { count: 2, healthy: 1, unmanaged: Vec::new() };
    let planned = plan(&one, &pods, &expected, NOW.parse().unwrap());
    assert_eq!((planned.recheck_in, planned.not_deleted.len()), (Some(Duration::from_mins(1)), 0));
    let said = status(planned);
    assert_eq!(said["disruptedPods"], json!({"a": "2026-01-01T09:59:00Z"}));
    assert_eq!((&said["currentHealthy"], &said["disruptionsAllowed"]), (&json!(1), &json!(0)));
    let planned = plan(&one, &pods, &expected, "2026-01-01T10:01:01Z".parse().unwrap());
    assert_eq!((planned.recheck_in, planned.not_deleted.len()), (None, 1));
    assert_eq!(status(planned)["currentHealthy"], 2);
}

#[test]
fn when_the_owners_are_not_known_nothing_may_be_evicted() {
    let one = budget(json!({"maxUnavailable": 1}), json!({"disruptionsAllowed": 3, "expectedPods": 4}));
    let said =
        serde_json::to_value(failed(&one, "found no controllers for pod \"a\"", NOW.parse().unwrap()).status).unwrap();
    assert_eq!((&said["disruptionsAllowed"], &said["expectedPods"]), (&json!(0), &json!(4)));
    assert_eq!(said["conditions"][0]["reason"], "SyncFailed");
    assert_eq!(said["conditions"][0]["message"], "found no controllers for pod \"a\"");
}
