//! The conversion of custom objects by a webhook, as the strategy of a kind names it: whoever serves the kind calls it.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use steersman_machinery::Value;

/// The result of a conversion, when it is there.
pub type Converting<'a> = Pin<Box<dyn Future<Output = Result<Vec<Value>, ConversionError>> + Send + 'a>>;

/// Converts the objects of one definition between its versions.
pub trait Converter: fmt::Debug + Send + Sync {
    /// Converts objects to a version, given as `group/version`, in which none of them is yet. Their order is kept.
    ///
    /// # Errors
    /// When one of them could not be converted.
    fn convert<'a>(&'a self, objects: Vec<Value>, api_version: &'a str, source: Source) -> Converting<'a>;
}

/// Whether the objects are stored as they are, so that every conversion of them gives the same.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Source {
    /// They are being written.
    Draft,
    Stored,
}

/// Why objects could not be converted. The text names the kind, an object and the webhook.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConversionError(pub Arc<str>);
