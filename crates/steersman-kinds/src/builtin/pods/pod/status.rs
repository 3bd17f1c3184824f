//! Validation of a pod's status.

use crate::builtin::pods::pod::container;
use crate::builtin::rules;
use crate::builtin::rules::change::Change;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule};
use std::collections::BTreeSet;
use std::net::IpAddr;
use steersman_machinery::field::Error;
use steersman_machinery::name;

const NOT_NEGATIVE: &str = "must be a non-negative integer";

/// The rules of changes through `/status`.
pub(super) const STATUS: &[Rule] = &[
    Rule::new("status.conditions[]", Check::By(condition)),
    Rule::new("status.nominatedNodeName", Check::Format(name::dns1123_subdomain)).unless_empty(),
    Rule::new("", Check::Change(nominated)),
    Rule::new("status.observedGeneration", Check::AtLeast(0, NOT_NEGATIVE)),
    Rule::new("status.qosClass", Check::Immutable),
    Rule::new("status", Check::Change(addresses)),
    Rule::new("", Check::Change(container::status::transitions)),
    Rule::new("", Check::By(claims)),
    Rule::new("", Check::By(extended_resources)),
    Rule::new("", Check::By(container::status::users)),
    Rule::new("", Check::By(container::status::allocated_resources)),
];

/// Validates a condition. Those of the kubelet and the scheduler have fixed names.
fn condition(condition: &Field<'_>, errors: &mut Vec<Error>) {
    let observed = condition.field("observedGeneration");
    if observed.number().is_some_and(|generation| generation < 0) {
        errors.push(observed.invalid(NOT_NEGATIVE));
    }
    let kind = condition.field("type");
    if !matches!(kind.text(), "PodScheduled" | "Ready" | "Initialized") {
        // Upstream names the field as it is named in Go, and shows an absent type as an empty one.
        let path = condition.path.child("Type");
        let wrong = name::qualified(kind.text()).into_iter();
        errors.extend(wrong.map(|detail| Error::invalid(&path, kind.text(), detail)));
    }
}

/// Validates the claims that were made for those of the spec.
fn claims(pod: &Field<'_>, errors: &mut Vec<Error>) {
    let wanted = pod.at(&["spec", "resourceClaims"]);
    let wanted: BTreeSet<&str> = wanted.items().map(|claim| claim.field("name").text()).collect();
    let mut seen = BTreeSet::new();
    for made in pod.at(&["status", "resourceClaimStatuses"]).items() {
        let name = made.field("name");
        if !wanted.contains(name.text()) {
            errors.push(name.invalid("must match the name of an entry in `spec.resourceClaims`"));
        }
        if !seen.insert(name.text()) {
            errors.push(name.duplicate());
        }
        let made = made.field("resourceClaimName");
        if made.is_present() {
            rules::named(&made, name::dns1123_subdomain, errors);
        }
    }
}

/// Validates the claim for extended resources, and which requests of it the containers have.
fn extended_resources(pod: &Field<'_>, errors: &mut Vec<Error>) {
    let (claimed, spec) = (pod.at(&["status", "extendedResourceClaimStatus"]), pod.field("spec"));
    if claimed.is_absent() {
        return;
    }
    let (mappings, name) = (claimed.field("requestMappings"), claimed.field("resourceClaimName"));
    if mappings.is_empty() {
        errors.push(mappings.required("at least one request mapping is required"));
    }
    let mut seen = BTreeSet::new();
    for mapping in mappings.items() {
        let parts = ["containerName", "resourceName", "requestName"].map(|part| mapping.field(part));
        let [container_name, resource, request] = &parts;
        let containers = ["containers", "initContainers"].map(|list| spec.field(list));
        let mut containers = containers.iter().flat_map(Field::items);
        match containers.find(|container| container.field("name").text() == container_name.text()) {
            Some(container) if container.at(&["resources", "requests"]).key(resource.text()).is_absent() => {
                errors.push(resource.invalid("must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests"));
            }
            Some(_) => {}
            None => errors.push(
                container_name
                    .invalid("must match the name of an entry in spec.initContainers.name or spec.containers.name"),
            ),
        }
        // Upstream omits the mapping from this path.
        let path = claimed.path.child("requestName");
        rules::named(&Field { path, ..request.clone() }, name::dns1123_label, errors);
        if !seen.insert(parts.each_ref().map(|part| part.text().to_owned())) {
            errors.extend(parts.iter().map(Field::duplicate));
        }
    }
    rules::required_name(&name, name::dns1123_subdomain, errors);
}

fn nominated(change: &Change<'_>, errors: &mut Vec<Error>) {
    let Change { new, old } = change.at(&["status", "nominatedNodeName"]);
    let is_bound = !change.old.at(&["spec", "nodeName"]).is_empty();
    if is_bound && !new.is_empty() && new.text() != old.text() {
        errors.push(new.forbidden("may not be set on pods that are already bound to a node"));
    }
}

/// Validates the addresses of the pod and of its host. A wrong one that was there before stays.
fn addresses(change: &Change<'_>, errors: &mut Vec<Error>) {
    for list in ["hostIPs", "podIPs"] {
        let Change { new, old } = change.field(list);
        let before: BTreeSet<&str> = old.items().map(|address| address.field("ip").text()).collect();
        for address in new.items() {
            if !before.contains(address.field("ip").text()) {
                // Upstream blames the item, not its field.
                rules::ip(&Field { path: address.path.clone(), ..address.field("ip") }, errors);
            }
        }
        let ips: Vec<IpAddr> = new.items().filter_map(|address| rules::sloppy_ip(address.field("ip").text())).collect();
        let n_v4 = ips.iter().filter(|ip| ip.is_ipv4()).count();
        if n_v4 > 1 || ips.len() - n_v4 > 1 {
            errors.push(new.invalid("may specify no more than one IP for each IP family"));
        }
    }
    let status = &change.new;
    if let Some(first) = status.field("hostIPs").items().next().map(|first| first.field("ip"))
        && first.text() != status.field("hostIP").text()
    {
        errors.push(first.invalid("must be equal to `hostIP`"));
    }
}
