//! The sources of volumes are checked alike in Pods and in PersistentVolumes, as kube-apiserver checks them. `cargo xtask differential` found
//! these cases.

use super::*;

fn pod(source: Value) -> Vec<String> {
    let mut volume = source;
    volume["name"] = json!("v");
    let spec = json!({"containers": [{"name": "c", "image": "i"}], "volumes": [volume]});
    texts(Subject::of("", "Pod").create(json!({"metadata": {"name": "p"}, "spec": spec})).1)
}

fn persistent(source: Value) -> Vec<String> {
    let mut spec = source;
    spec["capacity"] = json!({"storage": "1Gi"});
    spec["accessModes"] = json!(["ReadWriteOnce"]);
    texts(Subject::of("", "PersistentVolume").create(json!({"metadata": {"name": "v"}, "spec": spec})).1)
}

fn texts(errors: Vec<field::Error>) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn a_source_that_both_have_needs_the_same_fields() {
    for (source, want) in [
        (
            json!({"gcePersistentDisk": {"partition": 256}}),
            &[
                "persistentDisk.pdName: Required value",
                r#"persistentDisk.partition: Invalid value: 256: must be between 1 and 255, inclusive"#,
            ][..],
        ),
        (json!({"awsElasticBlockStore": {}}), &["awsElasticBlockStore.volumeID: Required value"]),
        (json!({"flocker": {}}), &["flocker: Required value: one of datasetName and datasetUUID is required"]),
        (json!({"photonPersistentDisk": {"pdID": ""}}), &["photonPersistentDisk.pdID: Required value"]),
        (json!({"nfs": {"server": "s", "path": "a"}}), &[r#"nfs.path: Invalid value: "a": must be an absolute path"#]),
        (
            json!({"scaleIO": {"gateway": "g", "system": "", "secretRef": {"name": "s"}}}),
            &["scaleIO.system: Required value", "scaleIO.volumeName: Required value"],
        ),
        (
            json!({"flexVolume": {"driver": "d", "options": {"a.kubernetes.io/b": "x"}}}),
            &[
                r#"flexVolume.options[a.kubernetes.io/b]: Invalid value: "a.kubernetes.io/b": kubernetes.io and k8s.io namespaces are reserved"#,
            ],
        ),
        (
            json!({"azureDisk": {"diskName": "d", "diskURI": "u", "kind": "Managed"}}),
            &[
                r#"azureDisk.diskURI: Unsupported value: "u": supported values: "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}""#,
            ],
        ),
    ] {
        let at = |path: &str| want.iter().map(|text| format!("{path}.{text}")).collect::<Vec<_>>();
        assert_eq!(pod(source.clone()), at("spec.volumes[0]"));
        assert_eq!(persistent(source), at("spec"));
    }
}

#[test]
fn an_iscsi_target_has_a_name_of_one_of_three_forms() {
    let source = |name: &str| json!({"iscsi": {"targetPortal": "p", "iqn": name, "lun": 0}});
    for name in ["iqn.2024-01.com.example:a", "eui.0123456789abcdef", "naa.0123456789abcdef0123456789abcdef"] {
        assert_eq!((pod(source(name)), persistent(source(name))), (Vec::new(), Vec::new()), "{name}");
    }
    assert_eq!(
        pod(source("a-")),
        [r#"spec.volumes[0].iscsi.iqn: Invalid value: "a-": must be valid format starting with iqn, eui, or naa"#]
    );
    assert_eq!(persistent(source("iqn.a")), [r#"spec.iscsi.iqn: Invalid value: "iqn.a": must be valid format"#]);
    let chap =
        json!({"iscsi": {"targetPortal": "p", "iqn": "eui.0123456789abcdef", "lun": 0, "chapAuthSession": true}});
    assert_eq!(persistent(chap), ["spec.iscsi.secretRef: Required value"]);
}

#[test]
fn a_flex_volume_counts_as_a_source_and_never_as_one_too_many() {
    let sources = json!({
        "nfs": {"server": "s", "path": "/"}, "flexVolume": {"driver": ""}, "azureFile": {"secretName": "s", "shareName": "s"},
    });
    assert_eq!(
        persistent(sources),
        [
            "spec.flexVolume.driver: Required value",
            "spec.azureFile: Forbidden: may not specify more than 1 volume type",
        ]
    );
    let alone = json!({"flexVolume": {"driver": "d"}, "csi": {"driver": "d", "volumeHandle": "h"}});
    assert_eq!(persistent(alone), ["spec.csi: Forbidden: may not specify more than 1 volume type"]);
}

#[test]
fn the_secrets_of_a_driver_are_in_a_namespace() {
    let source = json!({"csi": {"driver": "d", "volumeHandle": "h", "nodePublishSecretRef": {"name": "s"}}});
    assert_eq!(persistent(source), ["spec.csi.nodePublishSecretRef.namespace: Required value"]);
    assert_eq!(
        persistent(json!({"local": {"path": "/a"}})),
        ["spec.nodeAffinity: Required value: Local volume requires node affinity"]
    );
}

#[test]
fn fields_of_nodes_in_a_selector_are_their_names() {
    let volume = |term: Value| {
        let affinity = json!({"required": {"nodeSelectorTerms": [term]}});
        persistent(json!({"nfs": {"server": "s", "path": "/"}, "nodeAffinity": affinity}))
    };
    let at = "spec.nodeAffinity.required.nodeSelectorTerms[0]";
    assert_eq!(
        volume(json!({"matchFields": [{"key": "a", "operator": "DoesNotExist"}]})),
        [
            format!(r#"{at}.matchFields[0].operator: Invalid value: "DoesNotExist": not a valid selector operator"#),
            format!(r#"{at}.matchFields[0].key: Invalid value: "a": not a valid field selector key"#),
        ]
    );
    assert!(volume(json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]})).is_empty());
    let wrong = volume(json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a b"]}]}));
    assert!(wrong[0].starts_with(&format!("{at}.matchExpressions[0].values[0]: ")), "{wrong:?}");
}
