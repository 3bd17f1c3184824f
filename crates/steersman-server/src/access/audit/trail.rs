//! The data that the audit log collects about one request on its way through the chain.
//!
//! A trail exists only for requests that the policy logs. It reports each stage once; the last one when the response
//! has been sent or aborted, from the body of the response.

use crate::access::audit::event::{Document, Event, ObjectRef, Outcome};
use crate::access::audit::held::Held;
use crate::access::audit::policy::RequestAuditConfig;
use crate::access::audit::{Audit, Level, Stage};
use crate::access::authz::Verdict;
use crate::shared::operation::Annotation;
use crate::shared::request::body::{Body, Observer};
use crate::shared::request::request_info::RequestInfo;
use crate::shared::status::Failure;
use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode};
use jiff::Timestamp;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use steersman_kinds::user::User;

/// The most bytes of an answer's body that are logged. A longer one is left out, and an annotation says so, as of one for which there is no
/// room (`held`).
const RESPONSE_BYTES_MAX: usize = 10 * 1024 * 1024;
/// The maximum length of a user agent, which the client chooses. As upstream.
const USER_AGENT_BYTES_MAX: usize = 1024;
const TRUNCATED: &str = "...TRUNCATED";
/// The status code in the log if there was no response, as in nginx.
const CLIENT_GONE: u16 = 499;
/// The maximum number of proxy addresses that are read from headers.
const SOURCES_MAX: usize = 16;

/// The trail of one request.
#[derive(Debug)]
pub(crate) struct Trail {
    audit: Arc<Audit>,
    config: RequestAuditConfig,
    clock: fn() -> Timestamp,
    event: Box<Event>,
    /// Whether the answer may last for as long as its client wants.
    is_long_running: bool,
    /// Whether its last stage has been reported, or is about to be.
    is_over: bool,
}

/// A received request.
pub(crate) struct Received<'a> {
    pub(crate) audit: &'a Arc<Audit>,
    pub(crate) audit_id: &'a str,
    pub(crate) info: &'a RequestInfo,
    pub(crate) parts: &'a Parts,
    /// The address of the connection; `None` for requests within the process.
    pub(crate) source: Option<IpAddr>,
    pub(crate) at: Timestamp,
    pub(crate) clock: fn() -> Timestamp,
}

/// Collects the body of a response, and reports the last stage when it is dropped.
struct End {
    trail: Trail,
    body: BytesMut,
    keeps_body: bool,
    /// The bytes of both bodies.
    held: Held,
}

impl Trail {
    /// Begins a trail if the policy logs the request, and reports that it was received.
    pub(crate) async fn begin(received: &Received<'_>, user: &Arc<User>) -> Option<Trail> {
        let trail = Trail::new(received, Some(user.clone()))?;
        trail.report(Stage::RequestReceived).await;
        Some(trail)
    }

    /// Reports a request whose sender could not be authenticated, if the policy logs it.
    pub(crate) async fn unauthenticated(received: &Received<'_>, annotations: &[Annotation]) {
        let Some(mut trail) = Trail::new(received, None) else { return };
        annotations.iter().for_each(|annotation| trail.note(annotation));
        let message = "Authentication failed, provide credentials that the server knows";
        let failure = Failure::new(401, "Unauthorized", message);
        trail.event.status = Some(Outcome { code: 401, failure: Some(failure.status) });
        trail.is_over = true;
        trail.report(Stage::ResponseStarted).await;
    }

    fn new(received: &Received<'_>, user: Option<Arc<User>>) -> Option<Trail> {
        let Received { audit, audit_id, info, parts, source, at, clock } = *received;
        let config = audit.policy.evaluate(user.as_deref(), &info.attributes());
        audit.count_request(config.level);
        if config.level == Level::None {
            return None;
        }
        let uri = parts.uri.path_and_query().map_or(parts.uri.path(), |uri| uri.as_str());
        let target = info.target.as_ref();
        let object = target.map(|target| ObjectRef {
            resource: target.resource.clone(),
            namespace: target.namespace.clone().unwrap_or_default(),
            name: target.name.clone().unwrap_or_default(),
            api_group: target.group.clone(),
            api_version: target.version.clone(),
            subresource: target.subresource.clone().unwrap_or_default(),
            ..ObjectRef::default()
        });
        let event = Box::new(Event {
            level: config.level,
            stage: Stage::RequestReceived,
            audit_id: audit_id.to_owned(),
            request_uri: uri.to_owned(),
            verb: info.verb,
            user,
            impersonated_user: None,
            source_ips: sources(&parts.headers, source),
            user_agent: user_agent(&parts.headers),
            object,
            status: None,
            request_body: None,
            response_body: None,
            omits_managed_fields: config.omits_managed_fields,
            received_at: at,
            stage_at: at,
            annotations: BTreeMap::new(),
        });
        let is_long_running = info.is_long_running();
        Some(Trail { audit: audit.clone(), config, clock, event, is_long_running, is_over: false })
    }

    /// Records that the request is carried out as another user than its sender.
    pub(crate) fn impersonated(&mut self, user: &Arc<User>) {
        if self.event.user.as_ref().is_some_and(|sender| !Arc::ptr_eq(sender, user)) {
            self.event.impersonated_user = Some(user.clone());
        }
    }

    /// Records the verdict of the authorizer.
    pub(crate) fn judged(&mut self, verdict: &Verdict) {
        let decision = if verdict.is_allowed() { "allow" } else { "forbid" };
        self.annotate("authorization.k8s.io/decision", decision);
        self.annotate("authorization.k8s.io/reason", verdict.reason.to_string());
    }

    /// Adds an annotation made while the request was carried out.
    pub(crate) fn note(&mut self, annotation: &Annotation) {
        if !annotation.is_of_body || Level::Request <= self.event.level {
            self.annotate(annotation.key.clone(), &annotation.value);
        }
    }

    pub(crate) fn annotate(&mut self, key: impl Into<Cow<'static, str>>, value: impl Into<String>) {
        self.event.annotations.insert(key.into(), value.into());
    }

    /// Records the body of the request. Its metadata is needed even where the body itself is not logged.
    pub(crate) fn request_body(&mut self, bytes: &Bytes, headers: &HeaderMap) {
        let is_object = matches!(self.event.verb, "create" | "update");
        if !bytes.is_empty() && self.event.object.is_some() && (is_object || Level::Request <= self.event.level) {
            self.event.request_body = Some(Document { bytes: bytes.clone(), media_type: media_type(headers) });
        }
    }

    /// Reports that the server panicked while it carried out the request.
    pub(crate) async fn panicked(mut self, code: StatusCode, failure: Option<&Failure>) {
        self.end(code, failure);
        self.report(Stage::Panic).await;
    }

    /// Reports the end of a request: the beginning of a watch or another stream, or the complete response.
    pub(crate) async fn answered(mut self, answer: &mut Response<Body>, failure: Option<&Failure>) {
        self.end(answer.status(), failure);
        let is_stream = self.is_long_running && (answer.status().is_success() || answer.status().is_informational());
        if is_stream {
            self.report(Stage::ResponseStarted).await;
        }
        let keeps_body = self.event.level == Level::RequestResponse && self.event.object.is_some() && !is_stream;
        let whole = answer.body().whole().cloned();
        match whole {
            Some(whole) if self.audit.sink.is_blocking() => {
                if keeps_body {
                    self.event.response_body =
                        Some(Document { bytes: whole, media_type: media_type(answer.headers()) });
                }
                self.report(Stage::ResponseComplete).await;
            }
            _ => {
                if keeps_body {
                    let media_type = media_type(answer.headers());
                    self.event.response_body = Some(Document { bytes: Bytes::new(), media_type });
                }
                let mut held = self.audit.room.held();
                // Until now it counted as received for the request, which has ended.
                let n_sent = self.event.request_body.as_ref().map_or(0, |body| body.bytes.len());
                if !held.add(n_sent) {
                    self.event.request_body = None;
                    self.drop_body(Level::Request);
                }
                let end = End { trail: self, body: BytesMut::new(), keeps_body, held };
                answer.body_mut().observe(Box::new(end));
            }
        }
    }

    fn end(&mut self, code: StatusCode, failure: Option<&Failure>) {
        self.is_over = true;
        let failure = failure.map(|failure| failure.status.clone());
        self.event.status = Some(Outcome { code: code.as_u16(), failure });
    }

    /// A body is left out, which the event says if it would have had it.
    fn drop_body(&mut self, level: Level) {
        if level <= self.event.level {
            self.audit.count_dropped_body();
            self.annotate("audit.k8s.io/truncated", "true");
        }
    }

    async fn report(&self, stage: Stage) {
        let Some(event) = self.at(stage) else { return };
        match self.audit.sink.is_blocking() {
            true => self.audit.write(event).await,
            false => self.audit.take(event),
        }
    }

    /// The event of a stage, unless the policy omits it.
    fn at(&self, stage: Stage) -> Option<Event> {
        if self.config.omits(stage) {
            return None;
        }
        let received = stage == Stage::RequestReceived;
        let stage_at = if received { self.event.received_at } else { (self.clock)() };
        Some(Event { stage, stage_at, ..(*self.event).clone() })
    }
}

impl Drop for Trail {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        // The request was aborted, most likely because its client disconnected. Its effects may still be carried out.
        let failure = Failure::new(CLIENT_GONE, "", "the client went away before the answer");
        self.event.status = Some(Outcome { code: CLIENT_GONE, failure: Some(failure.status) });
        if let Some(event) = self.at(Stage::ResponseComplete) {
            self.audit.take(event);
        }
    }
}

// === impl End ===

impl Observer for End {
    fn chunk(&mut self, bytes: &Bytes) {
        if !self.keeps_body {
            return;
        }
        let before = self.body.capacity();
        let is_small = self.body.len() + bytes.len() <= RESPONSE_BYTES_MAX;
        if is_small {
            self.body.extend_from_slice(bytes);
        }
        if !is_small || !self.held.add(self.body.capacity() - before) {
            self.keeps_body = false;
            self.body = BytesMut::new();
            self.held.remove(before);
            self.trail.drop_body(Level::RequestResponse);
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if let Some(body) = &mut self.trail.event.response_body {
            body.bytes = std::mem::take(&mut self.body).freeze();
        }
        if let Some(event) = self.trail.at(Stage::ResponseComplete) {
            self.trail.audit.take(event);
        }
    }
}

fn media_type(headers: &HeaderMap) -> String {
    headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("application/json").to_owned()
}

fn user_agent(headers: &HeaderMap) -> String {
    let text = headers.get(USER_AGENT).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let text = text.unwrap_or_default();
    if text.len() <= USER_AGENT_BYTES_MAX {
        return text.into_owned();
    }
    format!("{}{TRUNCATED}", &text[..text.floor_char_boundary(USER_AGENT_BYTES_MAX)])
}

/// The source addresses of a request: first those in proxy headers, which anyone can forge, then the address of the
/// connection.
fn sources(headers: &HeaderMap, source: Option<IpAddr>) -> Vec<IpAddr> {
    let mut sources: Vec<IpAddr> = Vec::new();
    for name in ["x-forwarded-for", "x-real-ip"] {
        let texts = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        let said = texts.flat_map(|text| text.split(',')).filter_map(|text| text.trim().parse::<IpAddr>().ok());
        sources.extend(said.take(SOURCES_MAX - sources.len().min(SOURCES_MAX)));
        if !sources.is_empty() {
            break;
        }
    }
    sources.extend(source.filter(|source| sources.last() != Some(source)));
    sources
}
