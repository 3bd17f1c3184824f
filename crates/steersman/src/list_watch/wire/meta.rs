//! Finds name, namespace, uid and version of an object in its bytes, in one scan and without decoding anything.

use std::ops::Range;

use crate::list_watch::wire::scan::{key_and_value, skip_space, skip_value};

/// The positions of the members that every cache needs in the bytes of an object. A range is empty where the member is
/// absent, or is not a plain string.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Spans {
    /// The whole value of `metadata`.
    pub(crate) metadata: Range<usize>,
    pub(crate) name: Range<usize>,
    pub(crate) namespace: Range<usize>,
    pub(crate) resource_version: Range<usize>,
    pub(crate) uid: Range<usize>,
}

/// Scans an object from its first byte to its last. `None`: by its brackets and quotes, it is not exactly one JSON
/// object.
pub(crate) fn spans(json: &[u8]) -> Option<Spans> {
    let mut spans = Spans::default();
    let end = members(json, skip_space(json, 0), |name, value, end| {
        if name == b"metadata" {
            spans.metadata = value..end;
        }
    })?;
    if skip_space(json, end) != json.len() {
        return None;
    }
    if json.get(spans.metadata.start) == Some(&b'{') {
        let mut is_plain = true;
        members(json, spans.metadata.start, |name, value, end| {
            let wanted = match name {
                b"name" => &mut spans.name,
                b"namespace" => &mut spans.namespace,
                b"resourceVersion" => &mut spans.resource_version,
                b"uid" => &mut spans.uid,
                _ => return,
            };
            let text = plain_text(json, value..end);
            is_plain &= text.is_some() || !matches!(name, b"name" | b"namespace");
            *wanted = text.unwrap_or_default();
        })?;
        if !is_plain {
            // With one part unreadable the key is unknown: the caller decodes the object to find it.
            (spans.name, spans.namespace) = (Range::default(), Range::default());
        }
    }
    Some(spans)
}

/// Calls `visit` with the name of each member of the object that opens at `open`, and the start and end of its value.
/// Returns the end of the object.
fn members(json: &[u8], open: usize, mut visit: impl FnMut(&[u8], usize, usize)) -> Option<usize> {
    if json.get(open) != Some(&b'{') {
        return None;
    }
    let mut at = skip_space(json, open + 1);
    if json.get(at) == Some(&b'}') {
        return Some(at + 1);
    }
    loop {
        if json.get(at) != Some(&b'"') {
            return None;
        }
        let (name, value) = key_and_value(json, at)?;
        let end = skip_value(json, value)?;
        visit(&json[name], value, end);
        at = skip_space(json, end);
        match json.get(at) {
            Some(b',') => at = skip_space(json, at + 1),
            Some(b'}') => return Some(at + 1),
            _ => return None,
        }
    }
}

/// The inside of a string without escapes.
fn plain_text(json: &[u8], value: Range<usize>) -> Option<Range<usize>> {
    let text = json.get(value.clone())?.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    let is_plain = std::str::from_utf8(text).is_ok() && !text.contains(&b'\\');
    is_plain.then_some(value.start + 1..value.end - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};
    use serde_json::{Value, json};

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<[&str; 4]>) {
        let found = spans(text.as_bytes());
        let found =
            found.map(|spans| [spans.name, spans.namespace, spans.resource_version, spans.uid].map(|span| &text[span]));
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn the_members_are_found_wherever_they_stand() {
        check(
            r#" {"spec":{"name":"no"},"metadata":{"uid":"u","labels":{"name":"no"},"name":"a","resourceVersion":"7"}} "#,
            Some(["a", "", "7", "u"]),
        );
        check(r#"{"metadata":{"name":"a","namespace":"b"},"metadata2":{}}"#, Some(["a", "b", "", ""]));
        check("{}", Some(["", "", "", ""]));
        check(r#"{"metadata":{"name":"a","namespace":"b\u0063","uid":"u"}}"#, Some(["", "", "", "u"]));
        check(r#"{"metadata":null}"#, Some(["", "", "", ""]));
        check(r#"{"metadata":{"name":7,"uid":"\u0041"}}"#, Some(["", "", "", ""]));
    }

    #[test]
    fn what_is_not_one_whole_object_has_none() {
        check("", None);
        check("[]", None);
        check(r#"{"metadata":{"name":"a"}"#, None);
        check(r#"{"metadata":{"name":"a"}},"more":{}"#, None);
        check(r#"{"metadata":{"name":"a"} "spec":1}"#, None);
        check(r#"{"metadata":{"name" "a"}}"#, None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in any::<Vec<u8>>()) {
            let _ = spans(&bytes);
        }

        #[test]
        fn what_is_found_is_what_a_parser_finds(name in "[a-z\"\\\\é]{0,5}", version in "[0-9]{0,4}", before in any::<bool>()) {
            let mut object = json!({"metadata": {"name": name, "resourceVersion": version}, "x": [{"}": "{"}]});
            if before {
                object["aa"] = json!({"metadata": {"name": "no"}});
            }
            let text = object.to_string();
            let found = spans(text.as_bytes()).unwrap();
            assert_eq!(serde_json::from_str::<Value>(&text[found.metadata]).unwrap(), object["metadata"]);
            assert_eq!(text[found.resource_version], version);
            let is_plain = !name.contains(['"', '\\']);
            assert_eq!(&text[found.name], if is_plain { name.as_str() } else { "" });
        }
    }
}
