//! The connections to one endpoint: kept open for the next call, bounded in number, with responses bounded in size.
//! Redirects are not followed: they are returned like any other response.

use crate::shared::webhook::EndpointError;
use crate::shared::webhook::tls::unusable;
use bytes::Bytes;
use http::header::LOCATION;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper_rustls::{FixedServerNameResolver, MaybeHttpsStream};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceBuilder};

/// The maximum size of a response, upstream's limit for admission reviews.
const ANSWER_BYTES_MAX: usize = 3 * 1024 * 1024;
/// The maximum number of concurrent calls; further ones wait until they time out.
const CALLS_MAX: usize = 512;
/// The maximum number of idle connections.
const IDLE_CONNECTIONS_MAX: usize = 64;
/// The time after which an idle connection is closed.
const IDLE_TIME_MAX: Duration = Duration::from_secs(60);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The time limit of the handshake of TLS, after which Go's clients give up too.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The idle time after which a connection is probed, the time between probes, and the probes without an answer after which it
/// ends: those of Go's clients. An answer may last for days, and its sender may be gone without a word.
const PROBE_AFTER: Duration = Duration::from_secs(15);
const PROBES_MAX: u32 = 9;
/// The most bytes that are read ahead of an answer. Its head must fit in.
const READ_AHEAD_BYTES_MAX: usize = 64 << 10;

/// A client over TLS, whose requests have bodies of this type.
pub(in crate::shared) type HttpsClient<B> = legacy::Client<Connector, B>;

/// Connects, with a time limit for each step.
type Connector = BoxCloneSyncService<Uri, MaybeHttpsStream<TokioIo<TcpStream>>, BoxError>;

/// The protocols for an endpoint.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::shared) enum Protocols {
    /// HTTP/1 or HTTP/2 over TLS, as the endpoint prefers.
    All,
    /// HTTP/1 over TLS. With HTTP/2 all calls would share one connection, and so one of the replicas behind a Service.
    Http1,
    /// HTTP/1, over TLS where the URL says so.
    Http1OrPlain,
}

/// How a client connects.
#[derive(Clone, Copy, Debug)]
pub(in crate::shared) struct Connecting<'a> {
    /// The name that the certificate must have, if it differs from the URL's.
    pub(in crate::shared) server_name: Option<&'a str>,
    pub(in crate::shared) protocols: Protocols,
    pub(in crate::shared) timeout: Duration,
    /// The maximum number of idle connections to one address.
    pub(in crate::shared) idle_max: usize,
}

/// The connections to one endpoint.
pub(super) struct Transport {
    client: HttpsClient<Full<Bytes>>,
    calls: Semaphore,
}

/// A response.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    /// The target of a redirect.
    pub(super) location: Option<String>,
    pub(super) body: Bytes,
}

/// Why there is no response.
#[derive(Debug)]
pub(super) struct SendError {
    pub(super) why: String,
    /// Whether no connection could be made.
    pub(super) is_connect: bool,
    /// Whether the same call may succeed later.
    pub(super) is_retryable: bool,
}

impl Connecting<'_> {
    /// The usual way: the certificate has the name of the URL.
    pub(in crate::shared) fn to(protocols: Protocols) -> Connecting<'static> {
        Connecting { server_name: None, protocols, timeout: CONNECT_TIMEOUT, idle_max: IDLE_CONNECTIONS_MAX }
    }
}

impl Transport {
    /// Creates the transport, which connects at the first call. `server_name` is the name that the certificate must
    /// have, if it differs from the URL's.
    pub(super) fn new(
        tls: ClientConfig,
        server_name: Option<&str>,
        protocols: Protocols,
    ) -> Result<Transport, EndpointError> {
        let client = client(tls, Connecting { server_name, ..Connecting::to(protocols) })?;
        Ok(Transport { client, calls: Semaphore::new(CALLS_MAX) })
    }

    /// Sends a request and reads the whole response. The caller bounds the time by dropping the future.
    pub(super) async fn send(&self, request: Request<Full<Bytes>>) -> Result<Answer, SendError> {
        // The semaphore is never closed; without a permit the call is merely not counted.
        let _permit = self.calls.acquire().await;
        let answer = self.client.request(request).await.map_err(|error| SendError {
            // The library's own message names only the stage of the call.
            why: chain(std::error::Error::source(&error).unwrap_or(&error)),
            is_connect: error.is_connect(),
            is_retryable: !error.is_connect(),
        })?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(|error| {
            let why = match error.is::<LengthLimitError>() {
                true => format!("the answer has more than {ANSWER_BYTES_MAX} bytes"),
                false => error.to_string(),
            };
            SendError { why, is_connect: false, is_retryable: false }
        })?;
        let location = head.headers.get(LOCATION).filter(|_| head.status.is_redirection());
        let location = location.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        Ok(Answer { status: head.status, location, body: body.to_bytes() })
    }
}

/// A client that connects at its first request and keeps a bounded number of idle connections.
///
/// # Errors
/// When no certificate can have the name.
pub(in crate::shared) fn client<B>(
    tls: ClientConfig,
    connecting: Connecting<'_>,
) -> Result<HttpsClient<B>, EndpointError>
where
    B: http_body::Body + Send,
    B::Data: Send,
{
    let Connecting { server_name, protocols, timeout, idle_max } = connecting;
    let connector = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls);
    let connector = match protocols {
        Protocols::All | Protocols::Http1 => connector.https_only(),
        Protocols::Http1OrPlain => connector.https_or_http(),
    };
    let connector = match server_name {
        None => connector,
        Some(name) => {
            let name = ServerName::try_from(name.to_owned())
                .map_err(|error| unusable("the server name", error.to_string()))?;
            connector.with_server_name_resolver(FixedServerNameResolver::new(name))
        }
    };
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(timeout));
    http.set_keepalive(Some(PROBE_AFTER));
    http.set_keepalive_interval(Some(PROBE_AFTER));
    http.set_keepalive_retries(Some(PROBES_MAX));
    // While there are bytes that the other side has not acknowledged, nothing is probed.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    http.set_tcp_user_timeout(Some(PROBES_MAX * PROBE_AFTER));
    let connector = match protocols {
        Protocols::All => connector.enable_all_versions().wrap_connector(http),
        Protocols::Http1 | Protocols::Http1OrPlain => connector.enable_http1().wrap_connector(http),
    };
    // Connecting has its own limit, so that this one is that of the handshake, and of looking up a name.
    let connector = ServiceBuilder::new().timeout(timeout + HANDSHAKE_TIMEOUT).service(connector);
    Ok(legacy::Client::builder(TokioExecutor::new())
        .pool_max_idle_per_host(idle_max)
        .pool_idle_timeout(IDLE_TIME_MAX)
        .pool_timer(TokioTimer::new())
        .http1_max_buf_size(READ_AHEAD_BYTES_MAX)
        .build(BoxCloneSyncService::new(connector)))
}

/// The beginning of a text from the endpoint.
pub(super) fn excerpt(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let text = text.trim();
    text[..text.floor_char_boundary(256)].to_owned()
}

/// An error with its causes.
pub(in crate::shared) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
