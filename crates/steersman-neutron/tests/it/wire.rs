//! Minimal servers: one that gives scripted answers, one that proxies between a client and a real server.
//!
//! Both speak just enough HTTP/1.1 for the client of this crate: one request per connection, lengths announced.

use std::sync::{Arc, Mutex};

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// A request as it was received.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// Path and query.
    pub(crate) target: String,
    /// The whole head, to look headers up in.
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}

/// A server's reaction to a request.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// Status, header lines each ended by `\r\n`, body.
    Answer(u16, String, String),
    /// The connection is closed without an answer.
    HangUp,
    /// No answer, for as long as the client waits.
    Silence,
}

pub(crate) fn answer(status: u16, body: impl Into<String>) -> Reply {
    Reply::Answer(status, String::new(), body.into())
}

/// A server whose answers come from a function, and that records its requests. It ends with the test's runtime.
pub(crate) struct Scripted {
    pub(crate) url: String,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl Scripted {
    pub(crate) async fn start(respond: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_with(None, respond).await
    }

    /// The same server behind TLS.
    pub(crate) async fn start_tls(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        respond: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let tls = tls.with_no_client_auth().with_single_cert(chain, key).unwrap();
        Self::start_with(Some(TlsAcceptor::from(Arc::new(tls))), respond).await
    }

    async fn start_with(tls: Option<TlsAcceptor>, respond: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen: Arc<Mutex<Vec<Request>>> = Arc::default();
        let (respond, log) = (Arc::new(respond), seen.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, respond, log) = (tls.clone(), respond.clone(), log.clone());
                tokio::spawn(async move {
                    match tls {
                        Some(tls) => {
                            let Ok(stream) = tls.accept(stream).await else { return };
                            serve(stream, &log, &*respond).await;
                        }
                        None => serve(stream, &log, &*respond).await,
                    }
                });
            }
        });
        Self { url, seen }
    }

    pub(crate) fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    log: &Mutex<Vec<Request>>,
    respond: &(dyn Fn(&Request) -> Reply + Send + Sync),
) {
    let Some(request) = read_request(&mut stream).await else { return };
    log.lock().unwrap().push(request.clone());
    match respond(&request) {
        Reply::Answer(status, headers, body) => {
            let head = format!("HTTP/1.1 {status} X\r\n{headers}Content-Length: {}\r\n", body.len());
            let text = format!("{head}Connection: close\r\n\r\n{body}");
            stream.write_all(text.as_bytes()).await.unwrap_or_default();
            stream.shutdown().await.unwrap_or_default();
        }
        Reply::HangUp => {}
        Reply::Silence => std::future::pending().await,
    }
}

/// A proxy that passes requests on, and drops answers on demand, after the server has carried out the request.
pub(crate) struct Proxy {
    pub(crate) url: String,
    seen: Arc<Mutex<Vec<Request>>>,
    swallow: Arc<Mutex<Option<&'static str>>>,
}

impl Proxy {
    /// A proxy for the server with this URL, of which the path is ignored.
    pub(crate) async fn start(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let target = authority(target).to_owned();
        let seen: Arc<Mutex<Vec<Request>>> = Arc::default();
        let swallow: Arc<Mutex<Option<&'static str>>> = Arc::default();
        let (log, wanted) = (seen.clone(), swallow.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (target, log, wanted) = (target.clone(), log.clone(), wanted.clone());
                tokio::spawn(async move {
                    let mut stream = stream;
                    let Some(request) = read_request(&mut stream).await else { return };
                    log.lock().unwrap().push(request.clone());
                    let reply = exchange(&target, &request).await;
                    let swallowed = {
                        let mut wanted = wanted.lock().unwrap();
                        let matches = *wanted == Some(request.method.as_str());
                        matches.then(|| wanted.take()).is_some()
                    };
                    if !swallowed {
                        stream.write_all(&reply).await.unwrap_or_default();
                    }
                });
            }
        });
        Self { url, seen, swallow }
    }

    /// Drops the answer to the next request with this method.
    pub(crate) fn swallow_next(&self, method: &'static str) {
        *self.swallow.lock().unwrap() = Some(method);
    }

    pub(crate) fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }
}

/// Sends one request, with header lines each ended by `\r\n`; returns status, head and body of the answer.
pub(crate) async fn send(method: &str, url: &str, headers: &str, body: &str) -> (u16, String, String) {
    let (_, after_scheme) = url.split_once("://").unwrap();
    let target = after_scheme.find('/').map_or("/", |slash| &after_scheme[slash..]);
    let request = Request {
        method: method.to_owned(),
        target: target.to_owned(),
        head: format!("{method} {target} HTTP/1.1\r\nHost: {}\r\n{headers}", authority(url)),
        body: body.as_bytes().to_vec(),
    };
    let reply = String::from_utf8(exchange(authority(url), &request).await).unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), head.to_owned(), body.to_owned())
}

fn authority(url: &str) -> &str {
    url.split_once("://").unwrap().1.split('/').next().unwrap()
}

/// Sends a request and reads until the server closes.
async fn exchange(authority: &str, request: &Request) -> Vec<u8> {
    let mut stream = TcpStream::connect(authority).await.unwrap();
    let kept = |line: &&str| {
        let name = line.split(':').next().unwrap_or_default();
        !line.is_empty() && !name.eq_ignore_ascii_case("connection") && !name.eq_ignore_ascii_case("content-length")
    };
    let head: Vec<&str> = request.head.lines().filter(kept).collect();
    let length = request.body.len();
    let head = format!("{}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n", head.join("\r\n"));
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&request.body).await.unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).await.unwrap();
    reply
}

async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<Request> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(position) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break position;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..head_end].to_vec()).ok()?;
    let mut words = head.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut request = Request { method, target, head: head.clone(), body: bytes.split_off(head_end + 4) };
    let length: usize = request.header("content-length").map_or(0, |text| text.parse().unwrap());
    while request.body.len() < length {
        if stream.read_buf(&mut request.body).await.ok()? == 0 {
            return None;
        }
    }
    Some(request)
}
