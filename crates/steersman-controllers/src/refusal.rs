//! What the answers of the API server mean to a loop that writes what it has computed from caches, and the error of such a loop.

use kube::Api;
use kube::api::PostParams;
use kube::core::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::time::Duration;
use steersman::consistency::ConsistencyStore;
use steersman::{LookupError, ObjectKey, ReconcileError};

/// For how long a creation without an answer may still turn out to have been done.
const UNANSWERED: Duration = Duration::from_secs(5);

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

/// Why a loop could not do its work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot read the cache")]
    Read(#[from] LookupError),
    #[error(transparent)]
    Refused(#[from] Refused),
}

impl ReconcileError for Error {}

/// Whether the object is not there, or its kind is not served: that answer is plain text, without a reason.
pub(crate) fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Whether the object is gone or has changed since it was read. Of either an event tells, and the key comes back with it.
pub(crate) fn is_outdated(error: &kube::Error) -> bool {
    is_gone(error) || is_conflict(error)
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

/// After a creation that failed, under a name that the server chooses: without an answer it may have been done all the same, and the key
/// is held back until the caches would show it.
pub(crate) fn hold_if_unanswered(written: &ConsistencyStore, key: &ObjectKey, error: &kube::Error) {
    if !matches!(error, kube::Error::Api(_)) {
        written.unanswered(key, UNANSWERED);
    }
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
        Err(error) if is_outdated(&error) => Ok(None),
        Err(error) => Err(Refused::to(format!("write the status of {name:?}"))(error)),
    }
}
