//! Tests of priority levels and flow schemas.

use super::*;
use crate::builtin::cluster::flow::bootstrap;

fn level(spec: Value) -> Value {
    json!({"metadata": {"name": "l"}, "spec": spec})
}

#[test]
fn a_level_with_queues_gets_their_numbers() {
    let levels = Subject::of("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration");
    let made = levels
        .created(level(json!({"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": {}}}})));
    assert_eq!(
        made["spec"]["limited"],
        json!({
            "nominalConcurrencyShares": 30, "lendablePercent": 0,
            "limitResponse": {"type": "Queue", "queuing": {"handSize": 8, "queueLengthLimit": 50, "queues": 64}},
        })
    );
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let cells = levels.strategy().cells(levels.version(), &made, now);
    assert_eq!(cells[2..6], [json!(30), json!(64), json!(8), json!(50)]);
    levels.refused(
        level(json!({"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": {
            "queues": 1_000_000, "handSize": 10, "queueLengthLimit": 1,
        }}}})),
        &["spec.limited.limitResponse.queuing.handSize: Invalid value: 10: required entropy bits of deckSize 1000000 and handSize 10 should not be greater than 60"],
    );
}

#[test]
fn what_the_server_makes_is_valid_and_mandatory_specs_are_for_good() {
    for (kind, all) in [("PriorityLevelConfiguration", bootstrap::levels()), ("FlowSchema", bootstrap::schemas())] {
        let subject = Subject::of("flowcontrol.apiserver.k8s.io", kind);
        for one in all {
            let made = subject.created(json!({"metadata": {"name": one.name}, "spec": one.spec}));
            assert_eq!(made["spec"], one.spec, "{} has every default", one.name);
        }
    }
    let schemas = Subject::of("flowcontrol.apiserver.k8s.io", "FlowSchema");
    let catch_all = bootstrap::schemas().pop().unwrap();
    let schema = schemas.created(json!({"metadata": {"name": catch_all.name}, "spec": catch_all.spec}));
    let (_, errors) =
        schemas.update(Endpoint::Main, &schema, |schema| schema["spec"]["matchingPrecedence"] = json!(9999));
    assert_eq!((errors.len(), errors[0].detail.as_str()), (1, "spec of 'catch-all' must equal the fixed value"));
    let levels = Subject::of("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration");
    let exempt = levels.created(json!({"metadata": {"name": "exempt"}, "spec": bootstrap::levels()[0].spec}));
    let shares = |level: &mut Value| level["spec"]["exempt"]["lendablePercent"] = json!(7);
    assert_errors(levels.update(Endpoint::Main, &exempt, shares).1, &[]);
}

#[test]
fn the_subjects_of_a_schema_are_of_their_kind() {
    let rule = |subject: Value| {
        json!({"metadata": {"name": "s"}, "spec": {"priorityLevelConfiguration": {"name": "l"}, "rules": [{
            "subjects": [subject], "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/a*b"]}],
        }]}})
    };
    Subject::of("flowcontrol.apiserver.k8s.io", "FlowSchema").refused(
        rule(json!({"kind": "ServiceAccount", "serviceAccount": {"name": "", "namespace": ""}, "user": {"name": "a"}})),
        &[
            r#"spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value: "/a*b": wildcard can only do suffix matching"#,
            "spec.rules[0].subjects[0].serviceAccount.name: Required value",
            "spec.rules[0].subjects[0].serviceAccount.namespace: Required value: must specify namespace for service account",
            "spec.rules[0].subjects[0].user: Forbidden: user is forbidden when subject kind is not 'User'",
        ],
    );
}
