//! The `PartialObjectMetadata` of `meta.k8s.io`: an object's metadata and nothing else.

use crate::http::representation::{Representation, write as write_json};
use crate::shared::request::payload::Payload;
use crate::shared::status::Failure;
use serde::Deserialize;
use serde_json::value::RawValue;
use steersman_machinery::{Object, Value, value};

const OPENING: &[u8] = b"{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"";

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
}

impl Representation {
    /// Writes the metadata of an object as a `PartialObjectMetadata`.
    ///
    /// # Errors
    /// When a stored object is not readable.
    pub(super) fn write_metadata(&self, payload: &Payload, out: &mut Vec<u8>) -> Result<(), Failure> {
        out.extend_from_slice(OPENING);
        out.extend_from_slice(self.meta_version.api_version().as_bytes());
        out.extend_from_slice(b"\",\"metadata\":");
        let annotations = self.served.resource.strategy.annotations_of_version(self.served.version());
        match payload {
            Payload::Stored(object) if annotations.is_empty() => out.extend_from_slice(of(object)?.as_bytes()),
            Payload::Stored(object) => {
                let metadata = serde_json::from_str(of(object)?).map_err(|error| unreadable(object, &error))?;
                write_json(&without(metadata, annotations), out);
            }
            Payload::Tree(tree) => match tree.get("metadata") {
                Some(metadata) if annotations.is_empty() => write_json(metadata, out),
                Some(metadata) => write_json(&without(metadata.clone(), annotations), out),
                None => out.extend_from_slice(b"{}"),
            },
        }
        out.push(b'}');
        Ok(())
    }
}

/// Metadata without some annotations.
fn without(mut metadata: Value, annotations: &[&str]) -> Value {
    if let Some(given) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        given.retain(|name, _| !annotations.contains(&name.as_str()));
        if given.is_empty() {
            value::remove_at(&mut metadata, &["annotations"]);
        }
    }
    metadata
}

/// The metadata of a stored object, cut from its bytes.
pub(super) fn of(object: &Object) -> Result<&str, Failure> {
    match serde_json::from_slice::<Envelope<'_>>(object.json()) {
        Ok(envelope) => Ok(envelope.metadata.get()),
        Err(error) => Err(unreadable(object, &error)),
    }
}

fn unreadable(object: &Object, error: &serde_json::Error) -> Failure {
    tracing::error!(key = %object.key, %error, "a stored object is not readable");
    Failure::internal(format!("the stored object {} is not readable", object.key))
}
