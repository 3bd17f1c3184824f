//! The objects that a server creates for itself at its start.

use crate::store::engine::{Engine, puts, says};
use crate::support::{CONFIGS, TestServer, names, options, text, version};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use steersman_server::authz::{Authorization, Mode};
use steersman_server::{Options, Server};
use steersman_storage::{Memory, Store, kv};

/// Starts a server with this address.
async fn at(store: &Store, address: &str) -> TestServer {
    let advertised = address.parse::<SocketAddr>().ok().map(|address| address.ip());
    let options = Options { address: address.to_owned(), advertised, ..options(store, Authorization::default()) };
    TestServer { server: Server::start(options).await.unwrap(), store: store.clone() }
}

#[tokio::test]
async fn the_service_of_the_server_follows_where_the_server_is_reached() {
    let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await.unwrap();
    let test = at(&store, "192.0.2.7:6443").await;
    let http = test.http();
    let service = http.get("/api/v1/namespaces/default/services/kubernetes").await.ok();
    assert_eq!(
        (text(&service, "/spec/clusterIP"), &service["spec"]["ports"][0]["targetPort"]),
        ("10.96.0.1", &json!(6443))
    );
    assert_eq!(http.get("/apis/networking.k8s.io/v1/ipaddresses/10.96.0.1").await.code, 200);
    let slice = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
    assert_eq!(http.get(slice).await.ok()["endpoints"][0]["addresses"], json!(["192.0.2.7"]));
    let endpoints = http.get("/api/v1/namespaces/default/endpoints/kubernetes").await.ok();
    assert_eq!(endpoints["subsets"][0]["ports"][0]["port"], 6443);
    test.server.stop().await;

    let test = at(&store, "192.0.2.8:7443").await;
    let http = test.http();
    let service = http.get("/api/v1/namespaces/default/services/kubernetes").await.ok();
    assert_eq!(service["spec"]["ports"][0]["targetPort"], 7443);
    let moved = http.get(slice).await.ok();
    assert_eq!(
        (&moved["endpoints"][0]["addresses"], &moved["ports"][0]["port"]),
        (&json!(["192.0.2.8"]), &json!(7443))
    );
    test.server.stop().await;

    // With an address that only this machine can reach, the service has no endpoints.
    let test = at(&store, "127.0.0.1:6443").await;
    assert_eq!(test.http().get(slice).await.code, 404);
    assert_eq!(test.http().get("/api/v1/namespaces/default/services/kubernetes").await.code, 200);
    test.server.stop().await;

    // A server that listens there may be reachable at another address, for example through a forwarded port.
    let options = Options {
        address: "127.0.0.1:6443".to_owned(),
        advertised: Some([192, 0, 2, 9].into()),
        ..options(&store, Authorization::default())
    };
    let test = TestServer { server: Server::start(options).await.unwrap(), store: store.clone() };
    assert_eq!(test.http().get(slice).await.ok()["endpoints"][0]["addresses"], json!(["192.0.2.9"]));
}

#[tokio::test(start_paused = true)]
async fn what_the_server_needs_is_made_again_when_somebody_deletes_it() {
    const SERVICE: &str = "/api/v1/namespaces/default/services/kubernetes";
    const SLICE: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
    const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints/kubernetes";
    const RANGE: &str = "/apis/networking.k8s.io/v1/servicecidrs/kubernetes";
    const LEASES: &str = "/api/v1/namespaces/kube-node-lease";
    let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await.unwrap();
    let test = at(&store, "192.0.2.7:6443").await;
    let http = test.http();
    let service = http.get(SERVICE).await.ok();
    http.delete(SERVICE).await.ok();
    http.delete(SLICE).await.ok();
    http.delete(ENDPOINTS).await.ok();
    http.delete(LEASES).await.ok();
    // No control loop runs that would finish the deletion of namespaces.
    http.put(&format!("{LEASES}/finalize"), &json!({
        "kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "kube-node-lease"}, "spec": {"finalizers": []},
    })).await.ok();
    tokio::time::sleep(Duration::from_secs(11)).await;
    for path in [SERVICE, SLICE, ENDPOINTS, RANGE, LEASES] {
        http.get(path).await.ok();
    }
    let again = http.get(SERVICE).await.ok();
    assert_eq!(again["spec"], service["spec"]);
    let before = version(&http.get(CONFIGS).await.ok());
    tokio::time::sleep(Duration::from_secs(35)).await;
    assert_eq!(version(&http.get(CONFIGS).await.ok()), before, "what is as it should be is not written");
}

#[tokio::test]
async fn a_server_has_one_lease_however_often_it_starts() {
    let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await.unwrap();
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases?labelSelector=apiserver.kubernetes.io/identity=kube-apiserver";
    let test = at(&store, "192.0.2.7:6443").await;
    let first = test.http().get(leases).await.ok();
    test.server.stop().await;
    let test = at(&store, "192.0.2.7:6443").await;
    let second = test.http().get(leases).await.ok();
    assert_eq!((names(&first).len(), names(&first)), (1, names(&second)));
    let holder = |list: &serde_json::Value| text(list, "/items/0/spec/holderIdentity").to_owned();
    assert_eq!(holder(&first), holder(&second));
    assert!(holder(&second).starts_with(&format!("{}_", names(&second)[0])));
    assert_eq!(second["items"][0]["spec"]["leaseDurationSeconds"], 3600);
}

#[tokio::test(start_paused = true)]
async fn namespaces_that_take_long_are_waited_for() {
    let engine = Engine::new(|txn| {
        let is_namespace = puts(txn, "namespaces") && says(txn, "kube-system");
        Box::pin(async move {
            if is_namespace {
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
            Ok(())
        })
    });
    let test = TestServer::on(Arc::new(engine)).await;
    let tracked = "/api/v1/namespaces/kube-system/configmaps/kube-apiserver-legacy-service-account-token-tracking";
    assert_eq!(test.http().get(tracked).await.code, 200);
}

#[tokio::test]
async fn a_second_start_writes_nothing() {
    let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await.unwrap();
    at(&store, "192.0.2.7:6443").await.server.stop().await;
    let before = store.sync().await.unwrap();
    at(&store, "192.0.2.7:6443").await.server.stop().await;
    assert_eq!(store.sync().await.unwrap(), before);
}

#[tokio::test]
async fn the_store_is_a_component_that_is_well() {
    let test = TestServer::new().await;
    let http = test.http();
    let list = http.get("/api/v1/componentstatuses").await;
    let warning = "299 - \"v1 ComponentStatus is deprecated in v1.19+\"";
    assert_eq!((names(&list.ok()), list.header("warning")), (vec!["etcd-0".to_owned()], Some(warning)));
    let one = http.get("/api/v1/componentstatuses/etcd-0").await.ok();
    assert_eq!(one["conditions"], json!([{"type": "Healthy", "status": "True", "message": "ok"}]));
    assert_eq!(http.get("/api/v1/componentstatuses/none").await.code, 404);
    assert_eq!(http.delete("/api/v1/componentstatuses/etcd-0").await.code, 405);
    let named = http.get("/api/v1/componentstatuses?fieldSelector=metadata.name%3Dother").await.ok();
    assert!(names(&named).is_empty());
}

#[tokio::test]
async fn a_start_that_fails_leaves_no_task_behind() {
    let engine = Engine::new(|txn| {
        let fails = puts(txn, "priorityclasses");
        Box::pin(std::future::ready(if fails { Err(kv::Error::Busy) } else { Ok(()) }))
    });
    let store = Store::open(Arc::new(engine), steersman_storage::Options::default()).await.unwrap();
    let n_tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = n_tasks();
    let authorization = Authorization::Modes(vec![Mode::Node, Mode::Rbac]);
    assert!(Server::start(options(&store, authorization)).await.is_err());
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(n_tasks(), before);
}
