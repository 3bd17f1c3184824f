//! The fields in kube-apiserver's errors, as found by `cargo xtask differential`.

use super::*;

/// The fields in the errors of a new object, sorted, each once.
#[track_caller]
fn blamed(group: &str, kind: &str, body: Value) -> Vec<String> {
    fields(&Subject::of(group, kind).create(body).1)
}

fn fields(errors: &[field::Error]) -> Vec<String> {
    let mut fields: Vec<String> =
        errors.iter().map(|error| error.to_string().split(": ").next().unwrap_or_default().to_owned()).collect();
    fields.sort();
    fields.dedup();
    fields
}

fn deployment(template: Value) -> Value {
    let mut whole = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    for (path, value) in template.as_object().unwrap() {
        *whole.pointer_mut(path).unwrap() = value.clone();
    }
    json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": whole}})
}

fn pod_template(fields: Value) -> Value {
    let mut spec = json!({"containers": [{"name": "c", "image": "i"}]});
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    json!({"metadata": {"name": "t"}, "template": {"metadata": {}, "spec": spec}})
}

#[test]
fn labels_of_a_template_are_blamed_without_its_metadata() {
    let labels = json!({"/metadata/labels": {"a": "b", "-": ""}});
    assert_eq!(blamed("apps", "Deployment", deployment(labels)), ["spec.template.labels"]);
}

#[test]
fn a_selector_that_selects_nothing_is_blamed_as_a_whole_in_place_of_the_template() {
    let mut object = deployment(json!({"/spec/containers": []}));
    object["spec"]["selector"] = json!({"matchExpressions": [{"key": "a", "operator": "Equal"}]});
    let expression = "spec.selector.matchExpressions[0].operator";
    assert_eq!(blamed("apps", "Deployment", object.clone()), ["spec.selector", expression]);
    assert_eq!(blamed("apps", "DaemonSet", object), [expression, "spec.template.spec.containers"]);
    let role =
        json!({"metadata": {"name": "r"}, "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"-": ""}}]}});
    assert_eq!(
        blamed("rbac.authorization.k8s.io", "ClusterRole", role),
        ["aggregationRule.clusterRoleSelectors[0]", "aggregationRule.clusterRoleSelectors[0].matchLabels"]
    );
}

#[test]
fn what_a_pod_says_beside_its_containers_is_checked() {
    for (fields, want) in [
        (json!({"overhead": {"a b": "1"}}), "template.spec.overhead.limits[a b]"),
        (json!({"hostNetwork": true, "hostnameOverride": "a"}), "template.spec.hostnameOverride"),
        (json!({"resources": {"claims": [{"name": "a"}]}}), "template.spec.resources.claims"),
        (json!({"securityContext": {"seLinuxChangePolicy": "x"}}), "template.spec.securityContext.seLinuxChangePolicy"),
        (json!({"os": {"name": "x"}}), "template.spec.os"),
    ] {
        assert_eq!(blamed("", "PodTemplate", pod_template(fields)), [want]);
    }
}

#[test]
fn the_restarts_of_a_container_are_checked() {
    let container = |fields: Value| {
        let mut container = json!({"name": "c", "image": "i"});
        container.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        blamed("", "PodTemplate", pod_template(json!({"containers": [container]})))
    };
    let at = |field: &str| format!("template.spec.containers[0].{field}");
    assert_eq!(container(json!({"restartPolicy": "x"})), [at("restartPolicy")]);
    assert_eq!(
        container(
            json!({"restartPolicyRules": [{"action": "x"}, {"action": "Restart", "exitCodes": {"operator": "x"}}]})
        ),
        [
            at("restartPolicy"),
            at("restartPolicyRules[0].action"),
            at("restartPolicyRules[0].exitCodes"),
            at("restartPolicyRules[1].exitCodes.operator"),
        ]
    );
    assert_eq!(container(json!({"resizePolicy": [{"resourceName": "x", "restartPolicy": "y"}]})), [at("resizePolicy")]);
}

#[test]
fn an_update_of_a_pod_is_checked_as_a_whole() {
    let pods = Subject::of("", "Pod");
    let toleration = json!({"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5});
    let spec = json!({"containers": [{"name": "c", "image": "i"}], "tolerations": [toleration]});
    let old = pods.created(json!({"metadata": {"name": "p"}, "spec": spec}));
    let (_, errors) =
        pods.update(Endpoint::Main, &old, |pod| pod["spec"]["tolerations"][0]["effect"] = json!("NoSchedule"));
    assert_eq!(fields(&errors), ["spec.tolerations", "spec.tolerations[0].effect"]);
}

#[test]
fn the_template_of_a_suspended_job_may_change_where_its_pods_run_and_what_they_need() {
    let jobs = Subject::of("batch", "Job");
    let spec = json!({"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"});
    let old = jobs.created(json!({"metadata": {"name": "j"}, "spec": {"suspend": true, "template": {"spec": spec}}}));
    let changed = |old: &Value, path: &str, value: Value| {
        fields(&jobs.update(Endpoint::Main, old, |job| *job.pointer_mut(path).unwrap() = value).1)
    };
    let resources = "/spec/template/spec/containers/0/resources";
    assert_eq!(changed(&old, resources, json!({"requests": {"cpu": "1"}})), [""; 0]);
    assert_eq!(changed(&old, "/spec/template/spec/dnsPolicy", json!("Default")), ["spec.template.spec"]);
    let mut running = old.clone();
    running["spec"]["suspend"] = json!(false);
    assert_eq!(changed(&running, resources, json!({"requests": {"cpu": "1"}})), ["spec.template"]);
    let mut ending = old;
    ending["status"] = json!({"active": 1});
    assert_eq!(changed(&ending, resources, json!({"requests": {"cpu": "1"}})), ["spec.template"]);
}

#[test]
fn terms_of_a_storage_class_select_different_nodes() {
    let class = |terms: Value| {
        let body = json!({"metadata": {"name": "c"}, "provisioner": "a/b", "allowedTopologies": terms});
        blamed("storage.k8s.io", "StorageClass", body)
    };
    let term = json!({"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]});
    assert_eq!(class(json!([term])), [""; 0]);
    assert_eq!(class(json!([term, term])), ["allowedTopologies[1].matchLabelExpressions"]);
    assert_eq!(class(json!([{}])), ["allowedTopologies[0].matchLabelExpressions"]);
    assert_eq!(
        class(json!([{"matchLabelExpressions": [{"key": "-", "values": []}]}])),
        ["allowedTopologies[0].matchLabelExpressions[0].key", "allowedTopologies[0].matchLabelExpressions[0].values",]
    );
}

#[test]
fn volumes_and_claims_are_blamed_by_upstreams_names() {
    let volume = json!({"metadata": {"name": "v"}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/a"},
        "cephfs": {"monitors": ["a"]}, "fc": {}, "nodeAffinity": {"required": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "a", "operator": "Lt", "values": []}]},
        ]}},
    }});
    assert_eq!(
        blamed("", "PersistentVolume", volume),
        ["spec.cephFS", "spec.fc", "spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].values",]
    );
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"]}});
    assert_eq!(blamed("", "PersistentVolumeClaim", claim), ["spec.resources[storage]"]);
    let service = json!({"metadata": {"name": "s"}, "spec": {
        "ports": [{"port": 1}], "loadBalancerSourceRanges": ["x"], "clusterIP": "None",
    }});
    assert_eq!(blamed("", "Service", service), ["spec.LoadBalancerSourceRanges", "spec.LoadBalancerSourceRanges[0]"]);
}

#[test]
fn parameters_of_an_ingress_class_have_names() {
    let class = json!({"metadata": {"name": "c"}, "spec": {"controller": "a.b/c", "parameters": {
        "apiGroup": "Ä", "kind": "a/b", "name": "..", "scope": "Namespace", "namespace": "a.b",
    }}});
    let at = |field: &str| format!("spec.parameters.{field}");
    assert_eq!(
        blamed("networking.k8s.io", "IngressClass", class),
        [at("apiGroup"), at("kind"), at("name"), at("namespace")]
    );
}

#[test]
fn a_template_of_claims_is_checked_when_it_changes_too_and_has_labels_and_annotations_only() {
    let templates = Subject::of("resource.k8s.io", "ResourceClaimTemplate");
    let old = templates.created(json!({"metadata": {"name": "t"}, "spec": {"spec": {}}}));
    let (_, errors) = templates.update(Endpoint::Main, &old, |template| {
        template["spec"]["metadata"] = json!({"labels": {"-": ""}, "name": "a"});
    });
    assert_eq!(fields(&errors), ["spec", "spec.metadata.labels", "spec.metadata.name"]);
}

#[test]
fn coordinated_election_of_a_lease_is_dropped_unless_it_is_there_already() {
    let leases = Subject::of("coordination.k8s.io", "Lease");
    let spec = json!({"strategy": "OldestEmulationVersion", "preferredHolder": "a"});
    let made = leases.created(json!({"metadata": {"name": "l"}, "spec": spec}));
    assert!(made["spec"].get("strategy").is_none() && made["spec"].get("preferredHolder").is_none());
    let mut old = made;
    old["spec"]["strategy"] = json!("OldestEmulationVersion");
    let (kept, errors) = leases.update(Endpoint::Main, &old, |lease| lease["spec"]["preferredHolder"] = json!("b"));
    assert_eq!((fields(&errors), &kept["spec"]["strategy"]), (Vec::new(), &json!("OldestEmulationVersion")));
}

#[test]
fn expressions_keep_their_operators_in_tables() {
    let selector = json!({"matchLabels": {"b": "1"}, "matchExpressions": [
        {"key": "a", "operator": "NotIn", "values": ["x"]}, {"key": "c", "operator": "In", "values": ["z", "y"]},
        {"key": "d", "operator": "DoesNotExist"}, {"key": "e", "operator": "Exists"},
    ]});
    assert_eq!(rules::selector::text(&selector), "a notin (x),b=1,c in (y,z),!d,e");
}
