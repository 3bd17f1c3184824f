//! Ingress: the services for hosts and paths.

use crate::builtin::kind::{Column, Kind, Version};
use crate::builtin::rules;
use crate::builtin::rules::cells::{self, NONE};
use crate::builtin::rules::change::Change;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule, check_field};
use jiff::Timestamp;
use steersman_machinery::field::Error;
use steersman_machinery::value::{at, str_at};
use steersman_machinery::{Value, name};

pub const KIND: Kind = Kind {
    group: "networking.k8s.io",
    kind: "Ingress",
    plural: "ingresses",
    singular: "ingress",
    short_names: &["ing"],
    versions: &[Version {
        definition: "io.k8s.api.networking.v1.Ingress",
        has_status: true,
        columns: &[
            Column::NAME,
            Column::text("Class", "Who carries it out."),
            Column::text("Hosts", "The hosts it answers for."),
            Column::text("Address", "Where it is reached."),
            Column::text("Ports", "The ports it is reached at."),
            Column::AGE,
        ],
        cells,
        ..Version::V1
    }],
    generation: &[&["spec"]],
    validate: &[
        Rule::new("spec", Check::By(backend_or_rules)),
        Rule::new("spec.defaultBackend", Check::By(backend)).if_present(),
        Rule::new("spec.rules[]", Check::Rules(RULE)),
        Rule::new("spec.tls[]", Check::Rules(TLS)),
        Rule::new("spec.tls", Check::Change(secrets)),
        Rule::new("spec.ingressClassName", Check::Format(name::dns1123_subdomain)).if_present(),
    ],
    warnings: |ingress, _| {
        let class = at(ingress, &["metadata", "annotations", CLASS_ANNOTATION]);
        let why =
            || format!("annotation {CLASS_ANNOTATION:?} is deprecated, please use 'spec.ingressClassName' instead");
        class.map(|_| why()).into_iter().collect()
    },
    validate_status: &[Rule::new("status.loadBalancer.ingress[]", Check::By(address_outside))],
    ..Kind::NAMESPACED
};

/// The annotation that named the class of an ingress before the field existed.
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

const RULE: &[Rule] = &[
    Rule::new("host", Check::By(host)).unless_empty(),
    Rule::new("http", Check::Rules(&[Rule::required("paths", ""), Rule::new("paths[]", Check::By(path))])).if_present(),
];

const TLS: &[Rule] = &[Rule::new("hosts[]", Check::Format(host_name))];

pub(in crate::builtin) const SECRET: &[Rule] =
    &[Rule::new("secretName", Check::Format(name::dns1123_subdomain)).unless_empty()];

/// The names of the secrets. An ingress that has an invalid one from an earlier release may keep it.
fn secrets(change: &Change<'_>, errors: &mut Vec<Error>) {
    let faults = |tls: &Field<'_>| {
        let mut faults = Vec::new();
        tls.items().for_each(|one| check_field(SECRET, &one, &mut faults));
        faults
    };
    if faults(&change.old).is_empty() {
        errors.extend(faults(&change.new));
    }
}

fn backend_or_rules(spec: &Field<'_>, errors: &mut Vec<Error>) {
    if spec.field("rules").is_empty() && spec.field("defaultBackend").is_absent() {
        errors.push(spec.invalid("either `defaultBackend` or `rules` must be specified"));
    }
}

/// Validates the host of a rule, which is a name and no address. Those of TLS may be addresses, as upstream.
fn host(host: &Field<'_>, errors: &mut Vec<Error>) {
    if rules::sloppy_ip(host.text()).is_some() {
        errors.push(host.invalid("must be a DNS name, not an IP address"));
    }
    rules::named(host, host_name, errors);
}

/// A host name, whose first label may be a star.
fn host_name(host: &str) -> Vec<String> {
    if host.contains('*') { name::wildcard_subdomain(host) } else { name::dns1123_subdomain(host) }
}

/// Validates an address at which a load balancer takes traffic.
fn address_outside(ingress: &Field<'_>, errors: &mut Vec<Error>) {
    let (ip, host) = (ingress.field("ip"), ingress.field("hostname"));
    if !ip.is_empty() {
        rules::ip(&ip, errors);
    }
    if !host.is_empty() {
        rules::named(&host, name::dns1123_subdomain, errors);
        if rules::sloppy_ip(host.text()).is_some() {
            errors.push(host.invalid("must be a DNS name, not an IP address"));
        }
    }
}

fn path(path: &Field<'_>, errors: &mut Vec<Error>) {
    let (kind, text) = (path.field("pathType"), path.field("path"));
    match kind.text() {
        "" => return errors.push(kind.required("pathType must be specified")),
        "Exact" | "Prefix" => {
            if !text.text().starts_with('/') {
                errors.push(Error::invalid(&text.path, text.text(), "must be an absolute path"));
            }
            for sequence in ["//", "/./", "/../", "%2f", "%2F"].iter().filter(|one| text.text().contains(**one)) {
                errors.push(text.invalid(format!("must not contain '{sequence}'")));
            }
            for end in ["/..", "/."].iter().filter(|end| text.text().ends_with(**end)) {
                errors.push(text.invalid(format!("cannot end with '{end}'")));
            }
        }
        "ImplementationSpecific" => {
            if !text.is_empty() && !text.text().starts_with('/') {
                errors.push(text.invalid("must be an absolute path"));
            }
        }
        _ => errors.push(kind.not_supported(&["Exact", "ImplementationSpecific", "Prefix"])),
    }
    backend(&path.field("backend"), errors);
}

fn backend(backend: &Field<'_>, errors: &mut Vec<Error>) {
    let (service, resource) = (backend.field("service"), backend.field("resource"));
    match (service.is_present(), resource.is_present()) {
        (true, true) => {
            let why = "cannot set both resource and service backends";
            errors.push(Error::invalid(&backend.path, "", why));
        }
        (false, true) => {
            if resource.field("apiGroup").is_present() {
                rules::named(&resource.field("apiGroup"), name::dns1123_subdomain, errors);
            }
            rules::required_name(&resource.field("kind"), name::path_segment, errors);
            rules::required_name(&resource.field("name"), name::path_segment, errors);
        }
        (true, false) => {
            rules::required_name(&service.field("name"), name::dns1123_label, errors);
            let port = service.field("port");
            let (port_name, number) = (port.field("name"), port.field("number"));
            let has_number = number.number().is_some_and(|number| number != 0);
            if !port_name.is_empty() && has_number {
                errors.push(Error::invalid(&backend.path, "", "cannot set both port name & port number"));
            } else if !port_name.is_empty() {
                rules::named(&port_name, rules::port_name, errors);
            } else if has_number {
                Check::Port.of(&number, errors);
            } else {
                errors.push(backend.required("port name or number is required"));
            }
        }
        (false, false) => errors.push(backend.required("resource or service backend is required")),
    }
}

fn cells(ingress: &Value, now: Timestamp) -> Vec<Value> {
    const HOSTS_MAX: usize = 3;
    let list = |path: &[&str]| at(ingress, path).and_then(Value::as_array).into_iter().flatten();
    let hosts: Vec<&str> =
        list(&["spec", "rules"]).filter_map(|rule| str_at(rule, &["host"])).filter(|host| !host.is_empty()).collect();
    let shown = hosts[..hosts.len().min(HOSTS_MAX)].join(",");
    let hosts = match hosts.len() {
        0 => "*".to_owned(),
        count if count > HOSTS_MAX => format!("{shown} + {} more...", count - HOSTS_MAX),
        _ => shown,
    };
    let addresses = list(&["status", "loadBalancer", "ingress"]);
    let addresses: Vec<&str> =
        addresses.filter_map(|one| str_at(one, &["ip"]).or(str_at(one, &["hostname"]))).collect();
    let has_tls = list(&["spec", "tls"]).next().is_some();
    vec![
        cells::name(ingress),
        Value::from(str_at(ingress, &["spec", "ingressClassName"]).unwrap_or(NONE)),
        Value::from(hosts),
        Value::from(addresses.join(",")),
        Value::from(if has_tls { "80, 443" } else { "80" }),
        cells::age(ingress, now),
    ]
}
