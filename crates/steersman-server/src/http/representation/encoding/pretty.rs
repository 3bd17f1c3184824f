//! Indented JSON: the same text with line breaks and two spaces for each level.

use crate::http::representation::encoding::indentation::Allowance;
use crate::http::representation::encoding::{Encoder, Envelope};
use steersman_kinds::protobuf::NotJson;

#[derive(Debug)]
pub(super) struct Pretty;

impl Encoder for Pretty {
    fn document(&self, json: &[u8], out: &mut Vec<u8>) -> Result<(), NotJson> {
        write(json, 0, out);
        Ok(())
    }

    fn open(&self, envelope: &Envelope, _items_bytes: usize, out: &mut Vec<u8>) -> Result<(), NotJson> {
        out.push(b'{');
        for (name, json) in &envelope.fields {
            key(name, out);
            write(json, 1, out);
            out.push(b',');
        }
        key(envelope.items, out);
        Ok(())
    }

    fn item(&self, json: &[u8], index: usize, out: &mut Vec<u8>) -> Result<(), NotJson> {
        out.push(if index == 0 { b'[' } else { b',' });
        break_line(2, out);
        write(json, 2, out);
        Ok(())
    }

    fn close(&self, envelope: &Envelope, items: usize, out: &mut Vec<u8>) -> Result<(), NotJson> {
        if items == 0 {
            out.extend_from_slice(envelope.nothing.as_bytes());
        } else {
            break_line(1, out);
            out.push(b']');
        }
        out.extend_from_slice(b"\n}");
        Ok(())
    }
}

fn key(name: &str, out: &mut Vec<u8>) {
    break_line(1, out);
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\": ");
}

fn break_line(depth: usize, out: &mut Vec<u8>) {
    out.push(b'\n');
    out.resize(out.len() + 2 * depth, b' ');
}

/// Indents a JSON text whose first line is at a depth, or writes it in one line if that would be too much.
fn write(json: &[u8], depth: usize, out: &mut Vec<u8>) {
    let start = out.len();
    if indent(json, depth, out).is_none() {
        out.truncate(start);
        out.extend_from_slice(json);
    }
}

/// Indents a JSON text. `None` if that would be too much.
fn indent(json: &[u8], mut depth: usize, out: &mut Vec<u8>) -> Option<()> {
    let (mut allowance, mut at) = (Allowance::of(json), 0);
    while let Some(byte) = json.get(at) {
        match byte {
            b'"' => {
                let end = string_end(json, at);
                out.extend_from_slice(&json[at..end]);
                at = end;
                continue;
            }
            b'{' | b'[' => {
                out.push(*byte);
                let next = json[at + 1..].iter().position(|byte| !byte.is_ascii_whitespace()).map(|skip| at + 1 + skip);
                match next.map(|next| (next, json[next])) {
                    Some((next, close @ (b'}' | b']'))) => {
                        out.push(close);
                        at = next;
                    }
                    _ => {
                        depth += 1;
                        allowance.take(2 * depth)?;
                        break_line(depth, out);
                    }
                }
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                allowance.take(2 * depth)?;
                break_line(depth, out);
                out.push(*byte);
            }
            b',' => {
                out.push(b',');
                allowance.take(2 * depth)?;
                break_line(depth, out);
            }
            b':' => out.extend_from_slice(b": "),
            _ if byte.is_ascii_whitespace() => {}
            _ => out.push(*byte),
        }
        at += 1;
    }
    Some(())
}

/// The position after the last quote of the string that begins at `start`.
fn string_end(json: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(found) = json.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += found;
        if json[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
    json.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::representation::encoding::tests::{any_tree, built, streamed};
    use proptest::prelude::*;
    use serde_json::json;

    fn pretty(json: &[u8]) -> String {
        let mut out = Vec::new();
        Pretty.document(json, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn blanks_that_are_there_do_not_count() {
        let text = br#" { "a" : [ ] , "b":{ },"c": [ 1 , "x\\\" , {" ] } "#;
        let tree: serde_json::Value = serde_json::from_slice(text).unwrap();
        assert_eq!(pretty(text), serde_json::to_string_pretty(&tree).unwrap());
    }

    #[test]
    fn an_empty_list_stands_in_one_line() {
        assert_eq!(
            streamed(&Pretty, &[]),
            "{\n  \"kind\": \"L\",\n  \"metadata\": {\n    \"a\": \"1\"\n  },\n  \"items\": []\n}"
        );
    }

    proptest! {
        #[test]
        fn the_layout_is_that_of_the_tree(tree in any_tree()) {
            prop_assert_eq!(pretty(tree.to_string().as_bytes()), serde_json::to_string_pretty(&tree).unwrap());
        }

        #[test]
        fn a_list_written_item_by_item_is_the_list_written_whole(items in prop::collection::vec(any_tree(), 0..4)) {
            let whole = pretty(built(&items).as_bytes());
            prop_assert_eq!(streamed(&Pretty, &items), whole);
        }
    }

    #[test]
    fn a_scalar_is_itself() {
        assert_eq!(pretty(json!("a").to_string().as_bytes()), "\"a\"");
    }
}
