//! Validation of Services.

use crate::builtin::kind::Request;
use crate::builtin::network::service::{is_balanced, is_external, needs_health_port};
use crate::builtin::rules;
use crate::builtin::rules::field::Field;
use std::collections::BTreeSet;
use std::net::IpAddr;
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::name;

/// Validates a Service, new or changed.
pub fn service(request: &Request<'_>, errors: &mut Vec<Error>) {
    let spec = Field::root(request.new).field("spec");
    let kind = spec.field("type");
    let is_headless = spec.field("clusterIP").text() == "None";
    if spec.field("ports").is_empty() && !is_headless && kind.text() != "ExternalName" {
        errors.push(spec.field("ports").required(""));
    }
    if is_headless && matches!(kind.text(), "LoadBalancer" | "NodePort") {
        let why = format!("may not be set to 'None' for {} services", kind.text());
        errors.push(Error::invalid(&spec.field("clusterIPs").path.index(0), "None", why));
    }
    rules::one_of(&kind, &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"], errors);
    if kind.text() == "ExternalName" {
        external_name(&spec, errors);
    } else {
        addresses_and_families(&spec, errors);
    }
    ports(&spec, errors);
    rules::labels(&spec.field("selector"), errors);
    affinity(&spec, errors);
    external_addresses(&spec.field("externalIPs"), errors);
    policies(request.new, &spec, errors);
    balancer(request.new, &spec, errors);
}

fn external_name(spec: &Field<'_>, errors: &mut Vec<Error>) {
    for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if !spec.field(field).is_empty() {
            errors.push(spec.field(field).forbidden("may not be set for ExternalName services"));
        }
    }
    let target = spec.field("externalName");
    let text = target.text().strip_suffix('.').unwrap_or(target.text());
    if target.is_empty() {
        errors.push(target.required(""));
    } else {
        errors.extend(name::dns1123_subdomain(text).into_iter().map(|detail| target.invalid(detail)));
    }
}

/// Validates the addresses and families of a Service other than ExternalName.
pub fn addresses_and_families(spec: &Field<'_>, errors: &mut Vec<Error>) {
    addresses(spec, errors);
    let families = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    rules::one_of_if_present(&spec.field("ipFamilyPolicy"), &families, errors);
    let mut seen = BTreeSet::new();
    for family in spec.field("ipFamilies").items() {
        rules::one_of(&family, &["IPv4", "IPv6"], errors);
        if !seen.insert(family.text()) {
            errors.push(family.duplicate());
        }
    }
    let parse = |address: &Field<'_>| address.text().parse::<IpAddr>().ok();
    let parsed: Vec<IpAddr> = spec.field("clusterIPs").items().filter_map(|address| parse(&address)).collect();
    if let [first, second] = parsed[..]
        && first.is_ipv4() == second.is_ipv4()
    {
        let why = "may specify no more than one IP for each IP family";
        errors.push(spec.field("clusterIPs").invalid(why));
    }
    let pairs = spec.field("clusterIPs").items().zip(spec.field("ipFamilies").items());
    for (index, (address, family)) in pairs.enumerate() {
        let name = if parse(&address).is_some_and(|address| address.is_ipv4()) { "IPv4" } else { "IPv6" };
        if parse(&address).is_some() && family.text() != name && matches!(family.text(), "IPv4" | "IPv6") {
            let why = format!("expected an {} value as indicated by `ipFamilies[{index}]`", family.text());
            errors.push(address.invalid(why));
        }
    }
}

fn addresses(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let (one, many) = (spec.field("clusterIP"), spec.field("clusterIPs"));
    let first = many.items().next();
    match &first {
        Some(_) if one.is_empty() => errors.push(many.invalid("must be empty when `clusterIP` is not specified")),
        Some(first) if first.text() != one.text() => errors.push(many.invalid("first value must match `clusterIP`")),
        _ => {}
    }
    if many.items().count() > 2 {
        errors.push(many.invalid("may only hold up to 2 values"));
    }
    for address in many.items() {
        if address.text() != "None" {
            rules::ip(&address, errors);
        } else if many.items().count() > 1 {
            errors.push(many.invalid("'None' must be the first and only value"));
        }
    }
}

fn ports(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let ports = spec.field("ports");
    let is_one_of_many = ports.items().count() > 1;
    let (mut names, mut numbers, mut node_ports) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for port in ports.items() {
        let (name, protocol, number) = (port.field("name"), port.field("protocol"), port.field("port"));
        if name.is_empty() && is_one_of_many {
            errors.push(name.required(""));
        } else if !name.is_empty() {
            rules::named(&name, name::dns1123_label, errors);
            if !names.insert(name.text()) {
                errors.push(name.duplicate());
            }
        }
        rules::port(&number, errors);
        rules::one_of(&protocol, &["SCTP", "TCP", "UDP"], errors);
        if port.field("targetPort").is_present() {
            rules::port_or_name(&port.field("targetPort"), errors);
        }
        if port.field("appProtocol").is_present() {
            rules::named(&port.field("appProtocol"), name::qualified, errors);
        }
        if !numbers.insert((protocol.text(), number.number())) {
            let value = serde_json::json!({"port": number.value, "protocol": protocol.value});
            errors.push(Error::duplicate(&port.path, value));
        }
        let node_port = port.field("nodePort");
        let Some(node_number) = node_port.number().filter(|number| *number != 0) else { continue };
        if spec.field("type").text() == "ClusterIP" {
            errors.push(node_port.forbidden("may not be used when `type` is 'ClusterIP'"));
        }
        if !node_ports.insert((protocol.text(), node_number)) {
            errors.push(node_port.duplicate());
        }
    }
}

fn affinity(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let (affinity, config) = (spec.field("sessionAffinity"), spec.field("sessionAffinityConfig"));
    rules::one_of(&affinity, &["ClientIP", "None"], errors);
    if affinity.text() == "None" && config.is_present() {
        errors.push(config.forbidden("must not be set when session affinity is None"));
    }
    let timeout = config.at(&["clientIP", "timeoutSeconds"]);
    if timeout.number().is_some_and(|seconds| !(1..=86_400).contains(&seconds)) {
        errors.push(timeout.invalid("must be greater than 0 and less than 86400"));
    }
}

/// Validates addresses that receive traffic from outside; loopback, link-local and similar addresses are not allowed.
fn external_addresses(addresses: &Field<'_>, errors: &mut Vec<Error>) {
    for field in addresses.items() {
        let Ok(address) = field.text().parse::<IpAddr>() else {
            rules::ip(&field, errors);
            continue;
        };
        if address.is_unspecified() {
            errors.push(field.invalid("may not be unspecified (0.0.0.0 or ::)"));
        }
        if address.is_loopback() {
            errors.push(field.invalid("may not be in the loopback range (127.0.0.0/8, ::1/128)"));
        }
        let is_link_local = match address {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        };
        if is_link_local {
            errors.push(field.invalid("may not be in the link-local range (169.254.0.0/16, fe80::/10)"));
        }
        if address.is_multicast() {
            errors.push(field.invalid("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"));
        }
    }
}

fn policies(service: &Value, spec: &Field<'_>, errors: &mut Vec<Error>) {
    let (external, internal) = (spec.field("externalTrafficPolicy"), spec.field("internalTrafficPolicy"));
    if external.is_present() {
        if !is_external(service) {
            errors.push(external.invalid("may only be set for externally-accessible services"));
        } else {
            rules::one_of(&external, &["Cluster", "Local"], errors);
        }
    }
    rules::one_of_if_present(&internal, &["Cluster", "Local"], errors);
    let distributions = ["PreferClose", "PreferSameNode", "PreferSameZone"];
    rules::one_of_if_present(&spec.field("trafficDistribution"), &distributions, errors);
}

fn balancer(service: &Value, spec: &Field<'_>, errors: &mut Vec<Error>) {
    let health = spec.field("healthCheckNodePort");
    if health.number().is_some_and(|port| port != 0) && !needs_health_port(service) {
        let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        errors.push(health.invalid(why));
    }
    // Upstream's errors spell this field so.
    let ranges = spec.field("loadBalancerSourceRanges");
    let ranges = Field { path: spec.path.child("LoadBalancerSourceRanges"), ..ranges };
    if !ranges.is_empty() && !is_balanced(service) {
        errors.push(ranges.forbidden("may only be used when `type` is 'LoadBalancer'"));
    }
    for range in ranges.items() {
        if range.text().trim().parse::<ipnet::IpNet>().is_err() {
            errors.push(range.invalid("must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"));
        }
    }
    if is_balanced(service) {
        let class = spec.field("loadBalancerClass");
        if class.is_present() {
            rules::named(&class, name::qualified, errors);
        }
        return;
    }
    for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
        if spec.field(field).is_present() {
            errors.push(spec.field(field).forbidden("may only be used when `type` is 'LoadBalancer'"));
        }
    }
}

/// Validates a change through the main endpoint.
pub fn update(request: &Request<'_>, errors: &mut Vec<Error>) {
    let (new, old) = (Field::root(request.new).field("spec"), Field::root(request.old).field("spec"));
    let is_named = |spec: &Field<'_>| spec.field("type").text() == "ExternalName";
    let is_headless = |spec: &Field<'_>| spec.field("clusterIP").text() == "None";
    if !is_named(&new) && !is_named(&old) {
        if !(is_headless(&new) && is_headless(&old)) {
            unchanged(&new, &old, "clusterIPs", errors);
        }
        if !is_headless(&new) && !is_headless(&old) {
            unchanged(&new, &old, "ipFamilies", errors);
        }
    }
    if is_balanced(request.new) && is_balanced(request.old) {
        let (class, before) = (new.field("loadBalancerClass"), old.field("loadBalancerClass"));
        if class.value != before.value {
            errors.push(class.invalid("may not change once set"));
        }
    }
    service(request, errors);
}

/// The first entry must not change, nor the second one unless it is released or added.
fn unchanged(new: &Field<'_>, old: &Field<'_>, field: &str, errors: &mut Vec<Error>) {
    let (list, before) = (new.field(field), old.field(field));
    for (index, (one, was)) in list.items().zip(before.items()).enumerate() {
        if one.value != was.value {
            // Upstream names the first family, whichever has changed.
            let index = if field == "ipFamilies" { 0 } else { index };
            errors.push(Error::invalid(&list.path.index(index), list.value.clone(), "may not change once set"));
        }
    }
    if list.is_empty() && !before.is_empty() {
        let what = if field == "ipFamilies" { "ipFamily" } else { "clusterIP" };
        let why = format!("primary {what} can not be unset");
        errors.push(Error::invalid(&list.path.index(0), list.value.clone(), why));
    }
}

/// Validates a change through `/status`.
pub fn status(request: &Request<'_>, errors: &mut Vec<Error>) {
    let ingress = Field::root(request.new).at(&["status", "loadBalancer", "ingress"]);
    if !ingress.is_empty() && !is_balanced(request.new) {
        errors.push(ingress.forbidden("may only be used when `spec.type` is LoadBalancer"));
    }
    for address in ingress.items() {
        let (ip, mode, hostname) = (address.field("ip"), address.field("ipMode"), address.field("hostname"));
        if !ip.is_empty() {
            rules::ip(&ip, errors);
            rules::one_of_if_present(&mode, &["Proxy", "VIP"], errors);
        } else if mode.is_present() {
            errors.push(mode.forbidden("may not be specified when `ip` is not set"));
        }
        if !hostname.is_empty() {
            rules::named(&hostname, name::dns1123_subdomain, errors);
            if hostname.text().parse::<IpAddr>().is_ok() {
                errors.push(hostname.invalid("must be a DNS name, not an IP address"));
            }
        }
    }
}
