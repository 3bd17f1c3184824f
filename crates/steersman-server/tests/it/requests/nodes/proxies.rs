//! The proxies of nodes, Pods and Services.

use crate::requests::nodes::{Node, PODS};
use crate::support::text;
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{Full, StreamBody};
use hyper::body::Frame;
use serde_json::json;
use std::convert::Infallible;
use std::net::{IpAddr, UdpSocket};

const PROXY: &str = "/api/v1/nodes/n/proxy";

/// An address of this machine that others can reach; none if it has no network.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent: the system only chooses the address.
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

#[tokio::test]
async fn a_proxy_passes_on_method_path_query_and_body() {
    const CHUNKS: usize = 100;
    let node = Node::start().await;
    let chunk = || Ok::<_, Infallible>(Frame::data(Bytes::from(vec![b'x'; 1 << 16])));
    let body = StreamBody::new(futures::stream::iter((0..CHUNKS).map(move |_| chunk())));
    let request = Request::put(format!("{PROXY}/a%20b//../c/?timeout=none&x=%2F"))
        .header("host", "api.example.com")
        .header("x-remote-user", "root")
        .header("cookie", "c");
    let answer = node.http().raw(request.body(body).unwrap()).await;
    assert_eq!((answer.code, answer.body_text().as_str(), answer.header("x-kubelet")), (202, "done", Some("1")));
    assert_eq!(answer.header("access-control-allow-origin"), None);
    let received = node.received();
    assert_eq!((received.method, received.uri.as_str()), (Method::PUT, "/c/?timeout=none&x=%2F"));
    assert_eq!((received.body.len(), received.has_certificate), (CHUNKS << 16, true));
    let header = |name| received.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    assert_eq!((header("host").as_deref(), header("cookie").as_deref()), (Some("api.example.com"), Some("c")));
    assert_eq!(header("x-forwarded-uri").as_deref(), Some("/api/v1/nodes/n/proxy/c/"));
    assert_eq!(header("x-remote-user"), None);
}

#[tokio::test]
async fn every_method_is_passed_on() {
    let methods =
        [Method::GET, Method::HEAD, Method::OPTIONS, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
    for method in methods {
        let node = Node::start().await;
        let request = Request::builder().method(&method).uri(format!("{PROXY}/a")).header("host", "api.example.com");
        let answer = node.http().raw(request.body(Full::<Bytes>::default()).unwrap()).await;
        assert_eq!((answer.code, node.received().method), (202, method));
    }
}

#[tokio::test]
async fn the_root_of_a_proxy_ends_with_a_slash_and_redirects_stay_within_it() {
    let node = Node::start().await;
    let answer = node.http().get(&format!("{PROXY}?a=b")).await;
    assert_eq!((answer.code, answer.header("location")), (301, Some("/api/v1/nodes/n/proxy/?a=b")));
    let answer = node.http().get(&format!("{PROXY}/x/redirect")).await;
    assert_eq!((answer.code, answer.header("location")), (302, Some("/api/v1/nodes/n/proxy/login?a=b")));
}

#[tokio::test]
async fn pods_and_services_are_reached_at_the_addresses_of_pods() {
    let Some(address) = own_address() else {
        eprintln!("skipped: this machine has no address but its loopback");
        return;
    };
    let mut node = Node::start().await;
    let port = node.listen(address).await.port();
    let http = node.http();
    let status = json!({"status": {"podIP": address, "podIPs": [{"ip": address}]}});
    http.merge(&format!("{PODS}/p/status"), &status).await.ok();
    let answer = http.get(&format!("{PODS}/p:{port}/proxy/a?b=c")).await;
    assert_eq!((answer.code, answer.body_text().as_str()), (202, "done"));
    let received = node.received();
    assert_eq!((received.uri.as_str(), received.has_certificate), ("/a?b=c", false));

    let namespace = "/api/v1/namespaces/default";
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"name": "web", "port": 80}]}});
    http.post(&format!("{namespace}/services"), &service).await.ok();
    let endpoints = |pod: &str| {
        json!({"metadata": {"name": "s"}, "subsets": [{
            "addresses": [{"ip": address, "targetRef": {"kind": "Pod", "namespace": "default", "name": pod}}],
            "ports": [{"name": "web", "port": port}],
        }]})
    };
    http.post(&format!("{namespace}/endpoints"), &endpoints("p")).await.ok();
    for id in ["s:80", "s:web", "http:s:web"] {
        let answer = http.get(&format!("{namespace}/services/{id}/proxy/")).await;
        assert_eq!((answer.code, answer.body_text().as_str()), (202, "done"), "{id}");
    }
    let answer = http.get(&format!("{namespace}/services/https:s:web/proxy/")).await;
    assert_eq!(answer.code, 503);
    assert!(text(&answer.json(), "/message").starts_with("error trying to reach service: tls: "), "{answer:?}");
    // Another Pod does not have the address.
    http.put(&format!("{namespace}/endpoints/s"), &endpoints("late")).await.ok();
    let answer = http.get(&format!("{namespace}/services/s:web/proxy/")).await;
    let want = "no endpoints available for service \"s:web\"";
    assert_eq!((answer.code, text(&answer.json(), "/message")), (503, want));
}

#[tokio::test]
async fn a_port_of_a_pod_is_a_number_and_its_address_is_not_this_machines() {
    let node = Node::start().await;
    let http = node.http();
    let address = |address: &str| json!({"status": {"podIP": address, "podIPs": [{"ip": address}]}});
    http.merge(&format!("{PODS}/p/status"), &address("10.0.0.1")).await.ok();
    let request = Request::get(format!("{PODS}/p:web/proxy/")).body(Full::<Bytes>::default()).unwrap();
    let answer = http.raw(request).await;
    let want = "error trying to reach service: dial tcp: lookup tcp/web: unknown port";
    assert_eq!((answer.code, text(&answer.json(), "/message")), (503, want));
    http.merge(&format!("{PODS}/late/status"), &address("127.0.0.1")).await.ok();
    let answer = http.get(&format!("{PODS}/late:80/proxy/")).await;
    assert_eq!((answer.code, text(&answer.json(), "/message")), (400, "address not allowed"));
}
