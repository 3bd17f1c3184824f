//! `exec`, `attach` and `portforward`: upgraded connections, who may have them, and their ends.

use crate::requests::nodes::{Node, PODS};
use crate::support::text;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use steersman_server::user::User;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

fn admin() -> User {
    User::master("admin")
}

async fn upgraded(answer: Response<Incoming>) -> TokioIo<Upgraded> {
    assert_eq!(answer.status(), StatusCode::SWITCHING_PROTOCOLS);
    TokioIo::new(hyper::upgrade::on(answer).await.unwrap())
}

async fn message(answer: Response<Incoming>) -> (StatusCode, String) {
    let status = answer.status();
    let body: Bytes = answer.into_body().collect().await.unwrap().to_bytes();
    let said: Value = serde_json::from_slice(&body).unwrap();
    (status, text(&said, "/message").to_owned())
}

#[tokio::test]
async fn exec_carries_bytes_in_both_directions_and_the_kubelet_gets_its_query() {
    let node = Node::start().await;
    let path =
        format!("{PODS}/p/exec?command=sh&command=-c&command=a%20b&stdin=true&stdout=true&stderr=false&container=c");
    let request = Request::post(path).header("x-stream-protocol-version", "v4.channel.k8s.io");
    let answer = node.ask_to_upgrade(admin(), request).await;
    assert_eq!(answer.headers()["x-stream-protocol-version"], "v4.channel.k8s.io");
    let mut stream = upgraded(answer).await;
    for (said, want) in [(b"bytes", b"BYTES"), (b"again", b"AGAIN")] {
        stream.write_all(said).await.unwrap();
        let mut heard = [0; 5];
        stream.read_exact(&mut heard).await.unwrap();
        assert_eq!(heard, *want);
    }
    let received = node.received();
    let want = "/exec/default/p/c?command=sh&command=-c&command=a+b&input=1&output=1";
    assert_eq!((received.uri.as_str(), received.has_certificate), (want, true));
    assert_eq!(received.headers["x-stream-protocol-version"], "v4.channel.k8s.io");
    assert_eq!((received.headers.get("authorization"), received.headers.get("x-remote-user")), (None, None));
    // The client goes.
    drop(stream);
    node.ended().await;
}

#[tokio::test]
async fn attach_and_portforward_lead_to_their_paths() {
    for (path, want) in [
        ("attach?stdout=1&tty=1", "/attach/default/p/c?output=1&tty=1"),
        ("portforward?ports=80,443", "/portForward/default/p?port=80%2C443"),
        ("portforward", "/portForward/default/p"),
    ] {
        let node = Node::start().await;
        let answer = node.ask_to_upgrade(admin(), Request::get(format!("{PODS}/p/{path}"))).await;
        let mut stream = upgraded(answer).await;
        stream.write_all(b"bytes").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).await.unwrap();
        assert_eq!((heard.as_slice(), node.received().uri.as_str()), (&b"BYTES"[..], want));
    }
}

#[tokio::test]
async fn the_end_of_the_server_ends_connections() {
    let node = Node::start().await;
    let answer = node.ask_to_upgrade(admin(), Request::get(format!("{PODS}/p/exec?command=sh"))).await;
    let mut stream = upgraded(answer).await;
    node.test.server.begin_stop();
    assert_eq!(stream.read(&mut [0; 1]).await.unwrap_or(0), 0);
    node.ended().await;
}

#[tokio::test]
async fn whoever_may_only_get_a_connection_runs_nothing() {
    let node = Node::start().await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let mut role = json!({"metadata": {"name": "r"}, "rules": [
        {"apiGroups": [""], "resources": ["pods/exec", "pods/attach", "pods/portforward"], "verbs": ["get"]},
    ]});
    node.http().post(&format!("{rbac}/roles"), &role).await.ok();
    let binding = json!({
        "metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
    });
    node.http().post(&format!("{rbac}/rolebindings"), &binding).await.ok();
    let jane = || User::authenticated("jane", []);
    for subresource in ["exec", "attach", "portforward"] {
        let request = Request::get(format!("{PODS}/p/{subresource}?command=sh&stdout=1"));
        let (status, said) = message(node.ask_to_upgrade(jane(), request).await).await;
        let want = format!(
            "pods \"p\" is forbidden: User \"jane\" cannot create resource \"pods/{subresource}\" in API group \"\" in the namespace \"default\""
        );
        assert_eq!((status, said), (StatusCode::FORBIDDEN, want));
    }
    role["rules"][0]["verbs"] = json!(["create", "get"]);
    node.http().put(&format!("{rbac}/roles/r"), &role).await.ok();
    let request = Request::get(format!("{PODS}/p/exec?command=sh&stdout=1"));
    upgraded(node.ask_to_upgrade(jane(), request).await).await;
    assert_eq!(node.received().uri, "/exec/default/p/c?command=sh&output=1");
}

/// The path of an API server behind the address of a node would be called with the certificate for kubelets.
#[tokio::test]
async fn the_address_of_a_node_leads_to_no_path() {
    let node = Node::start().await;
    for address in ["127.0.0.1/api/v1/secrets?", "127.0.0.1#", "n@127.0.0.1"] {
        let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": address}]}});
        node.http().merge("/api/v1/nodes/n/status", &status).await.ok();
        for path in ["pods/p/log", "pods/p/exec?command=sh"] {
            let request = Request::get(format!("/api/v1/namespaces/default/{path}"));
            let (status, said) = message(node.ask_to_upgrade(admin(), request).await).await;
            assert!(status.is_server_error() && said.contains("cannot be called"), "{address}: {status} {said}");
        }
    }
}

#[tokio::test]
async fn connections_to_kubelets_are_upgraded_to_protocols_of_streams_alone() {
    let node = Node::start().await;
    for path in ["/api/v1/namespaces/default/pods/p/exec?command=sh", "/api/v1/nodes/n/proxy/exec/a"] {
        let answer = node.ask_to_upgrade_to("h2c", admin(), Request::get(path)).await;
        let want = "connections to kubelets are upgraded to SPDY/3.1 or websocket, not to \"h2c\"";
        assert_eq!(message(answer).await, (StatusCode::BAD_REQUEST, want.to_owned()));
    }
}

/// Such a path is authorized as `watch`.
#[tokio::test]
async fn the_old_paths_of_watches_lead_to_no_subresource() {
    let node = Node::start().await;
    for path in ["namespaces/default/pods/p/log", "namespaces/default/pods/p/exec", "nodes/n/proxy/a", "nodes/n/status"]
    {
        let answer = node.http().get(&format!("/api/v1/watch/{path}")).await;
        assert_eq!(answer.code, 404, "{path}: {answer:?}");
    }
}

#[tokio::test]
async fn a_connection_must_be_upgraded_and_a_refusal_is_the_kubelets() {
    let node = Node::start().await;
    let answer = node.http().post(&format!("{PODS}/p/exec?command=sh"), &json!({})).await;
    assert_eq!((answer.code, text(&answer.json(), "/message")), (400, "Upgrade request required"));
    let answer = node.ask_to_upgrade(admin(), Request::post(format!("{PODS}/gone/exec?command=sh"))).await;
    assert_eq!(answer.status(), StatusCode::NOT_FOUND);
    let said = answer.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(said, "container \"c\" in pod \"gone\" is gone");
}

#[tokio::test]
async fn an_upgrade_through_a_proxy_keeps_its_path_and_query() {
    let node = Node::start().await;
    let answer = node.ask_to_upgrade(admin(), Request::get("/api/v1/nodes/n/proxy/exec/a?b=c")).await;
    let mut stream = upgraded(answer).await;
    stream.write_all(b"bytes").await.unwrap();
    let mut heard = [0; 5];
    stream.read_exact(&mut heard).await.unwrap();
    assert_eq!((&heard, node.received().uri.as_str()), (b"BYTES", "/exec/a?b=c"));
}
