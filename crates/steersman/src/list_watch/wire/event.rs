//! Parses one watch event without building a tree: its type and the bytes of its object.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::list_watch::wire::scan;
use crate::shared::key::ObjectKey;

/// The types of watch events, as servers write them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum EventType {
    Added,
    Bookmark,
    Deleted,
    Error,
    Modified,
}

/// A watch event whose object is still bytes.
#[derive(Debug)]
pub(crate) struct RawEvent {
    pub(crate) event_type: EventType,
    pub(crate) object: Bytes,
    /// The whole line, for a second parse.
    line: Bytes,
}

/// The metadata of an object that are needed before it is decoded.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Header<'a> {
    #[serde(borrow, default)]
    pub(crate) name: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) namespace: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) resource_version: Cow<'a, str>,
}

/// The metadata of a bookmark.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BookmarkMeta {
    #[serde(default)]
    pub(crate) resource_version: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, rename = "type")]
    event_type: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// Parses a line of a watch. `None`: not a watch event.
pub(crate) fn parse(line: &Bytes) -> Option<RawEvent> {
    fast(line).or_else(|| careful(line))
}

/// Parses the form that every server writes: `{"type":"ADDED","object":{..}}` with nothing between or after.
///
/// It does not check that nothing follows the object, because that costs a scan of the whole object; see
/// [`RawEvent::reread`].
fn fast(line: &Bytes) -> Option<RawEvent> {
    const OBJECT: &[u8] = br#"","object":"#;
    let rest = line.strip_prefix(br#"{"type":""#)?;
    let quote = memchr::memchr(b'"', rest)?;
    let event_type = EventType::parse(&rest[..quote])?;
    let object = rest[quote..].strip_prefix(OBJECT)?.trim_ascii_end().strip_suffix(b"}")?;
    Some(RawEvent { event_type, object: line.slice_ref(object), line: line.clone() })
}

fn careful(line: &Bytes) -> Option<RawEvent> {
    let envelope: Envelope<'_> = serde_json::from_slice(line).ok()?;
    let event_type = EventType::parse(envelope.event_type.as_bytes())?;
    let object = line.slice_ref(envelope.object.get().as_bytes());
    Some(RawEvent { event_type, object, line: line.clone() })
}

impl RawEvent {
    /// Parses the line of an undecodable object again, with a full parser, and returns the event if its object has
    /// other bytes than the fast parse found.
    pub(crate) fn reread(&self) -> Option<Self> {
        careful(&self.line).filter(|event| event.object != self.object)
    }
}

/// The header of an object; empty fields where it has none or is not JSON.
pub(crate) fn header(object: &[u8]) -> Header<'_> {
    scan::member(object, "metadata").and_then(|bytes| serde_json::from_slice(bytes).ok()).unwrap_or_default()
}

/// The metadata of a bookmark.
pub(crate) fn bookmark(object: &[u8]) -> BookmarkMeta {
    scan::member(object, "metadata").and_then(|bytes| serde_json::from_slice(bytes).ok()).unwrap_or_default()
}

impl EventType {
    fn parse(text: &[u8]) -> Option<Self> {
        match text {
            b"ADDED" => Some(Self::Added),
            b"BOOKMARK" => Some(Self::Bookmark),
            b"DELETED" => Some(Self::Deleted),
            b"ERROR" => Some(Self::Error),
            b"MODIFIED" => Some(Self::Modified),
            _ => None,
        }
    }
}

impl Header<'_> {
    pub(crate) fn key(&self) -> Option<ObjectKey> {
        (!self.name.is_empty()).then(|| ObjectKey::namespaced(&self.namespace, &self.name))
    }
}

impl BookmarkMeta {
    /// Whether this bookmark ends the initial events of a streaming list.
    pub(crate) fn ends_initial_events(&self) -> bool {
        self.annotations.get("k8s.io/initial-events-end").is_some_and(|value| value == "true")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: Option<(EventType, &str)>) {
        let event = parse(&Bytes::copy_from_slice(line.as_bytes()));
        let event = event.map(|event| event.reread().unwrap_or(event));
        let found = event.as_ref().map(|event| (event.event_type, std::str::from_utf8(&event.object).unwrap()));
        assert_eq!(found, expected);
    }

    #[test]
    fn an_event_is_its_type_and_its_object() {
        check(r#"{"type":"ADDED","object":{"a":"}"}}"#, Some((EventType::Added, r#"{"a":"}"}"#)));
        check("{\"type\":\"DELETED\",\"object\":{}}\r", Some((EventType::Deleted, "{}")));
        check(r#"{"type":"BOOKMARK","object":{},"more":{}}"#, Some((EventType::Bookmark, "{}")));
        check(r#" { "object" : [1] , "type" : "ERROR" } "#, Some((EventType::Error, "[1]")));
        check(r#"{"type":"NEW","object":{}}"#, None);
        check(r#"{"kind":"Status"}"#, None);
        check("", None);
    }

    #[test]
    fn a_header_survives_garbage_after_it() {
        let header =
            header(br#"{"kind":"X","metadata":{"name":"a","namespace":"b","resourceVersion":"7"},"spec":{"cut"#);
        assert_eq!(header.key().unwrap().as_str(), "b/a");
        assert_eq!(header.resource_version, "7");
    }

    #[test]
    fn only_the_annotated_bookmark_ends_the_initial_events() {
        let end = br#"{"metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}"#;
        assert!(bookmark(end).ends_initial_events());
        assert!(!bookmark(br#"{"metadata":{"resourceVersion":"9"}}"#).ends_initial_events());
        assert_eq!(bookmark(end).resource_version, "9");
    }
}
