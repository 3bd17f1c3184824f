//! `/healthz`, `/readyz` and `/metrics` over HTTP/1.
//!
//! The paths, parameters and texts are those of controller-runtime (`pkg/healthz/healthz.go`) and of Kubernetes' own
//! components: `ok`, or every check with `?verbose` and whenever one fails; `?exclude=NAME`; one check with its reason at
//! `/healthz/NAME`. The list withholds reasons, as theirs does. No TLS and no authentication: bind it to where only
//! the kubelet and the scraper come, or put a proxy in front.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
#[cfg(feature = "metrics")]
use http::header::ACCEPT;
use http::header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};

use crate::control::health::{Health, Probe};
use crate::control::metrics::Metrics;
#[cfg(feature = "metrics")]
use crate::control::metrics::MetricsFormat;
use crate::shared::accept::Acceptor;
use crate::shared::chain::Chain;

/// The most connections served at a time; further ones wait.
const CONNECTIONS_MAX: usize = 64;
/// How long a client may take to send its request.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// How long a connection may last, which serves one request: a client that does not read its answer must not keep
/// others from asking.
const CONNECTION_MAX: Duration = Duration::from_secs(30);
/// How long answers under way may take at shutdown.
const GRACE: Duration = Duration::from_secs(5);

const TEXT: &str = "text/plain; charset=utf-8";

/// A bound port that serves health and metrics. It is bound before anything starts, so that a port that is taken is
/// noticed at once. [`crate::Manager::serve`] uses one; it also works alone, for controllers without a manager.
#[derive(Debug)]
pub struct Endpoints {
    listener: TcpListener,
    address: SocketAddr,
    health: Health,
    metrics: Option<Metrics>,
}

/// The socket cannot listen on the address.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve health and metrics on {address}")]
pub struct BindError {
    address: SocketAddr,
    #[source]
    source: std::io::Error,
}

// === impl Endpoints ===

impl Endpoints {
    /// Listens on `address`; port 0 takes any free port. Connections wait until [`Endpoints::serve`].
    ///
    /// # Errors
    /// [`BindError`].
    pub fn bind(address: SocketAddr, health: Health) -> Result<Self, BindError> {
        let failed = |source| BindError { address, source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address, health, metrics: None })
    }

    /// The address of the socket, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves these metrics at `/metrics` too.
    #[cfg(feature = "metrics")]
    pub fn with_metrics(self, metrics: Metrics) -> Self {
        Self { metrics: Some(metrics), ..self }
    }

    /// Serves until `stop`, then lets answers under way finish.
    ///
    /// # Panics
    /// Outside a tokio runtime with IO.
    pub async fn serve(self, stop: impl Future<Output = ()>) {
        let listener = match tokio::net::TcpListener::from_std(self.listener) {
            Ok(listener) => listener,
            Err(error) => {
                return tracing::error!(address = %self.address, error = %Chain(&error), "cannot serve health and metrics");
            }
        };
        tracing::info!(address = %self.address, "serving health and metrics");
        let answerer = Arc::new((self.health, self.metrics));
        let mut acceptor = Acceptor::new(listener, CONNECTIONS_MAX);
        let mut stop = pin!(stop);
        loop {
            let (stream, slot) = tokio::select! {
                () = &mut stop => break,
                accepted = acceptor.accept() => accepted,
            };
            let answerer = Arc::clone(&answerer);
            let service = service_fn(move |request| {
                let (health, metrics) = &*answerer;
                let answer = answer(&request, health, metrics.as_ref());
                async move { Ok::<_, Infallible>(answer) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(SILENCE_MAX)
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), service);
            let connection = acceptor.graceful.watch(connection);
            acceptor.serve(slot, async move {
                // A client that went away, or was cut off, is not worth a log line.
                drop(tokio::time::timeout(CONNECTION_MAX, connection).await);
            });
        }
        acceptor.end(GRACE).await;
    }
}

/// The answer to one request. It has no metrics where another server has them.
pub(crate) fn answer<B>(
    request: &Request<B>,
    health: &Health,
    #[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "there are none"))] metrics: Option<
        &Metrics,
    >,
) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refusal = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n".to_owned());
        refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refusal;
    }
    let path = request.uri().path();
    #[cfg(feature = "metrics")]
    if let ("/metrics", Some(metrics)) = (path, metrics) {
        let accept = request.headers().get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let format = MetricsFormat::of_accept(&accept.collect::<Vec<_>>().join(","));
        return with_type(StatusCode::OK, format.content_type(), metrics.encode(format));
    }
    let (list, name) = match path.trim_start_matches('/').split_once('/') {
        None => (path.trim_start_matches('/'), ""),
        Some((list, name)) => (list, name),
    };
    let probe = match list {
        "healthz" => Probe::Live,
        "readyz" => Probe::Ready,
        _ => return text(StatusCode::NOT_FOUND, "404 page not found\n".to_owned()),
    };
    let query = request.uri().query().unwrap_or_default();
    if name.is_empty() {
        return answer_list(health, probe, list, query);
    }
    match health.run_one(probe, &decode(name)) {
        None => text(StatusCode::NOT_FOUND, "404 page not found\n".to_owned()),
        Some(Ok(())) => text(StatusCode::OK, "ok".to_owned()),
        Some(Err(reason)) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {reason}\n")),
    }
}

fn answer_list(health: &Health, probe: Probe, list: &str, query: &str) -> Response<Full<Bytes>> {
    let parameters = || query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let excluded: Vec<String> =
        parameters().filter(|(key, _)| *key == "exclude").map(|(_, value)| decode(value)).collect();
    let outcomes = health.run(probe, &excluded);
    let is_verbose = parameters().any(|(key, _)| key == "verbose");
    let is_failed = outcomes.iter().any(|outcome| outcome.result.is_err());
    if !is_failed && !is_verbose {
        return text(StatusCode::OK, "ok".to_owned());
    }
    let mut lines = Vec::new();
    let (known, unknown): (Vec<_>, Vec<_>) = excluded.iter().partition(|name| health.has(probe, name));
    for outcome in &outcomes {
        match &outcome.result {
            Ok(()) => lines.push(format!("[+]{} ok", outcome.name)),
            Err(reason) => {
                tracing::info!(list, check = outcome.name, reason, "a health check failed");
                lines.push(format!("[-]{} failed: reason withheld", outcome.name));
            }
        }
    }
    for name in known {
        lines.push(format!("[+]{name} excluded: ok"));
    }
    if !unknown.is_empty() {
        let names: Vec<String> = unknown.iter().map(|name| format!("{name:?}")).collect();
        lines.push(format!("warn: some health checks cannot be excluded: no matches for {}", names.join(",")));
    }
    let (status, verdict) = match is_failed {
        false => (StatusCode::OK, "passed"),
        true => (StatusCode::INTERNAL_SERVER_ERROR, "failed"),
    };
    lines.push(format!("{list} check {verdict}"));
    text(status, lines.join("\n") + "\n")
}

/// Decodes the percent encoding of a part of a URL. Malformed escapes stay as they are.
fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let encoded = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match encoded.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = with_type(status, TEXT, body);
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn with_type(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    let name: HeaderName = CONTENT_TYPE;
    response.headers_mut().insert(name, HeaderValue::from_static(content_type));
    response
}

#[cfg(test)]
mod tests;
