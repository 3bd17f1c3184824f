//! Tests of Job, CronJob, PodDisruptionBudget, StorageClass, NetworkPolicy, roles and bindings.

use super::*;
use steersman_machinery::Budget;
use steersman_schema::decode::Body;

fn short_job() -> Value {
    json!({"metadata": {"name": "j", "uid": "u-1"}, "spec": {
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}},
    }})
}

#[test]
fn a_job_gets_its_selector_and_labels_from_its_uid() {
    let jobs = Subject::of("batch", "Job");
    let job = jobs.created(short_job());
    let labels = json!({
        "batch.kubernetes.io/controller-uid": "u-1", "batch.kubernetes.io/job-name": "j", "controller-uid": "u-1",
        "job-name": "j",
    });
    assert_eq!(job["metadata"]["labels"], labels);
    assert_eq!(job["spec"]["template"]["metadata"]["labels"], labels);
    assert_eq!(job["spec"]["selector"], json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u-1"}}));
    let spec = |field: &str| job["spec"][field].clone();
    assert_eq!((spec("backoffLimit"), spec("completions"), spec("parallelism")), (json!(6), json!(1), json!(1)));
    assert_eq!(
        (spec("completionMode"), spec("podReplacementPolicy"), spec("suspend")),
        (json!("NonIndexed"), json!("TerminatingOrFailed"), json!(false))
    );
    assert_eq!(job["status"], json!({}));
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let cells = jobs.strategy().cells(jobs.version(), &job, now);
    assert_eq!(cells[1..4], [json!("Running"), json!("0/1"), json!("")]);
    let (_, errors) = jobs.update(Endpoint::Main, &job, |job| job["spec"]["parallelism"] = json!(2));
    assert_errors(errors, &[]);
    let (_, errors) = jobs.update(Endpoint::Main, &job, |job| job["spec"]["completions"] = json!(2));
    assert_errors(errors, &["spec.completions: Invalid value: 2: field is immutable"]);
}

#[test]
fn a_job_without_labels_has_those_of_its_template_as_the_server_completes_them() {
    let jobs = Subject::of("batch", "Job");
    let template = json!({"metadata": {"labels": {"app": "j"}}, "spec": {
        "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}],
    }});
    let body = json!({"metadata": {"name": "j", "uid": "u"}, "spec": {"template": template}});
    let job = jobs.created(body.clone());
    assert_eq!(job["metadata"]["labels"], job["spec"]["template"]["metadata"]["labels"]);
    assert_eq!(job["metadata"]["labels"]["job-name"], "j");
    let (bare, errors) = jobs.update(Endpoint::Main, &job, |job| job["metadata"]["labels"] = json!({}));
    assert_eq!(errors, []);
    assert_eq!(bare["metadata"]["labels"], job["metadata"]["labels"]);
    let mut labelled = body;
    labelled["metadata"]["labels"] = json!({"app": "j"});
    assert_eq!(jobs.created(labelled)["metadata"]["labels"], json!({"app": "j"}));
}

#[test]
fn a_job_that_restarts_always_is_refused() {
    let jobs = Subject::of("batch", "Job");
    let mut job = short_job();
    job["spec"]["template"]["spec"].as_object_mut().unwrap().remove("restartPolicy");
    jobs.refused(job, &[r#"spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never""#]);
}

#[track_caller]
fn refused_job(spec: &Value, want: &[&str]) {
    let mut body = json!({
        "metadata": {"name": "j", "uid": "u-1"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
    });
    for (field, value) in spec.as_object().unwrap() {
        body["spec"][field] = value.clone();
    }
    Subject::of("batch", "Job").refused(body, want);
}

#[test]
fn policies_of_a_job_must_make_sense() {
    refused_job(
        &json!({"podFailurePolicy": {"rules": [
            {"action": "Stop", "onExitCodes": {"operator": "In", "containerName": "d", "values": [0, 5, 5, 3]}},
            {"action": "FailIndex", "onPodConditions": [{"type": "a b"}]},
            {"action": "Ignore"},
        ]}}),
        &[
            r#"spec.podFailurePolicy.rules[0].action: Unsupported value: "Stop": supported values: "Count", "FailIndex", "FailJob", "Ignore""#,
            r#"spec.podFailurePolicy.rules[0].onExitCodes.containerName: Invalid value: "d": must be one of the container or initContainer names in the pod template"#,
            "spec.podFailurePolicy.rules[0].onExitCodes.values: Invalid value: [0,5,5,3]: must be ordered",
            "spec.podFailurePolicy.rules[0].onExitCodes.values[0]: Invalid value: 0: must not be 0 for the In operator",
            "spec.podFailurePolicy.rules[0].onExitCodes.values[2]: Duplicate value: 5",
            r#"spec.podFailurePolicy.rules[1].action: Invalid value: "FailIndex": requires the backoffLimitPerIndex to be set"#,
            r#"spec.podFailurePolicy.rules[1].onPodConditions[0].type: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
            "spec.podFailurePolicy.rules[2]: Invalid value: specifying one of OnExitCodes and OnPodConditions is required",
        ],
    );
    refused_job(
        &json!({"completionMode": "Indexed", "completions": 5, "successPolicy": {"rules": [
            {"succeededIndexes": "0,2-3", "succeededCount": 4}, {"succeededIndexes": "3-1"}, {"succeededIndexes": "7"}, {},
        ]}}),
        &[
            "spec.successPolicy.rules[0].succeededCount: Invalid value: 4: must be less than or equal to 3 (the number of indexes in the specified succeededIndexes field)",
            r#"spec.successPolicy.rules[1].succeededIndexes: Invalid value: "3-1": error parsing succeededIndexes: non-increasing order, previous: 3, current: 1"#,
            r#"spec.successPolicy.rules[2].succeededIndexes: Invalid value: "7": error parsing succeededIndexes: too large index: "7""#,
            "spec.successPolicy.rules[3]: Required value: at least one of succeededCount or succeededIndexes must be specified",
        ],
    );
}

#[test]
fn what_a_job_says_of_indexes_and_its_selector_must_fit() {
    refused_job(
        &json!({"maxFailedIndexes": 2, "managedBy": "me"}),
        &[
            "spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified",
            r#"spec.managedBy: Invalid value: "me": must be a domain-prefixed path (such as "acme.io/foo")"#,
            "spec.maxFailedIndexes: Invalid value: 2: requires indexed completion mode",
        ],
    );
    refused_job(
        &json!({"selector": {"matchLabels": {"a": "b"}}}),
        &[
            r#"spec.selector: Invalid value: {"matchLabels":{"a":"b","batch.kubernetes.io/controller-uid":"u-1"}}: `selector` not auto-generated"#,
            r#"spec.template.metadata.labels: Invalid value: {"batch.kubernetes.io/controller-uid":"u-1","batch.kubernetes.io/job-name":"j","controller-uid":"u-1","job-name":"j"}: `selector` does not match template `labels`"#,
        ],
    );
}

#[test]
fn the_clock_of_a_cron_job_has_a_name_that_is_known() {
    let spec = |schedule: &str, zone: &str| {
        let pod = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]});
        json!({"metadata": {"name": "c"}, "spec": {
            "schedule": schedule, "timeZone": zone, "jobTemplate": {"spec": {"template": {"spec": pod}}},
        }})
    };
    let cron_jobs = Subject::of("batch", "CronJob");
    for zone in ["UTC", "Europe/Berlin"] {
        cron_jobs.created(spec("0 * * * *", zone));
    }
    cron_jobs.refused(
        spec("0 * * * *", "europe/berlin"),
        &[r#"spec.timeZone: Invalid value: "europe/berlin": unknown time zone europe/berlin"#],
    );
    cron_jobs.refused(
        spec("0 * * * *", "Local"),
        &[
            r#"spec.timeZone: Invalid value: "Local": timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"#,
        ],
    );
    cron_jobs.refused(
        spec("TZ=UTC 0 * * * *", "UTC"),
        &[
            r#"spec.schedule: Invalid value: "TZ=UTC 0 * * * *": cannot use TZ or CRON_TZ in schedule, use timeZone field instead"#,
        ],
    );
}

#[test]
fn a_cron_job_is_filled_in_and_its_schedule_read() {
    let jobs = Subject::of("batch", "CronJob");
    let mut body = json!({"metadata": {"name": "cj"}, "spec": {"schedule": "*/5 * * * *", "jobTemplate": short_job()}});
    let job = jobs.created(body.clone());
    let spec = |field: &str| job["spec"][field].clone();
    assert_eq!(
        (
            spec("concurrencyPolicy"),
            spec("failedJobsHistoryLimit"),
            spec("successfulJobsHistoryLimit"),
            spec("suspend")
        ),
        (json!("Allow"), json!(1), json!(3), json!(false))
    );
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let cells = jobs.strategy().cells(jobs.version(), &job, now);
    assert_eq!(cells[1..6], [json!("*/5 * * * *"), json!("<none>"), json!("False"), json!(0), json!("<none>")]);
    body["spec"]["schedule"] = json!("every day");
    body["spec"]["concurrencyPolicy"] = json!("Never");
    jobs.refused(
        body,
        &[
            r#"spec.concurrencyPolicy: Unsupported value: "Never": supported values: "Allow", "Forbid", "Replace""#,
            r#"spec.schedule: Invalid value: "every day": expected exactly 5 fields, found 2: [every day]"#,
        ],
    );
}

#[test]
fn a_disruption_budget_says_one_of_two_things() {
    let budgets = Subject::of("policy", "PodDisruptionBudget");
    let budget = budgets.created(
        json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}}),
    );
    assert_eq!(budget["spec"], json!({"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}));
    assert_eq!(
        budget["status"],
        json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0})
    );
    let (_, errors) = budgets.create(json!({"spec": {"minAvailable": 1, "maxUnavailable": "10%"}}));
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].detail, "minAvailable and maxUnavailable cannot be both set");
}

#[test]
fn a_storage_class_is_for_good() {
    let classes = Subject::of("storage.k8s.io", "StorageClass");
    let class = classes.created(json!({"metadata": {"name": "sc"}, "provisioner": "example.com/x"}));
    assert_eq!(
        class,
        json!({
            "metadata": {"name": "sc"}, "provisioner": "example.com/x", "reclaimPolicy": "Delete",
            "volumeBindingMode": "Immediate",
        })
    );
    let (_, errors) = classes.update(Endpoint::Main, &class, |class| class["provisioner"] = json!("example.com/y"));
    assert_errors(errors, &[r#"provisioner: Invalid value: "example.com/y": field is immutable"#]);
}

#[test]
fn a_network_policy_is_about_what_comes_in_unless_it_says_more() {
    let policies = Subject::of("networking.k8s.io", "NetworkPolicy");
    let policy = policies.created(json!({"metadata": {"name": "n"}, "spec": {
        "podSelector": {},
        "ingress": [{"from": [{"podSelector": {"matchLabels": {"a": "b"}}}], "ports": [{"port": 80}]}],
    }}));
    assert_eq!(
        policy["spec"],
        json!({
            "ingress": [{
                "from": [{"podSelector": {"matchLabels": {"a": "b"}}}],
                "ports": [{"port": 80, "protocol": "TCP"}],
            }],
            "podSelector": {},
            "policyTypes": ["Ingress"],
        })
    );
    policies.refused(
        json!({"metadata": {"name": "n"}, "spec": {"podSelector": {}, "egress": [
            {"to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/16"]}}, {}], "ports": [{"port": 5, "endPort": 4}]},
        ]}}),
        &[
            "spec.egress[0].ports[0].endPort: Invalid value: 4: must be greater than or equal to `port`",
            r#"spec.egress[0].to[0].ipBlock.except[0]: Invalid value: "11.0.0.0/16": must be a strict subset of `cidr`: 10.0.0.0/8"#,
            "spec.egress[0].to[1]: Required value: must specify a peer",
        ],
    );
}

#[test]
fn rules_of_a_role_name_verbs_and_resources() {
    let roles = Subject::of("rbac.authorization.k8s.io", "Role");
    roles.refused(
        json!({"metadata": {"name": "r"}, "rules": [
            {"apiGroups": [""], "resources": ["pods"]}, {"nonResourceURLs": ["/x"], "verbs": ["get"]}, {"verbs": ["get"]},
        ]}),
        &[
            "rules[0].verbs: Required value: verbs must contain at least one value",
            r#"rules[1].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs"#,
            "rules[2].apiGroups: Required value: resource rules must supply at least one api group",
            "rules[2].resources: Required value: resource rules must supply at least one resource",
        ],
    );
    let role = roles.created(json!({"metadata": {"name": "empty"}}));
    assert_eq!(role["rules"], json!(null));
    assert!(roles.strategy().name_faults("My:Role").is_empty());
}

#[test]
fn the_role_of_a_binding_is_for_good() {
    let bindings = Subject::of("rbac.authorization.k8s.io", "RoleBinding");
    let binding = bindings.created(json!({
        "metadata": {"name": "rb"}, "roleRef": {"kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": "alice"}, {"kind": "ServiceAccount", "name": "robot"}],
    }));
    assert_eq!(
        (&binding["roleRef"], &binding["subjects"]),
        (
            &json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}),
            &json!([
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"},
                {"kind": "ServiceAccount", "name": "robot"},
            ])
        )
    );
    let (_, errors) = bindings.update(Endpoint::Main, &binding, |binding| binding["roleRef"]["name"] = json!("edit"));
    assert_errors(
        errors,
        &[
            r#"roleRef: Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"ClusterRole","Name":"edit"}: cannot change roleRef"#,
        ],
    );
    bindings.refused(
        json!({"metadata": {"name": "b"}, "roleRef": {"apiGroup": "x", "kind": "Deployment", "name": ""}}),
        &[
            r#"roleRef.apiGroup: Unsupported value: "x": supported values: "rbac.authorization.k8s.io""#,
            r#"roleRef.kind: Unsupported value: "Deployment": supported values: "Role", "ClusterRole""#,
            "roleRef.name: Required value",
        ],
    );
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let cells = bindings.strategy().cells(bindings.version(), &binding, now);
    assert_eq!(cells[3..], [json!("alice"), json!(""), json!("/robot")]);
}

#[test]
fn a_claim_and_a_volume_wait_for_each_other() {
    let claims = Subject::of("", "PersistentVolumeClaim");
    let claim = claims.created(json!({"metadata": {"name": "c"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    }}));
    assert_eq!(
        claim["spec"],
        json!({
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeMode": "Filesystem",
        })
    );
    assert_eq!(claim["status"], json!({"phase": "Pending"}));
    let (_, errors) =
        claims.update(Endpoint::Main, &claim, |claim| claim["spec"]["accessModes"] = json!(["ReadOnlyMany"]));
    assert_errors(
        errors,
        &[
            "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
        ],
    );
    let (_, errors) = claims.update(Endpoint::Main, &claim, |claim| claim["spec"]["volumeName"] = json!("pv"));
    assert_errors(errors, &[]);
    let volumes = Subject::of("", "PersistentVolume");
    let volume = volumes.created(json!({
        "metadata": {"name": "pv", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}},
    }));
    assert_eq!(
        volume["spec"],
        json!({
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x", "type": ""},
            "persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem",
        })
    );
    assert_eq!(volume["status"], json!({"lastPhaseTransitionTime": "2026-01-01T00:00:00Z", "phase": "Pending"}));
}

#[test]
fn an_ingress_leads_somewhere() {
    let ingresses = Subject::of("networking.k8s.io", "Ingress");
    let backend = json!({"service": {"name": "svc", "port": {"number": 80}}});
    let spec = json!({"rules": [{"host": "a.example.com", "http": {"paths": [
        {"path": "/", "pathType": "Prefix", "backend": backend},
    ]}}]});
    let ingress = ingresses.created(json!({"metadata": {"name": "i"}, "spec": spec}));
    assert_eq!((&ingress["spec"], &ingress["status"]), (&spec, &json!({"loadBalancer": {}})));
    ingresses.refused(
        json!({"metadata": {"name": "i"}, "spec": {"rules": [{"host": "1.2.3.4", "http": {"paths": [
            {"path": "x", "pathType": "Exact", "backend": {"service": {"name": "svc", "port": {}}}},
        ]}}]}}),
        &[
            "spec.rules[0].host: Invalid value: \"1.2.3.4\": must be a DNS name, not an IP address",
            "spec.rules[0].http.paths[0].backend: Required value: port name or number is required",
            r#"spec.rules[0].http.paths[0].path: Invalid value: "x": must be an absolute path"#,
        ],
    );
}

#[test]
fn a_new_node_is_not_ready() {
    let nodes = Subject::of("", "Node");
    let node = nodes.created(json!({"metadata": {"name": "n", "labels": {"node-role.kubernetes.io/worker": ""}}}));
    assert_eq!(node["spec"], json!({}));
    assert_eq!(node["status"]["daemonEndpoints"], json!({"kubeletEndpoint": {"Port": 0}}));
    assert_eq!(node["status"]["nodeInfo"]["kubeletVersion"], "");
    let mut ready = node.clone();
    ready["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    ready["spec"]["unschedulable"] = json!(true);
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let cells = nodes.strategy().cells(nodes.version(), &ready, now);
    assert_eq!(cells[1..3], [json!("Ready,SchedulingDisabled"), json!("worker")]);
}

#[test]
fn an_autoscaler_written_in_v1_is_read_in_v2() {
    let scalers = Subject::of("autoscaling", "HorizontalPodAutoscaler");
    let strategy = scalers.strategy();
    let (v2, v1) = (&scalers.resource.versions[0], &scalers.resource.versions[1]);
    let body = json!({"apiVersion": "autoscaling/v1", "metadata": {"name": "h"}, "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}, "maxReplicas": 5,
    }});
    let mut requested = strategy.decode(v1, Body::Tree(body), &Budget::unlimited()).unwrap().value;
    strategy.default(v1, &mut requested, &Budget::unlimited()).unwrap();
    let mut stored = strategy.internal(v1, requested);
    strategy.prepare_create(v1, &mut stored);
    assert_eq!(strategy.validate_create(v1, &stored, &Budget::unlimited()), []);
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
    let metrics = json!([{
        "resource": {"name": "cpu", "target": {"averageUtilization": 80, "type": "Utilization"}}, "type": "Resource",
    }]);
    assert_eq!(stored["apiVersion"], "autoscaling/v2");
    assert_eq!(
        stored["spec"],
        json!({"maxReplicas": 5, "metrics": metrics, "minReplicas": 1, "scaleTargetRef": target})
    );
    let shown = strategy.present(v1, stored.clone());
    assert_eq!(
        (&shown["apiVersion"], &shown["spec"]),
        (
            &json!("autoscaling/v1"),
            &json!({
                "maxReplicas": 5, "minReplicas": 1, "scaleTargetRef": target, "targetCPUUtilizationPercentage": 80,
            })
        )
    );
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    assert_eq!(
        strategy.cells(v2, &stored, now)[1..6],
        [json!("Deployment/d"), json!("cpu: <unknown>/80%"), json!("1"), json!(5), json!(0)]
    );
}

#[test]
fn a_behavior_that_names_one_direction_has_the_defaults_of_the_other() {
    let scalers = Subject::of("autoscaling", "HorizontalPodAutoscaler");
    let scaler = |behavior: Value| json!({"metadata": {"name": "h"}, "spec": {"maxReplicas": 5, "behavior": behavior}});
    let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
    let policies = json!([{"type": "Pods", "value": 4, "periodSeconds": 15}, percent]);
    let up = json!({"selectPolicy": "Max", "stabilizationWindowSeconds": 0, "policies": policies});
    let read = scalers.read(scaler(json!({"scaleDown": {"stabilizationWindowSeconds": 5}})));
    let down = json!({"selectPolicy": "Max", "stabilizationWindowSeconds": 5, "policies": [percent]});
    assert_eq!(read["spec"]["behavior"], json!({"scaleDown": down, "scaleUp": up}));
    let read = scalers.read(scaler(json!({})));
    let down = json!({"selectPolicy": "Max", "policies": [percent]});
    assert_eq!(read["spec"]["behavior"], json!({"scaleDown": down, "scaleUp": up}));
    let read = scalers.read(json!({"metadata": {"name": "h"}, "spec": {"maxReplicas": 5}}));
    assert!(read["spec"].get("behavior").is_none());
}

#[test]
fn a_revision_is_for_good() {
    let revisions = Subject::of("apps", "ControllerRevision");
    let revision = revisions.created(json!({
        "metadata": {"name": "r", "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "u", "controller": true},
        ]},
        "revision": 2, "data": {"spec": {"any": ["thing"]}},
    }));
    assert_eq!(revision["data"], json!({"spec": {"any": ["thing"]}}));
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let cells = revisions.strategy().cells(revisions.version(), &revision, now);
    assert_eq!(cells[1..3], [json!("statefulset.apps/web"), json!(2)]);
    for data in [json!(-1.5), json!(true)] {
        let revision = json!({"metadata": {"name": "r"}, "revision": 2, "data": data});
        revisions.refused(revision, &["data: Required value: data must be a valid JSON object"]);
    }
    let (_, errors) = revisions.update(Endpoint::Main, &revision, |revision| revision["data"] = json!({}));
    assert_errors(errors, &["data: Invalid value: {}: field is immutable"]);
}

#[test]
fn an_ingress_class_names_its_controller() {
    let classes = Subject::of("networking.k8s.io", "IngressClass");
    classes.created(json!({"metadata": {"name": "c"}, "spec": {"controller": "example.com/c"}}));
    classes.refused(
        json!({"metadata": {"name": "c"}, "spec": {"controller": "c", "parameters": {"kind": "K", "name": "n", "scope": "Namespace"}}}),
        &[
            "spec.controller: Invalid value: \"c\": must be a domain-prefixed path (such as \"acme.io/foo\")",
            "spec.parameters.namespace: Required value: `parameters.scope` is set to 'Namespace'",
        ],
    );
}

#[test]
fn a_priority_class_is_for_good_and_below_the_clusters_own() {
    let classes = Subject::of("scheduling.k8s.io", "PriorityClass");
    let class = classes.created(json!({"metadata": {"name": "pc"}, "value": 10}));
    assert_eq!((&class["preemptionPolicy"], class.get("globalDefault")), (&json!("PreemptLowerPriority"), None));
    let (_, errors) = classes.update(Endpoint::Main, &class, |class| class["value"] = json!(11));
    assert_errors(errors, &["value: Forbidden: may not be changed in an update."]);
    classes.refused(
        json!({"metadata": {"name": "pc"}, "value": 1_000_000_001}),
        &["value: Forbidden: maximum allowed value of a user defined priority is 1000000000"],
    );
}
