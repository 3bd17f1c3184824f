//! Validation of a container's resource requests and limits.

use crate::builtin::place::Place;
use crate::builtin::rules;
use std::collections::BTreeSet;
use steersman_machinery::field::Error;
use steersman_machinery::name;
use steersman_machinery::quantity::Quantity;

/// Of one container.
pub(crate) fn validate(resources: &Place<'_>, faults: &mut Vec<Error>) {
    let (limits, requests) = (resources.field("limits"), resources.field("requests"));
    for (resource, amount) in limits.entries().chain(requests.entries()) {
        resource_name(resource, &amount, faults);
        let Some(quantity) = quantity(&amount) else { continue };
        if is_negative(quantity) {
            faults.push(amount.invalid(rules::NOT_NEGATIVE));
        }
        if is_extended(resource) && !quantity.is_whole() {
            faults.push(amount.invalid("must be an integer"));
        }
    }
    for amounts in [&limits, &requests] {
        let has = |is_one: fn(&str) -> bool| amounts.entries().any(|(resource, _)| is_one(resource));
        if has(is_huge_page) && !has(|resource| matches!(resource, "cpu" | "memory")) {
            faults.push(resources.forbidden("HugePages require cpu or memory"));
            break;
        }
    }
    for (resource, request) in requests.entries() {
        let limit = limits.key(resource);
        let is_whole = !can_be_overcommitted(resource);
        if limit.is_absent() {
            if is_whole {
                let limit = Place { path: limits.path.clone(), ..limit };
                faults.push(limit.required("Limit must be set for non overcommitable resources"));
            }
            continue;
        }
        let (Some(asked), Some(most)) = (quantity(&request), quantity(&limit)) else { continue };
        if is_whole && asked != most {
            let detail = format!("must be equal to {resource} limit of {}", limit.text());
            faults.push(Error::invalid(&requests.path, request.text(), detail));
        } else if !is_whole && most < asked {
            let detail = format!("must be less than or equal to {resource} limit of {}", limit.text());
            faults.push(Error::invalid(&requests.path, request.text(), detail));
        }
    }
    claims(&resources.field("claims"), faults);
}

fn claims(claims: &Place<'_>, faults: &mut Vec<Error>) {
    let mut names = BTreeSet::new();
    for claim in claims.items() {
        let name = claim.field("name");
        rules::required(&name, faults);
        if !name.is_empty() && !names.insert((name.text(), claim.field("request").text())) {
            faults.push(Error::duplicate(&claim.path, claim.value.clone()));
        }
    }
}

fn resource_name(resource: &str, place: &Place<'_>, faults: &mut Vec<Error>) {
    let wrong = name::qualified(resource);
    let is_name = wrong.is_empty();
    faults.extend(wrong.into_iter().map(|fault| Error::invalid(&place.path, resource, fault)));
    if resource.contains('/') {
        if !is_native(resource) && !is_extended(resource) {
            faults.push(Error::invalid(&place.path, resource, "doesn't follow extended resource name standard"));
        }
        return;
    }
    if is_name && !is_standard(resource) {
        faults.push(Error::invalid(&place.path, resource, "must be a standard resource type or fully qualified"));
    }
    if !matches!(resource, "cpu" | "ephemeral-storage" | "memory") && !is_huge_page(resource) {
        faults.push(Error::invalid(&place.path, resource, "must be a standard resource for containers"));
    }
}

/// What Kubernetes gives a meaning to, for containers or for quotas.
fn is_standard(resource: &str) -> bool {
    const STANDARD: [&str; 20] = [
        "configmaps",
        "cpu",
        "ephemeral-storage",
        "limits.cpu",
        "limits.ephemeral-storage",
        "limits.memory",
        "memory",
        "persistentvolumeclaims",
        "pods",
        "replicationcontrollers",
        "requests.cpu",
        "requests.ephemeral-storage",
        "requests.memory",
        "requests.storage",
        "resourcequotas",
        "secrets",
        "services",
        "services.loadbalancers",
        "services.nodeports",
        "storage",
    ];
    STANDARD.contains(&resource) || is_huge_page(resource) || resource.starts_with("requests.hugepages-")
}

fn is_huge_page(resource: &str) -> bool {
    resource.starts_with("hugepages-")
}

/// Of Kubernetes' own name space.
fn is_native(resource: &str) -> bool {
    !resource.contains('/') || resource.contains("kubernetes.io/")
}

/// Of somebody else's name space, so that a quota can count it.
fn is_extended(resource: &str) -> bool {
    !is_native(resource)
        && !resource.starts_with("requests.")
        && name::qualified(&format!("requests.{resource}")).is_empty()
}

/// What there is only as a whole cannot be promised twice.
fn can_be_overcommitted(resource: &str) -> bool {
    is_native(resource) && !is_huge_page(resource)
}

fn quantity(place: &Place<'_>) -> Option<Quantity> {
    Quantity::parse(place.text()).ok()
}

fn is_negative(quantity: Quantity) -> bool {
    Quantity::parse("0").is_ok_and(|zero| quantity < zero)
}
