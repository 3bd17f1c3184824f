//! The stages that every request passes, in this order: audit id, authentication, impersonation, classification for
//! priority and fairness, authorization, its body, its turn; and the headers of every answer.

mod current;
mod impersonation;
mod labels;
mod proxy;
mod refusal;
mod request_body;

use crate::access::audit::{Received, Trail};
use crate::access::authz::{self, Attributes, Verdict};
use crate::http::answer::{Answer, layout_for};
use crate::http::chain::current::Current;
use crate::http::chain::proxy::Forwarded;
use crate::http::chain::request_body::RequestBody;
use crate::http::flowcontrol::{Kind, Schema};
use crate::http::limits::{Access, IncomingRequest, Limits, Permit};
use crate::http::route::{self, Router};
use crate::http::web::Web;
use crate::shared::compute::{self, Job, Load};
use crate::shared::follower::compiled::Needs;
use crate::shared::identity::uid;
use crate::shared::operation::{Notes, WARNINGS_BYTES_MAX};
use crate::shared::request::body::Body;
use crate::shared::request::memory::{Reservation, UserMemory};
use crate::shared::request::negotiate::error_encoding;
use crate::shared::request::payer::payer;
use crate::shared::request::query::Query;
use crate::shared::request::request_info::RequestInfo;
use crate::shared::request::unread::{self, Unread};
use crate::shared::status::Failure;
use crate::state::State;
use bytes::Bytes;
use futures::FutureExt as _;
use http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, VARY, WARNING,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use std::fmt;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use steersman_kinds::user::{AuthenticatedUser, User};
use steersman_machinery::budget::Interrupt;
use steersman_machinery::duration;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

/// The part of its time limit that a request may wait for its turn: a quarter.
const QUEUE_WAIT_PART: u32 = 4;
/// How long a request of nobody waits for credentials that another server has just given out.
const STRANGER_WAIT: Duration = Duration::from_secs(2);
/// The answer to a review that the server has sent to itself.
const OWN_REVIEW: &str =
    "this server sent this request itself, to a webhook: the URL of the webhook leads back to the server";

/// The stages that every request passes.
pub(crate) struct Chain {
    router: Router,
    limits: Arc<Limits>,
    web: Web,
    /// The writes that have begun.
    writing: TaskTracker,
}

/// Facts about a request, found on its way in, for its answer and the audit log.
#[derive(Default)]
struct RequestFacts {
    notes: Notes,
    sender: Option<AuthenticatedUser>,
    schema: Option<Arc<Schema>>,
    trail: Option<Trail>,
}

/// A request without its body.
struct Head {
    info: RequestInfo,
    parts: Parts,
    query: Query,
}

/// A request that has been admitted.
struct Entered {
    user: Arc<User>,
    payer: Arc<User>,
    body: Bytes,
    unread: Unread,
    /// The memory reserved for the body until the request has ended.
    _memory: Reservation,
    arrived: Instant,
    deadline: Instant,
    load: Load,
    permit: Permit,
    /// Cancelled when the client has disconnected, for a request that can end early.
    abandoned: Option<CancellationToken>,
}

/// The reader of a request's body, which answers it too.
enum Destination {
    /// This server.
    Here,
    /// A node, a Pod or a Service, after this server has found its address.
    Node(Unread),
    /// The server behind an APIService.
    Remote(Forwarded),
}

/// A request that may be passed on.
struct Passing<'a> {
    user: &'a Arc<User>,
    attributes: &'a Attributes<'a>,
    schema: Option<&'a Schema>,
    deadline: Instant,
    timeout: Duration,
}

impl Chain {
    pub(crate) fn new(router: Router, limits: Arc<Limits>, web: Web) -> Chain {
        Chain { router, limits, web, writing: TaskTracker::new() }
    }

    /// Waits for the writes that have begun.
    pub(crate) async fn finish_writes(&self) {
        self.writing.close();
        self.writing.wait().await;
    }

    /// Answers a request, whatever happens on the way.
    pub(crate) async fn handle<B>(self: Arc<Chain>, request: Request<B>, source: Option<IpAddr>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: fmt::Display,
    {
        let (parts, body) = request.into_parts();
        let query = Query::parse(parts.uri.query().unwrap_or(""));
        let info = RequestInfo::new(&parts.method, parts.uri.path(), &query);
        let head = Arc::new(Head { info, parts, query });
        let begun = Instant::now();
        let span = tracing::debug_span!("request", method = %head.parts.method, path = head.info.path);
        let audit_id = audit_id(&head.parts.headers);
        if self.web.is_preflight(&head.parts) {
            let mut answer = Answer::empty(204);
            finish(&self.router.state, &head.parts, &mut answer, &[], audit_id);
            self.web.finish(&head.parts.headers, answer.response.headers_mut());
            return answer.response;
        }
        let received = self.router.audit.as_ref().map(|audit| {
            let (clock, audit_id) = (self.router.state.clock(), audit_id.to_str().unwrap_or_default());
            Received { audit, audit_id, info: &head.info, parts: &head.parts, source, at: clock(), clock }
        });
        let mut known = RequestFacts::default();
        // The body of a request for another server is for that one to read.
        self.learn_of_remotes(&head, begun).await;
        let catalog = self.router.state.catalog();
        let remote = self.router.state.remotes.find(&catalog, &head.info.path);
        let (body, destination) = match remote {
            None if route::leads_to_node(&catalog, &head.info) => {
                (None, Destination::Node(Unread { body: unread::body(body), source }))
            }
            None => (Some(body), Destination::Here),
            Some(remote) => {
                let (unread, audit_id) = (Unread { body: unread::body(body), source }, audit_id.clone());
                (None, Destination::Remote(Forwarded { remote, unread, audit_id }))
            }
        };
        let body = pin!(body);
        let mut body = RequestBody::new(body.as_pin_mut());
        let pass = self.pass(&head, &mut body, destination, &mut known, received.as_ref()).instrument(span);
        let passed = AssertUnwindSafe(pass).catch_unwind().await;
        let Head { info, parts, query } = &*head;
        let state = &self.router.state;
        let has_panicked = passed.is_err();
        let outcome = passed.unwrap_or_else(|_| {
            state.metrics.panicked();
            tracing::error!(method = %parts.method, path = %info.path, "a request panicked");
            Err(Failure::internal(
                "this request caused the server to fail unexpectedly; its id is in the Audit-Id header",
            ))
        });
        let RequestFacts { notes, schema, sender, trail } = known;
        let (mut answer, failure) = match outcome {
            Ok(answer) => (answer, None),
            Err(failure) => {
                let encoding = error_encoding(&parts.headers);
                let mut answer = Answer::failure(&failure, encoding, layout_for(query, &parts.headers));
                if let Some(AuthenticatedUser(sender)) = &sender {
                    // The client must learn the reason, so an unread one counts against what it asks for next.
                    let mut reservation = state.memory.answers.reserve(&payer(sender));
                    let body = answer.response.body_mut();
                    reservation.take(body.first_bytes().unwrap_or(0));
                    body.reserve(reservation);
                }
                (answer, Some(failure))
            }
        };
        if let Some(received) = &received {
            match trail {
                Some(mut trail) => {
                    notes.audit_annotations.iter().for_each(|annotation| trail.note(annotation));
                    match has_panicked {
                        true => trail.panicked(answer.response.status(), failure.as_ref()).await,
                        false => trail.answered(&mut answer.response, failure.as_ref()).await,
                    }
                }
                None if sender.is_none() => Trail::unauthenticated(received, &notes.audit_annotations).await,
                // The audit policy excludes the request.
                None => {}
            }
        }
        if !notes.audit_annotations.is_empty() {
            tracing::debug!(method = %parts.method, path = %info.path, annotations = ?notes.audit_annotations, "audit");
        }
        finish(state, parts, &mut answer, &notes.warnings, audit_id);
        self.web.finish(&parts.headers, answer.response.headers_mut());
        if let Some(schema) = schema {
            schema.label(answer.response.headers_mut());
        }
        let labels = labels::of(&state.catalog(), info, parts, query);
        state.metrics.request(&labels, answer.response.status().as_u16(), begun.elapsed());
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
        destination: Destination,
        known: &mut RequestFacts,
        received: Option<&Received<'_>>,
    ) -> Result<Answer, Failure>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: fmt::Display,
    {
        let Head { info, parts, query } = &**head;
        let state = &self.router.state;
        if state.webhooks.is_own(&parts.headers) {
            return Err(Failure::bad_request(OWN_REVIEW));
        }
        let timeout = match destination {
            // The query belongs to the other side.
            Destination::Node(_) => state.timeouts.request,
            Destination::Here | Destination::Remote(_) => request_timeout(query, info, state.timeouts.request)?,
        };
        let arrived = Instant::now();
        let deadline = arrived + timeout;
        let interrupt = Interrupt::default();
        let Parts { headers, extensions, .. } = parts;
        let RequestFacts { notes, .. } = known;
        let is_health =
            info.target.is_none() && ["/healthz", "/livez", "/readyz"].iter().any(|path| info.path.starts_with(path));
        let current = Current::of(info, query, state, arrived);
        let authenticated = async {
            if !is_health {
                current.begin(state).await?;
            }
            let authenticator = &state.authenticator;
            let found = authenticator.authenticate(headers, extensions, &info.path, notes, state.now()).await;
            if found.is_none() && !is_health && current.may_be_old() {
                // Whoever has no credentials must not wait for a store that is away.
                if tokio::time::timeout(STRANGER_WAIT, current.renew(state)).await.is_err() {
                    return Ok(None);
                }
                *notes = Notes::default();
                return Ok(authenticator.authenticate(headers, extensions, &info.path, notes, state.now()).await);
            }
            Ok::<_, Failure>(found)
        };
        let authenticated = tokio::time::timeout_at(deadline, authenticated).await;
        let user = authenticated.map_err(|_| compute::too_late())??.ok_or_else(Failure::unauthorized)?;
        known.sender = Some(AuthenticatedUser(user.clone()));
        let payer = payer(&user);
        if let Some(received) = received {
            known.trail = Trail::begin(received, &user).await;
        }
        if state.is_stopping() && !is_health {
            return Err(Failure::too_many_requests("the server is shutting down; try again at another one", 1));
        }
        let attributes = info.attributes();
        let (user, verdict) = match is_health {
            true => self.judge(parts, user, &attributes).await?,
            false => {
                let judge = || self.judge(parts, user.clone(), &attributes);
                tokio::time::timeout_at(deadline, current.judged(state, judge))
                    .await
                    .map_err(|_| compute::too_late())??
            }
        };
        known.schema = self.limits.flow_control().map(|control| control.classify(&user, &attributes));
        if let Some(trail) = &mut known.trail {
            trail.impersonated(&user);
            trail.judged(&verdict);
        }
        authz::enforce(&user, &attributes, verdict)?;
        refusal::check(&state.writes, &state.catalog(), info)?;
        let unread = match destination {
            Destination::Here => None,
            Destination::Node(unread) => Some(unread),
            Destination::Remote(forwarded) => {
                let (attributes, schema) = (&attributes, known.schema.as_deref());
                let passing = Passing { user: &user, attributes, schema, deadline, timeout };
                return self.pass_on(head, &passing, forwarded).await;
            }
        };
        let leads_to_node = unread.is_some();
        let work = async {
            let is_read = matches!(parts.method, Method::GET | Method::HEAD);
            let mut memory = state.memory.bodies.reserve(&payer);
            let body = if is_read || leads_to_node {
                // A GET is fully described by its path and query, so no body is awaited.
                Bytes::new()
            } else {
                // A write permit is taken only when the body has arrived: a client that sends slowly holds one of the
                // far more numerous permits for receiving instead.
                let mut place = state.memory.places.reserve(&payer);
                place.grow_to(1)?;
                body.read(&mut memory).await?
            };
            if let Some(trail) = &mut known.trail {
                trail.request_body(&body, &parts.headers);
            }
            let access = if is_read { Access::Read } else { Access::Write };
            let left = deadline.saturating_duration_since(Instant::now());
            let (work, wait_max) = (self.work(head), left.min(timeout / QUEUE_WAIT_PART));
            let asked = IncomingRequest { access, attributes: &attributes, user: &user, work, wait_max };
            let Some(permit) = self.limits.admit(&asked, known.schema.as_deref()).await else {
                state.metrics.reject();
                return Ok(too_many());
            };
            // A write that has begun is finished even if its client disconnects: only at its end is it known whether
            // the values that it reserved, such as a cluster IP, were stored.
            let is_write = info.target.is_some() && !is_read && !leads_to_node;
            // A deletion of a collection is many writes: no further ones begin after its client has disconnected.
            let abandoned = (info.verb == "deletecollection").then(CancellationToken::new);
            let _abandons = abandoned.clone().map(CancellationToken::drop_guard);
            if deadline <= Instant::now() {
                return Err(compute::too_late());
            }
            let content_type =
                parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
            let load = Load::of_request(compute::body_bytes(content_type, &body), interrupt.clone());
            let answers = Some(state.memory.answers.clone());
            let job = Job { user: payer.clone(), deadline, load, answers };
            // A dry run changes nothing, so it ends when its client disconnects. The future of a read is dropped then.
            let _interrupts = query.first("dryRun").map(|_| job.load.clone().interrupting());
            let entered = Entered {
                user,
                payer,
                body,
                unread: unread.unwrap_or_default(),
                _memory: memory,
                arrived,
                deadline,
                load: job.load.clone(),
                permit,
                abandoned,
            };
            // In a box, because the future is large: a task is aligned to a cache line and costs the allocator more the
            // larger it is, and its future is moved several times before it starts.
            let done = Box::pin(self.clone().carry_out(head.clone(), entered).in_current_span());
            let compute = state.compute.clone();
            let done = async move { compute.carry_out(job, done).await };
            let (outcome, said) = if is_write { joined(self.writing.spawn(done)).await?? } else { done.await? };
            known.notes.append(said);
            if is_read && deadline <= Instant::now() {
                return Err(compute::too_late());
            }
            match outcome {
                // The permit and the task have been released: the answer is only waited for.
                Ok(Answer { later: Some(later), .. }) if !leads_to_node => later.0.await,
                outcome => outcome,
            }
        };
        match tokio::time::timeout_at(deadline, work).await {
            // The other side answers when it likes: a kubelet begins the answer with the first line of a log.
            Ok(Ok(Answer { later: Some(later), .. })) => {
                let answered = state.stopping_token().run_until_cancelled(later.0).await;
                answered.unwrap_or_else(|| Err(Failure::unavailable("the server is shutting down")))
            }
            Ok(outcome) => outcome,
            Err(_) => {
                interrupt.set();
                Err(compute::too_late())
            }
        }
    }

    /// Passes a request on to another server, and holds its permit until the answer has ended. It ends when its client
    /// disconnects, since the future is dropped then.
    async fn pass_on(&self, head: &Head, passing: &Passing<'_>, forwarded: Forwarded) -> Result<Answer, Failure> {
        let Head { info, parts, .. } = head;
        let Passing { user, attributes, schema, deadline, timeout } = *passing;
        let state = &self.router.state;
        let access = if matches!(parts.method, Method::GET | Method::HEAD) { Access::Read } else { Access::Write };
        let left = deadline.saturating_duration_since(Instant::now());
        let (work, wait_max) = (self.work(head), left.min(timeout / QUEUE_WAIT_PART));
        let passed = async {
            let asked = IncomingRequest { access, attributes, user, work, wait_max };
            let Some(permit) = self.limits.admit(&asked, schema).await else {
                state.metrics.reject();
                return too_many();
            };
            let mut answer = proxy::pass_on(state, info, parts, user, deadline, forwarded).await;
            answer.response.body_mut().hold(permit);
            answer
        };
        tokio::time::timeout_at(deadline, passed).await.map_err(|_| compute::too_late())
    }

    /// Waits for the APIServices and definitions that other servers have acknowledged, if they may decide who answers.
    async fn learn_of_remotes(&self, head: &Head, arrived: Instant) {
        let state = &self.router.state;
        let Some(target) = head.info.target.as_ref().filter(|_| state.store.is_shared()) else { return };
        let catalog = state.catalog();
        let is_local = catalog.find(&target.group, &target.version, &target.resource).is_some();
        if is_local && state.remotes.find(&catalog, &head.info.path).is_none() {
            return;
        }
        let learnt = async {
            // A store that cannot be read is the failure of a later stage.
            if state.sync_since(arrived).await.is_ok() {
                state.compiled.catch_up(Needs::of(&head.info, &catalog)).await;
            }
        };
        let _ = tokio::time::timeout_at(arrived + state.timeouts.request, learnt).await;
    }

    /// The user on whose behalf the request is made, and whether it may make it.
    ///
    /// # Errors
    /// When the user may not impersonate the other one.
    async fn judge(
        &self,
        parts: &Parts,
        user: Arc<User>,
        attributes: &Attributes<'_>,
    ) -> Result<(Arc<User>, Verdict), Failure> {
        let authorizer = &*self.router.state.authorizer;
        let user = impersonation::apply(authorizer, &parts.headers, user, attributes).await?;
        let verdict = authz::verdict(authorizer, &user, attributes).await;
        Ok((user, verdict))
    }

    /// Carries out a request, and holds its permit while it does so.
    async fn carry_out(self: Arc<Chain>, head: Arc<Head>, entered: Entered) -> (Result<Answer, Failure>, Notes) {
        let Head { info, parts, query } = &*head;
        let Entered { user, payer, body, unread, _memory, arrived, deadline, load, permit, abandoned } = entered;
        let abandoned = abandoned.as_ref();
        let request =
            route::Request { info, query, parts, user: &user, payer: &payer, body, arrived, deadline, load, abandoned };
        let mut notes = Notes::default();
        let mut outcome = self.router.dispatch(&request, unread, &mut notes).await;
        if let Ok(answer) = &mut outcome {
            // The rest of a streamed list is work too, so its body keeps the permit.
            answer.response.body_mut().hold(permit);
        }
        let outcome = outcome.and_then(|answer| keep(answer, &self.router.state.memory.answers, &payer, parts));
        (outcome, notes)
    }

    /// The properties of a request that determine its seats.
    fn work<'a>(&self, head: &'a Head) -> Kind<'a> {
        let Head { info, query, .. } = head;
        let state = &self.router.state;
        let Some(target) = &info.target else { return Kind::Other };
        let (group, version, resource) = (&target.group, &target.version, &target.resource);
        match info.verb {
            "create" | "delete" | "patch" | "update" => {
                Kind::Write { n_watchers: state.metrics.open_watches(group, version, resource) }
            }
            // With a name it reads a single object.
            "list" | "watch" if target.name.is_some() => Kind::Other,
            "watch" if !query.is_true("sendInitialEvents") => Kind::Other,
            "list" | "watch" => {
                let catalog = state.catalog();
                let served = catalog.find(group, version, resource);
                Kind::List { query, n_objects: served.map_or(0, |served| state.store.count(&served.resource.storage)) }
            }
            _ => Kind::Other,
        }
    }
}

/// Reserves memory for an answer until it has been handed to the network.
///
/// # Errors
/// 429 for an answer to a read for which there is no memory.
fn keep(mut answer: Answer, memory: &Arc<UserMemory>, payer: &Arc<User>, parts: &Parts) -> Result<Answer, Failure> {
    let body = answer.response.body_mut();
    let Some(bytes) = body.first_bytes().filter(|_| !answer.is_shared) else { return Ok(answer) };
    let mut reservation = memory.reserve(payer);
    match parts.method {
        Method::GET | Method::HEAD => reservation.grow_to(bytes)?,
        // It has changed something, so its client must learn the outcome.
        _ => reservation.take(bytes),
    }
    body.reserve(reservation);
    Ok(answer)
}

/// The result of a task. If the task panicked, the panic continues in the caller.
async fn joined<T>(task: JoinHandle<T>) -> Result<T, Failure> {
    match task.await.map_err(JoinError::try_into_panic) {
        Ok(done) => Ok(done),
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        // Only a runtime that is shutting down drops its tasks.
        Err(Err(_)) => Err(Failure::unavailable("the server is shutting down")),
    }
}

/// The time limit of the request. The start of a watch is limited like any request; its stream is not.
fn request_timeout(query: &Query, info: &RequestInfo, max: Duration) -> Result<Duration, Failure> {
    match query.non_empty("timeout").filter(|_| info.verb != "watch") {
        None => Ok(max),
        Some(text) => match duration::parse_unsigned(text) {
            Some(timeout) if timeout.is_zero() => Ok(max),
            Some(timeout) => Ok(timeout.min(max)),
            None => Err(Failure::bad_request(format!(
                "invalid timeout specified in the request URL - time: invalid duration {text:?}"
            ))),
        },
    }
}

/// The answer to a request that is rejected by priority and fairness, or by the limit of requests in flight: plain
/// text, as upstream.
fn too_many() -> Answer {
    let mut answer = Answer::text(429, "Too many requests, please try again later.\n");
    answer.set(RETRY_AFTER.as_str(), "1");
    answer
}

/// The id of a request: that of its header, or a new one.
fn audit_id(headers: &HeaderMap) -> HeaderValue {
    let given = headers.get("audit-id").filter(|id| id.len() <= 64).cloned();
    let made = || HeaderValue::from_str(&uid::random()).unwrap_or(HeaderValue::from_static("unknown"));
    given.unwrap_or_else(made)
}

/// Adds the headers that every answer has, compresses the body if the client accepts that, and drops it for HEAD.
fn finish(state: &State, parts: &Parts, answer: &mut Answer, warnings: &[String], audit_id: HeaderValue) {
    let headers = answer.response.headers_mut();
    headers.insert("audit-id", audit_id);
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
    warn(headers, warnings);
    if state.is_stopping() {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    let reads = matches!(parts.method, Method::GET) && answer.response.status().is_success();
    if reads && crate::shared::request::negotiate::takes_gzip(&parts.headers) && answer.response.body_mut().compress() {
        let headers = answer.response.headers_mut();
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    if parts.method == Method::HEAD {
        let length = http_body::Body::size_hint(answer.response.body()).exact();
        *answer.response.body_mut() = Body::empty();
        if let Some(length) = length {
            // The answer of another server has the length that a GET would have.
            answer.response.headers_mut().entry(CONTENT_LENGTH).or_insert(HeaderValue::from(length));
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
