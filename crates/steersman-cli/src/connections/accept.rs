//! The TLS socket: accepts connections, reads their client certificates, and passes their requests to the server.

use crate::access::access_log::AccessLog;
use crate::connections::activity::{Activity, Sender};
use crate::connections::client_certificates::ClientCertificates;
use crate::connections::connection::{Connection, Protocol};
use crate::connections::socket;
use crate::connections::tasks::Tasks;
use crate::connections::unauthenticated::Unauthenticated;
use crate::connections::websocket::WebSockets;
use crate::process::open_files;
use hyper::rt::Executor as _;
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use steersman_server::Service;
use steersman_server::authn::Peer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::sync::CancellationToken;

/// The most connections at a time, if the operating system allows as many; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 32_768;
/// The most connections whose peers are not yet authenticated, and their share where the operating system allows few. A
/// well-meaning peer is unauthenticated for a fraction of a second.
const UNAUTHENTICATED_MAX: usize = 1024;
const UNAUTHENTICATED_SHARE: usize = 4;
/// The time limit of the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit of requests in flight when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after a failed accept, as with too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The answer to a client that speaks HTTP without TLS; the text is that of Go's servers.
const WITHOUT_TLS: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
/// The most bytes that are read of such a request. Unread bytes make the kernel reset the connection, possibly before
/// the client has read the answer.
const WITHOUT_TLS_BYTES_MAX: usize = 16 << 10;

/// The state that all connections share.
#[derive(Clone)]
struct Shared {
    acceptor: TlsAcceptor,
    clients: Arc<ClientCertificates>,
    service: Service,
    access_log: Option<AccessLog>,
    unauthenticated: Unauthenticated,
    streams: Tasks,
    stop: CancellationToken,
}

/// Serves connections until the token is cancelled, then lets requests in flight end, and cuts off those that do not.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    clients: Arc<ClientCertificates>,
    service: Service,
    access_log: Option<AccessLog>,
    stop: CancellationToken,
) {
    let room = open_files::room(CONNECTIONS_MAX);
    let connections = Arc::new(Semaphore::new(room));
    let tasks = Tasks::default();
    let shared = Shared {
        acceptor: TlsAcceptor::from(tls),
        clients,
        service,
        access_log,
        unauthenticated: Unauthenticated::new(UNAUTHENTICATED_MAX.min(room.div_ceil(UNAUTHENTICATED_SHARE))),
        streams: tasks.clone(),
        stop,
    };
    loop {
        // Both arms are cancel-safe: a connection that is not taken stays in the kernel's queue.
        let taken = tokio::select! {
            () = shared.stop.cancelled() => break,
            taken = take(&listener, &connections) => taken,
        };
        match taken {
            Ok((stream, permit)) => {
                let shared = shared.clone();
                tasks.execute(shared.serve(stream, Arc::new(permit)));
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be taken");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    if tokio::time::timeout(DRAIN_TIMEOUT, tasks.ended()).await.is_err() {
        tracing::warn!(seconds = DRAIN_TIMEOUT.as_secs(), "requests were still under way; their connections are cut");
    }
    tasks.cut().await;
}

async fn take(
    listener: &TcpListener,
    connections: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let permit = connections.clone().acquire_owned().await.map_err(std::io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    socket::configure(&stream)?;
    Ok((stream, permit))
}

impl Shared {
    /// Serves one connection to its end. A connection that becomes a WebSocket keeps its permit.
    async fn serve(self, stream: TcpStream, permit: Arc<OwnedSemaphorePermit>) {
        // In boxes, so that a connection does not keep the memory of its handshake.
        let Some(connection) = Box::pin(self.open(stream, permit.clone())).await else { return };
        connection.await;
        drop(permit);
    }

    /// The connection after its handshake; `None` if that failed, took too long, or the connection was evicted.
    async fn open(
        self,
        stream: TcpStream,
        permit: Arc<OwnedSemaphorePermit>,
    ) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
        let mut place = Some(self.unauthenticated.enter());
        let peer_address = stream.peer_addr().ok();
        let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, shake(&self.acceptor, stream));
        // Any branch may be dropped: the connection is closed then.
        let stream = tokio::select! {
            () = self.stop.cancelled() => return None,
            () = std::future::poll_fn(|cx| place.as_mut().map_or(Poll::Pending, |place| place.poll_evicted(cx))) => {
                return None;
            }
            shaken = handshake => shaken.ok()??,
        };
        socket::acknowledge(stream.get_ref().0);
        let (protocol, peer) = agreed(&stream, &self.clients);
        let is_known = peer.as_ref().is_some_and(Peer::is_known);
        let sender = if is_known { Sender::Authenticated } else { Sender::Unauthenticated };
        let activity = Activity::new(Instant::now(), sender);
        let unauthenticated = place.filter(|_| !is_known);
        let Shared { service, access_log, streams, stop, .. } = self;
        let source = peer_address.map(|address| address.ip().to_canonical());
        let service = service.with_peer(peer).with_source(source);
        let service = AccessLog::layer(access_log, peer_address, service);
        let service = WebSockets::new(TowerToHyperService::new(service), streams.clone(), permit);
        let connection = Connection { protocol, activity, unauthenticated, streams, stop };
        Some(Box::pin(connection.serve(stream, service)))
    }
}

/// The handshake; `None` if it fails. A client without TLS gets an answer that says so.
async fn shake(acceptor: &TlsAcceptor, mut stream: TcpStream) -> Option<TlsStream<TcpStream>> {
    let mut first = [0];
    stream.peek(&mut first).await.ok()?;
    // A TLS connection begins with a control character, an HTTP request with its method.
    if !first[0].is_ascii_uppercase() {
        return acceptor.accept(stream).await.ok();
    }
    let _ = stream.read(&mut vec![0; WITHOUT_TLS_BYTES_MAX]).await.ok()?;
    stream.write_all(WITHOUT_TLS).await.ok()?;
    stream.shutdown().await.ok()?;
    None
}

/// The results of the handshake: the protocol, and the user of the client certificate.
fn agreed(stream: &TlsStream<TcpStream>, clients: &ClientCertificates) -> (Protocol, Option<Peer>) {
    let session = stream.get_ref().1;
    let protocol = if session.alpn_protocol() == Some(b"h2") { Protocol::Http2 } else { Protocol::Http1 };
    (protocol, session.peer_certificates().and_then(|chain| clients.peer(chain)))
}
