//! The plugins MutatingAdmissionWebhook and ValidatingAdmissionWebhook: they find the registered webhooks that match a
//! write, and call them (`call`): mutating ones one after the other, each with the object as changed by those before
//! it, then validating ones all at once. Requests and answers are in `request` and `response`, the change of the object
//! in `patch`. Follows apiserver's `admission/plugin/webhook`.
//!
//! The server's own writes call no webhook: an unreachable webhook must not keep the server from starting, or from
//! renewing its lease.

mod call;
mod mutating;
mod patch;
mod request;
mod response;
mod validating;

pub(in crate::write::admission) use self::mutating::Mutating;
pub(in crate::write::admission) use self::validating::Validating;

/// The patch in the answer of a mutating webhook.
#[cfg(feature = "fuzzing")]
pub(crate) fn patch_of_answer(json: &[u8]) -> Option<Vec<u8>> {
    use crate::write::admission::dynamic::webhooks::{hook, registered};
    let version = hook::ReviewVersion::V1;
    response::read(registered::Kind::Mutating, version, "webhook", "uid", json).ok()?.patch
}
