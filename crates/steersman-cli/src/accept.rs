//! The TLS socket: takes connections, learns who holds them, hands their requests to the server.

use crate::open_files;
use crate::tasks::Tasks;
use hyper::body::{Body, Incoming};
use hyper::rt::Executor as _;
use hyper::rt::bounds::Http2ServerConnExec;
use hyper::server::conn::{http1, http2};
use hyper::service::{Service as HyperService, service_fn};
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use steersman_server::Service;
use steersman_server::authn::{Peer, certificate_user};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// Connections at a time, if the operating system allows so many; more wait in the kernel's queue.
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

/// What a connection speaks, as agreed in the handshake.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Protocol {
    Http1,
    Http2,
}

/// Serves connections until the token is cancelled, then lets requests under way end, and cuts those that do not.
pub(crate) async fn serve(listener: TcpListener, tls: ServerConfig, service: Service, stop: CancellationToken) {
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let connections = Arc::new(Semaphore::new(open_files::room(CONNECTIONS_MAX)));
    let graceful = GracefulShutdown::new();
    let tasks = Tasks::default();
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
        let (acceptor, service, stop, streams, watcher) =
            (acceptor.clone(), service.clone(), stop.clone(), tasks.clone(), graceful.watcher());
        tasks.execute(async move {
            let _permit = permit;
            let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream));
            let Some(Ok(Ok(stream))) = stop.run_until_cancelled(handshake).await else { return };
            let session = stream.get_ref().1;
            let protocol = if session.alpn_protocol() == Some(b"h2") { Protocol::Http2 } else { Protocol::Http1 };
            let leaf = session.peer_certificates().and_then(|chain| chain.first());
            let peer = leaf.and_then(|leaf| certificate_user(leaf)).map(Peer);
            let service = TowerToHyperService::new(service.with_peer(peer));
            talk(stream, protocol, service, streams, watcher).await;
        });
    }
    drop(listener);
    if tokio::time::timeout(DRAIN_TIMEOUT, graceful.shutdown()).await.is_err() {
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
    stream.set_nodelay(true)?;
    Ok((stream, permit))
}

/// Serves one connection to its end. A peer that has not asked for anything in time is cut off.
async fn talk<I, S, B>(stream: I, protocol: Protocol, service: S, streams: Tasks, watcher: Watcher)
where
    I: AsyncRead + AsyncWrite + Unpin + 'static,
    S: HyperService<Request<Incoming>, Response = Response<B>>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    S::Future: 'static,
    B: Body + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    Tasks: Http2ServerConnExec<S::Future, B>,
{
    let has_asked = AtomicBool::new(false);
    let service = service_fn(|request| {
        has_asked.store(true, Ordering::Relaxed);
        service.call(request)
    });
    let stream = TokioIo::new(stream);
    let talked = async {
        match protocol {
            Protocol::Http1 => watcher.watch(http1_builder().serve_connection(stream, service)).await,
            Protocol::Http2 => watcher.watch(http2_builder(streams).serve_connection(stream, service)).await,
        }
    };
    // HTTP/2 has no timer of its own until its preface has come.
    let silent = async {
        tokio::time::sleep(HEAD_TIMEOUT).await;
        if has_asked.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        talked = talked => {
            if let Err(error) = talked {
                tracing::debug!(%error, "a connection ended");
            }
        }
        () = silent => tracing::debug!("a connection that asked for nothing is cut"),
    }
}

fn http1_builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    builder
}

fn http2_builder(streams: Tasks) -> http2::Builder<Tasks> {
    let mut builder = http2::Builder::new(streams);
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(15));
    builder
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::time::Instant;

    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

    /// Talks with a peer that sends `words` and then only holds the connection; returns how long that lasts.
    async fn lasts(protocol: Protocol, words: &[u8]) -> Duration {
        let (near, mut far) = tokio::io::duplex(4096);
        far.write_all(words).await.unwrap();
        let service = service_fn(|_| async { Ok::<_, Infallible>(Response::new(String::new())) });
        let began = Instant::now();
        let graceful = GracefulShutdown::new();
        let talked = talk(near, protocol, service, Tasks::default(), graceful.watcher());
        tokio::time::timeout(HEAD_TIMEOUT * 10, talked).await.expect("the connection is still kept");
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_for_nothing_is_not_kept() {
        for (protocol, words) in [
            (Protocol::Http1, &b""[..]),
            (Protocol::Http1, b"GET / HTTP/1.1\r\n"),
            (Protocol::Http2, b""),
            (Protocol::Http2, b"PRI"),
            (Protocol::Http2, PREFACE),
        ] {
            let lasted = lasts(protocol, words).await;
            assert!((HEAD_TIMEOUT..HEAD_TIMEOUT + Duration::from_secs(1)).contains(&lasted), "{protocol:?} {lasted:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_asked_may_wait_for_an_answer() {
        let (near, mut far) = tokio::io::duplex(4096);
        far.write_all(REQUEST).await.unwrap();
        let service = service_fn(|_| async {
            tokio::time::sleep(HEAD_TIMEOUT * 10).await;
            Ok::<_, Infallible>(Response::new("late".to_owned()))
        });
        let mut answer = String::new();
        let graceful = GracefulShutdown::new();
        let talked = talk(near, Protocol::Http1, service, Tasks::default(), graceful.watcher());
        tokio::join!(talked, async { far.read_to_string(&mut answer).await.unwrap() });
        assert!(answer.ends_with("late"), "{answer}");
    }
}
