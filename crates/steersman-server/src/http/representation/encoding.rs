//! Serialisations: turn the JSON text of an answer into the bytes of the requested media type.
//!
//! Objects are stored as JSON text, and all their forms are made as JSON text. An [`Encoder`] transcribes such a text,
//! a list item by item, without building a tree. A new one is a file here and a row in [`encoder`].

mod indentation;
mod json;
mod pretty;
mod protobuf;
mod yaml;

use crate::shared::request::negotiate::{Encoding, Layout};
use bytes::Bytes;
use serde::Serialize;
use std::fmt;
use steersman_kinds::protobuf as messages;
use steersman_kinds::protobuf::NotJson;

pub(crate) use self::protobuf::Protobuf;

/// The fields of a list other than its items, in their JSON order; the items come last.
#[derive(Debug)]
pub(crate) struct Envelope {
    pub(crate) fields: Vec<(&'static str, Vec<u8>)>,
    /// The name of the field with the items.
    pub(crate) items: &'static str,
    /// The JSON that replaces an empty list of items.
    pub(crate) nothing: &'static str,
}

/// Turns JSON texts into another serialisation. The texts come from the server itself, so they are valid JSON; an
/// invalid one fails.
pub(crate) trait Encoder: fmt::Debug + Send + Sync {
    /// Writes a whole document.
    fn document(&self, json: &[u8], out: &mut Vec<u8>) -> Result<(), NotJson>;

    /// Writes the part before the first item of a list. `items_bytes` is the size of all items if
    /// [`is_prefixed`](Encoder::is_prefixed) returns true, else zero.
    fn open(&self, envelope: &Envelope, items_bytes: usize, out: &mut Vec<u8>) -> Result<(), NotJson>;

    /// Writes one item; `index` counts from zero.
    fn item(&self, json: &[u8], index: usize, out: &mut Vec<u8>) -> Result<(), NotJson>;

    /// Writes the part after the last of this many items.
    fn close(&self, envelope: &Envelope, items: usize, out: &mut Vec<u8>) -> Result<(), NotJson>;

    /// Whether the part before the first item has the number of bytes that follow.
    fn is_prefixed(&self) -> bool {
        false
    }

    /// Whether JSON texts stay unchanged.
    fn is_identity(&self) -> bool {
        false
    }
}

/// The encoder of a serialisation that does not depend on the kind. Protobuf is written with the messages of a kind
/// ([`Protobuf`]), and replaced by JSON where there are none.
pub(crate) fn encoder(encoding: Encoding, layout: Layout) -> &'static dyn Encoder {
    match encoding {
        Encoding::Json if layout == Layout::Indented => &pretty::Pretty,
        Encoding::Json | Encoding::Protobuf => &json::Json,
        Encoding::Yaml => &yaml::Yaml,
    }
}

/// Serialises any value, and returns the serialisation used: values without a protobuf form are written as JSON.
/// Compact JSON ends with a line break, which clients that print the bytes unchanged rely on.
pub(crate) fn encode(value: &impl Serialize, encoding: Encoding, layout: Layout) -> (Bytes, Encoding) {
    // Trees have string keys and finite numbers, so serialisation cannot fail.
    let mut json = serde_json::to_vec(value).unwrap_or_default();
    let encoding = match encoding {
        Encoding::Protobuf => match messages::document(&json) {
            Some(out) => return (out.into(), Encoding::Protobuf),
            None => Encoding::Json,
        },
        Encoding::Json | Encoding::Yaml => encoding,
    };
    let encoder = encoder(encoding, layout);
    let mut out = Vec::with_capacity(json.len() * 2);
    if !encoder.is_identity() && encoder.document(&json, &mut out).is_ok() {
        return (out.into(), encoding);
    }
    json.push(b'\n');
    (json.into(), Encoding::Json)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    #[test]
    fn json_in_one_line_ends_with_a_line_break() {
        assert_eq!(encode(&json!({"a": 1}), Encoding::Json, Layout::Compact).0, "{\"a\":1}\n");
        assert!(!encode(&json!({"a": 1}), Encoding::Json, Layout::Indented).0.ends_with(b"\n"));
    }

    /// Random trees, with texts that are difficult for serialisations.
    pub(super) fn any_tree() -> impl Strategy<Value = Value> {
        let text = prop_oneof![
            "[ -~]{0,12}",
            "[a-c0-9:#'\"\\\\ \n\t-]{0,100}",
            "\\PC{0,8}",
            Just("yes".to_owned()),
            Just("0x1_0".to_owned()),
            Just("2026-01-01".to_owned()),
            Just("\n".to_owned()),
            Just("a\n\n".to_owned()),
            Just("\u{1}".to_owned()),
        ];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            // Multiples of a quarter, which parsers read back exactly.
            any::<i32>().prop_map(|quarters| Value::from(f64::from(quarters) / 4.0)),
            text.clone().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(text.clone(), inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    /// A list of items, written item by item.
    pub(super) fn streamed(encoder: &dyn Encoder, items: &[Value]) -> String {
        let fields = vec![("kind", b"\"L\"".to_vec()), ("metadata", b"{\"a\":\"1\"}".to_vec())];
        let envelope = Envelope { fields, items: "items", nothing: "[]" };
        let mut out = Vec::new();
        encoder.open(&envelope, 0, &mut out).unwrap();
        for (index, item) in items.iter().enumerate() {
            encoder.item(item.to_string().as_bytes(), index, &mut out).unwrap();
        }
        encoder.close(&envelope, items.len(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// The same list as one JSON text.
    pub(super) fn built(items: &[Value]) -> String {
        format!("{{\"kind\":\"L\",\"metadata\":{{\"a\":\"1\"}},\"items\":{}}}", json!(items))
    }

    proptest! {
        #[test]
        fn json_written_item_by_item_is_the_list(items in prop::collection::vec(any_tree(), 0..4)) {
            prop_assert_eq!(streamed(&json::Json, &items), built(&items));
        }
    }
}
