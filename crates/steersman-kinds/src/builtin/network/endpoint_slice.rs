//! EndpointSlice: some of the addresses of a Service, all of one family.

use crate::builtin::kind::{Column, Counts, Kind, RULES, Version};
use crate::builtin::rules;
use crate::builtin::rules::cells;
use crate::builtin::rules::change::Change;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule, check_field};
use crate::strategy::Rules;
use jiff::Timestamp;
use std::collections::BTreeSet;
use steersman_machinery::field::Error;
use steersman_machinery::value::{str_at, unless_set};
use steersman_machinery::{Value, name};

const ADDRESSES_MAX: usize = 100;
const ENDPOINTS_MAX: usize = 1000;
/// The maximum number of ports and addresses in a table.
const SHOWN_MAX: usize = 3;

pub const KIND: Kind = Kind {
    group: "discovery.k8s.io",
    kind: "EndpointSlice",
    plural: "endpointslices",
    singular: "endpointslice",
    versions: &[Version {
        definition: "io.k8s.api.discovery.v1.EndpointSlice",
        columns: &[
            Column::NAME,
            Column::text("AddressType", "The family of its addresses."),
            Column::text("Ports", "The ports that its addresses have."),
            Column::text("Endpoints", "Its addresses."),
            Column::AGE,
        ],
        cells: cells_of,
        default,
        ..Version::V1
    }],
    prepare_create: |slice| drop_topology(slice, &Value::Null),
    prepare_update: drop_topology,
    generation: &[&["addressType"], &["endpoints"], &["metadata", "labels"], &["ports"]],
    counts: Counts::Sent,
    rules: Rules { updates_unconditionally: true, ..RULES },
    validate: &[Rule::new("", Check::Change(slice_and_endpoints)), Rule::new("addressType", Check::Immutable)],
    warnings: |slice, _| {
        let is_of_names = str_at(slice, &["addressType"]) == Some("FQDN");
        is_of_names.then(|| "spec.addressType: FQDN endpoints are deprecated".to_owned()).into_iter().collect()
    },
    ..Kind::NAMESPACED
};

/// Drops the topology of changed endpoints, which had only versions before v1. The name of a node that the old slice has there
/// becomes `nodeName`.
fn drop_topology(new: &mut Value, old: &Value) {
    const HOSTNAME: [&str; 2] = ["deprecatedTopology", "kubernetes.io/hostname"];
    if old.is_object() && new.get("endpoints") == old.get("endpoints") {
        return;
    }
    let before = old.get("endpoints").and_then(Value::as_array).into_iter().flatten();
    let before: BTreeSet<&str> = before.filter_map(|endpoint| str_at(endpoint, &HOSTNAME)).collect();
    let endpoints = new.get_mut("endpoints").and_then(Value::as_array_mut).into_iter().flatten();
    for endpoint in endpoints.filter_map(Value::as_object_mut) {
        let Some(topology) = endpoint.remove("deprecatedTopology") else { continue };
        let is_alone = topology.as_object().is_some_and(|topology| topology.len() == 1);
        let node = topology.get(HOSTNAME[1]).and_then(Value::as_str).filter(|node| is_alone && before.contains(node));
        if let Some(node) = node.filter(|_| !endpoint.contains_key("nodeName")) {
            endpoint.insert("nodeName".to_owned(), node.into());
        }
    }
}

fn default(slice: &mut Value) {
    let ports = slice.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten();
    for port in ports.filter_map(Value::as_object_mut) {
        unless_set(port, "name", "");
        unless_set(port, "protocol", "TCP");
    }
}

/// Endpoints that stay as they were are taken as they are: older rules were others.
fn slice_and_endpoints(Change { new: slice, old }: &Change<'_>, errors: &mut Vec<Error>) {
    check_field(SLICE, slice, errors);
    let (family, endpoints) = (slice.field("addressType"), slice.field("endpoints"));
    let is_old = old.is_present() && endpoints.value == old.field("endpoints").value;
    if !is_old && rules::at_most(&endpoints, ENDPOINTS_MAX, errors) {
        endpoints.items().for_each(|one| endpoint(&one, family.text(), errors));
    }
}

pub(in crate::builtin) const SLICE: &[Rule] = &[
    Rule::new("addressType", Check::OneOf(&["FQDN", "IPv4", "IPv6"])).and_required(""),
    Rule::new("ports[]", Check::Rules(PORT)).up_to(20_000),
];

const PORT: &[Rule] = &[
    Rule::new("name", Check::Format(name::dns1123_label)).unless_empty(),
    Rule::new("name", Check::Unique),
    Rule::new("protocol", Check::OneOf(&["SCTP", "TCP", "UDP"])),
    Rule::new("appProtocol", Check::Format(name::qualified)).if_present(),
];

/// The rules of an endpoint, besides those of its addresses.
pub(in crate::builtin) const ENDPOINT: &[Rule] = &[
    Rule::new("nodeName", Check::Format(name::dns1123_subdomain)).if_present(),
    Rule::new("deprecatedTopology", Check::ItemsMax(16)),
    Rule::new("deprecatedTopology", Check::By(rules::labels)),
    Rule::new("deprecatedTopology", Check::By(topology)),
    Rule::new("hostname", Check::Format(name::dns1123_label)).if_present(),
    Rule::new("hints.forZones", Check::ItemsMax(8)),
    Rule::new("hints.forZones", Check::By(|hints, errors| named_once(hints, name::label_value, errors))),
    Rule::new("hints.forNodes", Check::ItemsMax(8)),
    Rule::new("hints.forNodes", Check::By(|hints, errors| named_once(hints, name::dns1123_subdomain, errors))),
];

fn endpoint(endpoint: &Field<'_>, family: &str, errors: &mut Vec<Error>) {
    let addresses = endpoint.field("addresses");
    if addresses.is_empty() {
        errors.push(addresses.required("must contain at least 1 address"));
    } else {
        rules::at_most(&addresses, ADDRESSES_MAX, errors);
    }
    for one in addresses.items() {
        match family {
            "FQDN" => domain(&one, errors),
            "IPv4" | "IPv6" => address(&one, &addresses, family, errors),
            _ => {}
        }
    }
    check_field(ENDPOINT, endpoint, errors);
}

fn topology(topology: &Field<'_>, errors: &mut Vec<Error>) {
    let zone = topology.key("topology.kubernetes.io/zone");
    if zone.is_present() {
        errors.push(zone.forbidden("use `zone` field instead"));
    }
}

fn address(address: &Field<'_>, addresses: &Field<'_>, family: &str, errors: &mut Vec<Error>) {
    let n_before = errors.len();
    rules::ip(address, errors);
    if n_before < errors.len() {
        return;
    }
    if rules::sloppy_ip(address.text()).is_some_and(|ip| ip.is_ipv4() != (family == "IPv4")) {
        errors.push(Error::invalid(&addresses.path, address.text(), format!("must be an {family} address")));
    }
    rules::ordinary_ip(address, errors);
}

fn domain(domain: &Field<'_>, errors: &mut Vec<Error>) {
    let text = domain.text().strip_suffix('.').unwrap_or(domain.text());
    if text.is_empty() {
        return errors.push(domain.required(""));
    }
    let wrong = name::dns1123_subdomain(text);
    if !wrong.is_empty() {
        errors.push(Error::invalid(&domain.path, text, wrong.join(",")));
    } else if !text.contains('.') {
        let why = "should be a domain with at least two segments separated by dots";
        errors.push(Error::invalid(&domain.path, text, why));
    }
}

fn named_once(hints: &Field<'_>, check: fn(&str) -> Vec<String>, errors: &mut Vec<Error>) {
    let mut names = BTreeSet::new();
    for hint in hints.items() {
        let name = hint.field("name");
        match names.insert(name.text()) {
            true => rules::named(&name, check, errors),
            false => errors.push(name.duplicate()),
        }
    }
}

fn cells_of(slice: &Value, now: Timestamp) -> Vec<Value> {
    let list = |field: &str| slice.get(field).and_then(Value::as_array).into_iter().flatten();
    let port = |port: &Value| match port.get("port").and_then(Value::as_i64) {
        Some(number) => number.to_string(),
        None => str_at(port, &["name"]).unwrap_or("*").to_owned(),
    };
    let ports: Vec<String> = list("ports").map(port).collect();
    let addresses = list("endpoints").filter_map(|endpoint| endpoint.get("addresses")?.as_array()).flatten();
    let addresses: Vec<String> = addresses.filter_map(|address| Some(address.as_str()?.to_owned())).collect();
    let text = |texts: &[String]| match cells::some_of(texts, SHOWN_MAX) {
        text if text.is_empty() => Value::from("<unset>"),
        text => Value::from(text),
    };
    vec![
        cells::name(slice),
        cells::text(slice, &["addressType"]),
        text(&ports),
        text(&addresses),
        cells::age(slice, now),
    ]
}
