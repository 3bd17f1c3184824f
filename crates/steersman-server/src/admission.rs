//! Admission: what is changed in, or said against, a write beyond the rules of its kind.
//!
//! Every write passes the plugins of one table, in upstream's order: first all mutate, then, when the object is complete and
//! valid by its kind's rules, all validate. Deletions pass too, each object of a collection for itself, and what connects to
//! a subresource. Mutation works on the requested form after the owners of the fields are recorded, so nobody comes to own
//! what a plugin sets; validation sees the internal form.
//!
//! A plugin is one file here and one row of [`PLUGINS`]. It is asked first whether it handles a write at all, without any
//! allocation, so a write that concerns no plugin pays for none.

mod default_toleration_seconds;
mod namespace_lifecycle;
mod priority;

use crate::operation::{Operation, ResourceAttributes};
use crate::state::State;
use crate::status::Failure;
use futures::future::{self, BoxFuture};
use std::fmt;
use steersman_machinery::Value;

/// In upstream's order (`kube-apiserver/pkg/kubeapiserver/options/plugins.go`).
static PLUGINS: [&dyn Plugin; 3] = [
    &namespace_lifecycle::NamespaceLifecycle,
    &priority::Priority,
    &default_toleration_seconds::DefaultTolerationSeconds,
];

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

/// Lets every plugin that handles the write change it.
///
/// # Errors
/// With the first refusal.
pub(crate) async fn mutate(mut review: Review<'_, '_>, mut new: Option<&mut Value>) -> Result<(), Failure> {
    for plugin in PLUGINS {
        if plugin.handles(Phase::Mutate, review.action, &review.operation.attributes) {
            plugin.mutate(&mut review, new.as_deref_mut()).await?;
        }
    }
    Ok(())
}

/// Asks every plugin that handles the write whether it may be.
///
/// # Errors
/// With the first refusal.
pub(crate) async fn validate(mut review: Review<'_, '_>, new: Option<&Value>) -> Result<(), Failure> {
    for plugin in PLUGINS {
        if plugin.handles(Phase::Validate, review.action, &review.operation.attributes) {
            plugin.validate(&mut review, new).await?;
        }
    }
    Ok(())
}

/// Lets every plugin change, then judge, an object that is not stored: a review, or what is sent to a subresource.
///
/// # Errors
/// With the first refusal.
pub(crate) async fn admit(state: &State, operation: &mut Operation<'_>, object: &mut Value) -> Result<(), Failure> {
    let action = Action::Create;
    mutate(Review { action, state, operation, old: None }, Some(object)).await?;
    validate(Review { action, state, operation, old: None }, Some(object)).await
}

/// Whether any plugin handles writes like this one in a phase. Where none does, nobody need read the object for them.
pub(crate) fn is_handled(phase: Phase, action: Action, attributes: &ResourceAttributes<'_>) -> bool {
    PLUGINS.iter().any(|plugin| plugin.handles(phase, action, attributes))
}

/// Whether a write is about a pod itself, not about one of its subresources.
fn is_about_pod(attributes: &ResourceAttributes<'_>) -> bool {
    attributes.is_about("", "pods") && attributes.subresource.is_none()
}
