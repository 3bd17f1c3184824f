//! Bodies that are streamed, watches, upgraded connections, and their ends.

use crate::requests::aggregation::{FAR, Far};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use steersman_server::user::User;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

#[tokio::test]
async fn a_body_may_be_longer_than_any_that_this_server_reads() {
    const CHUNKS: usize = 100;
    let far = Far::registered().await;
    let chunk = || Ok::<_, Infallible>(Frame::data(Bytes::from(vec![b'x'; 1 << 16])));
    let body = StreamBody::new(futures::stream::iter((0..CHUNKS).map(move |_| chunk())));
    let answer = far.http().raw(Request::post(format!("{FAR}/things")).body(body).unwrap()).await;
    assert_eq!((answer.code, far.received()[0].body.len()), (201, CHUNKS << 16));
}

#[tokio::test]
async fn events_of_a_watch_come_as_the_other_server_sends_them() {
    let far = Far::registered().await;
    let mut watch = far.http().watch(&format!("{FAR}/stream")).await;
    for name in ["a", "b"] {
        let event = format!("{{\"type\":\"ADDED\",\"object\":{{\"metadata\":{{\"name\":\"{name}\"}}}}}}\n");
        far.chunks.try_send(event.into()).unwrap();
        assert_eq!(watch.next_name().await, Some(("ADDED".to_owned(), name.to_owned())));
    }
    drop(watch);
    far.dropped().await;
}

#[tokio::test]
async fn a_watch_ends_when_the_server_stops() {
    let far = Far::registered().await;
    let mut watch = far.http().watch(&format!("{FAR}/stream")).await;
    far.test.server.begin_stop();
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn an_answer_must_begin_and_end_in_time_unless_it_is_a_stream() {
    let far = Far::registered().await;
    let late = far.http().get(&format!("{FAR}/hang?timeout=50ms")).await;
    assert_eq!(late.refusal(), (504, "Timeout".to_owned()));
    far.dropped().await;
    let mut body = far.http().unread(&format!("{FAR}/stream?timeout=200ms")).await;
    far.chunks.try_send("first".into()).unwrap();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "first");
    let error = body.frame().await.unwrap().unwrap_err().to_string();
    assert!(error.contains("did not send it in time"), "{error}");
}

#[tokio::test]
async fn an_upgraded_connection_carries_bytes_in_both_directions() {
    let far = Far::registered().await;
    let answer = ask_to_upgrade(&far, "upgrade").await;
    assert_eq!(
        (answer.status(), &answer.headers()["upgrade"]),
        (StatusCode::SWITCHING_PROTOCOLS, &"SPDY/3.1".parse().unwrap())
    );
    let mut stream = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
    stream.write_all(b"bytes").await.unwrap();
    let mut said = Vec::new();
    stream.read_to_end(&mut said).await.unwrap();
    assert_eq!(said, b"BYTES");
}

#[tokio::test]
async fn the_answer_that_refuses_an_upgrade_must_end_in_time() {
    let far = Far::registered().await;
    let answer = ask_to_upgrade(&far, "refused?timeout=200ms").await;
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
    let mut body = answer.into_body();
    far.chunks.try_send("no".into()).unwrap();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "no");
    assert!(body.frame().await.unwrap().is_err());
    far.dropped().await;
}

/// Asks for an upgrade of a new connection.
async fn ask_to_upgrade(far: &Far, subresource: &str) -> Response<Incoming> {
    let (near, client) = tokio::io::duplex(1 << 16);
    let service = TowerToHyperService::new(far.test.server.service_as(User::master("jane")));
    let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(near), service);
    tokio::spawn(connection.with_upgrades());
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(client)).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    let request = Request::post(format!("{FAR}/namespaces/default/things/a/{subresource}"))
        .header("host", "localhost")
        .header("connection", "Upgrade")
        .header("upgrade", "SPDY/3.1")
        .body(Empty::<Bytes>::new())
        .unwrap();
    sender.send_request(request).await.unwrap()
}

#[tokio::test]
async fn a_request_to_upgrade_over_a_connection_that_cannot_is_answered_as_any_other() {
    let far = Far::registered().await;
    let request = Request::get(format!("{FAR}/things")).header("connection", "Upgrade").header("upgrade", "websocket");
    let answer = far.http().raw(request.body(Empty::<Bytes>::new()).unwrap()).await;
    let received = far.received().remove(0).headers;
    assert_eq!((answer.code, received.get("upgrade"), received.get("connection")), (201, None, None));
}
