//! The client against servers that misbehave in rare ways.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use steersman_neutron::config::{Limits, Source};
use steersman_neutron::{
    Class, Client, Cloud, Config, Error, NetworkCreate, NetworkFilter, NetworkId, NetworkUpdate, RequestId, Revision,
};
use tokio::net::TcpListener;

use crate::wire::{Reply, Scripted, answer};

fn client(url: &str, limits: Limits) -> Client {
    Client::new(Config::unauthenticated(url).unwrap().with_limits(limits)).unwrap()
}

/// The error of a create that gets this reply.
async fn create_answered(reply: Reply) -> Error {
    let server = Scripted::start(move |_| reply.clone()).await;
    let limits = Limits { timeout: Duration::from_millis(200), answer_bytes_max: 1000, ..Limits::default() };
    let cloud = client(&server.url, limits);
    cloud.create_network(RequestId::random(), &NetworkCreate::default()).await.unwrap_err()
}

#[tokio::test]
async fn nobody_listening_means_not_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let cloud = client(&url, Limits::default());
    let error = cloud.create_network(RequestId::random(), &NetworkCreate::default()).await.unwrap_err();
    assert!(matches!(error, Error::NotSent { .. }), "{error:?}");
    assert!(!error.is_uncertain() && error.is_retryable());
    assert_eq!(error.to_string(), format!("create network: not sent, no connection to {url}"));
}

#[tokio::test]
async fn tls_needs_no_global_provider_and_a_server_without_it_means_not_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    let cloud = client(&url, Limits::default());
    let error = cloud.create_network(RequestId::random(), &NetworkCreate::default()).await.unwrap_err();
    assert!(matches!(error, Error::NotSent { .. }), "{error:?}");
}

#[tokio::test]
async fn tls_trusts_the_authorities_of_the_configuration_and_no_stranger() {
    let authority = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let chain = vec![authority.cert.der().clone()];
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(authority.signing_key.serialize_der());
    let server = Scripted::start_tls(chain, key.into(), |_| answer(200, r#"{"networks":[]}"#)).await;
    let port = server.url.rsplit(':').next().unwrap();
    let url = format!("https://localhost:{port}");

    let stranger = client(&url, Limits::default());
    let error = stranger.find_networks(RequestId::random(), &NetworkFilter::all()).await.unwrap_err();
    assert!(matches!(error, Error::NotSent { .. }), "{error:?}");

    let dir = tempfile::tempdir().unwrap();
    let cacert = dir.path().join("ca.pem");
    std::fs::write(&cacert, authority.cert.pem()).unwrap();
    let vars = BTreeMap::from([
        ("OS_AUTH_TYPE".to_owned(), "none".to_owned()),
        ("OS_NETWORK_ENDPOINT_OVERRIDE".to_owned(), url),
        ("OS_CACERT".to_owned(), cacert.display().to_string()),
    ]);
    let config = Config::keystone(&Source { vars: &vars, cloud: None, dirs: &[] }).unwrap();
    let found = Client::new(config).unwrap().find_networks(RequestId::random(), &NetworkFilter::all()).await;
    assert_eq!(found.unwrap(), []);
}

#[tokio::test]
async fn silence_and_hanging_up_after_a_create_are_uncertain() {
    for reply in [Reply::Silence, Reply::HangUp] {
        let error = create_answered(reply).await;
        assert!(matches!(error, Error::NoAnswer { .. }), "{error:?}");
        assert!(error.is_uncertain() && error.is_retryable());
    }
    assert_eq!(
        create_answered(Reply::Silence).await.to_string(),
        "create network: sent, but no answer came within 0.2 s, so whether it happened is unknown"
    );
}

#[tokio::test]
async fn an_answer_that_makes_no_sense_after_a_create_is_uncertain() {
    let senseless = ["", "It works!", "{}", r#"{"network":{}}"#, r#"{"network":{"id":"7"}}"#];
    for body in senseless.map(str::to_owned).into_iter().chain([" ".repeat(1001)]) {
        let error = create_answered(answer(201, body)).await;
        assert!(matches!(error, Error::NoAnswer { .. }) && error.is_uncertain(), "{error:?}");
    }
}

#[tokio::test]
async fn a_gateways_failure_is_uncertain_and_its_refusal_is_not() {
    for status in [500, 502, 504] {
        assert!(create_answered(answer(status, "<html>Bad Gateway</html>")).await.is_uncertain());
    }
    let busy = create_answered(Reply::Answer(429, "Retry-After: 7\r\n".to_owned(), String::new())).await;
    assert_eq!((busy.class(), busy.is_uncertain()), (Some(Class::RateLimited), false));
    assert_eq!(busy.retry_after(), Some(Duration::from_secs(7)));
    let away = create_answered(answer(503, "<html>No server is available</html>")).await;
    assert_eq!((away.class(), away.is_uncertain()), (Some(Class::Unavailable), false));
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let reply = Reply::Answer(302, "Location: http://127.0.0.1:1/\r\n".to_owned(), String::new());
    let error = create_answered(reply).await;
    assert_eq!(error.class(), Some(Class::Unexpected));
    assert_eq!(
        error.to_string(),
        "create network: Neutron answered 302, this is not an answer of the service; check its URL"
    );
}

#[tokio::test]
async fn requests_carry_their_work_and_their_condition() {
    let server = Scripted::start(|_| {
        let headers = "X-Openstack-Request-Id: req-of-the-server\r\n".to_owned();
        Reply::Answer(412, headers, String::new())
    })
    .await;
    let cloud = client(&format!("{}/networking/", server.url), Limits::default());
    let (request, id) = (RequestId::random(), NetworkId::random());
    let rename = NetworkUpdate { name: Some("n".to_owned()), ..NetworkUpdate::default() };
    let error = cloud.update_network(request, id, &rename, Some(Revision(7))).await.unwrap_err();
    assert_eq!(error.answer().unwrap().request.as_deref(), Some("req-of-the-server"));

    let seen = &server.seen()[0];
    assert_eq!((seen.method.as_str(), seen.target.clone()), ("PUT", format!("/networking/v2.0/networks/{id}")));
    assert_eq!(seen.header("X-Openstack-Request-Id"), Some(request.to_string().as_str()));
    assert_eq!(seen.header("If-Match"), Some("revision_number=7"));
    assert_eq!(seen.body, br#"{"network":{"name":"n"}}"#);
}

fn page(ids: &[NetworkId], next: Option<&str>) -> Reply {
    let items: Vec<String> = ids.iter().map(|id| format!(r#"{{"id":"{id}"}}"#)).collect();
    let links = next.map_or(String::new(), |marker| {
        format!(r#","networks_links":[{{"rel":"next","href":"http://elsewhere:1/v2.0/networks?limit=500&marker={marker}"}}]"#)
    });
    answer(200, format!(r#"{{"networks":[{}]{links}}}"#, items.join(",")))
}

#[tokio::test]
async fn a_walk_whose_place_is_lost_starts_again() {
    let ids = [NetworkId::random(), NetworkId::random(), NetworkId::random()];
    let lost = AtomicUsize::new(0);
    let server = Scripted::start(move |request| match request.target.split_once("marker=") {
        None => page(&ids[..2], Some("m")),
        Some(_) if lost.fetch_add(1, Ordering::Relaxed) == 0 => answer(404, ""),
        Some(_) => page(&ids[1..], None),
    })
    .await;
    let found = client(&server.url, Limits::default()).find_networks(RequestId::random(), &NetworkFilter::all()).await;
    let mut found: Vec<_> = found.unwrap().iter().map(|network| network.id).collect();
    let mut expected = ids.to_vec();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
    assert_eq!(server.seen().len(), 4);
}

#[tokio::test]
async fn a_walk_ends_although_the_server_names_a_next_page_for_ever() {
    let id = NetworkId::random();
    let count = Arc::new(AtomicUsize::new(0));
    let asked = count.clone();
    let server = Scripted::start(move |_| page(&[id], Some(&asked.fetch_add(1, Ordering::Relaxed).to_string()))).await;
    let found = client(&server.url, Limits::default()).find_networks(RequestId::random(), &NetworkFilter::all()).await;
    assert_eq!(found.unwrap().len(), 1);
    assert_eq!(count.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn what_a_careless_database_matched_is_left_out() {
    let server = Scripted::start(|_| {
        let id = NetworkId::random();
        answer(200, format!(r#"{{"networks":[{{"id":"{id}","description":"MARKER"}}]}}"#))
    })
    .await;
    let cloud = client(&server.url, Limits::default());
    let found = cloud.find_networks(RequestId::random(), &NetworkFilter::description("marker")).await.unwrap();
    assert_eq!(found, []);
}
