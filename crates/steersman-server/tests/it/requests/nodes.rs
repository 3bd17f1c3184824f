//! Connections to nodes, Pods and Services: a small kubelet in this process, and what clients see of it.

mod connections;
mod logs;
mod proxies;

use crate::requests::aggregation::Authority;
use crate::support::{Http, Options, TestServer, options};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use rcgen::ExtendedKeyUsagePurpose;
use serde_json::json;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use steersman_server::KubeletClient;
use steersman_server::authz::Authorization;
use steersman_server::user::User;
use steersman_storage::{Memory, Store};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, crypto};

pub(super) const PODS: &str = "/api/v1/namespaces/default/pods";

/// The most chunks that wait for a reader of a log.
const CHUNKS_MAX: usize = 8;

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// A request as the kubelet has received it.
#[derive(Clone, Debug)]
pub(super) struct Received {
    pub(super) method: Method,
    pub(super) uri: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// Whether the connection showed a certificate that the kubelet trusts.
    pub(super) has_certificate: bool,
}

/// The state that the test and the kubelet share.
struct Shared {
    received: Mutex<Vec<Received>>,
    /// The chunks of the log.
    chunks: Mutex<Option<mpsc::Receiver<Bytes>>>,
    /// Notified when a request that waits has arrived.
    arrived: Notify,
    /// Notified when such a request is to be answered.
    released: Notify,
    /// Notified when a log or an upgraded connection has ended.
    ended: Notify,
}

/// A node with its kubelet, and the server that knows it.
pub(super) struct Node {
    pub(super) test: TestServer,
    shared: Arc<Shared>,
    pub(super) chunks: mpsc::Sender<Bytes>,
    /// Dropping it ends the kubelet.
    accepting: JoinSet<()>,
}

/// Notifies when it is dropped.
struct Notifies(Arc<Shared>);

impl Drop for Notifies {
    fn drop(&mut self) {
        self.0.ended.notify_one();
    }
}

impl Node {
    /// Starts both, with the Pods `p`, `gone` and `late` on the node.
    pub(super) async fn start() -> Node {
        Node::with(|options| options).await
    }

    /// The same with other options of the server.
    pub(super) async fn with(change: impl FnOnce(Options) -> Options) -> Node {
        let (kubelets, clients) = (Authority::new(), Authority::new());
        let own = kubelets.sign("127.0.0.1", ExtendedKeyUsagePurpose::ServerAuth);
        let provider = Arc::new(crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(clients.pem.as_bytes()).unwrap()).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.allow_unauthenticated().build().unwrap())
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(&own.certificate).unwrap()],
                PrivateKeyDer::from_pem_slice(&own.key).unwrap(),
            )
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (chunks, receiver) = mpsc::channel(CHUNKS_MAX);
        let (arrived, released, ended) = Default::default();
        let chunks_of_log = Mutex::new(Some(receiver));
        let shared = Arc::new(Shared { received: Mutex::default(), chunks: chunks_of_log, arrived, released, ended });
        let mut accepting = JoinSet::new();
        accepting.spawn(serve(listener, Some(TlsAcceptor::from(Arc::new(config))), shared.clone()));
        let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await.unwrap();
        let kubelet_client = KubeletClient {
            identity: Some(clients.sign("kube-apiserver-kubelet-client", ExtendedKeyUsagePurpose::ClientAuth)),
            authority: Some(kubelets.pem.clone().into_bytes()),
            ..KubeletClient::default()
        };
        let options = Options { kubelet_client, ..options(&store, Authorization::default()) };
        let test = TestServer::of(store, change(options)).await;
        let http = test.http();
        http.post("/api/v1/nodes", &json!({"metadata": {"name": "n"}})).await.ok();
        let status = json!({"status": {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }});
        http.merge("/api/v1/nodes/n/status", &status).await.ok();
        for name in ["p", "gone", "late"] {
            let spec = json!({"nodeName": "n", "containers": [{"name": "c", "image": "i"}]});
            http.post(PODS, &json!({"metadata": {"name": name}, "spec": spec})).await.ok();
        }
        Node { test, shared, chunks, accepting }
    }

    pub(super) fn http(&self) -> Http {
        self.test.http()
    }

    /// Has a server listen at an address, without TLS. It answers as the kubelet does.
    pub(super) async fn listen(&mut self, address: IpAddr) -> SocketAddr {
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        self.accepting.spawn(serve(listener, None, self.shared.clone()));
        address
    }

    /// The only request that has been received.
    #[track_caller]
    pub(super) fn received(&self) -> Received {
        let received = self.shared.received.lock().unwrap();
        assert_eq!(received.len(), 1, "{received:?}");
        received[0].clone()
    }

    pub(super) async fn arrived(&self) {
        self.shared.arrived.notified().await;
    }

    pub(super) fn release(&self) {
        self.shared.released.notify_one();
    }

    /// Waits until a log or an upgraded connection has ended.
    pub(super) async fn ended(&self) {
        self.shared.ended.notified().await;
    }

    /// Asks for an upgrade of a new connection to SPDY.
    pub(super) async fn ask_to_upgrade(&self, user: User, request: http::request::Builder) -> Response<Incoming> {
        self.ask_to_upgrade_to("SPDY/3.1", user, request).await
    }

    /// The same to another protocol.
    pub(super) async fn ask_to_upgrade_to(
        &self,
        protocol: &str,
        user: User,
        request: http::request::Builder,
    ) -> Response<Incoming> {
        let (near, client) = tokio::io::duplex(1 << 16);
        let service = TowerToHyperService::new(self.test.server.service_as(user));
        let connection = http1::Builder::new().serve_connection(TokioIo::new(near), service);
        tokio::spawn(connection.with_upgrades());
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(client)).await.unwrap();
        tokio::spawn(connection.with_upgrades());
        let request = request
            .header("host", "api.example.com")
            .header("authorization", "Bearer secret")
            .header("connection", "Upgrade")
            .header("upgrade", protocol);
        sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap()
    }
}

/// Serves until it is aborted, and its connections with it.
async fn serve(listener: TcpListener, acceptor: Option<TlsAcceptor>, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(connection(stream, acceptor.clone(), shared.clone()));
    }
}

async fn connection(stream: TcpStream, acceptor: Option<TlsAcceptor>, shared: Arc<Shared>) {
    let answers = |has_certificate| {
        service_fn(move |request| {
            let shared = shared.clone();
            async move { Ok::<_, Infallible>(answer(shared, has_certificate, request).await) }
        })
    };
    let Some(acceptor) = acceptor else {
        let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answers(false)).with_upgrades().await;
        return;
    };
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let has_certificate = stream.get_ref().1.peer_certificates().is_some();
    let service = answers(has_certificate);
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).with_upgrades().await;
}

async fn answer(shared: Arc<Shared>, has_certificate: bool, mut request: Request<Incoming>) -> Answer {
    let path = request.uri().path().to_owned();
    let is_upgrade = request.headers().contains_key("upgrade");
    let upgrade = is_upgrade.then(|| hyper::upgrade::on(&mut request));
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let (method, uri, headers) = (head.method, head.uri.to_string(), head.headers);
    let protocol = headers.get("upgrade").cloned();
    shared.received.lock().unwrap().push(Received { method, uri, headers, body, has_certificate });
    if path.contains("/gone") {
        return whole(StatusCode::NOT_FOUND, "container \"c\" in pod \"gone\" is gone");
    }
    if path.contains("/late") {
        let _guard = Notifies(shared.clone());
        shared.arrived.notify_one();
        shared.released.notified().await;
        return whole(StatusCode::OK, "late");
    }
    if let Some(upgrade) = upgrade {
        tokio::spawn(async move {
            let _guard = Notifies(shared);
            let mut stream = TokioIo::new(upgrade.await.unwrap());
            let mut bytes = [0; 5];
            while stream.read_exact(&mut bytes).await.is_ok() {
                bytes.make_ascii_uppercase();
                stream.write_all(&bytes).await.unwrap();
            }
        });
        let mut answer = whole(StatusCode::SWITCHING_PROTOCOLS, "");
        answer.headers_mut().insert("connection", "Upgrade".parse().unwrap());
        answer.headers_mut().insert("upgrade", protocol.unwrap());
        answer.headers_mut().insert("x-stream-protocol-version", "v4.channel.k8s.io".parse().unwrap());
        return answer;
    }
    if path.starts_with("/containerLogs/") {
        let chunks = shared.chunks.lock().unwrap().take().unwrap();
        let frames = futures::stream::unfold((chunks, Notifies(shared)), |(mut chunks, guard)| async move {
            let chunk = chunks.recv().await?;
            Some((Ok(Frame::data(chunk)), (chunks, guard)))
        });
        return Response::new(UnsyncBoxBody::new(StreamBody::new(frames)));
    }
    if path.ends_with("/redirect") {
        let mut answer = whole(StatusCode::FOUND, "");
        answer.headers_mut().insert("location", "/login?a=b".parse().unwrap());
        return answer;
    }
    let mut answer = whole(StatusCode::ACCEPTED, "done");
    answer.headers_mut().insert("access-control-allow-origin", "*".parse().unwrap());
    answer.headers_mut().insert("x-kubelet", "1".parse().unwrap());
    answer
}

fn whole(status: StatusCode, body: &str) -> Answer {
    let body = UnsyncBoxBody::new(Full::new(Bytes::from(body.to_owned())));
    Response::builder().status(status).body(body).unwrap()
}
