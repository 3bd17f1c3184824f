//! A client of a server on this machine: TLS, one request after the other, answers with the time that they took.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The longest that an answer may take: the deadline of a request is 60 seconds, the rest is for a busy machine.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(75);
/// More of an answer is read and thrown away.
const KEPT_BYTES: usize = 64 * 1024;

/// Where a server is, and the CA by which it is known.
#[derive(Clone)]
pub struct Target {
    address: String,
    roots: Arc<RootCertStore>,
}

/// A request to be sent.
#[derive(Clone, Debug)]
pub struct Request {
    /// The kind of attack that it belongs to, for the figures.
    pub family: &'static str,
    pub method: &'static str,
    pub path: String,
    pub content_type: &'static str,
    /// The `Accept` header; JSON where it is empty.
    pub accept: &'static str,
    pub body: Bytes,
}

/// The answer to a request.
#[derive(Debug)]
pub struct Outcome {
    pub answer: Result<Answer, String>,
    pub took: Duration,
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// Its beginning.
    pub body: Vec<u8>,
    pub n_bytes: usize,
}

/// A connection that is kept from one request to the next.
pub struct Connection {
    target: Target,
    token: String,
    sender: Option<Sender>,
    protocol: Protocol,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Protocol {
    Http1,
    Http2,
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

// === impl Target ===

impl Target {
    /// # Errors
    /// When the certificate cannot be read.
    pub fn new(address: &str, ca: &Path) -> anyhow::Result<Target> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(ca).with_context(|| format!("cannot read {}", ca.display()))?)?;
        Ok(Target { address: address.to_owned(), roots: Arc::new(roots) })
    }

    /// A TLS connection that speaks a protocol.
    ///
    /// # Errors
    /// When the server does not take it.
    pub async fn connect(&self, protocol: Protocol) -> anyhow::Result<TlsStream<TcpStream>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let mut config = config.with_root_certificates(self.roots.clone()).with_no_client_auth();
        let name: &[u8] = if protocol == Protocol::Http1 { b"http/1.1" } else { b"h2" };
        config.alpn_protocols = vec![name.to_vec()];
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        Ok(TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost")?, stream).await?)
    }

    pub fn user(&self, token: &str, protocol: Protocol) -> Connection {
        Connection { target: self.clone(), token: token.to_owned(), sender: None, protocol }
    }
}

// === impl Request ===

impl Request {
    pub fn get(path: impl Into<String>) -> Request {
        Request::new("get", "GET", path, "", Bytes::new())
    }

    pub fn new(
        family: &'static str,
        method: &'static str,
        path: impl Into<String>,
        content_type: &'static str,
        body: impl Into<Bytes>,
    ) -> Request {
        Request { family, method, path: path.into(), content_type, accept: "application/json", body: body.into() }
    }

    pub fn json(family: &'static str, method: &'static str, path: impl Into<String>, body: &Value) -> Request {
        Request::new(family, method, path, "application/json", body.to_string())
    }

    pub fn accepting(self, accept: &'static str) -> Request {
        Request { accept, ..self }
    }
}

// === impl Connection ===

impl Connection {
    /// Sends a request and reads its answer to the end. A connection that has ended is opened anew first.
    pub async fn send(&mut self, request: &Request) -> Outcome {
        let began = Instant::now();
        let answer = match tokio::time::timeout(ANSWER_WITHIN, self.exchange(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(format!("{error:#}")),
            Err(_) => Err(format!("no answer within {} s", ANSWER_WITHIN.as_secs())),
        };
        if answer.is_err() {
            self.sender = None;
        }
        Outcome { answer, took: began.elapsed() }
    }

    /// The body of an answer in JSON that must be a success.
    ///
    /// # Errors
    /// When it is not.
    pub async fn ok(&mut self, request: &Request) -> anyhow::Result<Vec<u8>> {
        let outcome = self.send(request).await;
        let what = || format!("{} {}", request.method, request.path);
        let answer = outcome.answer.map_err(anyhow::Error::msg).with_context(what)?;
        let is_there = answer.status == 409;
        anyhow::ensure!(answer.status < 300 || is_there, "{}: {}", what(), answer.said());
        Ok(answer.body)
    }

    async fn exchange(&mut self, request: &Request) -> anyhow::Result<Answer> {
        let mut head = http::Request::builder().method(request.method);
        head = match self.protocol {
            Protocol::Http1 => head.uri(&request.path).header("host", "localhost"),
            Protocol::Http2 => head.uri(format!("https://localhost{}", request.path)),
        };
        head = head.header("authorization", format!("Bearer {}", self.token)).header("accept", request.accept);
        if !request.content_type.is_empty() {
            head = head.header("content-type", request.content_type);
        }
        let sent = head.body(Full::new(request.body.clone()))?;
        let mut sender = match self.sender.take() {
            Some(sender) if sender.is_usable() => sender,
            _ => self.open().await?,
        };
        let answer = match &mut sender {
            Sender::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(sent).await?
            }
            Sender::Http2(sender) => {
                sender.ready().await?;
                sender.send_request(sent).await?
            }
        };
        let status = answer.status().as_u16();
        let (mut body, mut kept, mut n_bytes) = (answer.into_body(), Vec::new(), 0);
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            n_bytes += data.len();
            kept.extend_from_slice(&data[..data.len().min(self.keeps().saturating_sub(kept.len()))]);
        }
        self.sender = Some(sender);
        Ok(Answer { status, body: kept, n_bytes })
    }

    /// How much of an answer is kept. Documents of schemas are longer than what hostile requests get.
    fn keeps(&self) -> usize {
        if self.token == crate::stage::ADMIN { 64 << 20 } else { KEPT_BYTES }
    }

    async fn open(&self) -> anyhow::Result<Sender> {
        let stream = TokioIo::new(self.target.connect(self.protocol).await?);
        Ok(match self.protocol {
            Protocol::Http1 => {
                let (sender, connection) = http1::handshake(stream).await?;
                tokio::spawn(connection);
                Sender::Http1(sender)
            }
            Protocol::Http2 => {
                let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
                tokio::spawn(connection);
                Sender::Http2(sender)
            }
        })
    }
}

impl Sender {
    fn is_usable(&self) -> bool {
        match self {
            Sender::Http1(sender) => !sender.is_closed(),
            Sender::Http2(sender) => !sender.is_closed(),
        }
    }
}

// === impl Answer ===

impl Answer {
    /// The message of the Status, or the beginning of what is none.
    pub fn said(&self) -> String {
        let status: Option<Value> = serde_json::from_slice(&self.body).ok();
        let message = status.as_ref().and_then(|status| status["message"].as_str()).map(str::to_owned);
        let text = message.unwrap_or_else(|| String::from_utf8_lossy(&self.body).into_owned());
        let mut said = self.status.to_string();
        let _ = write!(said, " {}", text.chars().take(300).collect::<String>());
        said
    }
}

// === impl Outcome ===

impl Outcome {
    /// The fault of the answer, if it has one: a hostile request too gets an answer in time, and a refusal says why.
    pub fn fault(&self) -> Option<String> {
        match &self.answer {
            Err(error) => Some(error.clone()),
            Ok(answer) if answer.status == 500 => Some(answer.said()),
            // An answer that is not kept whole is a long one, and says enough.
            Ok(answer) if answer.status >= 400 && answer.n_bytes == answer.body.len() => {
                let says = answer.said().len() > "400 xxxxxxxx".len();
                (!says).then(|| format!("{} without a reason", answer.status))
            }
            Ok(_) => None,
        }
    }
}
