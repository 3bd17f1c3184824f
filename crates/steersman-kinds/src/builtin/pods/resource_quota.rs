//! ResourceQuota: limits the resources of a namespace. Its status has the usage; admission adds to it, and a controller
//! recalculates it.

use crate::builtin::kind::{Column, Kind, RULES, Version};
use crate::builtin::rules;
use crate::builtin::rules::cells;
use crate::builtin::rules::change::Change;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::quantity::round_up;
use crate::builtin::rules::resource_name;
use crate::builtin::rules::rule::{Check, Rule};
use crate::strategy::Rules;
use jiff::Timestamp;
use std::collections::BTreeSet;
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::quantity::Quantity;
use steersman_machinery::value::{at, object_at, str_at};

const UNSUPPORTED: &str = "unsupported scope applied to resource";
const EXISTS_ONLY: &str = "must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";

pub const KIND: Kind = Kind {
    kind: "ResourceQuota",
    plural: "resourcequotas",
    singular: "resourcequota",
    short_names: &["quota"],
    versions: &[Version {
        definition: "io.k8s.api.core.v1.ResourceQuota",
        has_status: true,
        columns: &[
            Column::NAME,
            Column::text("Request", "What is used of what may be asked for."),
            Column::text("Limit", "What is used of what limits may sum up to."),
            Column::AGE,
        ],
        cells: cells_of,
        default,
        ..Version::V1
    }],
    rules: Rules { returns_deleted: true, validates_generate_name_on_update: false, ..RULES },
    validate: &[
        Rule::new("spec.hard", Check::By(amounts)),
        Rule::new("spec", Check::By(scopes)),
        Rule::new("spec", Check::By(selector)),
        Rule::new("spec.scopes", Check::Change(scopes_unchanged)).on_update(),
    ],
    validate_status: &[Rule::new("status.hard", Check::By(amounts)), Rule::new("status.used", Check::By(amounts))],
    ..Kind::NAMESPACED
};

fn default(quota: &mut Value) {
    for (part, lists) in [("spec", &["hard"][..]), ("status", &["hard", "used"])] {
        let Some(part) = object_at(quota, &[part]) else { continue };
        lists.iter().for_each(|list| round_up(part, &[list]));
    }
}

fn scopes(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let hard = spec.field("hard");
    let scopes = spec.field("scopes");
    let whole = |detail: &str| scopes.invalid(detail);
    let mut named = BTreeSet::new();
    for scope in scopes.items() {
        if !is_scope(scope.text()) {
            errors.push(whole("unsupported scope"));
        }
        let is_odd = |(resource, _): (&str, Field<'_>)| !applies(scope.text(), resource);
        errors.extend(hard.entries().filter(|entry| is_odd(entry.clone())).map(|_| whole(UNSUPPORTED)));
        named.insert(scope.text());
    }
    errors.extend(conflicts(&named).map(|()| whole("conflicting scopes")));
}

fn selector(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let (selector, hard) = (spec.field("scopeSelector"), spec.field("hard"));
    let expressions = selector.field("matchExpressions");
    let mut named = BTreeSet::new();
    for expression in expressions.items() {
        // Upstream names the list instead of its item.
        let field = |name: &str| Field { path: expressions.path.child(name), ..expression.field(name) };
        let (scope, operator, values) = (field("scopeName"), field("operator"), field("values"));
        if !is_scope(scope.text()) {
            errors.push(scope.invalid("unsupported scope"));
        }
        for (resource, _) in hard.entries() {
            if !applies(scope.text(), resource) {
                errors.push(Error::invalid(&expressions.path, selector.value.clone(), UNSUPPORTED));
            }
        }
        let is_plain = is_scope(scope.text()) && !matches!(scope.text(), "PriorityClass" | "VolumeAttributesClass");
        if is_plain && operator.text() != "Exists" {
            errors.push(operator.invalid(EXISTS_ONLY));
        }
        match operator.text() {
            "In" | "NotIn" if values.is_empty() => errors.push(
                values.required("must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"),
            ),
            "DoesNotExist" | "Exists" if !values.is_empty() => errors.push(
                values.invalid("must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"),
            ),
            "DoesNotExist" | "Exists" | "In" | "NotIn" => {}
            _ => errors.push(operator.invalid("not a valid selector operator")),
        }
        named.insert(scope.text());
    }
    errors.extend(
        conflicts(&named).map(|()| Error::invalid(&expressions.path, selector.value.clone(), "conflicting scopes")),
    );
}

/// One item for every two scopes that exclude each other.
fn conflicts<'a>(named: &'a BTreeSet<&str>) -> impl Iterator<Item = ()> + 'a {
    let pairs = [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]];
    pairs.into_iter().filter(|pair| pair.iter().all(|scope| named.contains(scope))).map(|_| ())
}

fn is_scope(scope: &str) -> bool {
    const SCOPES: [&str; 7] = [
        "BestEffort",
        "CrossNamespacePodAffinity",
        "NotBestEffort",
        "NotTerminating",
        "PriorityClass",
        "Terminating",
        "VolumeAttributesClass",
    ];
    SCOPES.contains(&scope)
}

/// Whether objects in a scope can use a resource; true for resources that are not quota resources, about which nothing
/// is known.
fn applies(scope: &str, resource: &str) -> bool {
    const OF_PODS: [&str; 7] =
        ["cpu", "limits.cpu", "limits.memory", "memory", "pods", "requests.cpu", "requests.memory"];
    !resource_name::is_of_quota(resource)
        || match scope {
            "BestEffort" => resource == "pods",
            "CrossNamespacePodAffinity" | "NotBestEffort" | "NotTerminating" | "PriorityClass" | "Terminating" => {
                OF_PODS.contains(&resource)
            }
            "VolumeAttributesClass" => matches!(resource, "persistentvolumeclaims" | "requests.storage"),
            _ => true,
        }
}

/// Validates the names and amounts of resources.
fn amounts(amounts: &Field<'_>, errors: &mut Vec<Error>) {
    for (resource, amount) in amounts.entries() {
        resource_name::of_quota(resource, &amount, errors);
        let Ok(quantity) = Quantity::parse(amount.text()) else { continue };
        if quantity.is_negative() {
            errors.push(amount.invalid(rules::NOT_NEGATIVE));
        }
        if resource_name::is_whole(resource) && !quantity.is_whole() {
            errors.push(amount.invalid("must be an integer"));
        }
    }
}

fn scopes_unchanged(Change { new, old }: &Change<'_>, errors: &mut Vec<Error>) {
    let names = |field: &Field<'_>| -> BTreeSet<String> { field.items().map(|one| one.text().to_owned()).collect() };
    if names(new) != names(old) {
        errors.push(new.invalid(rules::IMMUTABLE));
    }
}

fn cells_of(quota: &Value, now: Timestamp) -> Vec<Value> {
    let hard = at(quota, &["status", "hard"]).and_then(Value::as_object).into_iter().flatten();
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (resource, most) in hard {
        let used = str_at(quota, &["status", "used", resource]).unwrap_or("0");
        let text = format!("{resource}: {used}/{}", most.as_str().unwrap_or_default());
        let is_limit = resource.split_once('.').is_some_and(|(first, _)| first == "limits");
        if is_limit { limits.push(text) } else { requests.push(text) }
    }
    vec![cells::name(quota), Value::from(requests.join(", ")), Value::from(limits.join(", ")), cells::age(quota, now)]
}
