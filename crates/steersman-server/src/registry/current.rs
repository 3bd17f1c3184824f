//! The object that a change begins from, parsed once however many stages look at it.

use crate::registry::context::Context;
use crate::status::Failure;
use std::sync::Arc;
use steersman_machinery::{Object, Value};

/// An object as it is before a change, in the three forms that the stages of a change need.
pub(crate) struct Current {
    /// As it is stored, with the revision that the change must follow.
    pub(crate) stored: Arc<Object>,
    /// In the form in which it is compared and validated.
    pub(crate) internal: Value,
    /// In the version that the client speaks: what a patch is applied to.
    pub(crate) requested: Value,
}

impl Current {
    /// # Errors
    /// When the stored bytes are no object.
    pub(crate) fn new(cx: &Context<'_>, stored: Arc<Object>) -> Result<Current, Failure> {
        let internal = cx.internal(&stored)?;
        let requested = cx.strategy().present(cx.version(), internal.clone());
        Ok(Current { stored, internal, requested })
    }
}
