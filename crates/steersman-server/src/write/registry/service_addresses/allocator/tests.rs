//! Tests of addresses and ports: allocated once, released, and never twice under concurrency.

use super::*;
use serde_json::json;
use std::collections::HashSet;

fn service(spec: Value) -> Value {
    json!({"metadata": {"name": "s"}, "spec": spec})
}

fn allocator(ranges: &[&str], node_ports: RangeInclusive<u16>) -> Allocator {
    Allocator::new(Ranges { addresses: ranges.iter().map(|range| range.parse().unwrap()).collect(), node_ports })
}

impl Reservation<'_> {
    /// Registers the changes, as the followers do once the Service is stored.
    fn commit(self) {
        let mut state = self.allocator.state.lock();
        for item in &self.fresh {
            match *item {
                Item::Address(address) => state.addresses.insert(address),
                Item::NodePort(port) => state.node_ports.insert(port),
            };
        }
        for item in &self.stale {
            match item {
                Item::Address(address) => state.addresses.remove(address),
                Item::NodePort(port) => state.node_ports.remove(port),
            };
        }
        drop(state);
    }
}

fn fault(result: Result<Reservation<'_>, Vec<Error>>) -> String {
    result.unwrap_err()[0].to_string()
}

#[test]
fn an_address_is_drawn_from_the_range_and_belongs_to_one() {
    let allocator = allocator(&["10.0.0.0/28"], 30_000..=30_010);
    let mut seen = HashSet::new();
    for _ in 0..14 {
        let mut one = service(json!({"type": "ClusterIP"}));
        allocator.reserve(&mut one, None).unwrap().commit();
        let address = one["spec"]["clusterIP"].as_str().unwrap().to_owned();
        assert_eq!(one["spec"]["clusterIPs"], json!([address]));
        assert_eq!(one["spec"]["ipFamilies"], json!(["IPv4"]));
        let range = "10.0.0.0/28".parse().unwrap();
        assert!(range::contains(&range, address.parse().unwrap()) && seen.insert(address));
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
    allocator.freed(&named()).commit();
    allocator.reserve(&mut named(), None).unwrap().commit();
}

#[test]
fn an_address_is_taken_while_an_object_or_a_write_under_way_has_it() {
    let allocator = Allocator::default();
    let named = |address: &str| service(json!({"type": "ClusterIP", "clusterIP": address, "clusterIPs": [address]}));
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    let is_free = |text: &str| allocator.reserve(&mut named(text), None).is_ok();
    let reserved = allocator.reserve(&mut named("10.96.0.11"), None).unwrap();
    allocator.add_address(address("10.96.0.12"));
    assert!(!is_free("10.96.0.11") && !is_free("10.96.0.12"));
    // The object of another server's Service comes and goes while the write is under way.
    allocator.add_address(address("10.96.0.11"));
    allocator.remove_address(address("10.96.0.11"));
    assert!(!is_free("10.96.0.11"));
    drop(reserved);
    allocator.remove_address(address("10.96.0.12"));
    assert!(is_free("10.96.0.11") && is_free("10.96.0.12"));
}

#[test]
fn an_address_elsewhere_is_refused() {
    let allocator = Allocator::default();
    let mut outside = service(json!({"type": "ClusterIP", "clusterIP": "1.2.3.4", "clusterIPs": ["1.2.3.4"]}));
    assert_eq!(
        fault(allocator.reserve(&mut outside, None)),
        r#"spec.clusterIPs: Invalid value: ["1.2.3.4"]: failed to allocate IP 1.2.3.4: the provided network does not match the current range"#
    );
}

#[test]
fn node_ports_are_drawn_or_taken_as_named() {
    let allocator = allocator(&["10.0.0.0/24"], 30_000..=30_001);
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
fn an_update_draws_a_port_for_each_new_entry() {
    let allocator = Allocator::default();
    let mut old = service(json!({"type": "NodePort", "ports": [{"name": "udp", "port": 53, "protocol": "UDP"}]}));
    allocator.reserve(&mut old, None).unwrap().commit();
    let mut new = old.clone();
    new["spec"]["ports"].as_array_mut().unwrap().push(json!({"name": "tcp", "port": 53, "protocol": "TCP"}));
    allocator.reserve(&mut new, Some(&old)).unwrap().commit();
    assert_ne!(new["spec"]["ports"][0]["nodePort"], new["spec"]["ports"][1]["nodePort"]);
}

#[test]
fn ports_of_different_numbers_do_not_share_a_named_node_port() {
    let ports = |first: u16, second: u16| {
        service(json!({"type": "NodePort", "ports": [
            {"name": "udp", "port": first, "protocol": "UDP", "nodePort": 30_000},
            {"name": "tcp", "port": second, "protocol": "TCP", "nodePort": 30_000},
        ]}))
    };
    let taken = "spec.ports[1].nodePort: Invalid value: 30000: provided port is already allocated";
    let allocator = Allocator::default();
    assert_eq!(fault(allocator.reserve(&mut ports(53, 54), None)), taken);
    assert_eq!(allocator.preview(&mut ports(53, 54), None).unwrap_err()[0].to_string(), taken);
    let mut shared = ports(53, 53);
    allocator.reserve(&mut shared, None).unwrap().commit();
    // An update does not look at the other entries.
    allocator.reserve(&mut ports(53, 54), Some(&shared)).unwrap().commit();
}

#[test]
fn twin_is_the_first_earlier_port_of_the_same_number() {
    let ports = |numbers: [u16; 5]| service(json!({"ports": numbers.map(|number| json!({"port": number}))}));
    assert_eq!(twins(&ports([1, 2, 1, 2, 1])), [None, None, Some(0), Some(1), Some(0)]);
}

#[test]
fn a_change_keeps_what_it_has_and_frees_what_it_has_no_more() {
    let allocator = allocator(&["10.0.0.0/24"], 30_000..=30_000);
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
    let allocator = allocator(&["10.0.0.0/30"], 30_000..=30_000);
    let mut shown = service(json!({"type": "NodePort", "ports": [{"port": 80}]}));
    allocator.preview(&mut shown, None).unwrap();
    assert_eq!(shown["spec"]["ports"][0]["nodePort"], 30_000);
    let mut kept = service(json!({"type": "NodePort", "ports": [{"port": 80}]}));
    allocator.reserve(&mut kept, None).unwrap().commit();
    assert_eq!(kept["spec"]["ports"][0]["nodePort"], 30_000);
    assert!(allocator.preview(&mut service(json!({"type": "NodePort", "ports": [{"port": 80}]})), None).is_err());
}

fn service_cidr(name: &str, range: &str, status: &str) -> Value {
    json!({
        "metadata": {"name": name}, "spec": {"cidrs": [range]},
        "status": {"conditions": [{"type": "Ready", "status": status}]},
    })
}

#[test]
fn further_ranges_yield_addresses_while_they_are_ready() {
    let allocator = allocator(&["10.0.0.0/30"], 1..=1);
    let draw = || {
        let mut one = service(json!({"type": "ClusterIP"}));
        let address = allocator.reserve(&mut one, None).map(Reservation::commit);
        address.map(|()| one["spec"]["clusterIP"].as_str().unwrap().to_owned()).map_err(|faults| faults[0].to_string())
    };
    let full = "spec.clusterIPs: Internal error: failed to allocate a serviceIP: range is full".to_owned();
    assert!(draw().is_ok() && draw().is_ok());
    assert_eq!(draw(), Err(full.clone()));
    allocator.observe_range(&service_cidr("more", "10.0.1.0/29", "False"));
    assert_eq!(draw(), Err(full.clone()));
    allocator.observe_range(&service_cidr("more", "10.0.1.0/29", "True"));
    assert!(draw().unwrap().starts_with("10.0.1."));
    let mut going = service_cidr("more", "10.0.1.0/29", "True");
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    allocator.observe_range(&going);
    assert_eq!(draw(), Err(full.clone()));
    allocator.observe_range(&service_cidr("more", "10.0.1.0/29", "True"));
    allocator.forget_range("more");
    assert_eq!(draw(), Err(full));
}

#[test]
fn the_servers_own_range_is_ready_from_the_first() {
    let allocator = allocator(&["10.0.0.0/24"], 1..=1);
    let bare = json!({"metadata": {"name": DEFAULT_RANGES}, "spec": {"cidrs": ["10.0.0.0/24"]}});
    allocator.observe_range(&bare);
    allocator.reserve(&mut service(json!({"type": "ClusterIP"})), None).unwrap().commit();
    allocator.observe_range(&service_cidr(DEFAULT_RANGES, "10.0.0.0/24", "False"));
    assert!(allocator.reserve(&mut service(json!({"type": "ClusterIP"})), None).is_err());
}

fn two_families() -> Allocator {
    allocator(&["10.0.0.0/24", "fd00::/112"], 30_000..=30_010)
}

#[track_caller]
fn families(allocator: &Allocator, spec: Value) -> (Value, Value) {
    let mut one = service(spec);
    allocator.reserve(&mut one, None).unwrap().commit();
    let addresses: Vec<&str> =
        one["spec"]["clusterIPs"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (address, family) in addresses.iter().zip(one["spec"]["ipFamilies"].as_array().unwrap()) {
        assert_eq!(address.contains(':'), family == "IPv6", "{one}");
    }
    assert_eq!(one["spec"].get("clusterIP").and_then(Value::as_str), addresses.first().copied());
    (one["spec"]["ipFamilies"].clone(), one["spec"]["ipFamilyPolicy"].clone())
}

#[test]
fn a_service_has_the_families_that_it_asks_for() {
    let allocator = two_families();
    let single = |names: &[&str]| (json!(names), json!("SingleStack"));
    assert_eq!(families(&allocator, json!({"type": "ClusterIP"})), single(&["IPv4"]));
    assert_eq!(families(&allocator, json!({"type": "ClusterIP", "ipFamilies": ["IPv6"]})), single(&["IPv6"]));
    let named = json!({"type": "ClusterIP", "clusterIP": "fd00::7", "clusterIPs": ["fd00::7"]});
    assert_eq!(families(&allocator, named), single(&["IPv6"]));
    for policy in ["PreferDualStack", "RequireDualStack"] {
        let both = json!({"type": "ClusterIP", "ipFamilyPolicy": policy});
        assert_eq!(families(&allocator, both), (json!(["IPv4", "IPv6"]), json!(policy)));
        let turned = json!({"type": "ClusterIP", "ipFamilyPolicy": policy, "ipFamilies": ["IPv6"]});
        assert_eq!(families(&allocator, turned), (json!(["IPv6", "IPv4"]), json!(policy)));
    }
    let prefers = json!({"type": "ClusterIP", "ipFamilyPolicy": "PreferDualStack"});
    assert_eq!(families(&Allocator::default(), prefers), (json!(["IPv4"]), json!("PreferDualStack")));
}

#[track_caller]
fn refused(allocator: &Allocator, spec: Value, want: &str) {
    assert_eq!(fault(allocator.reserve(&mut service(spec), None)), want);
}

#[test]
fn families_that_there_are_not_are_refused() {
    let one = Allocator::default();
    refused(
        &one,
        json!({"type": "ClusterIP", "ipFamilyPolicy": ""}),
        r#"spec.ipFamilyPolicy: Unsupported value: "": supported values: "PreferDualStack", "RequireDualStack", "SingleStack""#,
    );
    refused(
        &one,
        json!({"type": "ClusterIP", "ipFamilyPolicy": "RequireDualStack"}),
        r#"spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for dual-stack services"#,
    );
    refused(
        &one,
        json!({"type": "ClusterIP", "ipFamilies": ["IPv6"]}),
        r#"spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster"#,
    );
    refused(
        &one,
        json!({"type": "ClusterIP", "clusterIP": "fd00::1", "clusterIPs": ["fd00::1"]}),
        r#"spec.clusterIPs[0]: Invalid value: ["fd00::1"]: IPv6 is not configured on this cluster"#,
    );
    refused(
        &two_families(),
        json!({"type": "ClusterIP", "ipFamilies": ["IPv6", "IPv4"]}),
        r#"spec.ipFamilyPolicy: Invalid value: "SingleStack": must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified"#,
    );
    refused(
        &two_families(),
        json!({"type": "ClusterIP", "clusterIP": "fd00::1", "clusterIPs": ["fd00::1"], "ipFamilies": ["IPv4"]}),
        r#"spec.clusterIPs[0]: Invalid value: "fd00::1": expected an IPv4 value as indicated by `ipFamilies[0]`"#,
    );
}

#[test]
fn the_second_family_comes_and_goes_with_the_policy() {
    let allocator = two_families();
    let mut old = service(json!({"type": "ClusterIP"}));
    allocator.reserve(&mut old, None).unwrap().commit();
    let mut both = old.clone();
    both["spec"]["ipFamilyPolicy"] = json!("RequireDualStack");
    allocator.reserve(&mut both, Some(&old)).unwrap().commit();
    assert_eq!(both["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));
    assert_eq!((addresses(&both).len(), addresses(&both)[0]), (2, addresses(&old)[0]));
    let mut fewer = both.clone();
    fewer["spec"]["clusterIPs"] = json!([both["spec"]["clusterIP"]]);
    assert_eq!(
        fault(allocator.reserve(&mut fewer, Some(&both))),
        r#"spec.ipFamilyPolicy: Invalid value: "RequireDualStack": must be 'SingleStack' to release the secondary cluster IP"#
    );
    let mut single = both.clone();
    single["spec"]["ipFamilyPolicy"] = json!("SingleStack");
    allocator.reserve(&mut single, Some(&both)).unwrap().commit();
    assert_eq!(single, old);
    let second = both["spec"]["clusterIPs"][1].clone();
    let other = json!({"type": "ClusterIP", "clusterIP": second, "clusterIPs": [second]});
    allocator.reserve(&mut service(other), None).unwrap().commit();
}
