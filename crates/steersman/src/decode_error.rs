//! An object of the server that is not what its type says.

use crate::key::ObjectKey;

/// An object that the server sent cannot be decoded as the type that was asked for.
#[derive(Debug, thiserror::Error)]
#[error("{resource} {} at version {resource_version:?} cannot be decoded", key.as_ref().map_or("without a name", ObjectKey::as_str))]
pub struct DecodeError {
    /// `plural.group` of the type.
    pub resource: String,
    /// Which object, if that much could be read.
    pub key: Option<ObjectKey>,
    /// Its version, empty if unknown.
    pub resource_version: String,
    /// What the decoder stumbled over.
    #[source]
    pub source: serde_json::Error,
}
