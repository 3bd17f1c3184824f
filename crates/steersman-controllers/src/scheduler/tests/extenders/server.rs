//! An extender on a real socket, which answers as a test says.

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::Value;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The answer to a request.
pub(super) enum Reply {
    /// Zeros without end.
    Endless,
    Json(Value),
    Never,
    Status(u16),
    Text(&'static str),
}

type Behavior = Arc<dyn Fn(&str, &Value) -> Reply + Send + Sync>;

#[derive(Clone)]
pub(super) struct Server {
    pub(super) address: SocketAddr,
    /// The paths and the bodies of all requests.
    requests: Arc<Mutex<Vec<(String, Value)>>>,
}

/// The certificates of a server whose name is `extender`.
pub(super) struct Identity {
    /// In PEM.
    pub(super) authority: String,
    acceptor: TlsAcceptor,
}

impl Server {
    pub(super) async fn start(behavior: impl Fn(&str, &Value) -> Reply + Send + Sync + 'static) -> Server {
        Server::listen(behavior, None).await
    }

    pub(super) async fn start_tls(
        identity: &Identity,
        behavior: impl Fn(&str, &Value) -> Reply + Send + Sync + 'static,
    ) -> Server {
        Server::listen(behavior, Some(identity.acceptor.clone())).await
    }

    async fn listen(
        behavior: impl Fn(&str, &Value) -> Reply + Send + Sync + 'static,
        acceptor: Option<TlsAcceptor>,
    ) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Server { address: listener.local_addr().unwrap(), requests: Arc::default() };
        let (serving, behavior): (Server, Behavior) = (server.clone(), Arc::new(behavior));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serving.clone().accept(stream, acceptor.clone(), Arc::clone(&behavior)));
            }
        });
        server
    }

    async fn accept(self, stream: TcpStream, acceptor: Option<TlsAcceptor>, behavior: Behavior) {
        match acceptor {
            None => self.serve(stream, behavior).await,
            Some(acceptor) => {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                self.serve(stream, behavior).await;
            }
        }
    }

    async fn serve(self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, behavior: Behavior) {
        let answer = service_fn(move |request| self.clone().answer(request, Arc::clone(&behavior)));
        drop(http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await);
    }

    async fn answer(
        self,
        request: Request<Incoming>,
        behavior: Behavior,
    ) -> Result<Response<UnsyncBoxBody<Bytes, Infallible>>, Infallible> {
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap();
        self.requests.lock().push((path.clone(), body.clone()));
        let text = |text: String| Full::new(Bytes::from(text)).boxed_unsync();
        Ok(match behavior(&path, &body) {
            Reply::Endless => {
                static ZEROS: [u8; 64 << 10] = [b'0'; 64 << 10];
                let frames = stream::repeat_with(|| Ok(Frame::data(Bytes::from_static(&ZEROS))));
                // More than any limit, should there be none.
                Response::new(StreamBody::new(frames.take(1_600)).boxed_unsync())
            }
            Reply::Json(value) => Response::new(text(value.to_string())),
            Reply::Never => std::future::pending().await,
            Reply::Status(code) => {
                let mut response = Response::new(text(String::new()));
                *response.status_mut() = StatusCode::from_u16(code).unwrap();
                response
            }
            Reply::Text(body) => Response::new(text(body.to_owned())),
        })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/scheduler", self.address)
    }

    /// The requests since the last call.
    pub(super) fn take(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut *self.requests.lock())
    }

    /// The last parts of the paths of the requests since the last call.
    pub(super) fn take_verbs(&self) -> Vec<String> {
        self.take().into_iter().map(|(path, _)| path.rsplit('/').next().unwrap_or_default().to_owned()).collect()
    }
}

impl Identity {
    pub(super) fn new() -> Identity {
        let authority_key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = params.self_signed(&authority_key).unwrap().pem();
        let issuer = Issuer::new(params, authority_key);
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(["extender".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from(certificate.der().to_vec())],
                PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap(),
            )
            .unwrap();
        Identity { authority, acceptor: TlsAcceptor::from(Arc::new(config)) }
    }
}
