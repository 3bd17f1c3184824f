//! The `PartialObjectMetadata` of `meta.k8s.io`: an object's metadata and nothing else.

use crate::http::representation::write as write_json;
use crate::shared::request::negotiate::MetaVersion;
use crate::shared::request::payload::Payload;
use crate::shared::status::Failure;
use serde::Deserialize;
use serde_json::value::RawValue;
use steersman_machinery::Object;

const OPENING: &[u8] = b"{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"";

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
}

/// Writes the metadata of an object as a `PartialObjectMetadata`.
///
/// # Errors
/// When a stored object is not readable.
pub(super) fn write(payload: &Payload, version: MetaVersion, out: &mut Vec<u8>) -> Result<(), Failure> {
    out.extend_from_slice(OPENING);
    out.extend_from_slice(version.api_version().as_bytes());
    out.extend_from_slice(b"\",\"metadata\":");
    match payload {
        Payload::Stored(object) => out.extend_from_slice(of(object)?.as_bytes()),
        Payload::Tree(tree) => match tree.get("metadata") {
            Some(metadata) => write_json(metadata, out),
            None => out.extend_from_slice(b"{}"),
        },
    }
    out.push(b'}');
    Ok(())
}

/// The metadata of a stored object, cut from its bytes.
pub(super) fn of(object: &Object) -> Result<&str, Failure> {
    match serde_json::from_slice::<Envelope<'_>>(object.json()) {
        Ok(envelope) => Ok(envelope.metadata.get()),
        Err(error) => {
            tracing::error!(key = %object.key, %error, "a stored object is not readable");
            Err(Failure::internal(format!("the stored object {} is not readable", object.key)))
        }
    }
}
