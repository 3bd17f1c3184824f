//! FlowSchema: the priority level of matching requests, and the flows into which they are divided.

use crate::builtin::cluster::flow::{CONDITIONS, GROUP, bootstrap};
use crate::builtin::kind::{Column, Kind, SPEC_AND_METADATA, Version};
use crate::builtin::rules;
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule, check_field};
use jiff::Timestamp;
use steersman_machinery::field::Error;
use steersman_machinery::value::{object_at, str_at};
use steersman_machinery::{Value, name};

const PRECEDENCE_DEFAULT: i64 = 1_000;
const VERBS: [&str; 9] = ["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

pub const KIND: Kind = Kind {
    group: GROUP,
    kind: "FlowSchema",
    plural: "flowschemas",
    singular: "flowschema",
    versions: &[Version {
        definition: "io.k8s.api.flowcontrol.v1.FlowSchema",
        has_status: true,
        columns: &[
            Column::NAME,
            Column::text("PriorityLevel", "The level that its requests are of."),
            Column::text("MatchingPrecedence", "Of all schemas that match a request, the one with the least counts."),
            Column::text("DistinguisherMethod", "What makes requests one flow."),
            Column::AGE,
            Column::text("MissingPL", "Whether its level does not exist."),
        ],
        cells,
        default,
        ..Version::V1
    }],
    generation: &[&["spec"]],
    status_leaves: SPEC_AND_METADATA,
    rows_ordered_by: &["spec", "matchingPrecedence"],
    validate: &[
        Rule::new("spec.matchingPrecedence", Check::AtLeast(1, "must be a positive value")).or_zero(),
        Rule::new("spec.matchingPrecedence", Check::AtMost(10_000, "must not be greater than 10000")),
        Rule::new("", Check::By(first_precedence)),
        Rule::new(
            "spec.distinguisherMethod",
            Check::Rules(&[Rule::new("type", Check::OneOf(&["ByNamespace", "ByUser"]))]),
        )
        .if_present(),
        Rule::new("spec.priorityLevelConfiguration.name", Check::Format(name::dns1123_subdomain))
            .and_required("must reference a priority level"),
        Rule::new("spec.rules[]", Check::Rules(RULE)),
        Rule::new("", Check::By(mandatory)),
        CONDITIONS,
    ],
    validate_status: &[CONDITIONS],
    ..Kind::CLUSTER
};

fn default(schema: &mut Value) {
    let Some(spec) = object_at(schema, &["spec"]) else { return };
    if spec.get("matchingPrecedence").and_then(Value::as_i64).unwrap_or(0) == 0 {
        spec.insert("matchingPrecedence".to_owned(), PRECEDENCE_DEFAULT.into());
    }
}

fn first_precedence(schema: &Field<'_>, errors: &mut Vec<Error>) {
    let precedence = schema.at(&["spec", "matchingPrecedence"]);
    if precedence.number() == Some(1) && schema.at(&["metadata", "name"]).text() != bootstrap::EXEMPT {
        errors.push(precedence.invalid("only the schema named 'exempt' may have matchingPrecedence 1"));
    }
}

fn mandatory(schema: &Field<'_>, errors: &mut Vec<Error>) {
    let (name, spec) = (schema.at(&["metadata", "name"]).text(), schema.field("spec"));
    if bootstrap::mandatory_spec(bootstrap::schemas(), name).is_some_and(|wanted| wanted != *spec.value) {
        errors.push(spec.invalid(format!("spec of '{name}' must equal the fixed value")));
    }
}

const RULE: &[Rule] = &[
    Rule::required("subjects", "subjects must contain at least one value"),
    Rule::new("subjects[]", Check::By(validate_subject)),
    Rule::new("", Check::By(has_rules)),
    Rule::new("resourceRules[]", Check::Rules(RESOURCE_RULE)),
    Rule::new("nonResourceRules[]", Check::Rules(PATH_RULE)),
];

const RESOURCE_RULE: &[Rule] = &[
    Rule::new("verbs", Check::By(validate_verbs)),
    Rule::required("apiGroups", "resource rules must supply at least one api group"),
    Rule::new("apiGroups", Check::WildcardAlone("if '*' is present, must not specify other api groups")),
    Rule::required("resources", "resource rules must supply at least one resource"),
    Rule::new("resources", Check::WildcardAlone("if '*' is present, must not specify other resources")),
    Rule::new("", Check::By(validate_namespaces)),
];

const PATH_RULE: &[Rule] = &[
    Rule::new("verbs", Check::By(validate_verbs)),
    Rule::required("nonResourceURLs", "nonResourceURLs must contain at least one value"),
    Rule::new("nonResourceURLs", Check::WildcardAlone("if '*' is present, must not specify other non-resource URLs")),
    Rule::new("nonResourceURLs", Check::By(validate_paths)),
];

fn has_rules(rule: &Field<'_>, errors: &mut Vec<Error>) {
    if rule.field("resourceRules").is_empty() && rule.field("nonResourceRules").is_empty() {
        errors.push(rule.required("at least one of resourceRules and nonResourceRules has to be non-empty"));
    }
}

fn validate_subject(subject: &Field<'_>, errors: &mut Vec<Error>) {
    const KINDS: [(&str, &str); 3] = [("Group", "group"), ("ServiceAccount", "serviceAccount"), ("User", "user")];
    let kind = subject.field("kind");
    if !KINDS.iter().any(|(name, _)| *name == kind.text()) {
        return errors.push(kind.not_supported(&KINDS.map(|(name, _)| name)));
    }
    for (wanted, name) in KINDS {
        let field = subject.field(name);
        match (wanted == kind.text(), field.is_present()) {
            (true, false) => {
                errors.push(field.required(&format!("{name} is required when subject kind is '{wanted}'")));
            }
            (false, true) => {
                errors.push(field.forbidden(format!("{name} is forbidden when subject kind is not '{wanted}'")));
            }
            (true, true) if name == "serviceAccount" => check_field(ACCOUNT, &field, errors),
            (true, true) => rules::required(&field.field("name"), errors),
            (false, false) => {}
        }
    }
}

pub(in crate::builtin) const ACCOUNT: &[Rule] = &[
    Rule::required("name", ""),
    Rule::new("name", Check::By(account_name)).unless_empty(),
    Rule::new("namespace", Check::Format(name::dns1123_label))
        .and_required("must specify namespace for service account"),
];

fn account_name(account_name: &Field<'_>, errors: &mut Vec<Error>) {
    if account_name.text() != "*" {
        rules::named(account_name, name::dns1123_subdomain, errors);
    }
}

fn has_wildcard(list: &Field<'_>) -> bool {
    list.items().any(|item| item.text() == "*")
}

/// Reports an error if a list has `*` beside other items.
fn is_wildcard_alone(list: &Field<'_>, what: &str, errors: &mut Vec<Error>) {
    if has_wildcard(list) && list.items().count() > 1 {
        errors.push(list.invalid(format!("if '*' is present, must not specify other {what}")));
    }
}

fn validate_verbs(verbs: &Field<'_>, errors: &mut Vec<Error>) {
    if verbs.is_empty() {
        errors.push(verbs.required("verbs must contain at least one value"));
    } else if has_wildcard(verbs) {
        is_wildcard_alone(verbs, "verbs", errors);
    } else if verbs.items().any(|verb| !VERBS.contains(&verb.text())) {
        errors.push(verbs.not_supported(&VERBS));
    }
}

fn validate_namespaces(rule: &Field<'_>, errors: &mut Vec<Error>) {
    let namespaces = rule.field("namespaces");
    if namespaces.is_empty() && !rule.field("clusterScope").flag() {
        let why = "resource rules that are not cluster scoped must supply at least one namespace";
        errors.push(namespaces.required(why));
    } else if has_wildcard(&namespaces) {
        is_wildcard_alone(&namespaces, "namespaces", errors);
    } else {
        for namespace in namespaces.items() {
            for detail in name::dns1123_label(namespace.text()) {
                let why = format!("each member of this list must be '*' or a DNS-1123 label; {detail}");
                errors.push(namespace.invalid(why));
            }
        }
    }
}

fn validate_paths(urls: &Field<'_>, errors: &mut Vec<Error>) {
    if !has_wildcard(urls) {
        errors.extend(urls.items().filter_map(|url| Some(url.invalid(path_error(url.text())?))));
    }
}

fn path_error(path: &str) -> Option<&'static str> {
    let stars = path.matches('*').count();
    match path {
        "" => Some("must not be empty"),
        "/" => None,
        _ if !path.starts_with('/') => Some("must start with slash"),
        _ if path.contains(' ') => Some("must not contain white-space"),
        _ if path.contains("//") => Some("must not contain double slash"),
        _ if stars > 1 || (stars == 1 && !path.ends_with("/*")) => Some("wildcard can only do suffix matching"),
        _ => None,
    }
}

fn cells(schema: &Value, now: Timestamp) -> Vec<Value> {
    let conditions = Field::root(schema).at(&["status", "conditions"]);
    let dangling = conditions.items().find(|condition| condition.field("type").text() == "Dangling");
    let dangling = dangling.map_or("?", |condition| condition.field("status").text());
    let method = str_at(schema, &["spec", "distinguisherMethod", "type"]);
    vec![
        cells::name(schema),
        cells::text(schema, &["spec", "priorityLevelConfiguration", "name"]),
        Value::from(cells::number(schema, &["spec", "matchingPrecedence"])),
        Value::from(method.unwrap_or(cells::NONE)),
        cells::age(schema, now),
        Value::from(dangling),
    ]
}
