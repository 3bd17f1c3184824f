//! Addresses and ports: given once, given back, and never twice under concurrency.

use super::*;

fn service(spec: Value) -> Value {
    json!({"metadata": {"name": "s"}, "spec": spec})
}

fn fault(result: Result<Reservation<'_>, Vec<Error>>) -> String {
    result.unwrap_err()[0].to_string()
}

#[test]
fn an_address_is_drawn_from_the_range_and_belongs_to_one() {
    let allocator = Allocator::new("10.0.0.0/28".parse().unwrap(), 30_000..=30_010);
    let mut seen = HashSet::new();
    for _ in 0..14 {
        let mut one = service(json!({"type": "ClusterIP"}));
        allocator.reserve(&mut one, None).unwrap().commit();
        let address = one["spec"]["clusterIP"].as_str().unwrap().to_owned();
        assert_eq!(one["spec"]["clusterIPs"], json!([address]));
        assert_eq!(one["spec"]["ipFamilies"], json!(["IPv4"]));
        assert!(allocator.address_in_range(address.parse().unwrap()) && seen.insert(address));
    }
    let full = fault(allocator.reserve(&mut service(json!({"type": "ClusterIP"})), None));
    assert_eq!(full, "spec.clusterIPs: Internal error: failed to allocate a serviceIP: range is full");
}

#[test]
fn what_is_not_stored_is_given_back() {
    let allocator = Allocator::default();
    let named = || service(json!({"type": "ClusterIP", "clusterIP": "10.96.0.10", "clusterIPs": ["10.96.0.10"]}));
    drop(allocator.reserve(&mut named(), None).unwrap());
    allocator.reserve(&mut named(), None).unwrap().commit();
    let taken = fault(allocator.reserve(&mut named(), None));
    assert_eq!(
        taken,
        r#"spec.clusterIPs: Invalid value: ["10.96.0.10"]: failed to allocate IP 10.96.0.10: provided IP is already allocated"#
    );
    allocator.release(&named());
    allocator.reserve(&mut named(), None).unwrap().commit();
}

#[test]
fn an_address_elsewhere_is_refused() {
    let allocator = Allocator::default();
    let mut outside = service(json!({"type": "ClusterIP", "clusterIP": "1.2.3.4", "clusterIPs": ["1.2.3.4"]}));
    assert_eq!(
        fault(allocator.reserve(&mut outside, None)),
        r#"spec.clusterIPs: Invalid value: ["1.2.3.4"]: failed to allocate IP 1.2.3.4: the provided IP (1.2.3.4) is not in the valid range. The range of valid IPs is 10.96.0.0/16"#
    );
}

#[test]
fn node_ports_are_drawn_or_taken_as_named() {
    let allocator = Allocator::new("10.0.0.0/24".parse().unwrap(), 30_000..=30_001);
    let mut both = service(json!({"type": "NodePort", "ports": [
        {"port": 80, "protocol": "TCP"}, {"port": 81, "protocol": "TCP", "nodePort": 30_000},
    ]}));
    allocator.reserve(&mut both, None).unwrap().commit();
    assert_eq!(
        (&both["spec"]["ports"][0]["nodePort"], &both["spec"]["ports"][1]["nodePort"]),
        (&json!(30_001), &json!(30_000))
    );
    let one = |port: u16| service(json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}));
    assert_eq!(
        fault(allocator.reserve(&mut one(30_000), None)),
        "spec.ports[0].nodePort: Invalid value: 30000: provided port is already allocated"
    );
    assert_eq!(
        fault(allocator.reserve(&mut one(80), None)),
        "spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid ports is 30000-30001"
    );
}

#[test]
fn one_port_for_two_protocols_is_one_port() {
    let allocator = Allocator::default();
    let mut dns = service(json!({"type": "NodePort", "ports": [
        {"name": "udp", "port": 53, "protocol": "UDP"}, {"name": "tcp", "port": 53, "protocol": "TCP"},
    ]}));
    allocator.reserve(&mut dns, None).unwrap().commit();
    assert_eq!(dns["spec"]["ports"][0]["nodePort"], dns["spec"]["ports"][1]["nodePort"]);
}

#[test]
fn a_change_keeps_what_it_has_and_frees_what_it_has_no_more() {
    let allocator = Allocator::new("10.0.0.0/24".parse().unwrap(), 30_000..=30_000);
    let mut old = service(json!({"type": "NodePort", "ports": [{"port": 80}]}));
    allocator.reserve(&mut old, None).unwrap().commit();
    let mut same = old.clone();
    allocator.reserve(&mut same, Some(&old)).unwrap().commit();
    assert_eq!(same, old);
    let mut plain = old.clone();
    plain["spec"]["type"] = json!("ClusterIP");
    plain["spec"]["ports"] = json!([{"port": 80}]);
    allocator.reserve(&mut plain, Some(&old)).unwrap().commit();
    let mut other = service(json!({"type": "NodePort", "ports": [{"port": 80}]}));
    allocator.reserve(&mut other, None).unwrap().commit();
    assert_eq!(other["spec"]["ports"][0]["nodePort"], 30_000);
}

#[test]
fn a_service_without_an_address_takes_none() {
    let allocator = Allocator::default();
    let mut headless =
        service(json!({"type": "ClusterIP", "clusterIP": "None", "clusterIPs": ["None"], "selector": {"a": "b"}}));
    allocator.reserve(&mut headless, None).unwrap().commit();
    assert_eq!((&headless["spec"]["clusterIP"], &headless["spec"]["ipFamilies"]), (&json!("None"), &json!(["IPv4"])));
    let mut external = service(json!({"type": "ExternalName", "externalName": "example.com"}));
    allocator.reserve(&mut external, None).unwrap().commit();
    assert_eq!(external["spec"], json!({"type": "ExternalName", "externalName": "example.com"}));
}

#[test]
fn writers_at_once_never_get_the_same() {
    let allocator = Allocator::default();
    let drawn = Mutex::new(HashSet::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let mut one = service(json!({"type": "NodePort", "ports": [{"port": 80}]}));
                    allocator.reserve(&mut one, None).unwrap().commit();
                    let pair = (one["spec"]["clusterIP"].to_string(), one["spec"]["ports"][0]["nodePort"].to_string());
                    let mut drawn = drawn.lock();
                    assert!(drawn.insert(pair.0) && drawn.insert(pair.1));
                }
            });
        }
    });
}

#[test]
fn a_preview_shows_what_there_is_to_have_and_takes_nothing() {
    let allocator = Allocator::new("10.0.0.0/30".parse().unwrap(), 30_000..=30_000);
    let mut shown = service(json!({"type": "NodePort", "ports": [{"port": 80}]}));
    allocator.preview(&mut shown, None).unwrap();
    assert_eq!(shown["spec"]["ports"][0]["nodePort"], 30_000);
    let mut kept = service(json!({"type": "NodePort", "ports": [{"port": 80}]}));
    allocator.reserve(&mut kept, None).unwrap().commit();
    assert_eq!(kept["spec"]["ports"][0]["nodePort"], 30_000);
    assert!(allocator.preview(&mut service(json!({"type": "NodePort", "ports": [{"port": 80}]})), None).is_err());
}
