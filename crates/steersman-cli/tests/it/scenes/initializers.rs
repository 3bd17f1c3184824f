//! The sidecar of the source document, injected by an initializer: with the stock kubectl, an injector that starts and
//! stops, and a server that is killed.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::thread::JoinHandle;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use steersman::cache::Selection;
use steersman::webhook::{Admission, Denial, SelfSigned, Webhooks};
use steersman::{Action, Controller, Manager, ObjectKey, ReconcileError, Scope};
use tokio::sync::oneshot;

use crate::support::eventually;
use crate::support::kubectl::{self, Kubectl};
use crate::support::plane::Plane;
use crate::support::process::Process;

const ENVOY: &str = "envoy.initializer.kubernetes.io";
const CREATE: &str = "create -f manifests/mesh/myapp-pod.yaml";

/// The program of the document: adds the content of the ConfigMap `envoy-initializer` to new Pods, as an initializer or
/// as a webhook.
struct Injector {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

/// The error of the injector.
#[derive(Debug)]
enum InjectorError {
    Api(kube::Error),
    Config(String),
}

impl From<kube::Error> for InjectorError {
    fn from(error: kube::Error) -> InjectorError {
        InjectorError::Api(error)
    }
}

impl fmt::Display for InjectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InjectorError::Api(_) => f.write_str("the API server did not do what is asked"),
            InjectorError::Config(why) => write!(f, "the ConfigMap envoy-initializer cannot be used: {why}"),
        }
    }
}

impl std::error::Error for InjectorError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            InjectorError::Api(error) => Some(error),
            InjectorError::Config(_) => None,
        }
    }
}

impl ReconcileError for InjectorError {}

impl Injector {
    fn start(kubeconfig: &Path) -> Injector {
        let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
                let client = Client::try_from(config).unwrap();
                let all = Selection::new(Scope::Namespace("default".to_owned())).include_uninitialized();
                let controller = Controller::<Pod>::of(all, inject, client.clone());
                let stopped = async { drop(stopped.await) };
                Manager::new(client).controller(controller).run(stopped).await.unwrap();
            });
        });
        Injector { stop, thread }
    }

    /// The same sidecar by a mutating webhook. Returns its address.
    fn start_webhook(kubeconfig: &Path) -> (Injector, SocketAddr) {
        let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
        let (stop, stopped) = oneshot::channel();
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
                let client = Client::try_from(config).unwrap();
                let certificates =
                    SelfSigned::new(client.clone(), "default", "injector").host("127.0.0.1").mutating("injector");
                let server = Webhooks::new()
                    .mutate("/inject", answer, client.clone())
                    .bind(SocketAddr::from(([127, 0, 0, 1], 0)), certificates)
                    .unwrap();
                tell.send(server.address()).unwrap();
                let stopped = async { drop(stopped.await) };
                Manager::new(client).webhooks(server).run(stopped).await.unwrap();
            });
        });
        (Injector { stop, thread }, told.recv().unwrap())
    }

    fn stop(self) {
        self.stop.send(()).unwrap();
        self.thread.join().unwrap();
    }
}

async fn inject(key: ObjectKey, client: &Client) -> Result<Action, InjectorError> {
    // Current types have no initializers, so the Pod is read as JSON.
    let path = format!("/api/v1/namespaces/default/pods/{}", key.name());
    let pod: Value = match client.request(http::Request::get(path).body(Vec::new()).unwrap()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(Action::AwaitChange),
        pod => pod?,
    };
    if pod.pointer("/metadata/initializers/pending/0/name") != Some(&json!(ENVOY)) {
        return Ok(Action::AwaitChange);
    }
    let part = sidecar(client).await?;
    let patch = json!({
        "metadata": {"initializers": {"pending": [{"$patch": "delete", "name": ENVOY}]}},
        "spec": {"containers": part["containers"], "volumes": part["volumes"]},
    });
    let pods = Api::<Pod>::namespaced(client.clone(), "default");
    match pods.patch(key.name(), &PatchParams::default(), &Patch::Strategic(&patch)).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        patched => drop(patched?),
    }
    Ok(Action::AwaitChange)
}

/// The content of the ConfigMap.
async fn sidecar(client: &Client) -> Result<Value, InjectorError> {
    let config = Api::<ConfigMap>::namespaced(client.clone(), "default").get("envoy-initializer").await?;
    let text = config.data.and_then(|mut data| data.remove("config")).unwrap_or_default();
    serde_saphyr::from_str(&text).map_err(|error| InjectorError::Config(error.to_string()))
}

/// Adds the sidecar to a Pod, as the webhook.
async fn answer(mut pod: Value, _request: &Admission<Value>, client: &Client) -> Result<Value, Denial> {
    let part = sidecar(client).await?;
    for field in ["containers", "volumes"] {
        let added = part[field].as_array().cloned().unwrap_or_default();
        match &mut pod["spec"][field] {
            Value::Array(there) => there.extend(added),
            nothing => *nothing = added.into(),
        }
    }
    Ok(pod)
}

fn plane(home: &Path) -> Plane {
    Plane::server(home, &["--enable-initializers"])
}

/// The ConfigMap and the configuration of the document.
fn configure(kubectl: &Kubectl) {
    assert_eq!(
        kubectl.ok("apply -f manifests/mesh/envoy-initializer.yaml").trim(),
        "configmap/envoy-initializer created"
    );
    assert_eq!(
        kubectl.ok("apply -f manifests/mesh/envoy-config.yaml").trim(),
        "initializerconfiguration.admissionregistration.k8s.io/envoy-config created"
    );
}

/// Sets the time limit of the initializer, and the policy for its expiry.
fn limit(kubectl: &Kubectl, seconds: u32, policy: &str) {
    let patch = json!([
        {"op": "add", "path": "/initializers/0/timeoutSeconds", "value": seconds},
        {"op": "add", "path": "/initializers/0/failurePolicy", "value": policy},
    ]);
    let mut command = kubectl.command("patch initializerconfigurations envoy-config --type=json");
    let ended = Process::start(command.arg("-p").arg(patch.to_string())).end();
    assert!(ended.status.success(), "{ended:#?}");
}

fn container_names(pod: &Value) -> Vec<&str> {
    let containers = pod["spec"]["containers"].as_array().unwrap();
    containers.iter().map(|container| container["name"].as_str().unwrap()).collect()
}

#[track_caller]
fn check_injected(kubectl: &Kubectl, name: &str) {
    let pod = kubectl.json(&format!("get pod {name}"));
    let mut names = container_names(&pod);
    names.sort_unstable();
    assert_eq!(names, ["envoy", "myapp-container"]);
    assert_eq!(pod["metadata"].get("initializers"), None);
    let envoy = pod["spec"]["containers"].as_array().unwrap().iter().find(|one| one["name"] == "envoy").unwrap();
    assert_eq!(envoy["image"], "lyft/envoy:845747db88f102c0fd262ab234308e9e22f693a1");
    assert_eq!(envoy["resources"]["limits"], json!({"cpu": "1", "memory": "512Mi"}));
    let volumes = pod["spec"]["volumes"].as_array().unwrap();
    assert!(volumes.iter().any(|volume| volume["name"] == "envoy-conf"), "{volumes:#?}");
}

/// Whether a Pod exists and waits.
fn is_waiting(kubectl: &Kubectl, name: &str) -> bool {
    let ended = kubectl.run(&format!("get pod {name} -o jsonpath={{.metadata.initializers.pending[0].name}}"));
    ended.status.success() && ended.stdout.trim() == ENVOY
}

#[test]
fn a_sidecar_is_in_every_pod_without_its_creator_knowing() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    let plane = plane(home.path());
    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    configure(&kubectl);
    let injector = Injector::start(&plane.kubeconfig());
    assert_eq!(kubectl.ok("apply -f manifests/mesh/myapp-pod.yaml").trim(), "pod/myapp-pod created");
    check_injected(&kubectl, "myapp-pod");
    kubectl.ok("apply -f manifests/mesh/myapp-pod.yaml");
    check_injected(&kubectl, "myapp-pod");
    let explained = kubectl.ok("explain pod.metadata.initializers.pending");
    assert!(explained.contains("The initializers that are not done"), "{explained}");
    let explained = kubectl.ok("explain initializerconfigurations.initializers.timeoutSeconds");
    assert!(explained.contains("30 without it"), "{explained}");
    injector.stop();
    plane.stop();
}

#[test]
fn a_pod_asks_for_the_sidecar_by_its_annotation() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    let plane = plane(home.path());
    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    configure(&kubectl);
    // The configuration has no rule, so no object gets the initializer by one.
    kubectl.apply(&format!(
        "apiVersion: admissionregistration.k8s.io/v1alpha1\nkind: InitializerConfiguration\nmetadata: {{name: envoy-config}}\ninitializers: [{{name: {ENVOY}, rules: []}}]\n"
    ));
    let injector = Injector::start(&plane.kubeconfig());
    let pod = |name: &str, annotations: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, annotations: {{{annotations}}}}}\nspec: {{containers: [{{name: myapp-container, image: busybox}}]}}\n"
        )
    };
    kubectl.apply(&pod("with", r#""initializer.kubernetes.io/envoy": "true""#));
    kubectl.apply(&pod("without", ""));
    check_injected(&kubectl, "with");
    assert_eq!(container_names(&kubectl.json("get pod without")), ["myapp-container"]);
    injector.stop();
    plane.stop();
}

#[test]
fn without_the_injector_a_creation_waits_and_ends_as_its_timeout_says() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    let plane = plane(home.path());
    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    configure(&kubectl);
    limit(&kubectl, 6, "Fail");
    let creation = Process::start(&mut kubectl.command(CREATE));
    eventually("the Pod waits", || is_waiting(&kubectl, "myapp-pod").then_some(()));
    assert_eq!(kubectl.ok("get pods -o name"), "", "nobody sees it");
    eventually("the configuration says who is waited for", || {
        let table = kubectl.ok("get initializerconfigurations");
        let row = table.lines().nth(1)?;
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(table.lines().next()?.split_whitespace().next(), Some("NAME"));
        (cells[..4] == ["envoy-config", ENVOY, "1", ENVOY] && row.contains("pods default/myapp-pod (")).then_some(())
    });
    eventually("an Event says so", || {
        let described = kubectl.ok("describe pod myapp-pod");
        let events = described.split("Events:").nth(1)?;
        events.contains("WaitingForInitializer").then_some(())
    });
    let ended = creation.end();
    assert_eq!(ended.status.code(), Some(1), "{ended:#?}");
    let want = format!(r#"pods "myapp-pod" was not created: the initializer {ENVOY} did not act on it within 6s"#);
    assert!(ended.stderr.contains(&want), "{ended:#?}");
    let gone = kubectl.fails("get pod myapp-pod");
    assert!(gone.contains("(NotFound)"), "{gone}");

    limit(&kubectl, 1, "Ignore");
    assert_eq!(kubectl.ok(CREATE).trim(), "pod/myapp-pod created");
    assert_eq!(container_names(&kubectl.json("get pod myapp-pod")), ["myapp-container"]);
    eventually("an Event says so", || {
        let events = kubectl.ok("get events --field-selector involvedObject.name=myapp-pod,reason=InitializerTimedOut");
        events.contains("it was passed over").then_some(())
    });
    plane.stop();
}

#[test]
fn creations_that_wait_survive_kill() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    let first = plane(home.path());
    let kubectl = Kubectl::new(program.clone(), &first.kubeconfig());
    configure(&kubectl);
    let creation = Process::start(&mut kubectl.command(CREATE));
    eventually("the Pod waits", || is_waiting(&kubectl, "myapp-pod").then_some(()));
    // Another waiting client disconnects: its creation is no longer waited for.
    let pod = kubectl.ok("create -f manifests/mesh/myapp-pod.yaml --dry-run=client -o yaml");
    let other = kubectl.manifest(&pod.replace("name: myapp-pod", "name: other-pod"));
    let abandoned = Process::start(&mut kubectl.command(&format!("create -f {other}")));
    let n_waiting = |wanted: &str| {
        eventually("so many creations wait", || {
            let metrics = kubectl.ok("get --raw /metrics");
            let line = metrics.lines().find(|line| line.starts_with("steersman_initializer_waiting_creations "))?;
            line.ends_with(wanted).then_some(())
        });
    };
    n_waiting(" 2");
    abandoned.signal("KILL");
    abandoned.end();
    n_waiting(" 1");
    kubectl.ok("delete pod other-pod");
    first.kill();
    assert_ne!(creation.end().status.code(), Some(0), "nobody has said that it was created");

    let second = plane(home.path());
    let kubectl = Kubectl::new(program.clone(), &second.kubeconfig());
    assert_eq!(kubectl.ok("get pods -o name"), "", "it is still hidden");
    assert!(is_waiting(&kubectl, "myapp-pod"));
    let injector = Injector::start(&second.kubeconfig());
    eventually("the Pod is initialized", || kubectl.ok("get pods -o name").contains("pod/myapp-pod").then_some(()));
    check_injected(&kubectl, "myapp-pod");
    injector.stop();

    kubectl.ok("delete pod myapp-pod");
    limit(&kubectl, 5, "Fail");
    let creation = Process::start(&mut kubectl.command(CREATE));
    eventually("the Pod waits", || is_waiting(&kubectl, "myapp-pod").then_some(()));
    second.kill();
    assert_ne!(creation.end().status.code(), Some(0));
    // Nothing initializes it, and its time has passed.
    let third = plane(home.path());
    let kubectl = Kubectl::new(program, &third.kubeconfig());
    eventually("its time is over", || {
        let ended = kubectl.run("get pod myapp-pod");
        ended.stderr.contains("(NotFound)").then_some(())
    });
    third.stop();
}

#[test]
fn a_namespace_goes_with_what_waits_in_it() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    let plane = plane(home.path());
    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    configure(&kubectl);
    limit(&kubectl, 600, "Fail");
    kubectl.ok("create namespace ending");
    let creation = Process::start(&mut kubectl.command(&format!("-n ending {CREATE}")));
    eventually("the Pod waits", || kubectl.run("-n ending get pod myapp-pod").status.success().then_some(()));
    kubectl.ok("delete namespace ending --timeout=60s");
    let ended = creation.end();
    assert_eq!(ended.status.code(), Some(1), "{ended:#?}");
    assert!(ended.stderr.contains("object deleted while waiting for creation"), "{ended:#?}");
    plane.stop();
}

#[test]
fn a_mutating_webhook_puts_in_the_same_sidecar() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    // The server runs without initializers: a webhook needs none.
    let plane = Plane::server(home.path(), &[]);
    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    kubectl.ok("apply -f manifests/mesh/envoy-initializer.yaml");
    let (injector, address) = Injector::start_webhook(&plane.kubeconfig());
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "injector"},
        "webhooks": [{
            "name": "injector.example.com", "clientConfig": {"url": format!("https://{address}/inject")},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
            "sideEffects": "None", "admissionReviewVersions": ["v1"],
        }],
    });
    kubectl.apply(&configuration.to_string());
    eventually("the webhook is trusted", || {
        let configuration = kubectl.json("get mutatingwebhookconfigurations injector");
        configuration["webhooks"][0]["clientConfig"]["caBundle"].as_str().map(|_| ())
    });
    assert_eq!(kubectl.ok("apply -f manifests/mesh/myapp-pod.yaml").trim(), "pod/myapp-pod created");
    check_injected(&kubectl, "myapp-pod");
    injector.stop();
    plane.stop();
}
