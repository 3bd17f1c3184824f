//! Tests of Pod, PodTemplate, Deployment.

use super::*;
use steersman_machinery::Budget;
use steersman_schema::decode::Body;

fn short_pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}})
}

#[test]
fn a_short_pod_is_filled_in() {
    let pods = Subject::of("", "Pod");
    assert_eq!(
        pods.created(short_pod()),
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"generation": 1, "name": "p"},
            "spec": {
                "containers": [{
                    "image": "nginx",
                    "imagePullPolicy": "Always",
                    "name": "c",
                    "resources": {},
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                }],
                "dnsPolicy": "ClusterFirst",
                "enableServiceLinks": true,
                "restartPolicy": "Always",
                "schedulerName": "default-scheduler",
                "securityContext": {},
                "terminationGracePeriodSeconds": 30,
            },
            "status": {"phase": "Pending", "qosClass": "BestEffort"},
        })
    );
}

#[test]
fn tags_ports_probes_and_resources_are_filled_in() {
    let pods = Subject::of("", "Pod");
    let pod = pods.created(json!({"metadata": {"name": "q"}, "spec": {"containers": [
        {
            "name": "c", "image": "nginx:1.2", "ports": [{"containerPort": 80}], "livenessProbe": {"httpGet": {"port": 80}},
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
        },
        {"name": "d", "image": "nginx:latest"},
    ]}}));
    let container = &pod["spec"]["containers"][0];
    assert_eq!(container["imagePullPolicy"], "IfNotPresent");
    assert_eq!(pod["spec"]["containers"][1]["imagePullPolicy"], "Always");
    assert_eq!(
        container["livenessProbe"],
        json!({
            "failureThreshold": 3, "httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}, "periodSeconds": 10,
            "successThreshold": 1, "timeoutSeconds": 1,
        })
    );
    assert_eq!(container["ports"], json!([{"containerPort": 80, "protocol": "TCP"}]));
    assert_eq!(
        container["resources"],
        json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}})
    );
    assert_eq!(pod["status"]["qosClass"], "Burstable");
}

#[test]
fn many_mistakes_in_one_pod() {
    let pods = Subject::of("", "Pod");
    pods.refused(json!({"metadata": {"name": "x"}, "spec": {"containers": []}}), &["spec.containers: Required value"]);
    pods.refused(
        json!({"metadata": {"name": "x"}, "spec": {"restartPolicy": "Sometimes", "containers": [
            {
                "name": "A", "image": "", "imagePullPolicy": "Maybe", "ports": [{"containerPort": 99999}],
                "env": [{"name": "", "value": "1"}], "volumeMounts": [{"name": "absent", "mountPath": "/x"}],
            },
            {"name": "A", "image": "i"},
        ]}}),
        &[
            "spec.containers[0].env[0].name: Required value",
            "spec.containers[0].image: Required value",
            r#"spec.containers[0].imagePullPolicy: Unsupported value: "Maybe": supported values: "Always", "IfNotPresent", "Never""#,
            "spec.containers[0].name: Invalid value: \"A\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
            "spec.containers[0].ports[0].containerPort: Invalid value: 99999: must be between 1 and 65535, inclusive",
            r#"spec.containers[0].volumeMounts[0].name: Not found: "absent""#,
            r#"spec.containers[1].name: Duplicate value: "A""#,
            "spec.containers[1].name: Invalid value: \"A\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
            r#"spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never""#,
        ],
    );
    pods.refused(
        json!({"metadata": {"name": "x"}, "spec": {"containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}},
        ]}}),
        &[r#"spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1"#],
    );
}

#[test]
fn amounts_and_mounts_of_a_container_must_fit() {
    let pods = Subject::of("", "Pod");
    let mut pod = short_pod();
    pod["spec"]["containers"][0]["resources"] = json!({
        "requests": {"foo": 1, "memory": "2Gi", "example.com/gpu": "500m"}, "limits": {"memory": "1Gi"},
    });
    pods.refused(
        pod,
        &[
            "spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources",
            r#"spec.containers[0].resources.requests: Invalid value: "2Gi": must be less than or equal to memory limit of 1Gi"#,
            r#"spec.containers[0].resources.requests[example.com/gpu]: Invalid value: "500m": must be an integer"#,
            r#"spec.containers[0].resources.requests[foo]: Invalid value: "foo": must be a standard resource for containers"#,
            r#"spec.containers[0].resources.requests[foo]: Invalid value: "foo": must be a standard resource type or fully qualified"#,
        ],
    );
    let mut pod = short_pod();
    pod["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}, "configMap": {"name": "x"}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([
        {"name": "v", "mountPath": "/a", "subPath": "../x", "mountPropagation": "Bidirectional"},
    ]);
    pods.refused(
        pod,
        &[
            "spec.containers[0].volumeMounts.mountPropagation: Forbidden: Bidirectional mount propagation is available only to privileged containers",
            r#"spec.containers[0].volumeMounts.subPath: Invalid value: "../x": must not contain '..'"#,
            r#"spec.containers[0].volumeMounts[0].name: Not found: "v""#,
            "spec.volumes[0].configMap: Forbidden: may not specify more than 1 volume type",
        ],
    );
}

#[test]
fn a_gated_pod_says_so_from_the_first() {
    let mut pod = short_pod();
    pod["spec"]["schedulingGates"] = json!([{"name": "example.com/g"}]);
    let pod = Subject::of("", "Pod").created(pod);
    assert_eq!(pod["status"]["conditions"][0]["reason"], "SchedulingGated");
}

#[test]
fn a_quantity_that_is_none_is_no_body() {
    let pods = Subject::of("", "Pod");
    let body = json!({"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "lots"}}}]}});
    let error = pods.strategy().decode(pods.version(), Body::Tree(body), &Budget::unlimited()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    );
}

#[test]
fn a_pod_that_exists_changes_its_image_and_little_else() {
    let pods = Subject::of("", "Pod");
    let old = pods.created(short_pod());
    let (new, errors) = pods.update(Endpoint::Main, &old, |pod| pod["spec"]["containers"][0]["image"] = json!("j"));
    assert_errors(errors, &[]);
    assert_eq!(new["metadata"]["generation"], 2);
    let (new, errors) = pods.update(Endpoint::Main, &old, |pod| pod["metadata"]["labels"] = json!({"a": "b"}));
    assert_errors(errors, &[]);
    assert_eq!(new["metadata"]["generation"], 1);
    let only = "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\nchanged: ";
    let (_, errors) = pods.update(Endpoint::Main, &old, |pod| pod["spec"]["hostNetwork"] = json!(true));
    assert_errors(errors, &[&format!("{only}hostNetwork")]);
    let (_, errors) = pods.update(Endpoint::Main, &old, |pod| pod["spec"]["containers"][0]["command"] = json!(["x"]));
    assert_errors(errors, &[&format!("{only}containers[0].command")]);
    let (_, errors) = pods.update(Endpoint::Main, &old, |pod| {
        pod["spec"]["containers"].as_array_mut().unwrap().push(json!({"name": "e", "image": "e"}));
    });
    assert_errors(errors, &["spec.containers: Forbidden: pod updates may not add or remove containers"]);
}

#[test]
fn tolerations_are_added_and_none_is_taken_away() {
    let pods = Subject::of("", "Pod");
    let mut body = short_pod();
    body["spec"]["tolerations"] = json!([{"key": "a", "operator": "Exists"}]);
    let old = pods.created(body);
    let more = json!([{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}]);
    let (_, errors) = pods.update(Endpoint::Main, &old, |pod| pod["spec"]["tolerations"] = more);
    assert_errors(errors, &[]);
    let (_, errors) = pods.update(Endpoint::Main, &old, |pod| pod["spec"]["tolerations"] = json!([]));
    assert_errors(
        errors,
        &["spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"],
    );
}

#[test]
fn the_status_of_a_pod_is_written_apart() {
    let pods = Subject::of("", "Pod");
    let old = pods.created(short_pod());
    let (new, errors) = pods.update(Endpoint::Status, &old, |pod| {
        pod["status"] = json!({"phase": "Running", "podIP": "10.1.1.1"});
        pod["spec"]["containers"][0]["image"] = json!("other");
    });
    assert_errors(errors, &[]);
    assert_eq!(new["spec"], old["spec"]);
    assert_eq!(
        new["status"],
        json!({"phase": "Running", "podIP": "10.1.1.1", "podIPs": [{"ip": "10.1.1.1"}], "qosClass": "BestEffort"})
    );
    assert_eq!(new["metadata"]["generation"], 1);
    let (new, _) = pods.update(Endpoint::Main, &old, |pod| pod["status"] = json!({"phase": "Running"}));
    assert_eq!(new["status"], old["status"]);
}

#[test]
fn a_negative_grace_period_is_one_second() {
    let pods = Subject::of("", "Pod");
    let mut pod = short_pod();
    pod["spec"]["terminationGracePeriodSeconds"] = json!(-5);
    assert_eq!(pods.created(pod)["spec"]["terminationGracePeriodSeconds"], 1);
}

/// The errors of a pod's new status after an old one.
fn status_errors(spec: Value, old: Value, new: Value) -> Vec<String> {
    let pods = Subject::of("", "Pod");
    let mut pod = pods.created(json!({"metadata": {"name": "p"}, "spec": spec}));
    pod["status"].as_object_mut().unwrap().extend(old.as_object().unwrap().clone());
    let (_, errors) = pods.update(Endpoint::Status, &pod, |pod| {
        pod["status"].as_object_mut().unwrap().extend(new.as_object().unwrap().clone());
    });
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn the_conditions_of_a_pod_have_names() {
    let errors = |condition: Value| {
        let spec = short_pod()["spec"].clone();
        status_errors(spec, json!({}), json!({"conditions": [condition], "observedGeneration": -1}))
    };
    let observed = "status.observedGeneration: Invalid value: -1: must be a non-negative integer";
    assert_eq!(errors(json!({"type": "example.com/ready", "status": "True"})), [observed]);
    assert_eq!(
        errors(json!({"type": "Ready", "status": "True", "observedGeneration": -2})),
        ["status.conditions[0].observedGeneration: Invalid value: -2: must be a non-negative integer", observed]
    );
    for (kind, first) in [("", "name part must be non-empty"), ("a b", "name part must consist of alphanumeric")] {
        let errors = errors(json!({"type": kind, "status": "True"}));
        assert!(errors[0].starts_with(&format!("status.conditions[0].Type: Invalid value: {kind:?}: {first}")));
    }
}

#[test]
fn a_container_that_has_ended_for_good_does_not_run_again() {
    let ended = |list: &str, code: i64| json!({list: [{"name": "other"}, {"name": "c", "state": {"terminated": {"exitCode": code}}}]});
    let errors = |list: &str, policy: &str, code: i64, of_container: Value| {
        let mut spec = short_pod()["spec"].clone();
        spec["restartPolicy"] = json!(policy);
        let mut container = json!({"name": "c", "image": "i"});
        container.as_object_mut().unwrap().extend(of_container.as_object().unwrap().clone());
        match list {
            "initContainerStatuses" => {
                spec["containers"][0]["name"] = json!("main");
                spec["initContainers"] = json!([container]);
            }
            _ => spec["containers"] = json!([container]),
        }
        status_errors(spec, ended(list, code), json!({list: [{"name": "c", "state": {"running": {}}}]}))
    };
    let refused =
        |list: &str| [format!("status.{list}[1].state: Forbidden: may not be transitioned to non-terminated state")];
    let rule = |operator: &str, action: &str| {
        json!({"restartPolicy": "Never", "restartPolicyRules": [
            {"action": action, "exitCodes": {"operator": operator, "values": [42]}},
        ]})
    };
    let (main, init) = ("containerStatuses", "initContainerStatuses");
    for (list, policy, code, of_container) in [
        (main, "Always", 0, json!({})),
        (main, "OnFailure", 1, json!({})),
        (init, "Never", 0, json!({"restartPolicy": "Always"})),
        (main, "Never", 42, rule("In", "Restart")),
        (main, "Never", 41, rule("NotIn", "Restart")),
        (main, "Never", 1, json!({"restartPolicy": "OnFailure"})),
        (main, "Never", 1, rule("In", "RestartAllContainers")),
    ] {
        assert_eq!(errors(list, policy, code, of_container.clone()), [""; 0], "{policy} {code} {of_container}");
    }
    for (list, policy, code, of_container) in [
        (main, "Never", 1, json!({})),
        (main, "OnFailure", 0, json!({})),
        (init, "Never", 1, json!({})),
        (main, "Always", 1, json!({"restartPolicy": "Never"})),
        (main, "Always", 41, rule("In", "Restart")),
        (main, "Always", 42, rule("NotIn", "Restart")),
        ("ephemeralContainerStatuses", "Always", 1, json!({})),
        ("ephemeralContainerStatuses", "Always", 1, rule("In", "RestartAllContainers")),
    ] {
        assert_eq!(errors(list, policy, code, of_container.clone()), refused(list), "{policy} {code} {of_container}");
    }
}

#[test]
fn the_users_and_resources_of_containers_are_those_that_they_can_have() {
    let spec = json!({
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}, {"name": "nic", "resourceClaimName": "yours"}],
        "containers": [{"name": "c", "image": "i", "resources": {
            "requests": {"cpu": "1"},
            "claims": [{"name": "gpu"}, {"name": "nic", "request": "two"}],
        }}],
    });
    let errors = |list: &str, status: Value| status_errors(spec.clone(), json!({}), json!({list: [status]}));
    let of = |resource: Value| json!({"name": "c", "allocatedResourcesStatus": [resource]});
    let unit = |id: &str| json!({"resourceID": id, "health": "Healthy"});
    for name in ["cpu", "claim:gpu", "claim:nic/two"] {
        let resource = json!({"name": name, "resources": [unit("a"), unit("b")]});
        assert_eq!(errors("containerStatuses", of(resource)), [""; 0], "{name}");
    }
    let at = "status.containerStatuses[0].allocatedResourcesStatus[0]";
    assert_eq!(
        errors("containerStatuses", of(json!({"name": "memory", "resources": [unit("a"), unit("a")]}))),
        [
            &*format!("{at}.name: Invalid value: \"memory\": must match one of the container's resource requests"),
            &*format!("{at}.resources[1].resourceID: Duplicate value: \"a\""),
        ]
    );
    let claim = errors("containerStatuses", of(json!({"name": "claim:gpu/one"})));
    assert!(
        claim[0].starts_with(&format!("{at}.name: Invalid value: \"claim:gpu/one\": must match one of")),
        "{claim:?}"
    );
    let odd = json!({"name": "cpu", "resources": [{"resourceID": "a", "health": "Fine", "message": ""}]});
    assert_eq!(
        errors("containerStatuses", of(odd)),
        [
            &*format!(
                "{at}.resources[0].health: Unsupported value: \"Fine\": supported values: \"Healthy\", \"Unhealthy\", \"Unknown\""
            ),
            &*format!("{at}.resources[0].message: Required value: must be non-empty if specified"),
        ]
    );
    assert_eq!(
        errors("ephemeralContainerStatuses", of(json!({"name": "cpu"}))),
        [
            "status.ephemeralContainerStatuses[0].allocatedResourcesStatus: Forbidden: must not be specified in container status"
        ]
    );
    assert_eq!(
        errors(
            "initContainerStatuses",
            json!({"name": "c", "user": {"linux": {"uid": -1, "gid": 0, "supplementalGroups": [2_147_483_648_i64]}}})
        ),
        [
            "status.initContainerStatuses[0].user.linux.uid: Invalid value: -1: must be between 0 and 2147483647, inclusive",
            "status.initContainerStatuses[0].user.linux.supplementalGroups[0]: Invalid value: 2147483648: must be between 0 and 2147483647, inclusive",
        ]
    );
}

#[test]
fn a_container_on_windows_has_no_user_of_linux() {
    let errors = |os: &str, uid: i64| {
        let mut spec = short_pod()["spec"].clone();
        spec["os"] = json!({"name": os});
        let user = json!({"linux": {"uid": uid, "gid": 0}});
        status_errors(spec, json!({}), json!({"containerStatuses": [{"name": "c", "user": user}]}))
    };
    let at = "status.containerStatuses[0].user.linux";
    assert_eq!(errors("windows", 1), [format!("{at}: Forbidden: cannot be set for a windows pod")]);
    assert_eq!(errors("linux", 1), [""; 0]);
    assert_eq!(
        errors("linux", -1),
        [format!("{at}.uid: Invalid value: -1: must be between 0 and 2147483647, inclusive")]
    );
}

/// A scan of one list for each item of the other would take minutes.
#[test]
fn long_lists_of_a_status_are_compared_by_name() {
    let names = 0..30_000;
    let statuses: Vec<Value> =
        names.clone().map(|n| json!({"name": format!("c{n}"), "state": {"terminated": {}}})).collect();
    let ips: Vec<Value> = names.map(|n| json!({"ip": format!("x{n}")})).collect();
    let status = json!({"containerStatuses": statuses, "podIPs": ips});
    assert_eq!(status_errors(short_pod()["spec"].clone(), status.clone(), status), [""; 0]);
}

#[test]
fn a_wrong_address_of_a_pod_may_stay_but_not_come() {
    let spec = short_pod()["spec"].clone();
    let addresses = json!({"podIP": "010.1.1.1", "podIPs": [{"ip": "010.1.1.1"}]});
    assert_eq!(status_errors(spec.clone(), addresses.clone(), json!({"phase": "Running"})), [""; 0]);
    assert_eq!(
        status_errors(spec, json!({}), addresses),
        [r#"status.podIPs[0]: Invalid value: "010.1.1.1": must not have leading 0s"#]
    );
}

fn short_deployment() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }})
}

#[test]
fn a_short_deployment_is_filled_in() {
    let deployments = Subject::of("apps", "Deployment");
    assert_eq!(
        deployments.created(short_deployment()),
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"generation": 1, "name": "d"},
            "spec": {
                "progressDeadlineSeconds": 600,
                "replicas": 1,
                "revisionHistoryLimit": 10,
                "selector": {"matchLabels": {"a": "b"}},
                "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}, "type": "RollingUpdate"},
                "template": {
                    "metadata": {"labels": {"a": "b"}},
                    "spec": {
                        "containers": [{
                            "image": "i",
                            "imagePullPolicy": "Always",
                            "name": "c",
                            "resources": {},
                            "terminationMessagePath": "/dev/termination-log",
                            "terminationMessagePolicy": "File",
                        }],
                        "dnsPolicy": "ClusterFirst",
                        "restartPolicy": "Always",
                        "schedulerName": "default-scheduler",
                        "securityContext": {},
                        "terminationGracePeriodSeconds": 30,
                    },
                },
            },
            "status": {},
        })
    );
}

#[test]
fn a_deployment_owns_what_it_makes() {
    let deployments = Subject::of("apps", "Deployment");
    let mut other = short_deployment();
    other["spec"]["template"]["metadata"]["labels"] = json!({"a": "c"});
    let mismatch =
        r#"spec.template.metadata.labels: Invalid value: {"a":"c"}: `selector` does not match template `labels`"#;
    deployments.refused(other.clone(), &[mismatch]);
    other["spec"].as_object_mut().unwrap().remove("selector");
    other["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    deployments.refused(
        other,
        &[
            "spec.selector: Required value",
            mismatch,
            r#"spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always""#,
        ],
    );
}

#[test]
fn the_generation_of_a_deployment_counts_changes_of_its_spec() {
    let deployments = Subject::of("apps", "Deployment");
    let old = deployments.created(short_deployment());
    let (new, errors) = deployments.update(Endpoint::Main, &old, |object| object["spec"]["replicas"] = json!(0));
    assert_errors(errors, &[]);
    assert_eq!((&new["metadata"]["generation"], &new["spec"]["replicas"]), (&json!(2), &json!(0)));
    let (new, _) = deployments.update(Endpoint::Status, &new, |object| object["status"]["replicas"] = json!(1));
    assert_eq!((&new["metadata"]["generation"], &new["status"]), (&json!(2), &json!({"replicas": 1})));
    let deleted = |object: &mut Value| object["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
    let (new, _) = deployments.update(Endpoint::Status, &new, deleted);
    assert!(
        new["metadata"]["deletionTimestamp"].is_string(),
        "only its labels are left alone; the registry refuses this"
    );
    let (_, errors) = deployments.update(Endpoint::Main, &old, |object| {
        object["spec"]["selector"] = json!({"matchLabels": {"a": "b", "c": "d"}});
    });
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert!(
        texts.contains(
            &r#"spec.selector: Invalid value: {"matchLabels":{"a":"b","c":"d"}}: field is immutable"#.to_owned()
        ),
        "{texts:?}"
    );
}

#[test]
fn a_deployment_that_cannot_move_is_refused() {
    let deployments = Subject::of("apps", "Deployment");
    let mut stuck = short_deployment();
    stuck["spec"]["strategy"] = json!({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}});
    deployments.refused(
        stuck.clone(),
        &[r#"spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "0%": may not be 0 when `maxSurge` is 0"#],
    );
    stuck["spec"]["strategy"]["type"] = json!("Recreate");
    deployments.refused(
        stuck,
        &["spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'"],
    );
}

#[test]
fn a_row_of_a_deployment() {
    let deployments = Subject::of("apps", "Deployment");
    let mut deployment = deployments.created(short_deployment());
    deployment["status"] = json!({"readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 1});
    deployment["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    let now = "2026-01-01T00:05:00Z".parse().unwrap();
    assert_eq!(
        deployments.strategy().cells(deployments.version(), &deployment, now),
        [json!("d"), json!("2/1"), json!(3), json!(1), json!("5m"), json!("c"), json!("i"), json!("a=b")]
    );
}

#[test]
fn a_template_has_a_generation_and_no_service_links() {
    let templates = Subject::of("", "PodTemplate");
    let template = templates.created(json!({"metadata": {"name": "t"}, "template": {
        "metadata": {"labels": {"app": "t"}}, "spec": {"containers": [{"name": "c", "image": "busybox"}]},
    }}));
    assert_eq!(template["metadata"]["generation"], 1);
    assert_eq!(template["template"]["spec"].get("enableServiceLinks"), None);
    let now = "2026-01-01T00:05:00Z".parse().unwrap();
    assert_eq!(
        templates.strategy().cells(templates.version(), &template, now),
        ["t", "c", "busybox", "app=t"].map(Value::from)
    );
}

#[test]
fn a_short_stateful_set_is_filled_in() {
    let sets = Subject::of("apps", "StatefulSet");
    let set = sets.created(json!({"metadata": {"name": "s"}, "spec": {
        "serviceName": "x",
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        "volumeClaimTemplates": [{"metadata": {"name": "v"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        }}],
    }}));
    let spec = &set["spec"];
    assert_eq!(spec["persistentVolumeClaimRetentionPolicy"], json!({"whenDeleted": "Retain", "whenScaled": "Retain"}));
    assert_eq!(spec["updateStrategy"], json!({"rollingUpdate": {"partition": 0}, "type": "RollingUpdate"}));
    assert_eq!(
        (&spec["podManagementPolicy"], &spec["replicas"], &spec["revisionHistoryLimit"]),
        (&json!("OrderedReady"), &json!(1), &json!(10))
    );
    assert_eq!(
        spec["volumeClaimTemplates"],
        json!([{
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "v"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
                "volumeMode": "Filesystem",
            },
            "status": {"phase": "Pending"},
        }])
    );
    assert_eq!(set["status"], json!({"availableReplicas": 0, "replicas": 0}));
    let mut other = set.clone();
    other["spec"]["serviceName"] = json!("A");
    let why = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an \
               alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
    sets.refused(other, &[&format!("spec.serviceName: Invalid value: \"A\": {why}")]);
    let (_, errors) = sets.update(Endpoint::Status, &set, |set| set["status"]["collisionCount"] = json!(-1));
    assert_errors(errors, &["status.collisionCount: Invalid value: -1: must be greater than or equal to 0"]);
    let (_, errors) = sets.update(Endpoint::Main, &set, |set| set["spec"]["serviceName"] = json!("y"));
    assert_errors(
        errors,
        &[
            "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        ],
    );
    let (scaled, errors) = sets.update(Endpoint::Main, &set, |set| set["spec"]["replicas"] = json!(3));
    assert_errors(errors, &[]);
    assert_eq!(scaled["metadata"]["generation"], 2);
}

#[test]
fn a_short_daemon_set_is_filled_in() {
    let sets = Subject::of("apps", "DaemonSet");
    let set = sets.created(json!({"metadata": {"name": "ds"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }}));
    assert_eq!(set["spec"]["revisionHistoryLimit"], 10);
    assert_eq!(
        set["spec"]["updateStrategy"],
        json!({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}, "type": "RollingUpdate"})
    );
    assert_eq!(
        set["status"],
        json!({"currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0})
    );
    let generation = |set: &Value| set["metadata"]["annotations"]["deprecated.daemonset.template.generation"].clone();
    assert_eq!(generation(&set), "1");
    let (changed, errors) = sets.update(Endpoint::Main, &set, |set| {
        set["spec"]["template"]["spec"]["containers"][0]["image"] = json!("j");
    });
    assert_errors(errors, &[]);
    assert_eq!((generation(&changed), &changed["metadata"]["generation"]), (json!("2"), &json!(2)));
}

#[test]
fn a_replica_set_owns_what_it_makes() {
    let sets = Subject::of("apps", "ReplicaSet");
    let mut set = short_deployment();
    set["kind"] = json!("ReplicaSet");
    let made = sets.created(set.clone());
    assert_eq!((&made["spec"]["replicas"], &made["status"]), (&json!(1), &json!({"replicas": 0})));
    set["spec"]["selector"] = json!({"matchLabels": {"a": "c"}});
    sets.refused(
        set,
        &[r#"spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template `labels`"#],
    );
}

#[test]
fn a_replica_set_counts_no_less_than_nothing_that_ends() {
    let sets = Subject::of("apps", "ReplicaSet");
    let mut set = short_deployment();
    set["kind"] = json!("ReplicaSet");
    let made = sets.created(set);
    let (_, errors) =
        sets.update(Endpoint::Status, &made, |set| set["status"] = json!({"replicas": 0, "terminatingReplicas": -1}));
    assert_errors(errors, &["status.terminatingReplicas: Invalid value: -1: must be greater than or equal to 0"]);
}

#[test]
fn a_replication_controller_takes_selector_and_labels_from_its_template() {
    let controllers = Subject::of("", "ReplicationController");
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let made = controllers.created(json!({"metadata": {"name": "rc"}, "spec": {"template": template}}));
    assert_eq!((&made["spec"]["selector"], &made["metadata"]["labels"]), (&json!({"a": "b"}), &json!({"a": "b"})));
    assert_eq!((&made["spec"]["replicas"], &made["status"]), (&json!(1), &json!({"replicas": 0})));
    controllers.refused(
        json!({"metadata": {"name": "rc"}, "spec": {"replicas": -1, "selector": {"x": "y"}, "template": template}}),
        &[
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
            "spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`",
        ],
    );
    controllers.refused(
        json!({"metadata": {"name": "rc"}, "spec": {}}),
        &["spec.selector: Required value", "spec.template: Required value"],
    );
}
