//! Two servers on one store: what one has acknowledged is in force at the other at once, although its cache lags behind.

use crate::custom::definitions::{DEFINITIONS, KITES, definition, kite, spec, until_gone};
use crate::store::engine::Engine;
use crate::support::{CONFIGS, Http, TestServer, config, names, options, text, version};
use http::header::AUTHORIZATION;
use http::{Method, Request};
use http_body_util::Full;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use steersman_machinery::{GroupResource, ObjectKey};
use steersman_server::authn::{self, Algorithm, Keyring, ServiceAccountOptions};
use steersman_server::authz::{Authorization, Mode};
use steersman_server::{Options, Ranges, Server};
use steersman_storage::{Memory, Store};
use tokio::time::Instant;

/// How long each change takes to the cache of the second server. The first one has it at once, so it acknowledges a change
/// before the other one knows it.
const LAG: Duration = Duration::from_millis(500);

const PODS: &str = "/api/v1/namespaces/default/pods";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
const SLICE: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

/// The memory that servers share, and the time after which one of them hears of a change.
#[derive(Clone, Debug, Default)]
struct Shared {
    memory: Arc<Memory>,
    lag: Duration,
}

async fn store(kv: &Shared) -> Store {
    Store::open(Arc::new(Engine::sharing(kv.memory.clone(), kv.lag)), steersman_storage::Options::default())
        .await
        .unwrap()
}

async fn server(kv: &Shared, host: &str, ranges: Ranges) -> TestServer {
    let store = store(kv).await;
    let keys = Arc::new(Keyring::in_store(Algorithm::Es256, &store, Vec::new()).unwrap());
    let service_accounts = ServiceAccountOptions { keys, ..ServiceAccountOptions::default() };
    let options = Options {
        authentication: authn::Options { service_accounts, ..authn::Options::default() },
        address: "192.0.2.7:6443".to_owned(),
        host: host.to_owned(),
        service_ranges: ranges,
        ..options(&store, Authorization::Modes(vec![Mode::Rbac]))
    };
    TestServer::of(store, options).await
}

async fn two_servers() -> [TestServer; 2] {
    two_servers_with(Ranges::default()).await
}

async fn two_servers_with(ranges: Ranges) -> [TestServer; 2] {
    let first = Shared::default();
    let second = Shared { lag: LAG, ..first.clone() };
    [server(&first, "a", ranges.clone()).await, server(&second, "b", ranges).await]
}

#[tokio::test(start_paused = true)]
async fn an_object_can_be_read_and_changed_at_the_other_server_at_once() {
    let [a, b] = two_servers().await.map(|server| server.http());
    for round in 0..20 {
        let (here, there) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
        let path = format!("{CONFIGS}/c-{round}");
        let made = here.post(CONFIGS, &config(&format!("c-{round}"))).await.ok();
        assert_eq!(version(&there.get(&path).await.ok()), version(&made));
        assert!(names(&there.get(CONFIGS).await.ok()).contains(&format!("c-{round}")));
        there.merge(&path, &json!({"data": {"round": round.to_string()}})).await.ok();
        assert_eq!(here.get(&path).await.ok()["data"]["round"], round.to_string());
        here.delete(&path).await.ok();
        assert_eq!(there.get(&path).await.code, 404);
        there.post(CONFIGS, &config(&format!("c-{round}"))).await.ok();
    }
}

/// Some requests write twice, such as an eviction: a condition into the Pod, and then its deletion at the version of that write.
#[tokio::test(start_paused = true)]
async fn a_request_that_writes_knows_its_write() {
    let store = store(&Shared { lag: LAG, ..Shared::default() }).await;
    let arrived = Instant::now();
    tokio::time::advance(Duration::from_millis(1)).await;
    store.sync_since(arrived).await.unwrap();
    let (configs, key) = (GroupResource::new("", "configmaps"), ObjectKey::namespaced("default", "a"));
    let written = store.create(&configs, &key, config("a").to_string().into()).await.unwrap();
    assert!(store.get_cached(&configs, &key).is_none(), "the cache lags behind");
    assert_eq!(store.sync_since(arrived).await.unwrap(), written.revision);
    assert!(store.get_cached(&configs, &key).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_budget_of_one_server_holds_at_the_other_at_once() {
    let [a, b] = two_servers().await.map(|server| server.http());
    let labels = json!({"app": "web"});
    let pod =
        json!({"metadata": {"name": "p", "labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    a.post(PODS, &pod).await.ok();
    let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    a.merge(&format!("{PODS}/p/status"), &json!({"status": ready})).await.ok();
    // The other server knows the Pod, but not yet its budget.
    b.get(PODS).await.ok();
    let budget = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}}});
    a.post(BUDGETS, &budget).await.ok();
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    let evicted = b.post(&format!("{PODS}/p/eviction"), &eviction).await;
    assert_eq!(evicted.refusal(), (429, "TooManyRequests".to_owned()), "{}", evicted.body_text());
}

#[tokio::test(start_paused = true)]
async fn a_version_of_one_server_means_the_same_at_the_other() {
    let [a, b] = two_servers().await.map(|server| server.http());
    let first = a.post(CONFIGS, &config("first")).await.ok();
    let second = a.post(CONFIGS, &config("second")).await.ok();
    let at_least = b.get(&format!("{CONFIGS}?resourceVersion={}", version(&second))).await.ok();
    assert_eq!(names(&at_least), ["first", "second"]);
    let mut watch = b.watch(&format!("{CONFIGS}?resourceVersion={}", version(&first))).await;
    assert_eq!(watch.next_name().await.unwrap(), ("ADDED".to_owned(), "second".to_owned()));
    a.delete(&format!("{CONFIGS}/second")).await.ok();
    assert_eq!(watch.next_name().await.unwrap(), ("DELETED".to_owned(), "second".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_definition_is_in_force_at_the_other_server_at_once() {
    let [a, b] = two_servers().await.map(|server| server.http());
    for (here, there) in [(&a, &b), (&b, &a)] {
        here.post(DEFINITIONS, &definition(&spec())).await.ok();
        there.post(KITES, &kite("one", 1)).await.ok();
        assert_eq!(there.post(KITES, &json!({"apiVersion": "example.com/v1", "kind": "Kite", "metadata": {"name": "two"}, "spec": {"length": "long"}})).await.code, 422);
        until_gone(here).await;
        assert_eq!(there.post(KITES, &kite("one", 1)).await.code, 404);
    }
}

#[tokio::test(start_paused = true)]
async fn a_permission_is_given_and_taken_at_the_other_server_at_once() {
    let servers = two_servers().await;
    let [a, b] = [&servers[0], &servers[1]];
    for (round, (here, there)) in [(a, b), (b, a), (a, b)].into_iter().enumerate() {
        let (admin, user) = (here.http(), there.http_as("alice"));
        assert_eq!(user.get(CONFIGS).await.code, 403);
        let name = format!("r-{round}");
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "create"]}]);
        admin.post(ROLES, &json!({"metadata": {"name": name}, "rules": rules})).await.ok();
        let binding = json!({
            "metadata": {"name": name}, "subjects": [{"kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io"}],
            "roleRef": {"kind": "Role", "name": name, "apiGroup": "rbac.authorization.k8s.io"},
        });
        admin.post(BINDINGS, &binding).await.ok();
        // A list from the cache waits for the permission, and not for more.
        assert_eq!(user.get(&format!("{CONFIGS}?resourceVersion=0")).await.code, 200);
        user.post(CONFIGS, &config(&format!("by-alice-{round}"))).await.ok();
        admin.delete(&format!("{BINDINGS}/{name}")).await.ok();
        assert_eq!(user.get(CONFIGS).await.code, 403);
        assert_eq!(user.post(CONFIGS, &config("late")).await.code, 403);
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_is_in_force_at_the_other_server_at_once() {
    let [a, b] = two_servers().await.map(|server| server.http());
    const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
    let policy = json!({
        "metadata": {"name": "never"},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"],
            }]},
            "validations": [{"expression": "object.metadata.name != 'never'"}],
        },
    });
    a.post(&format!("{ADMISSION}/validatingadmissionpolicies"), &policy).await.ok();
    let binding =
        json!({"metadata": {"name": "never"}, "spec": {"policyName": "never", "validationActions": ["Deny"]}});
    a.post(&format!("{ADMISSION}/validatingadmissionpolicybindings"), &binding).await.ok();
    assert_eq!(b.post(CONFIGS, &config("never")).await.code, 422);
    a.delete(&format!("{ADMISSION}/validatingadmissionpolicybindings/never")).await.ok();
    b.post(CONFIGS, &config("never")).await.ok();
}

#[tokio::test(start_paused = true)]
async fn a_quota_counts_the_objects_of_both_servers() {
    let [a, b] = two_servers().await.map(|server| server.http());
    const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
    a.post(QUOTAS, &json!({"metadata": {"name": "few"}, "spec": {"hard": {"count/configmaps": "10"}}})).await.ok();
    // The loop of quotas, which does not run here, writes this status.
    let status = json!({"status": {"hard": {"count/configmaps": "10"}, "used": {"count/configmaps": "0"}}});
    b.merge(&format!("{QUOTAS}/few/status"), &status).await.ok();
    let creations = (0..30).map(|index| {
        let http = if index % 2 == 0 { a.clone() } else { b.clone() };
        async move { http.post(CONFIGS, &config(&format!("c-{index}"))).await.code }
    });
    let codes = futures::future::join_all(creations).await;
    assert_eq!(codes.iter().filter(|code| **code == 201).count(), 10, "{codes:?}");
    assert!(codes.iter().all(|code| [201, 403].contains(code)), "{codes:?}");
}

fn service(name: &str, spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["ports"] = spec.get("ports").cloned().unwrap_or_else(|| json!([{"port": 80}]));
    json!({"metadata": {"name": name}, "spec": spec})
}

#[tokio::test(start_paused = true)]
async fn an_address_or_a_port_is_taken_and_free_at_the_other_server_at_once() {
    let [a, b] = two_servers().await.map(|server| server.http());
    let named = json!({
        "type": "NodePort", "clusterIP": "10.96.0.77", "ports": [{"port": 80, "nodePort": 30_777}],
    });
    let address = "/apis/networking.k8s.io/v1/ipaddresses/10.96.0.77";
    for (round, (here, there)) in [(&a, &b), (&b, &a), (&a, &b)].into_iter().enumerate() {
        let name = format!("s-{round}");
        let made = here.post(SERVICES, &service(&name, &named)).await.ok();
        let object = there.get(address).await.ok();
        assert_eq!((text(&object, "/spec/parentRef/name"), version(&object)), (&*name, version(&made)));
        let taken = there.post(SERVICES, &service("other", &named)).await;
        assert_eq!(taken.refusal(), (422, "Invalid".to_owned()));
        assert!(text(&taken.json(), "/message").contains("already allocated"), "{}", taken.body_text());
        // Another change of the Service keeps what it has.
        there.merge(&format!("{SERVICES}/{name}"), &json!({"metadata": {"labels": {"a": "b"}}})).await.ok();
        here.delete(&format!("{SERVICES}/{name}")).await.ok();
        assert_eq!(there.get(address).await.code, 404);
    }
}

#[tokio::test(start_paused = true)]
async fn two_servers_never_give_out_the_same_address_or_port() {
    let ranges = Ranges { addresses: vec!["10.0.0.0/27".parse().unwrap()], node_ports: 30_000..=30_019 };
    let [a, b] = two_servers_with(ranges).await.map(|server| server.http());
    let spec = json!({"type": "NodePort"});
    let creations = (0..40).map(|index| {
        let (http, spec) = (if index % 2 == 0 { a.clone() } else { b.clone() }, spec.clone());
        async move { http.post(SERVICES, &service(&format!("s-{index}"), &spec)).await }
    });
    let answers = futures::future::join_all(creations).await;
    let made: Vec<Value> = answers.iter().filter(|answer| answer.code == 201).map(|answer| answer.ok()).collect();
    let distinct =
        |pointer: &str| made.iter().map(|one| one.pointer(pointer).unwrap().to_string()).collect::<BTreeSet<_>>();
    assert_eq!(
        made.len(),
        20,
        "as many as there are ports: {:?}",
        answers.iter().map(|one| one.code).collect::<Vec<_>>()
    );
    assert_eq!(distinct("/spec/clusterIP").len(), 20);
    assert_eq!(distinct("/spec/ports/0/nodePort").len(), 20);
    for (index, one) in made.iter().enumerate() {
        let http = if index % 2 == 0 { &b } else { &a };
        http.delete(&format!("{SERVICES}/{}", text(one, "/metadata/name"))).await.ok();
    }
    let addresses = names(&a.get("/apis/networking.k8s.io/v1/ipaddresses").await.ok());
    assert_eq!(addresses, ["10.0.0.1"], "that of the server's own Service");
    let again = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30_000}]});
    b.post(SERVICES, &service("again", &again)).await.ok();
}

#[tokio::test(start_paused = true)]
async fn a_token_of_one_server_is_good_at_the_other() {
    let servers = two_servers().await;
    let [a, b] = [&servers[0], &servers[1]];
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    a.http().post("/api/v1/namespaces/default/serviceaccounts", &config("robot")).await.ok();
    for (here, there) in [(a, b), (b, a)] {
        let path = "/api/v1/namespaces/default/serviceaccounts/robot/token";
        let token = here.http().post(path, &request).await.ok();
        let bearer = format!("Bearer {}", text(&token, "/status/token"));
        let asked = Request::builder().method(Method::GET).uri(CONFIGS).header(AUTHORIZATION, bearer);
        let answer = Http(there.server.service()).raw(asked.body(Full::<bytes::Bytes>::default()).unwrap()).await;
        assert_eq!(answer.refusal(), (403, "Forbidden".to_owned()), "it is known, and may do nothing");
        assert!(answer.body_text().contains("system:serviceaccount:default:robot"), "{}", answer.body_text());
    }
    let keys = |server: &TestServer| {
        let http = server.http();
        async move { http.get("/openid/v1/jwks").await.ok()["keys"].as_array().map(Vec::len) }
    };
    assert_eq!((keys(a).await, keys(b).await), (Some(1), Some(1)), "the second one signs with the key of the first");
}

async fn at(kv: &Shared, address: &str) -> TestServer {
    let store = store(kv).await;
    let advertised = address.parse::<SocketAddr>().ok().map(|address| address.ip());
    let options = Options { address: address.to_owned(), advertised, ..options(&store, Authorization::default()) };
    TestServer { server: Server::start(options).await.unwrap(), store }
}

#[tokio::test(start_paused = true)]
async fn the_endpoints_of_the_server_are_all_that_live() {
    let kv = Shared::default();
    let first = at(&kv, "192.0.2.1:6443").await;
    let endpoints = || async {
        let slice = first.http().get(SLICE).await.ok();
        let all = slice["endpoints"].as_array().unwrap().iter();
        all.map(|one| text(one, "/addresses/0").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(endpoints().await, ["192.0.2.1"]);
    let second = at(&kv, "192.0.2.2:6443").await;
    assert_eq!(endpoints().await, ["192.0.2.1", "192.0.2.2"], "a server that starts adds itself");
    // An orderly end takes effect at once.
    second.server.stop().await;
    assert_eq!(endpoints().await, ["192.0.2.1"]);
    // The address of a server that is gone is not written again, and stays.
    let store = store(&kv).await;
    let resource = GroupResource::new("steersman", "serveraddresses");
    let entry = async |name: &str, address: &str| {
        let lease = json!({
            "metadata": {"name": name, "labels": {"apiserver.kubernetes.io/identity": "kube-apiserver"}},
            "spec": {"holderIdentity": "x", "leaseDurationSeconds": 3600, "renewTime": "2020-01-01T00:00:00.000000Z"},
        });
        first.http().post(LEASES, &lease).await.ok();
        let entry = json!({"metadata": {"name": name}, "address": address});
        store.create(&resource, &ObjectKey::cluster(name), entry.to_string().into()).await.unwrap()
    };
    let third = entry("apiserver-third", "192.0.2.3:6443").await;
    // Nobody can be sent to an address that only the sender's own machine has.
    entry("apiserver-local", "169.254.169.254:80").await;
    // Whoever may write Leases cannot say where the API is, and cannot stop the servers with a time beyond all times.
    let liar = json!({
        "metadata": {
            "name": "apiserver-liar", "labels": {"apiserver.kubernetes.io/identity": "kube-apiserver"},
            "annotations": {"steersman.dev/advertised-address": "192.0.2.66:1"},
        },
        "spec": {"holderIdentity": "liar", "leaseDurationSeconds": i32::MAX},
    });
    first.http().post(LEASES, &liar).await.ok();
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(endpoints().await, ["192.0.2.1", "192.0.2.3"]);
    let again = json!({"metadata": {"name": "apiserver-third"}, "address": "192.0.2.3:6443", "renewTime": "2020"});
    store.update(&resource, &third.key, third.revision, again.to_string().into()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert_eq!(endpoints().await, ["192.0.2.1", "192.0.2.3"], "whatever its clock says");
    // Whoever may write Leases cannot make it look alive.
    for second in 0..3 {
        let renewed = json!({"spec": {"renewTime": format!("2020-01-01T00:00:0{second}.000000Z")}});
        first.http().merge(&format!("{LEASES}/apiserver-third"), &renewed).await.ok();
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    assert_eq!(endpoints().await, ["192.0.2.1"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_ends_soon_though_its_store_does_not_answer() {
    let is_away = Arc::new(AtomicBool::new(false));
    let engine = Engine::sharing(Arc::default(), Duration::ZERO).answering_after({
        let is_away = is_away.clone();
        move || {
            let is_away = is_away.load(Ordering::Relaxed);
            Box::pin(async move {
                if is_away {
                    std::future::pending::<()>().await;
                }
            })
        }
    });
    let store = Store::open(Arc::new(engine), steersman_storage::Options::default()).await.unwrap();
    let advertised = Some("192.0.2.1".parse().unwrap());
    let options = Options { advertised, ..options(&store, Authorization::default()) };
    let server = Server::start(options).await.unwrap();
    is_away.store(true, Ordering::Relaxed);
    // It is about to write its address and its Lease again.
    tokio::time::sleep(Duration::from_secs(15)).await;
    let begun = Instant::now();
    server.stop().await;
    assert!(begun.elapsed() <= Duration::from_secs(11), "{:?}", begun.elapsed());
}

/// A kube-apiserver writes such an entry, and finds the servers beside it by theirs.
#[tokio::test(start_paused = true)]
async fn a_kube_apiserver_beside_is_among_the_endpoints_and_knows_this_server() {
    let kv = Shared::default();
    let first = at(&kv, "192.0.2.1:6443").await;
    let store = store(&kv).await;
    let (entries, other) = (GroupResource::new("", "masterleases"), ObjectKey::cluster("192.0.2.9"));
    let own = store.get(&entries, &ObjectKey::cluster("192.0.2.1")).await.unwrap().unwrap();
    let written: Value = serde_json::from_slice(own.json()).unwrap();
    assert_eq!(written["subsets"], json!([{"addresses": [{"ip": "192.0.2.1"}]}]));
    let entry = json!({"metadata": {"name": "192.0.2.9"}, "subsets": [{"addresses": [{"ip": "192.0.2.9"}]}]});
    store.create(&entries, &other, entry.to_string().into()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(11)).await;
    let slice = first.http().get(SLICE).await.ok();
    let all = slice["endpoints"].as_array().unwrap().iter().map(|one| text(one, "/addresses/0"));
    assert_eq!(all.collect::<Vec<_>>(), ["192.0.2.1", "192.0.2.9"]);
    let again = store.get(&entries, &ObjectKey::cluster("192.0.2.1")).await.unwrap().unwrap();
    assert!(own.revision < again.revision, "it is written again, so that it stays");
    first.server.stop().await;
    assert!(store.get(&entries, &ObjectKey::cluster("192.0.2.1")).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn leases_of_servers_that_ended_long_ago_are_deleted() {
    let kv = Shared::default();
    let first = at(&kv, "192.0.2.1:6443").await;
    let old = json!({
        "metadata": {"name": "apiserver-old", "labels": {"apiserver.kubernetes.io/identity": "kube-apiserver"}},
        "spec": {"holderIdentity": "old", "leaseDurationSeconds": 3600, "renewTime": "2020-01-01T00:00:00.000000Z"},
    });
    first.http().post(LEASES, &old).await.ok();
    tokio::time::sleep(Duration::from_secs(3500)).await;
    assert_eq!(names(&first.http().get(LEASES).await.ok()).len(), 2);
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(names(&first.http().get(LEASES).await.ok()).len(), 1);
}
