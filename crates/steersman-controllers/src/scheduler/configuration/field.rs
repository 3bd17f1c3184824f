//! The path of a field in a configuration, by which values are decoded and refused.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::time::Duration;

/// Why a document is no configuration of this scheduler.
#[derive(Debug, thiserror::Error)]
#[error("{field}: {why}")]
pub struct ConfigurationError {
    /// The path of the field, such as `profiles[0].schedulerName`.
    field: String,
    why: String,
}

/// The path of a field, as messages name it.
#[derive(Clone, Debug, Default)]
pub(super) struct Path(String);

/// `seconds` is not negative. A century is long enough, and does not overflow the clock.
pub(super) fn seconds(seconds: i64) -> Duration {
    const CENTURY: u64 = 100 * 365 * 24 * 3600;
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default().min(CENTURY))
}

/// The first field of a value that was not kept when it was decoded.
fn unknown_field(path: &Path, value: &Value, kept: &Value) -> Option<Path> {
    match (value, kept) {
        (Value::Object(fields), kept) => {
            fields.iter().filter(|(_, value)| !value.is_null()).find_map(|(name, value)| {
                let path = path.field(name);
                match kept.get(name) {
                    None => Some(path),
                    Some(kept) => unknown_field(&path, value, kept),
                }
            })
        }
        (Value::Array(items), Value::Array(kept)) => items
            .iter()
            .zip(kept)
            .enumerate()
            .find_map(|(at, (value, kept))| unknown_field(&path.index(at), value, kept)),
        _ => None,
    }
}

// === impl Path ===

impl Path {
    pub(super) fn field(&self, name: &str) -> Path {
        if self.0.is_empty() { Path(name.to_owned()) } else { Path(format!("{}.{name}", self.0)) }
    }

    pub(super) fn index(&self, at: usize) -> Path {
        Path(format!("{}[{at}]", self.0))
    }

    pub(super) fn wrong(&self, why: impl Into<String>) -> ConfigurationError {
        ConfigurationError { field: self.0.clone(), why: why.into() }
    }

    /// Decodes the value of this field as a type of Kubernetes' API, which would ignore unknown fields by itself.
    pub(super) fn decode_strictly<T: DeserializeOwned + Serialize>(
        &self,
        value: &Value,
    ) -> Result<T, ConfigurationError> {
        let decoded: T = self.decode(value)?;
        let kept = serde_json::to_value(&decoded).unwrap_or_default();
        match unknown_field(self, value, &kept) {
            Some(field) => Err(field.wrong("there is no such field")),
            None => Ok(decoded),
        }
    }

    /// Decodes the value of this field.
    pub(super) fn decode<T: DeserializeOwned>(&self, value: &Value) -> Result<T, ConfigurationError> {
        T::deserialize(value).map_err(|error| {
            let field = if self.0.is_empty() { "the document" } else { &self.0 };
            ConfigurationError { field: field.to_owned(), why: error.to_string() }
        })
    }
}
