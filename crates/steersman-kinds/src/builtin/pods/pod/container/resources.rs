//! Validation of a container's resource requests and limits.

use crate::builtin::rules;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::resource_name;
use steersman_machinery::field::Error;
use steersman_machinery::quantity::Quantity;

/// Validates the resources of one container.
pub fn validate(resources: &Field<'_>, errors: &mut Vec<Error>) {
    amounts(resources, resource_name::of_container, errors);
}

/// Validates the resources of a pod as a whole, of which its containers have parts.
pub fn validate_of_pod(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let resources = spec.field("resources");
    if resources.is_absent() {
        return;
    }
    if spec.at(&["os", "name"]).text() == "windows" {
        return errors.push(resources.forbidden("may not be set for a windows pod"));
    }
    if resources.field("claims").is_present() {
        errors.push(resources.field("claims").forbidden("claims may not be set for Resources at pod-level"));
    }
    amounts(&resources, resource_name::of_pod, errors);
    for (resource, most) in resources.field("limits").entries() {
        for (index, container) in spec.field("containers").items().enumerate() {
            let limit = container.at(&["resources", "limits"]).key(resource);
            if let (Some(limit_amount), Some(most_amount)) = (quantity(&limit), quantity(&most))
                && most_amount < limit_amount
            {
                let path = resources.path.child("containers").index(index).key(resource).child("limits");
                let why = format!("must be less than or equal to pod limits of {}", most.text());
                errors.push(Error::invalid(&path, limit.text(), why));
            }
        }
    }
    for (resource, asked) in resources.field("requests").entries() {
        let parts = spec.field("containers").items();
        let parts = parts.filter_map(|container| quantity(&container.at(&["resources", "requests"]).key(resource)));
        let sum = parts.fold(Quantity::ZERO, Quantity::plus);
        if quantity(&asked).is_some_and(|amount| amount < sum) {
            errors
                .push(asked.invalid(format!("must be greater than or equal to aggregate container requests of {sum}")));
        }
    }
}

fn amounts(resources: &Field<'_>, name: fn(&str, &Field<'_>, &mut Vec<Error>), errors: &mut Vec<Error>) {
    let (limits, requests) = (resources.field("limits"), resources.field("requests"));
    for (resource, amount) in limits.entries().chain(requests.entries()) {
        name(resource, &amount, errors);
        let Some(quantity) = quantity(&amount) else { continue };
        if quantity.is_negative() {
            errors.push(amount.invalid(rules::NOT_NEGATIVE));
        }
        if resource_name::is_extended(resource) && !quantity.is_whole() {
            errors.push(amount.invalid("must be an integer"));
        }
        if resource.strip_prefix("hugepages-").is_some_and(|page| !is_whole_number_of_pages(quantity, page)) {
            errors.push(amount.invalid(format!("{quantity} is not positive integer multiple of {resource}")));
        }
    }
    let has = |is_one: fn(&str) -> bool| limits.entries().chain(requests.entries()).any(|(name, _)| is_one(name));
    if has(resource_name::is_huge_page) && !has(|resource| matches!(resource, "cpu" | "memory")) {
        errors.push(resources.forbidden("HugePages require cpu or memory"));
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

/// Whether an amount is a whole number of pages of a size.
fn is_whole_number_of_pages(amount: Quantity, page: &str) -> bool {
    let page = Quantity::parse(page).ok().filter(|page| page.is_whole()).map_or(0, |page| page.to_whole());
    page > 0 && amount.to_whole() % page == 0
}

fn quantity(field: &Field<'_>) -> Option<Quantity> {
    Quantity::parse(field.text()).ok()
}
