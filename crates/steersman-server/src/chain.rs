//! What every request passes on its way in, outermost first: an id, who asks, as whom, how many at a time, whether it is
//! allowed, its body; and what every answer gets on its way out.

mod duration;
mod impersonation;

use crate::answer::{Answer, is_pretty_for};
use crate::authz::{self, Attributes};
use crate::body::Body;
use crate::negotiate::error_encoding;
use crate::query::Query;
use crate::request_info::RequestInfo;
use crate::route;
use crate::server::Inner;
use crate::service::AuthenticatedUser;
use crate::status::Failure;
use crate::user::User;
use bytes::Bytes;
use futures::FutureExt as _;
use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, VARY, WARNING};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::{JoinError, JoinHandle};

/// Bytes that the body of a request may have.
const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;
/// How long a request that is not a watch may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of warnings that an answer carries at the most.
pub(crate) const WARNINGS_BYTES_MAX: usize = 4096;

/// What is known of a request before its body is.
struct Head {
    info: RequestInfo,
    parts: Parts,
    query: Query,
}

/// A request that has passed the chain.
pub(crate) struct Admitted<'a> {
    pub(crate) info: &'a RequestInfo,
    pub(crate) query: &'a Query,
    pub(crate) parts: &'a Parts,
    pub(crate) user: &'a User,
    pub(crate) body: Bytes,
}

/// Answers a request, whatever happens on the way.
pub(crate) async fn handle<B>(server: Arc<Inner>, request: Request<B>) -> Response<Body>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: fmt::Display,
{
    let (parts, body) = request.into_parts();
    let query = Query::parse(parts.uri.query().unwrap_or(""));
    let info = RequestInfo::new(&parts.method, parts.uri.path(), &query);
    let head = Arc::new(Head { info, parts, query });
    let (mut warnings, mut sender) = (Vec::new(), None);
    let passed = AssertUnwindSafe(pass(&server, &head, body, &mut warnings, &mut sender)).catch_unwind().await;
    let Head { info, parts, query } = &*head;
    let outcome = passed.unwrap_or_else(|_| {
        tracing::error!(method = %parts.method, path = %info.path, "a request panicked");
        Err(Failure::internal("this request caused the server to fail unexpectedly; its id is in the Audit-Id header"))
    });
    let mut answer = outcome.unwrap_or_else(|failure| {
        Answer::failure(&failure, error_encoding(&parts.headers), is_pretty_for(query, &parts.headers))
    });
    finish(&server, parts, &mut answer, &warnings);
    if let Some(sender) = sender {
        answer.response.extensions_mut().insert(sender);
    }
    answer.response
}

async fn pass<B>(
    server: &Arc<Inner>,
    head: &Arc<Head>,
    body: B,
    warnings: &mut Vec<String>,
    sender: &mut Option<AuthenticatedUser>,
) -> Result<Answer, Failure>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: fmt::Display,
{
    let Head { info, parts, query } = &**head;
    let timeout = request_timeout(query, info)?;
    let user =
        server.authenticator.authenticate(&parts.headers, &parts.extensions).ok_or_else(Failure::unauthorized)?;
    *sender = Some(AuthenticatedUser(user.name.clone()));
    let is_health =
        info.target.is_none() && ["/healthz", "/livez", "/readyz"].iter().any(|path| info.path.starts_with(path));
    if server.is_stopping() && !is_health {
        return Err(Failure::too_many_requests("the server is shutting down; try again at another one", 1));
    }
    let user = impersonation::apply(&*server.authorizer, &parts.headers, user)?;
    authz::authorize(&*server.authorizer, &user, &Attributes::of(info))?;
    let work = async {
        // A place is taken when there is something to do: who is slow to send holds none, but waits in a room with an end.
        let is_read = matches!(parts.method, Method::GET | Method::HEAD);
        let receiving = if is_read { None } else { Some(server.receiving.try_acquire().map_err(|_| busy())?) };
        let body = read(body).await?;
        drop(receiving);
        let permit = permit(server, parts, info)?;
        let done = carry_out(server.clone(), head.clone(), user, body, permit);
        // A write that has begun is carried through, whether or not its client waits: what was reserved for it is known to
        // be stored or not only at its end.
        let is_write = info.target.is_some() && !matches!(parts.method, Method::GET | Method::HEAD);
        let (outcome, said) = if is_write { joined(server.writing.spawn(done)).await? } else { done.await };
        *warnings = said;
        outcome
    };
    match tokio::time::timeout(timeout, work).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Failure::timeout("request did not complete within the allotted timeout")),
    }
}

/// Does what an admitted request asks for. Holds its place until then.
async fn carry_out(
    server: Arc<Inner>,
    head: Arc<Head>,
    user: User,
    body: Bytes,
    permit: Option<OwnedSemaphorePermit>,
) -> (Result<Answer, Failure>, Vec<String>) {
    let admitted = Admitted { info: &head.info, query: &head.query, parts: &head.parts, user: &user, body };
    let mut warnings = Vec::new();
    let outcome = route::dispatch(&server, &admitted, &mut warnings).await;
    drop(permit);
    (outcome, warnings)
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

/// A place among the requests that are carried out at a time. Watches have none: they are cheap and long.
fn permit(server: &Inner, parts: &Parts, info: &RequestInfo) -> Result<Option<OwnedSemaphorePermit>, Failure> {
    if info.verb == "watch" || info.target.is_none() {
        return Ok(None);
    }
    let is_read = matches!(parts.method, Method::GET | Method::HEAD);
    let places = if is_read { &server.reads } else { &server.writes };
    match places.clone().try_acquire_owned() {
        Ok(permit) => Ok(Some(permit)),
        Err(_) => Err(busy()),
    }
}

async fn read<B>(body: B) -> Result<Bytes, Failure>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: fmt::Display,
{
    let readable = body.map_err(|error| std::io::Error::other(error.to_string()));
    match Limited::new(readable, BODY_BYTES_MAX).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(Failure::too_large(format!("Request entity too large: limit is {BODY_BYTES_MAX}")))
        }
        Err(error) => Err(Failure::bad_request(format!("the body of the request could not be read: {error}"))),
    }
}

/// Puts on an answer what every answer carries.
fn finish(server: &Inner, parts: &Parts, answer: &mut Answer, warnings: &[String]) {
    let given = parts.headers.get("audit-id").filter(|id| id.len() <= 64).cloned();
    let made =
        || HeaderValue::from_str(&uuid::Uuid::new_v4().to_string()).unwrap_or(HeaderValue::from_static("unknown"));
    let headers = answer.response.headers_mut();
    headers.insert("audit-id", given.unwrap_or_else(made));
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
    warn(headers, warnings);
    if server.is_stopping() {
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
