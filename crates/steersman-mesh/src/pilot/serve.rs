//! The sockets of the pilot: for proxies, over TCP, TLS or a Unix socket, and for people, on loopback.

mod metrics;
pub mod state;

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use steersman_xds::{Peer, Server};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::pilot::proxies::Proxies;
use crate::pilot::serve::state::State;

pub(crate) use crate::pilot::serve::metrics::register as register_metrics;

/// The path at which the state is served.
pub const STATE_PATH: &str = "/debug/mesh";

/// The most connections at a time: a proxy has one, and for a while a second.
const CONNECTIONS_MAX: usize = 24_000;
/// The most connections of people at a time.
const READERS_MAX: usize = 16;
/// How long a handshake of TLS may take, and a request of people.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait when no connection can be taken, as when all file descriptors are in use.
const PAUSE: Duration = Duration::from_millis(100);

/// Where to listen for proxies.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Address {
    /// A port.
    Tcp(SocketAddr),
    /// A Unix socket, which reaches Pods through a mount and across network namespaces.
    Unix(PathBuf),
}

/// A socket that listens for proxies.
#[derive(Debug)]
pub enum Listening {
    /// A port.
    Tcp(TcpListener),
    /// A Unix socket.
    Unix(UnixListener),
}

/// Why a socket cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The port.
    #[error("cannot listen on {address}")]
    Port {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The Unix socket.
    #[error("cannot listen on the socket {}", path.display())]
    Socket {
        /// The path.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// Another process listens.
    #[error("another process listens on the socket {}", .0.display())]
    Taken(PathBuf),
}

// === impl Listening ===

impl Listening {
    /// Listens. A socket that a process has left behind is replaced.
    ///
    /// # Errors
    /// [`BindError`].
    pub async fn bind(address: &Address) -> Result<Listening, BindError> {
        match address {
            Address::Tcp(address) => {
                let listener = TcpListener::bind(address).await;
                listener.map(Listening::Tcp).map_err(|source| BindError::Port { address: *address, source })
            }
            Address::Unix(path) => {
                remove_abandoned(path).await?;
                let listener = UnixListener::bind(path);
                listener.map(Listening::Unix).map_err(|source| BindError::Socket { path: path.clone(), source })
            }
        }
    }

    /// The address of a port, which may have been chosen by the system.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Listening::Tcp(listener) => listener.local_addr().ok(),
            Listening::Unix(_) => None,
        }
    }
}

async fn remove_abandoned(path: &Path) -> Result<(), BindError> {
    if tokio::net::UnixStream::connect(path).await.is_ok() {
        return Err(BindError::Taken(path.to_owned()));
    }
    use std::os::unix::fs::FileTypeExt as _;
    let is_socket = tokio::fs::symlink_metadata(path).await.is_ok_and(|metadata| metadata.file_type().is_socket());
    if is_socket {
        let removed = tokio::fs::remove_file(path).await;
        removed.map_err(|source| BindError::Socket { path: path.to_owned(), source })?;
    }
    Ok(())
}

/// Serves proxies until `stop` is cancelled. Then every stream is told to go elsewhere. A Unix socket has no use for `tls`.
///
/// # Errors
/// Never.
pub async fn serve(
    listening: Listening,
    tls: Option<TlsAcceptor>,
    server: Server<Proxies>,
    stop: CancellationToken,
) -> Result<(), Infallible> {
    let (tasks, room) = (TaskTracker::new(), Arc::new(Semaphore::new(CONNECTIONS_MAX)));
    loop {
        let accepted = async {
            let permit = room.clone().acquire_owned().await.map_err(io::Error::other)?;
            Ok::<_, io::Error>(match &listening {
                Listening::Tcp(listener) => {
                    let (stream, address) = listener.accept().await?;
                    (permit, Accepted::Tcp(stream, address))
                }
                Listening::Unix(listener) => (permit, Accepted::Unix(listener.accept().await?.0)),
            })
        };
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accepted => accepted,
        };
        match accepted {
            Ok((permit, accepted)) => drop(tasks.spawn(connection(accepted, tls.clone(), server.clone(), permit))),
            Err(error) => {
                tracing::warn!(%error, "no connection of a proxy can be taken; trying again");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    server.shutdown().await;
    tasks.close();
    // A handshake that is under way ends by its own deadline.
    let _ = tokio::time::timeout(PATIENCE, tasks.wait()).await;
    Ok(())
}

enum Accepted {
    Tcp(TcpStream, SocketAddr),
    Unix(tokio::net::UnixStream),
}

async fn connection(
    accepted: Accepted,
    tls: Option<TlsAcceptor>,
    server: Server<Proxies>,
    _permit: OwnedSemaphorePermit,
) {
    match (accepted, tls) {
        (Accepted::Unix(stream), _) => stream_of(&server, stream, Peer::default()).await,
        (Accepted::Tcp(stream, address), None) => {
            // Requests are small, and each waits for an answer.
            let _ = stream.set_nodelay(true);
            stream_of(&server, stream, Peer { address: Some(address), certificate: None }).await;
        }
        (Accepted::Tcp(stream, address), Some(tls)) => {
            let _ = stream.set_nodelay(true);
            let stream = match tokio::time::timeout(PATIENCE, tls.accept(stream)).await {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => return tracing::debug!(%address, %error, "a handshake of TLS failed"),
                Err(_) => return tracing::debug!(%address, "a handshake of TLS took too long"),
            };
            let certificates = stream.get_ref().1.peer_certificates();
            let certificate = certificates.and_then(|chain| chain.first()).map(|one| Bytes::copy_from_slice(one));
            stream_of(&server, stream, Peer { address: Some(address), certificate }).await;
        }
    }
}

async fn stream_of<IO>(server: &Server<Proxies>, io: IO, peer: Peer)
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let address = peer.address;
    if let Err(error) = server.serve(io, peer).await {
        tracing::debug!(?address, %error, "the connection of a proxy has ended");
    }
}

/// Serves the state of proxies and routes as JSON until `stop` is cancelled. Whoever can connect may read it: `listener` should be
/// on loopback.
///
/// # Errors
/// Never.
pub async fn serve_state(
    listener: TcpListener,
    proxies: Arc<Proxies>,
    stop: CancellationToken,
) -> Result<(), Infallible> {
    let (tasks, room) = (TaskTracker::new(), Arc::new(Semaphore::new(READERS_MAX)));
    loop {
        let accepted = async {
            let permit = room.clone().acquire_owned().await.map_err(io::Error::other)?;
            listener.accept().await.map(|(stream, _)| (permit, stream))
        };
        let accepted = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            accepted = accepted => accepted,
        };
        let Ok((permit, stream)) = accepted else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let proxies = Arc::clone(&proxies);
        tasks.spawn(async move {
            let _permit = permit;
            let service = service_fn(move |request| {
                let answer = answer(&request, &proxies);
                async move { Ok::<_, Infallible>(answer) }
            });
            let mut http = hyper::server::conn::http1::Builder::new();
            let connection = http.keep_alive(false).serve_connection(TokioIo::new(stream), service);
            let _ = tokio::time::timeout(PATIENCE, connection).await;
        });
    }
}

fn answer(request: &Request<Incoming>, proxies: &Proxies) -> Response<Full<Bytes>> {
    if !is_for_loopback(request.headers()) {
        let words = "the Host of a request to this address must be localhost or an address of loopback\n";
        let mut response = Response::new(Full::new(Bytes::from(words)));
        *response.status_mut() = StatusCode::FORBIDDEN;
        return response;
    }
    let is_known = request.method() == Method::GET && request.uri().path() == STATE_PATH;
    let (status, type_, body) = match is_known.then(|| serde_json::to_vec(&State::of(proxies))) {
        Some(Ok(body)) => (StatusCode::OK, "application/json", Bytes::from(body)),
        Some(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, "text/plain", Bytes::from(error.to_string())),
        None => (StatusCode::NOT_FOUND, "text/plain", Bytes::from(format!("only GET {STATE_PATH} is here\n"))),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(type_));
    response
}

/// Whether a request was sent to a name of loopback. A page in a browser can reach loopback too, by a name of its own that it lets resolve
/// to 127.0.0.1.
fn is_for_loopback(headers: &header::HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let Some(authority) = host.and_then(|host| host.parse::<http::uri::Authority>().ok()) else { return false };
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_loopback_are_answered() {
        let with = |host: &str| {
            let mut headers = header::HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            is_for_loopback(&headers)
        };
        for host in ["127.0.0.1:15014", "127.0.0.1", "localhost:15014", "LOCALHOST", "[::1]:15014"] {
            assert!(with(host), "{host}");
        }
        for host in ["evil.example:15014", "127.0.0.1.evil.example", "10.0.0.1:15014", "", "localhost.evil.example"] {
            assert!(!with(host), "{host}");
        }
        assert!(!is_for_loopback(&header::HeaderMap::new()));
    }
}
