//! Validation of Services.

use crate::builtin::kind::Request;
use crate::builtin::network::service::{is_balanced, is_external, needs_health_port};
use crate::builtin::rules;
use crate::builtin::rules::place::Place;
use std::collections::BTreeSet;
use std::net::IpAddr;
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::name;

/// Validates a Service, new or changed.
pub fn service(request: &Request<'_>, faults: &mut Vec<Error>) {
    let spec = Place::root(request.new).field("spec");
    let kind = spec.field("type");
    let is_headless = spec.field("clusterIP").text() == "None";
    if spec.field("ports").is_empty() && !is_headless && kind.text() != "ExternalName" {
        faults.push(spec.field("ports").required(""));
    }
    if is_headless && matches!(kind.text(), "LoadBalancer" | "NodePort") {
        let why = format!("may not be set to 'None' for {} services", kind.text());
        faults.push(Error::invalid(&spec.field("clusterIPs").path.index(0), "None", why));
    }
    rules::one_of(&kind, &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"], faults);
    if kind.text() == "ExternalName" {
        external_name(&spec, faults);
    } else {
        addresses_and_families(&spec, faults);
    }
    ports(&spec, is_headless, faults);
    rules::labels(&spec.field("selector"), faults);
    affinity(&spec, faults);
    external_addresses(&spec.field("externalIPs"), faults);
    policies(request.new, &spec, faults);
    balancer(request.new, &spec, faults);
}

fn external_name(spec: &Place<'_>, faults: &mut Vec<Error>) {
    for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if !spec.field(field).is_empty() {
            faults.push(spec.field(field).forbidden("may not be set for ExternalName services"));
        }
    }
    let target = spec.field("externalName");
    let text = target.text().strip_suffix('.').unwrap_or(target.text());
    if target.is_empty() {
        faults.push(target.required(""));
    } else {
        faults.extend(name::dns1123_subdomain(text).into_iter().map(|fault| target.invalid(fault)));
    }
}

/// Validates the addresses and families of a Service other than ExternalName.
pub fn addresses_and_families(spec: &Place<'_>, faults: &mut Vec<Error>) {
    addresses(spec, faults);
    let families = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    rules::one_of_if_present(&spec.field("ipFamilyPolicy"), &families, faults);
    let mut seen = BTreeSet::new();
    for family in spec.field("ipFamilies").items() {
        rules::one_of(&family, &["IPv4", "IPv6"], faults);
        if !seen.insert(family.text()) {
            faults.push(family.duplicate());
        }
    }
    let parse = |address: &Place<'_>| address.text().parse::<IpAddr>().ok();
    let parsed: Vec<IpAddr> = spec.field("clusterIPs").items().filter_map(|address| parse(&address)).collect();
    if let [first, second] = parsed[..]
        && first.is_ipv4() == second.is_ipv4()
    {
        let why = "may specify no more than one IP for each IP family";
        faults.push(spec.field("clusterIPs").invalid(why));
    }
    let pairs = spec.field("clusterIPs").items().zip(spec.field("ipFamilies").items());
    for (index, (address, family)) in pairs.enumerate() {
        let name = if parse(&address).is_some_and(|address| address.is_ipv4()) { "IPv4" } else { "IPv6" };
        if parse(&address).is_some() && family.text() != name && matches!(family.text(), "IPv4" | "IPv6") {
            let why = format!("expected an {} value as indicated by `ipFamilies[{index}]`", family.text());
            faults.push(address.invalid(why));
        }
    }
}

fn addresses(spec: &Place<'_>, faults: &mut Vec<Error>) {
    let (one, many) = (spec.field("clusterIP"), spec.field("clusterIPs"));
    let first = many.items().next();
    match &first {
        Some(_) if one.is_empty() => faults.push(many.invalid("must be empty when `clusterIP` is not specified")),
        Some(first) if first.text() != one.text() => faults.push(many.invalid("first value must match `clusterIP`")),
        _ => {}
    }
    if many.items().count() > 2 {
        faults.push(many.invalid("may only hold up to 2 values"));
    }
    for address in many.items() {
        if address.text() != "None" {
            rules::ip(&address, faults);
        } else if many.items().count() > 1 {
            faults.push(many.invalid("'None' must be the first and only value"));
        }
    }
}

fn ports(spec: &Place<'_>, is_headless: bool, faults: &mut Vec<Error>) {
    let ports = spec.field("ports");
    let is_one_of_many = ports.items().count() > 1;
    let (mut names, mut numbers, mut node_ports) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for port in ports.items() {
        let (name, protocol, number) = (port.field("name"), port.field("protocol"), port.field("port"));
        if name.is_empty() && is_one_of_many {
            faults.push(name.required(""));
        } else if !name.is_empty() {
            rules::named(&name, name::dns1123_label, faults);
            if !names.insert(name.text()) {
                faults.push(name.duplicate());
            }
        }
        rules::port(&number, faults);
        rules::one_of(&protocol, &["SCTP", "TCP", "UDP"], faults);
        if !is_headless && port.field("targetPort").is_present() {
            rules::port_or_name(&port.field("targetPort"), faults);
        }
        if port.field("appProtocol").is_present() {
            rules::named(&port.field("appProtocol"), name::qualified, faults);
        }
        if !numbers.insert((protocol.text(), number.number())) {
            let value = serde_json::json!({"port": number.value, "protocol": protocol.value});
            faults.push(Error::duplicate(&port.path, value));
        }
        let node_port = port.field("nodePort");
        let Some(node_number) = node_port.number().filter(|number| *number != 0) else { continue };
        if spec.field("type").text() == "ClusterIP" {
            faults.push(node_port.forbidden("may not be used when `type` is 'ClusterIP'"));
        }
        if !node_ports.insert((protocol.text(), node_number)) {
            faults.push(node_port.duplicate());
        }
    }
}

fn affinity(spec: &Place<'_>, faults: &mut Vec<Error>) {
    let (affinity, config) = (spec.field("sessionAffinity"), spec.field("sessionAffinityConfig"));
    rules::one_of(&affinity, &["ClientIP", "None"], faults);
    if affinity.text() == "None" && config.is_present() {
        faults.push(config.forbidden("must not be set when session affinity is None"));
    }
    let timeout = config.at(&["clientIP", "timeoutSeconds"]);
    if timeout.number().is_some_and(|seconds| !(1..=86_400).contains(&seconds)) {
        faults.push(timeout.invalid("must be greater than 0 and less than 86400"));
    }
}

/// Validates addresses that receive traffic from outside; loopback, link-local and similar addresses are not allowed.
fn external_addresses(addresses: &Place<'_>, faults: &mut Vec<Error>) {
    for place in addresses.items() {
        let Ok(address) = place.text().parse::<IpAddr>() else {
            rules::ip(&place, faults);
            continue;
        };
        if address.is_unspecified() {
            faults.push(place.invalid("may not be unspecified (0.0.0.0 or ::)"));
        }
        if address.is_loopback() {
            faults.push(place.invalid("may not be in the loopback range (127.0.0.0/8, ::1/128)"));
        }
        let is_link_local = match address {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        };
        if is_link_local {
            faults.push(place.invalid("may not be in the link-local range (169.254.0.0/16, fe80::/10)"));
        }
        if address.is_multicast() {
            faults.push(place.invalid("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"));
        }
    }
}

fn policies(service: &Value, spec: &Place<'_>, faults: &mut Vec<Error>) {
    let (external, internal) = (spec.field("externalTrafficPolicy"), spec.field("internalTrafficPolicy"));
    if external.is_present() {
        if !is_external(service) {
            faults.push(external.invalid("may only be set for externally-accessible services"));
        } else {
            rules::one_of(&external, &["Cluster", "Local"], faults);
        }
    }
    rules::one_of_if_present(&internal, &["Cluster", "Local"], faults);
    let distributions = ["PreferClose", "PreferSameNode", "PreferSameZone"];
    rules::one_of_if_present(&spec.field("trafficDistribution"), &distributions, faults);
}

fn balancer(service: &Value, spec: &Place<'_>, faults: &mut Vec<Error>) {
    let health = spec.field("healthCheckNodePort");
    if health.number().is_some_and(|port| port != 0) && !needs_health_port(service) {
        let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        faults.push(health.invalid(why));
    }
    // Upstream's errors spell this field so.
    let ranges = spec.field("loadBalancerSourceRanges");
    let ranges = Place { path: spec.path.child("LoadBalancerSourceRanges"), ..ranges };
    if !ranges.is_empty() && !is_balanced(service) {
        faults.push(ranges.forbidden("may only be used when `type` is 'LoadBalancer'"));
    }
    for range in ranges.items() {
        if range.text().trim().parse::<ipnet::IpNet>().is_err() {
            faults.push(range.invalid("must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"));
        }
    }
    if is_balanced(service) {
        let class = spec.field("loadBalancerClass");
        if class.is_present() {
            rules::named(&class, name::qualified, faults);
        }
        return;
    }
    for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
        if spec.field(field).is_present() {
            faults.push(spec.field(field).forbidden("may only be used when `type` is 'LoadBalancer'"));
        }
    }
}

/// Validates a change through the main endpoint.
pub fn update(request: &Request<'_>, faults: &mut Vec<Error>) {
    let (new, old) = (Place::root(request.new).field("spec"), Place::root(request.old).field("spec"));
    let is_named = |spec: &Place<'_>| spec.field("type").text() == "ExternalName";
    let is_headless = |spec: &Place<'_>| spec.field("clusterIP").text() == "None";
    if !is_named(&new) && !is_named(&old) {
        if !(is_headless(&new) && is_headless(&old)) {
            unchanged(&new, &old, "clusterIPs", faults);
        }
        if !is_headless(&new) && !is_headless(&old) {
            unchanged(&new, &old, "ipFamilies", faults);
        }
    }
    if is_balanced(request.new) && is_balanced(request.old) {
        let (class, before) = (new.field("loadBalancerClass"), old.field("loadBalancerClass"));
        if class.value != before.value {
            faults.push(class.invalid("may not change once set"));
        }
    }
    service(request, faults);
}

/// The first entry must not change, nor the second one unless it is released or added.
fn unchanged(new: &Place<'_>, old: &Place<'_>, field: &str, faults: &mut Vec<Error>) {
    let (list, before) = (new.field(field), old.field(field));
    for (index, (one, was)) in list.items().zip(before.items()).enumerate() {
        if one.value != was.value {
            // Upstream names the first family, whichever has changed.
            let index = if field == "ipFamilies" { 0 } else { index };
            faults.push(Error::invalid(&list.path.index(index), list.value.clone(), "may not change once set"));
        }
    }
    if list.is_empty() && !before.is_empty() {
        let what = if field == "ipFamilies" { "ipFamily" } else { "clusterIP" };
        let why = format!("primary {what} can not be unset");
        faults.push(Error::invalid(&list.path.index(0), list.value.clone(), why));
    }
}

/// Validates a change through `/status`.
pub fn status(request: &Request<'_>, faults: &mut Vec<Error>) {
    let ingress = Place::root(request.new).at(&["status", "loadBalancer", "ingress"]);
    if !ingress.is_empty() && !is_balanced(request.new) {
        faults.push(ingress.forbidden("may only be used when `spec.type` is LoadBalancer"));
    }
    for address in ingress.items() {
        let (ip, mode, hostname) = (address.field("ip"), address.field("ipMode"), address.field("hostname"));
        if !ip.is_empty() {
            rules::ip(&ip, faults);
            rules::one_of_if_present(&mode, &["Proxy", "VIP"], faults);
        } else if mode.is_present() {
            faults.push(mode.forbidden("may not be specified when `ip` is not set"));
        }
        if !hostname.is_empty() {
            rules::named(&hostname, name::dns1123_subdomain, faults);
            if hostname.text().parse::<IpAddr>().is_ok() {
                faults.push(hostname.invalid("must be a DNS name, not an IP address"));
            }
        }
    }
}
