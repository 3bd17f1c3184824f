//! A real Envoy gets its configuration from the pilot, and requests flow through it while a route changes.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use steersman::{Manager, ManagerError, ObjectKey};
use steersman_mesh::pilot::gateway_api::gateway_networking_k8s_io::v1::HTTPRoute;
use steersman_mesh::pilot::resources;
use steersman_mesh::pilot::serve::state::State;
use steersman_mesh::pilot::serve::{Address, Listening, STATE_PATH, serve, serve_state};
use steersman_mesh::pilot::{Options, Trust, add_to};
use steersman_testkit::ControlPlane;
use steersman_xds::Server;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::DEFINITIONS;

/// The requests of which a share is counted: enough that chance stays four standard deviations below the tolerance.
const N_COUNTED: u64 = 1_500;
/// The requests that show that all go to one.
const N_ALL: u64 = 300;
/// How far a share may be from the weights.
const TOLERANCE: f64 = 0.05;
const HOST: &str = "web.default:8080";

/// The outcomes of requests.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    first: u64,
    second: u64,
    failed: u64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn weights_change_under_load_without_an_error_and_shares_follow() {
    let Some(program) = program() else { return };
    let Some(address) = own_address() else {
        skipped("the machine has no address but loopback, which Kubernetes refuses in endpoints");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let mesh = EnvoyMesh::start(dir.path()).await;
    let ports = [upstream(address, "v1").await, upstream(address, "v2").await];
    for (name, port) in [("web", ports[0]), ("v1", ports[0]), ("v2", ports[1])] {
        mesh.plane.apply(&service(name, address, port)).await;
    }
    mesh.plane.apply(&route(90, 10, "")).await;
    mesh.plane.apply(&client_pod()).await;
    let envoy = Envoy::start(&program, dir.path()).await;

    let pod = ObjectKey::namespaced("default", "client");
    mesh.plane.until(&pod, |pod: &Pod| is_configured(pod)).await;
    mesh.programmed().await;
    let proxy = envoy.explicit_listener().await;
    let counts = watch::Sender::new(Counts::default());
    let stop = CancellationToken::new();
    let load: Vec<_> = (0..4).map(|_| tokio::spawn(load(proxy, counts.clone(), stop.clone()))).collect();

    for (first, second) in [(90, 10), (80, 20), (50, 50), (0, 100)] {
        mesh.plane.apply(&route(first, second, "")).await;
        mesh.programmed().await;
        let n_counted = if first == 0 { N_ALL } else { N_COUNTED };
        let share = share_of_second(&counts, n_counted).await;
        let wanted = f64::from(second) / f64::from(first + second);
        assert!((share - wanted).abs() <= TOLERANCE, "{second} of {} wanted, {share} found", first + second);
    }

    // This Envoy takes smaller expressions than others: it refuses the whole table, keeps the one it has, and the route is told.
    mesh.plane
        .apply(&route(50, 50, ", matches: [{headers: [{name: a, type: RegularExpression, value: \"[a-c]{40}\"}]}]"))
        .await;
    let refused = mesh.until_programmed(|status, reason, _| (status, reason) == ("False", "Rejected")).await;
    assert!(refused.starts_with("0 of 1 proxies; the proxy of default/client refuses it: "), "{refused}");
    let state = mesh.state().await;
    let sources: Vec<_> = state.proxies[0].rejections.iter().map(|one| one.source.as_deref()).collect();
    assert!(sources.contains(&Some("HTTPRoute default/split")), "{sources:?}");
    assert!((share_of_second(&counts, N_ALL).await - 1.0).abs() < f64::EPSILON, "the last good table is in force");
    mesh.plane.apply(&route(100, 0, "")).await;
    mesh.programmed().await;
    assert!(share_of_second(&counts, N_ALL).await < f64::EPSILON);
    let state = mesh.state().await;
    assert!(state.proxies[0].settled && state.proxies[0].rejections.is_empty(), "{state:?}");
    assert_eq!(state.routes[0].in_force, 1);

    stop.cancel();
    for task in load {
        task.await.unwrap();
    }
    assert_eq!(counts.borrow().failed, 0, "{:?}", counts.borrow());
    mesh.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pilot_that_restarts_and_an_endpoint_that_goes_cost_no_request() {
    let Some(program) = program() else { return };
    let Some(address) = own_address() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut mesh = EnvoyMesh::start(dir.path()).await;
    let ports = [upstream(address, "v1").await, upstream(address, "v2").await, upstream(address, "v2").await];
    for (name, port) in [("web", ports[0]), ("v1", ports[0]), ("v2", ports[1])] {
        mesh.plane.apply(&service(name, address, port)).await;
    }
    mesh.plane.apply(&slice("v2", "other", address, ports[2])).await;
    mesh.plane.apply(&route(50, 50, "")).await;
    mesh.plane.apply(&client_pod()).await;
    let envoy = Envoy::start(&program, dir.path()).await;
    mesh.programmed().await;
    let proxy = envoy.explicit_listener().await;
    let counts = watch::Sender::new(Counts::default());
    let stop = CancellationToken::new();
    let load: Vec<_> = (0..4).map(|_| tokio::spawn(load(proxy, counts.clone(), stop.clone()))).collect();
    share_of_second(&counts, N_ALL).await;

    // While no pilot runs, traffic goes on as before. The next one tells what has changed since.
    mesh.stop_pilot().await;
    mesh.plane.apply(&route(0, 100, "")).await;
    let share = share_of_second(&counts, N_COUNTED).await;
    assert!((share - 0.5).abs() <= TOLERANCE, "{share}");
    mesh.start_pilot(dir.path()).await;
    mesh.programmed().await;
    assert!((share_of_second(&counts, N_ALL).await - 1.0).abs() < f64::EPSILON);

    let slices = Api::<EndpointSlice>::namespaced(mesh.plane.client(), "default");
    slices.delete("v2-other", &DeleteParams::default()).await.unwrap();
    while !envoy.has_one_endpoint("outbound|8080||v2.default.svc").await {
        tokio::task::yield_now().await;
    }
    share_of_second(&counts, N_ALL).await;

    stop.cancel();
    for task in load {
        task.await.unwrap();
    }
    assert_eq!(counts.borrow().failed, 0, "{:?}", counts.borrow());
    mesh.stop().await;
}

/// The share of the second version among the next requests.
async fn share_of_second(counts: &watch::Sender<Counts>, n_requests: u64) -> f64 {
    let (before, mut now) = (*counts.borrow(), counts.subscribe());
    let enough = |now: &Counts| now.first + now.second + now.failed >= before.first + before.second + n_requests;
    let after = *now.wait_for(enough).await.unwrap();
    let (first, second) = (after.first - before.first, after.second - before.second);
    second as f64 / (first + second) as f64
}

/// Sends one request after the other.
async fn load(proxy: SocketAddr, counts: watch::Sender<Counts>, stop: CancellationToken) {
    let mut sender: Option<SendRequest<Empty<Bytes>>> = None;
    while !stop.is_cancelled() {
        let version = match request(&mut sender, proxy).await {
            Ok(version) => version,
            Err(error) => {
                sender = None;
                println!("a request failed: {error}");
                String::new()
            }
        };
        counts.send_modify(|counts| match version.as_str() {
            "v1" => counts.first += 1,
            "v2" => counts.second += 1,
            _ => counts.failed += 1,
        });
    }
}

/// The version that answers.
async fn request(
    sender: &mut Option<SendRequest<Empty<Bytes>>>,
    proxy: SocketAddr,
) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
    if sender.is_none() {
        let (made, connection) = handshake(TokioIo::new(TcpStream::connect(proxy).await?)).await?;
        tokio::spawn(connection);
        *sender = Some(made);
    }
    let sender = sender.as_mut().ok_or("no connection")?;
    sender.ready().await?;
    let request = Request::get("/").header(header::HOST, HOST).body(Empty::new())?;
    let response = sender.send_request(request).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    if !status.is_success() {
        return Err(format!("{status}: {}", String::from_utf8_lossy(&body)).into());
    }
    Ok(String::from_utf8(body.to_vec())?)
}

/// A server that answers with its name.
async fn upstream(address: IpAddr, name: &'static str) -> u16 {
    let listener = TcpListener::bind((address, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service =
                service_fn(move |_| async move { Ok::<_, hyper::Error>(Response::new(Full::new(Bytes::from(name)))) });
            let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::spawn(connection);
        }
    });
    port
}

/// A control plane with a pilot that listens.
struct EnvoyMesh {
    plane: ControlPlane,
    pilot: Option<Pilot>,
}

/// A running pilot.
struct Pilot {
    state: SocketAddr,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<Result<(), ManagerError>>,
}

impl EnvoyMesh {
    async fn start(dir: &Path) -> EnvoyMesh {
        let plane = ControlPlane::start().await;
        for definition in DEFINITIONS {
            plane.apply(definition).await;
        }
        let mut mesh = EnvoyMesh { plane, pilot: None };
        mesh.start_pilot(dir).await;
        mesh
    }

    async fn start_pilot(&mut self, dir: &Path) {
        let options = Options {
            trust: Trust { node_ids: true, ..Trust::default() },
            resources: resources::Options {
                explicit_proxy: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
                cluster_domain: "cluster.local".to_owned(),
            },
        };
        let (manager, proxies) = add_to(Manager::new(self.plane.client()), &options);
        let server = Server::new(Arc::clone(&proxies), steersman_xds::Options::default());
        let listening = Listening::bind(&Address::Unix(socket(dir))).await.unwrap();
        let state = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let state_address = state.local_addr().unwrap();
        let manager = manager
            .run_always("proxies", move |stop| serve(listening, None, server, stop))
            .run_always("state", move |stop| serve_state(state, proxies, stop));
        let stop = CancellationToken::new();
        let task = tokio::spawn(manager.run(stop.clone().cancelled_owned()));
        self.pilot = Some(Pilot { state: state_address, stop, task });
    }

    async fn stop_pilot(&mut self) {
        let Pilot { stop, task, .. } = self.pilot.take().unwrap();
        stop.cancel();
        task.await.unwrap().unwrap();
    }

    async fn stop(mut self) {
        self.stop_pilot().await;
        self.plane.stop().await;
    }

    /// Waits until all proxies have the route as it is now.
    async fn programmed(&self) {
        self.until_programmed(|status, _, message| status == "True" && message == "1 of 1 proxies").await;
    }

    /// The message of the condition once it is as wanted.
    async fn until_programmed(&self, wanted: impl Fn(&str, &str, &str) -> bool) -> String {
        let found = |route: &HTTPRoute| {
            let parents = route.status.iter().flat_map(|status| &status.parents);
            let mut conditions = parents.flat_map(|parent| &parent.conditions);
            let condition = conditions.find(|condition| condition.type_ == "mesh.steersman.dev/Programmed")?;
            let is_current = condition.observed_generation == route.metadata.generation;
            let is_wanted = is_current && wanted(&condition.status, &condition.reason, &condition.message);
            is_wanted.then(|| condition.message.clone())
        };
        let key = ObjectKey::namespaced("default", "split");
        let route = self.plane.until(&key, |route: &HTTPRoute| found(route).is_some()).await;
        found(&route).unwrap()
    }

    async fn state(&self) -> State {
        serde_json::from_slice(&get(self.pilot.as_ref().unwrap().state, STATE_PATH).await).unwrap()
    }
}

async fn get(address: SocketAddr, path: &str) -> Bytes {
    let (mut sender, connection) = handshake(TokioIo::new(TcpStream::connect(address).await.unwrap())).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get(path).header(header::HOST, "localhost").body(Empty::<Bytes>::new()).unwrap();
    sender.send_request(request).await.unwrap().into_body().collect().await.unwrap().to_bytes()
}

/// A running Envoy, which ends with the value.
struct Envoy {
    admin: SocketAddr,
    _process: Child,
}

impl Envoy {
    async fn start(program: &Path, dir: &Path) -> Envoy {
        let admin_path = dir.join("admin");
        let keepalive = json!({"connection_keepalive": {"interval": "10s", "timeout": "10s"}});
        let bootstrap = json!({
            "node": {"id": "sidecar~127.0.0.1~client.default", "cluster": "client"},
            "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}},
            "layered_runtime": {"layers": [{"name": "expressions", "static_layer": {"re2.max_program_size.error_level": 20}}]},
            "dynamic_resources": {
                "ads_config": {"api_type": "DELTA_GRPC", "transport_api_version": "V3", "grpc_services": [{"envoy_grpc": {"cluster_name": "xds"}}]},
                "cds_config": {"resource_api_version": "V3", "ads": {}},
                "lds_config": {"resource_api_version": "V3", "ads": {}},
            },
            "static_resources": {"clusters": [{
                "name": "xds",
                "connect_timeout": "1s",
                "load_assignment": {"cluster_name": "xds", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": {"pipe": {"path": socket(dir)}}}}]}]},
                "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                    "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                    "explicit_http_config": {"http2_protocol_options": keepalive},
                }},
            }]},
        });
        let config = dir.join("envoy.json");
        tokio::fs::write(&config, bootstrap.to_string()).await.unwrap();
        let log = std::fs::File::create(dir.join("envoy.log")).unwrap();
        let process = Command::new(program)
            .args(["--disable-hot-restart", "--concurrency", "1", "--log-level", "warning", "-c"])
            .arg(&config)
            .arg("--admin-address-path")
            .arg(&admin_path)
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut envoy = Envoy { admin: SocketAddr::from(([127, 0, 0, 1], 0)), _process: process };
        loop {
            let written = tokio::fs::read_to_string(&admin_path).await.unwrap_or_default();
            if let Ok(admin) = written.trim().parse() {
                envoy.admin = admin;
                return envoy;
            }
            let ended = envoy._process.try_wait().unwrap();
            assert!(ended.is_none(), "Envoy ended: {}", std::fs::read_to_string(dir.join("envoy.log")).unwrap());
            tokio::task::yield_now().await;
        }
    }

    /// Whether a cluster has one endpoint.
    async fn has_one_endpoint(&self, cluster: &str) -> bool {
        let clusters: Value = serde_json::from_slice(&get(self.admin, "/clusters?format=json").await).unwrap();
        let all = clusters["cluster_statuses"].as_array().unwrap();
        let found = all.iter().find(|one| one["name"] == cluster);
        found.and_then(|one| one["host_statuses"].as_array()).is_some_and(|hosts| hosts.len() == 1)
    }

    /// The port at which the explicit proxy listens.
    async fn explicit_listener(&self) -> SocketAddr {
        loop {
            let listeners: Value =
                serde_json::from_slice(&get(self.admin, "/listeners?format=json").await).unwrap_or_default();
            let all = listeners["listener_statuses"].as_array().cloned().unwrap_or_default();
            let address =
                all.iter().find(|one| one["name"] == "explicit").map(|one| &one["local_address"]["socket_address"]);
            if let Some(port) = address.and_then(|address| address["port_value"].as_u64()) {
                return SocketAddr::from(([127, 0, 0, 1], u16::try_from(port).unwrap()));
            }
            tokio::task::yield_now().await;
        }
    }
}

/// Envoy, which `cargo xtask tools` fetches.
fn program() -> Option<PathBuf> {
    if let Some(program) = std::env::var_os("STEERSMAN_ENVOY") {
        return Some(program.into());
    }
    skipped("STEERSMAN_ENVOY names no Envoy (cargo xtask test sets it up)");
    None
}

/// Says that the test is skipped, which fails where nothing may be.
fn skipped(why: &str) {
    use std::io::Write as _;
    let ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "0" && value != "false");
    assert!(!ci, "{why}, and CI is set");
    // Not `eprintln!`, whose output is hidden if the test passes.
    std::io::stderr().write_all(format!("!!! SKIPPED the test with Envoy: {why}\n").as_bytes()).unwrap();
}

/// The address of the machine in its network. Nothing is sent to find it.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind(("0.0.0.0", 0)).ok()?;
    socket.connect(("192.0.2.1", 9)).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_loopback() && !address.is_unspecified())
}

fn socket(dir: &Path) -> PathBuf {
    dir.join("xds")
}

fn service(name: &str, address: IpAddr, port: u16) -> String {
    format!(
        "apiVersion: v1
kind: Service
metadata: {{namespace: default, name: {name}}}
spec: {{ports: [{{name: http, port: 8080}}]}}
---
{}",
        slice(name, "1", address, port)
    )
}

fn slice(service: &str, suffix: &str, address: IpAddr, port: u16) -> String {
    format!(
        "apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{namespace: default, name: {service}-{suffix}, labels: {{kubernetes.io/service-name: {service}}}}}
addressType: IPv4
ports: [{{name: http, port: {port}}}]
endpoints: [{{addresses: [{address}]}}]
"
    )
}

fn route(first: u32, second: u32, more: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{namespace: default, name: split}}
spec:
  parentRefs: [{{group: \"\", kind: Service, name: web}}]
  rules: [{{backendRefs: [{{name: v1, port: 8080, weight: {first}}}, {{name: v2, port: 8080, weight: {second}}}]{more}}}]
"
    )
}

/// A Pod that waits for its proxy and calls one Service.
fn client_pod() -> String {
    "apiVersion: v1
kind: Pod
metadata: {namespace: default, name: client, annotations: {mesh.steersman.dev/calls: web}}
spec:
  readinessGates: [{conditionType: mesh.steersman.dev/configured}]
  containers: [{name: main, image: example.com/main}]
"
    .to_owned()
}

fn is_configured(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|one| one.type_ == "mesh.steersman.dev/configured" && one.status == "True")
}
