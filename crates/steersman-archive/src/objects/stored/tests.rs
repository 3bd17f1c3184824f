//! Objects in etcd that only their own server can read, and keys that are those of no objects.

use crate::objects::stored::{Envelope, TypeMeta, entries};
use crate::options::Options;
use crate::source::Stored;
use bytes::Bytes;
use prost::Message as _;
use serde_json::json;
use std::path::Path;
use steersman_machinery::{Object, Revision, Value};
use steersman_storage::kv::Entry;

#[derive(Clone, PartialEq, prost::Message)]
struct Route {
    #[prost(message, optional, tag = "1")]
    metadata: Option<Metadata>,
    /// A field that only the server of the kind knows.
    #[prost(bytes = "bytes", tag = "2")]
    spec: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Metadata {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "3")]
    namespace: String,
    #[prost(string, tag = "5")]
    uid: String,
}

fn entry(key: &'static str, revision: u64, value: impl Into<Bytes>) -> Entry {
    Entry { key: key.into(), revision: Revision(revision), value: value.into() }
}

fn message(api_version: &str, kind: &str) -> Bytes {
    let metadata = Metadata { name: "front".to_owned(), namespace: "shop".to_owned(), uid: "u".to_owned() };
    let raw = Route { metadata: Some(metadata), spec: Bytes::from_static(b"\xff\xff\xff") }.encode_to_vec().into();
    let of = TypeMeta { api_version: api_version.to_owned(), kind: kind.to_owned() };
    [b"k8s\0", Envelope { of: Some(of), raw }.encode_to_vec().as_slice()].concat().into()
}

fn shown(entries_found: Vec<Entry>, foreign: Vec<Entry>) -> crate::objects::Objects {
    let found = Stored { entries: entries_found, foreign, revision: Revision(100) };
    entries(found, Path::new("dump"), &Options::default()).unwrap()
}

fn value(entry: &Entry) -> Value {
    serde_json::from_slice(Object::json_of(&entry.value).unwrap()).unwrap()
}

#[test]
fn an_object_whose_message_is_not_known_has_its_metadata() {
    let objects = shown(
        Vec::new(),
        vec![
            entry("routes/shop/front", 7, message("route.openshift.io/v1", "Route")),
            entry("peerserverleases/a", 8, message("coordination.k8s.io/v1", "Lease")),
            entry("podsecuritypolicy/p", 9, message("policy/v1beta1", "PodSecurityPolicy")),
            entry("health", 10, "x"),
        ],
    );
    assert_eq!(objects.made_up, ["routes.route.openshift.io"]);
    let route = objects.entries.iter().find(|entry| entry.key == "route.openshift.io/routes/shop/front").unwrap();
    assert_eq!(route.revision, Revision(7));
    assert_eq!(
        value(route),
        json!({
            "apiVersion": "route.openshift.io/v1", "kind": "Route",
            "metadata": {"name": "front", "namespace": "shop", "uid": "u"},
        })
    );
    let reasons: Vec<_> = objects.left_out.reasons().collect();
    assert_eq!(reasons, [("of the kind PodSecurityPolicy in policy/v1beta1, which this release does not serve", 1)]);
}

#[test]
fn custom_resources_without_their_definition_get_one_with_the_plural_of_their_keys() {
    let crontab = json!({"apiVersion": "stable.example.com/v1", "kind": "CronTab", "metadata": {"name": "a", "namespace": "shop"}});
    let objects = shown(vec![entry("stable.example.com/crontabulae/shop/a", 5, crontab.to_string())], Vec::new());
    assert_eq!(objects.made_up, ["crontabulae.stable.example.com"]);
    assert_eq!(objects.revision, Revision(100));
}

#[test]
fn values_that_are_no_objects_are_counted() {
    let objects = shown(
        vec![
            entry("/configmaps/a/b", 1, "garbage"),
            entry(
                "/configmaps/a/c",
                2,
                r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","namespace":"a"}}"#,
            ),
            entry("/pods/a/d", 3, r#"{"apiVersion":"v9","kind":"Pod","metadata":{"name":"d"}}"#),
        ],
        Vec::new(),
    );
    assert_eq!(objects.entries.len(), 1);
    let reasons: Vec<_> = objects.left_out.reasons().collect();
    assert_eq!(
        reasons,
        [
            ("of configmaps that are damaged, or no objects", 1),
            ("of pods in v9, a version that this release does not know", 1),
        ]
    );
}
