//! Servers of webhooks with self-signed certificates: real sockets on loopback, a real API server for the Secret and
//! the configurations, and for the calls a client that trusts only the certificates in `caBundle`.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{Patch, PatchParams};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use steersman::health::{Endpoints, Health};
use steersman::metrics::{Metrics, MetricsFormat};
use steersman::webhook::{Admission, Certificates, Denial, SelfSigned, ServeError, Server, Webhooks};
use steersman::{Manager, ManagerError, ObjectKey};
use steersman_testkit::{ControlPlane, Fault};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

const DAY: u64 = 24 * 3_600;

/// A clock that the test moves.
#[derive(Clone, Debug)]
struct Clock(Arc<AtomicU64>);

impl Clock {
    fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Self(Arc::new(AtomicU64::new(now.as_secs())))
    }

    fn advance(&self, days: u64) {
        self.0.fetch_add(days * DAY, Ordering::Relaxed);
    }

    fn now(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::Relaxed))
    }
}

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(self.now()))
    }
}

/// Calls webhooks like an API server that trusts this bundle.
struct Caller(Client<HttpsConnector<HttpConnector>, Full<Bytes>>);

impl Caller {
    fn new(bundle: &[u8], clock: &Clock) -> Self {
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(bundle) {
            roots.add(authority.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_details(provider, Arc::new(clock.clone()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_all_versions().build();
        Self(Client::builder(TokioExecutor::new()).build(connector))
    }

    async fn ask(&self, address: SocketAddr, name: &str) -> Result<Value, hyper_util::client::legacy::Error> {
        let gvk = json!({"group": "", "version": "v1", "kind": "ConfigMap"});
        let gvr = json!({"group": "", "version": "v1", "resource": "configmaps"});
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "1", "kind": gvk, "resource": gvr, "name": name, "operation": "CREATE", "object": object}});
        let request = Request::post(format!("https://{address}/label?timeout=10s"))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::from(review.to_string()))
            .unwrap();
        let (status, body) = self.send(request).await?;
        assert_eq!(status, StatusCode::OK, "{body}");
        Ok(serde_json::from_str(&body).unwrap())
    }

    async fn get(&self, address: SocketAddr, path: &str) -> (StatusCode, String) {
        let request = Request::get(format!("https://{address}{path}")).body(Full::default()).unwrap();
        self.send(request).await.unwrap()
    }

    async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, String), hyper_util::client::legacy::Error> {
        let response = self.0.request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        Ok((status, String::from_utf8(body.to_vec()).unwrap()))
    }
}

#[derive(Default)]
struct Gate {
    asked: Notify,
    released: Notify,
}

/// Labels a ConfigMap; the one with the name `slow` only after it is released.
async fn label(mut config: ConfigMap, _: &Admission<ConfigMap>, gate: &Arc<Gate>) -> Result<ConfigMap, Denial> {
    if config.metadata.name.as_deref() == Some("slow") {
        gate.asked.notify_one();
        gate.released.notified().await;
    }
    config.metadata.labels.get_or_insert_default().insert("seen".to_owned(), "yes".to_owned());
    Ok(config)
}

fn bind(certificates: impl Into<Certificates>) -> (Server, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let webhooks = Webhooks::new().mutate("/label", label, Arc::clone(&gate));
    (webhooks.bind(SocketAddr::from(([127, 0, 0, 1], 0)), certificates).unwrap(), gate)
}

/// Certificates of one operator, valid for a month each, by an authority that is valid for ten.
fn certificates(plane: &ControlPlane, clock: &Clock) -> SelfSigned {
    let clock = clock.clone();
    SelfSigned::new(plane.client(), "default", "hook-certificate")
        .service("default", "hook")
        .host("127.0.0.1")
        .mutating("hook")
        .validating("hook")
        .definition("timers.example.com")
        .lasts(Duration::from_secs(30 * DAY), Duration::from_secs(300 * DAY))
        .overlap(Duration::from_secs(DAY))
        .clock(move || UNIX_EPOCH + clock.now())
}

const CONFIGURATIONS: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: hook}
webhooks:
- name: own.example.com
  clientConfig: {service: {namespace: default, name: hook, path: /label}}
  rules: [{apiGroups: [example.com], apiVersions: [v1], resources: [timers], operations: [CREATE]}]
  sideEffects: None
  admissionReviewVersions: [v1]
- name: other.example.com
  clientConfig: {service: {namespace: default, name: other}, caBundle: bm90IG91cnM=}
  rules: [{apiGroups: [example.com], apiVersions: [v1], resources: [timers], operations: [CREATE]}]
  sideEffects: None
  admissionReviewVersions: [v1]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: hook}
webhooks:
- name: own.example.com
  clientConfig: {url: 'https://127.0.0.1:9443/check'}
  rules: [{apiGroups: [example.com], apiVersions: [v1], resources: [timers], operations: [CREATE]}]
  sideEffects: None
  admissionReviewVersions: [v1]
";

const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: timers.example.com}
spec:
  group: example.com
  names: {kind: Timer, plural: timers}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
  - {name: v1beta1, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}
  conversion:
    strategy: Webhook
    webhook:
      conversionReviewVersions: [v1]
      clientConfig: {service: {namespace: default, name: hook, path: /convert}}
";

/// The bundle of our entry in the MutatingWebhookConfiguration, once `fits` accepts it.
async fn mutating_bundle(plane: &ControlPlane, fits: impl Fn(&str) -> bool) -> Vec<u8> {
    let bundle = |hook: &MutatingWebhookConfiguration| {
        hook.webhooks.as_ref().unwrap()[0].client_config.ca_bundle.clone().unwrap_or_default().0
    };
    let key = ObjectKey::cluster("hook");
    bundle(&plane.until(&key, |hook| fits(std::str::from_utf8(&bundle(hook)).unwrap())).await)
}

async fn definition_bundle(plane: &ControlPlane) -> Vec<u8> {
    let bundle = |definition: &CustomResourceDefinition| {
        let conversion = definition.spec.conversion.clone()?;
        Some(conversion.webhook?.client_config?.ca_bundle?.0)
    };
    let key = ObjectKey::cluster("timers.example.com");
    bundle(&plane.until(&key, |definition| bundle(definition).is_some()).await).unwrap()
}

async fn secret(plane: &ControlPlane, fits: impl Fn(&BTreeMap<String, ByteString>) -> bool) -> Secret {
    let key = ObjectKey::namespaced("default", "hook-certificate");
    plane.until(&key, |secret: &Secret| secret.data.as_ref().is_some_and(&fits)).await
}

/// Changes the Secret, so that its watchers check their clocks.
async fn touch(plane: &ControlPlane, value: &str) {
    let api: Api<Secret> = Api::namespaced(plane.client(), "default");
    let patch = json!({"metadata": {"annotations": {"touched": value}}});
    api.patch("hook-certificate", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

fn n_certificates(bundle: &str) -> usize {
    bundle.matches("BEGIN CERTIFICATE").count()
}

fn start(server: Server) -> (SocketAddr, oneshot::Sender<()>, JoinHandle<Result<(), ServeError>>) {
    let address = server.address();
    let (shutdown, asked) = oneshot::channel();
    (address, shutdown, tokio::spawn(server.run(async { drop(asked.await) })))
}

#[tokio::test]
async fn replicas_share_a_certificate_and_make_it_known_in_their_own_entries() {
    let plane = ControlPlane::start().await;
    let clock = Clock::new();
    plane.apply(CONFIGURATIONS).await;
    let servers: Vec<_> = (0..3).map(|_| start(bind(certificates(&plane, &clock)).0)).collect();
    let bundle = mutating_bundle(&plane, |bundle| !bundle.is_empty()).await;
    let caller = Caller::new(&bundle, &clock);
    for (address, ..) in &servers {
        let answer = caller.ask(*address, "a").await.unwrap();
        assert_eq!(
            (&answer["response"]["allowed"], &answer["response"]["patchType"]),
            (&json!(true), &json!("JSONPatch"))
        );
    }
    // Somebody applies the definition later, without a bundle.
    plane.apply(DEFINITION).await;
    assert_eq!(definition_bundle(&plane).await, bundle);
    let own = |hook: &ValidatingWebhookConfiguration| {
        hook.webhooks.as_ref().unwrap()[0].client_config.ca_bundle.as_ref().is_some_and(|own| own.0 == bundle)
    };
    plane.until(&ObjectKey::cluster("hook"), own).await;
    let hook: MutatingWebhookConfiguration = Api::all(plane.client()).get("hook").await.unwrap();
    assert_eq!(hook.webhooks.unwrap()[1].client_config.ca_bundle.as_ref().unwrap().0, b"not ours");
    // A bundle that is overwritten is restored.
    let api: Api<MutatingWebhookConfiguration> = Api::all(plane.client());
    let patch = json!([{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": "bG9zdA=="}]);
    let patch = Patch::Json::<()>(serde_json::from_value(patch).unwrap());
    api.patch("hook", &PatchParams::default(), &patch).await.unwrap();
    mutating_bundle(&plane, |now| now.as_bytes() == bundle).await;
    assert_eq!(secret(&plane, |_| true).await.data.unwrap()["ca.crt"].0, bundle);
    for (_, shutdown, task) in servers {
        shutdown.send(()).unwrap();
        task.await.unwrap().unwrap();
    }
    plane.stop().await;
}

#[tokio::test]
async fn no_call_fails_while_certificate_and_authority_are_replaced() {
    let plane = ControlPlane::start().await;
    let clock = Clock::new();
    plane.apply(CONFIGURATIONS).await;
    let servers: Vec<_> = (0..2).map(|_| start(bind(certificates(&plane, &clock)).0)).collect();
    let first = mutating_bundle(&plane, |bundle| n_certificates(bundle) == 1).await;
    let old_leaf = secret(&plane, |_| true).await.data.unwrap()["tls.crt"].clone();
    // A client with any of these bundles must be able to call at any time during the rotation.
    let ask_all = async |bundle: &[u8]| {
        for (address, ..) in &servers {
            Caller::new(bundle, &clock).ask(*address, "a").await.unwrap();
        }
    };
    ask_all(&first).await;

    // The certificate is renewed with the same authority.
    clock.advance(25);
    touch(&plane, "1").await;
    let renewed = secret(&plane, |data| data["tls.crt"] != old_leaf).await.data.unwrap();
    assert_eq!(renewed["ca.crt"].0, first);
    ask_all(&first).await;

    // The next authority is published, and does not sign yet.
    clock.advance(180);
    touch(&plane, "2").await;
    let second = mutating_bundle(&plane, |bundle| n_certificates(bundle) == 2).await;
    let key = ObjectKey::namespaced("default", "hook-certificate");
    let published = |secret: &Secret| {
        secret
            .metadata
            .annotations
            .as_ref()
            .is_some_and(|known| known.contains_key("steersman.dev/next-ca-published-at"))
    };
    let introduced = plane.until(&key, published).await.data.unwrap();
    assert!(second.starts_with(&first));
    ask_all(&first).await;
    ask_all(&second).await;

    // A day later it signs, and both are trusted until the first expires.
    clock.advance(1);
    touch(&plane, "3").await;
    let promoted = secret(&plane, |data| !data.contains_key("next-ca.crt")).await.data.unwrap();
    assert_eq!(promoted["ca.key"], introduced["next-ca.key"]);
    let third =
        mutating_bundle(&plane, |bundle| n_certificates(bundle) == 2 && !bundle.as_bytes().starts_with(&first)).await;
    ask_all(&second).await;
    ask_all(&third).await;
    for (_, shutdown, task) in servers {
        shutdown.send(()).unwrap();
        task.await.unwrap().unwrap();
    }
    plane.stop().await;
}

#[tokio::test]
async fn a_secret_of_somebody_else_is_left_alone_and_the_server_says_so() {
    let plane = ControlPlane::start().await;
    let foreign =
        "{kind: Secret, apiVersion: v1, metadata: {name: hook-certificate, namespace: default}, stringData: {a: b}}";
    plane.apply(foreign).await;
    let (server, _) = bind(certificates(&plane, &Clock::new()));
    let health = Health::new();
    let (_, shutdown, task) = start(server.with_health(health.clone()));
    let endpoints = Endpoints::bind(SocketAddr::from(([127, 0, 0, 1], 0)), health).unwrap();
    let address = endpoints.address();
    let serving = tokio::spawn(endpoints.serve(std::future::pending()));
    let plain: Client<HttpConnector, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let expected = "internal server error: the secret default/hook-certificate has other content than certificates of \
                    webhooks (it has no ca.crt): delete it, or choose another name\n";
    loop {
        let check = Request::get(format!("http://{address}/readyz/webhooks")).body(Full::default()).unwrap();
        let body = plain.request(check).await.unwrap().into_body().collect().await.unwrap().to_bytes();
        match std::str::from_utf8(&body).unwrap() {
            // The Secret was not read yet.
            "internal server error: no certificate yet\n" | "404 page not found\n" => {}
            text => break assert_eq!(text, expected),
        }
    }
    serving.abort();
    shutdown.send(()).unwrap();
    task.await.unwrap().unwrap();
    assert_eq!(secret(&plane, |_| true).await.data.unwrap().len(), 1);
    plane.stop().await;
}

#[tokio::test]
async fn a_manager_serves_webhooks_and_answers_what_is_under_way_at_its_end() {
    let plane = ControlPlane::start().await;
    let clock = Clock::new();
    plane.apply(CONFIGURATIONS).await;
    let (server, gate) = bind(certificates(&plane, &clock));
    let (address, metrics) = (server.address(), Metrics::new());
    let (shutdown, asked) = oneshot::channel::<()>();
    let manager = Manager::new(plane.client()).with_metrics(metrics.clone()).webhooks(server);
    let health = manager.health().clone();
    assert!(health.is_ready(), "there are no checks before it runs");
    let running = tokio::spawn(manager.run(async { drop(asked.await) }));
    let bundle = mutating_bundle(&plane, |bundle| !bundle.is_empty()).await;
    let caller = Caller::new(&bundle, &clock);
    caller.ask(address, "a").await.unwrap();
    let (status, checks) = caller.get(address, "/readyz?verbose").await;
    assert!(checks.contains("webhooks"), "{status} {checks}");
    assert_eq!(caller.get(address, "/healthz").await, (StatusCode::OK, "ok".to_owned()));
    assert_eq!(caller.get(address, "/metrics").await.0, StatusCode::NOT_FOUND);
    let text = metrics.encode(MetricsFormat::Prometheus);
    assert!(text.contains("steersman_webhook_calls_total{webhook=\"/label\",outcome=\"mutated\"} 1"), "{text}");
    assert!(text.contains("steersman_webhook_certificate_expiry_timestamp_seconds "), "{text}");

    let slow = tokio::spawn(async move { caller.ask(address, "slow").await });
    gate.asked.notified().await;
    shutdown.send(()).unwrap();
    // The port is closed before the call under way is answered.
    while tokio::net::TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(!running.is_finished() && !health.is_ready());
    gate.released.notify_one();
    assert_eq!(slow.await.unwrap().unwrap()["response"]["allowed"], true);
    running.await.unwrap().unwrap();
    plane.stop().await;
}

#[tokio::test]
async fn a_manager_ends_when_its_webhooks_have_no_certificate() {
    let plane = ControlPlane::start().await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tls.crt");
    let (server, _) = bind(Certificates::files(&path, directory.path().join("tls.key")));
    let error = Manager::new(plane.client()).webhooks(server).run(std::future::pending()).await.unwrap_err();
    let ManagerError::Task { task, source } = &error else { panic!("{error:?}") };
    assert_eq!(task, "webhooks");
    let cause = source.source().unwrap().to_string();
    assert_eq!(cause, format!("cannot read {}", path.display()));
    plane.stop().await;
}

#[tokio::test]
async fn a_server_that_lingers_answers_new_calls_while_it_is_not_ready() {
    let plane = ControlPlane::start().await;
    let clock = Clock::new();
    plane.apply(CONFIGURATIONS).await;
    let (server, _) = bind(certificates(&plane, &clock));
    let health = Health::new();
    let (address, shutdown, task) = start(server.linger(Duration::from_secs(3_600)).with_health(health.clone()));
    let bundle = mutating_bundle(&plane, |bundle| !bundle.is_empty()).await;
    shutdown.send(()).unwrap();
    while health.is_ready() {
        tokio::task::yield_now().await;
    }
    // A client that still has the address in its endpoints opens a connection.
    let answer = Caller::new(&bundle, &clock).ask(address, "a").await.unwrap();
    assert_eq!(answer["response"]["allowed"], true);
    assert!(!health.is_ready() && !task.is_finished());
    task.abort();
    plane.stop().await;
}

#[tokio::test]
async fn a_configuration_that_cannot_be_written_leaves_no_other_without_its_bundle() {
    let plane = ControlPlane::start().await;
    plane.apply(CONFIGURATIONS).await;
    plane.fail_next_where(1_000, Fault::Refused(500), |method, path| {
        method == Method::PUT && path.contains("/mutatingwebhookconfigurations/")
    });
    let (_, shutdown, task) = start(bind(certificates(&plane, &Clock::new())).0);
    let has_bundle =
        |hook: &ValidatingWebhookConfiguration| hook.webhooks.as_ref().unwrap()[0].client_config.ca_bundle.is_some();
    plane.until(&ObjectKey::cluster("hook"), has_bundle).await;
    let mutating: MutatingWebhookConfiguration = Api::all(plane.client()).get("hook").await.unwrap();
    assert!(mutating.webhooks.unwrap()[0].client_config.ca_bundle.is_none());
    shutdown.send(()).unwrap();
    task.await.unwrap().unwrap();
    plane.stop().await;
}
