//! The meaning of the API server's error answers for a loop that writes from caches, and the error of such a loop.

use kube::Api;
use kube::api::PostParams;
use kube::core::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::time::Duration;
use steersman::consistency::ConsistencyStore;
use steersman::write::is_about_another_object;
use steersman::{LookupError, ObjectKey, ReconcileError};

/// How long a creation without an answer may still turn out to have succeeded.
const UNANSWERED: Duration = Duration::from_secs(5);

/// A request that was refused, or got no answer.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what}")]
pub(crate) struct Refused {
    what: String,
    source: kube::Error,
}

impl Refused {
    /// For `map_err`: adds the action that was tried.
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

/// Whether the object does not exist, or its kind is not served: the latter answer is plain text without a reason.
pub(crate) fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Whether the object is gone or has changed since it was read. An event follows in either case and brings the key
/// back.
pub(crate) fn is_outdated(error: &kube::Error) -> bool {
    is_gone(error) || is_conflict(error)
}

/// Whether the object has changed since it was read, or is another one of its name.
pub(crate) fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_conflict()) || is_about_another_object(error)
}

/// Whether the user is not allowed to do that.
pub(crate) fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

/// Whether an object of that name exists already.
pub(crate) fn exists_already(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_already_exists())
}

/// Whether the server rejects the change as invalid for the object's current state, because the object was replaced by
/// another one.
pub(crate) fn is_invalid(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 422)
}

/// The server's message, or the reason why there was no answer.
pub(crate) fn message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        error => error.to_string(),
    }
}

/// Whether the object's namespace is being deleted, so that nothing can be created in it.
pub(crate) fn is_namespace_ending(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

/// Whether the outcome of a request is unknown: the connection was lost, or the server or a proxy stopped waiting for
/// the answer. A server that answers with a timeout may still complete the write.
pub(crate) fn is_unanswered(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return true };
    matches!(status.code, 408 | 502 | 504) || matches!(status.reason.as_str(), "ServerTimeout" | "Timeout")
}

/// Called after a failed creation with a generated name: without an answer it may have succeeded nevertheless, and the
/// key is held back until the caches would show the object.
pub(crate) fn hold_if_unanswered(written: &ConsistencyStore, key: &ObjectKey, error: &kube::Error) {
    if is_unanswered(error) {
        written.unanswered(key, UNANSWERED);
    }
}

/// Records how one creation for `key` with a generated name ended: the key waits until the caches show the object, or,
/// without an answer, until they would. Every creation of a batch must be passed through this, because the batch
/// returns its first error only.
///
/// # Errors
/// The one that is passed in.
pub(crate) fn record_creation<K>(
    written: &ConsistencyStore,
    key: &ObjectKey,
    created: Result<K, Refused>,
) -> Result<K, Refused>
where
    K: Resource<DynamicType = ()>,
{
    match &created {
        Ok(object) => written.wrote_at(key, object),
        Err(refused) => hold_if_unanswered(written, key, refused.error()),
    }
    created
}

/// Replaces the status of an object that was read and changed. `None` if it has changed since or is gone: then an event
/// follows and brings the key back.
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

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
    use kube::core::Status;
    use serde_json::json;
    use steersman::write::slow_start;

    fn status(code: u16, reason: &str) -> kube::Error {
        kube::Error::Api(Status { code, reason: reason.to_owned(), ..Status::default() }.boxed())
    }

    fn lost() -> kube::Error {
        kube::Error::Service("connection reset".into())
    }

    #[test]
    fn a_patch_of_an_object_that_was_made_anew_is_outdated_and_other_invalid_ones_are_not() {
        let invalid = |field: &str| {
            let cause = json!({"field": field, "message": "", "reason": "FieldValueInvalid"});
            let status = json!({"code": 422, "reason": "Invalid", "details": {"causes": [cause]}});
            kube::Error::Api(serde_json::from_value::<Status>(status).unwrap().boxed())
        };
        assert!(is_outdated(&invalid("metadata.uid")) && is_outdated(&status(409, "Conflict")));
        assert!(!is_outdated(&invalid("spec.uid")));
    }

    #[test]
    fn a_timeout_and_a_lost_connection_are_no_answers_and_a_refusal_is_one() {
        assert!(is_unanswered(&lost()));
        for (code, reason) in [(408, ""), (500, "ServerTimeout"), (502, ""), (504, "Timeout"), (504, "")] {
            assert!(is_unanswered(&status(code, reason)), "{code} {reason}");
        }
        for (code, reason) in [(403, "Forbidden"), (409, "AlreadyExists"), (422, "Invalid"), (500, "InternalError")] {
            assert!(!is_unanswered(&status(code, reason)), "{code} {reason}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_creation_without_an_answer_holds_its_key_whichever_error_of_the_batch_comes_first() {
        for unanswered in [lost, || status(504, "Timeout")] {
            let (written, key) = (ConsistencyStore::new(), ObjectKey::namespaced("shop", "job"));
            let create = |at: usize| {
                let (written, key) = (&written, &key);
                async move {
                    let created = match at {
                        0 => Ok(Pod::default()),
                        1 => Err(status(403, "Forbidden")),
                        _ => Err(unanswered()),
                    };
                    record_creation(written, key, created.map_err(Refused::to("create a pod"))).map(drop)
                }
            };
            let (n_created, first) = slow_start(3, create).await;
            assert_eq!(n_created, 1);
            assert!(first.is_some_and(|first| is_forbidden(first.error())));
            written.ensure_ready(&key).unwrap_err();
            tokio::time::sleep(UNANSWERED).await;
            assert_eq!(written.ensure_ready(&key), Ok(()));
        }
    }
}
