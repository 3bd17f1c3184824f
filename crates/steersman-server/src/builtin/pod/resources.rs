//! The rules of what a container asks for and is limited to.

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
        if quantity(&amount).is_some_and(is_negative) {
            faults.push(amount.invalid(rules::NOT_NEGATIVE));
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
    faults.extend(name::qualified(resource).into_iter().map(|fault| Error::invalid(&place.path, resource, fault)));
    let is_standard = is_native(resource) || resource.starts_with("hugepages-");
    if !resource.contains('/') && !is_standard {
        faults.push(Error::invalid(&place.path, resource, "must be a standard resource for containers"));
    }
}

fn is_native(resource: &str) -> bool {
    matches!(resource, "cpu" | "ephemeral-storage" | "memory")
}

/// What there is only as a whole cannot be promised twice.
fn can_be_overcommitted(resource: &str) -> bool {
    is_native(resource) || resource.starts_with("kubernetes.io/") || resource.contains(".kubernetes.io/")
}

fn quantity(place: &Place<'_>) -> Option<Quantity> {
    Quantity::parse(place.text()).ok()
}

fn is_negative(quantity: Quantity) -> bool {
    Quantity::parse("0").is_ok_and(|zero| quantity < zero)
}
