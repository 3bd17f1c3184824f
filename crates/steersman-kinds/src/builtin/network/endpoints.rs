//! Endpoints: the addresses of a Service, in the old form. EndpointSlices have replaced it, so every answer warns.

use crate::builtin::kind::{Column, Kind, RULES, Version};
use crate::builtin::rules;
use crate::builtin::rules::cells::{self, NONE};
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule, check_field};
use crate::strategy::Rules;
use jiff::Timestamp;
use steersman_machinery::field::Error;
use steersman_machinery::value::{at, str_at, unless_set};
use steersman_machinery::{Value, name};

/// The maximum number of addresses in a table.
const SHOWN_MAX: usize = 3;

pub const KIND: Kind = Kind {
    kind: "Endpoints",
    plural: "endpoints",
    singular: "endpoints",
    short_names: &["ep"],
    versions: &[Version {
        definition: "io.k8s.api.core.v1.Endpoints",
        deprecation: "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
        columns: &[Column::NAME, Column::text("Endpoints", "Its ready addresses with their ports."), Column::AGE],
        cells: |object, now| cells_of(object, now).to_vec(),
        default,
        ..Version::V1
    }],
    rules: Rules { creates_on_update: true, ..RULES },
    // An unchanged list that was stored under older rules is accepted.
    validate: &[Rule::new(
        "",
        Check::Change(|change, errors| {
            if change.field("subsets").is_changed() {
                check_field(ENDPOINTS, &change.new, errors);
            }
        }),
    )],
    ..Kind::NAMESPACED
};

fn default(endpoints: &mut Value) {
    let subsets = endpoints.get_mut("subsets").and_then(Value::as_array_mut).into_iter().flatten();
    let ports = subsets.filter_map(|subset| subset.get_mut("ports")?.as_array_mut()).flatten();
    for port in ports.filter_map(Value::as_object_mut) {
        unless_set(port, "protocol", "TCP");
    }
}

pub(in crate::builtin) const ENDPOINTS: &[Rule] = &[Rule::new(
    "subsets[]",
    Check::Rules(&[
        Rule::new("", Check::By(addressed)),
        Rule::new("addresses[]", Check::Rules(ADDRESS)),
        Rule::new("notReadyAddresses[]", Check::Rules(ADDRESS)),
        Rule::new("ports", Check::By(named_if_many)),
    ]),
)];

const ADDRESS: &[Rule] = &[
    Rule::new("ip", Check::By(rules::ip)),
    Rule::new("ip", Check::By(rules::ordinary_ip)),
    Rule::new("hostname", Check::Format(name::dns1123_label)).unless_empty(),
    Rule::new("nodeName", Check::Format(name::dns1123_subdomain)).if_present(),
];

pub(in crate::builtin) const PORT: &[Rule] = &[
    Rule::new("port", Check::Port),
    Rule::new("protocol", Check::OneOf(&["SCTP", "TCP", "UDP"])),
    Rule::new("appProtocol", Check::Format(name::qualified)).if_present(),
];

fn addressed(subset: &Field<'_>, errors: &mut Vec<Error>) {
    if subset.field("addresses").is_empty() && subset.field("notReadyAddresses").is_empty() {
        errors.push(subset.required("must specify `addresses` or `notReadyAddresses`"));
    }
}

fn named_if_many(ports: &Field<'_>, errors: &mut Vec<Error>) {
    let is_one_of_many = ports.items().count() > 1;
    for port in ports.items() {
        let name = port.field("name");
        if is_one_of_many || !name.is_empty() {
            rules::required_name(&name, name::dns1123_label, errors);
        }
        check_field(PORT, &port, errors);
    }
}

fn cells_of(object: &Value, now: Timestamp) -> [Value; 3] {
    let list = |value: &Value, field: &str| value.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
    let mut addresses = Vec::new();
    for subset in list(object, "subsets") {
        let ips = list(&subset, "addresses");
        let ips = || ips.iter().map(|address| str_at(address, &["ip"]).unwrap_or_default());
        let ports = list(&subset, "ports");
        match ports.is_empty() {
            // The addresses of a headless service may have no ports.
            true => addresses.extend(ips().map(str::to_owned)),
            false => {
                for port in &ports {
                    addresses.extend(ips().map(|ip| with_port(ip, cells::number(port, &["port"]))));
                }
            }
        }
    }
    let text = match at(object, &["subsets"]).and_then(Value::as_array) {
        Some(subsets) if !subsets.is_empty() => cells::some_of(&addresses, SHOWN_MAX),
        _ => NONE.to_owned(),
    };
    [cells::name(object), Value::from(text), cells::age(object, now)]
}

fn with_port(ip: &str, port: i64) -> String {
    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}
