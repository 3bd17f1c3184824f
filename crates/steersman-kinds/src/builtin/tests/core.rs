//! Tests of ConfigMap, Secret, Namespace, Event, Lease, Service.

use super::*;
use steersman_machinery::Budget;
use steersman_schema::decode::Body;

#[test]
fn a_config_map_is_checked_by_key() {
    let maps = Subject::of("", "ConfigMap");
    maps.refused(
        json!({"metadata": {"name": "bad"}, "data": {"a b": "1", "c": "2"}, "binaryData": {"c": "AAE="}}),
        &[
            "data[a b]: Invalid value: \"a b\": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
            "data[c]: Invalid value: \"c\": duplicate of key present in binaryData",
        ],
    );
    let huge = "a".repeat(1024 * 1024);
    let (_, errors) = maps.create(json!({"metadata": {"name": "huge"}, "data": {"a": huge, "b": "c"}}));
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].to_string(), "[]: Too long: may not be more than 1048576 bytes");
}

#[test]
fn an_immutable_config_map_stays_as_it_is() {
    let maps = Subject::of("", "ConfigMap");
    let fixed = maps.created(json!({"metadata": {"name": "fixed"}, "data": {"k": "v"}, "immutable": true}));
    let (_, errors) = maps.update(Endpoint::Main, &fixed, |object| object["data"]["k"] = json!("w"));
    assert_errors(errors, &["data: Forbidden: field is immutable when `immutable` is set"]);
    let (_, errors) = maps.update(Endpoint::Main, &fixed, |object| object["immutable"] = json!(false));
    assert_errors(errors, &["immutable: Forbidden: field is immutable when `immutable` is set"]);
}

#[test]
fn a_number_is_no_text() {
    let maps = Subject::of("", "ConfigMap");
    let error = maps
        .strategy()
        .decode(maps.version(), Body::Tree(json!({"data": {"k": 1}})), &Budget::unlimited())
        .unwrap_err();
    assert_eq!(error.to_string(), "data.k must be a string, not the number 1");
}

#[test]
fn a_secret_takes_texts_and_gives_bytes() {
    let secrets = Subject::of("", "Secret");
    let secret =
        secrets.created(json!({"metadata": {"name": "s"}, "stringData": {"user": "me"}, "data": {"pass": "cHc="}}));
    assert_eq!(secret["data"], json!({"pass": "cHc=", "user": "bWU="}));
    assert_eq!((&secret["type"], secret.get("stringData")), (&json!("Opaque"), None));
    let (_, errors) = secrets.update(Endpoint::Main, &secret, |object| object["type"] = json!("example.com/other"));
    assert_errors(errors, &[r#"type: Invalid value: "example.com/other": field is immutable"#]);
    let error = secrets
        .strategy()
        .decode(secrets.version(), Body::Tree(json!({"data": {"pass": "%%%"}})), &Budget::unlimited())
        .unwrap_err();
    assert_eq!(error.to_string(), "illegal base64 data at input byte 0");
}

#[test]
fn a_typed_secret_must_have_its_keys() {
    let secrets = Subject::of("", "Secret");
    for (kind, want) in [
        ("kubernetes.io/tls", &["data[tls.crt]: Required value", "data[tls.key]: Required value"][..]),
        ("kubernetes.io/basic-auth", &["data[password]: Required value", "data[username]: Required value"]),
        ("kubernetes.io/ssh-auth", &["data[ssh-privatekey]: Required value"]),
        ("kubernetes.io/dockerconfigjson", &["data[.dockerconfigjson]: Required value"]),
        (
            "kubernetes.io/service-account-token",
            &["metadata.annotations[kubernetes.io/service-account.name]: Required value"],
        ),
        ("example.com/x", &[]),
    ] {
        secrets.refused(json!({"metadata": {"name": "s"}, "type": kind}), want);
    }
}

#[test]
fn a_namespace_is_active_and_labelled_with_its_name() {
    let namespaces = Subject::of("", "Namespace");
    let namespace = namespaces.created(json!({"metadata": {"name": "a"}, "status": {"phase": "Terminating"}}));
    assert_eq!(
        namespace,
        json!({
            "metadata": {"name": "a", "labels": {"kubernetes.io/metadata.name": "a"}},
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"},
        })
    );
    let (kept, errors) = namespaces.update(Endpoint::Main, &namespace, |object| object["spec"] = json!({}));
    assert_errors(errors, &[]);
    assert_eq!(kept, namespace);
    let (_, errors) =
        namespaces.update(Endpoint::Status, &namespace, |object| object["status"]["phase"] = json!("Terminating"));
    assert_errors(
        errors,
        &[r#"status.Phase: Invalid value: "Terminating": may only be 'Active' if `deletionTimestamp` is empty"#],
    );
    let (finalized, errors) =
        namespaces.update(Endpoint::Other, &namespace, |object| object["spec"]["finalizers"] = json!([]));
    assert_errors(errors, &[]);
    assert_eq!(finalized["spec"], json!({}));
}

#[test]
fn a_lease_lasts_and_must_be_replaced_under_its_version() {
    let leases = Subject::of("coordination.k8s.io", "Lease");
    leases.refused(
        json!({"metadata": {"name": "l"}, "spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1}}),
        &[
            "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
            "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
        ],
    );
    assert!(leases.strategy().rules().creates_on_update && !leases.strategy().rules().updates_unconditionally);
}

#[test]
fn an_event_of_the_new_kind_reads_as_one_of_the_old() {
    let (events, core) = (Subject::of("events.k8s.io", "Event"), Subject::of("", "Event"));
    let stored = events.created(json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": "e.1", "namespace": "default"}, "eventTime": "2026-01-01T00:00:00.000000Z", "action": "A",
        "reason": "R", "type": "Normal", "note": "n", "reportingController": "example.com/c",
        "reportingInstance": "i", "regarding": {"kind": "Pod", "namespace": "default", "name": "p"},
    }));
    assert_eq!(stored["apiVersion"], "v1");
    assert_eq!(stored["involvedObject"], json!({"kind": "Pod", "name": "p", "namespace": "default"}));
    assert_eq!((&stored["message"], &stored["reportingComponent"]), (&json!("n"), &json!("example.com/c")));
    assert_eq!((&stored["source"], stored.get("count")), (&json!({}), None));
    assert_eq!(core.read(stored.clone()), stored);
    let shown = events.strategy().present(events.version(), stored.clone());
    assert_eq!((&shown["apiVersion"], &shown["note"]), (&json!("events.k8s.io/v1"), &json!("n")));
    assert_eq!(events.strategy().internal(events.version(), shown), stored);
    assert_eq!(*events.resource.storage.group, *"");
    assert!(!events.strategy().is_stored_form(&events.resource, events.version()));
}

#[test]
fn an_event_lives_where_its_object_lives() {
    let events = Subject::of("", "Event");
    let event = |home: &str, involved: &str| json!({"metadata": {"name": "e", "namespace": home}, "involvedObject": {"kind": "Pod", "namespace": involved}});
    events.created(event("a", "a"));
    events
        .refused(event("a", "b"), &[r#"involvedObject.namespace: Invalid value: "b": does not match event.namespace"#]);
    events.created(event("default", ""));
}

#[test]
fn an_event_of_the_core_group_may_have_any_name_that_fits_into_a_path() {
    let faults = |group: &str, name: &str| Subject::of(group, "Event").strategy().name_faults(name).len();
    assert_eq!((faults("", "Pod_A"), faults("", "a/b"), faults("events.k8s.io", "Pod_A")), (0, 1, 1));
}

#[test]
fn a_row_of_an_event_tells_when_it_was() {
    let events = Subject::of("", "Event");
    let event = json!({
        "metadata": {"name": "e1"}, "type": "Warning", "reason": "BackOff", "message": " again\n", "count": 3,
        "involvedObject": {"kind": "Pod", "name": "crashing"}, "source": {"component": "kubelet", "host": "n"},
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:10:00Z",
    });
    let now = "2026-01-01T01:00:00Z".parse().unwrap();
    assert_eq!(
        events.strategy().cells(events.version(), &event, now),
        ["50m", "Warning", "BackOff", "pod/crashing", "", "kubelet, n", "again", "60m", "3", "e1"]
            .map(|text| { if text == "3" { json!(3) } else { json!(text) } })
    );
}

#[test]
fn services_are_filled_in_by_type() {
    let services = Subject::of("", "Service");
    let plain =
        services.created(json!({"metadata": {"name": "s"}, "spec": {"selector": {"a": "b"}, "ports": [{"port": 80}]}}));
    assert_eq!(
        plain,
        json!({
            "metadata": {"name": "s"},
            "spec": {
                "internalTrafficPolicy": "Cluster",
                "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
                "selector": {"a": "b"},
                "sessionAffinity": "None",
                "type": "ClusterIP",
            },
            "status": {"loadBalancer": {}},
        })
    );
    let external = services
        .created(json!({"metadata": {"name": "e"}, "spec": {"type": "ExternalName", "externalName": "example.com"}}));
    assert_eq!(
        external["spec"],
        json!({"externalName": "example.com", "sessionAffinity": "None", "type": "ExternalName"})
    );
    let headless = services.created(json!({"metadata": {"name": "h"}, "spec": {"clusterIP": "None"}}));
    assert_eq!(headless["spec"]["clusterIPs"], json!(["None"]));
    let balanced =
        services.created(json!({"metadata": {"name": "l"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}}));
    assert_eq!(
        (&balanced["spec"]["allocateLoadBalancerNodePorts"], &balanced["spec"]["externalTrafficPolicy"]),
        (&json!(true), &json!("Cluster"))
    );
}

#[test]
fn services_are_refused_in_upstreams_words() {
    let services = Subject::of("", "Service");
    let service = |spec: Value| json!({"metadata": {"name": "s"}, "spec": spec});
    services.refused(
        service(json!({"type": "Magic"})),
        &[
            "spec.ports: Required value",
            r#"spec.type: Unsupported value: "Magic": supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort""#,
        ],
    );
    services.refused(
        service(json!({"ports": [{"port": 80}, {"port": 81}]})),
        &["spec.ports[0].name: Required value", "spec.ports[1].name: Required value"],
    );
    services.refused(
        service(json!({"clusterIP": "not-an-ip", "ports": [{"port": 80}]})),
        &[
            r#"spec.clusterIPs[0]: Invalid value: "not-an-ip": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"#,
        ],
    );
    services.refused(
        service(json!({"ports": [{"port": 80, "nodePort": 30001}]})),
        &["spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"],
    );
    assert_eq!(services.strategy().name_faults("1.s"), ["must not contain dots"]);
}

#[test]
fn the_address_of_a_service_is_for_good() {
    let services = Subject::of("", "Service");
    let old = services
        .created(json!({"metadata": {"name": "s"}, "spec": {"clusterIP": "10.96.0.9", "ports": [{"port": 80}]}}));
    let (_, errors) = services.update(Endpoint::Main, &old, |object| object["spec"]["clusterIP"] = json!("10.96.0.8"));
    assert_errors(errors, &[r#"spec.clusterIPs[0]: Invalid value: ["10.96.0.8"]: may not change once set"#]);
    let (new, errors) =
        services.update(Endpoint::Main, &old, |object| object["spec"] = json!({"ports": [{"port": 81}]}));
    assert_errors(errors, &[]);
    assert_eq!(new["spec"]["clusterIPs"], json!(["10.96.0.9"]));
}

#[test]
fn endpoints_are_checked_address_by_address() {
    let endpoints = Subject::of("", "Endpoints");
    endpoints.refused(
        json!({"metadata": {"name": "bad"}, "subsets": [
            {"addresses": [{"ip": "10.01.2.3"}, {"ip": "127.0.0.1"}], "ports": [{"port": 80}, {"port": 0, "name": "b"}]},
            {"ports": [{"port": 80}]},
        ]}),
        &[
            "subsets[0].addresses[0].ip: Invalid value: \"10.01.2.3\": must not have leading 0s",
            "subsets[0].addresses[1].ip: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)",
            "subsets[0].ports[0].name: Required value",
            "subsets[0].ports[1].port: Invalid value: 0: must be between 1 and 65535, inclusive",
            "subsets[1]: Required value: must specify `addresses` or `notReadyAddresses`",
        ],
    );
    let made = endpoints.created(json!({"metadata": {"name": "e"}, "subsets": [
        {"addresses": [{"ip": "10.1.0.1"}, {"ip": "fd00::1"}], "ports": [{"port": 53, "name": "a"}, {"port": 80, "name": "b"}]},
    ]}));
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let cells = endpoints.strategy().cells(endpoints.version(), &made, now);
    assert_eq!(cells[1], "10.1.0.1:53,[fd00::1]:53,10.1.0.1:80 + 1 more...");
    assert!(endpoints.version().deprecation.is_some());
}

#[test]
fn addresses_that_other_machines_do_not_reach_are_no_endpoints() {
    let loopback = "may not be in the loopback range (127.0.0.0/8, ::1/128)";
    let link_local = "may not be in the link-local range (169.254.0.0/16, fe80::/10)";
    let multicast = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)";
    let table = [
        ("IPv4", "0.0.0.0", "may not be unspecified (0.0.0.0)"),
        ("IPv4", "127.0.0.1", loopback),
        ("IPv4", "127.255.0.9", loopback),
        ("IPv4", "169.254.169.254", link_local),
        ("IPv4", "224.0.0.1", multicast),
        ("IPv6", "::", "may not be unspecified (::)"),
        ("IPv6", "::1", loopback),
        ("IPv6", "fe80::1", link_local),
        ("IPv6", "ff02::1", multicast),
    ];
    let (endpoints, slices) = (Subject::of("", "Endpoints"), Subject::of("discovery.k8s.io", "EndpointSlice"));
    for (family, address, why) in table {
        let of_address =
            |address: &str| json!({"metadata": {"name": "e"}, "subsets": [{"addresses": [{"ip": address}]}]});
        let detail = format!("subsets[0].addresses[0].ip: Invalid value: \"{address}\": {why}");
        endpoints.refused(of_address(address), &[&*detail]);
        // An existing invalid address may stay, and no other one may be added.
        let old = of_address(address);
        let (_, errors) =
            endpoints.update(Endpoint::Main, &old, |object| object["metadata"]["labels"] = json!({"a": "b"}));
        assert_errors(errors, &[]);
        let detail = format!("subsets[0].notReadyAddresses[0].ip: Invalid value: \"{address}\": {why}");
        let (_, errors) = endpoints.update(Endpoint::Main, &of_address("10.0.0.1"), |object| {
            object["subsets"] = json!([{"notReadyAddresses": [{"ip": address}]}]);
        });
        assert_errors(errors, &[&*detail]);
        let slice = json!({"metadata": {"name": "e"}, "addressType": family, "endpoints": [{"addresses": [address]}]});
        slices.refused(slice, &[&*format!("endpoints[0].addresses[0]: Invalid value: \"{address}\": {why}")]);
    }
    let other_family =
        json!({"metadata": {"name": "e"}, "addressType": "IPv4", "endpoints": [{"addresses": ["::1", "127.0.00.1"]}]});
    slices.refused(
        other_family,
        &[
            "endpoints[0].addresses: Invalid value: \"::1\": must be an IPv4 address",
            &*format!("endpoints[0].addresses[0]: Invalid value: \"::1\": {loopback}"),
            "endpoints[0].addresses[1]: Invalid value: \"127.0.00.1\": must not have leading 0s",
        ],
    );
}

#[test]
fn an_endpoint_slice_keeps_its_family_and_counts_its_labels_as_a_change() {
    let slices = Subject::of("discovery.k8s.io", "EndpointSlice");
    let slice = slices.created(json!({
        "metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": [{"addresses": ["10.1.2.3"]}], "ports": [{"port": 80}],
    }));
    assert_eq!(slice["ports"], json!([{"name": "", "port": 80, "protocol": "TCP"}]));
    assert_eq!(slice["endpoints"], json!([{"addresses": ["10.1.2.3"], "conditions": {}}]));
    let (labelled, errors) = slices.update(Endpoint::Main, &slice, |slice| {
        slice["metadata"]["labels"] = json!({"a": "b"});
    });
    assert_errors(errors, &[]);
    assert_eq!((&slice["metadata"]["generation"], &labelled["metadata"]["generation"]), (&json!(1), &json!(2)));
    let (_, errors) = slices.update(Endpoint::Main, &slice, |slice| slice["addressType"] = json!("IPv6"));
    assert_errors(errors, &["addressType: Invalid value: \"IPv6\": field is immutable"]);
    slices.refused(
        json!({"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": [
            {"addresses": ["fd00::1"]}, {"addresses": []}, {"addresses": ["10.0.0.1"], "hints": {"forZones": [{"name": "z"}, {"name": "z"}]}},
        ]}),
        &[
            "endpoints[0].addresses: Invalid value: \"fd00::1\": must be an IPv4 address",
            "endpoints[1].addresses: Required value: must contain at least 1 address",
            "endpoints[2].hints.forZones[1].name: Duplicate value: \"z\"",
        ],
    );
    let names = json!({"metadata": {"name": "s"}, "addressType": "FQDN", "endpoints": [{"addresses": ["a"]}]});
    slices.refused(
        names.clone(),
        &["endpoints[0].addresses[0]: Invalid value: \"a\": should be a domain with at least two segments separated by dots"],
    );
    assert_eq!(
        slices.strategy().warnings(slices.version(), &names, &Value::Null),
        ["spec.addressType: FQDN endpoints are deprecated"]
    );
}

#[test]
fn limits_of_containers_fill_each_other_in() {
    let ranges = Subject::of("", "LimitRange");
    let range = ranges.created(json!({"metadata": {"name": "l"}, "spec": {"limits": [
        {"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "4Mi"}, "default": {"memory": "8Mi"}},
    ]}}));
    assert_eq!(range["spec"]["limits"][0]["default"], json!({"cpu": "2", "memory": "8Mi"}));
    assert_eq!(range["spec"]["limits"][0]["defaultRequest"], json!({"cpu": "2", "memory": "8Mi"}));
    ranges.refused(
        json!({"metadata": {"name": "l"}, "spec": {"limits": [
            {"type": "Pod", "min": {"cpu": "2"}, "max": {"cpu": "1"}, "maxLimitRequestRatio": {"cpu": "500m"}},
            {"type": "Pod", "default": {"cpu": "1"}},
            {"type": "PersistentVolumeClaim"},
            {"type": "Cat"},
            {"type": "Container", "min": {"cpu": "1"}, "max": {"cpu": "12E"}, "maxLimitRequestRatio": {"cpu": "10"}},
        ]}}),
        &[
            "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"500m\": ratio 500m is less than 1",
            "spec.limits[0].min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1",
            "spec.limits[1].default: Forbidden: may not be specified when `type` is 'Pod'",
            "spec.limits[1].type: Duplicate value: \"Pod\"",
            "spec.limits[2].limits: Required value: either minimum or maximum storage value is required, but neither was provided",
            "spec.limits[3].type: Invalid value: \"Cat\": must be a standard limit type or fully qualified",
            "spec.limits[4].maxLimitRequestRatio[cpu]: Invalid value: \"10\": ratio 10 is greater than max/min = 0.000000",
        ],
    );
    // Upstream counts an amount beyond 64 bits as zero, here the ratio.
    ranges.created(json!({"metadata": {"name": "l"}, "spec": {"limits": [
        {"type": "Container", "min": {"cpu": "1"}, "max": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "12E"}}]}}));
    let unnamed = ranges.created(json!({"metadata": {"uid": "u-1"}, "spec": {"limits": []}}));
    assert_eq!(unnamed["metadata"]["name"], "u-1");
}

#[test]
fn a_quota_holds_what_has_a_meaning_and_keeps_its_scopes() {
    let quotas = Subject::of("", "ResourceQuota");
    quotas.refused(
        json!({"metadata": {"name": "q"}, "spec": {
            "hard": {"dogs": "1", "pods": "1500m", "cpu": "-1", "count/widgets.example.com": "1"},
            "scopes": ["BestEffort", "NotBestEffort"],
            "scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In"}]},
        }}),
        &[
            "spec.hard[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
            "spec.hard[dogs]: Invalid value: \"dogs\": must be a standard resource for quota",
            "spec.hard[dogs]: Invalid value: \"dogs\": must be a standard resource type or fully qualified",
            "spec.hard[pods]: Invalid value: \"1500m\": must be an integer",
            "spec.scopeSelector.matchExpressions.values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
            "spec.scopes: Invalid value: [\"BestEffort\",\"NotBestEffort\"]: conflicting scopes",
            "spec.scopes: Invalid value: [\"BestEffort\",\"NotBestEffort\"]: unsupported scope applied to resource",
        ],
    );
    let quota = quotas.created(json!({
        "metadata": {"name": "q"}, "spec": {"hard": {"pods": "1", "limits.cpu": "2"}, "scopes": ["NotTerminating"]},
        "status": {"hard": {"pods": "9"}},
    }));
    assert_eq!(quota["status"], json!({}));
    let (_, errors) = quotas.update(Endpoint::Main, &quota, |quota| quota["spec"]["scopes"] = json!([]));
    assert_errors(errors, &["spec.scopes: Invalid value: null: field is immutable"]);
    let status = json!({"hard": {"pods": "3", "limits.cpu": "2"}, "used": {"pods": "1"}});
    let (used, errors) = quotas.update(Endpoint::Status, &quota, |quota| quota["status"] = status);
    assert_errors(errors, &[]);
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let cells = quotas.strategy().cells(quotas.version(), &used, now);
    assert_eq!(cells[1..3], [json!("pods: 1/3"), json!("limits.cpu: 0/2")]);
}

#[test]
fn who_finalizes_a_namespace_leaves_its_status_alone() {
    let namespaces = Subject::of("", "Namespace");
    let mut old = namespaces.created(json!({"metadata": {"name": "a"}}));
    old["status"] = json!({"phase": "Terminating", "conditions": [{"type": "A", "status": "False"}]});
    let (new, errors) = namespaces.update(Endpoint::Other, &old, |namespace| {
        namespace["spec"]["finalizers"] = json!([]);
        namespace["status"] = json!({});
    });
    assert_eq!(errors, []);
    assert_eq!((&new["status"], &new["spec"]), (&old["status"], &json!({})));
}

#[test]
fn a_reference_of_a_service_account_to_a_secret_keeps_the_name_alone() {
    let accounts = Subject::of("", "ServiceAccount");
    let account = accounts.created(json!({
        "metadata": {"name": "a"}, "secrets": [{"name": "s", "kind": "Secret", "uid": "u"}, {"namespace": "n"}],
    }));
    assert_eq!(account["secrets"], json!([{"name": "s"}, {}]));
    let (changed, errors) =
        accounts.update(Endpoint::Main, &account, |account| account["secrets"][1] = json!({"name": "t", "uid": "u"}));
    assert_eq!((errors, &changed["secrets"]), (Vec::new(), &json!([{"name": "s"}, {"name": "t"}])));
}
