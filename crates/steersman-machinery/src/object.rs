//! An object at rest: its JSON as bytes, and the few header fields that stores, selectors and garbage collection ask for.
//!
//! A tree of a 5 KB Pod takes about 55 KB of heap; the bytes and this header take 5.6 KB. Stores and caches hold
//! `Arc<Object>`; a tree exists only inside one write request.

use crate::key::ObjectKey;
use crate::revision::Revision;
use bytes::{BufMut, Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// One stored object at one revision. Immutable: a change makes another.
#[derive(Debug)]
pub struct Object {
    /// Its namespace and name.
    pub key: ObjectKey,
    /// The revision at which it was written; also inside [`Object::json`] as `metadata.resourceVersion`.
    pub revision: Revision,
    /// The parsed header.
    pub meta: Meta,
    /// The whole object, `metadata.resourceVersion` included, as it goes over the wire.
    pub json: Bytes,
}

/// The header of a stored object: the parts of its metadata that are read without parsing the whole.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Meta {
    /// The `apiVersion` it was stored in.
    pub api_version: Box<str>,
    /// Its uid.
    pub uid: Box<str>,
    /// Its labels, sorted by key.
    pub labels: Box<[(Box<str>, Box<str>)]>,
    /// Its owners.
    pub owner_references: Box<[OwnerReference]>,
    /// What must let go of it before it is gone.
    pub finalizers: Box<[Box<str>]>,
    /// When its deletion was asked for, RFC 3339.
    pub deletion_timestamp: Option<Box<str>>,
}

/// An owner, as garbage collection needs to know it.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    /// The owner's `apiVersion`.
    pub api_version: Box<str>,
    /// The owner's kind.
    pub kind: Box<str>,
    /// The owner's name.
    pub name: Box<str>,
    /// The owner's uid.
    pub uid: Box<str>,
    /// Whether it is the one that controls.
    pub controller: bool,
    /// Whether it may not go before this object in a foreground deletion.
    pub block_owner_deletion: bool,
}

/// Bytes that are not an object.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// Not JSON, or a header field of another type.
    #[error("object {key} is not readable")]
    Json {
        /// Which object.
        key: ObjectKey,
        /// What the parser says.
        #[source]
        source: serde_json::Error,
    },
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(rename = "apiVersion", borrow, default)]
    api_version: Cow<'a, str>,
    #[serde(borrow)]
    metadata: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Header<'a> {
    #[serde(borrow)]
    uid: Cow<'a, str>,
    labels: Option<std::collections::BTreeMap<Box<str>, Box<str>>>,
    owner_references: Option<Vec<OwnerReference>>,
    finalizers: Option<Vec<Box<str>>>,
    deletion_timestamp: Option<Box<str>>,
}

impl Object {
    /// Makes an object of the bytes it is stored as, which carry no `resourceVersion`: the revision is written into its
    /// metadata. One copy of the bytes, one pass over the header.
    ///
    /// # Errors
    /// When the bytes are not a JSON object with a `metadata` object.
    pub fn decode(key: ObjectKey, revision: Revision, stored: &[u8]) -> Result<Object, DecodeError> {
        let fail = |key: &ObjectKey, source| DecodeError::Json { key: key.clone(), source };
        let envelope: Envelope<'_> = serde_json::from_slice(stored).map_err(|source| fail(&key, source))?;
        let raw = envelope.metadata.get();
        let header: Header<'_> = serde_json::from_str(raw).map_err(|source| fail(&key, source))?;
        let meta = Meta {
            api_version: envelope.api_version.as_ref().into(),
            uid: header.uid.as_ref().into(),
            labels: header.labels.unwrap_or_default().into_iter().collect(),
            owner_references: header.owner_references.unwrap_or_default().into(),
            finalizers: header.finalizers.unwrap_or_default().into(),
            deletion_timestamp: header.deletion_timestamp,
        };
        // The metadata is a slice of `stored`; the version goes in right behind its opening brace.
        let brace = raw.as_ptr() as usize - stored.as_ptr() as usize + 1;
        let last = raw[1..].trim_start().starts_with('}');
        let mut json = BytesMut::with_capacity(stored.len() + 44);
        json.put_slice(&stored[..brace]);
        json.put_slice(b"\"resourceVersion\":\"");
        json.put_slice(revision.to_string().as_bytes());
        json.put_slice(if last { b"\"" } else { b"\"," });
        json.put_slice(&stored[brace..]);
        Ok(Object { key, revision, meta, json: json.freeze() })
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.meta.label(key)
    }
}

impl Meta {
    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        let at = self.labels.binary_search_by(|(label, _)| label.as_ref().cmp(key)).ok()?;
        self.labels.get(at).map(|(_, value)| value.as_ref())
    }

    /// Whether its deletion was asked for.
    pub fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(stored: &str, want: &str) -> Object {
        let object = Object::decode(ObjectKey::cluster("x"), Revision(7), stored.as_bytes()).unwrap();
        assert_eq!(std::str::from_utf8(&object.json).unwrap(), want);
        object
    }

    #[test]
    fn the_revision_is_written_into_the_metadata() {
        check(
            r#"{"apiVersion":"v1","metadata":{"name":"x"},"a":1}"#,
            r#"{"apiVersion":"v1","metadata":{"resourceVersion":"7","name":"x"},"a":1}"#,
        );
        check(r#"{"metadata":{ }}"#, r#"{"metadata":{"resourceVersion":"7" }}"#);
    }

    #[test]
    fn the_header_holds_what_is_asked_for() {
        let object = check(
            r#"{"apiVersion":"a/v1","spec":{"metadata":1},"metadata":{"labels":{"b":"2","a":"\u00e9"},"uid":"u","finalizers":["f"],"deletionTimestamp":"t","ownerReferences":[{"apiVersion":"v1","kind":"K","name":"n","uid":"o","controller":true}]}}"#,
            r#"{"apiVersion":"a/v1","spec":{"metadata":1},"metadata":{"resourceVersion":"7","labels":{"b":"2","a":"\u00e9"},"uid":"u","finalizers":["f"],"deletionTimestamp":"t","ownerReferences":[{"apiVersion":"v1","kind":"K","name":"n","uid":"o","controller":true}]}}"#,
        );
        assert_eq!((object.label("a"), object.label("b"), object.label("c")), (Some("é"), Some("2"), None));
        assert!(object.meta.is_deleting() && object.meta.owner_references[0].controller);
        assert_eq!(&*object.meta.api_version, "a/v1");
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for stored in ["", "[]", "{}", r#"{"metadata":1}"#, r#"{"metadata":{"labels":{"a":1}}}"#] {
            assert!(Object::decode(ObjectKey::cluster("x"), Revision(1), stored.as_bytes()).is_err(), "{stored}");
        }
    }
}
