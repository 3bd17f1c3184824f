//! The addresses of Services as objects.

use crate::support::{TestServer, names, options, serve, text};
use serde_json::json;
use std::sync::Arc;
use steersman_machinery::{GroupResource, ObjectKey};
use steersman_server::Ranges;
use steersman_server::authz::Authorization;
use steersman_server::{Options, Server};
use steersman_storage::{Memory, Store};

const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";
const SERVICES: &str = "/api/v1/namespaces/default/services";

#[tokio::test]
async fn the_address_of_a_service_is_an_object_as_long_as_the_service_has_it() {
    let test = TestServer::new().await;
    let http = test.http();
    let service = json!({"metadata": {"name": "s"}, "spec": {"clusterIP": "10.96.201.7", "ports": [{"port": 80}]}});
    http.post(SERVICES, &service).await.ok();
    let address = http.get(&format!("{ADDRESSES}/10.96.201.7")).await.ok();
    let parent = json!({"name": "s", "namespace": "default", "resource": "services"});
    assert_eq!(address["spec"]["parentRef"], parent);
    assert_eq!(address["metadata"]["labels"]["ipaddress.kubernetes.io/ip-family"], "IPv4");
    let owned = &address["metadata"]["managedFields"][0];
    assert_eq!((&owned["manager"], &owned["operation"]), (&json!("steersman"), &json!("Update")));
    let parent_fields = json!({"f:parentRef": {".": {}, "f:name": {}, "f:namespace": {}, "f:resource": {}}});
    assert_eq!(owned["fieldsV1"]["f:spec"], parent_fields);
    let external = json!({"spec": {"type": "ExternalName", "externalName": "a.example.com", "clusterIP": null, "clusterIPs": null, "ipFamilies": null, "ipFamilyPolicy": null, "ports": null}});
    http.merge(&format!("{SERVICES}/s"), &external).await.ok();
    assert_eq!(http.get(&format!("{ADDRESSES}/10.96.201.7")).await.code, 404);
    http.post(
        SERVICES,
        &json!({"metadata": {"name": "t"}, "spec": {"clusterIP": "10.96.201.7", "ports": [{"port": 80}]}}),
    )
    .await
    .ok();
    http.delete(&format!("{SERVICES}/t")).await.ok();
    assert_eq!(http.get(&format!("{ADDRESSES}/10.96.201.7")).await.code, 404);
}

#[tokio::test]
async fn an_address_taken_by_hand_is_given_to_no_service() {
    let test = TestServer::new().await;
    let http = test.http();
    let address = json!({"metadata": {"name": "10.96.202.2"}, "spec": {"parentRef": {"resource": "services", "namespace": "a", "name": "mine"}}});
    http.post(ADDRESSES, &address).await.ok();
    let service = json!({"metadata": {"name": "s"}, "spec": {"clusterIP": "10.96.202.2", "ports": [{"port": 80}]}});
    let refused = http.post(SERVICES, &service).await;
    let why = "Service \"s\" is invalid: spec.clusterIPs: Invalid value: [\"10.96.202.2\"]: failed to allocate IP 10.96.202.2: provided IP is already allocated";
    assert_eq!((refused.code, text(&refused.json(), "/message")), (422, why));
    http.delete(&format!("{ADDRESSES}/10.96.202.2")).await.ok();
    http.post(SERVICES, &service).await.ok();
    let odd = json!({"metadata": {"name": "10.096.0.1"}, "spec": {}});
    let causes = http.post(ADDRESSES, &odd).await.json()["details"]["causes"].clone();
    let messages: Vec<&str> = causes.as_array().unwrap().iter().map(|cause| text(cause, "/message")).collect();
    assert_eq!(messages, ["Invalid value: \"10.096.0.1\": must not have leading 0s", "Required value"]);
}

#[tokio::test]
async fn a_start_makes_the_objects_of_addresses_right() {
    let test = TestServer::new().await;
    let http = test.http();
    let service = json!({"metadata": {"name": "s"}, "spec": {"clusterIP": "10.96.201.7", "ports": [{"port": 80}]}});
    http.post(SERVICES, &service).await.ok();
    http.delete(&format!("{ADDRESSES}/10.96.201.7")).await.ok();
    http.post(
        SERVICES,
        &json!({"metadata": {"name": "t"}, "spec": {"clusterIP": "10.96.201.8", "ports": [{"port": 80}]}}),
    )
    .await
    .ok();
    // The state after a crash between the deletion of a Service and that of its IPAddress.
    let (services, key) = (GroupResource::new("", "services"), ObjectKey::namespaced("default", "t"));
    let stored = test.store.get(&services, &key).await.unwrap().unwrap();
    test.store.delete(&services, &key, stored.revision).await.unwrap();
    test.server.stop().await;

    let test = TestServer { server: serve(&test.store, Authorization::default()).await, store: test.store };
    let found = names(&test.http().get(ADDRESSES).await.ok());
    assert!(found.contains(&"10.96.201.7".to_owned()) && !found.contains(&"10.96.201.8".to_owned()), "{found:?}");
}

#[tokio::test]
async fn an_address_stays_that_of_its_service_when_its_object_is_deleted() {
    let test = TestServer::new().await;
    let http = test.http();
    let named =
        |name: &str| json!({"metadata": {"name": name}, "spec": {"clusterIP": "10.96.201.7", "ports": [{"port": 80}]}});
    http.post(SERVICES, &named("s")).await.ok();
    http.delete(&format!("{ADDRESSES}/10.96.201.7")).await.ok();
    let taken = http.post(SERVICES, &named("t")).await;
    assert!(taken.code == 422 && taken.body_text().contains("already allocated"), "{}", taken.body_text());
    http.delete(&format!("{SERVICES}/s")).await.ok();
    http.post(SERVICES, &named("t")).await.ok();
}

#[tokio::test]
async fn other_entries_beside_that_of_the_node_ports_do_not_count() {
    let test = TestServer::new().await;
    let http = test.http();
    let named = |name: &str, port: Option<u16>| json!({"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}});
    http.post(SERVICES, &named("s", Some(30_001))).await.ok();
    // All ports are taken by it.
    let (ranges, key) = (GroupResource::new("", "ranges"), ObjectKey::cluster("others"));
    let data = "/".repeat(4 * 116);
    let full = json!({"metadata": {"name": "others"}, "range": "30000-32767", "data": data}).to_string();
    let stored = test.store.create(&ranges, &key, full.into()).await.unwrap();
    http.post(SERVICES, &named("t", None)).await.ok();
    test.store.delete(&ranges, &key, stored.revision).await.unwrap();
    let taken = http.post(SERVICES, &named("u", Some(30_001))).await;
    assert_eq!(taken.code, 422, "{}", taken.body_text());
}

#[tokio::test]
async fn node_ports_are_read_from_the_services_if_what_records_them_is_lost() {
    let test = TestServer::new().await;
    let http = test.http();
    let named = |name: &str, port: u16| json!({"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}});
    http.post(SERVICES, &named("s", 30_001)).await.ok();
    let (ranges, key) = (GroupResource::new("", "ranges"), ObjectKey::cluster("servicenodeports"));
    let stored = test.store.get(&ranges, &key).await.unwrap().unwrap();
    test.store.delete(&ranges, &key, stored.revision).await.unwrap();
    let taken = http.post(SERVICES, &named("t", 30_001)).await;
    assert!(taken.code == 422 && taken.body_text().contains("already allocated"), "{}", taken.body_text());
    http.post(SERVICES, &named("u", 30_002)).await.ok();
    http.delete(&format!("{SERVICES}/s")).await.ok();
    http.post(SERVICES, &named("t", 30_001)).await.ok();
}

#[tokio::test]
async fn ranges_are_checked_and_stay() {
    let test = TestServer::new().await;
    let http = test.http();
    let ranges = "/apis/networking.k8s.io/v1/servicecidrs";
    let bad = json!({"metadata": {"name": "r"}, "spec": {"cidrs": ["10.97.0.1/16", "10.98.0.0/16"]}});
    let refused = http.post(ranges, &bad).await;
    let why = "ServiceCIDR.networking.k8s.io \"r\" is invalid: [spec.cidrs: Invalid value: [\"10.97.0.1/16\",\"10.98.0.0/16\"]: may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64, spec.cidrs[0]: Invalid value: \"10.97.0.1/16\": must not have bits set beyond the prefix length]";
    assert_eq!((refused.code, text(&refused.json(), "/message")), (422, why));
    let own = http.get(&format!("{ranges}/kubernetes")).await.ok();
    assert_eq!((&own["spec"]["cidrs"], text(&own, "/status/conditions/0/type")), (&json!(["10.96.0.0/16"]), "Ready"));
    let changed = http.merge(&format!("{ranges}/kubernetes"), &json!({"spec": {"cidrs": ["10.95.0.0/16"]}})).await;
    let why = "ServiceCIDR.networking.k8s.io \"kubernetes\" is invalid: spec.cidrs[0]: Invalid value: \"10.95.0.0/16\": field is immutable";
    assert_eq!((changed.code, text(&changed.json(), "/message")), (422, why));
}

const RANGES: &str = "/apis/networking.k8s.io/v1/servicecidrs";

#[tokio::test]
async fn a_range_yields_addresses_from_when_it_is_ready_to_when_it_is_deleted() {
    let test = TestServer::new().await;
    let http = test.http();
    let range =
        json!({"metadata": {"name": "r", "finalizers": ["example.com/hold"]}, "spec": {"cidrs": ["198.51.100.0/24"]}});
    http.post(RANGES, &range).await.ok();
    let create = async |name: &str, address: &str| {
        let service = json!({"metadata": {"name": name}, "spec": {"clusterIP": address, "ports": [{"port": 80}]}});
        http.post(SERVICES, &service).await.code
    };
    assert_eq!(create("s", "198.51.100.7").await, 422);
    let ready = json!({"status": {"conditions": [{
        "type": "Ready", "status": "True", "reason": "", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}});
    http.merge(&format!("{RANGES}/r/status"), &ready).await.ok();
    assert_eq!(create("s", "198.51.100.7").await, 201);
    let address = http.get(&format!("{ADDRESSES}/198.51.100.7")).await.ok();
    assert_eq!(address["metadata"]["labels"]["ipaddress.kubernetes.io/managed-by"], "ipallocator.k8s.io");
    http.delete(&format!("{RANGES}/r")).await.ok();
    assert_eq!(create("t", "198.51.100.8").await, 422);
    http.merge(&format!("{RANGES}/r"), &json!({"metadata": {"finalizers": null}})).await.ok();
    assert_eq!((http.get(&format!("{RANGES}/r")).await.code, create("t", "198.51.100.8").await), (404, 422));
}

/// Starts a server with these ranges.
async fn start(store: &Store, ranges: &[&str]) -> Server {
    let addresses = ranges.iter().map(|range| range.parse().unwrap()).collect();
    let service_ranges = Ranges { addresses, ..Ranges::default() };
    Server::start(Options { service_ranges, ..options(store, Authorization::default()) }).await.unwrap()
}

#[tokio::test]
async fn a_second_family_is_added_at_a_start_and_the_first_range_stays() {
    let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await.unwrap();
    start(&store, &["10.0.0.0/24"]).await.stop().await;
    let two = TestServer { server: start(&store, &["10.0.0.0/24", "fd00::/112"]).await, store: store.clone() };
    let http = two.http();
    let range = http.get(&format!("{RANGES}/kubernetes")).await.ok();
    assert_eq!(range["spec"]["cidrs"], json!(["10.0.0.0/24", "fd00::/112"]));
    let own = http.get(&format!("{SERVICES}/kubernetes")).await.ok();
    assert_eq!((text(&own, "/spec/clusterIP"), &own["spec"]["ipFamilies"]), ("10.0.0.1", &json!(["IPv4"])));
    let both =
        json!({"metadata": {"name": "s"}, "spec": {"ipFamilyPolicy": "RequireDualStack", "ports": [{"port": 80}]}});
    let both = http.post(SERVICES, &both).await.ok();
    assert_eq!(both["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));
    let second = text(&both, "/spec/clusterIPs/1");
    let address = http.get(&format!("{ADDRESSES}/{second}")).await.ok();
    assert_eq!(address["metadata"]["labels"]["ipaddress.kubernetes.io/ip-family"], "IPv6");
    let single = json!({"spec": {"ipFamilyPolicy": "SingleStack"}});
    let single = http.merge(&format!("{SERVICES}/s"), &single).await.ok();
    assert_eq!(single["spec"]["clusterIPs"], json!([both["spec"]["clusterIP"]]));
    assert_eq!(http.get(&format!("{ADDRESSES}/{second}")).await.code, 404);
    two.server.stop().await;

    let other = TestServer { server: start(&store, &["10.9.0.0/24"]).await, store };
    let drawn = json!({"metadata": {"name": "t"}, "spec": {"ports": [{"port": 80}]}});
    let drawn = other.http().post(SERVICES, &drawn).await.ok();
    assert!(text(&drawn, "/spec/clusterIP").starts_with("10.0.0."), "{drawn}");
}

#[tokio::test]
async fn a_server_of_the_other_family_is_found_there() {
    let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await.unwrap();
    let test = TestServer { server: start(&store, &["fd00::/112"]).await, store };
    let own = test.http().get(&format!("{SERVICES}/kubernetes")).await.ok();
    assert_eq!((text(&own, "/spec/clusterIP"), &own["spec"]["ipFamilies"]), ("fd00::1", &json!(["IPv6"])));
}
