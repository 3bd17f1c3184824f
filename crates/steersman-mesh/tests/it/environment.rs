//! A control plane with initializers, the document's configuration, and injectors.

use std::net::SocketAddr;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};
use steersman::health::Health;
use steersman::metrics::{Metrics, MetricsFormat};
use steersman::{Manager, ManagerError, ObjectKey};
use steersman_mesh::inject::{CONFIG_MAP, Certificate, Fragment, INITIALIZER, NAME, Options, Policy, WebhookOptions};
use steersman_testkit::ControlPlane;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) const CONFIG: &str = include_str!("../../../../manifests/mesh/envoy-config.yaml");
pub(crate) const MYAPP: &str = include_str!("../../../../manifests/mesh/myapp-pod.yaml");
/// How long something may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// The interval of questions about something of which no event comes.
const INTERVAL: Duration = Duration::from_millis(5);

pub(crate) struct Environment {
    pub(crate) plane: ControlPlane,
}

/// A running injector.
pub(crate) struct Injector {
    stop: CancellationToken,
    task: JoinHandle<Result<(), ManagerError>>,
    pub(crate) metrics: Metrics,
    pub(crate) webhook: Option<SocketAddr>,
    health: Health,
}

/// The ways in which an injector works.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ways {
    Both,
    Initializer,
    Webhook,
}

pub(crate) const DOCUMENT: &str = "containers: [{name: envoy, image: lyft/envoy, ports: [{containerPort: 80}], volumeMounts: [{name: envoy-conf, mountPath: /etc/envoy}]}]\nvolumes: [{name: envoy-conf, configMap: {name: envoy}}]\n";

impl Environment {
    /// A control plane with a ConfigMap that has the document's sidecar.
    pub(crate) async fn start() -> Environment {
        let environment = Environment::without_fragment().await;
        environment.fragment(DOCUMENT).await;
        environment
    }

    pub(crate) async fn without_fragment() -> Environment {
        let options = steersman_testkit::Options { initializers: true, ..Default::default() };
        Environment { plane: ControlPlane::try_start(options).await.unwrap() }
    }

    pub(crate) fn client(&self) -> Client {
        self.plane.client()
    }

    /// Writes the ConfigMap.
    pub(crate) async fn fragment(&self, text: &str) {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CONFIG_MAP}, "data": {"config": text}
        });
        self.plane.apply(&map.to_string()).await;
    }

    /// New Pods wait for the initializer.
    pub(crate) async fn initialize(&self) {
        self.plane.apply(CONFIG).await;
    }

    pub(crate) async fn inject(&self, ways: Ways) -> Injector {
        self.inject_as(self.client(), ways, options(ways)).await
    }

    /// Starts an injector, and waits until it can work.
    pub(crate) async fn inject_as(&self, client: Client, ways: Ways, options: Options) -> Injector {
        let (stop, metrics) = (CancellationToken::new(), Metrics::new());
        let manager = Manager::new(client).with_metrics(metrics.clone());
        let health = manager.health().clone();
        let prepared = steersman_mesh::inject::prepare(manager, options).unwrap();
        let webhook = prepared.webhook_address();
        let task = tokio::spawn(prepared.run(stop.clone().cancelled_owned()));
        let injector = Injector { stop, task, metrics, webhook, health };
        if ways != Ways::Initializer {
            self.call(NAME, injector.webhook.unwrap(), "/inject", "Fail").await;
            eventually("it is ready", async || injector.health.is_ready()).await;
        }
        injector
    }

    /// The API server calls a webhook for new Pods, whose authority is trusted when this returns.
    pub(crate) async fn call(&self, name: &str, address: SocketAddr, path: &str, policy: &str) {
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": name},
            "webhooks": [{
                "name": format!("{name}.example.com"), "clientConfig": {"url": format!("https://{address}{path}")},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
                "reinvocationPolicy": "IfNeeded", "sideEffects": "NoneOnDryRun", "failurePolicy": policy,
                "admissionReviewVersions": ["v1"],
            }],
        });
        self.plane.apply(&configuration.to_string()).await;
        let is_trusted = |hook: &MutatingWebhookConfiguration| {
            hook.webhooks.iter().flatten().all(|webhook| webhook.client_config.ca_bundle.is_some())
        };
        self.plane.until(&ObjectKey::cluster(name), is_trusted).await;
    }

    pub(crate) async fn no_longer_call(&self, name: &str) {
        let hooks = Api::<MutatingWebhookConfiguration>::all(self.client());
        hooks.delete(name, &Default::default()).await.unwrap();
    }

    pub(crate) fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client(), namespace)
    }

    /// Creates a Pod in a namespace, and returns it as the server has it.
    pub(crate) async fn create_in(&self, namespace: &str, pod: &Value) -> Result<Value, kube::Error> {
        let pod: Pod = serde_json::from_value(pod.clone()).unwrap();
        let made = self.pods(namespace).create(&PostParams::default(), &pod).await?;
        Ok(serde_json::to_value(made).unwrap())
    }

    pub(crate) async fn create(&self, pod: &Value) -> Result<Value, kube::Error> {
        self.create_in("default", pod).await
    }

    /// The message and the code with which a Pod is refused.
    pub(crate) async fn refused(&self, pod: &Value) -> (u16, String) {
        match self.create(pod).await {
            Err(kube::Error::Api(status)) => (status.code, status.message.clone()),
            other => panic!("not refused: {other:?}"),
        }
    }

    pub(crate) async fn delete(&self, name: &str) {
        let now = kube::api::DeleteParams { grace_period_seconds: Some(0), ..Default::default() };
        self.pods("default").delete(name, &now).await.unwrap();
        self.plane.until_gone::<Pod>(&ObjectKey::namespaced("default", name)).await;
    }

    /// All Events, as `kind/name reason: message`.
    pub(crate) async fn events(&self) -> Vec<String> {
        let events = Api::<Event>::all(self.client());
        let found = events.list(&Default::default()).await.unwrap().items.into_iter();
        let said = found.map(|event| {
            let object = event.involved_object;
            let text = Option::<String>::unwrap_or_default;
            let (kind, name) = (text(object.kind), text(object.name));
            format!("{kind}/{name} {}: {}", text(event.reason), text(event.message))
        });
        said.collect()
    }

    /// Creates a namespace with labels and its ServiceAccount.
    pub(crate) async fn namespace(&self, name: &str, labels: Value) {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
        self.plane.apply(&namespace.to_string()).await;
        let account =
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}});
        self.plane.apply(&account.to_string()).await;
    }

    /// Waits for an Event, as `kind/name reason: message`.
    pub(crate) async fn until_event(&self, wanted: &str) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        let mut ticks = tokio::time::interval(INTERVAL);
        loop {
            ticks.tick().await;
            let seen = self.events().await;
            if seen.iter().any(|event| event == wanted) {
                return;
            }
            assert!(tokio::time::Instant::now() < deadline, "no Event {wanted:?} among {seen:#?}");
        }
    }
}

pub(crate) fn options(ways: Ways) -> Options {
    let certificate = Certificate::SelfSigned {
        secret: ObjectKey::namespaced("default", "mesh-injector-webhook"),
        configuration: NAME.to_owned(),
        services: Vec::new(),
        hosts: vec!["127.0.0.1".to_owned()],
    };
    let webhook =
        WebhookOptions { address: SocketAddr::from(([127, 0, 0, 1], 0)), certificate, linger: Duration::ZERO };
    Options {
        config_map: ObjectKey::namespaced("default", CONFIG_MAP),
        policy: Policy::default(),
        initializer: ways != Ways::Webhook,
        webhook: (ways != Ways::Initializer).then_some(webhook),
        lease_namespace: None,
    }
}

impl Injector {
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }

    /// Ends it like a killed process.
    pub(crate) async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    /// A line of the metrics without its prefix, such as `pods_injected_total{way="webhook"} 1`.
    pub(crate) async fn until_metric(&self, line: &str) {
        eventually(line, async || self.has_metric(line)).await;
    }

    pub(crate) fn has_metric(&self, line: &str) -> bool {
        let text = self.metrics.encode(MetricsFormat::Prometheus);
        text.lines().any(|one| one == format!("mesh_injector_{line}"))
    }

    /// Waits until a fragment is in force.
    pub(crate) async fn until_fragment(&self, text: &str) {
        let hash = Fragment::parse(text).unwrap().hash().to_owned();
        self.until_metric(&format!("fragment_info{{hash=\"{hash}\"}} 1")).await;
    }
}

/// Waits until something holds of which no event comes.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let mut ticks = tokio::time::interval(INTERVAL);
    while !holds().await {
        assert!(tokio::time::Instant::now() < deadline, "not so after {PATIENCE:?}: {what}");
        ticks.tick().await;
    }
}

/// A Pod with one container, which nothing is wrong with.
pub(crate) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "web", "image": "web"}]}
    })
}

pub(crate) fn containers(pod: &Value) -> Vec<&str> {
    names(pod, "containers")
}

pub(crate) fn names<'p>(pod: &'p Value, list: &str) -> Vec<&'p str> {
    pod["spec"][list].as_array().into_iter().flatten().map(|item| item["name"].as_str().unwrap()).collect()
}

/// Whether a Pod waits for the initializer.
pub(crate) async fn is_waiting(environment: &Environment, name: &str) -> bool {
    let path = format!("/api/v1/namespaces/default/pods/{name}");
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    let pod: Result<Value, _> = environment.client().request(request).await;
    pod.is_ok_and(|pod| pod["metadata"]["initializers"]["pending"][0]["name"] == INITIALIZER)
}
