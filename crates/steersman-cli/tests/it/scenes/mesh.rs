//! The sidecar of the source document, injected by `steersman mesh inject` with the document's files as they are: into a Pod,
//! the Pods of a Deployment, and those of a Job that ends, as an initializer and as a webhook.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::eventually;
use crate::support::kubectl::{self, Kubectl};
use crate::support::plane::{self, Plane};
use crate::support::process::Process;

/// A running injector.
struct Injector {
    process: Process,
    /// `127.0.0.1:PORT` of the metrics.
    metrics: String,
    /// The URL of the webhook, where it is one.
    webhook: Option<String>,
}

impl Injector {
    #[track_caller]
    fn start(home: &Path, kubeconfig: &Path, ways: &[&str]) -> Injector {
        let mut command = plane::steersman(home);
        command.args(["mesh", "inject", "--metrics-address", "127.0.0.1:0", "--kubeconfig"]).arg(kubeconfig).args(ways);
        let mut process = Process::start(&mut command);
        let line = process.line().unwrap();
        let metrics = line.strip_prefix("metrics and health: http://").unwrap().to_owned();
        let webhook = ways.contains(&"--webhook").then(|| process.line().unwrap());
        let webhook = webhook.map(|line| line.strip_prefix("webhook: ").unwrap().to_owned());
        Injector { process, metrics, webhook }
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.metrics).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: injector\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Waits until so many fragments were in force.
    #[track_caller]
    fn until_fragments(&self, n_fragments: usize) {
        eventually("the fragment is in force", || {
            self.get("/metrics").contains(&format!("mesh_injector_fragments_total {n_fragments}\n")).then_some(())
        });
    }

    #[track_caller]
    fn stop(self) {
        self.process.signal("TERM");
        let ended = self.process.end();
        assert_eq!(ended.status.code(), Some(0), "after SIGTERM: {ended:#?}");
    }
}

fn names<'p>(pod: &'p Value, list: &str) -> Vec<&'p str> {
    pod["spec"][list].as_array().into_iter().flatten().map(|item| item["name"].as_str().unwrap()).collect()
}

/// The only Pod with a label.
#[track_caller]
fn pod_of(kubectl: &Kubectl, label: &str) -> Value {
    let list = kubectl.json(&format!("get pods -l {label}"));
    assert_eq!(list["items"].as_array().unwrap().len(), 1, "{list:#}");
    list["items"][0].clone()
}

/// A Pod, a Deployment and a Job with the injector at work.
#[track_caller]
fn tour(kubectl: &Kubectl, injector: &Injector) {
    kubectl.ok("apply -f manifests/mesh/envoy-bootstrap.yaml");
    // The document's injector as a Pod is let through, although nobody else injects.
    kubectl.ok("create -f manifests/mesh/envoy-initializer-pod.yaml");
    assert_eq!(names(&kubectl.json("get pod envoy-initializer"), "containers"), ["envoy-initializer"]);

    assert_eq!(kubectl.ok("create -f manifests/mesh/myapp-pod.yaml").trim(), "pod/myapp-pod created");
    kubectl.ok("wait --for=condition=Ready pod/myapp-pod --timeout=60s");
    let pod = kubectl.json("get pod myapp-pod");
    assert_eq!(names(&pod, "containers"), ["myapp-container", "envoy"]);
    let envoy = &pod["spec"]["containers"][1];
    assert_eq!(envoy["image"], "lyft/envoy:845747db88f102c0fd262ab234308e9e22f693a1");
    assert_eq!(envoy["args"], json!(["--concurrency 4", "--config-path /etc/envoy/envoy.json", "--mode serve"]));
    // The token of the Pod, like every container.
    assert_eq!(names(&json!({"spec": envoy}), "volumeMounts").len(), 2, "{envoy:#}");
    // A Pod that is applied again is not injected again, and not changed.
    kubectl.ok("apply -f manifests/mesh/myapp-pod.yaml");
    assert_eq!(kubectl.json("get pod myapp-pod")["spec"], pod["spec"]);

    kubectl.ok("create deployment web --image=web:1");
    kubectl.ok("rollout status deployment/web --timeout=60s");
    assert_eq!(names(&pod_of(kubectl, "app=web"), "containers"), ["web", "envoy"]);

    let refused = kubectl.with_manifest(
        "create",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: nginx, labels: {mesh.steersman.dev/inject: maybe}}\nspec: {containers: [{name: nginx, image: nginx, ports: [{containerPort: 80}]}]}\n",
    );
    let why = "the sidecar's container envoy and the Pod's container nginx both listen on port 80/TCP: change one";
    assert!(!refused.status.success() && refused.stderr.contains(why), "{refused:#?}");
    if injector.webhook.is_some() {
        let warning = "Warning: the label mesh.steersman.dev/inject is \"maybe\" and does not count";
        assert!(refused.stderr.contains(warning), "{refused:#?}");
    }
    let left = "apiVersion: v1\nkind: Pod\nmetadata: {name: left, labels: {mesh.steersman.dev/inject: 'false'}}\nspec: {containers: [{name: left, image: left}]}\n";
    kubectl.apply(left);
    assert_eq!(names(&kubectl.json("get pod left"), "containers"), ["left"]);

    // The document's form keeps a Job from ending, of which the injector warns.
    kubectl.ok("create job plain --image=work:1");
    eventually("the Job is warned about", || {
        kubectl.ok("describe job plain").contains("the Job does not end while the container envoy runs").then_some(())
    });
    kubectl.ok("apply -f manifests/mesh/envoy-native.yaml");
    injector.until_fragments(2);
    kubectl.ok("create job native --image=work:1");
    kubectl.ok("wait --for=condition=Complete job/native --timeout=60s");
    let pod = pod_of(kubectl, "job-name=native");
    assert_eq!(names(&pod, "containers"), ["native"]);
    assert_eq!(names(&pod, "initContainers"), ["envoy"]);
    // An annotation says which sidecar a Pod has.
    let columns = r"-o=custom-columns=F:.metadata.annotations.mesh\.steersman\.dev/fragment --no-headers";
    let of = |what: &str| kubectl.ok(&format!("get pod {what} {columns}")).trim().to_owned();
    assert_eq!(of("myapp-pod"), of("-l app=web"));
    assert_ne!(of("myapp-pod"), of("-l job-name=native"));
    assert_eq!(of("left"), "<none>");
    assert!(injector.get("/readyz").starts_with("HTTP/1.1 200"));
}

#[test]
fn the_documents_files_work_with_the_initializer() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    let plane = Plane::server(home.path(), &["--in-memory", "--simulate-nodes", "1", "--enable-initializers"]);
    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    kubectl.ok("apply -f manifests/mesh/envoy-initializer.yaml");
    kubectl.ok("apply -f manifests/mesh/envoy-config.yaml");
    let injector = Injector::start(home.path(), &plane.kubeconfig(), &["--initializer", "--leader-elect"]);
    injector.until_fragments(1);
    tour(&kubectl, &injector);
    injector.stop();
    plane.stop();
}

#[test]
fn the_documents_files_work_with_the_webhook() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    // The server runs without initializers: a webhook needs none.
    let plane = Plane::server(home.path(), &["--in-memory", "--simulate-nodes", "1"]);
    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    kubectl.ok("apply -f manifests/mesh/envoy-initializer.yaml");
    let ways = ["--webhook", "127.0.0.1:0", "--webhook-host", "127.0.0.1"];
    let injector = Injector::start(home.path(), &plane.kubeconfig(), &ways);
    // The manifest, with this machine in place of the Service; here it is asked about all Pods.
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "mesh-injector"},
        "webhooks": [{
            "name": "all.mesh-injector.steersman.dev", "clientConfig": {"url": injector.webhook},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
            "reinvocationPolicy": "IfNeeded", "sideEffects": "NoneOnDryRun", "admissionReviewVersions": ["v1"],
        }],
    });
    kubectl.apply(&configuration.to_string());
    eventually("the webhook is trusted", || {
        let configuration = kubectl.json("get mutatingwebhookconfigurations mesh-injector");
        configuration["webhooks"][0]["clientConfig"]["caBundle"].as_str().map(|_| ())
    });
    injector.until_fragments(1);
    eventually("it is ready", || injector.get("/readyz").starts_with("HTTP/1.1 200").then_some(()));
    tour(&kubectl, &injector);
    injector.stop();
    plane.stop();
}

#[test]
fn an_injector_that_cannot_work_says_what_is_wanted() {
    let home = tempfile::tempdir().unwrap();
    for (arguments, why) in [
        (&["mesh", "inject"][..], "<--initializer|--webhook <ADDR>>"),
        (&["mesh", "inject", "--webhook", "127.0.0.1:0"], "want --webhook-service NAMESPACE/NAME"),
        (&["mesh", "inject", "--initializer", "--config-map", "a/b/c"], "want NAME or NAMESPACE/NAME"),
        (&["mesh", "inject", "--initializer", "--never", "app"], "want labels such as app=db"),
        (
            &["mesh", "inject", "--initializer", "--never", "app=db,app=web"],
            "the key app occurs twice: give --never once for each value",
        ),
        (
            &["mesh", "inject", "--initializer", "--always", "app=db,app=db"],
            "the key app occurs twice: give --always once for each value",
        ),
        (&["mesh", "inject", "--initializer", "--webhook-host", "h"], "--webhook <ADDR>"),
    ] {
        let ended = plane::run(home.path(), arguments);
        assert_eq!(ended.status.code(), Some(2), "{ended:#?}");
        assert!(ended.stderr.contains(why), "{why}: {ended:#?}");
    }
}

#[test]
fn an_initializer_without_initializers_says_so() {
    let home = tempfile::tempdir().unwrap();
    let plane = Plane::server(home.path(), &["--in-memory"]);
    let injector = Injector::start(home.path(), &plane.kubeconfig(), &["--initializer"]);
    eventually("it has looked", || {
        injector.get("/metrics").contains("mesh_injector_missing_requirements 1\n").then_some(())
    });
    injector.process.signal("TERM");
    let ended = injector.process.end();
    assert!(ended.stderr.contains("the server has no initializers"), "{ended:#?}");
    plane.stop();
}
