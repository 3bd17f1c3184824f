//! Validation of a pod's status.

use crate::builtin::rules;
use crate::builtin::rules::change::Change;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule};
use std::collections::BTreeSet;
use std::net::IpAddr;
use steersman_machinery::field::Error;
use steersman_machinery::name;

/// The rules of changes through `/status`.
pub(super) const STATUS: &[Rule] = &[
    Rule::new("status.nominatedNodeName", Check::Format(name::dns1123_subdomain)).unless_empty(),
    Rule::new("", Check::Change(nominated)),
    Rule::new("status.qosClass", Check::Immutable),
    Rule::new("status.hostIPs[].ip", Check::By(rules::ip)).blaming("status.hostIPs[]"),
    Rule::new("status.podIPs[].ip", Check::By(rules::ip)).blaming("status.podIPs[]"),
    Rule::new("status", Check::By(addresses)),
    Rule::new("", Check::Change(containers)),
    Rule::new("", Check::By(claims)),
    Rule::new("", Check::By(extended_resources)),
];

/// Validates the claims that were made for those of the spec.
fn claims(pod: &Field<'_>, errors: &mut Vec<Error>) {
    let wanted = pod.at(&["spec", "resourceClaims"]);
    for made in pod.at(&["status", "resourceClaimStatuses"]).items() {
        let name = made.field("name");
        if !wanted.items().any(|claim| claim.field("name").text() == name.text()) {
            errors.push(name.invalid("must match the name of an entry in `spec.resourceClaims`"));
        }
        let made = made.field("resourceClaimName");
        if made.is_present() {
            // Upstream blames the name here too.
            rules::named(&Field { path: name.path.clone(), ..made }, name::dns1123_subdomain, errors);
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

fn addresses(status: &Field<'_>, errors: &mut Vec<Error>) {
    for addresses in ["hostIPs", "podIPs"].map(|list| status.field(list)) {
        let ips: Vec<IpAddr> =
            addresses.items().filter_map(|address| rules::sloppy_ip(address.field("ip").text())).collect();
        let n_v4 = ips.iter().filter(|ip| ip.is_ipv4()).count();
        if n_v4 > 1 || ips.len() - n_v4 > 1 {
            errors.push(addresses.invalid("may specify no more than one IP for each IP family"));
        }
    }
    if let Some(first) = status.field("hostIPs").items().next().map(|first| first.field("ip"))
        && first.text() != status.field("hostIP").text()
    {
        errors.push(first.invalid("must be equal to `hostIP`"));
    }
}

fn containers(change: &Change<'_>, errors: &mut Vec<Error>) {
    let policy = change.new.at(&["spec", "restartPolicy"]);
    let Change { new: status, old } = change.field("status");
    if policy.text() != "Always" {
        for list in ["containerStatuses", "initContainerStatuses"] {
            stays_ended(&status.field(list), &old.field(list), policy.text(), errors);
        }
    }
}

/// A container that has terminated for good must not run again.
fn stays_ended(new: &Field<'_>, old: &Field<'_>, restart_policy: &str, errors: &mut Vec<Error>) {
    for before in old.items() {
        let terminated = before.at(&["state", "terminated"]);
        let failed = terminated.field("exitCode").number().unwrap_or(0) != 0;
        if terminated.is_absent() || (failed && restart_policy == "OnFailure") {
            continue;
        }
        let same = |status: &Field<'_>| status.field("name").text() == before.field("name").text();
        if let Some(after) = new.items().find(same)
            && after.at(&["state", "terminated"]).is_absent()
        {
            errors.push(after.field("state").forbidden("may not be transitioned to non-terminated state"));
        }
    }
}
