//! APIServices that lead to other servers: a small HTTPS server in this process, and what clients see of it.

mod availability;
mod documents;
mod passing;
mod streams;

use crate::support::{Http, Options, TestServer, options, text};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use steersman_server::authz::Authorization;
use steersman_server::webhook::{Identity, Services};
use steersman_storage::{Memory, Store};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, crypto};

pub(super) const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
pub(super) const FAR: &str = "/apis/far.example.com/v1";

/// The most chunks that wait for a reader of `/stream`.
const CHUNKS_MAX: usize = 8;

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// A request as the other server has received it.
#[derive(Clone, Debug)]
pub(super) struct Received {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// Whether the connection showed a certificate of the front proxy.
    pub(super) has_certificate: bool,
}

/// The discovery documents of the other server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Discovery {
    Aggregated,
    Classic,
}

/// The state that the test and the other server share.
struct Shared {
    received: Mutex<Vec<Received>>,
    /// The chunks of the answers to `/stream`.
    chunks: Mutex<Option<mpsc::Receiver<Bytes>>>,
    /// Notified when a request to `/hang`, or its answer, is dropped.
    dropped: Notify,
    /// Notified when a request to `/hang` has arrived.
    arrived: Notify,
    discovery: Discovery,
}

/// The server behind the APIService, and the one in front of it.
pub(super) struct Far {
    pub(super) test: TestServer,
    pub(super) address: SocketAddr,
    /// The authority of its certificate, in base64.
    pub(super) ca: String,
    shared: Arc<Shared>,
    pub(super) chunks: mpsc::Sender<Bytes>,
    accepting: JoinHandle<()>,
}

/// An authority, which signs certificates.
pub(super) struct Authority {
    pub(super) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(super) fn new() -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { pem, issuer: Issuer::new(params, key) }
    }

    pub(super) fn sign(&self, name: &str, usage: ExtendedKeyUsagePurpose) -> Identity {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![usage];
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem().into_bytes();
        Identity { certificate, key: key.serialize_pem().into_bytes() }
    }
}

/// Notifies when it is dropped.
struct Notifies(Arc<Shared>);

impl Drop for Notifies {
    fn drop(&mut self) {
        self.0.dropped.notify_one();
    }
}

impl Far {
    pub(super) async fn start() -> Far {
        Far::with(Discovery::Aggregated, |options| options).await
    }

    /// Starts both servers. The APIService does not exist yet.
    pub(super) async fn with(discovery: Discovery, change: impl FnOnce(Options) -> Options) -> Far {
        let (servers, proxies) = (Authority::new(), Authority::new());
        let own = servers.sign("far.default.svc", ExtendedKeyUsagePurpose::ServerAuth);
        let provider = Arc::new(crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(proxies.pem.as_bytes()).unwrap()).unwrap();
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
        let address = listener.local_addr().unwrap();
        let (chunks, receiver) = mpsc::channel(CHUNKS_MAX);
        let shared = Arc::new(Shared {
            received: Mutex::default(),
            chunks: Mutex::new(Some(receiver)),
            dropped: Notify::new(),
            arrived: Notify::new(),
            discovery,
        });
        let accepting = tokio::spawn(accept(listener, TlsAcceptor::from(Arc::new(config)), shared.clone()));
        let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await.unwrap();
        let mapping = format!("default/far=https://{address}").parse().unwrap();
        let options = Options {
            webhook_services: Services::new([mapping]).unwrap(),
            proxy_identity: Some(proxies.sign("front-proxy-client", ExtendedKeyUsagePurpose::ClientAuth)),
            ..options(&store, Authorization::default())
        };
        let test = TestServer::of(store, change(options)).await;
        use base64::Engine as _;
        let ca = base64::engine::general_purpose::STANDARD.encode(servers.pem);
        Far { test, address, ca, shared, chunks, accepting }
    }

    /// Starts both servers, and waits until the APIService is available.
    pub(super) async fn registered() -> Far {
        let far = Far::start().await;
        far.register().await;
        far
    }

    pub(super) async fn register(&self) {
        self.http().post(SERVICES, &self.api_service()).await.ok();
        assert_eq!(self.reason(|reason| reason == "Passed").await, "Passed");
    }

    pub(super) fn api_service(&self) -> Value {
        api_service("far.example.com", json!({"caBundle": self.ca, "service": {"namespace": "default", "name": "far"}}))
    }

    pub(super) fn http(&self) -> Http {
        self.test.http()
    }

    /// The first reason of the condition `Available` that is wanted.
    pub(super) async fn reason(&self, is_wanted: impl Fn(&str) -> bool) -> String {
        let path = format!("{SERVICES}?fieldSelector=metadata.name=v1.far.example.com");
        let mut watch = self.http().watch(&path).await;
        loop {
            let event = watch.next().await.unwrap();
            let reason = text(&event, "/object/status/conditions/0/reason");
            if !reason.is_empty() && is_wanted(reason) {
                return reason.to_owned();
            }
        }
    }

    /// The answer to a GET as soon as it is as wanted.
    pub(super) async fn until(&self, path: &str, accept: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let answer = self.http().get_as(path, accept).await;
            if answer.code == 200 && is_wanted(&answer.json()) {
                return answer.json();
            }
            tokio::task::yield_now().await;
        }
    }

    /// The requests of clients that the other server has received, not those by which it was checked.
    pub(super) fn received(&self) -> Vec<Received> {
        let all = self.shared.received.lock().unwrap().clone();
        let is_own = |one: &Received| {
            let user = one.headers["x-remote-user"].as_bytes();
            user == b"system:kube-aggregator" || user == b"system:aggregator"
        };
        all.into_iter().filter(|one| !is_own(one)).collect()
    }

    /// Waits until a request to `/hang` has arrived.
    pub(super) async fn arrived(&self) {
        self.shared.arrived.notified().await;
    }

    /// Waits until a request to `/hang` was dropped.
    pub(super) async fn dropped(&self) {
        self.shared.dropped.notified().await;
    }

    /// Ends the other server.
    pub(super) async fn end(&mut self) {
        self.accepting.abort();
        let _ = (&mut self.accepting).await;
    }
}

/// An APIService for version 1 of a group.
pub(super) fn api_service(group: &str, more: Value) -> Value {
    let mut object = json!({
        "metadata": {"name": format!("v1.{group}")},
        "spec": {"group": group, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15},
    });
    object["spec"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    object
}

/// Serves until it is aborted, and its connections with it.
async fn accept(listener: TcpListener, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, shared) = (acceptor.clone(), shared.clone());
        connections.spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let has_certificate = stream.get_ref().1.peer_certificates().is_some();
            let service = service_fn(move |request| {
                let shared = shared.clone();
                async move { Ok::<_, Infallible>(answer(shared, has_certificate, request).await) }
            });
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).with_upgrades().await;
        });
    }
}

async fn answer(shared: Arc<Shared>, has_certificate: bool, mut request: Request<Incoming>) -> Answer {
    let path = request.uri().path().to_owned();
    if path.ends_with("/hang") {
        shared.arrived.notify_one();
        let guard = Notifies(shared.clone());
        std::future::pending::<()>().await;
        drop(guard);
    }
    if path.ends_with("/upgrade") {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut stream = TokioIo::new(upgrade.await.unwrap());
            let mut bytes = [0; 5];
            // Clients may open a connection and say nothing.
            let Ok(_) = stream.read_exact(&mut bytes).await else { return };
            bytes.make_ascii_uppercase();
            stream.write_all(&bytes).await.unwrap();
            stream.shutdown().await.unwrap();
        });
        let mut answer = whole(StatusCode::SWITCHING_PROTOCOLS, "text/plain", "");
        answer.headers_mut().remove("content-type");
        answer.headers_mut().insert("connection", "Upgrade".parse().unwrap());
        answer.headers_mut().insert("upgrade", request.headers()["upgrade"].clone());
        return answer;
    }
    let accept = request.headers().get("accept").map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default();
    let (head, body) = request.into_parts();
    let Ok(body) = body.collect().await.map(|body| body.to_bytes()) else {
        return whole(StatusCode::BAD_REQUEST, "text/plain", "broken");
    };
    let received =
        Received { method: head.method, path: head.uri.to_string(), headers: head.headers, body, has_certificate };
    shared.received.lock().unwrap().push(received);
    let json = |value: Value| whole(StatusCode::OK, "application/json", &value.to_string());
    match path.as_str() {
        "/apis" if shared.discovery == Discovery::Aggregated && accept.contains("v=v2;") => whole(
            StatusCode::OK,
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            &aggregated().to_string(),
        ),
        "/apis" => json(json!({"kind": "APIGroupList", "groups": []})),
        FAR => json(json!({"kind": "APIResourceList", "groupVersion": "far.example.com/v1", "resources": [
            {"name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing", "verbs": ["get", "list"]},
        ]})),
        "/openapi/v3" => json(json!({"paths": {
            "api/v1": {"serverRelativeURL": "/openapi/v3/api/v1?hash=EVIL"},
            "apis/far.example.com/v1": {"serverRelativeURL": "/openapi/v3/apis/far.example.com/v1?hash=FAR"},
        }})),
        "/openapi/v3/apis/far.example.com/v1" => json(json!({"openapi": "3.0.0", "info": {"title": "far"}})),
        _ if path.ends_with("/redirect") => {
            let mut answer = whole(StatusCode::FOUND, "text/plain", "");
            answer.headers_mut().insert("location", "https://elsewhere.example.com/".parse().unwrap());
            answer
        }
        _ if path.ends_with("/stream") || path.ends_with("/refused") => {
            let chunks = shared.chunks.lock().unwrap().take().unwrap();
            let frames = futures::stream::unfold((chunks, Notifies(shared)), |(mut chunks, guard)| async move {
                let chunk = chunks.recv().await?;
                Some((Ok(Frame::data(chunk)), (chunks, guard)))
            });
            let mut answer = Response::new(UnsyncBoxBody::new(StreamBody::new(frames)));
            if path.ends_with("/refused") {
                *answer.status_mut() = StatusCode::FORBIDDEN;
            }
            answer
        }
        _ => {
            let mut answer = whole(StatusCode::CREATED, "application/json", "{\"kind\":\"Thing\"}");
            answer.headers_mut().insert("access-control-allow-origin", "*".parse().unwrap());
            answer.headers_mut().insert("x-far", "1".parse().unwrap());
            answer
        }
    }
}

fn whole(status: StatusCode, content_type: &str, body: &str) -> Answer {
    let body = UnsyncBoxBody::new(Full::new(Bytes::from(body.to_owned())));
    Response::builder().status(status).header("content-type", content_type).body(body).unwrap()
}

fn aggregated() -> Value {
    let kind = json!({"group": "far.example.com", "version": "v1", "kind": "Thing"});
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": [
        {"metadata": {"name": "apps"}, "versions": [{"version": "v1", "resources": [], "freshness": "Current"}]},
        {"metadata": {"name": "far.example.com"}, "versions": [{"version": "v1", "freshness": "Current", "resources": [
            {"resource": "things", "responseKind": kind, "scope": "Namespaced", "singularResource": "thing", "verbs": ["get", "list"]},
        ]}]},
    ]})
}
