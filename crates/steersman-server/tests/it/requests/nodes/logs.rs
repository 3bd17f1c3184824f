//! Logs: passed on chunk by chunk, and how they end.

use crate::requests::aggregation::Authority;
use crate::requests::nodes::{Node, PODS};
use crate::support::{Options, text};
use http_body_util::BodyExt as _;
use serde_json::json;
use std::time::Duration;
use steersman_server::{Body, KubeletClient};
use tokio::net::TcpListener;

async fn next(body: &mut Body) -> Option<String> {
    let frame = body.frame().await?.unwrap();
    Some(String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap())
}

#[tokio::test]
async fn a_log_comes_as_the_kubelet_sends_it_until_the_client_goes() {
    let node = Node::start().await;
    let path = format!("{PODS}/p/log?follow=true&tailLines=5&sinceSeconds=10&timestamps=1&pretty=true");
    let mut body = node.http().unread(&path).await;
    for line in ["first\n", "second\n"] {
        node.chunks.try_send(line.into()).unwrap();
        assert_eq!(next(&mut body).await.as_deref(), Some(line));
    }
    let received = node.received();
    let want = "/containerLogs/default/p/c?follow=true&sinceSeconds=10&tailLines=5&timestamps=true";
    assert_eq!((received.uri.as_str(), received.has_certificate), (want, true));
    drop(body);
    node.ended().await;
}

#[tokio::test]
async fn a_log_that_ends_ends_the_answer() {
    let node = Node::start().await;
    let mut body = node.http().unread(&format!("{PODS}/p/log")).await;
    let Node { chunks, .. } = node;
    chunks.try_send("all\n".into()).unwrap();
    drop(chunks);
    assert_eq!((next(&mut body).await.as_deref(), next(&mut body).await), (Some("all\n"), None));
}

#[tokio::test]
async fn an_error_of_the_kubelet_becomes_a_status() {
    let node = Node::start().await;
    let answer = node.http().get(&format!("{PODS}/gone/log")).await;
    let status = answer.json();
    assert_eq!((answer.code, text(&status, "/reason")), (404, "NotFound"));
    let want = "the server could not find the requested resource ( pods/log gone)";
    assert_eq!((text(&status, "/message"), text(&status, "/details/name")), (want, "gone"));
}

#[tokio::test]
async fn a_kubelet_may_begin_its_answer_later_than_other_requests_must_end() {
    let node = Node::start().await;
    let http = node.http();
    let path = format!("{PODS}/late/log?follow=true&timeout=1ms");
    let mut answer = std::pin::pin!(http.get(&path));
    tokio::select! {
        answer = &mut answer => panic!("{answer:?}"),
        () = node.arrived() => {}
    }
    assert!(tokio::time::timeout(Duration::from_millis(100), &mut answer).await.is_err());
    node.release();
    assert_eq!(answer.await.body_text(), "late");
}

#[tokio::test]
async fn a_client_that_goes_before_the_answer_ends_the_request_at_the_kubelet() {
    let node = Node::start().await;
    let http = node.http();
    let path = format!("{PODS}/late/log?follow=true");
    let asking = tokio::spawn(async move { http.get(&path).await });
    node.arrived().await;
    asking.abort();
    node.ended().await;
}

#[tokio::test]
async fn the_end_of_the_server_breaks_off_logs_and_ends_requests_for_them() {
    let node = Node::start().await;
    let mut body = node.http().unread(&format!("{PODS}/p/log?follow=true")).await;
    let http = node.http();
    let asking = tokio::spawn(async move { http.get(&format!("{PODS}/late/log")).await });
    node.arrived().await;
    node.test.server.begin_stop();
    let end = body.frame().await.expect("no end that looks like that of a whole log");
    assert_eq!(end.unwrap_err().to_string(), "the rest of the answer cannot be made: this server is stopping");
    assert_eq!(asking.await.unwrap().code, 503);
}

#[tokio::test]
async fn a_kubelet_that_takes_a_connection_and_says_nothing_is_given_up() {
    let node = Node::start().await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let status = json!({"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}});
    node.http().merge("/api/v1/nodes/n/status", &status).await.ok();
    // From here on time passes while nothing happens.
    tokio::time::pause();
    let answer = node.http().get(&format!("{PODS}/p/log")).await;
    let want = "error dialing backend: net/http: TLS handshake timeout";
    assert_eq!((answer.code, text(&answer.json(), "/message")), (500, want));
}

#[tokio::test]
async fn a_kubelet_with_a_certificate_of_another_authority_is_not_believed_unless_the_client_wants_it() {
    let node = Node::with(|options| {
        let authority = Some(Authority::new().pem.into_bytes());
        let kubelet_client = KubeletClient { authority, ..options.kubelet_client };
        Options { kubelet_client, ..options }
    })
    .await;
    let answer = node.http().get(&format!("{PODS}/gone/log")).await;
    let want = "error dialing backend: tls: failed to verify certificate: invalid peer certificate: ";
    assert_eq!(answer.code, 500);
    assert!(text(&answer.json(), "/message").starts_with(want), "{answer:?}");
    let answer = node.http().get(&format!("{PODS}/gone/log?insecureSkipTLSVerifyBackend=true")).await;
    assert_eq!((answer.code, node.received().has_certificate), (404, true));
}

#[tokio::test]
async fn without_an_authority_every_kubelet_is_believed() {
    let node = Node::with(|options| {
        let kubelet_client = KubeletClient { authority: None, identity: None, ..options.kubelet_client };
        Options { kubelet_client, ..options }
    })
    .await;
    let answer = node.http().get(&format!("{PODS}/gone/log")).await;
    assert_eq!((answer.code, node.received().has_certificate), (404, false));
}
