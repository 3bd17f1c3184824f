//! Tests of stored objects: header and JSON, errors, and decoding.

use super::*;
use crate::Value;
use proptest::prelude::*;
use serde_json::json;

fn text(object: &Object) -> &str {
    std::str::from_utf8(object.json()).unwrap()
}

/// Decodes bytes with and without a header, which must give the same object.
#[track_caller]
fn check(stored: &str, want: &str) -> Object {
    let draft = Draft::read(Bytes::copy_from_slice(stored.as_bytes())).unwrap();
    let object = Object::decode(ObjectKey::cluster("x"), Revision(7), &draft.encode()).unwrap();
    assert_eq!(text(&object), want);
    let old = Object::decode(ObjectKey::cluster("x"), Revision(7), stored.as_bytes()).unwrap();
    assert_eq!((text(&old), old.meta()), (want, object.meta()));
    let tree: Value = serde_json::from_str(stored).unwrap();
    assert_eq!(Header::of(&tree, &[]), Header::read(stored.as_bytes(), &[]).unwrap());
    object
}

#[test]
fn the_revision_is_written_into_the_metadata() {
    check(
        r#"{"apiVersion":"v1","metadata":{"name":"x"},"a":1}"#,
        r#"{"apiVersion":"v1","metadata":{"resourceVersion":"7","name":"x"},"a":1}"#,
    );
    check(r#"{"metadata":{ }}"#, r#"{"metadata":{"resourceVersion":"7" }}"#);
    check(
        r#" {"a":{"metadata":{"b":"}"}},"b\"":[{"metadata":{}}],"metadata" : {"name":"\\\""}}"#.trim_start(),
        r#"{"a":{"metadata":{"b":"}"}},"b\"":[{"metadata":{}}],"metadata" : {"resourceVersion":"7","name":"\\\""}}"#,
    );
    check(
        r#"{"a":"metadata","b":["metadata",{}],"metadata":{"name":"x"}}"#,
        r#"{"a":"metadata","b":["metadata",{}],"metadata":{"resourceVersion":"7","name":"x"}}"#,
    );
}

#[test]
fn the_header_holds_what_is_asked_for() {
    let object = check(
        r#"{"apiVersion":"a/v1","spec":{"metadata":1},"metadata":{"labels":{"b":"2","a":"\u00e9"},"uid":"u","finalizers":["f","g"],"deletionTimestamp":"t","ownerReferences":[{"apiVersion":"v1","kind":"K","name":"n","uid":"o","controller":true}]}}"#,
        r#"{"apiVersion":"a/v1","spec":{"metadata":1},"metadata":{"resourceVersion":"7","labels":{"b":"2","a":"\u00e9"},"uid":"u","finalizers":["f","g"],"deletionTimestamp":"t","ownerReferences":[{"apiVersion":"v1","kind":"K","name":"n","uid":"o","controller":true}]}}"#,
    );
    let meta = object.meta();
    assert_eq!((object.label("a"), object.label("b"), object.label("c")), (Some("é"), Some("2"), None));
    assert_eq!(meta.labels().collect::<Vec<_>>(), [("a", "é"), ("b", "2")]);
    assert_eq!((meta.api_version(), meta.uid(), meta.deletion_timestamp()), ("a/v1", "u", Some("t")));
    assert_eq!(meta.finalizers().collect::<Vec<_>>(), ["f", "g"]);
    assert!(meta.is_deleting() && meta.has_finalizer("g") && !meta.has_finalizer("h"));
    let want = OwnerReference {
        api_version: "v1",
        kind: "K",
        name: "n",
        uid: "o",
        controller: true,
        block_owner_deletion: false,
    };
    assert_eq!(meta.owner_references().collect::<Vec<_>>(), [want]);
    assert_eq!(meta.field("spec.nodeName"), None);
}

#[test]
fn fields_are_known_as_far_as_they_were_given() {
    let pod = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"nodeName": "n"}});
    let header = Header::of(&pod, &[("spec.nodeName", "n"), ("status.phase", "")]);
    let draft = Draft::new(header, pod.to_string().into()).unwrap();
    let object = Object::decode(ObjectKey::cluster("x"), Revision(1), &draft.encode()).unwrap();
    let meta = object.meta();
    assert_eq!((meta.field("spec.nodeName"), meta.field("status.phase")), (Some("n"), Some("")));
    assert_eq!((meta.field("spec.schedulerName"), meta.label("a")), (None, Some("b")));
}

#[test]
fn a_copy_at_another_revision_is_as_if_decoded_with_it() {
    for stored in [
        r#"{"metadata":{}}"#,
        r#"{"apiVersion":"v1","metadata":{"name":"x","uid":"u"},"spec":{"a":1}}"#,
        r#"{"a":{"metadata":{"resourceVersion":"9"}},"metadata": { "name":"x"}}"#,
    ] {
        let at = |revision| Object::decode(ObjectKey::cluster("x"), Revision(revision), stored.as_bytes()).unwrap();
        for (from, to) in [(9, 12_345), (12_345, 9), (0, 10), (u64::MAX, 0)] {
            let (got, want) = (at(from).copy_at(Revision(to)), at(to));
            assert_eq!((got.revision, got.meta(), text(&got)), (want.revision, want.meta(), text(&want)));
        }
    }
}

#[test]
fn what_is_no_object_is_refused() {
    for stored in
        ["", "[]", "{}", r#"{"metadata":1}"#, r#"{"metadata":{"labels":{"a":1}}}"#, "\u{1}", "\u{2}\0\0", r#"{"a":"#]
    {
        assert!(Object::decode(ObjectKey::cluster("x"), Revision(1), stored.as_bytes()).is_err(), "{stored}");
    }
    for json in ["", "1", "[{\"metadata\":{}}]", "{}", r#"{"metadata""#, r#"{"metadata":"#, r#"{"a":{"metadata":{}}}"#]
    {
        let header = Header::of(&Value::Null, &[]);
        assert!(Draft::new(header, Bytes::copy_from_slice(json.as_bytes())).is_err(), "{json}");
    }
}

proptest! {
    #[test]
    fn bytes_that_were_changed_are_refused_or_read_but_never_panic(
        changes in proptest::collection::vec((0usize..120, any::<u8>()), 0..4), cut in 0usize..200,
    ) {
        let json = r#"{"metadata":{"name":"x","uid":"u","labels":{"a":"b"},"finalizers":["f"],"deletionTimestamp":"t"}}"#;
        let mut stored = Draft::read(json.into()).unwrap().encode().to_vec();
        for (at, byte) in changes {
            if let Some(place) = stored.get_mut(at) {
                *place = byte;
            }
        }
        stored.truncate(cut);
        if let Ok(object) = Object::decode(ObjectKey::cluster("x"), Revision(1), &stored) {
            let meta = object.meta();
            let _all = (meta.finalizers().count(), meta.owner_references().count(), meta.field("x"), meta.uid());
            let _copy = object.copy_at(Revision(1_000)).json().len();
        }
    }
}

#[test]
fn an_object_with_initializers_is_not_initialized() {
    let stored = |initializers: &str| {
        let json = format!(r#"{{"metadata":{{"uid":"u","initializers":{initializers}}}}}"#);
        let draft = Draft::read(json.into_bytes().into()).unwrap();
        Object::decode(ObjectKey::cluster("x"), Revision(1), &draft.encode()).unwrap()
    };
    assert!(stored(r#"{"pending":[{"name":"a.b.c"}]}"#).meta().is_uninitialized());
    assert!(!stored("null").meta().is_uninitialized());
    let deleting = r#"{"metadata":{"uid":"u","initializers":{"pending":[]},"deletionTimestamp":"t"}}"#;
    let tree: Value = serde_json::from_str(deleting).unwrap();
    let header = Header::of(&tree, &[]);
    assert_eq!(header, Header::read(deleting.as_bytes(), &[]).unwrap());
    assert!(header.meta().is_uninitialized() && header.meta().is_deleting());
    // Bytes of an old release, without a header.
    let bare = Object::decode(ObjectKey::cluster("x"), Revision(1), deleting.as_bytes()).unwrap();
    assert!(bare.meta().is_uninitialized());
}
