//! How much memory a server needs for a watcher that waits: `idle_watchers KUBECONFIG PID COUNT http1|http2`.
//!
//! Opens so many watches of ConfigMaps, over a connection each or as streams, and compares the resident memory of the server
//! process before and after. A hundred are opened before, so that what is needed once is not counted.

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const WATCH: &str = "/api/v1/configmaps?watch=true&allowWatchBookmarks=true";
const WARM_UP: usize = 100;
/// Fewer than a server allows.
const STREAMS_PER_CONNECTION: usize = 900;

/// Where the server is, and how to be let in.
struct Target {
    address: String,
    tls: ClientConfig,
}

/// Watches that are open; dropped, they end.
#[derive(Default)]
struct Watches {
    answers: Vec<Response<Incoming>>,
    streams: Option<(http2::SendRequest<String>, usize)>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kubeconfig, pid, count, protocol] = arguments.as_slice() else {
        anyhow::bail!("usage: idle_watchers KUBECONFIG PID COUNT http1|http2");
    };
    let target = Target::read(kubeconfig)?;
    let count: usize = count.parse().context("COUNT is a number")?;
    let mut watches = Watches::default();
    watches.open(&target, protocol, WARM_UP).await?;
    let before = resident_kb(pid).await?;
    watches.open(&target, protocol, count).await?;
    let after = resident_kb(pid).await?;
    let bytes = after.saturating_sub(before) * 1024 / u64::try_from(count.max(1))?;
    println!("{count} idle watchers over {protocol}: {before} KB before, {after} KB after, {bytes} bytes each");
    Ok(())
}

impl Watches {
    async fn open(&mut self, target: &Target, protocol: &str, count: usize) -> anyhow::Result<()> {
        for _ in 0..count {
            let answer = match protocol {
                "http1" => {
                    let (mut sender, connection) =
                        http1::handshake(TokioIo::new(target.connect(b"http/1.1").await?)).await?;
                    tokio::spawn(connection);
                    sender.send_request(request(target)?).await?
                }
                "http2" => {
                    if self.streams.as_ref().is_none_or(|(_, left)| *left == 0) {
                        let stream = TokioIo::new(target.connect(b"h2").await?);
                        let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
                        tokio::spawn(connection);
                        self.streams = Some((sender, STREAMS_PER_CONNECTION));
                    }
                    let (sender, left) = self.streams.as_mut().context("a connection was opened just now")?;
                    *left -= 1;
                    sender.send_request(request(target)?).await?
                }
                _ => anyhow::bail!("{protocol:?} is neither http1 nor http2"),
            };
            anyhow::ensure!(answer.status() == StatusCode::OK, "a watch is answered with {}", answer.status());
            self.answers.push(answer);
        }
        Ok(())
    }
}

impl Target {
    fn read(kubeconfig: &str) -> anyhow::Result<Target> {
        let config: Value = serde_saphyr::from_str(&std::fs::read_to_string(kubeconfig)?)?;
        let (cluster, user) = (&config["clusters"][0]["cluster"], &config["users"][0]["user"]);
        let pem =
            |data: &Value| Ok::<_, anyhow::Error>(STANDARD.decode(data.as_str().context("no certificate or key")?)?);
        let server = cluster["server"].as_str().context("no server")?;
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&pem(&cluster["certificate-authority-data"])?)?)?;
        let chain = vec![CertificateDer::from_pem_slice(&pem(&user["client-certificate-data"])?)?];
        let key = PrivateKeyDer::from_pem_slice(&pem(&user["client-key-data"])?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let tls = tls.with_root_certificates(roots).with_client_auth_cert(chain, key)?;
        Ok(Target { address: server.trim_start_matches("https://").to_owned(), tls })
    }

    async fn connect(&self, protocol: &[u8]) -> anyhow::Result<TlsStream<TcpStream>> {
        let mut tls = self.tls.clone();
        tls.alpn_protocols = vec![protocol.to_vec()];
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        Ok(TlsConnector::from(Arc::new(tls)).connect(ServerName::try_from("localhost")?, stream).await?)
    }
}

fn request(target: &Target) -> anyhow::Result<Request<String>> {
    Ok(Request::get(format!("https://{}{WATCH}", target.address)).header("host", &target.address).body(String::new())?)
}

/// The resident memory of a process, once it stays the same from one second to the next.
async fn resident_kb(pid: &str) -> anyhow::Result<u64> {
    let mut last = None;
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).context("no such process")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let now: u64 = line.trim().trim_end_matches(" kB").parse()?;
        if last.replace(now) == Some(now) {
            return Ok(now);
        }
    }
}
