//! Validation of a pod spec, in a pod or in a template.

use crate::builtin::kind::Request;
use crate::builtin::pods::pod::{claims, container, resources, scheduling, security, volume};
use crate::builtin::rules;
use crate::builtin::rules::field::Field;
use std::collections::BTreeSet;
use steersman_machinery::field::Error;
use steersman_machinery::value::Map;
use steersman_machinery::{Value, name};

pub const RESTART_POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];

/// Validates a new pod.
pub fn validate_pod(request: &Request<'_>, errors: &mut Vec<Error>) {
    let spec = Field::root(request.new).field("spec");
    validate(&spec, errors);
    for list in ["containers", "initContainers"] {
        spec.field(list).items().for_each(|container| container::image_of_pod(&container, errors));
    }
    if !spec.field("ephemeralContainers").is_empty() {
        errors.push(spec.field("ephemeralContainers").forbidden("cannot be set on create"));
    }
}

/// Validates a pod template.
pub fn validate_template(template: &Field<'_>, errors: &mut Vec<Error>) {
    // Upstream omits `metadata` from these two paths.
    let at_template = |field: &str| Field { path: template.path.child(field), ..template.at(&["metadata", field]) };
    rules::labels(&at_template("labels"), errors);
    rules::annotations(&at_template("annotations"), errors);
    let spec = template.field("spec");
    validate(&spec, errors);
    if !spec.field("ephemeralContainers").is_empty() {
        errors.push(spec.field("ephemeralContainers").forbidden("ephemeral containers not allowed in pod template"));
    }
}

/// Validates a pod spec, wherever it is.
pub fn validate(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let volumes = volume::validate(&spec.field("volumes"), errors);
    container::validate_all(spec, &volumes, errors);
    rules::one_of(&spec.field("restartPolicy"), &RESTART_POLICIES, errors);
    dns(spec, errors);
    security::validate_pod(spec, errors);
    scheduling::validate(spec, errors);
    names(spec, errors);
    claims::validate(spec, errors);
    host_aliases(&spec.field("hostAliases"), errors);
    ports_of_host(spec, errors);
    rules::within(&spec.field("activeDeadlineSeconds"), 1, i64::from(i32::MAX), errors);
    let os = spec.field("os");
    if os.is_present() {
        rules::one_of(&Field { path: os.path.clone(), ..os.field("name") }, &["linux", "windows"], errors);
    }
    overhead(&spec.field("overhead"), errors);
    hostname_override(spec, errors);
    let claims = spec.at(&["resources", "claims"]);
    if claims.is_present() {
        errors.push(claims.forbidden("claims may not be set for Resources at pod-level"));
    }
    for gate in spec.field("readinessGates").items() {
        rules::named(&gate.field("conditionType"), name::qualified, errors);
    }
}

/// Validates the overhead of running the pod: upstream validates and reports it as limits.
fn overhead(overhead: &Field<'_>, errors: &mut Vec<Error>) {
    if !overhead.is_absent() {
        let limits = Value::Object(Map::from_iter([("limits".to_owned(), overhead.value.clone())]));
        resources::validate(&Field { path: overhead.path.clone(), value: &limits }, errors);
    }
}

fn hostname_override(spec: &Field<'_>, errors: &mut Vec<Error>) {
    const LENGTH_MAX: usize = 64;
    let hostname = spec.field("hostnameOverride");
    if hostname.is_absent() {
        return;
    }
    for field in ["setHostnameAsFQDN", "hostNetwork"] {
        if spec.field(field).flag() {
            errors.push(hostname.forbidden(format!("may not be specified when {field} is true")));
        }
    }
    if hostname.text().len() > LENGTH_MAX {
        errors.push(Error::too_long(&hostname.path, LENGTH_MAX));
    }
    rules::named(&hostname, name::dns1123_subdomain, errors);
}

type NameCheck = fn(&str) -> Vec<String>;

fn names(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let checks: [(&str, NameCheck); 6] = [
        ("serviceAccountName", name::dns1123_subdomain),
        ("nodeName", name::dns1123_subdomain),
        ("hostname", name::dns1123_label),
        ("subdomain", name::dns1123_label),
        ("runtimeClassName", name::dns1123_subdomain),
        ("priorityClassName", name::dns1123_subdomain),
    ];
    for (name, check) in checks {
        let field = spec.field(name);
        if !field.is_empty() {
            rules::named(&field, check, errors);
        }
    }
}

fn dns(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let policy = spec.field("dnsPolicy");
    rules::one_of(&policy, &["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"], errors);
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
    servers.items().for_each(|server| rules::ip(&server, errors));
    for option in spec.at(&["dnsConfig", "options"]).items() {
        if option.field("name").is_empty() {
            errors.push(option.required("must not be empty"));
        }
    }
}

fn host_aliases(aliases: &Field<'_>, errors: &mut Vec<Error>) {
    for alias in aliases.items() {
        rules::ip(&alias.field("ip"), errors);
        for hostname in alias.field("hostnames").items() {
            rules::named(&hostname, name::dns1123_subdomain, errors);
        }
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
