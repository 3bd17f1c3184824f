//! The connection to the server, with faults that a test can inject.
//!
//! Clients hold an [`ApiService`], never the server itself, so they survive its restart like clients of an address.

use crate::fault::{Fault, Faults};
use crate::requests::Requests;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use steersman_server::user::User;
use steersman_server::{BodyError, Server};
use steersman_storage::Store;
use tokio::sync::{RwLock, watch};
use tower::ServiceExt as _;

/// The body of an answer. A cut watch ends with an error, as a broken connection does.
pub type Body = UnsyncBoxBody<Bytes, Broken>;

/// The connection broke: an injected fault, or a control plane that was stopped.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Broken {
    /// The control plane could not finish its answer, or the client was too slow in reading it.
    #[error("connection reset: the control plane broke its answer off")]
    Aborted,
    /// [`crate::ControlPlane::cut_watches`] was called.
    #[error("connection reset: the test cut it")]
    Cut,
    /// The control plane was stopped.
    #[error("connection refused: the control plane was stopped")]
    Stopped,
    /// [`Fault::Unanswered`] was injected.
    #[error("connection closed before the answer came: the test made it so")]
    Unanswered,
    /// [`Fault::Unsent`] was injected.
    #[error("connection closed before the request was sent: the test made it so")]
    Unsent,
}

/// The control plane for one user as a `tower::Service`: raw HTTP, for requests that a client cannot make.
#[derive(Clone)]
pub struct ApiService {
    plane: Arc<Plane>,
    caller: Caller,
}

/// The user of a service.
#[derive(Clone, Debug)]
pub(crate) enum Caller {
    /// The user of the bearer token, if the request has one.
    Anyone,
    /// The testkit itself, to which no faults are injected.
    Testkit(User),
    User(User),
}

/// The state that a control plane and its services share.
#[derive(Debug)]
pub(crate) struct Plane {
    /// Requests hold a read lock until they are answered, so that a restart waits for them, and they for a restart.
    pub(crate) running: RwLock<Option<Running>>,
    pub(crate) faults: Faults,
    pub(crate) cuts: watch::Sender<()>,
    pub(crate) requests: Requests,
}

/// A running server, and the parts it runs on.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) server: Server,
    pub(crate) store: Store,
}

// === impl ApiService ===

impl ApiService {
    pub(crate) fn new(plane: Arc<Plane>, caller: Caller) -> ApiService {
        ApiService { plane, caller }
    }

    async fn answer<B>(self, request: Request<B>) -> Result<Response<Body>, Broken>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: fmt::Display,
    {
        let fault = match &self.caller {
            Caller::Testkit(_) => None,
            Caller::Anyone | Caller::User(_) => self.plane.faults.take(&request),
        };
        let noted = match &self.caller {
            Caller::User(user) => self.plane.requests.note(user, request.method(), request.uri()),
            Caller::Anyone | Caller::Testkit(_) => None,
        };
        match fault {
            Some(Fault::Refused(code)) => {
                let refusal = Fault::refusal(code);
                return Ok(refusal.map(|bytes| Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()));
            }
            Some(Fault::Unsent) => return Err(Broken::Unsent),
            Some(Fault::Unanswered) | None => {}
        }
        // Subscribed before the answer begins, so that a cut also ends requests that are not answered yet.
        let cuts = self.plane.cuts.subscribe();
        let running = self.plane.running.read().await;
        let Some(Running { server, .. }) = &*running else { return Err(Broken::Stopped) };
        let service = match self.caller {
            Caller::Anyone => server.service(),
            Caller::Testkit(user) | Caller::User(user) => server.service_as(user),
        };
        let response = match service.oneshot(request).await {
            Ok(response) => response,
            Err(infallible) => match infallible {},
        };
        if let Some(noted) = noted {
            self.plane.requests.note_answer(noted, response.status());
        }
        if fault.is_some() {
            return Err(Broken::Unanswered);
        }
        Ok(response.map(|body| cuttable(body, cuts)))
    }
}

impl<B> tower::Service<Request<B>> for ApiService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: fmt::Display,
{
    type Response = Response<Body>;
    type Error = Broken;
    type Future = BoxFuture<'static, Result<Response<Body>, Broken>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        Box::pin(self.clone().answer(request))
    }
}

impl fmt::Debug for ApiService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiService").field("caller", &self.caller).finish_non_exhaustive()
    }
}

/// A body that ends with an error when watches are cut.
fn cuttable(body: steersman_server::Body, cuts: watch::Receiver<()>) -> Body {
    let frames = stream::unfold(Some((body, cuts)), |open| async {
        let (mut body, mut cuts) = open?;
        // Both arms are cancel safe: a frame that is not returned stays in the body, and a cut stays cut.
        tokio::select! {
            biased;
            () = cut(&mut cuts) => Some((Err(Broken::Cut), None)),
            frame = body.frame() => frame.map(|frame: Result<Frame<Bytes>, BodyError>| {
                (frame.map_err(|_| Broken::Aborted), Some((body, cuts)))
            }),
        }
    });
    StreamBody::new(frames).boxed_unsync()
}

async fn cut(cuts: &mut watch::Receiver<()>) {
    if cuts.changed().await.is_err() {
        // The sender was dropped, so nothing can be cut any more.
        std::future::pending::<()>().await;
    }
}
