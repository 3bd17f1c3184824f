//! What the answers of the API server mean to a loop that writes what it has computed from caches.

use kube::Api;
use kube::api::PostParams;
use kube::core::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use steersman::ReconcileError;

/// A request that was refused, or had no answer.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what}")]
pub(crate) struct Refused {
    what: String,
    source: kube::Error,
}

impl Refused {
    /// For `map_err`: says what was tried.
    pub(crate) fn to(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Refused {
        move |source| Refused { what: what.into(), source }
    }

    pub(crate) fn error(&self) -> &kube::Error {
        &self.source
    }
}

impl ReconcileError for Refused {}

/// Whether the object is not there, or no longer the one that was meant.
pub(crate) fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_not_found())
}

/// Whether the server has nothing at the path: an answer in plain text, which no kind has.
pub(crate) fn is_not_served(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Whether the object has changed since it was read.
pub(crate) fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_conflict())
}

/// Whether the user may not do that.
pub(crate) fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

/// Whether something of that name is there already.
pub(crate) fn exists_already(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_already_exists())
}

/// Whether the server could not carry out a change on the object as it is, because it is another one now.
pub(crate) fn is_invalid(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 422)
}

/// What the server says, or why it said nothing.
pub(crate) fn message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        error => error.to_string(),
    }
}

/// Whether the object's namespace is being deleted, so that nothing is created there.
pub(crate) fn is_namespace_ending(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

/// Replaces the status of an object that was read and changed. `None` if it has changed since or is gone: then an event follows, and the
/// key with it.
///
/// # Errors
/// Any other answer.
pub(crate) async fn replace_status<K>(api: &Api<K>, object: &K) -> Result<Option<K>, Refused>
where
    K: Clone + Debug + DeserializeOwned + Resource + Serialize,
{
    let name = object.meta().name.clone().unwrap_or_default();
    match api.replace_status(&name, &PostParams::default(), object).await {
        Ok(object) => Ok(Some(object)),
        Err(error) if is_gone(&error) || is_conflict(&error) => Ok(None),
        Err(error) => Err(Refused::to(format!("write the status of {name:?}"))(error)),
    }
}
