//! The fields in kube-apiserver's errors, as found by `cargo xtask differential`.

use super::*;

/// The fields in the errors of a new object, sorted, each once.
#[track_caller]
fn blamed(group: &str, kind: &str, body: Value) -> Vec<String> {
    fields(&Subject::of(group, kind).create(body).1)
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
    // The rules of an init container count only beside a policy.
    let init = |policy: &str| {
        let mut init = json!({"name": "i", "image": "i", "restartPolicyRules": [{"action": "x"}]});
        if !policy.is_empty() {
            init["restartPolicy"] = json!(policy);
        }
        let containers = json!([{"name": "c", "image": "i"}]);
        blamed("", "PodTemplate", pod_template(json!({"containers": containers, "initContainers": [init]})))
    };
    let at = |field: &str| format!("template.spec.initContainers[0].{field}");
    assert_eq!(init(""), [at("restartPolicy")]);
    assert_eq!(init("Always"), [at("restartPolicyRules[0].action"), at("restartPolicyRules[0].exitCodes")]);
}

#[test]
fn only_a_new_pod_must_not_have_a_node_while_it_is_held_back() {
    let spec = json!({
        "containers": [{"name": "c", "image": "i"}],
        "nodeName": "n",
        "schedulingGates": [{"name": "example.com/g"}],
    });
    assert_eq!(blamed("", "Pod", json!({"spec": spec})), ["spec.nodeName"]);
    assert!(blamed("", "PodTemplate", pod_template(spec)).is_empty());
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

#[test]
fn variables_from_nowhere_are_blamed_as_a_list_and_references_by_their_names() {
    let container = |fields: Value| {
        let mut container = json!({"name": "c", "image": "i"});
        container.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        blamed("", "PodTemplate", pod_template(json!({"containers": [container]})))
    };
    assert_eq!(container(json!({"envFrom": [{}]})), ["template.spec.containers[0].envFrom"]);
    let from = "template.spec.containers[0].env[0].valueFrom";
    let variable = |source: Value| container(json!({"env": [{"name": "A", "valueFrom": source}]}));
    assert_eq!(
        variable(json!({"configMapKeyRef": {"name": "A", "key": "k"}})),
        [format!("{from}.configMapKeyRef.name")]
    );
    assert_eq!(
        variable(json!({"fileKeyRef": {"volumeName": "a.b", "path": "../a", "key": "k"}})),
        [format!("{from}.fileKeyRef.path"), format!("{from}.fileKeyRef.volumeName")]
    );
}

#[test]
fn addresses_of_hosts_and_keys_of_topologies_are_any_text_and_images_of_templates_may_have_blanks() {
    let spec = json!({
        "containers": [{"name": "c", "image": " i", "ports": [{"containerPort": 1, "hostIP": "a.b/c"}]}],
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "a-", "whenUnsatisfiable": "DoNotSchedule"}],
    });
    assert_eq!(blamed("", "PodTemplate", pod_template(spec.clone())), [""; 0]);
    assert_eq!(blamed("", "Pod", json!({"metadata": {"name": "p"}, "spec": spec})), ["spec.containers[0].image"]);
}

#[test]
fn sources_of_volumes_that_no_kubelet_mounts_any_more_are_checked() {
    let volume = |fields: Value| {
        let mut volume = json!({"name": "v"});
        volume.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        blamed("", "PodTemplate", pod_template(json!({"volumes": [volume]})))
    };
    let at = |field: &str| format!("template.spec.volumes[0].{field}");
    assert_eq!(volume(json!({"quobyte": {"registry": "a:1,b", "volume": "v"}})), [at("quobyte.registry")]);
    assert_eq!(volume(json!({"quobyte": {"registry": "a:1,[::1]:2", "volume": "v"}})), [""; 0]);
    assert_eq!(volume(json!({"storageos": {"volumeName": "A"}})), [at("storageos.volumeName")]);
    assert_eq!(volume(json!({"fc": {"targetWWNs": ["a"], "wwids": ["b"]}})), [at("fc.lun"), at("fc.targetWWNs")]);
    assert_eq!(volume(json!({"emptyDir": {}, "downwardAPI": {}})), [at("downwarAPI")]);
}

#[test]
fn a_projection_is_blamed_where_it_is_wrong_and_may_be_of_nothing() {
    let sources = |sources: Value| {
        let volume = json!({"name": "v", "projected": {"sources": sources}});
        blamed("", "PodTemplate", pod_template(json!({"volumes": [volume]})))
    };
    let at = |field: &str| format!("template.spec.volumes[0].projected.{field}");
    assert_eq!(sources(json!([{}])), [""; 0]);
    assert_eq!(sources(json!([{"secret": {"name": "s"}, "configMap": {"name": "c"}}])), [at("sources[0]")]);
    assert_eq!(sources(json!([{"downwardAPI": {"items": [{"path": "p"}]}}])), [at("sources[0].downwardAPI")]);
    assert_eq!(sources(json!([{"serviceAccountToken": {"path": ""}}])), [at("path")]);
}

#[test]
fn a_service_of_a_webhook_is_blamed_for_its_name_where_it_has_no_namespace() {
    let webhook = |service: Value| {
        let body = json!({"metadata": {"name": "w"}, "webhooks": [{
            "name": "a.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"service": service},
        }]});
        blamed("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", body)
    };
    let at = |field: &str| format!("webhooks[0].clientConfig.service.{field}");
    assert_eq!(webhook(json!({"name": "a"})), [at("name")]);
    assert_eq!(webhook(json!({"namespace": "a"})), [at("namespace")]);
}

#[test]
fn what_fills_the_volume_of_a_claim_is_checked_and_in_two_fields() {
    let claims = Subject::of("", "PersistentVolumeClaim");
    let claim = |fields: Value| {
        let mut spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        json!({"metadata": {"name": "c"}, "spec": spec})
    };
    let other = json!({"apiGroup": null, "kind": "PersistentVolumeClaim", "name": "a"});
    for field in ["dataSource", "dataSourceRef"] {
        let made = claims.created(claim(json!({field: other})));
        assert_eq!((&made["spec"]["dataSource"], &made["spec"]["dataSourceRef"]), (&other, &other));
    }
    // Only the newer field may refer to anything.
    let unknown = json!({"apiGroup": "example.com", "kind": "A", "name": "a"});
    assert_eq!(claims.created(claim(json!({"dataSource": unknown})))["spec"].get("dataSource"), None);
    assert_eq!(claims.created(claim(json!({"dataSourceRef": unknown})))["spec"]["dataSource"], unknown);
    let foreign = json!({"kind": "PersistentVolumeClaim", "name": "a", "namespace": "b"});
    assert_eq!(claims.created(claim(json!({"dataSourceRef": foreign})))["spec"].get("dataSourceRef"), None);
    let errors = |fields: Value| blamed("", "PersistentVolumeClaim", claim(fields));
    assert_eq!(
        errors(json!({"dataSourceRef": {"apiGroup": "a/b", "kind": "A", "name": ""}})),
        ["spec.dataSource.apiGroup", "spec.dataSource.name", "spec.dataSourceRef.apiGroup", "spec.dataSourceRef.name"]
    );
    assert_eq!(errors(json!({"dataSource": other, "dataSourceRef": unknown})), ["spec"]);
    assert_eq!(errors(json!({"resources": {"requests": {"storage": "0"}}})), ["spec.resources[storage]"]);
}

#[test]
fn an_event_is_checked_against_the_namespace_of_its_object_whenever_it_is_written() {
    let events = Subject::of("events.k8s.io", "Event");
    let event = |regarding: Value| {
        json!({"metadata": {"name": "e", "namespace": "n"}, "eventTime": "2024-01-01T00:00:00.000000Z", "action": "A",
            "reason": "R", "type": "Normal", "reportingController": "example.com/c", "reportingInstance": "i",
            "regarding": regarding})
    };
    let mut timeless = event(json!({"namespace": "m"}));
    timeless.as_object_mut().unwrap().remove("eventTime");
    assert_eq!(fields(&events.create(timeless).1), ["eventTime", "involvedObject.namespace"]);
    let mut old = events.created(event(json!({"namespace": "n"})));
    old["involvedObject"] = json!({});
    old["action"] = json!("");
    let shown = events.strategy().present(events.version(), old.clone());
    let new = events.strategy().internal(events.version(), events.read(shown));
    let errors = events.strategy().validate_update(events.version(), Endpoint::Main, &new, &old, &Budget::unlimited());
    assert_eq!(fields(&errors), ["action", "involvedObject.namespace"]);
}

#[test]
fn smaller_rules_blame_what_upstream_blames() {
    let namespaces = Subject::of("", "Namespace");
    let old = namespaces.created(json!({"metadata": {"name": "n"}}));
    let (_, errors) = namespaces.update(Endpoint::Status, &old, |one| one["status"]["phase"] = json!("Terminating"));
    assert_eq!(fields(&errors), ["status.Phase"]);
    let mut set = deployment(json!({}));
    set["spec"].as_object_mut().unwrap().remove("selector");
    assert_eq!(blamed("apps", "DaemonSet", set), ["spec.template.metadata.labels"]);
    let headless = json!({"metadata": {"name": "s"}, "spec": {
        "clusterIP": "None", "ports": [{"port": 1, "targetPort": "50%"}],
    }});
    assert_eq!(blamed("", "Service", headless), ["spec.ports[0].targetPort"]);
}

#[test]
fn a_job_keeps_the_labels_that_its_selector_was_made_of() {
    let jobs = Subject::of("batch", "Job");
    let spec = json!({"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"});
    let body = json!({"metadata": {"name": "j", "uid": "u"}, "spec": {"template": {"spec": spec}}});
    let old = jobs.created(body);
    let label = "/spec/template/metadata/labels/batch.kubernetes.io~1job-name";
    let (_, errors) = jobs.update(Endpoint::Main, &old, |job| *job.pointer_mut(label).unwrap() = json!("k"));
    assert_eq!(fields(&errors), ["spec.template", "spec.template.metadata.labels[batch.kubernetes.io/job-name]"]);
    let (_, errors) =
        jobs.update(Endpoint::Main, &old, |job| job["spec"]["selector"]["matchLabels"]["A b"] = json!(""));
    assert_eq!(fields(&errors), ["spec.selector", "spec.selector.matchLabels"]);
}

#[test]
fn what_a_loop_says_of_the_size_of_a_claim_is_checked() {
    let claims = Subject::of("", "PersistentVolumeClaim");
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let old = claims.created(json!({"metadata": {"name": "c"}, "spec": spec}));
    let errors = |status: Value| fields(&claims.update(Endpoint::Status, &old, |claim| claim["status"] = status).1);
    assert_eq!(errors(json!({"allocatedResources": {"app": "1"}})), ["status.allocatedResources"]);
    assert_eq!(errors(json!({"allocatedResources": {"storage": "-1"}})), ["status.allocatedResources[storage]"]);
    let states = "status.allocatedResourceStatuses";
    assert_eq!(errors(json!({"allocatedResourceStatuses": {"storage": "x"}})), [states]);
    assert_eq!(errors(json!({"allocatedResourceStatuses": {"storage": "NodeResizePending"}})), [""; 0]);
    assert_eq!(errors(json!({"capacity": {"storage": "-1"}})), ["status.capacity[storage]"]);
}

#[test]
fn templates_of_claims_are_checked_when_a_set_is_created_and_conditions_of_a_budget_always() {
    let set = json!({"metadata": {"name": "s"}, "spec": {
        "serviceName": "s", "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        "volumeClaimTemplates": [{"metadata": {"name": "v"}, "spec": {}}],
    }});
    let at = |field: &str| format!("spec.volumeClaimTemplates[0].spec.{field}");
    assert_eq!(blamed("apps", "StatefulSet", set.clone()), [at("accessModes"), at("resources[storage]")]);
    let budgets = Subject::of("policy", "PodDisruptionBudget");
    let old = budgets.created(json!({"metadata": {"name": "b"}, "spec": {}}));
    let condition = json!({"type": "A", "status": "x", "reason": "R", "lastTransitionTime": "2024-01-01T00:00:00Z"});
    let (_, errors) =
        budgets.update(Endpoint::Status, &old, |budget| budget["status"]["conditions"] = json!([condition]));
    assert_eq!(fields(&errors), ["status.conditions[0].status"]);
}

#[test]
fn secrets_and_resources_of_an_ingress_have_names() {
    let ingress = json!({"metadata": {"name": "i"}, "spec": {
        "defaultBackend": {"resource": {"apiGroup": "$(A)", "kind": "a/b", "name": ".."}}, "tls": [{"secretName": "A"}],
    }});
    let at = |field: &str| format!("spec.defaultBackend.resource.{field}");
    let want = [at("apiGroup"), at("kind"), at("name"), "spec.tls[0].secretName".to_owned()];
    assert_eq!(blamed("networking.k8s.io", "Ingress", ingress), want);
}

#[test]
fn hosts_of_tls_may_be_addresses_and_those_of_rules_may_be_absent() {
    let ingress = json!({"metadata": {"name": "i"}, "spec": {
        "rules": [{"host": "1.2.3.4"}, {"host": ""}, {"host": "*.a"}, {"host": "a.*"}],
        "tls": [{"hosts": ["1.2.3.4", "", "*.a", "a.*"]}],
    }});
    let want = ["spec.rules[0].host", "spec.rules[3].host", "spec.tls[0].hosts[1]", "spec.tls[0].hosts[3]"];
    assert_eq!(blamed("networking.k8s.io", "Ingress", ingress), want);
}

#[test]
fn an_ingress_may_keep_an_invalid_name_of_a_secret() {
    let ingresses = Subject::of("networking.k8s.io", "Ingress");
    let backend = json!({"service": {"name": "s", "port": {"number": 1}}});
    let valid = ingresses
        .created(json!({"metadata": {"name": "i"}, "spec": {"defaultBackend": backend, "tls": [{"secretName": "a"}]}}));
    let mut invalid = valid.clone();
    invalid["spec"]["tls"][0]["secretName"] = json!("A");
    let renamed = |old: &Value| {
        fields(&ingresses.update(Endpoint::Main, old, |one| one["spec"]["tls"][0]["secretName"] = json!("B")).1)
    };
    assert_eq!(renamed(&invalid), [""; 0]);
    assert_eq!(renamed(&valid), ["spec.tls[0].secretName"]);
}

#[test]
fn users_of_the_host_and_of_a_pod_exclude_what_needs_the_others() {
    let spec = |fields: Value| blamed("", "PodTemplate", pod_template(fields));
    let host = json!({"hostUsers": false, "hostNetwork": true, "hostPID": true, "hostIPC": true});
    assert_eq!(spec(host), ["HostIPC", "HostPID", "hostNetwork"].map(|field| format!("template.spec.{field}")));
    let unmasked = |users: Value| {
        let container = json!({"name": "c", "image": "i", "securityContext": {"procMount": "Unmasked"}});
        spec(json!({"hostUsers": users, "containers": [container]}))
    };
    assert_eq!(unmasked(json!(false)), [""; 0]);
    assert_eq!(unmasked(json!(null)), ["template.spec.containers[0].securityContext.procMount"]);
}

#[test]
fn resources_of_a_pod_as_a_whole_are_checked() {
    let pod = |fields: Value| blamed("", "PodTemplate", pod_template(fields));
    assert_eq!(pod(json!({"resources": {"requests": {"a": "1"}}})), ["template.spec.resources.requests[a]"]);
    assert_eq!(pod(json!({"resources": {"limits": {"storage": "1"}}})), ["template.spec.resources.limits[storage]"]);
    assert_eq!(pod(json!({"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}})), [] as [&str; 0]);
    let container =
        json!([{"name": "c", "image": "i", "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "2"}}}]);
    assert_eq!(
        pod(json!({"resources": {"claims": [{"name": "a"}]}})),
        ["template.spec.resources.claims", "template.spec.resources.claims[0]"]
    );
    assert_eq!(
        pod(json!({"containers": container, "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}})),
        ["template.spec.resources.containers[0][cpu].limits", "template.spec.resources.requests[cpu]"]
    );
}

#[test]
fn huge_pages_are_requested_in_whole_pages() {
    let container = json!([{"name": "c", "image": "i", "resources": {"requests": {"hugepages-2Mi": "1500m"}}}]);
    assert_eq!(
        blamed("", "PodTemplate", pod_template(json!({"containers": container}))),
        [
            "template.spec.containers[0].resources",
            "template.spec.containers[0].resources.limits",
            "template.spec.containers[0].resources.requests[hugepages-2Mi]",
        ]
    );
}

#[test]
fn domains_that_are_searched_may_have_underscores_and_be_the_root() {
    let blamed =
        |searches: Value| blamed("", "PodTemplate", pod_template(json!({"dnsConfig": {"searches": searches}})));
    assert_eq!(blamed(json!([".", "a.b.", "_tcp.a_b"])), [] as [&str; 0]);
    assert_eq!(
        blamed(json!(["a", "A", ""])),
        ["template.spec.dnsConfig.searches[1]", "template.spec.dnsConfig.searches[2]"]
    );
}

#[test]
fn the_first_handler_of_a_probe_is_the_one_that_counts() {
    let probe = json!({"grpc": {"port": 0}, "tcpSocket": {"port": "1"}});
    let container = json!([{"name": "c", "image": "i", "readinessProbe": probe}]);
    assert_eq!(
        blamed("", "PodTemplate", pod_template(json!({"containers": container}))),
        [
            "template.spec.containers[0].readinessProbe.grpc",
            "template.spec.containers[0].readinessProbe.tcpSocket.port",
        ]
    );
}

#[test]
fn a_hook_sleeps_no_longer_than_the_pod_takes_to_end() {
    let hooked = |seconds: i64| {
        let hook = json!({"preStop": {"sleep": {"seconds": seconds}}});
        let containers = json!([{"name": "c", "image": "i", "lifecycle": hook}]);
        blamed("", "PodTemplate", pod_template(json!({"terminationGracePeriodSeconds": 20, "containers": containers})))
    };
    assert_eq!(hooked(20), [] as [&str; 0]);
    assert_eq!(hooked(21), ["template.spec.containers[0].lifecycle.preStop.sleep"]);
}

#[test]
fn what_a_pod_says_of_windows_is_checked() {
    let options = |options: Value| {
        let context = json!({"windowsOptions": options});
        let containers = json!([{"name": "c", "image": "i", "securityContext": context}]);
        blamed("", "PodTemplate", pod_template(json!({"containers": containers})))
    };
    let at = "template.spec.containers[0].securityContext.windowsOptions";
    assert_eq!(options(json!({"gmsaCredentialSpecName": "a b"})), [format!("{at}.gmsaCredentialSpecName")]);
    for user in ["", "a\\b\\c", "a\\", "..", "a:b", ".\\a"] {
        assert_eq!(options(json!({"runAsUserName": user})), [format!("{at}.runAsUserName")], "{user}");
    }
    assert_eq!(options(json!({"runAsUserName": "DOMAIN\\user"})), [] as [&str; 0]);
    assert_eq!(options(json!({"hostProcess": true})), ["template.spec.hostNetwork"]);
}

#[test]
fn a_variable_from_a_file_names_an_empty_volume() {
    let variable = json!({"name": "a", "valueFrom": {"fileKeyRef": {"key": "K", "path": "p", "volumeName": "v"}}});
    let fields = |volumes: Value| {
        let containers = json!([{"name": "c", "image": "i", "env": [variable]}]);
        blamed("", "PodTemplate", pod_template(json!({"containers": containers, "volumes": volumes})))
    };
    let at = "template.spec.containers[0].env[0].valueFrom.fileKeyRef.volumeName";
    assert_eq!(fields(json!([])), [at]);
    assert_eq!(fields(json!([{"name": "v", "hostPath": {"path": "/"}}])), [at]);
    assert_eq!(fields(json!([{"name": "v", "emptyDir": {}}])), [] as [&str; 0]);
}

#[test]
fn keys_of_labels_that_spread_pods_need_a_selector() {
    let spread = |more: Value| {
        let mut constraint = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"});
        constraint.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        blamed("", "PodTemplate", pod_template(json!({"topologySpreadConstraints": [constraint]})))
    };
    let at = "template.spec.topologySpreadConstraints[0].matchLabelKeys";
    assert_eq!(spread(json!({"matchLabelKeys": ["a"]})), [at]);
    assert_eq!(spread(json!({"matchLabelKeys": ["a b"], "labelSelector": {}})), [format!("{at}[0]")]);
}

#[test]
fn keys_of_labels_in_an_affinity_are_in_one_of_its_lists_and_not_in_its_selector() {
    let term = |more: Value| {
        let mut term = json!({"topologyKey": "zone"});
        term.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let affinity = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
        let fields = blamed("", "PodTemplate", pod_template(json!({"affinity": affinity})));
        let at = "template.spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]";
        fields.iter().map(|field| field.replace(at, "")).collect::<Vec<_>>()
    };
    assert_eq!(term(json!({"matchLabelKeys": ["a"]})), [".matchLabelKeys"]);
    assert_eq!(term(json!({"mismatchLabelKeys": ["a b"], "labelSelector": {}})), [".mismatchLabelKeys[0]"]);
    let both = json!({"matchLabelKeys": ["b", "a"], "mismatchLabelKeys": ["a"], "labelSelector": {}});
    assert_eq!(term(both), [".matchLabelKeys[1]"]);
    let expression = json!([{"key": "a", "operator": "Exists"}]);
    let selector = json!({"matchLabels": {"a": "b"}, "matchExpressions": expression});
    // Upstream omits the list from this path.
    assert_eq!(term(json!({"matchLabelKeys": ["a"], "labelSelector": selector})), ["[0]"]);
    assert_eq!(term(json!({"mismatchLabelKeys": ["a"], "labelSelector": selector})), [] as [&str; 0]);
}

#[test]
fn the_base_of_a_generated_name_of_an_api_service_is_its_version_and_group() {
    let fields = |base: &str| {
        let metadata = json!({"name": "v1.example.com", "generateName": base});
        let service = json!({"namespace": "n", "name": "s"});
        let spec = json!({"group": "example.com", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1, "service": service});
        blamed("apiregistration.k8s.io", "APIService", json!({"metadata": metadata, "spec": spec}))
    };
    assert_eq!(fields("v1.example.com"), [] as [&str; 0]);
    assert_eq!(fields("v1.example.com-"), ["metadata.generateName"]);
}

#[test]
fn a_stateful_set_gives_its_pods_their_names_whatever_the_template_says() {
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"hostname": "a/b", "containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"serviceName": "s", "selector": {"matchLabels": {"a": "b"}}, "template": template});
    assert_eq!(blamed("apps", "StatefulSet", json!({"metadata": {"name": "s"}, "spec": spec})), [] as [&str; 0]);
}

#[test]
fn endpoints_that_change_with_the_type_of_their_addresses_are_checked() {
    let slices = Subject::of("discovery.k8s.io", "EndpointSlice");
    let slice = json!({"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": [{"addresses": ["10.1.2.3"]}], "ports": []});
    let old = slices.created(slice);
    let (_, errors) = slices.update(Endpoint::Main, &old, |slice| slice["addressType"] = json!("IPv6"));
    assert_eq!(fields(&errors), ["addressType"]);
    let (_, errors) = slices.update(Endpoint::Main, &old, |slice| {
        slice["addressType"] = json!("IPv6");
        slice["endpoints"][0]["hostname"] = json!("a");
    });
    assert_eq!(fields(&errors), ["addressType", "endpoints[0].addresses"]);
}

#[test]
fn the_addresses_of_a_balancer_are_checked_where_there_is_one() {
    let services = Subject::of("", "Service");
    let old = services.created(json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}));
    let (_, errors) = services.update(Endpoint::Status, &old, |service| {
        service["status"]["loadBalancer"] = json!({"ingress": [{"hostname": "a.b", "ipMode": "VIP"}]});
    });
    assert_eq!(fields(&errors), ["status.loadBalancer.ingress"]);
}

#[test]
fn the_claim_for_extended_resources_is_for_requests_of_the_containers() {
    let pods = Subject::of("", "Pod");
    let resources = json!({"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}});
    let spec = json!({"containers": [{"name": "c", "image": "i", "resources": resources}]});
    let pod = pods.created(json!({"metadata": {"name": "p"}, "spec": spec}));
    let errors = |claim: &str, mappings: Value| {
        let (_, errors) = pods.update(Endpoint::Status, &pod, |pod| {
            pod["status"]["extendedResourceClaimStatus"] =
                json!({"resourceClaimName": claim, "requestMappings": mappings});
        });
        let fields = fields(&errors);
        fields.iter().map(|field| field.replace("status.extendedResourceClaimStatus", "")).collect::<Vec<_>>()
    };
    let mapping = |container: &str, resource: &str, request: &str| json!({"containerName": container, "resourceName": resource, "requestName": request});
    let right = mapping("c", "example.com/gpu", "r");
    assert_eq!(errors("claim", json!([right])), [] as [&str; 0]);
    assert_eq!(errors("A", json!([])), [".requestMappings", ".resourceClaimName"]);
    let wrong = json!([mapping("d", "example.com/gpu", "r"), mapping("c", "cpu", "A")]);
    let at = |index: usize, field: &str| format!(".requestMappings[{index}].{field}");
    let want = [at(0, "containerName"), at(1, "resourceName"), ".requestName".to_owned()];
    assert_eq!(errors("c", wrong), want);
    let twice = ["containerName", "requestName", "resourceName"].map(|field| at(1, field));
    assert_eq!(errors("c", json!([right, right])), twice);
}

#[test]
fn a_budget_of_disruptions_may_have_any_name_that_fits_into_a_path() {
    let budget = |name: &str| {
        let budgets = Subject::of("policy", "PodDisruptionBudget");
        (budgets.strategy().name_faults(name).is_empty(), budgets.strategy().rules().validates_generate_name)
    };
    assert_eq!((budget("::1"), budget("a/b")), ((true, false), (false, false)));
}

#[test]
fn each_reference_of_variables_needs_a_name() {
    let sources = json!([{"configMapRef": {"name": "m"}, "secretRef": {}}]);
    let containers = json!([{"name": "c", "image": "i", "envFrom": sources}]);
    let at = "template.spec.containers[0].envFrom";
    let fields = blamed("", "PodTemplate", pod_template(json!({"containers": containers})));
    assert_eq!(fields, [at.to_owned(), format!("{at}[0].secretRef.name")]);
}

#[test]
fn a_file_about_a_field_is_not_blamed_for_a_resource() {
    let item =
        json!({"path": "p", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}, "resourceFieldRef": {}});
    let volumes = json!([{"name": "v", "downwardAPI": {"items": [item]}}]);
    let fields = blamed("", "PodTemplate", pod_template(json!({"volumes": volumes})));
    assert_eq!(fields, ["template.spec.volumes[0].downwardAPI"]);
}

#[test]
fn a_divisor_is_a_unit_of_its_resource() {
    let reference = |resource: &str, divisor: &str| {
        let source = json!({"resource": resource, "divisor": divisor, "containerName": "c"});
        let mut named = source.clone();
        named.as_object_mut().unwrap().remove("containerName");
        let env = json!([{"name": "A", "valueFrom": {"resourceFieldRef": named}}]);
        let containers = json!([{"name": "c", "image": "i", "env": env}]);
        let items = json!([{"path": "p", "resourceFieldRef": source}]);
        let volumes = json!([{"name": "v", "downwardAPI": {"items": items}}]);
        blamed("", "PodTemplate", pod_template(json!({"containers": containers, "volumes": volumes})))
    };
    for (resource, divisor) in [
        ("limits.cpu", "1m"),
        ("requests.cpu", "1"),
        ("limits.memory", "1Gi"),
        ("requests.memory", "1000"),
        ("limits.ephemeral-storage", "0"),
        ("limits.hugepages-2Mi", "1k"),
    ] {
        assert_eq!(reference(resource, divisor), [] as [&str; 0], "{resource} {divisor}");
    }
    let both = [
        "template.spec.containers[0].env[0].valueFrom.resourceFieldRef.divisor",
        "template.spec.volumes[0].downwardAPI.resourceFieldRef.divisor",
    ];
    for (resource, divisor) in [
        ("limits.cpu", "1e3"),
        ("requests.cpu", "10m"),
        ("limits.memory", "2Gi"),
        ("limits.ephemeral-storage", "1m"),
        ("requests.hugepages-2Mi", "3"),
    ] {
        assert_eq!(reference(resource, divisor), both, "{resource} {divisor}");
    }
    let blamed = reference("foo.cpu", "10m");
    assert!(blamed.iter().all(|field| field.ends_with(".resource")), "{blamed:?}");
}

#[test]
fn a_file_about_a_resource_names_its_container() {
    let item = json!({"path": "p", "resourceFieldRef": {"resource": "odd"}});
    let volumes = json!([{"name": "v", "downwardAPI": {"items": [item]}}]);
    let fields = blamed("", "PodTemplate", pod_template(json!({"volumes": volumes})));
    assert_eq!(fields, ["template.spec.volumes[0].downwardAPI.resourceFieldRef.containerName"]);
}

#[test]
fn each_file_of_a_projected_volume_has_a_path_of_its_own() {
    let items = |path: &str| json!([{"key": "k", "path": path}]);
    let field = json!({"apiVersion": "v1", "fieldPath": "metadata.name"});
    let sources = json!([
        {"secret": {"name": "s", "items": items("a")}},
        {"configMap": {"name": "m", "items": items("b")}},
        {"downwardAPI": {"items": [{"path": "c", "fieldRef": field}]}},
        {"serviceAccountToken": {"path": "d", "expirationSeconds": 3600}},
    ]);
    let volume = |sources: &Value| json!([{"name": "v", "projected": {"sources": sources}}]);
    let of = |sources: &Value| blamed("", "PodTemplate", pod_template(json!({"volumes": volume(sources)})));
    assert_eq!(of(&sources), [] as [&str; 0]);
    let mut shared = sources.clone();
    shared[3]["serviceAccountToken"]["path"] = json!("a");
    assert_eq!(of(&shared), [] as [&str; 0], "upstream does not compare the path of a token");
    for (part, path) in [(0, "/secret/items/0/path"), (1, "/configMap/items/0/path"), (2, "/downwardAPI/items/0/path")]
    {
        let mut odd = sources.clone();
        *odd[part].pointer_mut(path).unwrap() = json!("x");
        let last = json!({"secret": {"name": "t", "items": items("x")}});
        odd.as_array_mut().unwrap().push(last);
        assert_eq!(of(&odd), ["template.spec.volumes[0].projected"], "{path}");
    }
}

#[test]
fn the_amounts_of_a_quota_are_rounded_up_to_thousandths() {
    let quotas = Subject::of("", "ResourceQuota");
    let quota = quotas.created(json!({"metadata": {"name": "q"}, "spec": {"hard": {"cpu": "0.0001"}}}));
    assert_eq!(quota["spec"]["hard"]["cpu"], "1m");
    let used = json!({"hard": {"cpu": "0.0011"}, "used": {"cpu": "0.0001"}});
    let (new, _) = quotas.update(Endpoint::Status, &quota, |quota| quota["status"] = used);
    assert_eq!(new["status"], json!({"hard": {"cpu": "2m"}, "used": {"cpu": "1m"}}));
}

#[test]
fn a_class_of_storage_may_have_an_empty_policy() {
    let class = |policy: &str| json!({"metadata": {"name": "c"}, "provisioner": "p", "reclaimPolicy": policy});
    assert_eq!(blamed("storage.k8s.io", "StorageClass", class("")), [] as [&str; 0]);
    assert_eq!(blamed("storage.k8s.io", "StorageClass", class("Odd")), ["reclaimPolicy"]);
}

#[test]
fn a_job_without_the_newer_labels_goes_on_without_them() {
    let jobs = Subject::of("batch", "Job");
    let spec = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]});
    let template = json!({"metadata": {}, "spec": spec});
    let mut job = jobs.create(json!({"metadata": {"name": "j", "uid": "u"}, "spec": {"template": template}})).0;
    let missing = |job: &Value| {
        let (_, errors) = jobs.update(Endpoint::Main, job, |_| {});
        fields(&errors).into_iter().filter(|field| field.contains(".labels[")).collect::<Vec<_>>()
    };
    assert_eq!(missing(&job), [] as [&str; 0]);
    let labels = job["spec"]["template"]["metadata"]["labels"].as_object_mut().unwrap();
    labels.retain(|label, _| !label.contains('/'));
    assert_eq!(missing(&job), [] as [&str; 0]);
    job["spec"]["template"]["metadata"]["labels"] = json!({});
    let at = |label: &str| format!("spec.template.metadata.labels[{label}]");
    assert_eq!(missing(&job), [at("controller-uid"), at("job-name")]);
}

#[test]
fn an_amount_of_storage_with_the_highest_of_64_bits_is_negative_as_upstream() {
    let fields = |amount: &str| {
        let spec =
            json!({"capacity": {"storage": amount}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/"}});
        blamed("", "PersistentVolume", json!({"metadata": {"name": "v"}, "spec": spec}))
    };
    assert_eq!(fields("9223372036854775807"), [] as [&str; 0]);
    assert_eq!(fields("9223372036854775808"), ["spec.capacity[storage]"]);
    let claims = Subject::of("", "PersistentVolumeClaim");
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let claim = claims.created(json!({"metadata": {"name": "c", "resourceVersion": "1"}, "spec": spec}));
    let capacity = |claim: &mut Value| claim["status"]["capacity"] = json!({"storage": "9223372036854775808"});
    let (_, errors) = claims.update(Endpoint::Status, &claim, capacity);
    assert_eq!(super::fields(&errors), ["status.capacity[storage]"]);
}

#[test]
fn a_pod_without_a_service_account_has_no_token() {
    let source = json!({"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}});
    let volumes = json!([{"name": "v", "projected": {"sources": [source]}}]);
    let spec = json!({"containers": [{"name": "c", "image": "i"}], "volumes": volumes});
    let pod = json!({"metadata": {"name": "p"}, "spec": spec});
    assert_eq!(blamed("", "Pod", pod.clone()), ["spec.volumes[0].projected.sources[0].serviceAccountToken"]);
    let mut named = pod;
    named["spec"]["serviceAccountName"] = json!("a");
    assert_eq!(blamed("", "Pod", named), [] as [&str; 0]);
    assert_eq!(blamed("", "PodTemplate", pod_template(json!({"volumes": volumes}))), [] as [&str; 0]);
}

#[test]
fn a_class_of_runtimes_has_a_name_if_it_is_given() {
    let fields = blamed("", "PodTemplate", pod_template(json!({"runtimeClassName": ""})));
    assert_eq!(fields, ["template.spec.runtimeClassName"]);
}

#[test]
fn the_claims_of_a_pod_are_made_for_those_that_it_wants() {
    let pods = Subject::of("", "Pod");
    let claims = json!([{"name": "gpu", "resourceClaimName": "mine"}]);
    let spec = json!({"containers": [{"name": "c", "image": "i"}], "resourceClaims": claims});
    let pod = pods.created(json!({"metadata": {"name": "p"}, "spec": spec}));
    let errors = |name: &str, claim: &str| {
        let made = json!([{"name": name, "resourceClaimName": claim}]);
        fields(&pods.update(Endpoint::Status, &pod, |pod| pod["status"]["resourceClaimStatuses"] = made).1)
    };
    assert_eq!(errors("gpu", "mine"), [] as [&str; 0]);
    assert_eq!(errors("cpu", "mine"), ["status.resourceClaimStatuses[0].name"]);
    assert_eq!(errors("gpu", "A"), ["status.resourceClaimStatuses[0].resourceClaimName"]);
    let twice = json!([{"name": "gpu", "resourceClaimName": "mine"}, {"name": "gpu"}]);
    let (_, errors) = pods.update(Endpoint::Status, &pod, |pod| pod["status"]["resourceClaimStatuses"] = twice);
    assert_eq!(fields(&errors), ["status.resourceClaimStatuses[1].name"]);
}

#[test]
fn a_load_balancer_of_an_ingress_has_addresses_and_names() {
    let ingresses = Subject::of("networking.k8s.io", "Ingress");
    let backend = json!({"service": {"name": "s", "port": {"number": 80}}});
    let ingress = ingresses.created(json!({"metadata": {"name": "i"}, "spec": {"defaultBackend": backend}}));
    let errors = |address: Value| {
        let (_, errors) = ingresses.update(Endpoint::Status, &ingress, |ingress| {
            ingress["status"]["loadBalancer"]["ingress"] = json!([address]);
        });
        let fields = fields(&errors);
        fields.iter().map(|field| field.replace("status.loadBalancer.ingress[0]", "")).collect::<Vec<_>>()
    };
    assert_eq!(errors(json!({"ip": "1.2.3.4", "hostname": "a.example.com"})), [] as [&str; 0]);
    assert_eq!(errors(json!({"ip": "a", "hostname": "a-"})), [".hostname", ".ip"]);
    assert_eq!(errors(json!({"hostname": "1.2.3.4"})), [".hostname"]);
    let path = json!([{"http": {"paths": [{}]}}]);
    let untyped = json!({"metadata": {"name": "i"}, "spec": {"rules": path}});
    assert_eq!(blamed("networking.k8s.io", "Ingress", untyped), ["spec.rules[0].http.paths[0].pathType"]);
}

#[test]
fn the_nodes_of_a_volume_stay_but_for_newer_names_of_labels() {
    let volumes = Subject::of("", "PersistentVolume");
    let affinity = |key: &str| {
        let expression = json!({"key": key, "operator": "In", "values": ["a"]});
        json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}})
    };
    let errors = |before: &str, after: &str| {
        let spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/"}, "nodeAffinity": affinity(before)});
        let volume = volumes.created(json!({"metadata": {"name": "v"}, "spec": spec}));
        fields(&volumes.update(Endpoint::Main, &volume, |volume| volume["spec"]["nodeAffinity"] = affinity(after)).1)
    };
    assert_eq!(errors("beta.kubernetes.io/os", "kubernetes.io/os"), [] as [&str; 0]);
    assert_eq!(errors("kubernetes.io/os", "beta.kubernetes.io/os"), ["nodeAffinity"]);
    assert_eq!(errors("zone", "rack"), ["nodeAffinity"]);
    assert_eq!(errors("zone", ""), ["spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].key"]);
}
