//! The party that knows what proxies should have.

use crate::report::{ProxyReport, StreamId};
use crate::subscriber::Subscriber;
use crate::view::View;
use std::sync::Arc;
use tokio::sync::watch;

/// Knows what each proxy should have, and hears what each proxy has.
pub trait Source: Send + Sync + 'static {
    /// Whose stream it is, and the views of the proxy, when it opens one.
    fn subscribe(
        &self,
        stream: StreamId,
        subscriber: &Arc<Subscriber>,
    ) -> impl Future<Output = Result<Subscription, Refusal>> + Send;

    /// The state of a proxy has changed. Called from the stream's task, so it must return at once.
    fn report(&self, stream: StreamId, report: &ProxyReport);

    /// The stream of a proxy has ended. Called once for each stream that [`Source::subscribe`] accepted.
    fn ended(&self, stream: StreamId);
}

/// A stream that is served.
#[derive(Clone, Debug)]
pub struct Subscription {
    /// The party that the stream belongs to, as the source knows it: streams are counted by it. It must not be taken from what a proxy says of
    /// itself unless that is believed.
    pub owner: Arc<str>,
    /// While the value is `None`, the proxy gets no answer and keeps what it has. Of several values that come quickly the last one counts.
    /// When the sender is dropped, the stream ends with `Unavailable`, and the proxy asks again.
    pub views: watch::Receiver<Option<Arc<View>>>,
}

/// Why a stream is not served.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// The control plane does not know yet what proxies should have. A proxy keeps its configuration, and asks again.
    #[error("the control plane is starting; ask again")]
    NotReady,
    /// The proxy may not have what it asks for.
    #[error("{0}")]
    Forbidden(String),
    /// The proxy has not shown who it is.
    #[error("{0}")]
    Unauthenticated(String),
    /// Nothing is known of the proxy. It may be in a moment.
    #[error("{0}")]
    Unknown(String),
}
