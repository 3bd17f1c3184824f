//! Validation of a container's resource requests and limits.

use crate::builtin::rules;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::resource_name;
use steersman_machinery::field::Error;
use steersman_machinery::quantity::Quantity;

/// Validates the resources of one container.
pub fn validate(resources: &Field<'_>, errors: &mut Vec<Error>) {
    let (limits, requests) = (resources.field("limits"), resources.field("requests"));
    for (resource, amount) in limits.entries().chain(requests.entries()) {
        resource_name::of_container(resource, &amount, errors);
        let Some(quantity) = quantity(&amount) else { continue };
        if quantity.is_negative() {
            errors.push(amount.invalid(rules::NOT_NEGATIVE));
        }
        if resource_name::is_extended(resource) && !quantity.is_whole() {
            errors.push(amount.invalid("must be an integer"));
        }
    }
    for amounts in [&limits, &requests] {
        let has = |is_one: fn(&str) -> bool| amounts.entries().any(|(resource, _)| is_one(resource));
        if has(resource_name::is_huge_page) && !has(|resource| matches!(resource, "cpu" | "memory")) {
            errors.push(resources.forbidden("HugePages require cpu or memory"));
            break;
        }
    }
    for (resource, request) in requests.entries() {
        let limit = limits.key(resource);
        let is_whole = !resource_name::can_be_overcommitted(resource);
        if limit.is_absent() {
            if is_whole {
                let limit = Field { path: limits.path.clone(), ..limit };
                errors.push(limit.required("Limit must be set for non overcommitable resources"));
            }
            continue;
        }
        let (Some(asked), Some(most)) = (quantity(&request), quantity(&limit)) else { continue };
        if is_whole && asked != most {
            let detail = format!("must be equal to {resource} limit of {}", limit.text());
            errors.push(Error::invalid(&requests.path, request.text(), detail));
        } else if !is_whole && most < asked {
            let detail = format!("must be less than or equal to {resource} limit of {}", limit.text());
            errors.push(Error::invalid(&requests.path, request.text(), detail));
        }
    }
}

fn quantity(field: &Field<'_>) -> Option<Quantity> {
    Quantity::parse(field.text()).ok()
}
