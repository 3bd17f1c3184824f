//! Objects are stored as kube-apiserver stores them. `cargo xtask differential` found these cases.

use super::*;

#[test]
fn fields_without_their_feature_are_dropped_unless_they_are_there_already() {
    for (group, kind, mut body, path, value) in [
        ("storage.k8s.io", "CSIDriver", json!({"spec": {}}), "/spec/preventPodSchedulingIfMissing", json!(true)),
        (
            "",
            "Node",
            json!({"spec": {}}),
            "/spec/configSource",
            json!({"configMap": {"kubeletConfigKey": "k", "name": "n", "namespace": "m"}}),
        ),
        (
            "",
            "PodTemplate",
            json!({"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}),
            "/template/spec/schedulingGroup",
            json!({"podGroupName": "g"}),
        ),
    ] {
        let subject = Subject::of(group, kind);
        body["metadata"] = json!({"name": "a"});
        let put = |object: &mut Value| {
            let (parent, field) = path.rsplit_once('/').unwrap();
            object.pointer_mut(parent).unwrap()[field] = value.clone();
        };
        let mut sent = body;
        put(&mut sent);
        let made = subject.created(sent);
        assert_eq!(made.pointer(path), None, "{kind}");
        let (changed, errors) = subject.update(Endpoint::Main, &made, put);
        assert_eq!((changed.pointer(path), errors), (None, Vec::new()), "{kind}");
        let mut old = made;
        put(&mut old);
        assert_eq!(subject.update(Endpoint::Main, &old, |_| {}).0.pointer(path), Some(&value), "{kind}");
    }
}

#[test]
fn projections_without_their_feature_are_dropped_from_pods_and_templates() {
    let source = json!({"podCertificate": {"signerName": "a.b/c", "keyType": "ED25519"}, "secret": {"name": "s"}});
    let spec = json!({
        "containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "v", "projected": {"sources": [source, {"clusterTrustBundle": {"path": "p"}}]}}],
    });
    let pod = Subject::of("", "Pod").created(json!({"metadata": {"name": "p"}, "spec": spec}));
    let job = json!({"template": {"metadata": {}, "spec": {"restartPolicy": "Never"}}});
    let mut job = json!({"metadata": {"name": "j"}, "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": job}}});
    let template = "/spec/jobTemplate/spec/template/spec";
    job.pointer_mut(template).unwrap().as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let job = Subject::of("batch", "CronJob").created(job);
    for spec in [&pod["spec"], job.pointer(template).unwrap()] {
        assert_eq!(spec["volumes"][0]["projected"]["sources"], json!([{"secret": {"name": "s"}}, {}]));
    }
}

#[test]
fn an_empty_list_that_is_always_written_is_stored_as_null() {
    let node =
        Subject::of("storage.k8s.io", "CSINode").created(json!({"metadata": {"name": "n"}, "spec": {"drivers": [
            {"name": "a.example.com", "nodeID": "n", "topologyKeys": []},
        ]}}));
    assert_eq!(node["spec"]["drivers"][0]["topologyKeys"], Value::Null);
    let templates = Subject::of("resource.k8s.io", "ResourceClaimTemplate");
    let template =
        templates.created(json!({"metadata": {"name": "t"}, "spec": {"spec": {"devices": {"requests": []}}}}));
    assert_eq!(template["spec"]["spec"]["devices"]["requests"], Value::Null);
}

#[test]
fn a_topology_of_changed_endpoints_is_dropped_but_for_a_known_node() {
    let slices = Subject::of("discovery.k8s.io", "EndpointSlice");
    let host = "kubernetes.io/hostname";
    let endpoint = json!({"addresses": ["10.0.0.1"], "conditions": {}, "deprecatedTopology": {host: "n"}});
    let made = slices.created(json!({"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": [endpoint]}));
    assert_eq!(made["endpoints"][0], json!({"addresses": ["10.0.0.1"], "conditions": {}}));
    let mut old = made;
    old["endpoints"] = json!([endpoint]);
    assert_eq!(slices.update(Endpoint::Main, &old, |_| {}).0, old);
    let (new, errors) =
        slices.update(Endpoint::Main, &old, |slice| slice["endpoints"][0]["addresses"] = json!(["10.0.0.2"]));
    assert_eq!((&new["endpoints"][0]["nodeName"], errors), (&json!("n"), Vec::new()));
    assert_eq!(new["endpoints"][0].get("deprecatedTopology"), None);
}

#[test]
fn a_namespace_whose_status_is_emptied_is_active() {
    let namespaces = Subject::of("", "Namespace");
    let old = namespaces.created(json!({"metadata": {"name": "n"}}));
    let (new, errors) = namespaces.update(Endpoint::Status, &old, |namespace| namespace["status"] = json!({}));
    assert_eq!((&new["status"]["phase"], errors), (&json!("Active"), Vec::new()));
}

#[test]
fn a_headless_service_keeps_that_it_has_no_address() {
    let services = Subject::of("", "Service");
    let ports = json!([{"port": 1}]);
    let old = services.created(json!({"metadata": {"name": "s"}, "spec": {"clusterIP": "None", "ports": ports}}));
    let (new, errors) = services.update(Endpoint::Main, &old, |service| service["spec"] = json!({"ports": ports}));
    assert_eq!((&new["spec"]["clusterIP"], errors), (&json!("None"), Vec::new()));
    let (new, errors) = services.update(Endpoint::Main, &old, |service| service["spec"]["clusterIP"] = json!(""));
    assert_eq!((&new["spec"]["clusterIPs"], errors), (&json!(["None"]), Vec::new()));
}

#[test]
fn a_change_of_a_slice_that_is_dropped_counts() {
    let slices = Subject::of("resource.k8s.io", "ResourceSlice");
    let device = json!({"name": "d", "attributes": {"a": {"int": 1}}});
    let pool = json!({"name": "p", "generation": 1, "resourceSliceCount": 1});
    let spec = json!({"driver": "d.example.com", "pool": pool, "nodeName": "n", "devices": [device]});
    let old = slices.created(json!({"metadata": {"name": "s"}, "spec": spec}));
    let (new, errors) = slices
        .update(Endpoint::Main, &old, |slice| slice["spec"]["devices"][0]["attributes"]["a"]["ints"] = json!([1]));
    assert_eq!((&new["spec"], &new["metadata"]["generation"], errors), (&old["spec"], &json!(2), Vec::new()));
    assert_eq!(slices.update(Endpoint::Main, &old, |_| {}).0["metadata"]["generation"], 1);
}

#[test]
fn a_null_among_bytes_is_empty() {
    let map = Subject::of("", "ConfigMap").created(json!({"metadata": {"name": "m"}, "binaryData": {"a": null}}));
    assert_eq!(map["binaryData"], json!({"a": ""}));
}

#[test]
fn the_signal_that_ends_a_container_is_dropped_with_a_lifecycle_of_nothing_else() {
    let containers = json!([
        {"name": "a", "image": "i", "lifecycle": {"stopSignal": "SIGTERM"}},
        {"name": "b", "image": "i", "lifecycle": {"stopSignal": "SIGTERM", "preStop": {"sleep": {"seconds": 1}}}},
    ]);
    let pod = Subject::of("", "Pod").created(json!({"metadata": {"name": "p"}, "spec": {"containers": containers}}));
    assert_eq!(pod["spec"]["containers"][0].get("lifecycle"), None);
    assert_eq!(pod["spec"]["containers"][1]["lifecycle"], json!({"preStop": {"sleep": {"seconds": 1}}}));
}

#[test]
fn empty_lists_in_a_value_with_one_owner_are_there_until_it_is_stored() {
    let policies = Subject::of("networking.k8s.io", "NetworkPolicy");
    let body = json!({
        "metadata": {"name": "n", "labels": {}},
        "spec": {"podSelector": {}, "egress": [], "ingress": [{"from": [{"podSelector": {"matchLabels": {}}}], "ports": []}]},
    });
    let read = policies.read(body.clone());
    assert_eq!(read["spec"]["ingress"], body["spec"]["ingress"]);
    assert_eq!((read["spec"].get("egress"), read["metadata"].get("labels")), (None, None));
    assert_eq!(policies.created(body)["spec"]["ingress"], json!([{"from": [{"podSelector": {}}]}]));
}

#[test]
fn a_name_elsewhere_has_no_policy_for_traffic_inside() {
    let spec = json!({"type": "ExternalName", "externalName": "a.b", "internalTrafficPolicy": "Cluster"});
    let service = Subject::of("", "Service").created(json!({"metadata": {"name": "s"}, "spec": spec}));
    assert_eq!(service["spec"].get("internalTrafficPolicy"), None);
}

#[test]
fn templates_are_warned_about_when_they_change() {
    let ports = json!([{"containerPort": 80, "hostIP": "1.2.3.4"}]);
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i", "ports": ports}]}});
    let deployments = Subject::of("apps", "Deployment");
    let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
    let old = deployments.created(json!({"metadata": {"name": "d"}, "spec": spec}));
    let warnings = |new: &Value, old: &Value| deployments.strategy().warnings(deployments.version(), new, old);
    assert_eq!(
        warnings(&old, &Value::Null),
        [
            "spec.template.spec.containers[0].ports[0]: hostIP set without hostPort: {Name: HostPort:0 ContainerPort:80 Protocol:TCP HostIP:1.2.3.4}"
        ]
    );
    let (same, _) =
        deployments.update(Endpoint::Main, &old, |deployment| deployment["metadata"]["labels"] = json!({"x": "y"}));
    assert!(warnings(&same, &old).is_empty());
    let (changed, _) = deployments.update(Endpoint::Main, &old, |deployment| deployment["spec"]["replicas"] = json!(3));
    assert_eq!(warnings(&changed, &old).len(), 1);
}

#[test]
fn a_service_is_warned_of_fields_that_its_type_ignores() {
    let services = Subject::of("", "Service");
    let warnings = |spec: Value| {
        let service = services.created(json!({"metadata": {"name": "s"}, "spec": spec}));
        services.strategy().warnings(services.version(), &service, &Value::Null)
    };
    let headless = json!({"clusterIP": "None", "loadBalancerIP": "1.2.3.4", "sessionAffinity": "ClientIP", "ports": [{"port": 80}]});
    assert_eq!(
        warnings(headless),
        [
            "spec.loadBalancerIP is ignored for headless services",
            "spec.SessionAffinity is ignored for headless services"
        ]
    );
    let named = json!({"externalName": "a.b", "ports": [{"port": 80}]});
    assert_eq!(warnings(named), ["spec.externalName is ignored when spec.type is not \"ExternalName\""]);
}

#[test]
fn a_volume_knows_when_its_phase_began() {
    let volumes = Subject::of("", "PersistentVolume");
    let spec =
        json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "nfs": {"server": "s", "path": "/"}});
    let mut old = volumes.created(json!({"metadata": {"name": "v"}, "spec": spec}));
    old["status"]["lastPhaseTransitionTime"] = json!("2026-01-01T00:00:00Z");
    let written = |status: Value| {
        let (mut new, _) = volumes.update(Endpoint::Status, &old, |volume| volume["status"] = status);
        volumes.strategy().set_times(&mut new, &old, "2026-01-02T00:00:00Z");
        new["status"]["lastPhaseTransitionTime"].clone()
    };
    assert_eq!(written(json!({"phase": "Pending"})), "2026-01-01T00:00:00Z");
    assert_eq!(written(json!({"phase": "Available"})), "2026-01-02T00:00:00Z");
    assert_eq!(
        written(json!({"phase": "Bound", "lastPhaseTransitionTime": "2026-01-03T00:00:00Z"})),
        "2026-01-03T00:00:00Z"
    );
}

#[test]
fn amounts_of_storage_are_rounded_up_to_thousandths() {
    let spec =
        json!({"capacity": {"storage": "100u"}, "accessModes": ["ReadWriteOnce"], "nfs": {"server": "s", "path": "/"}});
    let volume = Subject::of("", "PersistentVolume").read(json!({"metadata": {"name": "v"}, "spec": spec}));
    assert_eq!(volume["spec"]["capacity"]["storage"], "1m");
    let spec = json!({"resources": {"requests": {"storage": "0.0001"}}});
    let claim = Subject::of("", "PersistentVolumeClaim").read(json!({"metadata": {"name": "c"}, "spec": spec}));
    assert_eq!(claim["spec"]["resources"]["requests"]["storage"], "1m");
}

#[test]
fn an_update_that_sends_what_is_not_kept_raises_the_generation_of_some_kinds() {
    let slices = Subject::of("discovery.k8s.io", "EndpointSlice");
    let endpoints = json!([{"addresses": ["10.1.2.3"]}]);
    let body = json!({"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": endpoints, "ports": []});
    let old = slices.created(body);
    let topology = |slice: &mut Value| slice["endpoints"][0]["deprecatedTopology"] = json!({"a": "b"});
    let (new, _) = slices.update(Endpoint::Main, &old, topology);
    assert_eq!((&new["metadata"]["generation"], &new["endpoints"]), (&json!(2), &old["endpoints"]));

    let policies = Subject::of("networking.k8s.io", "NetworkPolicy");
    let rule = json!({"from": [{"podSelector": {}}]});
    let old = policies.created(json!({"metadata": {"name": "n"}, "spec": {"podSelector": {}, "ingress": [rule]}}));
    assert_eq!(policies.update(Endpoint::Main, &old, |_| {}).0["metadata"]["generation"], 1);
    let (new, _) = policies.update(Endpoint::Main, &old, |policy| policy["spec"]["ingress"][0]["ports"] = json!([]));
    assert_eq!((&new["metadata"]["generation"], &new["spec"]), (&json!(2), &old["spec"]));
}

#[test]
fn sources_of_persistent_volumes_get_the_defaults_that_those_of_pods_get() {
    let defaults = |source: Value| {
        let mut spec = source;
        spec["capacity"] = json!({"storage": "1Gi"});
        spec["accessModes"] = json!(["ReadWriteOnce"]);
        Subject::of("", "PersistentVolume").created(json!({"metadata": {"name": "v"}, "spec": spec}))["spec"].clone()
    };
    let iscsi = json!({"iscsi": {"targetPortal": "p", "iqn": "iqn.2001-04.com.example:storage", "lun": 0}});
    assert_eq!(defaults(iscsi)["iscsi"]["iscsiInterface"], "default");
    let disk = &defaults(json!({"azureDisk": {"diskName": "d", "diskURI": "https://d.vhd"}}))["azureDisk"];
    let want = json!({"cachingMode": "ReadWrite", "fsType": "ext4", "kind": "Shared", "readOnly": false, "diskName": "d", "diskURI": "https://d.vhd"});
    assert_eq!(*disk, want);
}

#[test]
fn a_stateful_set_has_no_limit_of_unavailable_pods_without_the_feature() {
    let sets = Subject::of("apps", "StatefulSet");
    let set = |unavailable: Value| {
        let template =
            json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let strategy = json!({"rollingUpdate": {"maxUnavailable": unavailable}});
        let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template, "updateStrategy": strategy});
        json!({"metadata": {"name": "s"}, "spec": spec})
    };
    let made = sets.created(set(json!(0)));
    assert_eq!(made["spec"]["updateStrategy"]["rollingUpdate"], json!({"partition": 0}));
    // A set that has it already keeps it, and is checked.
    let mut old = made;
    old["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] = json!(1);
    let errors = |unavailable: Value| {
        let (_, errors) = sets.update(Endpoint::Main, &old, |set| {
            set["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] = unavailable;
        });
        errors.iter().map(|error| error.detail.clone()).collect::<Vec<_>>()
    };
    assert_eq!(errors(json!("50%")), [] as [&str; 0]);
    assert_eq!(errors(json!(0)), ["cannot be 0"]);
    assert_eq!(errors(json!("101%")), ["must not be greater than 100%"]);
}

#[test]
fn the_changes_of_a_template_are_counted_in_an_annotation_that_must_be_a_number() {
    let sets = Subject::of("apps", "DaemonSet");
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
    let set = sets.created(json!({"metadata": {"name": "s"}, "spec": spec}));
    let path = "/metadata/annotations/deprecated.daemonset.template.generation";
    let (status, errors) = sets.update(Endpoint::Status, &set, |set| *set.pointer_mut(path).unwrap() = json!("7"));
    assert_eq!((status.pointer(path), errors), (Some(&json!("1")), Vec::new()));
    let mut body = set;
    *body.pointer_mut(path).unwrap() = json!("many");
    let refused = sets.strategy().decode(sets.version(), Body::Tree(body), &Budget::unlimited()).unwrap_err();
    let want = "the annotation deprecated.daemonset.template.generation is \"many\", want a whole number of 64 bits";
    assert_eq!(refused.to_string(), want);
}

#[test]
fn selectors_of_a_pod_are_completed_with_its_own_labels() {
    let term = json!({
        "labelSelector": {"matchExpressions": [{"key": "x", "operator": "Exists"}]}, "topologyKey": "zone",
        "matchLabelKeys": ["app", "absent"], "mismatchLabelKeys": ["tenant"],
    });
    let affinity = json!({
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]},
    });
    let constraint = json!({
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {},
        "matchLabelKeys": ["app"],
    });
    let spec = json!({
        "containers": [{"name": "c", "image": "i"}], "affinity": affinity, "topologySpreadConstraints": [constraint],
    });
    let labels = json!({"app": "a", "tenant": "t"});
    let metadata = json!({"name": "p", "labels": labels});
    let pod = Subject::of("", "Pod").created(json!({"metadata": metadata, "spec": spec}));
    let own = |operator: &str, key: &str| json!({"key": key, "operator": operator, "values": [labels[key]]});
    let want = json!([{"key": "x", "operator": "Exists"}, own("In", "app"), own("NotIn", "tenant")]);
    let affinity = &pod["spec"]["affinity"];
    let required = &affinity["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0];
    let preferred = &affinity["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0];
    assert_eq!(required["labelSelector"]["matchExpressions"], want);
    assert_eq!(preferred["podAffinityTerm"]["labelSelector"]["matchExpressions"], want);
    let spread = &pod["spec"]["topologySpreadConstraints"][0]["labelSelector"];
    assert_eq!(*spread, json!({"matchExpressions": [own("In", "app")]}));
    let template = json!({"metadata": {"labels": labels}, "spec": spec});
    let template = Subject::of("", "PodTemplate").created(json!({"metadata": {"name": "t"}, "template": template}));
    assert_eq!(template["template"]["spec"]["topologySpreadConstraints"][0]["labelSelector"], json!({}));
}

#[test]
fn lists_of_slices_and_limits_that_are_empty_absent_or_null_are_null() {
    for list in [json!({}), json!({"endpoints": null, "ports": null}), json!({"endpoints": [], "ports": []})] {
        let mut slice = json!({"metadata": {"name": "s"}, "addressType": "IPv4"});
        slice.as_object_mut().unwrap().extend(list.as_object().unwrap().clone());
        let slice = Subject::of("discovery.k8s.io", "EndpointSlice").created(slice);
        assert_eq!((&slice["endpoints"], &slice["ports"]), (&Value::Null, &Value::Null), "{list}");
        assert!(slice.get("endpoints").is_some() && slice.get("ports").is_some());
    }
    for spec in [json!({}), json!({"limits": null}), json!({"limits": []})] {
        let range = Subject::of("", "LimitRange").created(json!({"metadata": {"name": "r"}, "spec": spec}));
        assert_eq!(range["spec"].get("limits"), Some(&Value::Null), "{spec}");
    }
}

#[test]
fn a_daemon_set_has_both_numbers_of_an_update_whose_way_is_another() {
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let strategy = json!({"type": "OnDelete", "rollingUpdate": {"maxUnavailable": 2}});
    let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template, "updateStrategy": strategy});
    let set = Subject::of("apps", "DaemonSet").created(json!({"metadata": {"name": "s"}, "spec": spec}));
    assert_eq!(set["spec"]["updateStrategy"]["rollingUpdate"], json!({"maxSurge": 0, "maxUnavailable": 2}));
}

#[test]
fn the_status_of_a_range_of_addresses_is_written_without_its_metadata() {
    let ranges = Subject::of("networking.k8s.io", "ServiceCIDR");
    let range = ranges.created(json!({"metadata": {"name": "r"}, "spec": {"cidrs": ["10.0.0.0/24"]}}));
    let (written, _) = ranges.update(Endpoint::Status, &range, |range| {
        range["metadata"]["annotations"] = json!({"-x": "y"});
    });
    assert_eq!(written["metadata"].get("annotations"), None);
}

#[test]
fn the_writer_of_an_older_version_owns_what_becomes_of_it() {
    let scalers = Subject::of("autoscaling", "HorizontalPodAutoscaler");
    let target = json!({"kind": "Deployment", "name": "d"});
    let annotations = json!({"autoscaling.alpha.kubernetes.io/metrics": "a-"});
    let scaler = json!({
        "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "h", "annotations": annotations}, "spec": {"scaleTargetRef": target, "maxReplicas": 3},
        "status": {"currentCPUUtilizationPercentage": 50},
    });
    let owned = scalers.strategy().completed_for_owners(&scaler).unwrap();
    let annotations = owned["metadata"]["annotations"].as_object().unwrap();
    assert_eq!(annotations.keys().collect::<Vec<_>>(), ["autoscaling.alpha.kubernetes.io/current-metrics"]);
    let mut newer = scaler;
    newer["apiVersion"] = json!("autoscaling/v2");
    assert_eq!(scalers.strategy().completed_for_owners(&newer), None);
}

#[test]
fn a_selector_that_is_not_given_selects_no_pod_and_is_warned_of() {
    let constraint = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"});
    let term = json!({"topologyKey": "zone"});
    let preferred = json!([{"weight": 1, "podAffinityTerm": term}]);
    let affinity = json!({
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred},
    });
    let containers = json!([{"name": "c", "image": "i"}]);
    let spec = json!({"containers": containers, "affinity": affinity, "topologySpreadConstraints": [constraint]});
    let pods = Subject::of("", "Pod");
    let pod = pods.created(json!({"metadata": {"name": "p"}, "spec": spec}));
    let warnings = pods.strategy().warnings(pods.version(), &pod, &Value::Null);
    let want = [
        "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector",
        "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.labelSelector",
        "spec.topologySpreadConstraints[0].labelSelector",
    ];
    assert_eq!(warnings, want.map(|field| format!("{field}: a null labelSelector results in matching no pod")));
}

#[test]
fn a_stateful_set_that_names_its_way_of_updating_has_no_partition() {
    let sets = Subject::of("apps", "StatefulSet");
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let strategy = |strategy: Value| {
        let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template, "updateStrategy": strategy});
        sets.created(json!({"metadata": {"name": "s"}, "spec": spec}))["spec"]["updateStrategy"].clone()
    };
    assert_eq!(strategy(json!({"type": "RollingUpdate"})), json!({"type": "RollingUpdate"}));
    let whole = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}});
    assert_eq!(
        (strategy(json!({})), strategy(json!({"type": "RollingUpdate", "rollingUpdate": {}}))),
        (whole.clone(), whole)
    );
}

#[test]
fn amounts_of_limits_and_nodes_are_rounded_up_and_a_node_can_give_what_it_has() {
    let limits = json!([{"type": "PersistentVolumeClaim", "min": {"storage": "0.0001"}}]);
    let range = Subject::of("", "LimitRange").created(json!({"metadata": {"name": "r"}, "spec": {"limits": limits}}));
    assert_eq!(range["spec"]["limits"][0]["min"]["storage"], "1m");
    let status = json!({"capacity": {"cpu": "0.0001", "memory": "1Gi"}});
    let node = Subject::of("", "Node").read(json!({"metadata": {"name": "n"}, "status": status}));
    let amounts = json!({"cpu": "1m", "memory": "1Gi"});
    assert_eq!((&node["status"]["capacity"], &node["status"]["allocatable"]), (&amounts, &amounts));
}

#[test]
fn a_service_that_is_balanced_keeps_its_node_ports_when_it_asks_for_no_more() {
    let services = Subject::of("", "Service");
    let ports = json!([{"port": 80, "nodePort": 30080}]);
    let mut old =
        services.create(json!({"metadata": {"name": "s"}, "spec": {"type": "LoadBalancer", "ports": ports}})).0;
    old["spec"]["clusterIP"] = json!("10.96.0.9");
    old["spec"]["clusterIPs"] = json!(["10.96.0.9"]);
    let (kept, _) = services.update(Endpoint::Main, &old, |service| {
        service["spec"]["allocateLoadBalancerNodePorts"] = json!(false);
    });
    assert_eq!(kept["spec"]["ports"][0]["nodePort"], 30080);
    let (dropped, _) = services.update(Endpoint::Main, &old, |service| service["spec"]["type"] = json!("ClusterIP"));
    assert_eq!(dropped["spec"]["ports"][0].get("nodePort"), None);
}

#[test]
fn rows_show_amounts_as_upstream_shows_them() {
    let cells = |group: &str, kind: &str, object: Value| {
        let subject = Subject::of(group, kind);
        subject.strategy().cells(subject.version(), &object, "2026-01-01T00:00:00Z".parse().unwrap())
    };
    let claim = json!({"metadata": {"name": "c"}, "spec": {"volumeName": "v"}, "status": {"phase": "Pending"}});
    assert_eq!(cells("", "PersistentVolumeClaim", claim)[3], "0");
    let target = json!({"type": "AverageValue", "averageValue": "10", "averageUtilization": 10});
    let metrics = json!([{"type": "Pods", "pods": {"metric": {"name": "m"}, "target": target}}]);
    let scaler = json!({"metadata": {"name": "h"}, "spec": {"metrics": metrics}});
    assert_eq!(cells("autoscaling", "HorizontalPodAutoscaler", scaler)[2], "<unknown>/10");
}

#[test]
fn the_row_of_a_pod_that_has_ended_says_so() {
    let pods = Subject::of("", "Pod");
    let reasons = |phase: &str| {
        let conditions = pods.strategy().row_conditions(pods.version(), &json!({"status": {"phase": phase}}));
        conditions.iter().map(|condition| condition["reason"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((reasons("Failed"), reasons("Succeeded")), (vec!["Failed".to_owned()], vec!["Succeeded".to_owned()]));
    assert_eq!(reasons("Running"), [] as [&str; 0]);
}

#[test]
fn a_pod_has_no_claims_of_its_node_without_the_feature() {
    let pods = Subject::of("", "Pod");
    let pod = pods.created(json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}));
    let (written, _) = pods.update(Endpoint::Status, &pod, |pod| {
        pod["status"]["nodeAllocatableResourceClaimStatuses"] = json!([{"resourceClaimName": "c"}]);
    });
    assert_eq!(written["status"].get("nodeAllocatableResourceClaimStatuses"), None);
}
