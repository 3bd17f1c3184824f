//! A reconciler: a function from a key to the action that follows.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::cache::lister::LookupError;
use crate::control::queue::{Priority, Requeue};
use crate::shared::key::ObjectKey;

/// The action after a reconcile that succeeded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use = "an action says when the key runs next"]
#[non_exhaustive]
pub enum Action {
    /// Run again when something changes.
    AwaitChange,
    /// Run again as after a failure: when the rate limiter allows, a little later each time. For waiting on something
    /// that sends no events.
    Requeue,
    /// Run again after this time, or when something changes, whichever comes first.
    RequeueAfter(Duration),
    /// Run again with a jitter or a priority: the result of [`Action::jittered`] and [`Action::with_priority`].
    RequeueWith(Requeue),
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
    ///
    /// The default asks its sources: a [`Terminal`] among them, or a `kube::Error` that says that no request could be
    /// made, is terminal.
    fn is_terminal(&self) -> bool {
        sources(self.source()).any(is_terminal)
    }

    /// The shortest wait before the next try, if the cause sets one (`Retry-After`).
    ///
    /// The default asks its sources: a [`WriteError`](crate::WriteError) or a `kube::Error` among them has the answer
    /// of the server.
    fn retry_after(&self) -> Option<Duration> {
        sources(self.source()).find_map(retry_after)
    }
}

/// The error of a reconciler that holds any [`ReconcileError`]: `?` makes it from a `kube::Error`, a [`LookupError`], a
/// [`WriteError`](crate::WriteError), a custom error type that implements the trait and, with the feature `anyhow`, an
/// `anyhow::Error`. The error's decisions about retries stay in force.
///
/// Other errors, such as an `io::Error`, do not convert: make them a variant of a custom error type, or, where a retry
/// cannot help, [`Terminal`].
///
/// ```
/// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// # use steersman::reconcile::Terminal;
/// # use steersman::{Action, BoxError, Lister, ObjectKey};
/// # struct Context { client: kube::Client, configs: Lister<ConfigMap> }
/// async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, BoxError> {
///     let config = cx.configs.get(&key)?;
///     let secrets = kube::Api::<Secret>::default_namespaced(cx.client.clone());
///     let secret = secrets.get("password").await?;
///     if config.data.is_none() {
///         return Err(Terminal::new("the config has no data").into());
///     }
/// #   let _ = secret;
///     Ok(Action::AwaitChange)
/// }
/// ```
///
/// An object that is absent from the cache of its own controller is not a failure, whatever type of error carries it
/// ([`LookupError::NotFound`]): the object was deleted, and nothing is left to do.
pub struct BoxError(Box<dyn ReconcileError>);

/// An error that a retry cannot cure: the key runs again when something changes. controller-runtime's `TerminalError`.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Terminal(Box<dyn Error + Send + Sync>);

// === impl Action ===

impl Action {
    /// Stretches the delay by up to `factor` of it; see [`Requeue::jittered`]. Does not change actions without a delay.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use steersman::Action;
    /// // In 300 to 330 seconds: a thousand objects that were looked at together do not come back together.
    /// let again = Action::RequeueAfter(Duration::from_secs(300)).jittered(0.1);
    /// ```
    pub fn jittered(self, factor: f64) -> Self {
        self.requeue()
            .filter(|requeue| requeue.is_timed())
            .map_or(self, |requeue| Self::RequeueWith(requeue.jittered(factor)))
    }

    /// Sets the priority; see [`Requeue::with_priority`]. Does not change [`Action::AwaitChange`]: the source of a
    /// change decides its priority ([`Watch::priority`](crate::control::controller::Watch::priority)).
    pub fn with_priority(self, priority: Priority) -> Self {
        self.requeue().map_or(self, |requeue| Self::RequeueWith(requeue.with_priority(priority)))
    }

    /// When the key runs again without a change.
    pub(crate) fn requeue(self) -> Option<Requeue> {
        match self {
            Self::AwaitChange => None,
            Self::Requeue => Some(Requeue::rate_limited()),
            Self::RequeueAfter(delay) => Some(Requeue::after(delay)),
            Self::RequeueWith(requeue) => Some(requeue),
        }
    }
}

// === impl Terminal ===

impl Terminal {
    /// Makes `error`, which may be a text, terminal.
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(error.into())
    }
}

impl ReconcileError for Terminal {
    fn is_terminal(&self) -> bool {
        true
    }
}

// === impl BoxError ===

impl BoxError {
    /// The error itself.
    pub fn as_error(&self) -> &dyn ReconcileError {
        &*self.0
    }

    pub(crate) fn into_inner(self) -> Box<dyn ReconcileError> {
        self.0
    }
}

// `BoxError` does not implement `Error`: it would then convert into itself in two ways.
impl<E: ReconcileError> From<E> for BoxError {
    fn from(error: E) -> Self {
        Self(Box::new(error))
    }
}

#[cfg(feature = "anyhow")]
impl From<anyhow::Error> for BoxError {
    fn from(error: anyhow::Error) -> Self {
        Self(Box::new(Anyhow(error)))
    }
}

impl fmt::Debug for BoxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for BoxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// `anyhow::Error` does not implement `Error`, so this type does.
#[cfg(feature = "anyhow")]
#[derive(Debug)]
struct Anyhow(anyhow::Error);

#[cfg(feature = "anyhow")]
impl fmt::Display for Anyhow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(feature = "anyhow")]
impl Error for Anyhow {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

#[cfg(feature = "anyhow")]
impl ReconcileError for Anyhow {
    fn is_terminal(&self) -> bool {
        // The chain begins with the error itself.
        self.0.chain().any(is_terminal)
    }

    fn retry_after(&self) -> Option<Duration> {
        self.0.chain().find_map(retry_after)
    }
}

// === impl ReconcileError ===

/// Terminal when no request could be made: that needs other input. Any answer of the server may differ next time
/// without an event about the object, because permissions, definitions and admission rules change too.
impl ReconcileError for kube::Error {
    fn is_terminal(&self) -> bool {
        is_terminal(self)
    }

    fn retry_after(&self) -> Option<Duration> {
        retry_after(self)
    }
}

/// Never terminal: an object that is not in the cache may appear, and its event need not run this key. The absence of
/// the key's own object is not a failure; see [`BoxError`].
impl ReconcileError for LookupError {}

/// Whether this one error, without its sources, is terminal.
fn is_terminal(error: &(dyn Error + 'static)) -> bool {
    error.is::<Terminal>()
        || matches!(error.downcast_ref(), Some(kube::Error::BuildRequest(_) | kube::Error::HttpError(_)))
}

/// Whether `error` says, somewhere in its chain, that the object of `resource` at `key` is not in the cache.
pub(crate) fn is_absence(error: &dyn ReconcileError, resource: &str, key: &ObjectKey) -> bool {
    sources(Some(error)).any(|error| match error.downcast_ref::<LookupError>() {
        Some(LookupError::NotFound { resource: of, key: at }) => **of == *resource && at == key,
        _ => false,
    })
}

fn sources<'a>(first: Option<&'a (dyn Error + 'static)>) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(first, |error: &&'a (dyn Error + 'static)| (*error).source())
}

/// The wait that the server asked for, if this error is an answer of the server.
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
    use crate::cache::lister::WaitError;
    use crate::shared::key::ObjectKey;
    use crate::writing::write::WriteError;

    #[derive(Debug, thiserror::Error)]
    enum Wrapped {
        #[error(transparent)]
        As(WriteError),
        #[error("it did not work")]
        Around(#[source] WriteError),
        #[error("nobody said anything")]
        Not,
        #[error("it will not work")]
        Never(#[source] Terminal),
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

    #[test]
    fn a_cache_that_is_late_is_tried_again() {
        let (key, waited) = (ObjectKey::cluster("a"), Duration::from_secs(10));
        let late = WaitError { key, wanted: "7".to_owned(), reached: "6".to_owned(), waited };
        assert!(!BoxError::from(late).as_error().is_terminal());
    }

    #[test]
    fn an_error_is_terminal_when_one_of_its_sources_is() {
        let unbuilt = || kube::Error::BuildRequest(kube::core::request::Error::Validation("no name".to_owned()));
        let (resource, key) = ("configmaps".to_owned(), ObjectKey::cluster(""));
        assert!(Wrapped::Never(Terminal::new("no cidr")).is_terminal());
        assert!(unbuilt().is_terminal());
        assert!(WriteError { verb: "patch", resource, key, source: unbuilt() }.is_terminal());
        assert!(!refused(7).is_terminal() && !refused(7).source.is_terminal() && !Wrapped::Not.is_terminal());
    }

    #[test]
    fn a_boxed_error_says_what_the_error_says() {
        let of_kube = BoxError::from(refused(7).source);
        assert_eq!(of_kube.as_error().retry_after(), Some(Duration::from_secs(7)));
        let terminal = BoxError::from(Terminal::new("no cidr"));
        assert!(terminal.as_error().is_terminal());
        assert_eq!(terminal.to_string(), "no cidr");
    }

    #[cfg(feature = "anyhow")]
    #[test]
    fn an_anyhow_error_keeps_what_is_known_about_retries() {
        use anyhow::Context;

        let wait = Some(Duration::from_secs(7));
        let of = |error: anyhow::Error| BoxError::from(error);
        assert_eq!(of(refused(7).into()).as_error().retry_after(), wait);
        assert_eq!(of(anyhow::Error::from(refused(7).source).context("cannot paint")).as_error().retry_after(), wait);
        let terminal = Err::<(), _>(Terminal::new("no cidr")).context("cannot paint").unwrap_err();
        assert!(of(terminal).as_error().is_terminal());
        assert!(!of(anyhow::anyhow!("a text")).as_error().is_terminal());
        let absent = LookupError::NotFound { resource: "configmaps".into(), key: ObjectKey::cluster("a") };
        let absent = of(anyhow::Error::from(absent).context("cannot read"));
        assert!(is_absence(absent.as_error(), "configmaps", &ObjectKey::cluster("a")));
        assert!(!is_absence(absent.as_error(), "configmaps", &ObjectKey::cluster("b")));
        assert!(!is_absence(absent.as_error(), "secrets", &ObjectKey::cluster("a")));
    }
}
