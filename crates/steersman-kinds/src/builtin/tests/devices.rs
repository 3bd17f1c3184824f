//! Tests of the kinds of resource.k8s.io.

use super::*;

const GROUP: &str = "resource.k8s.io";

fn claim() -> Value {
    json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": [
        {"name": "one", "exactly": {"deviceClassName": "gpu"}},
        {"name": "any", "firstAvailable": [{"name": "big", "deviceClassName": "gpu"}]},
    ]}}})
}

#[test]
fn compiling_the_selectors_of_devices_is_charged() {
    let selectors = vec![json!({"cel": {"expression": "device.driver == 'd.example.com'"}}); 32];
    let request =
        |n: usize| json!({"name": format!("r{n}"), "exactly": {"deviceClassName": "gpu", "selectors": selectors}});
    let spec = json!({"devices": {"requests": (0..32).map(request).collect::<Vec<_>>()}});
    let class = json!({"metadata": {"name": "c"}, "spec": {"selectors": selectors}});
    let template = json!({"metadata": {"name": "t"}, "spec": {"spec": spec}});
    let claim = json!({"metadata": {"name": "c"}, "spec": spec});
    for (kind, object, steps) in [
        ("ResourceClaim", claim, 3_000_000),
        ("ResourceClaimTemplate", template, 3_000_000),
        ("DeviceClass", class, 100_000),
    ] {
        let subject = Subject::of(GROUP, kind);
        let made = subject.created(object);
        let judged = |steps_max| {
            let budget = Budget::new(Limits { steps_max, ..Limits::default() }, Interrupt::default());
            let errors = subject.strategy().validate_create(subject.version(), &made, &budget);
            assert_errors(errors, &[]);
            let update = Budget::new(Limits { steps_max, ..Limits::default() }, Interrupt::default());
            subject.strategy().validate_update(subject.version(), Endpoint::Main, &made, &made, &update);
            (budget.is_exceeded(), update.is_exceeded())
        };
        assert_eq!(judged(steps), (true, kind != "ResourceClaim"), "{kind}");
        assert_eq!(judged(2 * steps), (false, false), "{kind}");
    }
}

fn result(request: &str) -> Value {
    json!({"request": request, "driver": "d.example.com", "pool": "p", "device": "gpu-0"})
}

fn allocate(claim: &mut Value, request: &str) {
    claim["status"] = json!({"allocation": {"devices": {"results": [result(request)]}}});
}

#[test]
fn results_of_an_allocation_name_requests_or_their_alternatives() {
    let claims = Subject::of(GROUP, "ResourceClaim");
    let made = claims.created(claim());
    let (allocated, errors) = claims.update(Endpoint::Status, &made, |claim| allocate(claim, "any/big"));
    assert_errors(errors, &[]);
    for unknown in ["none", "any/small", "one/big", "any/big/x"] {
        let (_, errors) = claims.update(Endpoint::Status, &made, |claim| allocate(claim, unknown));
        assert_eq!(errors.len(), 1, "{unknown}");
    }
    let (_, errors) = claims.update(Endpoint::Status, &allocated, |claim| allocate(claim, "one"));
    assert_eq!((errors[0].field.as_str(), errors[0].detail.as_str()), ("status.allocation", "field is immutable"));
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    assert_eq!(claims.strategy().cells(claims.version(), &allocated, now)[1], "allocated");
}

#[test]
fn the_status_of_a_device_goes_with_its_allocation() {
    let claims = Subject::of(GROUP, "ResourceClaim");
    let made = claims.created(claim());
    let device = json!({"driver": "d.example.com", "pool": "p", "device": "gpu-0"});
    let (allocated, errors) = claims.update(Endpoint::Status, &made, |claim| {
        allocate(claim, "one");
        claim["status"]["devices"] = json!([device]);
        claim["status"]["reservedFor"] = json!([{"resource": "pods", "name": "p", "uid": "u"}]);
    });
    assert_errors(errors, &[]);
    let (freed, errors) = claims.update(Endpoint::Status, &allocated, |claim| {
        let status = claim["status"].as_object_mut().unwrap();
        status.remove("allocation");
    });
    assert_eq!(freed["status"].get("devices"), None);
    assert_errors(errors, &["status.reservedFor: Forbidden: may not be specified when `allocated` is not set"]);
    let (_, errors) = claims.update(Endpoint::Status, &made, |claim| claim["status"]["devices"] = json!([device]));
    assert_eq!(errors[0].detail, "must be an allocated device in the claim");
}

fn slice(device: Value) -> Value {
    json!({"metadata": {"name": "s"}, "spec": {
        "driver": "d.example.com", "nodeName": "n", "pool": {"name": "p", "generation": 0, "resourceSliceCount": 1},
        "devices": [device],
    }})
}

#[test]
fn a_slice_has_its_devices_at_one_place() {
    let slices = Subject::of(GROUP, "ResourceSlice");
    let taint = json!({"key": "k", "effect": "NoSchedule"});
    let mut made =
        slices.created(slice(json!({"name": "a", "attributes": {"x": {"int": 1, "ints": [1, 2]}}, "taints": [taint]})));
    assert_eq!(made["spec"]["devices"][0]["attributes"]["x"], json!({"int": 1}), "lists are behind a gate that is off");
    slices.strategy().set_times(&mut made, &Value::Null, "2026-01-01T00:00:00Z");
    assert_eq!(made["spec"]["devices"][0]["taints"][0]["timeAdded"], "2026-01-01T00:00:00Z");
    let mut both = slice(json!({"name": "a"}));
    both["spec"]["allNodes"] = json!(true);
    slices.refused(
        both,
        &["spec: Invalid value: \"{`nodeName`, `allNodes`}\": exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required, but multiple fields are set"],
    );
    slices.refused(
        slice(json!({"name": "a", "allNodes": true, "attributes": {"x": {"int": 1, "bool": true}, "a/": {"version": "1.2.3-rc.1+b"}}})),
        &[
            r#"spec.devices[0].attributes: Invalid value: "": the name must not be empty"#,
            r#"spec.devices[0].attributes[x]: Invalid value: {"bool":true,"int":1}: exactly one value must be specified"#,
            "spec.devices[0]: Invalid value: `nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec",
        ],
    );
}

#[test]
fn a_capacity_that_is_shared_says_how_much_may_be_requested() {
    let slices = Subject::of(GROUP, "ResourceSlice");
    let device = |policy: Value, shared: bool| {
        slice(
            json!({"name": "a", "allowMultipleAllocations": shared, "capacity": {"m": {"value": "10Gi", "requestPolicy": policy}}}),
        )
    };
    slices.created(device(json!({"default": "1Gi", "validValues": ["1Gi", "2Gi"]}), true));
    slices.created(device(json!({"default": "2Gi", "validRange": {"min": "1Gi", "max": "4Gi"}}), true));
    let path = "spec.devices[0].capacity[m].requestPolicy";
    slices.refused(
        device(json!({"default": "1Gi"}), false),
        &[&format!("{path}: Forbidden: allowMultipleAllocations must be true")],
    );
    slices.refused(
        device(json!({"default": "3Gi", "validValues": ["20Gi", "2Gi"]}), true),
        &[
            &format!(
                r#"{path}.validValues: Invalid value: "3Gi": default value is not valid according to the requestPolicy"#
            ),
            &format!(r#"{path}.validValues[0]: Invalid value: "20Gi": option is larger than capacity value: 10Gi"#),
            &format!(r#"{path}.validValues[1]: Invalid value: "2Gi": values must be sorted in ascending order"#),
        ],
    );
    slices.refused(
        device(json!({"default": "2Gi", "validRange": {"min": "1Gi", "max": "8Gi", "step": "2Gi"}}), true),
        &[
            &format!(r#"{path}.validRange.step: Invalid value: "2Gi": value is not a multiple of a given step (2Gi) from (1Gi)"#),
            &format!(r#"{path}.validRange.step: Invalid value: "8Gi": value is not a multiple of a given step (2Gi) from (1Gi)"#),
        ],
    );
    slices.refused(
        device(json!({"default": "1Gi", "validRange": {"min": "2Gi", "max": "20Gi"}}), true),
        &[
            &format!(r#"{path}.validRange.max: Invalid value: "20Gi": max is larger than capacity value: 10Gi"#),
            &format!(r#"{path}.validRange.min: Invalid value: "1Gi": default is less than min: 2Gi"#),
        ],
    );
}

#[test]
fn an_expression_that_selects_devices_compiles_to_a_bool_within_the_limit_of_its_cost() {
    let classes = Subject::of(GROUP, "DeviceClass");
    let class = |text: &str| json!({"metadata": {"name": "c"}, "spec": {"selectors": [{"cel": {"expression": text}}]}});
    for text in [
        "device.driver == 'd.example.com'",
        "device.attributes['a.example.com'].ready",
        "device.allowMultipleAllocations",
        "device.capacity['a.example.com'].memory.compareTo(quantity('1Gi')) >= 0",
        "cel.bind(own, device.attributes['a.example.com'], own.ready && own.model.startsWith('b'))",
    ] {
        classes.created(class(text));
    }
    let at = "spec.selectors[0].cel.expression";
    let detail = |text: &str| classes.create(class(text)).1[0].detail.to_string();
    assert_eq!(detail("1"), "must evaluate to bool or the unknown type, not int");
    assert!(detail("").starts_with("compilation failed: ERROR: <input>:1:1: "));
    assert!(detail("device.name == ''").contains("undefined field 'name'"));
    assert!(detail("cel.bind(1, true, true)").contains("cel.bind() variable names must be simple identifiers"));
    let pairs = "device.attributes.all(a, device.attributes.all(b, device.attributes.all(c, device.attributes.all(d, a != b))))";
    classes.refused(class(pairs), &[&format!("{at}: Forbidden: too complex, exceeds cost limit")]);
}
