//! Signing in: at a real Keystone, and at a scripted one whose clock and failures the test controls.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use steersman_neutron::config::Source;
use steersman_neutron::{
    Class, Client, Cloud, Config, Error, NetworkCreate, NetworkFilter, Operation, RequestId, conformance,
};

use crate::neutron::keystone;
use crate::wire::{self, Proxy, Reply, Scripted, answer};

fn config(auth_url: &str, more: &[(&str, &str)]) -> Config {
    let admin =
        [("OS_AUTH_URL", auth_url), ("OS_USERNAME", "admin"), ("OS_PASSWORD", "secret"), ("OS_PROJECT_NAME", "admin")];
    let vars: BTreeMap<String, String> =
        admin.iter().chain(more).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Config::keystone(&Source { vars: &vars, cloud: None, dirs: &[] }).unwrap()
}

async fn find(cloud: &Client) -> Result<usize, Error> {
    cloud.find_networks(RequestId::random(), &NetworkFilter::name("no such name")).await.map(|found| found.len())
}

#[tokio::test]
async fn a_password_opens_the_cloud_that_the_catalog_names() {
    let Some(server) = keystone() else { return };
    let cloud = Client::new(config(&server.keystone_url, &[("OS_REGION_NAME", "RegionOne")])).unwrap();
    let request = RequestId::random();
    let made = cloud.create_network(request, &NetworkCreate::default()).await.unwrap();
    assert_eq!(cloud.project_id(request).await.unwrap(), made.project_id);
    cloud.delete_network(request, made.id, None).await.unwrap();
    conformance::missing_networks_are_not_found(&cloud).await;
}

#[tokio::test]
async fn a_wrong_password_is_keystones_refusal() {
    let Some(server) = keystone() else { return };
    let cloud = Client::new(config(&server.keystone_url, &[("OS_PASSWORD", "wrong")])).unwrap();
    let error = cloud.create_network(RequestId::random(), &NetworkCreate::default()).await.unwrap_err();
    assert_eq!((error.class(), error.call().operation), (Some(Class::Unauthorized), Operation::Authenticate));
    assert!(!error.is_uncertain() && !error.is_retryable());
    assert!(error.to_string().contains("Keystone answered 401, Unauthorized"), "{error}");
}

#[tokio::test]
async fn a_region_that_is_not_there_is_named_with_those_that_are() {
    let Some(server) = keystone() else { return };
    let cloud = Client::new(config(&server.keystone_url, &[("OS_REGION_NAME", "Atlantis")])).unwrap();
    let error = find(&cloud).await.unwrap_err();
    assert!(
        error.to_string().ends_with(r#"no public network service in region "Atlantis", only in: RegionOne"#),
        "{error}"
    );
    assert!(!error.is_retryable());
}

#[tokio::test]
async fn calls_at_once_sign_in_once_and_a_revoked_token_is_replaced() {
    let Some(server) = keystone() else { return };
    let (front, door) = (Proxy::start(&server.url).await, Proxy::start(&server.keystone_url).await);
    let config = config(&format!("{}/v3", door.url), &[]).with_endpoint(&front.url).unwrap();
    let cloud = Client::new(config).unwrap();
    let calls: Vec<_> = (0..8)
        .map(|_| {
            tokio::spawn({
                let cloud = cloud.clone();
                async move { find(&cloud).await }
            })
        })
        .collect();
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap(), 0);
    }
    assert_eq!(door.seen().len(), 1, "sign-ins");

    let token = front.seen()[0].header("X-Auth-Token").unwrap().to_owned();
    let headers = format!("X-Auth-Token: {token}\r\nX-Subject-Token: {token}\r\n");
    assert_eq!(wire::send("DELETE", &format!("{}/auth/tokens", server.keystone_url), &headers, "").await.0, 204);
    assert_eq!(find(&cloud).await.unwrap(), 0);
    assert_eq!(door.seen().len(), 2, "sign-ins");
    assert_ne!(front.seen().last().unwrap().header("X-Auth-Token"), Some(token.as_str()));
}

#[tokio::test]
async fn an_application_credential_opens_the_cloud() {
    let Some(server) = keystone() else { return };
    let sign_in = r#"{"auth":{"identity":{"methods":["password"],"password":{"user":{"name":"admin","domain":{"id":"default"},"password":"secret"}}},"scope":{"project":{"name":"admin","domain":{"id":"default"}}}}}"#;
    let json = "Content-Type: application/json\r\n";
    let (_, head, body) = wire::send("POST", &format!("{}/auth/tokens", server.keystone_url), json, sign_in).await;
    let token = head
        .lines()
        .find_map(|line| line.split_once(": ").filter(|(name, _)| name.eq_ignore_ascii_case("x-subject-token")));
    let user = user_id(&body);
    let wanted = r#"{"application_credential":{"name":"steersman","secret":"s3cret"}}"#;
    let headers = format!("{json}X-Auth-Token: {}\r\n", token.unwrap().1);
    let url = format!("{}/users/{user}/application_credentials", server.keystone_url);
    let (status, _, body) = wire::send("POST", &url, &headers, wanted).await;
    assert_eq!(status, 201, "{url} {body}");

    let named = [
        ("OS_AUTH_TYPE", "v3applicationcredential"),
        ("OS_APPLICATION_CREDENTIAL_NAME", "steersman"),
        ("OS_APPLICATION_CREDENTIAL_SECRET", "s3cret"),
    ];
    let cloud = Client::new(config(&server.keystone_url, &named)).unwrap();
    assert_eq!(find(&cloud).await.unwrap(), 0);
}

/// The id of the user of the token.
fn user_id(token: &str) -> String {
    let parsed: serde_json::Value = serde_json::from_str(token).unwrap();
    parsed["token"]["user"]["id"].as_str().unwrap().to_owned()
}

/// A Keystone whose tokens are valid for an hour, and whose catalog has itself as Neutron; its n-th token is `token-n`.
async fn fake(works: Arc<AtomicBool>) -> Scripted {
    let n_tokens = AtomicUsize::new(0);
    Scripted::start(move |request| {
        let host = request.header("host").unwrap();
        if !request.target.ends_with("/auth/tokens") {
            return answer(200, r#"{"networks":[]}"#);
        }
        if !works.load(Ordering::Relaxed) {
            return answer(503, "");
        }
        let n = n_tokens.fetch_add(1, Ordering::Relaxed) + 1;
        let body = format!(
            r#"{{"token":{{"issued_at":"2001-01-01T00:00:00.000000Z","expires_at":"2001-01-01T01:00:00.000000Z",
            "catalog":[{{"type":"network","endpoints":[{{"interface":"public","region_id":"R","url":"http://{host}"}}]}}]}}}}"#
        );
        Reply::Answer(201, format!("X-Subject-Token: token-{n}\r\n"), body)
    })
    .await
}

fn tokens_used(server: &Scripted) -> Vec<String> {
    server.seen().iter().filter_map(|request| request.header("x-auth-token")).map(str::to_owned).collect()
}

async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_token_is_renewed_before_it_ends() {
    let works = Arc::new(AtomicBool::new(true));
    let server = fake(works.clone()).await;
    let cloud = Client::new(config(&server.url, &[])).unwrap();
    find(&cloud).await.unwrap();
    pass(Duration::from_secs(54 * 60)).await;
    find(&cloud).await.unwrap();
    assert_eq!(tokens_used(&server), ["token-1", "token-1"]);

    pass(Duration::from_secs(2 * 60)).await;
    works.store(false, Ordering::Relaxed);
    find(&cloud).await.unwrap();
    find(&cloud).await.unwrap();
    let sign_ins = server.seen().iter().filter(|request| request.method == "POST").count();
    assert_eq!(sign_ins, 2, "a failed early renewal is not repeated at once");
    assert_eq!(tokens_used(&server).last().unwrap(), "token-1");

    works.store(true, Ordering::Relaxed);
    pass(Duration::from_secs(11)).await;
    find(&cloud).await.unwrap();
    assert_eq!(tokens_used(&server).last().unwrap(), "token-2");
}

#[tokio::test]
async fn when_keystone_is_away_and_the_token_has_ended_nothing_is_sent() {
    let works = Arc::new(AtomicBool::new(true));
    let server = fake(works.clone()).await;
    let cloud = Client::new(config(&server.url, &[])).unwrap();
    find(&cloud).await.unwrap();
    works.store(false, Ordering::Relaxed);
    pass(Duration::from_secs(61 * 60)).await;
    let error = cloud.create_network(RequestId::random(), &NetworkCreate::default()).await.unwrap_err();
    assert_eq!((error.class(), error.call().operation), (Some(Class::Unavailable), Operation::Authenticate));
    assert!(error.is_retryable() && !error.is_uncertain());
    assert_eq!(tokens_used(&server).len(), 1);
}
