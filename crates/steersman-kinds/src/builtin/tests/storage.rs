//! Tests of the kinds of storage.k8s.io and node.k8s.io.

use super::*;
use std::collections::BTreeSet;

const LONG_NAME: &str = r#"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#;

fn cells(subject: &Subject, object: &Value) -> Vec<Value> {
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    subject.strategy().cells(subject.version(), object, now)
}

#[test]
fn a_csi_driver_gets_its_defaults_and_a_warning_about_tokens() {
    let drivers = Subject::of("storage.k8s.io", "CSIDriver");
    let driver = drivers.created(json!({"metadata": {"name": "d"}, "spec": {"tokenRequests": [{"audience": "a"}]}}));
    assert_eq!(
        driver["spec"],
        json!({
            "attachRequired": true, "fsGroupPolicy": "ReadWriteOnceWithFSType", "podInfoOnMount": false,
            "requiresRepublish": false, "seLinuxMount": false, "storageCapacity": false,
            "tokenRequests": [{"audience": "a"}], "volumeLifecycleModes": ["Persistent"],
        })
    );
    assert_eq!(
        cells(&drivers, &driver)[1..7],
        ["true", "false", "false", r#""a""#, "false", r#""Persistent""#].map(read)
    );
    assert_eq!(drivers.strategy().warnings(drivers.version(), &driver, &Value::Null).len(), 1);
    let (changed, errors) = drivers.update(Endpoint::Main, &driver, |driver| {
        driver["spec"]["attachRequired"] = json!(false);
        driver["spec"]["storageCapacity"] = json!(true);
    });
    assert_errors(errors, &["spec.attachedRequired: Invalid value: false: field is immutable"]);
    assert_eq!((driver["metadata"].get("generation"), &changed["metadata"]["generation"]), (None, &json!(1)));
}

fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_csi_driver_that_contradicts_itself_is_refused() {
    Subject::of("storage.k8s.io", "CSIDriver").refused(
        json!({"spec": {
            "fsGroupPolicy": "All", "volumeLifecycleModes": ["Forever"], "nodeAllocatableUpdatePeriodSeconds": 9,
            "tokenRequests": [{"audience": "a", "expirationSeconds": 599}, {"audience": "a"}],
        }}),
        &[
            r#"spec.fsGroupPolicy: Unsupported value: "All": supported values: "File", "None", "ReadWriteOnceWithFSType""#,
            "spec.nodeAllocatableUpdatePeriodSeconds: Invalid value: 9: must be greater than or equal to 10 seconds",
            "spec.tokenRequests[0].expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes",
            r#"spec.tokenRequests[1].audience: Duplicate value: "a""#,
            r#"spec.volumeLifecycleModes: Unsupported value: "Forever": supported values: "Persistent", "Ephemeral""#,
        ],
    );
    Subject::of("storage.k8s.io", "CSIDriver").refused(
        json!({"spec": {"serviceAccountTokenInSecrets": true}}),
        &["spec.serviceAccountTokenInSecrets: Invalid value: true: serviceAccountTokenInSecrets is set but no tokenRequests are specified"],
    );
}

#[test]
fn of_a_csi_nodes_driver_only_the_number_of_volumes_changes() {
    let nodes = Subject::of("storage.k8s.io", "CSINode");
    let driver = json!({"name": "d.example.com", "nodeID": "n", "topologyKeys": ["zone"], "allocatable": {"count": 1}});
    let node = nodes.created(json!({"metadata": {"name": "n"}, "spec": {"drivers": [driver]}}));
    assert_eq!(cells(&nodes, &node)[1], json!(1));
    let change =
        |path: &str, to: Value| nodes.update(Endpoint::Main, &node, |node| *node.pointer_mut(path).unwrap() = to).1;
    assert_errors(change("/spec/drivers/0/allocatable/count", json!(2)), &[]);
    assert_errors(change("/spec/drivers", json!([])), &[]);
    let errors = change("/spec/drivers/0/nodeID", json!("m"));
    assert_eq!((errors[0].field.as_str(), errors[0].detail.as_str()), ("spec.drivers", "field is immutable"));
    nodes.refused(
        json!({"spec": {"drivers": [
            {"name": "", "nodeID": "", "topologyKeys": ["a", "a"]}, {"name": "D_", "nodeID": "n", "allocatable": {"count": -1}},
        ]}}),
        &[
            "spec.drivers[0].name: Required value",
            "spec.drivers[0].nodeID: Required value",
            r#"spec.drivers[0]: Duplicate value: "a""#,
            "spec.drivers[1].allocatable.count: Invalid value: -1: must be greater than or equal to 0",
            &format!(r#"spec.drivers[1].name: Invalid value: "D_": {LONG_NAME}"#),
        ],
    );
}

#[test]
fn a_storage_capacity_is_of_one_class_and_place_for_good() {
    let capacities = Subject::of("storage.k8s.io", "CSIStorageCapacity");
    let capacity =
        capacities.created(json!({"metadata": {"name": "c"}, "storageClassName": "sc", "capacity": "2048Mi"}));
    assert_eq!(cells(&capacities, &capacity), [json!("c"), json!("")]);
    let (_, errors) = capacities.update(Endpoint::Main, &capacity, |one| one["storageClassName"] = json!("other"));
    assert_errors(errors, &[r#"storageClassName: Invalid value: "other": field is immutable"#]);
    capacities.refused(
        json!({"capacity": "-1"}),
        &[
            r#"capacity: Invalid value: "-1": must be greater than or equal to 0"#,
            &format!(r#"storageClassName: Invalid value: "": {LONG_NAME}"#),
        ],
    );
}

#[test]
fn an_attachment_is_of_one_volume_and_its_status_has_a_path_of_its_own() {
    let attachments = Subject::of("storage.k8s.io", "VolumeAttachment");
    let attachment = attachments.created(json!({
        "metadata": {"name": "a"}, "status": {"attached": true},
        "spec": {"attacher": "d.example.com", "nodeName": "n", "source": {"persistentVolumeName": "v"}},
    }));
    assert_eq!(attachment["status"], json!({"attached": false}));
    let (attached, errors) = attachments.update(Endpoint::Status, &attachment, |one| {
        one["status"]["attached"] = json!(true);
        one["spec"]["nodeName"] = json!("other");
        one["metadata"]["labels"] = json!({"a": "b"});
        one["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
    });
    assert_errors(errors, &[]);
    assert_eq!(attached["metadata"].get("deletionTimestamp"), None);
    assert_eq!(
        (&attached["spec"]["nodeName"], attached["metadata"].get("labels"), &cells(&attachments, &attached)[4]),
        (&json!("n"), None, &json!(true))
    );
    attachments.refused(
        json!({"spec": {"attacher": "d", "nodeName": "n", "source": {}}}),
        &["spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName"],
    );
    let inline = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/"}});
    let (_, errors) = attachments.create(json!({"spec": {
        "attacher": "d", "nodeName": "n", "source": {"inlineVolumeSpec": inline},
    }}));
    let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
    let inline = |field: &str| format!("spec.source.inlineVolumeSpec{field}");
    assert_eq!(fields, [inline(".capacity"), inline(".csi")]);
}

#[test]
fn an_inline_volume_is_one_of_a_driver_and_nothing_besides() {
    let attachments = Subject::of("storage.k8s.io", "VolumeAttachment");
    let create = |more: Value| {
        let mut inline = json!({"accessModes": ["ReadWriteOnce"], "csi": {"driver": "d", "volumeHandle": "h"}});
        inline.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let source = json!({"inlineVolumeSpec": inline});
        attachments.create(json!({"spec": {"attacher": "d", "nodeName": "n", "source": source}}))
    };
    let fields = |more: Value| {
        let (_, errors) = create(more);
        let names = errors.iter().map(|error| error.field.replace("spec.source.inlineVolumeSpec", ""));
        names.collect::<Vec<_>>()
    };
    assert_eq!(fields(json!({})), [] as [&str; 0]);
    assert_eq!(fields(json!({"claimRef": {}})), [".claimRef"]);
    assert_eq!(fields(json!({"nodeAffinity": {}})), [".nodeAffinity"]);
    assert_eq!(fields(json!({"nfs": {"server": "s", "path": "/"}})), [".csi"]);
    assert_eq!(fields(json!({"nfs": {"server": "s", "path": "a"}})), [".nfs.path", ".csi"]);
    // Upstream does not look at the name of a class that an inline volume has.
    assert_eq!(fields(json!({"volumeAttributesClassName": "A b"})), [] as [&str; 0]);
    let (attachment, _) = create(json!({"rbd": {"monitors": ["m"], "image": "i"}, "hostPath": {"path": "/"}}));
    let inline = &attachment["spec"]["source"]["inlineVolumeSpec"];
    assert_eq!((&inline["rbd"]["pool"], &inline["hostPath"]["type"]), (&json!("rbd"), &json!("")));
}

#[test]
fn a_class_of_attributes_has_parameters_for_good() {
    let classes = Subject::of("storage.k8s.io", "VolumeAttributesClass");
    let class =
        classes.created(json!({"metadata": {"name": "c"}, "driverName": "d.example.com", "parameters": {"a": "b"}}));
    let (_, errors) = classes.update(Endpoint::Main, &class, |class| class["parameters"] = json!({}));
    assert_errors(
        errors,
        &[
            "parameters: Forbidden: updates to parameters are forbidden.",
            "parameters: Required value: must contain at least one key/value pair",
        ],
    );
}

#[test]
fn a_volume_of_csi_may_name_a_class_of_attributes_and_goes_on_naming_one() {
    let volumes = Subject::of("", "PersistentVolume");
    let volume = |source: Value, class: &str| {
        let mut spec = json!({
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "volumeAttributesClassName": class,
        });
        spec.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
        json!({"metadata": {"name": "v"}, "spec": spec})
    };
    let csi = json!({"csi": {"driver": "d.example.com", "volumeHandle": "h"}});
    volumes.refused(
        volume(json!({"hostPath": {"path": "/x"}}), "gold"),
        &["spec.csi: Required value: has to be specified when using volumeAttributesClassName"],
    );
    volumes.refused(
        volume(csi.clone(), ""),
        &["spec.volumeAttributesClassName: Required value: an empty string is disallowed"],
    );
    let made = volumes.created(volume(csi, "gold"));
    let class = |class: Value| move |volume: &mut Value| volume["spec"]["volumeAttributesClassName"] = class;
    assert_errors(volumes.update(Endpoint::Main, &made, class(json!("silver"))).1, &[]);
    assert_errors(
        volumes.update(Endpoint::Main, &made, class(Value::Null)).1,
        &["spec.volumeAttributesClassName: Forbidden: update from non-nil value to nil is forbidden"],
    );
}

#[test]
fn the_attributes_that_a_claim_has_can_be_changed_and_not_taken_away() {
    let claims = Subject::of("", "PersistentVolumeClaim");
    let mut claim = claims.created(json!({"metadata": {"name": "c"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        "volumeAttributesClassName": "gold",
    }}));
    let class = |class: Value| move |claim: &mut Value| claim["spec"]["volumeAttributesClassName"] = class;
    claim["status"]["phase"] = json!("Bound");
    assert_errors(claims.update(Endpoint::Main, &claim, class(Value::Null)).1, &[]);
    claim["status"]["currentVolumeAttributesClassName"] = json!("gold");
    assert_errors(claims.update(Endpoint::Main, &claim, class(json!("silver"))).1, &[]);
    for (taken, what) in [(Value::Null, "nil"), (json!(""), "empty string")] {
        let want = format!(
            "spec.volumeAttributesClassName: Forbidden: update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil"
        );
        assert_errors(claims.update(Endpoint::Main, &claim, class(taken)).1, &[&want]);
    }
}

#[test]
fn a_runtime_class_has_one_handler() {
    let classes = Subject::of("node.k8s.io", "RuntimeClass");
    let class = classes.created(json!({
        "metadata": {"name": "c"}, "handler": "h", "overhead": {"podFixed": {"cpu": "10m"}},
        "scheduling": {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "k", "operator": "Exists"}]},
    }));
    let (_, errors) = classes.update(Endpoint::Main, &class, |class| class["handler"] = json!("other"));
    assert_errors(errors, &[r#"handler: Invalid value: "other": field is immutable"#]);
    let (_, errors) = classes.create(json!({
        "handler": "Bad_H", "overhead": {"podFixed": {"apples": "1"}},
        "scheduling": {"tolerations": [{"key": "k", "operator": "Exists"}, {"key": "k", "operator": "Exists"}]},
    }));
    let fields: BTreeSet<&str> = errors.iter().map(|error| error.field.as_str()).collect();
    assert_eq!(fields, ["handler", "overhead.limits[apples]", "scheduling.tolerations[1]"].into());
}

#[test]
fn claims_in_templates_of_a_stateful_set_are_warned_about() {
    let sets = Subject::of("apps", "StatefulSet");
    let claim = json!({"metadata": {"name": "v"}, "spec": {"resources": {"requests": {"storage": "100m"}}}});
    let set = json!({"spec": {"volumeClaimTemplates": [claim]}});
    assert_eq!(
        sets.strategy().warnings(sets.version(), &set, &set),
        [
            "spec.volumeClaimTemplates[0].resources.requests[storage]: fractional byte value \"100m\" is invalid, must be an integer"
        ]
    );
}
