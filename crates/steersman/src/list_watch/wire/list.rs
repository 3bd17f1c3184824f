//! Cuts a list answer into its items while it arrives.
//!
//! The items come out one by one as bytes; everything around them (kind, `metadata.resourceVersion`,
//! `metadata.continue`) is collected in a small envelope, whichever comes first.

use bytes::{Buf, Bytes, BytesMut};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::list_watch::wire::{OBJECT_BYTES_MAX, TooLarge};

/// A push parser for `{"kind":"XList","metadata":{..},"items":[{..},{..}]}`.
#[derive(Debug, Default)]
pub(crate) struct ListScanner {
    buffer: BytesMut,
    /// The number of bytes of `buffer` that were scanned.
    scanned: usize,
    depth: u32,
    text: Text,
    /// Start in `buffer` of the last string.
    string_start: usize,
    /// At depth 1: whether the last complete string is `items`.
    key_is_items: bool,
    in_items: bool,
    /// Everything that is not inside the items array.
    envelope: Vec<u8>,
}

/// The list without its items.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Envelope {
    #[serde(default)]
    pub(crate) metadata: ListMeta,
    /// An array without its items, or null. An answer without the field is not a list, and must not be taken for an
    /// empty one.
    #[serde(rename = "items")]
    _items: IgnoredAny,
}

/// Metadata of a list.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListMeta {
    #[serde(default)]
    pub(crate) resource_version: String,
    /// The continue token of the next page. Empty: this was the last one.
    #[serde(default, rename = "continue")]
    pub(crate) next_page: String,
}

/// Where the scanner is in relation to strings.
#[derive(Clone, Copy, Debug, Default)]
enum Text {
    Escape,
    Inside,
    #[default]
    Outside,
}

impl ListScanner {
    /// Adds a chunk. Call [`ListScanner::next_item`] until it has no more before adding another.
    pub(crate) fn push(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// The next complete item, or `None` when another chunk is needed.
    pub(crate) fn next_item(&mut self) -> Result<Option<Bytes>, TooLarge> {
        while let Some(&byte) = self.buffer.get(self.scanned) {
            match self.text {
                Text::Escape => {
                    self.text = Text::Inside;
                    self.scanned += 1;
                }
                Text::Inside => self.inside(),
                Text::Outside => {
                    self.scanned += 1;
                    if self.outside(byte) {
                        let item = self.buffer.split_to(self.scanned).freeze();
                        self.scanned = 0;
                        return Ok(Some(item));
                    }
                }
            }
        }
        let held = self.buffer.len().max(self.envelope.len());
        if held > OBJECT_BYTES_MAX { Err(TooLarge) } else { Ok(None) }
    }

    /// The list without its items. An error means that the answer was cut short or is not a list.
    pub(crate) fn finish(mut self) -> Result<Envelope, serde_json::Error> {
        self.envelope.extend_from_slice(&self.buffer);
        serde_json::from_slice(&self.envelope)
    }

    /// Steps to the end of the string, to an escape in it, or to the end of what has arrived.
    fn inside(&mut self) {
        let Some(offset) = memchr::memchr2(b'"', b'\\', &self.buffer[self.scanned..]) else {
            self.scanned = self.buffer.len();
            return;
        };
        let found = self.scanned + offset;
        self.scanned = found + 1;
        if self.buffer[found] == b'\\' {
            self.text = Text::Escape;
            return;
        }
        self.text = Text::Outside;
        if self.depth == 1 {
            self.key_is_items = &self.buffer[self.string_start..found] == b"items";
        }
    }

    /// Handles the byte before `scanned`, which is outside strings. True: an item ends with it.
    fn outside(&mut self, byte: u8) -> bool {
        match byte {
            b'"' => {
                self.text = Text::Inside;
                self.string_start = self.scanned;
            }
            b'{' | b'[' => {
                if byte == b'[' && self.depth == 1 && self.key_is_items {
                    self.in_items = true;
                    self.envelope.extend_from_slice(&self.buffer[..self.scanned]);
                    self.buffer.advance(self.scanned);
                    self.scanned = 0;
                } else if self.in_items && self.depth == 2 {
                    self.drop_before();
                }
                self.depth += 1;
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                if self.in_items && self.depth == 1 {
                    self.in_items = false;
                    self.key_is_items = false;
                    self.drop_before();
                }
                return self.in_items && self.depth == 2;
            }
            // The value between the key and this comma was not an array, so it was not the items.
            b',' if self.depth == 1 => self.key_is_items = false,
            _ => {}
        }
        false
    }

    /// Drops the bytes before the current one: commas and spaces between items.
    fn drop_before(&mut self) {
        self.buffer.advance(self.scanned - 1);
        self.scanned = 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::proptest;
    use serde_json::{Value, json};

    use super::*;

    fn scan(text: &[u8], step: usize) -> (Vec<Value>, Result<Envelope, serde_json::Error>) {
        let (mut scanner, mut items) = (ListScanner::default(), Vec::new());
        for chunk in text.chunks(step) {
            scanner.push(chunk);
            while let Some(item) = scanner.next_item().unwrap() {
                items.push(serde_json::from_slice(&item).unwrap());
            }
        }
        (items, scanner.finish())
    }

    #[track_caller]
    fn check(list: &Value, text: &str) {
        for step in [1, 2, 3, 7, text.len()] {
            let (items, envelope) = scan(text.as_bytes(), step);
            assert_eq!(&Value::from(items), list.get("items").unwrap_or(&json!([])), "step {step} of {text}");
            let envelope = envelope.unwrap();
            assert_eq!(envelope.metadata.resource_version, list["metadata"]["resourceVersion"].as_str().unwrap());
            assert_eq!(envelope.metadata.next_page, list["metadata"]["continue"].as_str().unwrap_or_default());
        }
    }

    #[test]
    fn items_leave_one_by_one_whatever_surrounds_them() {
        for list in [
            json!({"kind": "XList", "metadata": {"resourceVersion": "7"}, "items": []}),
            json!({"items": [{"a": "]}\"\\"}, {"items": [{"b": 1}]}], "metadata": {"resourceVersion": "7", "continue": "x"}}),
            json!({"kind": "items", "other": ["items"], "metadata": {"resourceVersion": "8"}, "items": [{}, {"a": [[1]]}]}),
            json!({"metadata": {"resourceVersion": "9", "items": ["no"]}, "items": []}),
        ] {
            check(&list, &list.to_string());
            check(&list, &serde_json::to_string_pretty(&list).unwrap());
        }
    }

    #[test]
    fn a_list_cut_short_is_an_error() {
        let (items, envelope) = scan(br#"{"metadata":{"resourceVersion":"7"},"items":[{"a":1},{"b""#, 4);
        assert_eq!(items, [json!({"a": 1})]);
        assert!(envelope.is_err());
    }

    #[test]
    fn a_list_without_items_has_null_for_them_and_what_has_none_is_no_list() {
        assert!(scan(br#"{"metadata":{"resourceVersion":"7"},"items":null}"#, 4).1.is_ok());
        for text in ["{}", r#"{"kind":"Status","metadata":{},"code":200}"#, r#"{"metadata":{"resourceVersion":"7"}}"#] {
            assert!(scan(text.as_bytes(), 4).1.is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(proptest::sample::select(b"{}[]\"items:,\\ ".to_vec()), 0..200), step in 1_usize..20) {
            let mut scanner = ListScanner::default();
            for chunk in bytes.chunks(step) {
                scanner.push(chunk);
                while scanner.next_item().unwrap().is_some() {}
            }
            drop(scanner.finish());
        }
    }
}
