//! Validation of a pod spec, in a pod or in a template.

use crate::builtin::pods::pod::container::resources;
use crate::builtin::pods::pod::{claims, container, scheduling, security, volume, windows};
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
    Rule::new("dnsConfig.searches", Check::By(searches)),
    Rule::required("dnsConfig.options[].name", "must not be empty").blaming("dnsConfig.options[]"),
    Rule::new("securityContext", Check::Rules(security::POD)),
    Rule::new("", Check::By(security::users)),
    Rule::new("", Check::By(security::namespaces)),
    Rule::new("", Check::Rules(scheduling::SCHEDULING)),
    Rule::new("serviceAccountName", Check::Format(name::dns1123_subdomain)).unless_empty(),
    Rule::new("nodeName", Check::Format(name::dns1123_subdomain)).unless_empty(),
    Rule::new("hostname", Check::Format(name::dns1123_label)).unless_empty(),
    Rule::new("subdomain", Check::Format(name::dns1123_label)).unless_empty(),
    Rule::new("runtimeClassName", Check::Format(name::dns1123_subdomain)).if_present(),
    Rule::new("priorityClassName", Check::Format(name::dns1123_subdomain)).unless_empty(),
    Rule::new("", Check::By(claims::validate)),
    Rule::new("hostAliases[]", Check::Rules(HOST_ALIAS)),
    Rule::new("", Check::By(ports_of_host)),
    Rule::new("activeDeadlineSeconds", Check::Within(1, i32::MAX as i64)),
    Rule::new("os", Check::Rules(OS)).if_present(),
    Rule::new("overhead", Check::By(overhead)).if_present(),
    Rule::new("", Check::By(hostname_override)),
    Rule::new("hostnameOverride", Check::LengthMax(64)),
    Rule::new("hostnameOverride", Check::Format(name::dns1123_subdomain)).if_present(),
    Rule::new("", Check::By(resources::validate_of_pod)),
    Rule::new("", Check::By(windows::host_processes)),
    Rule::new("readinessGates[].conditionType", Check::Format(name::qualified)),
];

/// Upstream blames the whole for another name than the two.
const OS: &[Rule] =
    &[Rule::required("name", ""), Rule::new("name", Check::OneOf(&["linux", "windows"])).unless_empty().blaming("")];

const HOST_ALIAS: &[Rule] =
    &[Rule::new("ip", Check::By(rules::ip)), Rule::new("hostnames[]", Check::Format(name::dns1123_subdomain))];

fn volumes_and_containers(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let volumes = volume::validate(&spec.field("volumes"), errors);
    container::validate_all(spec, &volumes, errors);
    file_keys(spec, errors);
}

/// Variables come from files in volumes that are emptied with the pod.
fn file_keys(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    let containers = lists.iter().flat_map(|list| spec.field(list).items());
    for variable in containers.flat_map(|container| container.field("env").items()) {
        let reference = variable.at(&["valueFrom", "fileKeyRef"]);
        if reference.is_absent() {
            continue;
        }
        let wanted = reference.field("volumeName");
        match spec.field("volumes").items().filter(|volume| volume.field("name").text() == wanted.text()).last() {
            None => errors.push(Error::not_found(&wanted.path, wanted.text())),
            Some(volume) if volume.field("emptyDir").is_absent() => {
                errors.push(wanted.invalid("referenced volume must be of type emptyDir"));
            }
            Some(_) => {}
        }
    }
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

/// The domains in which names are looked up. They may have underscores, end in a dot, and be the root.
fn searches(searches: &Field<'_>, errors: &mut Vec<Error>) {
    const PATHS_MAX: usize = 32;
    const CHARS_MAX: usize = 2_048;
    let texts: Vec<&str> = searches.items().map(|search| search.text()).collect();
    if PATHS_MAX < texts.len() {
        errors.push(searches.invalid(format!("must not have more than {PATHS_MAX} search paths")));
    }
    if CHARS_MAX < texts.join(" ").len() {
        let why = format!("must not have more than {CHARS_MAX} characters (including spaces) in the search list");
        errors.push(searches.invalid(why));
    }
    for search in searches.items().filter(|search| search.text() != ".") {
        let domain = search.text().strip_suffix('.').unwrap_or(search.text());
        // Labels may begin with an underscore and have others inside.
        let label = |label: &str| {
            let rest = label.strip_prefix('_').unwrap_or(label);
            let is_bounded = !rest.starts_with('_') && !rest.ends_with('_');
            if is_bounded { rest.replace('_', "-") } else { "-".to_owned() }
        };
        let without = domain.split('.').map(label).collect::<Vec<String>>().join(".");
        errors.extend(name::dns1123_subdomain(&without).into_iter().map(|detail| search.invalid(detail)));
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
