//! Validation of a pod spec, in a pod or in a template.

use crate::builtin::pods::pod::container::resources;
use crate::builtin::pods::pod::{claims, container, scheduling, security, volume};
use crate::builtin::rules;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule};
use std::collections::BTreeSet;
use steersman_machinery::field::Error;
use steersman_machinery::value::Map;
use steersman_machinery::{Value, name};

pub const RESTART_POLICIES: &[&str] = &["Always", "OnFailure", "Never"];

/// The rules of a pod template. Upstream omits `metadata` from the first two paths.
pub const TEMPLATE: &[Rule] = &[
    Rule::new("metadata.labels", Check::By(rules::labels)).blaming("labels"),
    Rule::new("metadata.annotations", Check::By(rules::annotations)).blaming("annotations"),
    Rule::new("spec", Check::Rules(SPEC)),
    Rule::new("spec.ephemeralContainers", Check::Forbidden("ephemeral containers not allowed in pod template"))
        .unless_empty(),
];

/// The rules of a pod spec, wherever it is.
pub const SPEC: &[Rule] = &[
    Rule::new("", Check::By(volumes_and_containers)),
    Rule::new("restartPolicy", Check::OneOf(RESTART_POLICIES)),
    Rule::new("dnsPolicy", Check::OneOf(&["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"])),
    Rule::new("", Check::By(dns)),
    Rule::new("dnsConfig.nameservers[]", Check::By(rules::ip)),
    Rule::required("dnsConfig.options[].name", "must not be empty").blaming("dnsConfig.options[]"),
    Rule::new("securityContext", Check::Rules(security::POD)),
    Rule::new("", Check::By(security::users)),
    Rule::new("", Check::By(security::namespaces)),
    Rule::new("", Check::Rules(scheduling::SCHEDULING)),
    Rule::new("serviceAccountName", Check::Format(name::dns1123_subdomain)).unless_empty(),
    Rule::new("nodeName", Check::Format(name::dns1123_subdomain)).unless_empty(),
    Rule::new("hostname", Check::Format(name::dns1123_label)).unless_empty(),
    Rule::new("subdomain", Check::Format(name::dns1123_label)).unless_empty(),
    Rule::new("runtimeClassName", Check::Format(name::dns1123_subdomain)).unless_empty(),
    Rule::new("priorityClassName", Check::Format(name::dns1123_subdomain)).unless_empty(),
    Rule::new("", Check::By(claims::validate)),
    Rule::new("hostAliases[]", Check::Rules(HOST_ALIAS)),
    Rule::new("", Check::By(ports_of_host)),
    Rule::new("activeDeadlineSeconds", Check::Within(1, i32::MAX as i64)),
    Rule::new("os", Check::Rules(&[Rule::new("name", Check::OneOf(&["linux", "windows"])).blaming("")])).if_present(),
    Rule::new("overhead", Check::By(overhead)).if_present(),
    Rule::new("", Check::By(hostname_override)),
    Rule::new("hostnameOverride", Check::LengthMax(64)),
    Rule::new("hostnameOverride", Check::Format(name::dns1123_subdomain)).if_present(),
    Rule::new("resources.claims", Check::Forbidden("claims may not be set for Resources at pod-level")).if_present(),
    Rule::new("readinessGates[].conditionType", Check::Format(name::qualified)),
];

const HOST_ALIAS: &[Rule] =
    &[Rule::new("ip", Check::By(rules::ip)), Rule::new("hostnames[]", Check::Format(name::dns1123_subdomain))];

fn volumes_and_containers(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let volumes = volume::validate(&spec.field("volumes"), errors);
    container::validate_all(spec, &volumes, errors);
}

/// Upstream validates the overhead of running the pod as limits, and reports it so.
fn overhead(overhead: &Field<'_>, errors: &mut Vec<Error>) {
    let limits = Value::Object(Map::from_iter([("limits".to_owned(), overhead.value.clone())]));
    resources::validate(&Field { path: overhead.path.clone(), value: &limits }, errors);
}

fn hostname_override(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let hostname = spec.field("hostnameOverride");
    for field in ["setHostnameAsFQDN", "hostNetwork"] {
        if hostname.is_present() && spec.field(field).flag() {
            errors.push(hostname.forbidden(format!("may not be specified when {field} is true")));
        }
    }
}

fn dns(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let policy = spec.field("dnsPolicy");
    let servers = spec.at(&["dnsConfig", "nameservers"]);
    if policy.text() == "None" && servers.is_empty() {
        let why = if spec.field("dnsConfig").is_absent() {
            spec.field("dnsConfig").required("must provide `dnsConfig` when `dnsPolicy` is None")
        } else {
            servers.required("must provide at least one DNS nameserver when `dnsPolicy` is None")
        };
        errors.push(why);
    }
    if servers.items().count() > 3 {
        errors.push(servers.invalid("must not have more than 3 nameservers"));
    }
}

/// Two ports of one pod cannot use the same host port; on the host's network every container port is a host port.
fn ports_of_host(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let is_on_host_network = spec.field("hostNetwork").flag();
    let mut taken = BTreeSet::new();
    for port in spec.field("containers").items().flat_map(|container| container.field("ports").items()) {
        let host = port.field("hostPort");
        let Some(number) = host.number().filter(|number| *number != 0) else { continue };
        if is_on_host_network && port.field("containerPort").number() != Some(number) {
            errors.push(host.invalid("must match `containerPort` when `hostNetwork` is true"));
        }
        let (protocol, address) = (port.field("protocol").text(), port.field("hostIP").text());
        let text = format!("{protocol}/{address}/{number}");
        if !taken.insert(text.clone()) {
            errors.push(Error::duplicate(&host.path, text.into()));
        }
    }
}
