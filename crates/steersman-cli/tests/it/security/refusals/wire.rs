//! A client that ignores the rules of HTTP: it sends the bytes of a row over TLS, and reads the answer.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::security::refusals::table::Request;
use crate::support::PATIENCE;

/// The credential of a sender.
#[derive(Clone, Debug)]
pub(crate) enum Credential {
    /// PEM of the chain, and of the key.
    Certificate(String, String),
    Nothing,
    Token(String),
}

/// The result of a request.
#[derive(Debug)]
pub(crate) enum Outcome {
    Answer {
        status: u16,
        headers: BTreeMap<String, String>,
        body: Vec<u8>,
    },
    /// Closed or reset, with the error of the connection.
    Closed(String),
    NoConnection(String),
    /// The server took a part of the request's body for another request, or sent more than one answer.
    OutOfStep(String),
}

/// The address of the server, and the CA of its certificate.
pub(crate) struct Server {
    address: String,
    roots: Arc<RootCertStore>,
}

pub(crate) type Stream = StreamOwned<ClientConnection, TcpStream>;

/// The audit id of a request that follows another on its connection, and of its answer.
const FOLLOWS: &str = "the-request-that-follows";

impl Server {
    pub(crate) fn new(address: &str, ca: &Path) -> Server {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(ca).unwrap()).unwrap();
        Server { address: address.to_owned(), roots: Arc::new(roots) }
    }

    /// A connection whose handshake is done, as far as the client can know.
    pub(crate) fn connect(&self, who: &Credential, protocol: &[u8]) -> Result<Stream, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(self.roots.clone());
        let mut config = match who {
            Credential::Certificate(chain, key) => {
                let chain = CertificateDer::pem_slice_iter(chain.as_bytes()).map(Result::unwrap).collect();
                config.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap()).unwrap()
            }
            Credential::Nothing | Credential::Token(_) => config.with_no_client_auth(),
        };
        config.alpn_protocols = vec![protocol.to_vec()];
        let connection = ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap()).unwrap();
        let socket = TcpStream::connect(&self.address).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        let mut stream = StreamOwned::new(connection, socket);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock).map_err(|error| error.to_string())?;
        }
        Ok(stream)
    }

    /// Sends a request, and reads its answer.
    pub(crate) fn send(&self, who: &Credential, request: &Request) -> Outcome {
        let Request::Http1 { method, path, version, headers, body } = request else {
            return crate::security::refusals::frames::send(self, who, request);
        };
        let mut stream = match self.connect(who, b"http/1.1") {
            Ok(stream) => stream,
            Err(error) => return Outcome::NoConnection(error),
        };
        let mut head = [method, b" ".as_slice(), path, b" ", version.as_bytes(), b"\r\n"].concat();
        let has = |name: &str| {
            headers
                .iter()
                .any(|line| line.len() >= name.len() && line[..name.len()].eq_ignore_ascii_case(name.as_bytes()))
        };
        let mut line = |text: String| head.extend(format!("{text}\r\n").bytes());
        if !has("host") {
            line("Host: localhost".to_owned());
        }
        if let Credential::Token(token) = who {
            line(format!("Authorization: Bearer {token}"));
        }
        if !body.is_empty() && !has("content-type") {
            line("Content-Type: application/json".to_owned());
        }
        if !body.is_empty() && !has("content-length") && !has("transfer-encoding") {
            line(format!("Content-Length: {}", body.len()));
        }
        for header in headers {
            head.extend_from_slice(header);
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(b"\r\n");
        // A server that has read enough closes the connection: an answer that it sent before counts.
        let sent = stream.write_all(&head).and_then(|()| stream.write_all(body)).and_then(|()| stream.flush());
        let mut unread = Vec::new();
        let is_head = method == b"HEAD";
        let first = match read_answer(&mut stream, &mut unread, is_head) {
            Ok(Some(answer)) => answer,
            Ok(None) => return Outcome::Closed(format!("{sent:?}")),
            Err(error) if error.kind() == ErrorKind::InvalidData => return Outcome::NoConnection(error.to_string()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("no answer to {request:?}"),
            Err(error) => return Outcome::Closed(error.to_string()),
        };
        if let Some(why) = out_of_step(&mut stream, &mut unread) {
            return Outcome::OutOfStep(why);
        }
        first
    }
}

/// Sends another request on the connection: the connection is closed, or the next answer must be for that request.
fn out_of_step(stream: &mut Stream, unread: &mut Vec<u8>) -> Option<String> {
    let request =
        format!("GET /version HTTP/1.1\r\nHost: localhost\r\nAudit-Id: {FOLLOWS}\r\nConnection: close\r\n\r\n");
    let _ = stream.write_all(request.as_bytes()).and_then(|()| stream.flush());
    match read_answer(stream, unread, false) {
        Ok(Some(Outcome::Answer { headers, .. })) if headers.get("audit-id").is_some_and(|id| id == FOLLOWS) => None,
        Ok(Some(answer)) => Some(format!("{answer:?}")),
        Ok(None) | Err(_) => None,
    }
}

/// The next answer on a connection; `None` if it is closed. Bytes beyond it stay in `unread`.
fn read_answer(stream: &mut Stream, unread: &mut Vec<u8>, is_head: bool) -> std::io::Result<Option<Outcome>> {
    loop {
        let end = loop {
            if let Some(end) = unread.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            if !read_more(stream, unread)? {
                return Ok(None);
            }
        };
        let head: Vec<u8> = unread.drain(..end).collect();
        let head = String::from_utf8_lossy(&head).into_owned();
        let mut lines = head.lines();
        let status: u16 = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap().parse().unwrap();
        let headers: BTreeMap<String, String> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        if (100..200).contains(&status) {
            continue;
        }
        let mut body = Vec::new();
        let length = headers.get("content-length").map(|length| length.parse::<usize>().unwrap());
        if is_head || matches!(status, 204 | 304) {
            // Neither has a body, whatever the headers are.
        } else if headers.get("transfer-encoding").is_some_and(|coding| coding == "chunked") {
            while let Some(chunk) = read_chunk(stream, unread)? {
                body.extend(chunk);
            }
        } else {
            while length.is_none_or(|length| unread.len() < length) && read_more(stream, unread)? {}
            body.extend(unread.drain(..length.unwrap_or(unread.len()).min(unread.len())));
        }
        return Ok(Some(Outcome::Answer { status, headers, body }));
    }
}

fn read_chunk(stream: &mut Stream, unread: &mut Vec<u8>) -> std::io::Result<Option<Vec<u8>>> {
    let end = loop {
        if let Some(end) = unread.windows(2).position(|two| two == b"\r\n") {
            break end;
        }
        if !read_more(stream, unread)? {
            return Ok(None);
        }
    };
    let line: Vec<u8> = unread.drain(..end + 2).collect();
    let length = usize::from_str_radix(String::from_utf8_lossy(&line).trim(), 16).unwrap();
    while unread.len() < length + 2 && read_more(stream, unread)? {}
    let mut chunk: Vec<u8> = unread.drain(..length + 2).collect();
    chunk.truncate(length);
    Ok((length > 0).then_some(chunk))
}

/// False at the end of the connection. Only reads: writes to a connection that the server has closed fail, but earlier
/// answers can still be read.
pub(crate) fn read_more(stream: &mut Stream, unread: &mut Vec<u8>) -> std::io::Result<bool> {
    let mut buffer = [0; 16 * 1024];
    loop {
        match stream.conn.reader().read(&mut buffer) {
            Ok(0) => return Ok(false),
            Ok(n) => {
                unread.extend_from_slice(&buffer[..n]);
                return Ok(true);
            }
            // The connection was closed without TLS's close_notify.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(false),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        match stream.conn.read_tls(&mut stream.sock) {
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(false),
            read => read?,
        };
        let processed = stream.conn.process_new_packets();
        processed.map_err(|error| std::io::Error::new(ErrorKind::InvalidData, error))?;
    }
}
