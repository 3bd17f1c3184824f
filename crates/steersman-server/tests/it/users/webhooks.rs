//! Webhooks that authorize, authenticate, and receive audit logs: a real TLS server, and the effects of its answers.

use crate::support::{CONFIGS, Options, TestServer, allow_all, options, text};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use steersman_server::audit::webhook::Sender;
use steersman_server::audit::{self, Audit, Policy, Sink as _};
use steersman_server::authn;
use steersman_server::authz::{Authorization, FailurePolicy, Mode, ReviewVersion, Webhook, WebhookSettings};
use steersman_server::webhook::{Client, read_kubeconfig};
use steersman_storage::{Memory, Store};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, crypto};

/// Answers a review.
type Answers = fn(&Value) -> Response<String>;

/// A review, and the header `Authorization` that came with it.
type Asked = (Value, Option<String>);

/// A webhook, which only accepts callers with a certificate of its authority.
struct Hook {
    address: SocketAddr,
    /// The reviews that it has received.
    asked: Arc<Mutex<Vec<Asked>>>,
    dir: TempDir,
}

struct Pair {
    certificate: String,
    key: String,
}

/// An authority, and certificates that it has signed for a server and a client.
fn pairs() -> (String, Pair, Pair) {
    let key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = authority.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(authority, key);
    let pair = |names: &[&str], usage| {
        let key = KeyPair::generate().unwrap();
        let names = names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages = vec![usage];
        Pair { certificate: params.signed_by(&key, &issuer).unwrap().pem(), key: key.serialize_pem() }
    };
    let server = pair(&["hook.test"], ExtendedKeyUsagePurpose::ServerAuth);
    (certificate, server, pair(&["caller"], ExtendedKeyUsagePurpose::ClientAuth))
}

impl Hook {
    async fn start(answers: Answers) -> Hook {
        let (authority, server, client) = pairs();
        let provider = Arc::new(crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone()).build().unwrap();
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(server.certificate.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(server.key.as_bytes()).unwrap(),
            )
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = asked.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, log) = (acceptor.clone(), log.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(|request: Request<Incoming>| {
                        let log = log.clone();
                        async move {
                            let (head, body) = request.into_parts();
                            let body = body.collect().await.unwrap().to_bytes();
                            let review: Value = serde_json::from_slice(&body).unwrap();
                            let header = head.headers.get("authorization");
                            let header = header.map(|value| value.to_str().unwrap().to_owned());
                            let answer = answers(&review);
                            log.lock().unwrap().push((review, header));
                            Ok::<_, Infallible>(answer.map(|text| Full::new(Bytes::from(text))))
                        }
                    });
                    let _ =
                        auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [("ca.pem", &authority), ("cert.pem", &client.certificate), ("key.pem", &client.key)] {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        Hook { address, asked, dir }
    }

    /// A kubeconfig that names the webhook. Files are relative to it.
    fn kubeconfig(&self, user: &str) -> PathBuf {
        let path = self.dir.path().join("kubeconfig");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: h, user: u}}}}]\n\
             clusters: [{{name: h, cluster: {{server: 'https://{}/authorize', certificate-authority: ca.pem, tls-server-name: hook.test}}}}]\n\
             users: [{{name: u, user: {{{user}}}}}]\n",
            self.address
        );
        std::fs::write(&path, text).unwrap();
        path
    }

    fn client(&self) -> Client {
        let kubeconfig = self.kubeconfig("client-certificate: cert.pem, client-key: key.pem, token: secret");
        Client::new(read_kubeconfig(&kubeconfig).unwrap()).unwrap()
    }

    fn mode(&self, settings: WebhookSettings) -> Mode {
        Mode::Other(Arc::new(Webhook::new(self.client(), settings)))
    }

    /// A server whose audit log goes to the webhook.
    async fn audited(&self, settings: audit::webhook::Settings) -> (TestServer, Arc<audit::webhook::Webhook>, Sender) {
        let (sink, sender) = audit::webhook::Webhook::start(self.client(), settings);
        let sink = Arc::new(sink);
        let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]";
        let audit = Some(Audit::new(Policy::parse(policy).unwrap(), sink.clone()));
        let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await.unwrap();
        let test = TestServer::of(store.clone(), Options { audit, ..options(&store, allow_all()) }).await;
        (test, sink, sender)
    }

    async fn test(&self, before: Option<Mode>, settings: WebhookSettings) -> TestServer {
        let modes = before.into_iter().chain([self.mode(settings)]).collect();
        TestServer::with(steersman_storage::Options::default(), Authorization::Modes(modes)).await
    }

    fn n_asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

fn status(status: &Value) -> Response<String> {
    Response::new(
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "status": status}).to_string(),
    )
}

/// Allows alice, denies bob, and has no opinion on others.
fn by_name(review: &Value) -> Response<String> {
    match review["spec"]["user"].as_str() {
        Some("alice") => status(&json!({"allowed": true, "reason": "it is alice"})),
        Some("bob") => status(&json!({"allowed": false, "denied": true, "reason": "it is bob"})),
        _ => status(&json!({"allowed": false, "reason": "who is it?"})),
    }
}

#[tokio::test]
async fn a_webhook_is_asked_in_turn_and_its_verdict_is_remembered() {
    let hook = Hook::start(by_name).await;
    let test = hook.test(Some(Mode::Rbac), WebhookSettings::default()).await;
    // The webhook is not asked: roles and bindings allow the path to all, and masters may do everything.
    assert_eq!(test.http_as("bob").get("/version").await.code, 200);
    assert_eq!(test.http().get(CONFIGS).await.code, 200);
    assert_eq!(hook.n_asked(), 0);
    for _ in 0..2 {
        assert_eq!(
            test.http_as("alice")
                .get(&format!("{CONFIGS}?fieldSelector=metadata.name%21%3Da&labelSelector=b+in+(c,d),e"))
                .await
                .code,
            200
        );
        let bob = test.http_as("bob").get(CONFIGS).await;
        assert!(text(&bob.json(), "/message").ends_with("in the namespace \"default\": it is bob"), "{bob:?}");
        let carol = test.http_as("carol").get("/metrics").await;
        assert!(text(&carol.json(), "/message").ends_with("cannot get path \"/metrics\": who is it?"), "{carol:?}");
    }
    let asked = hook.asked.lock().unwrap().clone();
    let requirements = |list: Value| json!({"requirements": list});
    let resource = json!({
        "verb": "list", "version": "v1", "resource": "configmaps", "namespace": "default",
        "fieldSelector": requirements(json!([{"key": "metadata.name", "operator": "NotIn", "values": ["a"]}])),
        "labelSelector": requirements(json!([
            {"key": "b", "operator": "In", "values": ["c", "d"]}, {"key": "e", "operator": "Exists"},
        ])),
    });
    let groups = json!(["system:authenticated"]);
    assert_eq!(asked.len(), 3, "{asked:?}");
    assert_eq!(asked[0].0["spec"], json!({"user": "alice", "groups": groups, "resourceAttributes": resource}));
    assert_eq!(
        (text(&asked[0].0, "/apiVersion"), asked[0].1.as_deref()),
        ("authorization.k8s.io/v1", Some("Bearer secret"))
    );
    let path = json!({"path": "/metrics", "verb": "get"});
    assert_eq!(asked[2].0["spec"], json!({"user": "carol", "groups": groups, "nonResourceAttributes": path}));
}

#[tokio::test]
async fn nothing_is_remembered_for_no_time_and_the_older_review_has_its_own_name_for_groups() {
    let hook = Hook::start(by_name).await;
    let settings = WebhookSettings {
        authorized_ttl: std::time::Duration::ZERO,
        version: ReviewVersion::V1Beta1,
        ..WebhookSettings::default()
    };
    let test = hook.test(None, settings).await;
    for _ in 0..2 {
        assert_eq!(test.http_as("alice").get(CONFIGS).await.code, 200);
    }
    let asked = hook.asked.lock().unwrap().clone();
    assert_eq!(asked.len(), 2);
    let (review, _) = &asked[0];
    assert_eq!(
        (text(review, "/apiVersion"), text(review, "/spec/group/0")),
        ("authorization.k8s.io/v1beta1", "system:authenticated")
    );
    assert_eq!(review["spec"].get("groups"), None);
}

#[tokio::test]
async fn a_webhook_that_fails_has_no_opinion_unless_it_must_deny() {
    let hook = Hook::start(|_| Response::new("no review".to_owned())).await;
    let review = json!({"spec": {"user": "alice", "resourceAttributes": {"verb": "get", "resource": "pods"}}});
    for (failure_policy, is_denied, then_allowed) in
        [(FailurePolicy::NoOpinion, false, 200), (FailurePolicy::Deny, true, 500)]
    {
        let settings = || WebhookSettings { failure_policy, ..WebhookSettings::default() };
        let test = hook.test(None, settings()).await;
        assert_eq!(test.http_as("alice").get(CONFIGS).await.refusal(), (500, "InternalError".to_owned()));
        let reviewed = test.http().post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review).await.ok();
        let status = &reviewed["status"];
        assert_eq!((&status["allowed"], status["denied"] == true), (&json!(false), is_denied));
        assert!(text(status, "/evaluationError").contains("answers no SubjectAccessReview"), "{status}");
        // If the webhook has no opinion, the next authorizer is asked.
        let modes = Authorization::Modes(vec![hook.mode(settings()), Mode::AlwaysAllow]);
        let test = TestServer::with(steersman_storage::Options::default(), modes).await;
        assert_eq!(test.http_as("alice").get(CONFIGS).await.code, then_allowed);
    }
}

#[tokio::test]
async fn a_webhook_that_is_busy_is_asked_again() {
    fn busy_once(review: &Value) -> Response<String> {
        static N: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        if N.fetch_add(1, std::sync::atomic::Ordering::Relaxed) > 0 {
            return by_name(review);
        }
        Response::builder().status(429).body("later".to_owned()).unwrap()
    }
    let hook = Hook::start(busy_once).await;
    let test = hook.test(None, WebhookSettings::default()).await;
    assert_eq!(test.http_as("alice").get(CONFIGS).await.code, 200);
    assert_eq!(hook.n_asked(), 2);
}

#[tokio::test]
async fn a_webhook_knows_its_callers_and_they_know_it() {
    let hook = Hook::start(by_name).await;
    let post = async |hook: &Hook, user: &str| {
        let client = Client::new(read_kubeconfig(&hook.kubeconfig(user)).unwrap()).unwrap();
        let answer = client.post(Bytes::from_static(b"{}"), std::time::Duration::from_secs(10)).await;
        answer.map(|_| ()).map_err(|error| error.to_string())
    };
    let known = "client-certificate: cert.pem, client-key: key.pem";
    assert_eq!(post(&hook, known).await, Ok(()));
    assert!(post(&hook, "").await.unwrap_err().contains("cannot be reached"));
    // A webhook of the same name whose authority is another one.
    let other = Hook::start(by_name).await;
    std::fs::copy(hook.dir.path().join("ca.pem"), other.dir.path().join("ca.pem")).unwrap();
    assert!(post(&other, known).await.unwrap_err().contains("certificate"));
    // A token file is read for each call.
    std::fs::write(hook.dir.path().join("token"), "first\n").unwrap();
    let with_file = read_kubeconfig(&hook.kubeconfig(&format!("{known}, tokenFile: token"))).unwrap();
    let client = Client::new(with_file).unwrap();
    for token in ["first", "second"] {
        std::fs::write(hook.dir.path().join("token"), token).unwrap();
        client.post(Bytes::from_static(b"{}"), std::time::Duration::from_secs(10)).await.unwrap();
        let last = hook.asked.lock().unwrap().last().unwrap().1.clone();
        assert_eq!(last, Some(format!("Bearer {token}")));
    }
    let plain = hook.kubeconfig(known);
    let text = std::fs::read_to_string(&plain).unwrap().replace("https:", "http:");
    std::fs::write(&plain, text).unwrap();
    let error = Client::new(read_kubeconfig(&plain).unwrap()).unwrap_err();
    assert!(error.to_string().contains("want https://"), "{error}");
}

#[tokio::test]
async fn what_a_webhook_says_of_a_token_is_remembered_unless_it_failed() {
    fn knows(review: &Value) -> Response<String> {
        match review["spec"]["token"].as_str() {
            Some("jane") => status(&json!({"authenticated": true, "user": {"username": "jane"}})),
            Some("broken") => status(&json!({"error": "no connection to the directory"})),
            _ => status(&json!({"authenticated": false})),
        }
    }
    let hook = Hook::start(knows).await;
    let webhook = authn::Webhook::new(hook.client(), authn::WebhookSettings::default());
    let test = TestServer::authenticating(authn::Options { webhook: Some(webhook), ..authn::Options::default() }).await;
    let review = async |token: &str| {
        let review = json!({"spec": {"token": token}});
        test.http().post("/apis/authentication.k8s.io/v1/tokenreviews", &review).await.json()["status"].clone()
    };
    for _ in 0..2 {
        assert_eq!(review("jane").await["user"]["username"], "jane");
        assert_eq!(review("joe").await["error"], "invalid bearer token");
    }
    assert_eq!(hook.n_asked(), 2);
    for _ in 0..2 {
        let failed = review("broken").await;
        assert_eq!(failed["error"], "[invalid bearer token, no connection to the directory]");
    }
    assert_eq!(hook.n_asked(), 4, "what has failed may work the next time");
}

#[tokio::test]
async fn what_a_webhook_says_of_a_token_counts_for_no_other_token() {
    fn knows(review: &Value) -> Response<String> {
        let is_known = review["spec"]["token"] == "jane";
        let user = if is_known { json!({"username": "jane"}) } else { json!({}) };
        status(&json!({"authenticated": is_known, "user": user, "audiences": ["vault"]}))
    }
    let hook = Hook::start(knows).await;
    let webhook = authn::Webhook::new(hook.client(), authn::WebhookSettings::default());
    let test = TestServer::authenticating(authn::Options { webhook: Some(webhook), ..authn::Options::default() }).await;
    let review = async |token: &str, audiences: &[&str]| {
        let review = json!({"spec": {"token": token, "audiences": audiences}});
        test.http().post("/apis/authentication.k8s.io/v1/tokenreviews", &review).await.json()["status"].clone()
    };
    assert_eq!(review("jane", &["vault", "other"]).await["audiences"], json!(["vault"]));
    assert_eq!(review("jane vault", &["other"]).await["authenticated"], Value::Null);
}

#[tokio::test]
async fn audit_events_are_sent_in_lists() {
    let hook = Hook::start(|_| Response::new(String::new())).await;
    let (test, sink, sender) = hook.audited(audit::webhook::Settings::default()).await;
    for name in ["a", "b"] {
        assert_eq!(test.http_as("alice").get(&format!("{CONFIGS}/{name}")).await.code, 404);
    }
    assert_eq!(hook.n_asked(), 0, "events wait for others");
    sender.close().await;
    let asked = hook.asked.lock().unwrap().clone();
    let [(list, credentials)] = asked.as_slice() else { panic!("{asked:?}") };
    assert_eq!(credentials.as_deref(), Some("Bearer secret"));
    assert_eq!((text(list, "/kind"), text(list, "/apiVersion")), ("EventList", "audit.k8s.io/v1"));
    let items = list["items"].as_array().unwrap();
    let said: Vec<_> = items.iter().map(|event| (text(event, "/objectRef/name"), text(event, "/stage"))).collect();
    let want =
        [("a", "RequestReceived"), ("a", "ResponseComplete"), ("b", "RequestReceived"), ("b", "ResponseComplete")];
    assert_eq!(said, want);
    assert!(items.iter().all(|event| text(event, "/user/username") == "alice"));
    assert_eq!(sink.n_failed(), 0);
}

#[tokio::test]
async fn a_full_batch_is_sent_at_once() {
    let hook = Hook::start(|_| Response::new(String::new())).await;
    let settings = audit::webhook::Settings { batch_max_size: 2, ..audit::webhook::Settings::default() };
    let (test, _, sender) = hook.audited(settings).await;
    assert_eq!(test.http_as("alice").get(&format!("{CONFIGS}/a")).await.code, 404);
    while hook.n_asked() == 0 {
        tokio::task::yield_now().await;
    }
    sender.close().await;
    assert_eq!(hook.n_asked(), 1);
}

#[tokio::test]
async fn a_request_waits_for_an_audit_webhook_that_blocks() {
    let hook = Hook::start(|_| Response::new(String::new())).await;
    let settings = audit::webhook::Settings { is_blocking: true, ..audit::webhook::Settings::default() };
    let (test, _, _sender) = hook.audited(settings).await;
    assert_eq!(test.http_as("alice").get(&format!("{CONFIGS}/a")).await.code, 404);
    assert_eq!(hook.n_asked(), 2, "each stage was sent before the answer");
}

#[tokio::test]
async fn a_client_that_goes_away_while_the_audit_webhook_is_called_takes_no_event_with_it() {
    let hook = Hook::start(|_| Response::new(String::new())).await;
    let settings = audit::webhook::Settings { is_blocking: true, ..audit::webhook::Settings::default() };
    let (test, _, sender) = hook.audited(settings).await;
    const N_REQUESTS: usize = 100;
    for n_polls in 0..N_REQUESTS {
        let (http, path) = (test.http_as("alice"), format!("{CONFIGS}/a{n_polls}"));
        let mut request = std::pin::pin!(http.get(&path));
        // Each client disconnects a little later than the one before.
        for _ in 0..=n_polls {
            if futures::poll!(&mut request).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    sender.close().await;
    let asked = hook.asked.lock().unwrap();
    let events = asked.iter().flat_map(|(list, _)| list["items"].as_array().unwrap());
    let mut said: Vec<_> = events.map(|event| (text(event, "/objectRef/name"), text(event, "/stage"))).collect();
    said.sort_unstable();
    let names: Vec<String> = (0..N_REQUESTS).map(|n_polls| format!("a{n_polls}")).collect();
    let mut want: Vec<(&str, &str)> = Vec::new();
    for name in &names {
        want.extend([(name.as_str(), "RequestReceived"), (name.as_str(), "ResponseComplete")]);
    }
    want.sort_unstable();
    assert_eq!(said, want);
}

#[tokio::test]
async fn requests_are_answered_though_the_audit_webhook_fails() {
    let hook = Hook::start(|_| Response::builder().status(400).body("no".to_owned()).unwrap()).await;
    let settings = audit::webhook::Settings { buffer_size: 3, ..audit::webhook::Settings::default() };
    let (test, sink, sender) = hook.audited(settings).await;
    let metric = async || {
        let metrics = test.http().get("/metrics").await.body_text();
        let line = metrics.lines().find(|line| line.starts_with("apiserver_audit_error_total"));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).unwrap()
    };
    for _ in 0..8 {
        assert_eq!(test.http_as("alice").get(&format!("{CONFIGS}/a")).await.code, 404);
    }
    assert!(metric().await > 0, "what finds no room is counted");
    sender.close().await;
    assert!(sink.n_failed() > 0, "what the webhook refuses is counted");
}
