//! The TLS socket: takes connections, learns who holds them, hands their requests to the server.

use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use std::sync::Arc;
use std::time::Duration;
use steersman_server::Service;
use steersman_server::authn::{Peer, certificate_user};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// Connections at a time; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 32_768;
/// How long a peer may take for the TLS handshake, and for the head of a request.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long requests under way may take to end once the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Streams of one HTTP/2 connection at a time.
const STREAMS_MAX: u32 = 1000;
/// Bytes that wait for a slow HTTP/2 peer, a stream.
const SEND_BUFFER_BYTES: usize = 64 * 1024;
/// After a failed accept (too many open files, say) the next try waits so long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves connections until the token is cancelled, then lets requests under way end.
pub(crate) async fn serve(listener: TcpListener, tls: ServerConfig, service: Service, stop: CancellationToken) {
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let graceful = GracefulShutdown::new();
    let builder = builder();
    loop {
        // Both arms are cancel-safe: a connection that is not taken stays in the kernel's queue.
        let taken = tokio::select! {
            () = stop.cancelled() => break,
            taken = take(&listener, &connections) => taken,
        };
        let (stream, permit) = match taken {
            Ok(taken) => taken,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be taken");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (acceptor, builder, service, watcher) =
            (acceptor.clone(), builder.clone(), service.clone(), graceful.watcher());
        tokio::spawn(async move {
            let _permit = permit;
            let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await else { return };
            let certificates = stream.get_ref().1.peer_certificates();
            let peer = certificates.and_then(|chain| chain.first()).and_then(|leaf| certificate_user(leaf)).map(Peer);
            let service = TowerToHyperService::new(service.with_peer(peer));
            let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
            if let Err(error) = watcher.watch(connection).await {
                tracing::debug!(%error, "a connection ended");
            }
        });
    }
    drop(listener);
    if tokio::time::timeout(DRAIN_TIMEOUT, graceful.shutdown()).await.is_err() {
        tracing::warn!(seconds = DRAIN_TIMEOUT.as_secs(), "requests were still under way; their connections are cut");
    }
}

async fn take(
    listener: &TcpListener,
    connections: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let permit = connections.clone().acquire_owned().await.map_err(std::io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok((stream, permit))
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(15));
    builder
}
