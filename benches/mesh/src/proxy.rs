//! One fake proxy: a connection with a stream, on which it asks and acknowledges as an Envoy does.
//!
//! It asks for all clusters, for the endpoints of each before it acknowledges them, then for all listeners and for the
//! tables that these name. After that it acknowledges at once.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::Context;
use bytes::{Buf, Bytes, BytesMut};
use h2::{RecvStream, SendStream};
use http::Request;
use tokio::net::TcpStream;

use crate::fleet::{Fleet, Id, View};
use crate::messages::{HEAD_BYTES, Kind, Response, request};

const PATH: &str = "http://pilot/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
/// The bytes that a proxy takes ahead of its reader, as Envoy's defaults for discovery.
const WINDOW_BYTES: u32 = 1 << 20;

/// The resources that a proxy has, by type; kept while it is not connected.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    has: [HashMap<Id, Id>; 4],
}

/// A stream of a proxy.
struct Stream<'f> {
    fleet: &'f Fleet,
    number: usize,
    sender: SendStream<Bytes>,
    asked: [bool; 4],
    /// The names of endpoints and tables that were asked for and have not come.
    n_missing: [usize; 4],
    /// The nonce of the clusters whose endpoints have not come.
    clusters: Option<Vec<u8>>,
    is_complete: bool,
}

/// Opens the stream of a proxy.
pub(crate) async fn open(address: SocketAddr) -> anyhow::Result<(SendStream<Bytes>, RecvStream)> {
    let tcp = TcpStream::connect(address).await.context("cannot connect")?;
    tcp.set_nodelay(true).context("cannot set TCP_NODELAY")?;
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(WINDOW_BYTES).initial_connection_window_size(WINDOW_BYTES);
    let (sender, connection) = builder.handshake::<_, Bytes>(tcp).await.context("no HTTP/2")?;
    tokio::spawn(connection);
    let mut sender = sender.ready().await.context("no HTTP/2")?;
    let head = Request::post(PATH).header("content-type", "application/grpc").header("te", "trailers").body(())?;
    let (response, stream) = sender.send_request(head, false).context("no stream")?;
    Ok((stream, response.await.context("no stream")?.into_body()))
}

/// Serves a proxy until its stream ends. What it has is kept in `memory`.
pub(crate) async fn run(
    fleet: &Arc<Fleet>,
    number: usize,
    address: SocketAddr,
    memory: &mut Memory,
) -> anyhow::Result<()> {
    // While all connect at once the system may turn some away; they come again, as Envoys do.
    let Ok((sender, mut body)) = open(address).await else {
        fleet.n_retries.fetch_add(1, Ordering::Relaxed);
        return Ok(());
    };
    let mut stream =
        Stream { fleet, number, sender, asked: [false; 4], n_missing: [0; 4], clusters: None, is_complete: false };
    stream.begin(memory)?;
    let mut buffer = BytesMut::new();
    while let Some(piece) = body.data().await {
        let piece = piece.context("the stream has broken")?;
        body.flow_control().release_capacity(piece.len()).context("the stream has broken")?;
        fleet.bytes_down.fetch_add(piece.len(), Ordering::Relaxed);
        buffer.extend_from_slice(&piece);
        while let Some(head) = buffer.first_chunk::<HEAD_BYTES>() {
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            if buffer.len() < HEAD_BYTES + length {
                break;
            }
            buffer.advance(HEAD_BYTES);
            let message = buffer.split_to(length);
            stream.take(memory, &message)?;
        }
    }
    let trailers = body.trailers().await.context("the stream has broken")?;
    let text = |name| trailers.as_ref()?.get(name)?.to_str().ok();
    anyhow::bail!("the stream has ended with status {:?}: {:?}", text("grpc-status"), text("grpc-message"))
}

impl Stream<'_> {
    /// Asks for what a proxy asks first: clusters, or after a reconnection everything that it has.
    fn begin(&mut self, memory: &Memory) -> anyhow::Result<()> {
        let is_new = memory.has.iter().all(HashMap::is_empty);
        let kinds = if is_new { &Kind::ALL[..1] } else { &Kind::ALL };
        for (place, kind) in kinds.iter().enumerate() {
            let known = &memory.has[*kind as usize];
            let names: Vec<(Bytes, Bytes)> =
                known.iter().map(|(name, version)| (self.fleet.text(*name), self.fleet.text(*version))).collect();
            let is_by_name = matches!(kind, Kind::Endpoints | Kind::Route);
            let subscribe = names.iter().filter(|_| is_by_name).map(|(name, _)| &name[..]);
            let has = names.iter().map(|(name, version)| (&name[..], &version[..]));
            let id = format!("sidecar~127.0.0.1~p-{}.{}", self.number, crate::cluster::NAMESPACE);
            let node = (place == 0).then_some(id.as_str());
            self.asked[*kind as usize] = true;
            self.send(request(*kind, node, b"", subscribe, has))?;
        }
        Ok(())
    }

    fn send(&mut self, message: Bytes) -> anyhow::Result<()> {
        self.fleet.bytes_up.fetch_add(message.len(), Ordering::Relaxed);
        self.sender.send_data(message, false).context("the stream has broken")
    }

    fn acknowledge(&mut self, kind: Kind, nonce: &[u8]) -> anyhow::Result<()> {
        self.send(request(kind, None, nonce, [], []))
    }

    fn take(&mut self, memory: &mut Memory, message: &[u8]) -> anyhow::Result<()> {
        let response = Response::read(message);
        let kind = response.kind.context("a response has no type that was asked for")?;
        let known = &mut memory.has[kind as usize];
        let mut ids = Vec::with_capacity(response.resources.len());
        let mut wanted: Vec<&[u8]> = Vec::new();
        for resource in &response.resources {
            let (name, version) = (self.fleet.id(resource.name), self.fleet.id(resource.version));
            ids.push(name);
            let is_new = known.insert(name, version).is_none();
            if is_new {
                self.n_missing[kind as usize] = self.n_missing[kind as usize].saturating_sub(1);
            }
            match kind {
                Kind::Cluster if is_new => wanted.push(resource.name),
                Kind::Listener if is_new => wanted.extend(resource.table()),
                _ => {}
            }
        }
        for name in &response.removed {
            known.remove(&self.fleet.id(name));
        }
        let next = match kind {
            Kind::Cluster => Some(Kind::Endpoints),
            Kind::Listener => Some(Kind::Route),
            Kind::Endpoints | Kind::Route => None,
        };
        if let Some(next) = next.filter(|_| !wanted.is_empty()) {
            self.n_missing[next as usize] += wanted.len();
            self.asked[next as usize] = true;
            self.send(request(next, None, b"", wanted, []))?;
        }
        if kind == Kind::Cluster && self.n_missing[Kind::Endpoints as usize] > 0 {
            // A proxy acknowledges clusters when it has their endpoints.
            self.clusters = Some(response.nonce.to_vec());
        } else {
            self.acknowledge(kind, response.nonce)?;
        }
        if self.n_missing[Kind::Endpoints as usize] == 0 {
            if let Some(nonce) = self.clusters.take() {
                self.acknowledge(Kind::Cluster, &nonce)?;
            }
            if !std::mem::replace(&mut self.asked[Kind::Listener as usize], true) {
                self.send(request(Kind::Listener, None, b"", [], []))?;
            }
        }
        if kind == Kind::Listener {
            self.is_complete = true;
        }
        let view = if self.is_complete && self.n_missing == [0; 4] { View::Whole } else { View::Partial };
        self.fleet.acknowledged(self.number, kind, &ids, view);
        Ok(())
    }
}
