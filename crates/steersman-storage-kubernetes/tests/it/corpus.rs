//! The objects that a real kube-apiserver has answered, in either form.

use bytes::Bytes;
use flate2::read::GzDecoder;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use steersman_kinds::runtime_config::RuntimeConfig;
use steersman_machinery::{Object, ObjectKey, Revision};
use steersman_storage::kv::transformed::{Form, Transformer as _};
use steersman_storage_kubernetes::{Layout, Values};

/// The answered objects, with the key that each has in the store.
fn answered() -> Vec<(String, Value)> {
    let corpus = include_bytes!("../../../steersman-differential/corpus.jsonl.gz");
    let lines = BufReader::new(GzDecoder::new(corpus.as_slice())).lines();
    let cases = lines.map_while(Result::ok).filter(|line| !line.is_empty());
    let objects = cases.filter_map(|line| {
        let mut case: Value = serde_json::from_str(&line).unwrap();
        let key = key(case["object"].as_str()?)?;
        let body = case["answer"]["body"].take();
        let is_object =
            body["metadata"]["name"].is_string() && !matches!(body["kind"].as_str(), Some("Status" | "Scale"));
        is_object.then_some((key, body))
    });
    objects.collect()
}

/// `group/resource/namespace/name` of the path of an object.
fn key(path: &str) -> Option<String> {
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    let (group, rest) = match segments.as_slice() {
        ["api", _, rest @ ..] => ("", rest),
        ["apis", group, _, rest @ ..] => (*group, rest),
        _ => return None,
    };
    match rest {
        ["namespaces", namespace, resource, name, ..] => Some(format!("{group}/{resource}/{namespace}/{name}")),
        [resource, name, ..] => Some(format!("{group}/{resource}/{name}")),
        _ => None,
    }
}

#[test]
fn an_object_comes_back_from_the_form_of_kube_apiserver_as_it_was() {
    let config = RuntimeConfig::default();
    let (own, upstream) = (Values::new(Layout::Steersman, &config), Values::new(Layout::Kubernetes, &config));
    let (mut kinds, mut n_objects) = (BTreeSet::new(), 0);
    for (key, answered) in answered() {
        let key = key.as_bytes();
        let json = Bytes::from(serde_json::to_vec(&answered).unwrap());
        let Ok(read) = own.open(key, &json) else { continue };
        assert_eq!(read.form, Form::Stale, "JSON without a header");
        let sealed = upstream.seal(key, &read.value).unwrap();
        let opened = upstream.open(key, &sealed).unwrap();
        let show = |bytes: &[u8]| String::from_utf8_lossy(Object::json_of(bytes).unwrap()).into_owned();
        assert_eq!(show(&opened.value), show(&read.value), "{}", String::from_utf8_lossy(key));
        assert_eq!((opened.value, opened.form), (read.value.clone(), Form::Current));
        let object = Object::decode(ObjectKey::cluster("x"), Revision(1), &read.value).unwrap();
        let mut shown: Value = serde_json::from_slice(object.json()).unwrap();
        shown["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        if shown["apiVersion"] == answered["apiVersion"] {
            assert_eq!(shown, answered, "what kube-apiserver has answered is the stored form");
        }
        n_objects += 1;
        kinds.insert(answered["kind"].to_string());
    }
    assert!(700 < n_objects && 50 < kinds.len(), "{n_objects} objects of {} kinds", kinds.len());
}
