//! The rules that select the requests of a webhook or a policy: operations, resources, conditions.

use crate::builtin::rules;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule};
use crate::builtin::rules::selector;
use crate::expressions::{self, Names};
use serde_json::json;
use std::collections::BTreeSet;
use steersman_cel::Type;
use steersman_machinery::field::Error;
use steersman_machinery::value::{Map, unless_set};
use steersman_machinery::{Value, name};

const CONDITIONS_MAX: usize = 64;

/// Sets the default scope of the rules in a list.
pub(super) fn default(object: &mut Map, list: &str) {
    let all = object.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
    for rule in all.filter_map(Value::as_object_mut) {
        unless_set(rule, "scope", "*");
    }
}

/// Sets the default match policy and selectors of a webhook, or of the `MatchResources` of a policy.
pub(super) fn default_match(object: &mut Map) {
    unless_set(object, "matchPolicy", "Equivalent");
    unless_set(object, "namespaceSelector", json!({}));
    unless_set(object, "objectSelector", json!({}));
}

/// The rules of the fields that [`default_match`] sets.
pub(in crate::builtin) const MATCH: &[Rule] = &[
    Rule::new("matchPolicy", Check::OneOf(&["Equivalent", "Exact"])),
    Rule::new("namespaceSelector", Check::By(selector::validate)),
    Rule::new("objectSelector", Check::By(selector::validate)),
];

/// The rules of the `MatchResources` of a policy or a binding.
pub(super) const RESOURCES: &[Rule] = &[
    Rule::new("", Check::Rules(MATCH)),
    Rule::new("resourceRules[]", Check::Rules(NAMED)),
    Rule::new("excludeResourceRules[]", Check::Rules(NAMED)),
];

const NAMED: &[Rule] = &[
    Rule::new(
        "resourceNames[]",
        Check::Rules(&[Rule::new("", Check::Format(name::path_segment)), Rule::new("", Check::Unique)]),
    ),
    Rule::new("", Check::Rules(OPERATIONS_AND_RESOURCES)),
];

/// The rules of what a webhook or a policy is called for.
pub(super) const OPERATIONS_AND_RESOURCES: &[Rule] = &[
    Rule::required("operations", ""),
    Rule::new("operations", Check::WildcardAlone("if '*' is present, must not specify other operations")),
    Rule::required("apiGroups", ""),
    Rule::new("apiGroups", Check::WildcardAlone("if '*' is present, must not specify other API groups")),
    Rule::required("apiVersions", ""),
    Rule::new("apiVersions", Check::WildcardAlone("if '*' is present, must not specify other API versions")),
    Rule::new("operations[]", Check::OneOf(&["*", "CONNECT", "CREATE", "DELETE", "UPDATE"])),
    Rule::required("apiVersions[]", ""),
    Rule::new("resources", Check::By(validate_names)),
    Rule::new("scope", Check::OneOf(&["*", "Cluster", "Namespaced"])).if_present(),
];

/// Validates a list of `resource` and `resource/subresource`, either of which may be `*`.
fn validate_names(resources: &Field<'_>, errors: &mut Vec<Error>) {
    if resources.is_empty() {
        errors.push(resources.required(""));
    }
    let (mut with_all_subresources, mut of_all_resources) = (BTreeSet::new(), BTreeSet::new());
    // As upstream, the last entry without a subresource decides.
    let mut has_plain = false;
    for item in resources.items() {
        let text = item.text();
        if text.is_empty() {
            errors.push(item.required(""));
            continue;
        }
        let Some((resource, subresource)) = text.split_once('/') else {
            has_plain = text != "*";
            continue;
        };
        if with_all_subresources.contains(resource) {
            errors.push(item.invalid(format!("if '{resource}/*' is present, must not specify {text}")));
        }
        if of_all_resources.contains(subresource) {
            errors.push(item.invalid(format!("if '*/{subresource}' is present, must not specify {text}")));
        }
        if subresource == "*" {
            with_all_subresources.insert(resource);
        }
        if resource == "*" {
            of_all_resources.insert(subresource);
        }
    }
    let has = |text: &str| resources.items().any(|item| item.text() == text);
    if resources.items().count() > 1 && has("*/*") {
        errors.push(resources.invalid("if '*/*' is present, must not specify other resources"));
    }
    if has("*") && has_plain {
        let why = "if '*' is present, must not specify other resources without subresources";
        errors.push(resources.invalid(why));
    }
}

/// Validates a list of `matchConditions`.
pub(super) fn validate_conditions(conditions: &Field<'_>, known: Names, errors: &mut Vec<Error>) {
    let count = conditions.items().count();
    if count > CONDITIONS_MAX {
        errors.push(Error::too_many(&conditions.path, count, CONDITIONS_MAX));
    }
    let mut names = BTreeSet::new();
    for condition in conditions.items() {
        let (expression, condition_name) = (condition.field("expression"), condition.field("name"));
        if expression.text().trim().is_empty() {
            errors.push(expression.required(""));
        } else if count <= CONDITIONS_MAX {
            let detail = expressions::fault(known.environment(), expression.text(), &[Type::Bool]);
            errors.extend(detail.map(|detail| expression.invalid(detail)));
        }
        rules::required_name(&condition_name, name::qualified, errors);
        if !condition_name.is_empty() && !names.insert(condition_name.text()) {
            errors.push(condition_name.duplicate());
        }
    }
}
