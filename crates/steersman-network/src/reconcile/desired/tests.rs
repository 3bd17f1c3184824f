//! Valid specs, and the errors of invalid ones.

use super::{Desired, Target, fingerprint};
use crate::api::{DeletionPolicy, NetworkSpec};
use serde_json::{Value, json};

fn parse(spec: Value) -> Result<Desired, String> {
    let spec: NetworkSpec = serde_json::from_value(spec).unwrap();
    Desired::parse(&spec).map_err(|error| error.to_string())
}

#[track_caller]
fn check(cidr: &str, gateway: &str, want: Result<(), &str>) {
    let mut spec = json!({});
    for (field, text) in [("cidr", cidr), ("gateway", gateway)] {
        if !text.is_empty() {
            spec[field] = text.into();
        }
    }
    assert_eq!(parse(spec).map(|_| ()), want.map_err(str::to_owned));
}

/// Checks the error for a spec with one bad field.
#[track_caller]
fn refused(field: &str, value: Value, want: &str) {
    let mut spec = json!({"cidr": "10.0.0.0/24", "gateway": "10.0.0.1"});
    spec[field] = value;
    assert_eq!(parse(spec).unwrap_err(), want);
}

#[test]
fn good_specs_are_taken() {
    check("192.168.0.0/16", "192.168.0.1", Ok(()));
    check("192.168.0.0/16", "", Ok(()));
    check("10.0.0.0/30", "10.0.0.2", Ok(()));
    check("fd00::/64", "fd00::1", Ok(()));
}

#[test]
fn bad_addresses_are_told_what_and_how() {
    check("", "", Err("spec.cidr is missing: give it a value such as \"192.168.0.0/16\""));
    check(
        "not-a-cidr",
        "",
        Err("spec.cidr \"not-a-cidr\" is no CIDR: want an address and a prefix length, such as \"192.168.0.0/16\""),
    );
    for zeros in ["010.0.0.0/8", "10.0.0.0/08"] {
        let told =
            format!("spec.cidr {zeros:?} is no CIDR: want an address and a prefix length, such as \"192.168.0.0/16\"");
        check(zeros, "", Err(&told));
    }
    check("10.0.0.5/24", "", Err("spec.cidr \"10.0.0.5/24\" has bits set behind its prefix: write 10.0.0.0/24"));
    check("10.0.0.0/31", "", Err("spec.cidr 10.0.0.0/31 has no room for a gateway and a host: want a shorter prefix"));
    check("10.0.0.0/24", "x", Err("spec.gateway \"x\" is no IP address: want one such as \"192.168.0.1\""));
    for outside in ["10.0.1.1", "fd00::1"] {
        let told = format!("spec.gateway {outside} is outside spec.cidr 10.0.0.0/24: want an address within it");
        check("10.0.0.0/24", outside, Err(&told));
    }
    for (address, what) in [("10.0.0.0", "network"), ("10.0.0.255", "broadcast")] {
        let told = format!(
            "spec.gateway {address} is the {what} address of spec.cidr 10.0.0.0/24: want another address within it"
        );
        check("10.0.0.0/24", address, Err(&told));
    }
    refused("cidr", json!(16), "spec.cidr is 16, want a text such as \"192.168.0.0/16\"");
}

#[test]
fn bad_pools_and_name_servers_are_told_what_and_how() {
    let pool = |start: &str, end: &str| json!([{"start": start, "end": end}]);
    refused(
        "allocationPools",
        pool("10.0.1.5", "10.0.1.9"),
        "spec.allocationPools 10.0.1.5-10.0.1.9 is no range of addresses of spec.cidr 10.0.0.0/24: want start and end within it, in order",
    );
    refused(
        "allocationPools",
        pool("10.0.0.9", "10.0.0.5"),
        "spec.allocationPools 10.0.0.9-10.0.0.5 is no range of addresses of spec.cidr 10.0.0.0/24: want start and end within it, in order",
    );
    refused(
        "allocationPools",
        pool("10.0.0.1", "10.0.0.5"),
        "spec.gateway 10.0.0.1 is inside spec.allocationPools 10.0.0.1-10.0.0.5: leave it out of the pool",
    );
    refused(
        "allocationPools",
        json!([{"start": "10.0.0.9", "end": "10.0.0.20"}, {"start": "10.0.0.5", "end": "10.0.0.9"}]),
        "spec.allocationPools 10.0.0.5-10.0.0.9 and 10.0.0.9-10.0.0.20 overlap: make them one",
    );
    refused(
        "allocationPools",
        pool("a", "b"),
        "spec.allocationPools has \"a\", which is no IP address: want one such as \"192.168.0.10\"",
    );
    refused(
        "allocationPools",
        json!(["10.0.0.5-10.0.0.9"]),
        "spec.allocationPools is [\"10.0.0.5-10.0.0.9\"], want a list of ranges such as [{\"start\": \"192.168.0.10\", \"end\": \"192.168.0.99\"}]",
    );
    refused(
        "dnsNameservers",
        json!(["fd00::1"]),
        "spec.dnsNameservers has fd00::1, which spec.cidr 10.0.0.0/24 cannot reach: want addresses of its version of IP",
    );
    refused("dnsNameservers", json!(["1.1.1.1", "1.1.1.1"]), "spec.dnsNameservers has 1.1.1.1 twice: name it once");
    refused(
        "dnsNameservers",
        json!(["dns"]),
        "spec.dnsNameservers has \"dns\", which is no IP address: want one such as \"192.168.0.2\"",
    );
}

#[test]
fn other_bad_fields_are_told_what_and_how() {
    refused("mtu", json!(60), "spec.mtu 60 is too small for spec.cidr 10.0.0.0/24: want 68 or more");
    refused("mtu", json!(-1), "spec.mtu is -1, want a number of bytes such as 1400");
    refused("shared", json!("yes"), "spec.shared is \"yes\", want true or false");
    refused("deletionPolicy", json!("Keep"), "spec.deletionPolicy is \"Keep\", want Delete or Retain");
    refused("description", json!("a".repeat(256)), "spec.description has 256 characters: want at most 255");
    refused(
        "description",
        json!("network-controller:c:u"),
        "spec.description \"network-controller:c:u\" begins as the operator's own markers do: want another text",
    );
    refused("adopt", json!({"id": "x"}), "spec.adopt.id \"x\" is no UUID: want the id of a network in Neutron");
    refused("adopt", json!({}), "spec.adopt has to name the network in exactly one way: want either id or tag");
    refused(
        "adopt",
        json!({"tag": "a,b"}),
        "spec.adopt.tag \"a,b\" is no tag: want one that is not empty and has no comma",
    );
    refused(
        "managementPolicy",
        json!("Observed"),
        "spec.managementPolicy is Observed, which makes no network: name the one to observe in spec.adopt",
    );
}

#[test]
fn what_was_adopted_is_kept_unless_the_spec_says_otherwise() {
    let spec =
        |policy: Value| parse(json!({"cidr": "10.0.0.0/24", "adopt": {"tag": "t"}, "deletionPolicy": policy})).unwrap();
    assert_eq!(spec(Value::Null).adopt, Some(Target::Tag("t".to_owned())));
    assert_eq!(spec(Value::Null).deletion_policy, DeletionPolicy::Retain);
    assert_eq!(spec(json!("Delete")).deletion_policy, DeletionPolicy::Delete);
    assert_eq!(parse(json!({"cidr": "10.0.0.0/24"})).unwrap().deletion_policy, DeletionPolicy::Delete);
}

#[test]
fn a_fingerprint_changes_with_the_spec_and_stays_across_versions() {
    let of = |spec: Value| fingerprint(&serde_json::from_value(spec).unwrap());
    let document = json!({"cidr": "192.168.0.0/16", "gateway": "192.168.0.1"});
    assert_eq!(of(document.clone()), of(document));
    assert_ne!(of(json!({"cidr": "192.168.0.0/16"})), of(json!({"cidr": "192.168.0.0/17"})));
    // The fingerprint is stored in the status of objects: if it changes, every reported drift is repaired once after an
    // upgrade.
    assert_eq!(of(json!({})), "08f44b07b5901a25");
}
