//! The object that a change starts from, parsed once for all stages.

use crate::shared::conversion;
use crate::shared::operation::Operation;
use crate::shared::status::Failure;
use std::sync::Arc;
use steersman_machinery::{Object, Value};

/// An object before a change, in the three forms that the stages of a change need.
pub(crate) struct Current {
    /// The stored form, with the revision that the change must follow.
    pub(crate) stored: Arc<Object>,
    /// The internal form, in which it is compared and validated.
    pub(crate) internal: Value,
    /// The requested form, if it differs from the internal one.
    requested: Option<Value>,
}

impl Current {
    /// # Errors
    /// When the stored bytes are not an object, or it cannot be converted to the version of the request.
    pub(crate) async fn new(operation: &Operation<'_>, stored: Arc<Object>) -> Result<Current, Failure> {
        let internal = conversion::to_internal(operation.served, conversion::parse(&stored)?).await?;
        let (strategy, version) = (operation.strategy(), operation.version());
        let requested =
            if strategy.is_internal_form(version) { None } else { Some(strategy.present(version, internal.clone())) };
        Ok(Current { stored, internal, requested })
    }

    /// The requested form, to which a patch is applied.
    pub(crate) fn requested(&self) -> &Value {
        self.requested.as_ref().unwrap_or(&self.internal)
    }
}
