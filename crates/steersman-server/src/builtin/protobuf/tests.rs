//! Decoding of protobuf bodies: the resulting objects, and what is refused.

use super::*;
use proptest::prelude::*;
use serde_json::json;
use std::collections::BTreeSet;

/// A field of bytes, which may be a message.
fn bytes(number: u8, inner: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2, u8::try_from(inner.len()).unwrap()];
    field.extend_from_slice(inner);
    field
}

fn integer(number: u8, value: u8) -> Vec<u8> {
    vec![number << 3, value]
}

fn body(api_version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let meta = [bytes(1, api_version.as_bytes()), bytes(2, kind.as_bytes())].concat();
    [MAGIC.to_vec(), bytes(1, &meta), bytes(2, message), bytes(3, b""), bytes(4, b"")].concat()
}

#[test]
fn a_config_map_reads_as_it_would_in_json() {
    let entry = [bytes(1, b"n"), bytes(2, b"1")].concat();
    let binary = [bytes(1, b"b"), bytes(2, &[0, 1])].concat();
    // A name, an empty generateName, and a creation time without a value.
    let metadata = [bytes(1, b"c"), bytes(2, b""), bytes(8, b"")].concat();
    let message = [bytes(1, &metadata), bytes(2, &entry), bytes(3, &binary)].concat();
    assert_eq!(
        decode(&body("v1", "ConfigMap", &message)).unwrap(),
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "c", "generateName": "", "creationTimestamp": null},
            "data": {"n": "1"},
            "binaryData": {"b": "AAE="},
        })
    );
}

#[test]
fn what_is_not_an_object_in_json_is_not_one_here() {
    // A Service: ports[0].port 80, targetPort "http"; a Lease: times with fractions.
    let target = [integer(1, 1), integer(2, 0), bytes(3, b"http")].concat();
    let port = [integer(3, 80), bytes(4, &target)].concat();
    let service = decode(&body("v1", "Service", &bytes(2, &bytes(1, &port)))).unwrap();
    assert_eq!(service["spec"]["ports"], json!([{"port": 80, "targetPort": "http"}]));
    let time = [integer(1, 5), vec![2 << 3, 0xe8, 0x07]].concat();
    let lease = decode(&body("coordination.k8s.io/v1", "Lease", &bytes(2, &bytes(3, &time)))).unwrap();
    assert_eq!(lease["spec"]["acquireTime"], "1970-01-01T00:00:05.000001Z");
}

#[test]
fn the_source_of_a_volume_is_part_of_the_volume() {
    let volume = [bytes(1, b"v"), bytes(2, &bytes(2, b""))].concat();
    let quantity = [bytes(1, b"cpu"), bytes(2, &bytes(1, b"100m"))].concat();
    let container = [bytes(1, b"c"), bytes(8, &bytes(1, &quantity))].concat();
    let pod = decode(&body("v1", "Pod", &bytes(2, &[bytes(1, &volume), bytes(2, &container)].concat()))).unwrap();
    assert_eq!(
        pod["spec"],
        json!({
            "volumes": [{"name": "v", "emptyDir": {}}],
            "containers": [{"name": "c", "resources": {"limits": {"cpu": "100m"}}}],
        })
    );
}

#[test]
fn negative_numbers_and_packed_ones_are_read() {
    let minus_one = [vec![5 << 3], vec![0xff; 9], vec![1]].concat();
    let lease = decode(&body("coordination.k8s.io/v1", "Lease", &bytes(2, &minus_one))).unwrap();
    assert_eq!(lease["spec"]["leaseTransitions"], -1);
    let groups = bytes(14, &bytes(4, &[1, 0x80, 0x01]));
    let pod = decode(&body("v1", "Pod", &bytes(2, &groups))).unwrap();
    assert_eq!(pod["spec"]["securityContext"]["supplementalGroups"], json!([1, 128]));
}

#[test]
fn what_is_no_body_is_refused() {
    assert_eq!(decode(b"{}").unwrap_err(), Error::NoMagic);
    assert_eq!(
        decode(&body("example.com/v1", "Thing", b"")).unwrap_err(),
        Error::UnknownKind { api_version: "example.com/v1".to_owned(), kind: "Thing".to_owned() }
    );
    let damaged = decode(&body("v1", "ConfigMap", &[1 << 3 | 2, 9])).unwrap_err();
    assert!(matches!(damaged, Error::Damaged { .. }), "{damaged}");
    let mismatched = decode(&body("v1", "ConfigMap", &integer(1, 1))).unwrap_err();
    assert!(matches!(mismatched, Error::Damaged { .. }), "{mismatched}");
}

#[test]
fn every_definition_has_its_message_with_the_same_fields() {
    for definition in Definitions::builtin().iter() {
        let properties = &definition.schema().target().properties;
        let Some(message) = TABLE.of_definition(definition.name()) else { continue };
        if properties.is_empty() {
            continue;
        }
        let mut names = BTreeSet::new();
        collect(message, &mut names);
        for (name, _) in properties.iter().filter(|(name, _)| !matches!(*name, "apiVersion" | "kind")) {
            assert!(names.contains(name), "{definition:?} has no field {name}");
        }
    }
    assert!(TABLE.iter().count() > 1000);
}

fn collect(message: Message, names: &mut BTreeSet<&'static str>) {
    for field in message.fields() {
        match field.kind {
            Kind::Message(inner) if field.name.is_empty() => collect(TABLE.message(inner).unwrap(), names),
            _ => {
                names.insert(field.name);
            }
        }
    }
}

proptest! {
    #[test]
    fn no_body_makes_it_panic(message in proptest::collection::vec(any::<u8>(), 0..100)) {
        for (api_version, kind) in [("v1", "Pod"), ("apiextensions.k8s.io/v1", "CustomResourceDefinition")] {
            let _ = decode(&body(api_version, kind, &message));
        }
        let _ = decode(&message);
    }
}
