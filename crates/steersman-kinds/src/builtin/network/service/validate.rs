//! Validation of Services.

use crate::builtin::network::service::{is_balanced, is_external, needs_health_port};
use crate::builtin::rules;
use crate::builtin::rules::change::Change;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule, check_field};
use std::collections::BTreeSet;
use std::net::IpAddr;
use steersman_machinery::field::Error;
use steersman_machinery::name;

/// The rules of Services, new or changed through the main endpoint.
pub const SERVICE: &[Rule] = &[
    Rule::new("", Check::Change(update)).on_update(),
    Rule::new("spec", Check::By(ports_and_address)),
    Rule::new("spec.type", Check::OneOf(&["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"])),
    Rule::new("spec", Check::By(name_or_addresses)),
    Rule::new("spec", Check::By(ports)),
    Rule::new("spec.selector", Check::By(rules::labels)),
    Rule::new("spec.sessionAffinity", Check::OneOf(&["ClientIP", "None"])),
    Rule::new("spec", Check::By(affinity)),
    Rule::new(
        "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
        Check::Between(1, 86_400, "must be greater than 0 and less than 86400"),
    ),
    Rule::new("spec.externalIPs[]", Check::By(external_address)),
    Rule::new("", Check::By(external_policy)),
    Rule::new("spec.internalTrafficPolicy", Check::OneOf(&["Cluster", "Local"])).if_present(),
    Rule::new("spec.trafficDistribution", Check::OneOf(&["PreferClose", "PreferSameNode", "PreferSameZone"]))
        .if_present(),
    Rule::new("", Check::By(balancer)),
];

/// The rules of the status.
pub const STATUS: &[Rule] = &[Rule::new("", Check::By(balanced))];

fn ports_and_address(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let kind = spec.field("type").text();
    if spec.field("ports").is_empty() && !is_headless(spec) && kind != "ExternalName" {
        errors.push(spec.field("ports").required(""));
    }
    if is_headless(spec) && matches!(kind, "LoadBalancer" | "NodePort") {
        let why = format!("may not be set to 'None' for {kind} services");
        errors.push(Error::invalid(&spec.field("clusterIPs").path.index(0), "None", why));
    }
}

fn is_headless(spec: &Field<'_>) -> bool {
    spec.field("clusterIP").text() == "None"
}

fn name_or_addresses(spec: &Field<'_>, errors: &mut Vec<Error>) {
    match spec.field("type").text() {
        "ExternalName" => external_name(spec, errors),
        _ => addresses_and_families(spec, errors),
    }
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

pub(in crate::builtin) const FAMILIES: &[Rule] = &[
    Rule::new("ipFamilyPolicy", Check::OneOf(&["PreferDualStack", "RequireDualStack", "SingleStack"])).if_present(),
    Rule::new(
        "ipFamilies[]",
        Check::Rules(&[Rule::new("", Check::OneOf(&["IPv4", "IPv6"])), Rule::new("", Check::Unique)]),
    ),
];

/// Validates the addresses and families of a Service other than ExternalName.
pub fn addresses_and_families(spec: &Field<'_>, errors: &mut Vec<Error>) {
    addresses(spec, errors);
    check_field(FAMILIES, spec, errors);
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
        Check::Port.of(&number, errors);
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
    let config = spec.field("sessionAffinityConfig");
    if spec.field("sessionAffinity").text() == "None" && config.is_present() {
        errors.push(config.forbidden("must not be set when session affinity is None"));
    }
}

/// An address that receives traffic from outside; loopback, link-local and similar addresses are not allowed.
fn external_address(field: &Field<'_>, errors: &mut Vec<Error>) {
    let Ok(address) = field.text().parse::<IpAddr>() else { return rules::ip(field, errors) };
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    for (is_wrong, why) in [
        (address.is_unspecified(), "may not be unspecified (0.0.0.0 or ::)"),
        (address.is_loopback(), "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        (is_link_local, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
        (address.is_multicast(), "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"),
    ] {
        if is_wrong {
            errors.push(field.invalid(why));
        }
    }
}

fn external_policy(service: &Field<'_>, errors: &mut Vec<Error>) {
    let policy = service.at(&["spec", "externalTrafficPolicy"]);
    if policy.is_absent() {
        return;
    }
    if is_external(service.value) {
        rules::one_of(&policy, &["Cluster", "Local"], errors);
    } else {
        errors.push(policy.invalid("may only be set for externally-accessible services"));
    }
}

fn balancer(object: &Field<'_>, errors: &mut Vec<Error>) {
    let (service, spec) = (object.value, object.field("spec"));
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

fn update(change: &Change<'_>, errors: &mut Vec<Error>) {
    let Change { new, old } = change.field("spec");
    let is_named = |spec: &Field<'_>| spec.field("type").text() == "ExternalName";
    if !is_named(&new) && !is_named(&old) {
        if !(is_headless(&new) && is_headless(&old)) {
            unchanged(&new, &old, "clusterIPs", errors);
        }
        if !is_headless(&new) && !is_headless(&old) {
            unchanged(&new, &old, "ipFamilies", errors);
        }
    }
    if is_balanced(change.new.value) && is_balanced(change.old.value) {
        let (class, before) = (new.field("loadBalancerClass"), old.field("loadBalancerClass"));
        if class.value != before.value {
            errors.push(class.invalid("may not change once set"));
        }
    }
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

fn balanced(service: &Field<'_>, errors: &mut Vec<Error>) {
    let ingress = service.at(&["status", "loadBalancer", "ingress"]);
    if is_balanced(service.value) {
        ingress.items().for_each(|one| check_field(INGRESS, &one, errors));
    } else if !ingress.is_empty() {
        errors.push(ingress.forbidden("may only be used when `spec.type` is LoadBalancer"));
    }
}

pub(in crate::builtin) const INGRESS: &[Rule] = &[
    Rule::new("ip", Check::By(rules::ip)).unless_empty(),
    Rule::new("", Check::By(address_mode)),
    Rule::new("hostname", Check::Format(name::dns1123_subdomain)).unless_empty(),
    Rule::new("hostname", Check::Text(is_no_address, "must be a DNS name, not an IP address")),
];

fn address_mode(address: &Field<'_>, errors: &mut Vec<Error>) {
    let mode = address.field("ipMode");
    if !address.field("ip").is_empty() {
        rules::one_of_if_present(&mode, &["Proxy", "VIP"], errors);
    } else if mode.is_present() {
        errors.push(mode.forbidden("may not be specified when `ip` is not set"));
    }
}

fn is_no_address(text: &str) -> bool {
    text.parse::<IpAddr>().is_err()
}
