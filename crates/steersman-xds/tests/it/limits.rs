//! Clients that ask for too much, take nothing, or come at the wrong time.

use crate::support::{Running, set};
use bytes::{BufMut, Bytes, BytesMut};
use http::Request;
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use steersman_xds::{ConnectionError, Kind, Options, Peer, Refusal, Resource, View};
use tokio::task::JoinHandle;

const PATH: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";

/// The bytes of a response that a client takes without reading them.
const WINDOW_BYTES: u32 = 65_535;

/// As much of a delta request as these tests need.
#[derive(Clone, PartialEq, Message)]
struct Ask {
    #[prost(message, optional, tag = "1")]
    node: Option<Node>,
    #[prost(string, tag = "2")]
    type_url: String,
    #[prost(string, repeated, tag = "3")]
    subscribe: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Node {
    #[prost(string, tag = "1")]
    id: String,
}

/// The requests of a stream, whose side stays open.
struct Requests(VecDeque<Bytes>);

impl Body for Requests {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.pop_front().map_or(Poll::Pending, |bytes| Poll::Ready(Some(Ok(Frame::data(bytes)))))
    }
}

/// A connection, and how the server's side of it ends.
struct Client {
    sender: http2::SendRequest<Requests>,
    served: JoinHandle<Result<(), ConnectionError>>,
}

fn framed(message: &impl Message) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(message.encoded_len()).unwrap());
    message.encode(&mut bytes).unwrap();
    bytes.freeze()
}

fn ask(node: &str, kind: Kind, names: &[&str]) -> Bytes {
    let subscribe = names.iter().map(ToString::to_string).collect();
    framed(&Ask { node: Some(Node { id: node.to_owned() }), type_url: kind.type_url().to_owned(), subscribe })
}

impl Client {
    async fn connect(running: &Running) -> Client {
        Client::connect_from(running, Peer::default()).await
    }

    async fn connect_from(running: &Running, peer: Peer) -> Client {
        let (near, far) = tokio::io::duplex(16 * 1024);
        let server = running.server.clone();
        let served = tokio::spawn(async move { server.serve(far, peer).await });
        let mut builder = http2::Builder::new(TokioExecutor::new());
        let (sender, connection) =
            builder.initial_stream_window_size(WINDOW_BYTES).handshake(TokioIo::new(near)).await.unwrap();
        tokio::spawn(connection);
        Client { sender, served }
    }

    async fn open(&mut self, path: &str, requests: &[Bytes]) -> http::Response<Incoming> {
        self.open_as("secret", path, requests).await
    }

    async fn open_as(&mut self, token: &str, path: &str, requests: &[Bytes]) -> http::Response<Incoming> {
        let request = Request::post(path)
            .header("content-type", "application/grpc")
            .header("authorization", format!("Bearer {token}"))
            .body(Requests(requests.iter().cloned().collect()))
            .unwrap();
        self.sender.send_request(request).await.unwrap()
    }
}

/// The status of a stream that ends, and its message.
async fn status(response: http::Response<Incoming>) -> (String, String) {
    let text = |headers: &http::HeaderMap, name: &str| headers.get(name).unwrap().to_str().unwrap().to_owned();
    let (head, body) = response.into_parts();
    if head.headers.contains_key("grpc-status") {
        return (text(&head.headers, "grpc-status"), text(&head.headers, "grpc-message"));
    }
    let trailers = body.collect().await.unwrap().trailers().cloned().unwrap();
    (text(&trailers, "grpc-status"), text(&trailers, "grpc-message"))
}

#[tokio::test]
async fn a_control_plane_that_is_not_ready_is_unavailable() {
    let running = Running::start(None, Options::default()).await;
    *running.plane.refusal.lock().unwrap() = Some(Refusal::NotReady);
    let mut client = Client::connect(&running).await;
    let response = client.open(PATH, &[ask("a", Kind::Cluster, &[])]).await;
    assert_eq!(status(response).await, ("14".to_owned(), "the control plane is starting; ask again".to_owned()));
    *running.plane.refusal.lock().unwrap() = Some(Refusal::Forbidden("not you".to_owned()));
    let response = client.open(PATH, &[ask("a", Kind::Cluster, &[])]).await;
    assert_eq!(status(response).await, ("7".to_owned(), "not you".to_owned()));
    running.stop().await;
}

#[tokio::test]
async fn streams_names_and_bytes_are_bounded() {
    let options = Options::default().streams_max(3).streams_per_owner_max(2).names_max(2).request_bytes_max(200);
    let running = Running::start(None, options).await;
    running.set(&Arc::new(View::new()));
    let mut client = Client::connect(&running).await;
    let response = client.open(PATH, &[ask("a", Kind::Route, &["1", "2", "3"])]).await;
    let (code, message) = status(response).await;
    assert_eq!((&*code, &*message), ("8", "the proxy names 3 resources of the type route, and 2 are allowed"));
    let response = client.open(PATH, &[ask("a", Kind::Route, &[&"x".repeat(300)])]).await;
    assert_eq!(status(response).await.0, "8");

    // The id is the proxy's word only: streams are counted by the owner.
    let mut open = Vec::new();
    for node in ["a", "b"] {
        let mut response = client.open_as("one", PATH, &[ask(node, Kind::Cluster, &[])]).await;
        response.body_mut().frame().await.unwrap().unwrap();
        open.push(response);
    }
    let n_ended = running.plane.ended.lock().unwrap().len();
    let response = client.open_as("one", PATH, &[ask("c", Kind::Cluster, &[])]).await;
    let (code, message) = status(response).await;
    assert_eq!((&*code, &*message), ("8", "the proxy one has 2 streams and may open no more"));
    assert_eq!(running.plane.ended.lock().unwrap().len(), n_ended + 1, "the source knows that it has ended");
    let mut response = client.open_as("two", PATH, &[ask("a", Kind::Cluster, &[])]).await;
    response.body_mut().frame().await.unwrap().unwrap();
    open.push(response);
    let response = client.open_as("three", PATH, &[ask("d", Kind::Cluster, &[])]).await;
    let (code, message) = status(response).await;
    assert_eq!((&*code, &*message), ("8", "the control plane has 3 streams and takes no more"));

    // A stream that ends makes room.
    let mut reports = running.plane.reports.subscribe();
    reports.wait_for(|reports| reports.len() == 3).await.unwrap();
    client.served.abort();
    reports.wait_for(|reports| reports.is_empty()).await.unwrap();
    running.stop().await;
}

/// Neither a peer that shows nothing of itself nor what it sends takes places of streams that have an owner.
#[tokio::test(start_paused = true)]
async fn streams_without_an_owner_are_few_and_take_no_place_of_others() {
    let running = Running::start(None, Options::default().streams_max(1).unidentified_max(1)).await;
    running.set(&Arc::new(View::new()));
    let mut silent = Client::connect(&running).await;
    let said_nothing = silent.open(PATH, &[]).await;
    let mut client = Client::connect(&running).await;
    let mut served = client.open(PATH, &[ask("a", Kind::Cluster, &[])]).await;
    let early = tokio::time::timeout(Duration::from_secs(10), served.body_mut().frame()).await;
    assert!(early.is_err(), "it waits for its turn: {early:?}");
    let (code, message) = status(said_nothing).await;
    assert_eq!((&*code, &*message), ("4", "the proxy has sent no request"));
    served.body_mut().frame().await.unwrap().unwrap();
    running.stop().await;
}

/// An address that opens many streams and says nothing waits for itself; others are served at once.
#[tokio::test(start_paused = true)]
async fn an_address_cannot_take_the_turns_of_others() {
    let options = Options::default().unidentified_max(4).unidentified_per_address_max(2);
    let running = Running::start(None, options).await;
    running.set(&Arc::new(View::new()));
    let from = |address: &str| Peer { address: Some(address.parse().unwrap()), certificate: None };
    let mut silent = Vec::new();
    for port in 1..=10 {
        let mut client = Client::connect_from(&running, from(&format!("10.0.0.1:{port}"))).await;
        let response = client.open(PATH, &[]).await;
        silent.push((client, response));
    }
    let mut client = Client::connect_from(&running, from("10.0.0.2:1")).await;
    let mut served = client.open(PATH, &[ask("a", Kind::Cluster, &[])]).await;
    tokio::time::timeout(Duration::from_secs(1), served.body_mut().frame()).await.unwrap().unwrap().unwrap();
    let mut late = Client::connect_from(&running, from("10.0.0.1:11")).await;
    let mut waiting = late.open(PATH, &[ask("b", Kind::Cluster, &[])]).await;
    let early = tokio::time::timeout(Duration::from_secs(10), waiting.body_mut().frame()).await;
    assert!(early.is_err(), "it waits for the others of its address: {early:?}");
    running.stop().await;
}

/// A stranger learns nothing of its request: the owner of a stream is found out first.
#[tokio::test]
async fn a_stranger_is_refused_before_its_request_is_read() {
    let running = Running::start(None, Options::default()).await;
    let forbidden = Refusal::Forbidden("not you".to_owned());
    *running.plane.refusal.lock().unwrap() = Some(forbidden);
    let mut client = Client::connect(&running).await;
    let node = Some(Node { id: "a".to_owned() });
    let without_type = framed(&Ask { node, ..Ask::default() });
    assert_eq!(status(client.open(PATH, std::slice::from_ref(&without_type)).await).await.1, "not you");
    *running.plane.refusal.lock().unwrap() = None;
    let response = client.open(PATH, &[without_type]).await;
    assert_eq!(status(response).await.1, "the request names no type of resources");
    assert_eq!(running.plane.ended.lock().unwrap().len(), 1, "the source knows that it has ended");
    running.stop().await;
}

#[tokio::test]
async fn a_peer_that_takes_nothing_loses_its_connection() {
    let running = Running::start(None, Options::default().stall_timeout(Duration::from_millis(300))).await;
    let large = Resource::from_bytes(Kind::Endpoints, "a", Bytes::from(vec![b'x'; 1 << 20]));
    running.set(&Arc::new(View::new().with(Kind::Endpoints, set([large]))));
    let mut client = Client::connect(&running).await;
    let response = client.open(PATH, &[ask("a", Kind::Endpoints, &["a"])]).await;
    // Beside it, one that reads is served.
    let mut other = Client::connect(&running).await;
    let mut reading = other.open(PATH, &[ask("b", Kind::Endpoints, &["a"])]).await;
    let mut bytes = 0;
    while bytes < 1 << 20 {
        bytes += reading.body_mut().frame().await.unwrap().unwrap().into_data().unwrap().len();
    }
    let ended = client.served.await.unwrap();
    assert!(matches!(ended, Err(ConnectionError::Stalled(_))), "{ended:?}");
    assert!(!other.served.is_finished());
    drop(response);
    running.stop().await;
}

/// Neither is one kept that could take the whole response into the buffers of HTTP/2, if that were one piece.
#[tokio::test]
async fn a_peer_that_takes_nothing_of_many_small_resources_loses_its_connection() {
    let running = Running::start(None, Options::default().stall_timeout(Duration::from_millis(300))).await;
    let small = |n: u32| Resource::from_bytes(Kind::Cluster, format!("c{n}"), Bytes::from(vec![b'x'; 400]));
    running.set(&Arc::new(View::new().with(Kind::Cluster, set((0..1_000).map(small)))));
    let mut client = Client::connect(&running).await;
    let response = client.open(PATH, &[ask("a", Kind::Cluster, &[])]).await;
    let ended = tokio::time::timeout(Duration::from_secs(20), client.served).await.unwrap().unwrap();
    assert!(matches!(ended, Err(ConnectionError::Stalled(_))), "{ended:?}");
    drop(response);
    running.stop().await;
}

#[tokio::test]
async fn a_connection_without_streams_is_closed() {
    let running = Running::start(None, Options::default().stall_timeout(Duration::from_millis(50))).await;
    let client = Client::connect(&running).await;
    let ended = client.served.await.unwrap();
    assert!(matches!(ended, Err(ConnectionError::Idle(_))), "{ended:?}");
    running.stop().await;
}

#[tokio::test]
async fn streams_end_when_the_server_stops_or_the_proxy_is_unknown() {
    let running = Running::start(None, Options::default()).await;
    running.set(&Arc::new(View::new()));
    let mut client = Client::connect(&running).await;
    let mut response = client.open(PATH, &[ask("a", Kind::Cluster, &[])]).await;
    response.body_mut().frame().await.unwrap().unwrap();
    let report = running.until("a token", |report| report.subscriber.token.is_some()).await;
    assert_eq!(report.subscriber.token.as_ref().unwrap().expose(), "secret");
    assert!(!format!("{report:?}").contains("secret"));
    let stopping = tokio::spawn(running.stop());
    assert_eq!(status(response).await.0, "14");
    stopping.await.unwrap();
    client.served.await.unwrap().unwrap();
}

#[tokio::test]
async fn what_is_not_the_service_is_not_served() {
    let running = Running::start(None, Options::default()).await;
    let mut client = Client::connect(&running).await;
    let response = client.open("/envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters", &[]).await;
    assert_eq!(status(response).await.0, "12");
    let response = client.open(PATH, &[framed(&Ask { type_url: "t".to_owned(), ..Ask::default() })]).await;
    let (code, message) = status(response).await;
    assert_eq!((&*code, &*message), ("3", "the first request of a stream must have a node"));
    running.stop().await;
}
