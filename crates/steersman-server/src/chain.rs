//! What every request passes on its way in, outermost first: an id, who asks, as whom, how many at a time, whether it is
//! allowed, its body; and what every answer gets on its way out.

mod duration;
mod impersonation;
mod request_body;

use crate::answer::{Answer, is_pretty_for};
use crate::authn::Authenticator;
use crate::authz;
use crate::body::Body;
use crate::chain::request_body::RequestBody;
use crate::negotiate::error_encoding;
use crate::operation::WARNINGS_BYTES_MAX;
use crate::query::Query;
use crate::request_info::RequestInfo;
use crate::route::{self, Notes, Router};
use crate::state::State;
use crate::status::Failure;
use crate::user::{AuthenticatedUser, User};
use bytes::Bytes;
use futures::FutureExt as _;
use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, VARY, WARNING};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long a request that is not a watch may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Requests that read, carried out at a time; more are told to come back.
const READS_MAX: usize = 400;
/// Requests that write, carried out at a time.
const WRITES_MAX: usize = 200;
/// Requests whose bodies are on their way at a time.
const RECEIVING_MAX: usize = 1000;

/// What every request passes.
pub(crate) struct Chain {
    authenticator: Authenticator,
    router: Router,
    reads: Arc<Semaphore>,
    writes: Arc<Semaphore>,
    receiving: Semaphore,
    /// The writes that have begun.
    writing: TaskTracker,
}

/// What is known of a request before its body is.
struct Head {
    info: RequestInfo,
    parts: Parts,
    query: Query,
}

impl Chain {
    pub(crate) fn new(authenticator: Authenticator, router: Router) -> Chain {
        Chain {
            authenticator,
            router,
            reads: Arc::new(Semaphore::new(READS_MAX)),
            writes: Arc::new(Semaphore::new(WRITES_MAX)),
            receiving: Semaphore::new(RECEIVING_MAX),
            writing: TaskTracker::new(),
        }
    }

    /// Waits for the writes that have begun.
    pub(crate) async fn finish_writes(&self) {
        self.writing.close();
        self.writing.wait().await;
    }

    /// Answers a request, whatever happens on the way.
    pub(crate) async fn handle<B>(self: Arc<Chain>, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: fmt::Display,
    {
        let (parts, body) = request.into_parts();
        let query = Query::parse(parts.uri.query().unwrap_or(""));
        let info = RequestInfo::new(&parts.method, parts.uri.path(), &query);
        let head = Arc::new(Head { info, parts, query });
        let (mut notes, mut sender) = (Notes::default(), None);
        let body = pin!(body);
        let mut body = RequestBody::new(body);
        let passed = AssertUnwindSafe(self.pass(&head, &mut body, &mut notes, &mut sender)).catch_unwind().await;
        let Head { info, parts, query } = &*head;
        let outcome = passed.unwrap_or_else(|_| {
            tracing::error!(method = %parts.method, path = %info.path, "a request panicked");
            Err(Failure::internal(
                "this request caused the server to fail unexpectedly; its id is in the Audit-Id header",
            ))
        });
        let mut answer = outcome.unwrap_or_else(|failure| {
            Answer::failure(&failure, error_encoding(&parts.headers), is_pretty_for(query, &parts.headers))
        });
        if !notes.audit_annotations.is_empty() {
            tracing::debug!(method = %parts.method, path = %info.path, annotations = ?notes.audit_annotations, "audit");
        }
        finish(&self.router.state, parts, &mut answer, &notes.warnings);
        if !body.discard(parts).await {
            answer.response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(sender) = sender {
            answer.response.extensions_mut().insert(sender);
        }
        answer.response
    }

    async fn pass<B>(
        self: &Arc<Chain>,
        head: &Arc<Head>,
        body: &mut RequestBody<'_, B>,
        notes: &mut Notes,
        sender: &mut Option<AuthenticatedUser>,
    ) -> Result<Answer, Failure>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: fmt::Display,
    {
        let Head { info, parts, query } = &**head;
        let state = &self.router.state;
        let timeout = request_timeout(query, info)?;
        let user =
            self.authenticator.authenticate(&parts.headers, &parts.extensions).ok_or_else(Failure::unauthorized)?;
        *sender = Some(AuthenticatedUser(user.name.clone()));
        let is_health =
            info.target.is_none() && ["/healthz", "/livez", "/readyz"].iter().any(|path| info.path.starts_with(path));
        if state.is_stopping() && !is_health {
            return Err(Failure::too_many_requests("the server is shutting down; try again at another one", 1));
        }
        let user = impersonation::apply(&*state.authorizer, &parts.headers, user).await?;
        authz::authorize(&*state.authorizer, &user, &info.attributes()).await?;
        let work = async {
            let is_read = matches!(parts.method, Method::GET | Method::HEAD);
            let body = if is_read {
                // A read is asked for by its path and query alone: whatever else is sent is not waited for.
                Bytes::new()
            } else {
                // A place is taken when there is something to do: a client that sends slowly holds none of the places for
                // writes, but one of many more for bodies on their way.
                let _receiving = self.receiving.try_acquire().map_err(|_| busy())?;
                body.read().await?
            };
            let permit = self.permit(parts, info)?;
            // A write that has begun is carried through, whether or not its client waits: what was reserved for it is
            // known to be stored or not only at its end.
            let is_write = info.target.is_some() && !is_read;
            if !is_write {
                let (outcome, said) = self.clone().carry_out(head.clone(), user, body, permit, None).await;
                *notes = said;
                return outcome;
            }
            // But for a deletion of many, which is many writes: no more of them are begun for a client that went away.
            let abandoned = (info.verb == "deletecollection").then(CancellationToken::new);
            let _abandons = abandoned.clone().map(CancellationToken::drop_guard);
            let done = self.clone().carry_out(head.clone(), user, body, permit, abandoned);
            let (outcome, said) = joined(self.writing.spawn(done)).await?;
            *notes = said;
            outcome
        };
        match tokio::time::timeout(timeout, work).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Failure::timeout("request did not complete within the allotted timeout")),
        }
    }

    /// Does what a request asks for. Holds its place until then.
    async fn carry_out(
        self: Arc<Chain>,
        head: Arc<Head>,
        user: User,
        body: Bytes,
        permit: Option<OwnedSemaphorePermit>,
        abandoned: Option<CancellationToken>,
    ) -> (Result<Answer, Failure>, Notes) {
        let Head { info, parts, query } = &*head;
        let request = route::Request { info, query, parts, user: &user, body, abandoned: abandoned.as_ref() };
        let mut notes = Notes::default();
        let mut outcome = self.router.dispatch(&request, &mut notes).await;
        if let (Ok(answer), Some(permit)) = (&mut outcome, permit) {
            // What is still to be made of the answer is work, too.
            answer.response.body_mut().hold(permit);
        }
        (outcome, notes)
    }

    /// A place among the requests that are carried out at a time. Watches have none: they are cheap and long.
    fn permit(&self, parts: &Parts, info: &RequestInfo) -> Result<Option<OwnedSemaphorePermit>, Failure> {
        if info.verb == "watch" || info.target.is_none() {
            return Ok(None);
        }
        let is_read = matches!(parts.method, Method::GET | Method::HEAD);
        let places = if is_read { &self.reads } else { &self.writes };
        match places.clone().try_acquire_owned() {
            Ok(permit) => Ok(Some(permit)),
            Err(_) => Err(busy()),
        }
    }
}

/// What a task gave; its panic is the caller's.
async fn joined<T>(task: JoinHandle<T>) -> Result<T, Failure> {
    match task.await.map_err(JoinError::try_into_panic) {
        Ok(done) => Ok(done),
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        // Only a runtime that is shutting down drops its tasks.
        Err(Err(_)) => Err(Failure::unavailable("the server is shutting down")),
    }
}

/// How long the request may take. The beginning of a watch is bounded like any request, its stream is not.
fn request_timeout(query: &Query, info: &RequestInfo) -> Result<Duration, Failure> {
    match query.non_empty("timeout").filter(|_| info.verb != "watch") {
        None => Ok(REQUEST_TIMEOUT),
        Some(text) => match duration::parse(text) {
            Some(timeout) if timeout.is_zero() => Ok(REQUEST_TIMEOUT),
            Some(timeout) => Ok(timeout.min(REQUEST_TIMEOUT)),
            None => Err(Failure::bad_request(format!(
                "invalid timeout specified in the request URL - time: invalid duration {text:?}"
            ))),
        },
    }
}

fn busy() -> Failure {
    Failure::too_many_requests("Too many requests, please try again later.", 1)
}

/// Puts on an answer what every answer carries.
fn finish(state: &State, parts: &Parts, answer: &mut Answer, warnings: &[String]) {
    let given = parts.headers.get("audit-id").filter(|id| id.len() <= 64).cloned();
    let made =
        || HeaderValue::from_str(&uuid::Uuid::new_v4().to_string()).unwrap_or(HeaderValue::from_static("unknown"));
    let headers = answer.response.headers_mut();
    headers.insert("audit-id", given.unwrap_or_else(made));
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
    warn(headers, warnings);
    if state.is_stopping() {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    let reads = matches!(parts.method, Method::GET) && answer.response.status().is_success();
    if reads && crate::negotiate::takes_gzip(&parts.headers) && answer.response.body_mut().compress() {
        let headers = answer.response.headers_mut();
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    if parts.method == Method::HEAD {
        let length = http_body::Body::size_hint(answer.response.body()).exact();
        *answer.response.body_mut() = Body::empty();
        if let Some(length) = length {
            answer.response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
    }
}

fn warn(headers: &mut HeaderMap, warnings: &[String]) {
    let mut bytes_left = WARNINGS_BYTES_MAX;
    for warning in warnings {
        let quoted: String = warning
            .chars()
            .filter(|char| !char.is_control())
            .flat_map(|char| {
                let escape = matches!(char, '"' | '\\').then_some('\\');
                escape.into_iter().chain(std::iter::once(char))
            })
            .collect();
        let text = format!("299 - \"{quoted}\"");
        if text.len() > bytes_left {
            break;
        }
        bytes_left -= text.len();
        if let Ok(value) = HeaderValue::from_str(&text) {
            headers.append(WARNING, value);
        }
    }
}
