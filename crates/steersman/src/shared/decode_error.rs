//! The error of an object that cannot be decoded.

use crate::shared::key::ObjectKey;

/// An object from the server cannot be decoded as its type.
#[derive(Debug, thiserror::Error)]
#[error("{resource} {} at version {resource_version:?} cannot be decoded", key.as_ref().map_or("without a name", ObjectKey::as_str))]
pub struct DecodeError {
    /// `plural.group` of the type.
    pub resource: String,
    /// The key of the object, if that could be read.
    pub key: Option<ObjectKey>,
    /// Its resource version; empty if unknown.
    pub resource_version: String,
    /// The error of the decoder.
    #[source]
    pub source: serde_json::Error,
}
