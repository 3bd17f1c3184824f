//! The step that follows from each state.

use super::*;
use serde_json::{Value, json};

const MARKER: &str = "network-controller:c:u1";
const NAME: &str = "default/a";

fn identity() -> Identity {
    Identity::new(&"c".parse().unwrap(), "u1", "default", "a")
}

fn uuid(number: u8) -> String {
    format!("00000000-0000-4000-8000-0000000000{number:02x}")
}

fn net(number: u8) -> NetworkId {
    uuid(number).parse().unwrap()
}

fn sub(number: u8) -> SubnetId {
    uuid(number).parse().unwrap()
}

/// A network in the desired state, except for some fields.
fn network(number: u8, changed: Value) -> Network {
    let mut network = json!({
        "id": uuid(number), "name": NAME, "description": MARKER, "tags": [MARKER], "admin_state_up": true, "shared": false, "mtu": 1450
    });
    network.as_object_mut().unwrap().extend(changed.as_object().unwrap().clone());
    serde_json::from_value(network).unwrap()
}

/// A subnet in the desired state, except for some fields.
fn subnet(number: u8, changed: Value) -> Subnet {
    let mut subnet = json!({
        "id": uuid(number), "network_id": uuid(1), "name": NAME, "description": MARKER, "cidr": "10.0.0.0/24",
        "gateway_ip": "10.0.0.1", "enable_dhcp": true, "allocation_pools": [{"start": "10.0.0.2", "end": "10.0.0.254"}]
    });
    subnet.as_object_mut().unwrap().extend(changed.as_object().unwrap().clone());
    serde_json::from_value(subnet).unwrap()
}

fn theirs(number: u8, cidr: &str) -> Subnet {
    subnet(number, json!({"name": "theirs", "description": "", "cidr": cidr}))
}

fn desired(changed: Value) -> Desired {
    let mut spec = json!({"cidr": "10.0.0.0/24"});
    spec.as_object_mut().unwrap().extend(changed.as_object().unwrap().clone());
    Desired::parse(&serde_json::from_value(spec).unwrap()).unwrap()
}

fn next(spec: Value, networks: Vec<Network>, subnets: Vec<Subnet>) -> Step {
    plan(&desired(spec), &identity(), &Observed { networks, subnets, known_subnet: None })
}

#[track_caller]
fn check(spec: Value, networks: Vec<Network>, subnets: Vec<Subnet>, want: &str) {
    assert_eq!(next(spec, networks, subnets).to_string(), want);
}

fn good() -> Network {
    network(1, json!({}))
}

#[test]
fn what_is_missing_is_made_in_order() {
    assert_eq!(next(json!({}), vec![], vec![]), Step::CreateNetwork);
    assert_eq!(next(json!({}), vec![network(1, json!({"tags": []}))], vec![]), Step::AddTag(net(1)));
    assert_eq!(next(json!({}), vec![good()], vec![]), Step::CreateSubnet(net(1)));
    let made = vec![subnet(9, json!({}))];
    assert_eq!(next(json!({}), vec![good()], made.clone()), Step::Done(net(1), sub(9)));
    assert_eq!(next(json!({"gateway": "10.0.0.1"}), vec![good()], made), Step::Done(net(1), sub(9)));
}

#[test]
fn a_network_that_was_made_twice_is_made_once() {
    assert_eq!(next(json!({}), vec![good(), network(2, json!({}))], vec![]), Step::DeleteDuplicate(net(2)));
}

#[test]
fn a_network_that_only_has_the_tag_is_not_taken_for_one_that_was_made_twice() {
    let adopt = json!({"adopt": {"id": uuid(1)}});
    for (spec, other) in [
        (json!({}), network(2, json!({"name": "theirs", "description": "theirs"}))),
        (adopt.clone(), network(2, json!({"name": "theirs", "description": "theirs"}))),
        (adopt, network(2, json!({}))),
    ] {
        let refused = next(spec, vec![good(), other], vec![subnet(9, json!({}))]);
        assert!(matches!(refused, Step::Refuse(Refusal::Copied { .. })), "{refused}");
        let said = refused.to_string();
        assert!(said.contains(&uuid(1)) && said.contains(&uuid(2)) && said.contains(MARKER), "{said}");
    }
}

#[test]
fn what_is_observed_needs_no_marker_and_differs_only_where_the_spec_says_something_else() {
    let observe = |more: Value| {
        let mut spec = json!({"adopt": {"id": uuid(1)}, "managementPolicy": "Observed"});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    let unmarked = || network(1, json!({"name": "theirs", "description": "", "tags": []}));
    let subnets = || vec![theirs(9, "10.0.0.0/24")];
    assert_eq!(next(observe(json!({})), vec![unmarked()], subnets()), Step::Done(net(1), sub(9)));
    assert_eq!(
        next(observe(json!({})), vec![unmarked(), network(2, json!({}))], subnets()),
        Step::Done(net(1), sub(9))
    );
    let want = format!("set mtu to 1400 of network {}", uuid(1));
    check(observe(json!({"mtu": 1400})), vec![unmarked()], subnets(), &want);
    assert_eq!(next(observe(json!({})), vec![unmarked()], vec![]), Step::CreateSubnet(net(1)));
}

#[test]
fn what_somebody_changed_is_changed_back() {
    let of_network = |changed: Value, want: &str| {
        let want = format!("set {want} of network {}", uuid(1));
        check(json!({}), vec![network(1, changed)], vec![subnet(9, json!({}))], &want);
    };
    of_network(json!({"description": "edited"}), "description to \"network-controller:c:u1\"");
    of_network(json!({"name": "renamed"}), "name to \"default/a\"");
    of_network(json!({"admin_state_up": false}), "admin_state_up to true");
    of_network(json!({"shared": true}), "shared to false");
    let of_subnet = |changed: Value, want: &str| {
        let want = format!("set {want} of subnet {}", uuid(9));
        check(json!({}), vec![good()], vec![subnet(9, changed)], &want);
    };
    of_subnet(json!({"description": "edited"}), "description to \"network-controller:c:u1\"");
    of_subnet(json!({"name": "renamed"}), "name to \"default/a\"");
    of_subnet(json!({"enable_dhcp": false}), "enable_dhcp to true");
    of_subnet(json!({"gateway_ip": "10.0.0.254"}), "gateway_ip to 10.0.0.1");
    of_subnet(json!({"gateway_ip": null}), "gateway_ip to 10.0.0.1");
    of_subnet(json!({"dns_nameservers": ["1.1.1.1"]}), "dns_nameservers to []");
    of_subnet(
        json!({"allocation_pools": [{"start": "10.0.0.9", "end": "10.0.0.9"}]}),
        "allocation_pools to [10.0.0.2-10.0.0.254]",
    );
}

#[test]
fn what_the_spec_says_is_set() {
    let spec = json!({"mtu": 1400, "shared": true, "adminStateUp": false, "description": "d"});
    check(
        spec,
        vec![good()],
        vec![],
        &format!(
            "set description to \"d\", admin_state_up to false, mtu to 1400, shared to true of network {}",
            uuid(1)
        ),
    );
    let spec = json!({
        "gateway": "10.0.0.7", "dnsNameservers": ["1.1.1.1"], "enableDHCP": false,
        "allocationPools": [{"start": "10.0.0.9", "end": "10.0.0.20"}]
    });
    check(
        spec,
        vec![good()],
        vec![subnet(9, json!({}))],
        &format!(
            "set gateway_ip to 10.0.0.7, enable_dhcp to false, allocation_pools to [10.0.0.9-10.0.0.20], dns_nameservers to [1.1.1.1] of subnet {}",
            uuid(9)
        ),
    );
}

#[test]
fn other_addresses_are_refused_unless_the_subnet_may_be_replaced() {
    let old = |cidr: &str| vec![subnet(9, json!({"cidr": cidr}))];
    let refused = next(json!({}), vec![good()], old("10.1.0.0/24"));
    assert!(matches!(refused, Step::Refuse(Refusal::Replace { .. })), "{refused}");
    // The new subnet is created before the old one is deleted, unless they overlap.
    let replace = || json!({"replaceOnChange": true});
    assert_eq!(next(replace(), vec![good()], old("10.1.0.0/24")), Step::CreateSubnet(net(1)));
    assert_eq!(next(replace(), vec![good()], old("10.0.0.0/16")), Step::DeleteSubnet(sub(9)));
    let both = vec![subnet(9, json!({"cidr": "10.1.0.0/24"})), subnet(8, json!({}))];
    assert_eq!(next(replace(), vec![good()], both), Step::DeleteSubnet(sub(9)));
}

#[test]
fn nothing_is_deleted_for_addresses_that_somebody_else_has() {
    let subnets = vec![subnet(9, json!({"cidr": "10.0.0.0/16"})), theirs(8, "10.0.0.0/25")];
    let refused = next(json!({"replaceOnChange": true}), vec![good()], subnets);
    assert!(matches!(refused, Step::Refuse(Refusal::Overlap { .. })), "{refused}");
}

#[test]
fn what_others_made_is_left_alone() {
    assert_eq!(next(json!({}), vec![good()], vec![theirs(9, "10.9.0.0/24")]), Step::CreateSubnet(net(1)));
    for taken in ["10.0.0.0/24", "10.0.0.0/25", "10.0.0.0/16"] {
        let refused = next(json!({}), vec![good()], vec![theirs(9, taken)]);
        assert!(matches!(refused, Step::Refuse(Refusal::Overlap { .. })), "{taken}: {refused}");
    }
}

#[test]
fn the_subnet_that_the_status_names_is_known_whatever_it_is_called() {
    let observed =
        Observed { networks: vec![good()], subnets: vec![theirs(9, "10.0.0.0/24")], known_subnet: Some(sub(9)) };
    let step = plan(&desired(json!({})), &identity(), &observed);
    assert!(matches!(step, Step::UpdateSubnet(..)), "{step}");
}

#[test]
fn of_what_was_adopted_only_what_the_spec_names_is_changed() {
    let adopt = |more: Value| {
        let mut spec = json!({"adopt": {"tag": "t"}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    let tags = json!([MARKER, "t"]);
    let odd =
        || network(1, json!({"name": "n", "description": "d", "tags": tags, "admin_state_up": false, "shared": true}));
    let theirs = || {
        let changed = json!({
            "name": "theirs", "description": "", "gateway_ip": "10.0.0.9", "enable_dhcp": false,
            "dns_nameservers": ["1.1.1.1"], "allocation_pools": [{"start": "10.0.0.20", "end": "10.0.0.30"}]
        });
        vec![subnet(9, changed)]
    };
    assert_eq!(next(adopt(json!({})), vec![odd()], theirs()), Step::Done(net(1), sub(9)));
    check(
        adopt(json!({"adminStateUp": true, "gateway": "10.0.0.8", "enableDHCP": true})),
        vec![network(1, json!({"name": "n", "description": "d", "tags": tags}))],
        theirs(),
        &format!("set gateway_ip to 10.0.0.8, enable_dhcp to true of subnet {}", uuid(9)),
    );
    check(
        adopt(json!({"adminStateUp": true})),
        vec![odd()],
        theirs(),
        &format!("set admin_state_up to true of network {}", uuid(1)),
    );
}

#[test]
fn an_object_with_a_network_adopts_no_other() {
    for adopt in [json!({"tag": "t"}), json!({"id": uuid(2)})] {
        let refused = next(json!({"adopt": adopt}), vec![good()], vec![subnet(9, json!({}))]);
        assert!(matches!(refused, Step::Refuse(Refusal::Adopt { .. })), "{refused}");
    }
}
