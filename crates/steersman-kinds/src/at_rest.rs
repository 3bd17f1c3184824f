//! The layout of an object's JSON in the store, which lets lists send it without parsing.
//!
//! The items of a list of a built-in kind carry neither kind nor apiVersion, a single object carries both. Built-in kinds
//! therefore begin with the two, `{"kind":"Pod","apiVersion":"v1",`, and a list sends what follows that prefix. Custom
//! objects carry both in lists too and are simply sorted.

use crate::catalog::Resource;
use bytes::Bytes;
use std::borrow::Cow;
use steersman_machinery::object::{DecodeError, Draft, Header};
use steersman_machinery::{Object, Value};

/// The initial capacity: enough for most objects, so that few are copied while they are written.
const BYTES_USUAL: usize = 1_024;

/// The reason why an object cannot be stored. An object that passed validation can.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its metadata cannot be written as a header.
    #[error("the object has no header")]
    Header(#[source] DecodeError),
    /// It cannot be serialised.
    #[error("the object does not serialise")]
    Json(#[source] serde_json::Error),
}

/// An object in its stored form, without a resourceVersion.
pub fn draft(resource: &Resource, stored: Value) -> Result<Draft, Error> {
    let header = header(resource, &stored);
    Draft::new(header, encode(resource, stored).map_err(Error::Json)?).map_err(Error::Header)
}

/// Whether the header of a stored object has the current selectable fields of its kind.
pub fn is_header_current(resource: &Resource, object: &Object, stored: &Value) -> bool {
    selectable(resource, stored).all(|(name, text)| object.meta().field(name).is_some_and(|kept| *kept == *text))
}

/// The header of an object: its metadata, and its selectable fields.
fn header(resource: &Resource, stored: &Value) -> Header {
    let texts: Vec<(&str, Cow<'_, str>)> = selectable(resource, stored).collect();
    let texts: Vec<(&str, &str)> = texts.iter().map(|(name, text)| (*name, &**text)).collect();
    Header::of(stored, &texts)
}

/// The selectable fields of an object's kind, with their texts.
fn selectable<'a>(resource: &'a Resource, stored: &'a Value) -> impl Iterator<Item = (&'a str, Cow<'a, str>)> {
    // Events are one kind with two views; only the view in the stored form can read these fields from the stored bytes.
    let is_own = resource.storage == resource.group_resource();
    let fields = resource.storage_version().selectable_fields.iter().filter(move |_| is_own);
    fields.map(|field| (&*field.name, field.text(stored)))
}

/// The bytes of an object in its stored form.
fn encode(resource: &Resource, mut stored: Value) -> Result<Bytes, serde_json::Error> {
    if resource.is_custom() {
        let mut bytes = Vec::with_capacity(BYTES_USUAL);
        serde_json::to_writer(&mut bytes, &stored)?;
        return Ok(bytes.into());
    }
    if let Value::Object(object) = &mut stored {
        object.remove("kind");
        object.remove("apiVersion");
    }
    let mut bytes = Vec::with_capacity(BYTES_USUAL);
    bytes.extend_from_slice(&prefix(resource));
    // The opening brace of the rest overwrites the prefix's last comma, which is restored here.
    let comma = bytes.len() - 1;
    bytes.truncate(comma);
    serde_json::to_writer(&mut bytes, &stored)?;
    bytes[comma] = b',';
    Ok(bytes.into())
}

/// The bytes of a stored object after its prefix, which are an item of a list; `None` if it does not begin with the
/// prefix.
pub fn list_item<'a>(prefix: &[u8], json: &'a [u8]) -> Option<&'a [u8]> {
    json.strip_prefix(prefix)
}

/// The prefix of the stored objects of a built-in kind: kind and apiVersion.
pub fn prefix(resource: &Resource) -> Vec<u8> {
    let version = &resource.storage_version().name;
    let api_version = match &*resource.storage.group {
        "" => version.to_string(),
        group => format!("{group}/{version}"),
    };
    format!("{{\"kind\":\"{}\",\"apiVersion\":\"{api_version}\",", resource.kind).into_bytes()
}
