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
    /// An error that wraps a [`WriteError`](crate::WriteError) has to pass on what that says: sources are not looked into.
    fn retry_after(&self) -> Option<Duration> {
        None
    }
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
