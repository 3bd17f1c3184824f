//! What an admission plugin is, and what it sees of a write.

use crate::operation::{Operation, ResourceAttributes};
use crate::state::State;
use crate::status::Failure;
use futures::future::{self, BoxFuture};
use std::fmt;
use steersman_machinery::Value;

/// What a write does, in the words of admission: a PUT that creates is a creation, a patch is an update, and so is what is
/// sent to a subresource such as `pods/binding` a creation of that.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Action {
    Create,
    Delete,
    Update,
}

/// When a plugin is asked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Phase {
    Mutate,
    Validate,
}

/// A write that is to be admitted: what it does, in which operation, to what.
///
/// Options, user, attributes and whether it is a dry run are the operation's; warnings and audit annotations go there.
#[derive(Debug)]
pub(crate) struct Review<'r, 'o> {
    pub(crate) action: Action,
    pub(crate) state: &'r State,
    pub(crate) operation: &'r mut Operation<'o>,
    /// The object as it is; none of a creation, and none while a deletion mutates.
    pub(crate) old: Option<&'r Value>,
}

/// One admission plugin.
pub(crate) trait Plugin: fmt::Debug + Send + Sync {
    /// Whether the plugin has a word in writes like this one.
    fn handles(&self, phase: Phase, action: Action, attributes: &ResourceAttributes<'_>) -> bool;

    /// Changes the new object, or refuses it. A deletion has none.
    ///
    /// # Errors
    /// With the answer for the client.
    fn mutate<'a>(
        &'a self,
        review: &'a mut Review<'_, '_>,
        new: Option<&'a mut Value>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        let _ = (review, new);
        Box::pin(future::ready(Ok(())))
    }

    /// Refuses what may not be.
    ///
    /// # Errors
    /// With the answer for the client.
    fn validate<'a>(
        &'a self,
        review: &'a mut Review<'_, '_>,
        new: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        let _ = (review, new);
        Box::pin(future::ready(Ok(())))
    }
}

/// Whether a write is about a pod itself, not about one of its subresources.
pub(super) fn is_about_pod(attributes: &ResourceAttributes<'_>) -> bool {
    attributes.is_about("", "pods") && attributes.subresource.is_none()
}
