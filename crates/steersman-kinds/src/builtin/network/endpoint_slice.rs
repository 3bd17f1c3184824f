//! EndpointSlice: some of the addresses of a Service, all of one family.

use crate::builtin::kind::{Column, Kind, RULES, Request, Version};
use crate::builtin::pods::pod::defaults::unless_set;
use crate::builtin::rules;
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
use crate::strategy::Rules;
use jiff::Timestamp;
use std::collections::BTreeSet;
use steersman_machinery::field::Error;
use steersman_machinery::value::str_at;
use steersman_machinery::{Value, name};

const ADDRESSES_MAX: usize = 100;
const ENDPOINTS_MAX: usize = 1000;
const HINTS_MAX: usize = 8;
const PORTS_MAX: usize = 20_000;
const TOPOLOGY_MAX: usize = 16;
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
    rules: Rules { updates_unconditionally: true, ..RULES },
    validate_create: validate,
    validate_update: |request, errors| {
        let (slice, old) = (Field::root(request.new), Field::root(request.old));
        match slice.field("addressType").value == old.field("addressType").value {
            true => validate(request, errors),
            false => rules::immutable(&slice.field("addressType"), &old.field("addressType"), errors),
        }
    },
    warnings: |slice| {
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

fn validate(request: &Request<'_>, errors: &mut Vec<Error>) {
    let slice = Field::root(request.new);
    let family = slice.field("addressType");
    match family.is_empty() {
        true => errors.push(family.required("")),
        false => rules::one_of(&family, &["FQDN", "IPv4", "IPv6"], errors),
    }
    ports(&slice.field("ports"), errors);
    let endpoints = slice.field("endpoints");
    if rules::at_most(&endpoints, ENDPOINTS_MAX, errors) {
        endpoints.items().for_each(|one| endpoint(&one, family.text(), errors));
    }
}

fn ports(ports: &Field<'_>, errors: &mut Vec<Error>) {
    if !rules::at_most(ports, PORTS_MAX, errors) {
        return;
    }
    let mut names = BTreeSet::new();
    for port in ports.items() {
        let name = port.field("name");
        if !name.is_empty() {
            rules::named(&name, name::dns1123_label, errors);
        }
        if !names.insert(name.text()) {
            errors.push(name.duplicate());
        }
        rules::one_of(&port.field("protocol"), &["SCTP", "TCP", "UDP"], errors);
        if port.field("appProtocol").is_present() {
            rules::named(&port.field("appProtocol"), name::qualified, errors);
        }
    }
}

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
    if endpoint.field("nodeName").is_present() {
        rules::named(&endpoint.field("nodeName"), name::dns1123_subdomain, errors);
    }
    let topology = endpoint.field("deprecatedTopology");
    rules::at_most(&topology, TOPOLOGY_MAX, errors);
    rules::labels(&topology, errors);
    if topology.key("topology.kubernetes.io/zone").is_present() {
        let zone = Field { path: topology.path.key("topology.kubernetes.io/zone"), ..topology };
        errors.push(zone.forbidden("use `zone` field instead"));
    }
    if endpoint.field("hostname").is_present() {
        rules::named(&endpoint.field("hostname"), name::dns1123_label, errors);
    }
    hints(&endpoint.at(&["hints", "forZones"]), name::label_value, errors);
    hints(&endpoint.at(&["hints", "forNodes"]), name::dns1123_subdomain, errors);
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

fn hints(hints: &Field<'_>, check: fn(&str) -> Vec<String>, errors: &mut Vec<Error>) {
    rules::at_most(hints, HINTS_MAX, errors);
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
