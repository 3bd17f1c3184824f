//! The measured server: connections, and requests to it as bytes.

use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::kubeconfig::Access;
use crate::wire::{Connection, Stream};

/// The media type of plain JSON.
pub const JSON: &str = "application/json";

#[derive(Clone)]
pub struct Target {
    /// Host and port, as in the URL.
    authority: String,
    tls: Option<Tls>,
    /// Headers of every request, each with its line break.
    headers: String,
    token: Option<String>,
}

#[derive(Clone)]
struct Tls {
    http1: TlsConnector,
    http2: TlsConnector,
    name: ServerName<'static>,
}

impl Target {
    /// # Errors
    ///
    /// If the URL, the certificates or the key cannot be used.
    pub fn new(access: Access) -> anyhow::Result<Target> {
        let (is_tls, rest) = match (access.server.strip_prefix("https://"), access.server.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => anyhow::bail!("the server {:?} is neither http:// nor https://", access.server),
        };
        let authority = rest.trim_end_matches('/').to_owned();
        anyhow::ensure!(!authority.contains('/'), "the server {:?} has a path, which is not supported", access.server);
        let authority = match authority.rsplit_once(':') {
            Some((_, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => authority,
            _ => format!("{authority}:{}", if is_tls { 443 } else { 80 }),
        };
        let mut headers = format!("Host: {authority}\r\nUser-Agent: bench\r\n");
        if let Some(token) = &access.token {
            headers.push_str(&format!("Authorization: Bearer {token}\r\n"));
        }
        let tls = if is_tls { Some(Tls::new(&access, &authority)?) } else { None };
        Ok(Target { authority, tls, headers, token: access.token })
    }

    /// The same server, with requests that impersonate another user.
    pub fn impersonating(&self, user: &str) -> Target {
        Target { headers: format!("{}Impersonate-User: {user}\r\n", self.headers), ..self.clone() }
    }

    /// Adds a request to `out`.
    pub fn request(&self, out: &mut Vec<u8>, method: &str, path: &str, accept: &str, body: Option<Body<'_>>) {
        let Target { headers, .. } = self;
        out.extend_from_slice(
            format!("{method} {path} HTTP/1.1\r\n{headers}Accept: {accept}\r\nAccept-Encoding: identity\r\n")
                .as_bytes(),
        );
        match body {
            Some(Body { media_type, bytes }) => {
                let length = bytes.len();
                out.extend_from_slice(
                    format!("Content-Type: {media_type}\r\nContent-Length: {length}\r\n\r\n").as_bytes(),
                );
                out.extend_from_slice(bytes);
            }
            None => out.extend_from_slice(b"\r\n"),
        }
    }

    pub fn get(&self, path: &str, accept: &str) -> Vec<u8> {
        let mut out = Vec::new();
        self.request(&mut out, "GET", path, accept, None);
        out
    }

    /// # Errors
    ///
    /// If nothing listens, or TLS cannot be negotiated.
    pub async fn connect(&self) -> anyhow::Result<Connection> {
        let stream = self.tcp().await?;
        let stream: Box<dyn Stream> = match &self.tls {
            Some(tls) => {
                let stream = tls.http1.connect(tls.name.clone(), stream).await;
                Box::new(stream.with_context(|| format!("no TLS with {}", self.authority))?)
            }
            None => Box::new(stream),
        };
        Ok(Connection::new(stream))
    }

    /// A connection for HTTP/2, with the task that drives it.
    ///
    /// # Errors
    ///
    /// As for [`Target::connect`], and if the server does not speak HTTP/2.
    pub async fn connect_http2(
        &self,
    ) -> anyhow::Result<(h2::client::SendRequest<Bytes>, tokio::task::JoinHandle<Result<(), h2::Error>>)> {
        let tls = self.tls.as_ref().context("HTTP/2 without TLS is not supported")?;
        let stream = tls.http2.connect(tls.name.clone(), self.tcp().await?).await;
        let stream = stream.with_context(|| format!("no TLS with {}", self.authority))?;
        anyhow::ensure!(stream.get_ref().1.alpn_protocol() == Some(b"h2"), "the server does not speak HTTP/2");
        let (sender, connection) = h2::client::handshake(stream).await.context("no HTTP/2 with the server")?;
        Ok((sender, tokio::spawn(connection)))
    }

    /// A GET in the form of HTTP/2.
    pub fn http2_get(&self, path: &str) -> anyhow::Result<http::Request<()>> {
        let mut request = http::Request::get(format!("https://{}{path}", self.authority)).header("accept", JSON);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        request.body(()).context("a request cannot be written")
    }

    async fn tcp(&self) -> anyhow::Result<TcpStream> {
        let stream = TcpStream::connect(&self.authority).await;
        let stream = stream.with_context(|| format!("cannot connect to {}", self.authority))?;
        stream.set_nodelay(true).context("cannot set TCP_NODELAY")?;
        Ok(stream)
    }
}

/// The body of a request.
#[derive(Clone, Copy)]
pub struct Body<'a> {
    pub media_type: &'static str,
    pub bytes: &'a [u8],
}

// === impl Tls ===

impl Tls {
    fn new(access: &Access, authority: &str) -> anyhow::Result<Tls> {
        let pem = access.authority.as_deref().context("the kubeconfig names no certificate-authority")?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            roots.add(certificate.context("a certificate-authority is no PEM")?).context("a certificate-authority")?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let builder = builder.with_root_certificates(roots);
        let mut config = match &access.certificate {
            Some((certificate, key)) => {
                let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
                let key = PrivateKeyDer::from_pem_slice(key).context("the client-key is no PEM")?;
                builder.with_client_auth_cert(chain.context("the client-certificate is no PEM")?, key)?
            }
            None => builder.with_no_client_auth(),
        };
        // Thousands of connections would each keep a session that is never resumed.
        config.resumption = rustls::client::Resumption::disabled();
        let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host).trim_matches(['[', ']']);
        let name = access.server_name.clone().unwrap_or_else(|| host.to_owned());
        let name = ServerName::try_from(name).context("the server's name cannot be in a certificate")?;
        let http1 = TlsConnector::from(Arc::new(config.clone()));
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Tls { http1, http2: TlsConnector::from(Arc::new(config)), name })
    }
}
