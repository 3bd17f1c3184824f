//! The port where webhooks are served: TLS, HTTP/1 and HTTP/2, health, and a shutdown that answers calls under way.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::control::health::{Health, answer as answer_probe};
#[cfg(feature = "metrics")]
use crate::control::metrics::Metrics;
use crate::shared::accept::Acceptor;
use crate::shared::chain::Chain;
use crate::webhook::Webhooks;
use crate::webhook::certificates::{self, CertificateError, Certificates, Publisher, Served, resolver};

/// How long a client may take for its TLS handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// How long a connection may be silent. Longer than the 90 seconds after which Go's client closes an idle connection:
/// if the server closed first, a call could be on its way into a connection that is being closed.
const SILENCE_MAX: Duration = Duration::from_secs(120);
/// The interval of HTTP/2 pings, and how long the client may take to answer one.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_MAX: Duration = Duration::from_secs(15);
/// How long calls under way may take at shutdown; no call lasts longer.
const GRACE: Duration = Duration::from_secs(30);

/// A bound port that serves webhooks once it runs: [`crate::Manager::webhooks`], or [`Server::run`].
///
/// `/healthz` and `/readyz` are served as well, for the probes of a kubelet (`scheme: HTTPS`). `/readyz` has the check
/// `webhooks`, which passes while the server has a valid certificate and, where it maintains the `caBundle` of the
/// configurations, that bundle is the right one. Metrics are not served here.
#[derive(Debug)]
#[must_use = "a server does nothing until it runs"]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    webhooks: Webhooks,
    certificates: Certificates,
    health: Health,
    linger: Duration,
}

/// The socket cannot listen on the address.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve webhooks on {address}")]
pub struct BindError {
    address: SocketAddr,
    #[source]
    source: std::io::Error,
}

/// Why a server ended by itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The certificate cannot be used.
    #[error("the certificate of the webhooks cannot be used")]
    Certificate(#[from] CertificateError),
    /// The runtime cannot use the socket.
    #[error("cannot serve webhooks on {address}")]
    Listen {
        /// The address of the socket.
        address: SocketAddr,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The task that keeps the certificates ended.
    #[error("the task that renews the certificates panicked")]
    Panicked,
    /// None of the TLS versions can be set up.
    #[error("TLS cannot be configured")]
    Tls(#[source] rustls::Error),
}

/// The parts of the server that a connection needs to answer.
struct Answerer {
    webhooks: Webhooks,
    health: Health,
}

// === impl Server ===

impl Server {
    pub(crate) fn bind(address: SocketAddr, webhooks: Webhooks, certificates: Certificates) -> Result<Self, BindError> {
        let failed = |source| BindError { address, source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address, webhooks, certificates, health: Health::new(), linger: Duration::ZERO })
    }

    /// The address of the socket, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Adds the check of the server to these, and serves them. A manager passes its own.
    pub fn with_health(mut self, health: Health) -> Self {
        self.health = health;
        self
    }

    /// Counts in these metrics. A manager passes its own.
    #[cfg(feature = "metrics")]
    pub fn with_metrics(self, metrics: &Metrics) -> Self {
        metrics.observe_webhooks(&self.webhooks.stats);
        self
    }

    /// Goes on accepting calls for this long after it was asked to end, while `/readyz` fails already: a Service sends
    /// calls until the address is removed from its endpoints. Default: not at all.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// Serves until `shutdown`, then answers the calls under way. Connections are accepted once a certificate is
    /// available.
    ///
    /// # Errors
    /// [`ServeError`].
    ///
    /// # Cancel safety
    /// If the future is dropped, everything ends at once.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), ServeError> {
        let Self { listener, address, webhooks, certificates, health, linger } = self;
        let listener =
            tokio::net::TcpListener::from_std(listener).map_err(|source| ServeError::Listen { address, source })?;
        let mut shutdown = pin!(shutdown);
        let publisher = Arc::new(Publisher::new(Arc::clone(&webhooks.stats)));
        let is_ending = Arc::new(AtomicBool::new(false));
        let (checked, ending) = (Arc::clone(&publisher), Arc::clone(&is_ending));
        health.ready("webhooks", move || match ending.load(Ordering::Relaxed) {
            true => Err("shutting down".to_owned()),
            false => checked.check(),
        });
        let mut served = publisher.served();
        // Dropping this aborts the keeper.
        let mut keeper = JoinSet::new();
        keeper.spawn(async move { certificates.keep(&publisher).await });
        tokio::select! {
            () = &mut shutdown => return Ok(()),
            ended = keeper.join_next() => return Err(failure(ended)),
            // This does not fail: the check holds the publisher.
            _ = served.wait_for(Option::is_some) => {}
        }
        let tls = TlsAcceptor::from(Arc::new(config(served)?));
        let mut acceptor = Acceptor::new(listener, webhooks.limits.connections_max);
        let answerer = Arc::new(Answerer { webhooks, health });
        tracing::info!(%address, "serving webhooks");
        let mut ending = pin!(async {
            shutdown.await;
            is_ending.store(true, Ordering::Relaxed);
            tokio::time::sleep(linger).await;
        });
        loop {
            let (stream, slot) = tokio::select! {
                () = &mut ending => break,
                ended = keeper.join_next() => return Err(failure(ended)),
                accepted = acceptor.accept() => accepted,
            };
            let (tls, answerer, watcher) = (tls.clone(), Arc::clone(&answerer), acceptor.graceful.watcher());
            acceptor.serve(slot, async move {
                let handshake = tokio::time::timeout(HANDSHAKE_MAX, tls.accept(stream)).await;
                let Ok(Ok(stream)) = handshake else {
                    // A client that does not trust the certificate reports it to its own user, and here.
                    if let Ok(Err(error)) = handshake {
                        tracing::debug!(error = %Chain(&error), "a TLS handshake failed");
                    }
                    return;
                };
                let service = service_fn(move |request| {
                    let answerer = Arc::clone(&answerer);
                    async move { Ok::<_, Infallible>(answerer.answer(request).await) }
                });
                let connection = protocols().serve_connection(TokioIo::new(stream), service).into_owned();
                // A client that went away is not worth a log line.
                drop(watcher.watch(connection).await);
            });
        }
        acceptor.end(GRACE).await;
        keeper.shutdown().await;
        Ok(())
    }
}

fn protocols() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(SILENCE_MAX);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(PING_INTERVAL).keep_alive_timeout(PING_MAX);
    builder
}

fn config(served: watch::Receiver<Option<Arc<Served>>>) -> Result<ServerConfig, ServeError> {
    let provider = Arc::new(certificates::provider());
    let builder =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(ServeError::Tls)?;
    let mut config = builder.with_no_client_auth().with_cert_resolver(resolver(served));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn failure(ended: Option<Result<CertificateError, tokio::task::JoinError>>) -> ServeError {
    match ended {
        Some(Ok(error)) => ServeError::Certificate(error),
        Some(Err(_)) | None => ServeError::Panicked,
    }
}

// === impl Answerer ===

impl Answerer {
    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path();
        let is_probe = ["/healthz", "/readyz"]
            .iter()
            .any(|probe| path.strip_prefix(probe).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')));
        if is_probe {
            return answer_probe(&request, &self.health, None);
        }
        self.webhooks.answer(request).await
    }
}
