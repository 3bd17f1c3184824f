//! How an object's JSON is laid out at rest, so that lists need not read what they send.
//!
//! The items of a list of a built-in kind carry neither kind nor apiVersion, a single object carries both. Built-in kinds
//! therefore begin with the two, `{"kind":"Pod","apiVersion":"v1",`, and a list sends what follows that prefix. Custom
//! objects carry both in lists too and are simply sorted.

use crate::catalog::Resource;
use bytes::Bytes;
use steersman_machinery::Value;

/// The bytes of an object in its stored form, without a resourceVersion.
pub(crate) fn encode(resource: &Resource, mut stored: Value) -> Result<Bytes, serde_json::Error> {
    if resource.is_custom() {
        return serde_json::to_vec(&stored).map(Bytes::from);
    }
    if let Value::Object(object) = &mut stored {
        object.remove("kind");
        object.remove("apiVersion");
    }
    let mut bytes = prefix(resource);
    let rest = serde_json::to_vec(&stored)?;
    bytes.extend_from_slice(rest.get(1..).unwrap_or_default());
    Ok(bytes.into())
}

/// What follows the opening brace of an object as an item of a list, or nothing if it is not laid out as expected.
pub(crate) fn list_item<'a>(prefix: &[u8], json: &'a [u8]) -> Option<&'a [u8]> {
    json.strip_prefix(prefix)
}

/// What the objects of a built-in kind begin with.
pub(crate) fn prefix(resource: &Resource) -> Vec<u8> {
    let version = &resource.storage_version().name;
    let api_version = match &*resource.storage.group {
        "" => version.to_string(),
        group => format!("{group}/{version}"),
    };
    format!("{{\"kind\":\"{}\",\"apiVersion\":\"{api_version}\",", resource.kind).into_bytes()
}
