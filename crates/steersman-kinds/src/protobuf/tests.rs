//! Tests of protobuf bodies: their objects, and invalid bodies.

use super::*;
use crate::protobuf::table::Field;
use proptest::prelude::*;
use serde_json::json;
use std::collections::BTreeSet;
use steersman_machinery::Budget;
use steersman_schema::Definitions;
use steersman_schema::schema::{Schema, Special, Type};

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
    // A name, an empty generateName, and an absent creation time.
    let metadata = [bytes(1, b"c"), bytes(2, b""), bytes(8, b"")].concat();
    let message = [bytes(1, &metadata), bytes(2, &entry), bytes(3, &binary)].concat();
    assert_eq!(
        decode(&body("v1", "ConfigMap", &message), &Budget::unlimited()).unwrap(),
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
    let service = decode(&body("v1", "Service", &bytes(2, &bytes(1, &port))), &Budget::unlimited()).unwrap();
    assert_eq!(service["spec"]["ports"], json!([{"port": 80, "targetPort": "http"}]));
    let time = [integer(1, 5), vec![2 << 3, 0xe8, 0x07]].concat();
    let lease =
        decode(&body("coordination.k8s.io/v1", "Lease", &bytes(2, &bytes(3, &time))), &Budget::unlimited()).unwrap();
    assert_eq!(lease["spec"]["acquireTime"], "1970-01-01T00:00:05.000001Z");
}

#[test]
fn the_source_of_a_volume_is_part_of_the_volume() {
    let volume = [bytes(1, b"v"), bytes(2, &bytes(2, b""))].concat();
    let quantity = [bytes(1, b"cpu"), bytes(2, &bytes(1, b"100m"))].concat();
    let container = [bytes(1, b"c"), bytes(8, &bytes(1, &quantity))].concat();
    let pod = decode(
        &body("v1", "Pod", &bytes(2, &[bytes(1, &volume), bytes(2, &container)].concat())),
        &Budget::unlimited(),
    )
    .unwrap();
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
    let lease = decode(&body("coordination.k8s.io/v1", "Lease", &bytes(2, &minus_one)), &Budget::unlimited()).unwrap();
    assert_eq!(lease["spec"]["leaseTransitions"], -1);
    let groups = bytes(14, &bytes(4, &[1, 0x80, 0x01]));
    let pod = decode(&body("v1", "Pod", &bytes(2, &groups)), &Budget::unlimited()).unwrap();
    assert_eq!(pod["spec"]["securityContext"]["supplementalGroups"], json!([1, 128]));
}

#[test]
fn what_is_no_body_is_refused() {
    assert_eq!(decode(b"{}", &Budget::unlimited()).unwrap_err(), Error::NoMagic);
    assert_eq!(
        decode(&body("example.com/v1", "Thing", b""), &Budget::unlimited()).unwrap_err(),
        Error::UnknownKind { api_version: "example.com/v1".to_owned(), kind: "Thing".to_owned() }
    );
    let damaged = decode(&body("v1", "ConfigMap", &[1 << 3 | 2, 9]), &Budget::unlimited()).unwrap_err();
    assert!(matches!(damaged, Error::Damaged { .. }), "{damaged}");
    let mismatched = decode(&body("v1", "ConfigMap", &integer(1, 1)), &Budget::unlimited()).unwrap_err();
    assert!(matches!(mismatched, Error::Damaged { .. }), "{mismatched}");
}

#[test]
fn every_definition_has_its_message_with_the_same_fields() {
    for definition in Definitions::builtin().iter() {
        let properties = &definition.schema().target().properties;
        let Some(message) = TABLE.of_definition(definition.name()) else {
            let is_object = properties.iter().next().is_some();
            let is_json_only = HAVE_NO_MESSAGE.iter().any(|name| definition.name().starts_with(name));
            assert!(!is_object || is_json_only, "{definition:?} has no message");
            continue;
        };
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

/// Definitions that have no protobuf form.
const HAVE_NO_MESSAGE: [&str; 2] = ["io.k8s.apimachinery.pkg.version.Info", "io.k8s.metrics."];

fn collect(message: &Message, names: &mut BTreeSet<&'static str>) {
    names.extend(message.fields.iter().map(|field| field.name));
    for part in &message.parts {
        collect(TABLE.at(part.message), names);
    }
}

/// Checks that a document is unchanged after encoding and decoding.
#[track_caller]
fn check_both_ways(object: &Value) {
    let written = document(object.to_string().as_bytes()).expect("the kind has a protobuf form");
    let read = decode(&written, &Budget::unlimited()).unwrap();
    assert!(read == *object, "{object}\nis not\n{read}");
}

#[test]
fn what_is_not_an_object_in_json_comes_back_as_it_was() {
    check_both_ways(&json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "p", "creationTimestamp": "2026-02-28T23:59:59Z", "deletionTimestamp": "1969-12-31T23:59:58Z",
            "labels": {"a": "", "b": "quote \" backslash \\ line\nend \u{1F600}"},
            "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {"f:a": {}, "k:{\"x\":\"}\"}": {".": {}}}}}],
        },
        "spec": {
            "volumes": [{"name": "v", "emptyDir": {}}, {"name": "s", "secret": {"secretName": "t", "defaultMode": 420}}],
            "containers": [{
                "name": "c", "resources": {"limits": {"cpu": "100m", "memory": "1Gi"}},
                "livenessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 10},
                "readinessProbe": {"tcpSocket": {"port": 80}},
                "env": [{"name": "E", "valueFrom": {"configMapKeyRef": {"name": "n", "key": "k", "optional": false}}}],
            }],
            "securityContext": {"supplementalGroups": [1, 4_294_967_296_i64], "runAsUser": 0, "runAsNonRoot": true},
            "priority": -2_000_000_000,
        },
    }));
    check_both_ways(&json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"},
        "spec": {"acquireTime": "2026-01-01T00:00:00.000001Z", "renewTime": "1969-12-31T23:59:59.250000Z"},
    }));
    check_both_ways(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "AAEC/w==", "b": ""}, "immutable": true,
    }));
    check_both_ways(&json!({
        "apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": "c"},
        "data": {"spec": {"a": [1, 2.5, null, "x"]}}, "revision": 3,
    }));
    check_both_ways(&json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "metadata": {},
        "status": {"userInfo": {"username": "u", "extra": {"e": ["1", "2"], "none": []}}},
    }));
}

#[test]
fn schemas_in_definitions_come_back_as_they_were() {
    check_both_ways(&json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "d"},
        "spec": {"group": "g", "versions": [{"name": "v1", "served": true, "storage": false, "schema": {"openAPIV3Schema": {
            "type": "object", "$ref": "#/r", "x-kubernetes-preserve-unknown-fields": true,
            "default": {"a": [null, 1]}, "enum": ["a", 1, {"b": "c"}], "minimum": -1.5, "maxLength": 3,
            "additionalProperties": {"type": "string"},
            "properties": {"a": {"additionalProperties": false}, "b": {"items": {"type": "integer"}}},
        }}}]},
    }));
}

#[test]
fn null_and_what_has_no_field_are_left_out() {
    let json = br#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"c","creationTimestamp":null,"strange":{"a":["]}"]}},"data":null,"x":1}"#;
    let read = decode(&document(json).unwrap(), &Budget::unlimited()).unwrap();
    assert_eq!(read, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}));
    assert_eq!(document(br#"{"kind":"Cup","apiVersion":"example.com/v1"}"#), None);
    assert_eq!(document(br#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"c"#), None);
}

#[test]
fn lengths_beyond_a_byte_are_written_in_as_many_as_they_need() {
    for bytes in
        [0, 1, 100, 117, 118, 119, 127, 128, 129, 16_000, 16_383, 16_384, 17_000, 2_097_151, 2_097_152, 2_200_000]
    {
        check_both_ways(&json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": "x".repeat(bytes)},
        }));
    }
}

#[test]
fn a_frame_says_how_long_it_is() {
    let frame = frame("ADDED", |out| {
        out.extend_from_slice(b"object");
        Ok(())
    });
    assert_eq!(frame.unwrap(), b"\0\0\0\x11\x0a\x05ADDED\x12\x08\x0a\x06object");
}

/// A number below `choices`, from Knuth's generator, whose upper half is good enough for tests.
fn pick(chance: &mut u64, choices: u64) -> u64 {
    *chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*chance >> 33) % choices
}

/// A random object of a schema with most of its fields.
fn sample(schema: &Schema, chance: &mut u64, depth: usize) -> Value {
    match schema.special() {
        Some(Special::Bytes) => return json!(STANDARD.encode(pick(chance, 1 << 20).to_string())),
        Some(Special::FieldsV1) => return json!({"f:a": {"f:b\\": {}}}),
        Some(Special::IntOrString) if pick(chance, 2) == 0 => return json!(pick(chance, 100)),
        Some(Special::IntOrString) => return json!(format!("{}%", pick(chance, 100))),
        Some(Special::Json | Special::RawExtension) => return json!({"a": [pick(chance, 10), "x", null]}),
        Some(Special::MicroTime) => {
            return json!(format!("2026-03-0{}T01:02:03.00000{}Z", 1 + pick(chance, 9), pick(chance, 10)));
        }
        Some(Special::Quantity) => return json!(format!("{}m", pick(chance, 1000))),
        Some(Special::Time) => {
            return json!(format!("20{:02}-0{}-28T01:02:03Z", pick(chance, 100), 1 + pick(chance, 9)));
        }
        None => {}
    }
    let target = schema.target();
    match target.value_type {
        Type::Boolean => json!(pick(chance, 2) == 0),
        Type::Integer => json!(i64::try_from(pick(chance, 1 << 31)).unwrap() - (1 << 30)),
        Type::Number => json!(f64::from(u32::try_from(pick(chance, 1000)).unwrap()) / 8.0),
        Type::String => {
            json!(format!("t{}", "e\n\u{e9}".repeat(usize::try_from(pick(chance, 60).saturating_sub(50)).unwrap())))
        }
        Type::Array => {
            let Some(item) = schema.item() else { return json!([]) };
            let items = 1 + pick(chance, 2);
            json!((0..items).map(|_| sample(item, chance, depth + 1)).collect::<Vec<_>>())
        }
        Type::Any | Type::IntOrString | Type::Object => {
            let mut fields = Map::new();
            for (name, inner) in target.properties.iter() {
                // Deep down only some fields, since schemas are recursive.
                if depth < 12 && pick(chance, 1 + depth as u64 / 2) == 0 {
                    fields.insert(name.to_owned(), sample(inner, chance, depth + 1));
                }
            }
            if let Some(inner) = schema.values() {
                fields.insert(format!("k/{}", depth), sample(inner, chance, depth + 1));
            }
            Value::Object(fields)
        }
    }
}

/// Removes values that protobuf cannot distinguish from absent ones, empty lists and maps, and fields without a
/// protobuf field, such as the types of embedded objects.
fn without_nothing(value: &mut Value, message: &Message) {
    let Some(fields) = value.as_object_mut() else { return };
    fields.retain(|name, value| {
        let known = message.named(name).copied().or_else(|| part_of(message, name));
        let Some(known) = known else { return false };
        let each: Vec<&mut Value> = match (known.form, &mut *value) {
            (Form::List, Value::Array(items)) => items.iter_mut().collect(),
            (Form::Map, Value::Object(entries)) => entries.values_mut().collect(),
            (_, value) => vec![value],
        };
        if let Kind::Message(inner) | Kind::Either(inner) = known.kind {
            let schema = TABLE.at(inner).named("schema").map(|field| field.kind);
            let inner = match (known.kind, schema) {
                (Kind::Either(_), Some(Kind::Message(schema))) => schema,
                _ => inner,
            };
            each.into_iter().for_each(|value| without_nothing(value, TABLE.at(inner)));
        }
        let is_empty = match &*value {
            Value::Array(items) => items.is_empty(),
            Value::Object(entries) => entries.is_empty(),
            _ => false,
        };
        !is_empty || known.form == Form::One
    });
}

/// The first path at which two values differ, and both values.
fn first_difference(a: &Value, b: &Value, path: String) -> Option<String> {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            let null = Value::Null;
            let mut each = names.into_iter().map(|name| (name, a.get(name), b.get(name)));
            each.find_map(|(name, a, b)| {
                first_difference(a.unwrap_or(&null), b.unwrap_or(&null), format!("{path}.{name}"))
            })
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let mut each = a.iter().zip(b).enumerate();
            each.find_map(|(index, (a, b))| first_difference(a, b, format!("{path}[{index}]")))
        }
        _ => (a != b).then(|| format!("{path}: {a} is not {b}")),
    }
}

fn part_of(message: &Message, name: &str) -> Option<Field> {
    message.parts.iter().find_map(|part| {
        let message = TABLE.at(part.message);
        message.named(name).copied().or_else(|| part_of(message, name))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]

    #[test]
    fn every_kind_comes_back_as_it_was(seed: u64) {
        let mut n_kinds = 0;
        for (kind, definition) in Definitions::builtin().kinds() {
            let Some(message) = TABLE.of_kind(kind) else { continue };
            let mut chance = seed;
            let mut object = sample(definition.schema(), &mut chance, 0);
            without_nothing(&mut object, message);
            object["apiVersion"] = kind.api_version().into();
            object["kind"] = kind.kind.as_str().into();
            let read = decode(&document(object.to_string().as_bytes()).unwrap(), &Budget::unlimited()).unwrap();
            prop_assert_eq!(first_difference(&object, &read, String::new()), None, "{}", kind);
            n_kinds += 1;
        }
        prop_assert!(n_kinds > 200, "only {n_kinds} kinds");
    }
}

proptest! {
    #[test]
    fn a_cut_text_is_no_document(seed: u64, cut in 0_usize..4000) {
        let kind = GroupVersionKind::new("", "v1", "Pod");
        let definition = Definitions::builtin().definition_of(&kind).unwrap();
        let mut chance = seed;
        let text = sample(definition.schema(), &mut chance, 0).to_string();
        let cut = cut % text.len();
        let mut out = Vec::new();
        let envelope = Envelope::of(&kind).unwrap();
        prop_assert!(envelope.document(&text.as_bytes()[..cut], &mut out).is_err());
    }

    #[test]
    fn no_text_makes_it_panic(text in "[\\[\\]{}:,\"a0-9.e\\\\ntf -]{0,60}") {
        for kind in ["Pod", "Secret", "Service"] {
            let envelope = Envelope::of(&GroupVersionKind::new("", "v1", kind)).unwrap();
            for text in [text.clone(), format!("{{\"spec\":{text}"), format!("{{\"data\":{{\"a\":{text}")] {
                let _ = envelope.document(text.as_bytes(), &mut Vec::new());
            }
        }
    }

    #[test]
    fn no_body_makes_it_panic(message in proptest::collection::vec(any::<u8>(), 0..100)) {
        for (api_version, kind) in [("v1", "Pod"), ("apiextensions.k8s.io/v1", "CustomResourceDefinition")] {
            let _ = decode(&body(api_version, kind, &message), &Budget::unlimited());
        }
        let _ = decode(&message, &Budget::unlimited());
    }
}
