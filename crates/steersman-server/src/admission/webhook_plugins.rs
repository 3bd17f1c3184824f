//! The plugins MutatingAdmissionWebhook and ValidatingAdmissionWebhook: they find the webhooks in force that are about a write, and call
//! them (`call`): one after the other to change the object, each seeing what those before it made of it, then all at once to judge it.
//! What is sent and what an answer may say is in `request` and `response`, the change of the object in `patch`. Follows apiserver's
//! `admission/plugin/webhook`.
//!
//! The server's own writes ask no webhook: a webhook that is not there must not keep the server from starting, or from renewing
//! its lease.

mod call;
mod mutating;
mod patch;
mod request;
mod response;
mod validating;

pub(super) use self::mutating::Mutating;
pub(super) use self::validating::Validating;

/// The patch in the answer of a mutating webhook.
#[cfg(feature = "fuzzing")]
pub(crate) fn patch_of_answer(json: &[u8]) -> Option<Vec<u8>> {
    use crate::admission::webhooks::{hook, registered};
    let version = hook::ReviewVersion::V1;
    response::read(registered::Kind::Mutating, version, "webhook", "uid", json).ok()?.patch
}
