//! The same content under another revision: what a write returns once its revision is known, and what a deletion shows.

use bytes::{BufMut, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;
use steersman_machinery::object::DecodeError;
use steersman_machinery::{Object, Revision};

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
}

/// An object as `Object::decode` made it, stamped with another revision.
///
/// # Errors
/// When its bytes are not what `Object::decode` writes.
pub(crate) fn restamp(object: Object, revision: Revision) -> Result<Object, DecodeError> {
    let Object { key, revision: old, meta, json } = object;
    let envelope: Envelope<'_> = match serde_json::from_slice(&json) {
        Ok(envelope) => envelope,
        Err(source) => return Err(DecodeError::Json { key, source }),
    };
    // The version stands right behind the opening brace of the metadata, which is a slice of `json`.
    let raw = envelope.metadata.get();
    let version = format!("\"resourceVersion\":\"{old}\"");
    if !raw[1..].starts_with(&version) {
        let source = serde::de::Error::custom("metadata does not begin with its resourceVersion");
        return Err(DecodeError::Json { key, source });
    }
    let start = raw.as_ptr() as usize - json.as_ptr() as usize + 1;
    let end = start + version.len();
    let mut stamped = BytesMut::with_capacity(json.len() + 20);
    stamped.put_slice(&json[..start]);
    stamped.put_slice(b"\"resourceVersion\":\"");
    stamped.put_slice(revision.to_string().as_bytes());
    stamped.put_slice(b"\"");
    stamped.put_slice(&json[end..]);
    Ok(Object { key, revision, meta, json: stamped.freeze() })
}

/// A copy of a stored object under another revision: what a watcher sees of an object that leaves its selection.
///
/// # Errors
/// When its bytes are not what `Object::decode` writes.
pub fn copy_at(object: &Object, revision: Revision) -> Result<Object, DecodeError> {
    let copy = Object {
        key: object.key.clone(),
        revision: object.revision,
        meta: object.meta.clone(),
        json: object.json.clone(),
    };
    restamp(copy, revision)
}

#[cfg(test)]
mod tests {
    use super::*;
    use steersman_machinery::ObjectKey;

    #[track_caller]
    fn check(stored: &str) {
        let key = ObjectKey::cluster("x");
        let want = Object::decode(key.clone(), Revision(12_345), stored.as_bytes()).unwrap();
        let got = restamp(Object::decode(key, Revision(9), stored.as_bytes()).unwrap(), Revision(12_345)).unwrap();
        assert_eq!((got.revision, &got.meta, got.json), (want.revision, &want.meta, want.json));
    }

    #[test]
    fn a_new_stamp_is_as_if_decoded_with_it() {
        check(r#"{"metadata":{}}"#);
        check(r#"{"apiVersion":"v1","metadata":{"name":"x"},"spec":{"a":1}}"#);
        check(r#"{"a":{"metadata":{"resourceVersion":"9"}},"metadata": { "name":"x"}}"#);
    }
}
