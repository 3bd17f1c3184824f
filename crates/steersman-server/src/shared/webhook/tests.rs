//! Tests of calls over TLS to a small server in this process.

use crate::shared::webhook::{ClientConfig, Clients, Services};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use steersman_storage::{Memory, Store};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};

const PATIENCE: Duration = Duration::from_secs(10);

struct Hook {
    address: SocketAddr,
    /// The CA in base64, as in objects.
    ca: String,
    n_connections: Arc<AtomicUsize>,
}

impl Hook {
    /// Starts a server with a certificate for `hook.default.svc` and `127.0.0.1`. It answers with host and path, the
    /// length of the body and the version of HTTP, or as the path demands.
    async fn start() -> Hook {
        let authority_key = KeyPair::generate().unwrap();
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = STANDARD.encode(authority.self_signed(&authority_key).unwrap().pem());
        let issuer = Issuer::new(authority, authority_key);
        let key = KeyPair::generate().unwrap();
        let names = ["hook.default.svc", "127.0.0.1"].map(str::to_owned);
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from(certificate.der().to_vec())],
                PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap(),
            )
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let n_connections = Arc::new(AtomicUsize::new(0));
        let counter = n_connections.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                counter.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer)).await;
                });
            }
        });
        Hook { address, ca, n_connections }
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let n_bytes = body.collect().await.unwrap().to_bytes().len();
    let host = head.headers["host"].to_str().unwrap();
    let text = format!("{host} {} {n_bytes} {:?}", head.uri, head.version);
    let answer = Response::builder();
    Ok(match head.uri.path() {
        "/away" => answer.status(307).header("location", "https://elsewhere/").body(Full::default()).unwrap(),
        "/long" => answer.body(Full::from(vec![b' '; 4 << 20])).unwrap(),
        "/never" => std::future::pending().await,
        "/wrong" => answer.status(500).body(Full::from("it is broken")).unwrap(),
        _ => answer.body(Full::from(text)).unwrap(),
    })
}

async fn clients(mappings: &[String]) -> Clients {
    let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await.unwrap();
    let mappings = mappings.iter().map(|text| text.parse().unwrap());
    Clients::new(store, Services::new(mappings).unwrap())
}

async fn post(clients: &Clients, config: &Value, timeout: Duration) -> String {
    let config = ClientConfig::read(config).unwrap();
    match clients.post(&config, Bytes::from_static(b"{}"), timeout).await {
        Ok(answer) => String::from_utf8(answer.to_vec()).unwrap(),
        Err(error) => error.to_string(),
    }
}

fn service(name: &str, ca: &str) -> Value {
    json!({"service": {"namespace": "default", "name": name, "path": "/review"}, "caBundle": ca})
}

#[tokio::test]
async fn a_service_is_called_where_it_is_mapped_to_under_its_own_name() {
    let hook = Hook::start().await;
    let clients = clients(&["hook", "other"].map(|name| format!("default/{name}=https://{}", hook.address))).await;
    for _ in 0..3 {
        let answer = post(&clients, &service("hook", &hook.ca), PATIENCE).await;
        assert_eq!(answer, "hook.default.svc:443 /review?timeout=10s 2 HTTP/1.1");
    }
    assert_eq!(hook.n_connections.load(Ordering::Relaxed), 1, "the connection is used again");
    let error = post(&clients, &service("other", &hook.ca), PATIENCE).await;
    assert!(error.starts_with("Post \"https://other.default.svc:443/review?timeout=10s\": "), "{error}");
    assert!(error.contains("other.default.svc") && error.contains("--webhook-service maps the service default/other"));
    let error = post(&clients, &service("none", &hook.ca), PATIENCE).await;
    assert!(error.contains("service \"none\" not found"), "{error}");
    assert!(error.contains("--webhook-service default/none=https://HOST:PORT"), "{error}");
}

#[tokio::test]
async fn what_a_url_answers_is_bounded_and_redirects_are_not_followed() {
    let hook = Hook::start().await;
    let clients = clients(&[]).await;
    let url = |path: &str| json!({"url": format!("https://{}/{path}", hook.address), "caBundle": hook.ca});
    let answer = post(&clients, &url("a"), Duration::from_millis(9500)).await;
    assert_eq!(answer, format!("{} /a?timeout=10s 2 HTTP/1.1", hook.address));
    let check = async |path: &str, timeout, want: &str| {
        let error = post(&clients, &url(path), timeout).await;
        assert!(error.contains(want), "{error}");
    };
    check("away", PATIENCE, "answers 307 Temporary Redirect, a redirect to \"https://elsewhere/\": it is not followed")
        .await;
    check("wrong", PATIENCE, "answers 500 Internal Server Error: it is broken").await;
    check("long", PATIENCE, "the answer has more than 3145728 bytes").await;
    check("never", Duration::from_millis(20), "context deadline exceeded: no answer within 20 ms").await;
    let other = Hook::start().await;
    let untrusted = json!({"url": format!("https://{}/", hook.address), "caBundle": other.ca});
    let error = post(&clients, &untrusted, PATIENCE).await;
    assert!(error.contains("certificate"), "{error}");
    let useless = json!({"url": "https://h/", "caBundle": STANDARD.encode("text")});
    let error = post(&clients, &useless, PATIENCE).await;
    assert!(error.starts_with("unable to load root certificates: "), "{error}");
}

#[test]
fn a_client_config_names_a_place() {
    let read = |config: Value| ClientConfig::read(&config).map(|config| config.url().to_owned());
    assert_eq!(read(service("a", "")).unwrap(), "https://a.default.svc:443/review");
    let config = json!({"service": {"namespace": "n", "name": "a", "port": 8443}});
    assert_eq!(read(config).unwrap(), "https://a.n.svc:8443/");
    assert_eq!(read(json!({"url": "https://127.0.0.1:1//a/../b/./c/"})).unwrap(), "https://127.0.0.1:1/b/c");
    assert_eq!(read(json!({"url": "https://h"})).unwrap(), "https://h/");
    assert!(read(json!({"url": "http://h"})).unwrap_err().to_string().contains("want https://HOST/PATH"));
    assert!(read(json!({"url": "https://h", "caBundle": "*"})).unwrap_err().to_string().contains("no base64"));
}
