//! Tests of statuses that control loops and kubelets write: Jobs, Nodes, and autoscalers.

use super::*;

const TIMES: [&str; 3] = ["2026-01-01T00:00:00Z", "2026-01-01T00:00:10Z", "2026-01-01T00:00:20Z"];

fn job(spec: Value) -> Value {
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "default", "uid": "u"},
        "spec": {
            "completions": 3, "parallelism": 2, "completionMode": "NonIndexed",
            "selector": {"matchLabels": {"a": "b"}}, "manualSelector": true,
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
            },
        },
    });
    for (field, value) in spec.as_object().unwrap() {
        job["spec"][field] = value.clone();
    }
    job
}

/// Checks the errors of writing one status after another.
#[track_caller]
fn check_job(spec: Value, before: Value, after: Value, want: &[&str]) {
    let jobs = Subject::of("batch", "Job");
    let mut old = jobs.created(job(spec));
    old["status"] = before;
    let (_, errors) = jobs.update(Endpoint::Status, &old, |job| job["status"] = after);
    assert_errors(errors, want);
}

fn holds(conditions: &[&str]) -> Value {
    conditions.iter().map(|kind| json!({"type": kind, "status": "True"})).collect()
}

#[test]
fn a_job_ends_as_its_loop_ends_it() {
    let begun =
        json!({"startTime": TIMES[0], "active": 1, "ready": 1, "uncountedTerminatedPods": {"succeeded": ["a"]}});
    let complete = json!({
        "startTime": TIMES[0], "completionTime": TIMES[1], "succeeded": 3, "uncountedTerminatedPods": {},
        "conditions": holds(&["SuccessCriteriaMet", "Complete"]),
    });
    check_job(json!({}), json!({}), begun.clone(), &[]);
    check_job(json!({}), begun.clone(), complete, &[]);
    let failed = json!({"startTime": TIMES[0], "failed": 7, "conditions": holds(&["FailureTarget", "Failed"])});
    check_job(json!({}), begun, failed, &[]);
}

#[test]
fn a_job_does_not_end_in_two_ways_nor_with_something_left_to_do() {
    let after = json!({
        "active": 1, "terminating": 2, "completionTime": TIMES[0], "conditions": holds(&["Complete", "Failed"]),
        "uncountedTerminatedPods": {"failed": ["a"]},
    });
    check_job(
        json!({}),
        json!({}),
        after,
        &[
            "status.active: Invalid value: 1: active>0 is invalid for finished job",
            "status.conditions: Invalid value: cannot set Complete=True and Failed=true conditions",
            "status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
            "status.conditions: Invalid value: cannot set Failed=True condition without the FailureTarget=true condition",
            "status.startTime: Required value: startTime is required for finished job",
            "status.terminating: Invalid value: 2: terminating>0 is invalid for finished job",
            r#"status.uncountedTerminatedPods: Invalid value: {"Failed":["a"],"Succeeded":null}: must be empty for finished job"#,
        ],
    );
}

#[test]
fn what_a_job_has_reached_stays() {
    let before = json!({
        "startTime": TIMES[0], "completionTime": TIMES[1], "succeeded": 3, "failed": 1,
        "conditions": holds(&["SuccessCriteriaMet", "Complete"]),
    });
    check_job(
        json!({}),
        before.clone(),
        json!({"startTime": TIMES[1], "completionTime": TIMES[2], "succeeded": 2, "failed": -1}),
        &[
            r#"status.completionTime: Invalid value: "2026-01-01T00:00:20Z": cannot set completionTime when there is no Complete=True condition"#,
            r#"status.completionTime: Invalid value: "2026-01-01T00:00:20Z": field is immutable"#,
            "status.conditions: Invalid value: cannot disable the SuccessCriteriaMet=True condition",
            "status.conditions: Invalid value: cannot disable the terminal Complete=True condition",
            "status.failed: Invalid value: -1: cannot decrease the failed counter",
            "status.failed: Invalid value: -1: must be greater than or equal to 0",
            r#"status.startTime: Invalid value: "2026-01-01T00:00:10Z": field is immutable for unsuspended job once set"#,
            "status.succeeded: Invalid value: 2: cannot decrease the succeeded counter",
        ],
    );
    // Unchanged fields are not validated, so that other fields of an invalid status can be written.
    let wrong = json!({"conditions": holds(&["Complete"]), "active": 1});
    let mut noted = wrong.clone();
    noted["failed"] = json!(1);
    check_job(json!({}), wrong, noted, &[]);
    let resumed = json!({"startTime": TIMES[1], "conditions": [{"type": "Suspended", "status": "False"}]});
    check_job(json!({}), json!({"startTime": TIMES[0], "conditions": holds(&["Suspended"])}), resumed, &[]);
}

#[test]
fn the_indexes_of_a_job_are_its_own_and_in_order() {
    let indexed = json!({"completionMode": "Indexed", "completions": 5, "backoffLimitPerIndex": 1});
    let check = |completed: &str, failed: &str, want: &[&str]| {
        check_job(indexed.clone(), json!({}), json!({"completedIndexes": completed, "failedIndexes": failed}), want);
    };
    check("0,2-3", "1,4", &[]);
    check("", "", &[]);
    for (completed, why) in [
        ("1,0", "non-increasing order, previous: 1, current: 0"),
        ("3-2", "non-increasing order, previous: 3, current: 2"),
        ("0-5", "too large index: \"5\""),
        ("a", "cannot convert string to integer for index: \"a\""),
        (
            "0-1-2",
            "the fragment \"0-1-2\" violates the requirement that an index interval can have at most two parts separated by '-'",
        ),
    ] {
        let want =
            format!("status.completedIndexes: Invalid value: {completed:?}: error parsing completedIndexes: {why}");
        check(completed, "", &[&want]);
    }
    let overlap =
        r#"status.failedIndexes: Invalid value: "1,3-4": failedIndexes and completedIndexes overlap at index: 3"#;
    check("0,2-3", "1,3-4", &[overlap]);
    check_job(
        json!({}),
        json!({}),
        json!({"completedIndexes": "0", "failedIndexes": "1", "ready": 1}),
        &[
            r#"status.completedIndexes: Invalid value: "0": cannot set non-empty completedIndexes when non-indexed completion mode"#,
            r#"status.failedIndexes: Invalid value: "1": cannot set non-null failedIndexes when backoffLimitPerIndex is null"#,
            "status.ready: Invalid value: 1: cannot set more ready pods than active",
        ],
    );
}

fn node(spec: Value, status: Value) -> Value {
    json!({"metadata": {"name": "n"}, "spec": spec, "status": status})
}

#[test]
fn a_node_has_one_range_of_each_family_and_amounts_that_can_be() {
    let nodes = Subject::of("", "Node");
    nodes.created(node(
        json!({"podCIDRs": ["10.0.0.0/24", "FD00::/64"]}),
        json!({
            "capacity": {"cpu": "1500m", "pods": "110"}, "declaredFeatures": ["A/b", "B"],
            "nodeInfo": {"swap": {"capacity": 1}},
        }),
    ));
    nodes.refused(
        node(
            json!({"podCIDRs": ["10.0.0.1/24", "10.0.1.0/024"], "taints": [{"key": "a b", "effect": "None"}]}),
            json!({
                "capacity": {"cpu": "-1", "pods": "1500m"}, "allocatable": {"example.com/gpu": "0.5"},
                "declaredFeatures": ["b", "B", "B"], "nodeInfo": {"swap": {"capacity": 0}},
            }),
        ),
        &[
            "metadata.nodeSwapStatus.capacity: Invalid value: 0: must be greater than 0",
            r#"metadata.taints[0].effect: Unsupported value: "None": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute""#,
            r#"metadata.taints[0].key: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
            r#"spec.podCIDRs: Invalid value: ["10.0.0.1/24","10.0.1.0/024"]: may specify no more than one CIDR for each IP family"#,
            r#"spec.podCIDRs[0]: Invalid value: "10.0.0.1/24": must not have bits set beyond the prefix length"#,
            r#"spec.podCIDRs[1]: Invalid value: "10.0.1.0/024": must not have leading 0s in IP or prefix length"#,
            r#"status.allocatable.example.com/gpu: Invalid value: "500m": must be an integer"#,
            r#"status.capacity.cpu: Invalid value: "-1": must be greater than or equal to 0"#,
            r#"status.capacity.pods: Invalid value: "1500m": must be an integer"#,
            r#"status.declaredFeatures[0]: Invalid value: "b": invalid feature name "b": must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"#,
            r#"status.declaredFeatures[1]: Invalid value: "B": list must be sorted alphabetically"#,
            r#"status.declaredFeatures[2]: Duplicate value: "B""#,
        ],
    );
}

#[test]
fn a_node_keeps_its_ranges_and_its_provider() {
    let nodes = Subject::of("", "Node");
    let made = nodes.created(node(json!({"podCIDRs": ["10.0.0.0/24"], "providerID": "p"}), json!({})));
    let changed = |node: &mut Value| {
        node["spec"] =
            json!({"podCIDRs": ["10.0.1.0/24"], "podCIDR": "10.0.1.0/24", "providerID": "q", "externalID": "e"});
    };
    let (_, errors) = nodes.update(Endpoint::Main, &made, changed);
    assert_errors(
        errors,
        &[
            "spec.externalID: Forbidden: may not be updated",
            "spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid",
            "spec.providerID: Forbidden: node updates may not change providerID except from \"\" to valid",
        ],
    );
    let alone = |node: &mut Value| node["spec"]["podCIDR"] = json!("10.0.1.0/24");
    assert_errors(
        nodes.update(Endpoint::Main, &made, alone).1,
        &["spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid"],
    );
    let bare = nodes.created(node(json!({}), json!({})));
    let first = |node: &mut Value| {
        node["spec"] = json!({"podCIDRs": ["10.0.1.0/24"], "podCIDR": "10.0.1.0/24", "providerID": "q"});
    };
    assert_errors(nodes.update(Endpoint::Main, &bare, first).1, &[]);
    let address = json!({"type": "InternalIP", "address": "1.2.3.4"});
    let twice = |node: &mut Value| node["status"]["addresses"] = json!([address, address]);
    assert_errors(
        nodes.update(Endpoint::Status, &made, twice).1,
        &[r#"status.addresses[1]: Duplicate value: {"address":"1.2.3.4","type":"InternalIP"}"#],
    );
}

fn scaler(spec: Value) -> Value {
    let mut scaler = json!({"metadata": {"name": "h"}, "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}, "maxReplicas": 5,
    }});
    for (field, value) in spec.as_object().unwrap() {
        scaler["spec"][field] = value.clone();
    }
    scaler
}

#[test]
fn an_autoscaler_has_bounds_and_a_target_of_a_group() {
    let scalers = Subject::of("autoscaling", "HorizontalPodAutoscaler");
    let made = scalers.created(scaler(json!({})));
    scalers
        .created(scaler(json!({"scaleTargetRef": {"apiVersion": "v1", "kind": "ReplicationController", "name": "c"}})));
    scalers.refused(
        scaler(json!({"minReplicas": 0, "maxReplicas": 0, "scaleTargetRef": {"kind": "a/b"}})),
        &[
            "spec.maxReplicas: Required value: must be set and greater than 0",
            "spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero replicas",
            "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1",
            r#"spec.scaleTargetRef.apiVersion: Invalid value: "": apiVersion must specify API group"#,
            r#"spec.scaleTargetRef.kind: Invalid value: "a/b": may not contain '/'"#,
            "spec.scaleTargetRef.name: Required value",
        ],
    );
    let mut old = made.clone();
    old["spec"]["scaleTargetRef"]["apiVersion"] = json!("a/b/c");
    assert_errors(scalers.update(Endpoint::Main, &old, |scaler| scaler["spec"]["maxReplicas"] = json!(6)).1, &[]);
    let (_, errors) = scalers.update(Endpoint::Main, &made, |scaler| {
        scaler["spec"]["scaleTargetRef"]["apiVersion"] = json!("a/b/c");
    });
    assert_errors(
        errors,
        &[r#"spec.scaleTargetRef.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c"#],
    );
    let negative = |scaler: &mut Value| scaler["status"] = json!({"currentReplicas": -1, "desiredReplicas": -2});
    assert_errors(
        scalers.update(Endpoint::Status, &made, negative).1,
        &[
            "status.currentReplicas: Invalid value: -1: must be greater than or equal to 0",
            "status.desiredReplicas: Invalid value: -2: must be greater than or equal to 0",
        ],
    );
}

#[test]
fn an_autoscaler_says_where_a_metric_comes_from_and_how_much_is_wanted() {
    let scalers = Subject::of("autoscaling", "HorizontalPodAutoscaler");
    let check = |metric: Value, want: &[&str]| scalers.refused(scaler(json!({"metrics": [metric]})), want);
    check(
        json!({"type": "Resource", "resource": {"name": "", "target": {"type": "Utilization"}}}),
        &[
            "spec.metrics[0].resource.name: Required value: must specify a resource name",
            "spec.metrics[0].resource.target.averageUtilization: Required value: must set either a target raw value or a target utilization",
        ],
    );
    check(
        json!({"type": "Pods", "resource": {"name": "cpu", "target": {
            "type": "None", "averageValue": "0", "averageUtilization": 0,
        }}}),
        &[
            "spec.metrics[0].pods: Required value: must populate information for the given metric source",
            "spec.metrics[0].resource.target.averageUtilization: Invalid value: 0: must be greater than 0",
            "spec.metrics[0].resource.target.averageValue: Forbidden: may not set both a target raw value and a target utilization",
            r#"spec.metrics[0].resource.target.averageValue: Invalid value: "0": must be positive"#,
            r#"spec.metrics[0].resource.target.type: Invalid value: "None": must be either Utilization, Value, or AverageValue"#,
        ],
    );
    check(
        json!({"type": "External", "external": {"metric": {"name": "a/b"}, "target": {
            "type": "Value", "value": "1", "averageValue": "1",
        }}}),
        &[
            r#"spec.metrics[0].external.metric.name: Invalid value: "a/b": may not contain '/'"#,
            "spec.metrics[0].external.target.value: Forbidden: may not set both a target value for metric and a per-pod target",
        ],
    );
    check(
        json!({"type": "ContainerResource", "containerResource": {"name": "pods", "container": "C", "target": {
            "type": "AverageValue", "averageValue": "1",
        }}}),
        &[
            r#"spec.metrics[0].containerResource.container: Invalid value: "C": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"#,
            r#"spec.metrics[0].containerResource.name: Invalid value: "pods": must be a standard resource for containers"#,
        ],
    );
}

#[test]
fn an_autoscaler_goes_only_so_fast_as_can_be_counted() {
    let scalers = Subject::of("autoscaling", "HorizontalPodAutoscaler");
    let policies = json!([{"type": "Nodes", "value": 0, "periodSeconds": 1_801}]);
    let up =
        json!({"stabilizationWindowSeconds": 3_601, "selectPolicy": "Mid", "policies": policies, "tolerance": "-1"});
    scalers.refused(
        scaler(json!({"behavior": {"scaleUp": up, "scaleDown": {"stabilizationWindowSeconds": -1}}})),
        &[
            "spec.behavior.scaleDown.stabilizationWindowSeconds: Invalid value: -1: must be greater than or equal to zero",
            "spec.behavior.scaleUp.policies[0].periodSeconds: Invalid value: 1801: must be less than or equal to 1800",
            r#"spec.behavior.scaleUp.policies[0].type: Unsupported value: "Nodes": supported values: "Percent", "Pods""#,
            "spec.behavior.scaleUp.policies[0].value: Invalid value: 0: must be greater than zero",
            r#"spec.behavior.scaleUp.selectPolicy: Unsupported value: "Mid": supported values: "Disabled", "Max", "Min""#,
            "spec.behavior.scaleUp.stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to 3600",
            r#"spec.behavior.scaleUp.tolerance: Invalid value: "-1": must be greater than or equal to 0"#,
        ],
    );
}

#[test]
fn an_empty_list_of_scaling_policies_is_refused_and_an_absent_one_has_the_defaults() {
    let scalers = Subject::of("autoscaling", "HorizontalPodAutoscaler");
    scalers.refused(
        scaler(json!({"behavior": {"scaleUp": {"policies": []}, "scaleDown": {"policies": []}}})),
        &[
            "spec.behavior.scaleDown.policies: Required value: must specify at least one Policy",
            "spec.behavior.scaleUp.policies: Required value: must specify at least one Policy",
        ],
    );
    let made = scalers.created(scaler(json!({"behavior": {"scaleUp": {}}})));
    assert_eq!(made["spec"]["behavior"]["scaleUp"]["policies"].as_array().unwrap().len(), 2);
}

#[test]
fn a_pod_has_one_address_of_each_family_and_cannot_be_nominated_once_it_is_bound() {
    let pods = Subject::of("", "Pod");
    let mut made = pods.created(json!({
        "metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": [{"name": "c", "image": "i"}]},
    }));
    let both = json!({
        "hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
        "podIP": "10.0.1.1", "podIPs": [{"ip": "10.0.1.1"}, {"ip": "fd00::2"}], "nominatedNodeName": "n",
    });
    assert_errors(pods.update(Endpoint::Status, &made, |pod| pod["status"] = both).1, &[]);
    made["spec"]["nodeName"] = json!("n");
    let twice = json!({
        "hostIP": "10.0.0.2", "hostIPs": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}],
        "podIPs": [{"ip": "fd00::1"}, {"ip": "fd00::2"}], "nominatedNodeName": "m",
    });
    assert_errors(
        pods.update(Endpoint::Status, &made, |pod| pod["status"] = twice).1,
        &[
            r#"status.hostIPs: Invalid value: [{"ip":"10.0.0.1"},{"ip":"10.0.0.2"}]: may specify no more than one IP for each IP family"#,
            "status.hostIPs[0].ip: Invalid value: \"10.0.0.1\": must be equal to `hostIP`",
            "status.nominatedNodeName: Forbidden: may not be set on pods that are already bound to a node",
            r#"status.podIPs: Invalid value: [{"ip":"fd00::1"},{"ip":"fd00::2"}]: may specify no more than one IP for each IP family"#,
        ],
    );
}

#[test]
fn a_volume_holds_more_than_nothing() {
    let volumes = Subject::of("", "PersistentVolume");
    let volume = |storage: &str| {
        json!({"metadata": {"name": "v"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": storage}, "hostPath": {"path": "/v"},
        }})
    };
    volumes.created(volume("1"));
    volumes.refused(volume("0"), &[r#"spec.capacity[storage]: Invalid value: "0": must be greater than zero"#]);
    volumes.refused(
        volume("-1"),
        &[
            r#"spec.capacity[storage]: Invalid value: "-1": must be greater than zero"#,
            "spec.capacity[storage]: Invalid value: -1: must be a valid resource quantity",
        ],
    );
}
