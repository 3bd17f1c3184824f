//! Validation of a pod spec, in a pod or in a template.

use crate::builtin::kind::Request;
use crate::builtin::pods::pod::{claims, container, resources, scheduling, security, volume};
use crate::builtin::rules;
use crate::builtin::rules::place::Place;
use std::collections::BTreeSet;
use steersman_machinery::field::Error;
use steersman_machinery::value::Map;
use steersman_machinery::{Value, name};

pub const RESTART_POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];

/// Validates a new pod.
pub fn validate_pod(request: &Request<'_>, faults: &mut Vec<Error>) {
    let spec = Place::root(request.new).field("spec");
    validate(&spec, faults);
    if !spec.field("ephemeralContainers").is_empty() {
        faults.push(spec.field("ephemeralContainers").forbidden("cannot be set on create"));
    }
}

/// Validates a pod template.
pub fn validate_template(template: &Place<'_>, faults: &mut Vec<Error>) {
    // Upstream omits `metadata` from these two paths.
    let at_template = |field: &str| Place { path: template.path.child(field), ..template.at(&["metadata", field]) };
    rules::labels(&at_template("labels"), faults);
    rules::annotations(&at_template("annotations"), faults);
    let spec = template.field("spec");
    validate(&spec, faults);
    if !spec.field("ephemeralContainers").is_empty() {
        faults.push(spec.field("ephemeralContainers").forbidden("ephemeral containers not allowed in pod template"));
    }
}

/// Validates a pod spec, wherever it is.
pub fn validate(spec: &Place<'_>, faults: &mut Vec<Error>) {
    let volumes = volume::validate(&spec.field("volumes"), faults);
    container::validate_all(spec, &volumes, faults);
    rules::one_of(&spec.field("restartPolicy"), &RESTART_POLICIES, faults);
    dns(spec, faults);
    security::validate_pod(spec, faults);
    scheduling::validate(spec, faults);
    names(spec, faults);
    claims::validate(spec, faults);
    host_aliases(&spec.field("hostAliases"), faults);
    ports_of_host(spec, faults);
    rules::within(&spec.field("activeDeadlineSeconds"), 1, i64::from(i32::MAX), faults);
    let os = spec.field("os");
    if os.is_present() {
        rules::one_of(&Place { path: os.path.clone(), ..os.field("name") }, &["linux", "windows"], faults);
    }
    overhead(&spec.field("overhead"), faults);
    hostname_override(spec, faults);
    let claims = spec.at(&["resources", "claims"]);
    if claims.is_present() {
        faults.push(claims.forbidden("claims may not be set for Resources at pod-level"));
    }
    for gate in spec.field("readinessGates").items() {
        rules::named(&gate.field("conditionType"), name::qualified, faults);
    }
}

/// Validates the overhead of running the pod: upstream validates and reports it as limits.
fn overhead(overhead: &Place<'_>, faults: &mut Vec<Error>) {
    if !overhead.is_absent() {
        let limits = Value::Object(Map::from_iter([("limits".to_owned(), overhead.value.clone())]));
        resources::validate(&Place { path: overhead.path.clone(), value: &limits }, faults);
    }
}

fn hostname_override(spec: &Place<'_>, faults: &mut Vec<Error>) {
    const LENGTH_MAX: usize = 64;
    let hostname = spec.field("hostnameOverride");
    if hostname.is_absent() {
        return;
    }
    for field in ["setHostnameAsFQDN", "hostNetwork"] {
        if spec.field(field).flag() {
            faults.push(hostname.forbidden(format!("may not be specified when {field} is true")));
        }
    }
    if hostname.text().len() > LENGTH_MAX {
        faults.push(Error::too_long(&hostname.path, LENGTH_MAX));
    }
    rules::named(&hostname, name::dns1123_subdomain, faults);
}

type NameCheck = fn(&str) -> Vec<String>;

fn names(spec: &Place<'_>, faults: &mut Vec<Error>) {
    let checks: [(&str, NameCheck); 6] = [
        ("serviceAccountName", name::dns1123_subdomain),
        ("nodeName", name::dns1123_subdomain),
        ("hostname", name::dns1123_label),
        ("subdomain", name::dns1123_label),
        ("runtimeClassName", name::dns1123_subdomain),
        ("priorityClassName", name::dns1123_subdomain),
    ];
    for (field, check) in checks {
        let place = spec.field(field);
        if !place.is_empty() {
            rules::named(&place, check, faults);
        }
    }
}

fn dns(spec: &Place<'_>, faults: &mut Vec<Error>) {
    let policy = spec.field("dnsPolicy");
    rules::one_of(&policy, &["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"], faults);
    let servers = spec.at(&["dnsConfig", "nameservers"]);
    if policy.text() == "None" && servers.is_empty() {
        let why = if spec.field("dnsConfig").is_absent() {
            spec.field("dnsConfig").required("must provide `dnsConfig` when `dnsPolicy` is None")
        } else {
            servers.required("must provide at least one DNS nameserver when `dnsPolicy` is None")
        };
        faults.push(why);
    }
    if servers.items().count() > 3 {
        faults.push(servers.invalid("must not have more than 3 nameservers"));
    }
    servers.items().for_each(|server| rules::ip(&server, faults));
    for option in spec.at(&["dnsConfig", "options"]).items() {
        if option.field("name").is_empty() {
            faults.push(option.required("must not be empty"));
        }
    }
}

fn host_aliases(aliases: &Place<'_>, faults: &mut Vec<Error>) {
    for alias in aliases.items() {
        rules::ip(&alias.field("ip"), faults);
        for hostname in alias.field("hostnames").items() {
            rules::named(&hostname, name::dns1123_subdomain, faults);
        }
    }
}

/// Two ports of one pod cannot use the same host port; on the host's network every container port is a host port.
fn ports_of_host(spec: &Place<'_>, faults: &mut Vec<Error>) {
    let is_on_host_network = spec.field("hostNetwork").flag();
    let mut taken = BTreeSet::new();
    for port in spec.field("containers").items().flat_map(|container| container.field("ports").items()) {
        let host = port.field("hostPort");
        let Some(number) = host.number().filter(|number| *number != 0) else { continue };
        if is_on_host_network && port.field("containerPort").number() != Some(number) {
            faults.push(host.invalid("must match `containerPort` when `hostNetwork` is true"));
        }
        let (protocol, address) = (port.field("protocol").text(), port.field("hostIP").text());
        let text = format!("{protocol}/{address}/{number}");
        if !taken.insert(text.clone()) {
            faults.push(Error::duplicate(&host.path, text.into()));
        }
    }
}
