//! Endpoints: the addresses of a Service, in the old form. EndpointSlices have replaced it, so every answer warns.

use crate::builtin::kind::{Column, Kind, RULES, Version};
use crate::builtin::pods::pod::defaults::unless_set;
use crate::builtin::rules;
use crate::builtin::rules::cells::{self, NONE};
use crate::builtin::rules::field::Field;
use crate::strategy::Rules;
use jiff::Timestamp;
use steersman_machinery::field::Error;
use steersman_machinery::value::{at, str_at};
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
    validate_create: |request, errors| validate(&Field::root(request.new).field("subsets"), errors),
    validate_update: |request, errors| {
        let (subsets, old) = (Field::root(request.new).field("subsets"), Field::root(request.old).field("subsets"));
        // An unchanged list that was stored under older rules is accepted.
        if subsets.value != old.value {
            validate(&subsets, errors);
        }
    },
    ..Kind::NAMESPACED
};

fn default(endpoints: &mut Value) {
    let subsets = endpoints.get_mut("subsets").and_then(Value::as_array_mut).into_iter().flatten();
    let ports = subsets.filter_map(|subset| subset.get_mut("ports")?.as_array_mut()).flatten();
    for port in ports.filter_map(Value::as_object_mut) {
        unless_set(port, "protocol", "TCP");
    }
}

fn validate(subsets: &Field<'_>, errors: &mut Vec<Error>) {
    for subset in subsets.items() {
        let (ready, unready) = (subset.field("addresses"), subset.field("notReadyAddresses"));
        if ready.is_empty() && unready.is_empty() {
            errors.push(subset.required("must specify `addresses` or `notReadyAddresses`"));
        }
        for address in ready.items().chain(unready.items()) {
            rules::ip(&address.field("ip"), errors);
            rules::ordinary_ip(&address.field("ip"), errors);
            if !address.field("hostname").is_empty() {
                rules::named(&address.field("hostname"), name::dns1123_label, errors);
            }
            if address.field("nodeName").is_present() {
                rules::named(&address.field("nodeName"), name::dns1123_subdomain, errors);
            }
        }
        let ports = subset.field("ports");
        let is_one_of_many = ports.items().count() > 1;
        for port in ports.items() {
            let name = port.field("name");
            if is_one_of_many || !name.is_empty() {
                rules::required_name(&name, name::dns1123_label, errors);
            }
            rules::port(&port.field("port"), errors);
            rules::one_of(&port.field("protocol"), &["SCTP", "TCP", "UDP"], errors);
            if port.field("appProtocol").is_present() {
                rules::named(&port.field("appProtocol"), name::qualified, errors);
            }
        }
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
