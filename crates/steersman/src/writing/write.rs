//! The error of a failed write: its verb and object, and whether another try can help.

pub use crate::writing::create_or_update::{
    OperationResult, create_or_patch, create_or_patch_with, create_or_update, create_or_update_with,
    try_create_or_update, try_create_or_update_with, update, update_with,
};
pub use crate::writing::slow_start::slow_start;

use crate::control::reconcile::ReconcileError;
use crate::shared::key::ObjectKey;

/// A request of this crate's helpers failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {verb} {resource} {key:?}")]
pub struct WriteError {
    /// The verb: `patch`, `apply`, `get`, ..
    pub verb: &'static str,
    /// `plural.group` of the object.
    pub resource: String,
    /// The key of the object.
    pub key: ObjectKey,
    /// The error of the request.
    #[source]
    pub source: kube::Error,
}

impl WriteError {
    /// The HTTP status the server answered, if it answered.
    pub fn status_code(&self) -> Option<u16> {
        match &self.source {
            kube::Error::Api(status) => Some(status.code),
            _ => None,
        }
    }

    /// Whether the server refused the request: nothing was written, and nothing will be.
    pub(crate) fn is_refusal(&self) -> bool {
        is_refusal(&self.source)
    }

    /// Whether the object (or the type) does not exist.
    pub fn is_not_found(&self) -> bool {
        self.status_code() == Some(404)
    }

    /// Whether somebody else wrote in between.
    pub fn is_conflict(&self) -> bool {
        self.status_code() == Some(409) || is_about_another_object(&self.source)
    }

    /// Whether the same request may succeed later: the server was not reached, was busy, or reported a conflict.
    pub fn is_retryable(&self) -> bool {
        match self.status_code() {
            None => !self.source.is_terminal(),
            Some(code) => matches!(code, 404 | 408 | 409 | 410 | 429) || code >= 500 || self.is_conflict(),
        }
    }
}

/// Whether a request names the uid of an object that has since been deleted and made anew under its name. kube-apiserver refuses such a
/// PUT with 409, and such a patch with 422 at `metadata.uid`.
pub fn is_about_another_object(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 422 && causes.any(|cause| cause.field == "metadata.uid")
}

/// Terminal only when no request could be made, as its source. Permissions are granted and admission rules change
/// without an event about the object.
impl ReconcileError for WriteError {}

/// Whether an error shows that the request was not carried out, and will not be. One that timed out may still be.
pub(crate) fn is_refusal(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 408)
}
