//! Tests of objects and tables in the requested form and version; and the kinds and objects that the tests of this
//! module and its submodules share.

use super::*;
use serde_json::json;
use steersman_machinery::{ObjectKey, Revision};

pub(super) fn answer_options(negotiated: Negotiated) -> AnswerOptions<'static> {
    let now = "2026-01-01T01:00:00Z".parse().unwrap();
    AnswerOptions { negotiated, layout: Layout::Compact, include_object: None, now }
}

/// A built-in kind.
pub(super) fn pods() -> Served {
    crate::background::definitions::built_in().find("", "v1", "pods").unwrap().clone()
}

/// A custom kind, with printer columns of every type.
pub(super) fn cups() -> Served {
    versions_of_cups(1).remove(0)
}

/// The custom kind in this many versions, of which the first is the stored one.
fn versions_of_cups(n_versions: usize) -> Vec<Served> {
    let column = |name: &str, kind: &str, path: &str| json!({"name": name, "type": kind, "jsonPath": path});
    let version = |at: usize| {
        json!({
                    "name": format!("v{}", at + 1), "served": true, "storage": at == 0,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                    "additionalPrinterColumns": [
                        column("Size", "integer", ".spec.size"),
                        column("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status"),
                        column("Any", "string", ".status..reason"),
                        column("First", "string", ".spec.list[0].x"),
                        column("Spec", "string", ".spec"),
                        column("Owner", "string", ".metadata.labels.owner"),
                        column("Age", "date", ".metadata.creationTimestamp"),
                    ],
        })
    };
    let versions: Vec<Value> = (0..n_versions).map(version).collect();
    let definition = json!({
        "metadata": {"name": "cups.example.com", "uid": "u", "generation": 1},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "cups", "singular": "cup", "kind": "Cup", "listKind": "CupList"},
            "versions": versions,
        },
        "status": {
            "acceptedNames": {"plural": "cups", "singular": "cup", "kind": "Cup", "listKind": "CupList"},
            "conditions": [{"type": "Established", "status": "True"}], "storedVersions": ["v1"],
        },
    });
    let resource = steersman_kinds::crd::custom_resources(&definition).unwrap();
    let catalog = steersman_kinds::catalog::Catalog::new([resource]);
    let version = |at: usize| catalog.find("example.com", &format!("v{}", at + 1), "cups").unwrap().clone();
    (0..n_versions).map(version).collect()
}

pub(super) fn object(name: &str, fields: &Value) -> Arc<Object> {
    let mut tree = json!({
        "apiVersion": "example.com/v1", "kind": "Cup",
        "metadata": {"name": name, "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [{"a": 1}]},
    });
    let fields = fields.as_object().unwrap().clone();
    tree.as_object_mut().unwrap().extend(fields);
    stored(name, &tree.to_string())
}

fn stored(name: &str, json: &str) -> Arc<Object> {
    Arc::new(Object::decode(ObjectKey::namespaced("default", name), Revision(5), json.as_bytes()).unwrap())
}

/// A truncated object, which a store never holds.
pub(super) fn unreadable(name: &str) -> Arc<Object> {
    let header = steersman_machinery::object::Header::of(&json!({"metadata": {}}), &[]);
    let json = Bytes::from_static(b"{\"metadata\":{\"name\":\"x\"},\"spec\":");
    let draft = steersman_machinery::object::Draft::new(header, json).unwrap();
    let key = ObjectKey::namespaced("default", name);
    Arc::new(Object::decode(key, Revision(5), &draft.encode()).unwrap())
}

/// The row of an object, made from its bytes and from a tree.
fn rows(served: &Served, object: &Arc<Object>, include: Option<&str>) -> (Value, Value) {
    let negotiated = Negotiated::new(Encoding::Json, Form::Table);
    let answer_options = AnswerOptions { include_object: include, ..answer_options(negotiated) };
    let representation = Representation::new(served, answer_options).unwrap();
    let row = |payload: &Payload| {
        let mut out = Vec::new();
        representation.write_row(payload, &mut out).unwrap();
        serde_json::from_slice(&out).unwrap()
    };
    let tree = conversion::parse(object).unwrap();
    (row(&Payload::Stored(object.clone())), row(&Payload::Tree(tree)))
}

#[test]
fn metadata_alone_have_no_annotations_that_stand_for_fields_of_the_internal_form() {
    let annotation = "deprecated.daemonset.template.generation";
    let catalog = crate::background::definitions::built_in();
    let served = catalog.find("apps", "v1", "daemonsets").unwrap().clone();
    for (others, want) in [(json!({}), Value::Null), (json!({"a": "b"}), json!({"a": "b"}))] {
        let mut annotations = others;
        annotations[annotation] = json!("1");
        let tree = json!({"kind": "DaemonSet", "apiVersion": "apps/v1", "metadata": {"name": "a", "annotations": annotations}});
        let object = stored("a", &tree.to_string());
        let (from_bytes, from_tree) = rows(&served, &object, None);
        assert_eq!(from_bytes["object"]["metadata"]["annotations"], want);
        assert_eq!(from_tree["object"]["metadata"]["annotations"], want);
        let whole = rows(&served, &object, Some("Object")).0;
        assert_eq!(whole["object"]["metadata"]["annotations"][annotation], "1");
        let partial = answer_options(Negotiated::new(Encoding::Json, Form::PartialMetadata));
        let partial = Representation::new(&served, partial).unwrap().whole(&Payload::Stored(object)).unwrap();
        let partial: Value = serde_json::from_slice(&partial).unwrap();
        assert_eq!(partial["metadata"]["annotations"], want);
    }
}

#[test]
fn rows_from_bytes_are_those_from_trees() {
    let served = cups();
    for fields in [
        json!({}),
        json!({"spec": null, "status": []}),
        json!({"spec": {"size": 3, "list": [{"x": 1}, {"x": 2}]}, "status": {"conditions": [
            {"type": "Other", "status": "False"}, {"type": "Ready", "status": "True", "reason": "Fine"},
        ]}}),
        json!({"spec": {"size": "three", "list": {"x": 1}}, "status": {"reason": {"deep": 1}}}),
    ] {
        let object = object("a", &fields);
        for include in [None, Some("None"), Some("Metadata"), Some("Object")] {
            let (from_bytes, from_tree) = rows(&served, &object, include);
            assert_eq!(from_bytes, from_tree, "{fields}");
        }
        // Reading more than is needed gives the same row.
        let now = answer_options(Negotiated::new(Encoding::Json, Form::Table)).now;
        let cells = served.resource.strategy.cells(served.version(), &conversion::parse(&object).unwrap(), now);
        assert_eq!(json!(cells), rows(&served, &object, None).0["cells"]);
    }
}

#[test]
fn rows_of_built_in_kinds_need_no_more_than_is_read() {
    let catalog = crate::background::definitions::built_in();
    let fields = json!({
        "data": {"a": "1", "b": "2"}, "binaryData": {"c": "eA=="}, "type": "Opaque", "provisioner": "p",
        "spec": {
            "containers": [{"name": "a", "image": "i"}], "initContainers": [{"name": "b", "restartPolicy": "Always"}],
            "nodeName": "n", "replicas": 2, "readinessGates": [{"conditionType": "Ready"}], "type": "ClusterIP",
            "template": {"spec": {"containers": [{"name": "a", "image": "i"}]}}, "selector": {"matchLabels": {"a": "b"}},
        },
        "status": {
            "phase": "Running", "podIP": "10.0.0.1", "nominatedNodeName": "m", "readyReplicas": 1, "reason": "",
            "conditions": [{"type": "Ready", "status": "True", "reason": "r"}, {"type": "Initialized", "status": "True"}],
            "containerStatuses": [{"name": "a", "ready": true, "restartCount": 2, "state": {"running": {}},
                "lastState": {"terminated": {"finishedAt": "2026-01-01T00:55:00Z"}}}],
            "initContainerStatuses": [{"name": "b", "started": true, "ready": true, "restartCount": 1, "state": {"running": {}}}],
        },
    });
    for group in catalog.groups() {
        for version in &group.versions {
            for served in catalog.resources(&group.name, version) {
                let (from_bytes, from_tree) = rows(served, &object("a", &fields), None);
                assert_eq!(from_bytes, from_tree, "{}", served.resource.plural);
            }
        }
    }
}

#[test]
fn what_nobody_can_include_is_refused() {
    let negotiated = |form| Negotiated::new(Encoding::Json, form);
    let with = |form| {
        Representation::new(&cups(), AnswerOptions { include_object: Some("All"), ..answer_options(negotiated(form)) })
    };
    assert_eq!(with(Form::Table).unwrap_err().code(), 400);
    assert!(with(Form::Object).is_ok());
}

#[test]
fn frames_are_shared_by_those_who_see_the_same() {
    let key = |served: &Served, form, seconds: i64, columns| {
        let answer_options = answer_options(Negotiated::new(Encoding::Json, form));
        let now = answer_options.now + jiff::SignedDuration::from_secs(seconds);
        let representation = Representation::new(served, AnswerOptions { now, ..answer_options }).unwrap();
        representation.frame_key(EventType::Added, columns)
    };
    let (one, other) = (cups(), cups());
    for form in [Form::Object, Form::PartialMetadata, Form::Table] {
        assert_eq!(key(&one, form, 0, Columns::Known), key(&one, form, 0, Columns::Known));
    }
    // The bytes that are cut out of a stored object do not depend on the definition; a table does, and on the time.
    assert_eq!(key(&one, Form::Object, 0, Columns::Known), key(&other, Form::Object, 9, Columns::Described));
    assert_ne!(key(&one, Form::Object, 0, Columns::Known), key(&one, Form::PartialMetadata, 0, Columns::Known));
    assert_ne!(key(&one, Form::Table, 0, Columns::Known), key(&other, Form::Table, 0, Columns::Known));
    assert_ne!(key(&one, Form::Table, 0, Columns::Known), key(&one, Form::Table, 1, Columns::Known));
    assert_ne!(key(&one, Form::Table, 0, Columns::Known), key(&one, Form::Table, 0, Columns::Described));
}

#[test]
fn versions_that_do_not_fit_into_a_key_share_nothing() {
    let key = |served: Served| {
        let answer_options = answer_options(Negotiated::new(Encoding::Json, Form::Table));
        Representation::new(&served, answer_options).unwrap().frame_key(EventType::Added, Columns::Known)
    };
    let keys: Vec<u64> = versions_of_cups(300).into_iter().filter_map(key).map(|key| key.0).collect();
    let distinct: std::collections::BTreeSet<&u64> = keys.iter().collect();
    assert_eq!((keys.len(), distinct.len()), (256, 256));
}

#[test]
fn a_watch_costs_little_to_hold() {
    let bytes = size_of::<Representation>();
    assert!(bytes <= 136, "{bytes}");
}
