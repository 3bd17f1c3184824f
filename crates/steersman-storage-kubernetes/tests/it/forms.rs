//! The form in which each kind is stored, and the forms that are read.

use bytes::Bytes;
use serde_json::{Value, json};
use std::sync::Arc;
use steersman_kinds::runtime_config::RuntimeConfig;
use steersman_machinery::{Draft, GroupResource, Object, ObjectKey, Revision};
use steersman_storage::kv::key_map::KeyMap as _;
use steersman_storage::kv::transformed::{Form, SEALED, Transformer as _, Unopened};
use steersman_storage::kv::{Expect, Kv, Op, Txn};
use steersman_storage::{Memory, Options, Store};
use steersman_storage_kubernetes::{Layout, Values, keys};

fn values(layout: Layout) -> Values {
    Values::new(layout, &RuntimeConfig::default())
}

/// An object in the form of Steersman.
fn own(json: &Value) -> Bytes {
    Draft::read(json.to_string().into()).unwrap().encode()
}

fn json_of(value: &[u8]) -> Value {
    serde_json::from_slice(Object::json_of(value).unwrap()).unwrap()
}

fn pod() -> Value {
    json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "b", "creationTimestamp": null},
        "spec": {"containers": [{"name": "c", "image": "d"}]}, "status": {}})
}

fn definition(generation: i64, fields: &Value) -> Value {
    json!({"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1",
        "metadata": {"name": "bs.a.io", "generation": generation, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"group": "a.io", "scope": "Cluster", "names": {"kind": "B", "plural": "bs"}, "versions": [
            {"name": "v1", "served": true, "storage": true, "selectableFields": fields,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"color": {"type": "string"}}}}}]},
        "status": {"acceptedNames": {"kind": "B", "plural": "bs"}, "conditions": [], "storedVersions": ["v1"]}})
}

#[test]
fn built_in_kinds_are_protobuf_and_others_json() {
    let values = values(Layout::Kubernetes);
    let begin = |key: &str, object: &Value| {
        let sealed = values.seal(key.as_bytes(), &own(object)).unwrap();
        sealed.slice(..4.min(sealed.len()))
    };
    assert_eq!(begin("/pods/b/a", &pod()), b"k8s\0".as_slice());
    assert!(
        begin("apiextensions.k8s.io/customresourcedefinitions/bs.a.io", &definition(1, &json!([]))).starts_with(b"{")
    );
    let custom = json!({"kind": "B", "apiVersion": "a.io/v1", "metadata": {"name": "c"}});
    let sealed = values.seal(b"a.io/bs/c", &own(&custom)).unwrap();
    assert_eq!(sealed, format!("{custom}\n"), "a line end, as kube-apiserver writes it");
}

#[test]
fn the_bitmap_of_node_ports_is_read_and_written() {
    let ports = json!({"kind": "RangeAllocation", "apiVersion": "v1", "metadata": {"name": "servicenodeports"},
        "range": "30000-32767", "data": "AgE="});
    let values = values(Layout::Kubernetes);
    let sealed = values.seal(b"/ranges/servicenodeports", &own(&ports)).unwrap();
    assert!(sealed.starts_with(b"k8s\0"));
    let opened = json_of(&values.open(b"/ranges/servicenodeports", &sealed).unwrap().value);
    assert_eq!((&opened["range"], &opened["data"]), (&ports["range"], &ports["data"]));
}

#[test]
fn json_of_a_built_in_kind_is_read_with_defaults_and_without_unknown_fields() {
    let values = values(Layout::Kubernetes);
    let mut written = pod();
    written["unknown"] = json!(1);
    written["metadata"]["resourceVersion"] = json!("7");
    let opened = values.open(b"/pods/b/a", &written.to_string().into()).unwrap();
    let read = json_of(&opened.value);
    assert_eq!(read["spec"]["restartPolicy"], "Always");
    assert!(read.get("unknown").is_none() && read["metadata"].get("resourceVersion").is_none(), "{read}");
    assert_eq!(opened.form, Form::Stale);
    assert!(values.may_be_stale(b"/pods/b/a"));
    let sealed = values.seal(b"/pods/b/a", &opened.value).unwrap();
    assert_eq!(values.open(b"/pods/b/a", &sealed).unwrap().form, Form::Current);
}

#[test]
fn an_object_has_what_a_kube_apiserver_adds_when_it_reads_one() {
    let values = values(Layout::Kubernetes);
    let read = |key: &str, stored: &Value| {
        json_of(&values.open(key.as_bytes(), &Bytes::from(stored.to_string())).unwrap().value)
    };
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "default", "uid": "u"},
        "spec": {"template": {"metadata": {"labels": {"job-name": "j"}}, "spec": {"containers": []}}},
    });
    assert_eq!(read("batch/jobs/default/j", &job)["metadata"]["labels"], json!({"job-name": "j"}));
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "default", "uid": "u"},
        "spec": {"type": "ExternalName", "externalName": "example.com", "internalTrafficPolicy": "Local"},
    });
    assert_eq!(read("/services/default/s", &service)["spec"].get("internalTrafficPolicy"), None);
    let set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s", "namespace": "default", "uid": "u"},
        "spec": {
            "selector": {}, "template": {"spec": {"containers": []}},
            "volumeClaimTemplates": [{"spec": {"resources": {"requests": {"storage": "100u"}}}}],
        },
    });
    let claims = &read("apps/statefulsets/default/s", &set)["spec"]["volumeClaimTemplates"];
    assert_eq!(claims[0]["spec"]["resources"]["requests"]["storage"], "1m");
    let amounts = json!({"limits": {"cpu": "100u"}, "requests": {"cpu": "1n"}});
    let rounded = json!({"limits": {"cpu": "1m"}, "requests": {"cpu": "1m"}});
    let claim = json!({"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {"resources": amounts}}}});
    let spec = json!({"containers": [], "overhead": {"cpu": "100u"}, "resources": amounts, "volumes": [claim]});
    let template = json!({
        "apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "t", "namespace": "default", "uid": "u"},
        "template": {"spec": spec},
    });
    let spec = &read("/podtemplates/default/t", &template)["template"]["spec"];
    assert_eq!((&spec["overhead"], &spec["resources"]), (&json!({"cpu": "1m"}), &rounded));
    assert_eq!(spec["volumes"][0]["ephemeral"]["volumeClaimTemplate"]["spec"]["resources"], rounded);
    let of_container = json!([{"name": "c", "allocatedResources": {"cpu": "1u"}, "resources": amounts}]);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default", "uid": "u"},
        "status": {"containerStatuses": of_container, "allocatedResources": {"cpu": "1u"}, "resources": amounts},
    });
    let status = &read("/pods/default/p", &pod)["status"];
    for holder in [status, &status["containerStatuses"][0]] {
        assert_eq!((&holder["allocatedResources"], &holder["resources"]), (&json!({"cpu": "1m"}), &rounded));
    }
}

#[test]
fn a_definition_of_v1beta1_is_read() {
    let older = json!({"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1beta1",
        "metadata": {"name": "bs.a.io", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"group": "a.io", "version": "v1", "scope": "Cluster", "names": {"kind": "B", "plural": "bs"},
            "versions": [{"name": "v1", "served": true, "storage": true}],
            "validation": {"openAPIV3Schema": {"type": "object"}}},
        "status": {"acceptedNames": {"kind": "B", "plural": "bs"}, "conditions": [], "storedVersions": ["v1"]}});
    let key = b"apiextensions.k8s.io/customresourcedefinitions/bs.a.io";
    let read = json_of(&values(Layout::Kubernetes).open(key, &older.to_string().into()).unwrap().value);
    assert_eq!(read["apiVersion"], "apiextensions.k8s.io/v1");
    assert_eq!(read["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["type"], "object");
}

#[test]
fn a_value_that_is_no_object_is_refused_and_an_encrypted_one_stays() {
    let values = values(Layout::Kubernetes);
    for (key, value, fault) in [
        ("/pods/b/a", &b"\xff\xff"[..], "it is neither JSON nor protobuf of Kubernetes"),
        ("/pods/b/a", b"k8s\0\x0a\xff", "its protobuf cannot be read"),
        (
            "/pods/b/a",
            b"{\"kind\":\"Pod\",\"apiVersion\":\"v9\"}",
            "it is a Pod of v9, and pods have no such version here",
        ),
        ("/pods/b/a", b"{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"spec\":1}", "it is no Pod"),
        ("a.io/bs/c", b"{\"a\":", "its JSON cannot be read"),
        ("a.io/bs/c", b"[]", "it is neither JSON nor protobuf of Kubernetes"),
    ] {
        let refused = values.open(key.as_bytes(), &Bytes::from_static(value)).unwrap_err();
        let is_of_later_release = fault.contains("no such version");
        assert_eq!(matches!(refused, Unopened::Sealed(_)), is_of_later_release, "{refused:?}");
        let error = values.convert(key.as_bytes(), &Bytes::from_static(value)).unwrap_err().to_string();
        assert!(error.starts_with(fault), "{error}");
    }
    let header = own(&pod());
    for damaged in [
        header.slice(..header.len() - 5),
        Bytes::from([&header[..header.len() - 9], b"\xff\xff\xff\xff\"}}}}"].concat()),
    ] {
        let refused = values.open(b"/pods/b/a", &damaged).unwrap_err();
        assert!(matches!(refused, Unopened::Unreadable(_)), "a header does not make it an object: {refused:?}");
    }
    let sealed = Bytes::from([SEALED, b"aescbc:v1:key:x"].concat());
    assert_eq!(values.open(b"/secrets/a/b", &sealed).unwrap().value, sealed);
    assert_eq!(values.convert(b"/secrets/a/b", &sealed).unwrap(), sealed);
}

#[test]
fn a_custom_object_is_read_as_it_is_stored_but_for_its_version() {
    let values = values(Layout::Kubernetes);
    let read = |stored: &str| values.open(b"a.io/bs/c", &Bytes::copy_from_slice(stored.as_bytes())).unwrap().value;
    let start = r#"{"apiVersion":"a.io/v1","kind":"B","metadata":{"name":"c""#;
    let as_it_is = format!(r#"{start}}},"spec":{{"z":[1.50,null],"a":"\"\n"}}}}"#);
    assert_eq!(Object::json_of(&read(&format!("{as_it_is}\n"))).unwrap(), as_it_is.as_bytes());
    for version in [r#""resourceVersion":"7""#, r#""\u0072esourceVersion":"7""#] {
        let opened = read(&format!(r#"{start},{version}}},"spec":{{"size":3}}}}"#));
        let expected = json!({"kind": "B", "apiVersion": "a.io/v1", "metadata": {"name": "c"}, "spec": {"size": 3}});
        assert_eq!(json_of(&opened), expected, "{version}");
    }
    let deep = format!(",\"spec\":{}{}}}", "[".repeat(200), "]".repeat(200));
    let damaged: [&[u8]; 5] = [b",\"spec\":\"\xff\"}", b",\"spec\":{}", b"} {}", b",\"spec\":1e999}", deep.as_bytes()];
    for end in damaged {
        let stored = [start.as_bytes(), b"}", end].concat();
        let opened = values.open(b"a.io/bs/c", &stored.into());
        assert!(matches!(opened, Err(Unopened::Unreadable(_))), "{}", end.escape_ascii());
    }
}

#[test]
fn a_small_value_that_stands_for_a_very_large_object_is_refused() {
    let values = values(Layout::Kubernetes);
    let containers = |n: usize| {
        json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "b"},
        "spec": {"containers": vec![json!({}); n]}})
    };
    let stored = |n: usize| values.seal(b"/pods/b/a", &own(&containers(n))).unwrap();
    assert!(values.open(b"/pods/b/a", &stored(1_000)).is_ok());
    let (large, n_bytes) = (stored(200_000), 500_000);
    assert!(large.len() < n_bytes, "{}", large.len());
    let refused = values.open(b"/pods/b/a", &large).unwrap_err();
    assert!(matches!(refused, Unopened::Unreadable(_)), "{refused:?}");
}

#[tokio::test]
async fn custom_objects_are_found_by_fields_however_late_their_definition_comes() {
    let memory = Arc::new(Memory::new());
    let put = async |key: &'static str, value: Value| {
        let op = Op::Put { key: key.into(), value: value.to_string().into() };
        memory.txn(Txn::single(Expect::Absent, op)).await.unwrap();
    };
    // The keys of this group come before those of definitions.
    put("a.io/bs/c", json!({"kind": "B", "apiVersion": "a.io/v1", "metadata": {"name": "c"}, "color": "red"})).await;
    put("apiextensions.k8s.io/customresourcedefinitions/bs.a.io", definition(1, &json!([{"jsonPath": ".color"}])))
        .await;
    let kv = values(Layout::Kubernetes).over(memory.clone());
    let store = Store::open(kv, Options::default()).await.unwrap();
    let found = store.get_cached(&GroupResource::new("a.io", "bs"), &ObjectKey::cluster("c")).unwrap();
    assert_eq!(found.meta().field("color"), Some("red"));
    assert_eq!(found.revision, Revision(1));
}

#[tokio::test]
async fn an_unchanged_object_is_written_again_in_the_form_of_the_layout() {
    let memory = Arc::new(Memory::new());
    let op = Op::Put { key: "/pods/b/a".into(), value: pod().to_string().into() };
    memory.txn(Txn::single(Expect::Absent, op)).await.unwrap();
    let store = Store::open(values(Layout::Kubernetes).over(memory.clone()), Options::default());
    let (store, pods) = (store.await.unwrap(), GroupResource::new("", "pods"));
    let object = store.get(&pods, &ObjectKey::namespaced("b", "a")).await.unwrap().unwrap();
    let again = store.refresh(&pods, &object).await.unwrap();
    assert_eq!((object.revision, again.revision), (Revision(1), Revision(2)));
    assert!(memory.read().await.unwrap().entries[0].value.starts_with(b"k8s\0"));
    store.sync().await.unwrap();
    assert_eq!(store.refresh(&pods, &again).await.unwrap().revision, Revision(2), "it is current");
}

#[test]
fn the_fields_are_those_of_the_latest_definition() {
    let values = values(Layout::Kubernetes);
    let mut number = 0;
    let mut read = |uid: &str, generation: i64, field: &str| {
        let mut definition = definition(generation, &json!([{"jsonPath": field}]));
        definition["metadata"]["uid"] = json!(uid);
        let key = b"apiextensions.k8s.io/customresourcedefinitions/bs.a.io";
        values.open(key, &definition.to_string().into()).unwrap();
        number += 1;
        let custom = json!({"kind": "B", "apiVersion": "a.io/v1", "metadata": {"name": "c"}, "color": number});
        let opened = values.open(b"a.io/bs/c", &custom.to_string().into()).unwrap().value;
        let object = Object::decode(ObjectKey::cluster("c"), Revision(1), &opened).unwrap();
        object.meta().field("color").is_some()
    };
    assert!(read("a", 2, ".color"));
    assert!(read("a", 1, ".other"), "an old state");
    assert!(!read("a", 3, ".other"));
    assert!(read("b", 1, ".color"), "made again within the same second");
}

#[tokio::test]
async fn a_value_that_is_damaged_is_not_taken_for_an_encrypted_one() {
    let memory = Arc::new(Memory::new());
    for (key, value) in
        [("/pods/b/damaged", &b"\xff"[..]), ("/pods/b/later", b"{\"kind\":\"Pod\",\"apiVersion\":\"v9\"}")]
    {
        let op = Op::Put { key: key.into(), value: Bytes::from_static(value) };
        memory.txn(Txn::single(Expect::Absent, op)).await.unwrap();
    }
    let store = Store::open(values(Layout::Steersman).over(memory), Options::default()).await.unwrap();
    let pods = GroupResource::new("", "pods");
    let is_sealed = async |name: &str| store.is_sealed(&pods, &ObjectKey::namespaced("b", name)).await.unwrap();
    assert!(!is_sealed("damaged").await && is_sealed("later").await);
    assert_eq!(store.stats().unreadable, 2);
}

#[test]
fn a_store_moves_from_one_layout_to_the_other_and_back() {
    let (own_form, upstream) = (values(Layout::Steersman), values(Layout::Kubernetes));
    let first = own_form.convert(b"/pods/b/a", &pod().to_string().into()).unwrap();
    let moved = upstream.convert(b"/pods/b/a", &first).unwrap();
    assert!(moved.starts_with(b"k8s\0"));
    assert_eq!(own_form.convert(b"/pods/b/a", &moved).unwrap(), first);
    assert_eq!(upstream.convert(b"/pods/b/a", &moved).unwrap(), moved);
}

#[test]
fn the_keys_are_those_of_kube_apiserver() {
    let keys = keys();
    for (own, upstream) in
        [("/pods/b/a", "pods/b/a"), ("/nodes/a", "minions/a"), ("apps/deployments/b/a", "deployments/b/a")]
    {
        assert_eq!(keys.stored(own.as_bytes()), upstream);
    }
}
