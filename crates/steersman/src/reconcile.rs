//! What a reconciler is: a function from a key to what to do next.

use std::error::Error;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::key::ObjectKey;

/// What is to happen after a reconcile that went well.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use = "an action says when the key runs next"]
pub enum Action {
    /// Run again when something changes.
    AwaitChange,
    /// Run again as after a failure: when the rate limiter allows, a little later each time. For waiting on something
    /// that sends no events.
    Requeue,
    /// Run again after this time, or when something changes, whichever comes first.
    RequeueAfter(Duration),
}

/// The error of a reconciler. The key runs again when the rate limiter allows, unless the error says otherwise.
///
/// ```
/// # use std::time::Duration;
/// #[derive(Debug, thiserror::Error)]
/// enum NetworkError {
///     #[error("the network {name:?} has no cidr")]
///     NoCidr { name: String },
///     #[error("the backend is away")]
///     Away,
/// }
///
/// impl steersman::ReconcileError for NetworkError {
///     fn is_terminal(&self) -> bool {
///         matches!(self, Self::NoCidr { .. })
///     }
/// }
/// ```
pub trait ReconcileError: Error + Send + Sync + 'static {
    /// Whether trying again is useless until something changes.
    fn is_terminal(&self) -> bool {
        false
    }

    /// The least time to wait before trying again, if the cause knows it (`Retry-After`).
    ///
    /// The default asks its sources: of a [`WriteError`](crate::WriteError) or a `kube::Error` among them, what the server
    /// said.
    fn retry_after(&self) -> Option<Duration> {
        sources(self.source()).find_map(retry_after)
    }
}

fn sources<'a>(first: Option<&'a (dyn Error + 'static)>) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(first, |error: &&'a (dyn Error + 'static)| (*error).source())
}

/// What the server said, if this is an answer of it.
fn retry_after(error: &(dyn Error + 'static)) -> Option<Duration> {
    let kube::Error::Api(status) = error.downcast_ref::<kube::Error>()? else { return None };
    let seconds = status.details.as_ref()?.retry_after_seconds;
    (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)))
}

/// For reconcilers that cannot fail.
impl ReconcileError for std::convert::Infallible {}

/// An asynchronous function of a key and a borrowed context. Implemented for every
/// `async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, E>`; never implement it by hand.
pub trait ReconcileFn<'a, C, E>: Send + Sync {
    /// Calls the function.
    fn call(&self, key: ObjectKey, context: &'a C) -> BoxFuture<'a, Result<Action, E>>;
}

impl<'a, C, E, F, Fut> ReconcileFn<'a, C, E> for F
where
    C: 'a,
    F: Fn(ObjectKey, &'a C) -> Fut + Send + Sync,
    Fut: Future<Output = Result<Action, E>> + Send + 'a,
{
    fn call(&self, key: ObjectKey, context: &'a C) -> BoxFuture<'a, Result<Action, E>> {
        Box::pin(self(key, context))
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;
    use crate::key::ObjectKey;
    use crate::write::WriteError;

    #[derive(Debug, thiserror::Error)]
    enum Wrapped {
        #[error(transparent)]
        As(WriteError),
        #[error("it did not work")]
        Around(#[source] WriteError),
        #[error("nobody said anything")]
        Not,
    }

    impl ReconcileError for Wrapped {}

    fn refused(seconds: u32) -> WriteError {
        let text =
            format!(r#"{{"code": 429, "reason": "TooManyRequests", "details": {{"retryAfterSeconds": {seconds}}}}}"#);
        let status: Status = serde_json::from_str(&text).expect("a Status");
        let (resource, key) = ("configmaps".to_owned(), ObjectKey::cluster("a"));
        WriteError { verb: "patch", resource, key, source: kube::Error::Api(status.boxed()) }
    }

    #[test]
    fn what_the_server_asked_for_is_found_behind_other_errors() {
        let wait = Some(Duration::from_secs(7));
        assert_eq!(refused(7).retry_after(), wait);
        assert_eq!(Wrapped::As(refused(7)).retry_after(), wait);
        assert_eq!(Wrapped::Around(refused(7)).retry_after(), wait);
        assert_eq!(Wrapped::Around(refused(0)).retry_after(), None);
        assert_eq!(Wrapped::Not.retry_after(), None);
    }
}
