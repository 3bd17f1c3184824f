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
