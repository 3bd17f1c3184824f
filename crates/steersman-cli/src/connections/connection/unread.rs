//! Tests of peers that do not read, or read slowly, against the real server and a list of some megabytes.

use crate::connections::activity::{Activity, Sender, WRITE_TIMEOUT};
use crate::connections::connection::{Connection, Protocol};
use crate::connections::tasks::Tasks;
use hyper::Request;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use std::time::Duration;
use steersman_server::user::User;
use steersman_server::{Body, Server};
use steersman_storage::{Memory, Store};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

/// The buffer between the server and its peer.
const PIPE_BYTES: usize = 1 << 16;
/// More than all buffers and windows on the way can hold: HTTP/2 clients give a stream a few megabytes.
const OBJECTS: usize = 300;
const OBJECT_BYTES: usize = 20_000;

/// A server that keeps its objects in memory.
async fn server() -> Server {
    let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await.unwrap();
    let options = steersman_server::Options::new(store);
    Server::start(options).await.unwrap()
}

async fn create(server: &Server, path: &str, object: serde_json::Value) {
    let request = Request::post(path).header("content-type", "application/json");
    let request = request.body(Body::full(object.to_string())).unwrap();
    let answer = server.service_as(User::master("test")).oneshot(request).await.unwrap();
    assert_eq!(answer.status(), 201);
}

async fn server_with_large_list() -> Server {
    let server = server().await;
    for index in 0..OBJECTS {
        let object = serde_json::json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": format!("large-{index}")},
            "data": {"key": "x".repeat(OBJECT_BYTES)},
        });
        create(&server, "/api/v1/namespaces/default/configmaps", object).await;
    }
    server
}

/// A connection of an authenticated user, and the tasks that serve it.
fn connect(server: &Server, protocol: Protocol) -> (DuplexStream, Tasks) {
    let (near, far) = tokio::io::duplex(PIPE_BYTES);
    let service = TowerToHyperService::new(server.service_as(User::master("test")));
    let streams = Tasks::default();
    let activity = Activity::new(Instant::now(), Sender::Authenticated);
    let stop = CancellationToken::new();
    let connection = Connection { protocol, activity, unauthenticated: None, streams: streams.clone(), stop };
    hyper::rt::Executor::execute(&streams, connection.serve(near, service));
    (far, streams)
}

/// Waits until a connection is closed because its peer has not read for the permitted time.
async fn check_given_up(tasks: &Tasks) {
    let began = Instant::now();
    let ended = tokio::time::timeout(WRITE_TIMEOUT * 60, tasks.ended()).await;
    ended.expect("the connection is kept for ever");
    let lasted = began.elapsed();
    assert!((WRITE_TIMEOUT..WRITE_TIMEOUT + Duration::from_secs(1)).contains(&lasted), "{lasted:?}");
}

#[tokio::test(start_paused = true)]
async fn who_does_not_read_a_list_loses_the_connection() {
    let server = server_with_large_list().await;
    let (mut far, tasks) = connect(&server, Protocol::Http1);
    far.write_all(b"GET /api/v1/configmaps HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    check_given_up(&tasks).await;
}

#[tokio::test(start_paused = true)]
async fn who_leaves_a_stream_of_http2_unread_loses_the_connection_although_pings_are_answered() {
    let server = server_with_large_list().await;
    let (far, tasks) = connect(&server, Protocol::Http2);
    let client = hyper::client::conn::http2::handshake::<_, _, String>(TokioExecutor::new(), TokioIo::new(far));
    let (mut requests, connection) = client.await.unwrap();
    let client = tokio::spawn(connection);
    let request = Request::get("https://a/api/v1/configmaps").body(String::new()).unwrap();
    let answer = requests.send_request(request).await.unwrap();
    check_given_up(&tasks).await;
    drop(answer);
    client.abort();
}

#[tokio::test(start_paused = true)]
async fn who_reads_a_list_slowly_has_all_of_it() {
    let server = server_with_large_list().await;
    let (mut far, tasks) = connect(&server, Protocol::Http1);
    far.write_all(b"GET /api/v1/configmaps HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let began = Instant::now();
    let (mut read, mut chunk) = (Vec::new(), vec![0; PIPE_BYTES]);
    while !read.ends_with(b"0\r\n\r\n") {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let n = far.read(&mut chunk).await.unwrap();
        assert_ne!(n, 0, "the connection ended after {} bytes", read.len());
        read.extend_from_slice(&chunk[..n]);
    }
    assert!(read.len() > OBJECTS * OBJECT_BYTES);
    assert!(began.elapsed() > WRITE_TIMEOUT * 2, "{:?}", began.elapsed());
    tasks.cut().await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_events_is_kept() {
    let server = server().await;
    let (mut far, tasks) = connect(&server, Protocol::Http1);
    let mut read = Vec::new();
    far.write_all(b"GET /api/v1/namespaces?watch=1&timeoutSeconds=3600 HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    read_until(&mut far, &mut read, "kube-system").await;
    tokio::time::sleep(WRITE_TIMEOUT * 20).await;
    let object = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "late"}});
    create(&server, "/api/v1/namespaces", object).await;
    read_until(&mut far, &mut read, "late").await;
    tasks.cut().await;
}

async fn read_until(stream: &mut DuplexStream, read: &mut Vec<u8>, part: &str) {
    while !String::from_utf8_lossy(read).contains(part) {
        assert_ne!(stream.read_buf(read).await.unwrap(), 0, "the connection ended before {part}");
    }
}
