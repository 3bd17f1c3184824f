//! FlowSchema: the priority level of matching requests, and the flows into which they are divided.

use crate::builtin::cluster::flow::{GROUP, STATUS_LEAVES, bootstrap, conditions};
use crate::builtin::kind::{Column, Kind, Request, Version};
use crate::builtin::rules;
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
use jiff::Timestamp;
use steersman_machinery::field::Error;
use steersman_machinery::value::{object_at, str_at};
use steersman_machinery::{Value, name};

const PRECEDENCE_MAX: i64 = 10_000;
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
    status_leaves: STATUS_LEAVES,
    validate_create: validate,
    validate_update: validate,
    validate_status: |request, errors| conditions(&Field::root(request.new), errors),
    ..Kind::CLUSTER
};

fn default(schema: &mut Value) {
    let Some(spec) = object_at(schema, &["spec"]) else { return };
    if spec.get("matchingPrecedence").and_then(Value::as_i64).unwrap_or(0) == 0 {
        spec.insert("matchingPrecedence".to_owned(), PRECEDENCE_DEFAULT.into());
    }
}

fn validate(request: &Request<'_>, errors: &mut Vec<Error>) {
    let schema = Field::root(request.new);
    let (name, spec) = (schema.at(&["metadata", "name"]).text(), schema.field("spec"));
    let precedence = spec.field("matchingPrecedence");
    let number = precedence.number().unwrap_or(0);
    if number <= 0 {
        errors.push(precedence.invalid("must be a positive value"));
    }
    if number > PRECEDENCE_MAX {
        errors.push(precedence.invalid(format!("must not be greater than {PRECEDENCE_MAX}")));
    }
    if number == 1 && name != bootstrap::EXEMPT {
        errors.push(precedence.invalid("only the schema named 'exempt' may have matchingPrecedence 1"));
    }
    let method = spec.field("distinguisherMethod");
    if method.is_present() {
        rules::one_of(&method.field("type"), &["ByNamespace", "ByUser"], errors);
    }
    let level = spec.at(&["priorityLevelConfiguration", "name"]);
    if level.is_empty() {
        errors.push(level.required("must reference a priority level"));
    } else {
        rules::named(&level, name::dns1123_subdomain, errors);
    }
    spec.field("rules").items().for_each(|rule| validate_rule(&rule, errors));
    if bootstrap::mandatory_spec(bootstrap::schemas(), name).is_some_and(|wanted| wanted != *spec.value) {
        errors.push(spec.invalid(format!("spec of '{name}' must equal the fixed value")));
    }
    conditions(&schema, errors);
}

fn validate_rule(rule: &Field<'_>, errors: &mut Vec<Error>) {
    let (subjects, resources) = (rule.field("subjects"), rule.field("resourceRules"));
    let paths = rule.field("nonResourceRules");
    if subjects.is_empty() {
        errors.push(subjects.required("subjects must contain at least one value"));
    }
    subjects.items().for_each(|subject| validate_subject(&subject, errors));
    if resources.is_empty() && paths.is_empty() {
        errors.push(rule.required("at least one of resourceRules and nonResourceRules has to be non-empty"));
    }
    resources.items().for_each(|rule| validate_resources(&rule, errors));
    paths.items().for_each(|rule| validate_paths(&rule, errors));
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
            (true, true) => validate_name(&field, errors),
            (false, false) => {}
        }
    }
}

/// Validates the name of the user, group or service account of a subject.
fn validate_name(subject: &Field<'_>, errors: &mut Vec<Error>) {
    let (subject_name, namespace) = (subject.field("name"), subject.field("namespace"));
    rules::required(&subject_name, errors);
    if !subject.path.as_str().ends_with(".serviceAccount") {
        return;
    }
    if !matches!(subject_name.text(), "" | "*") {
        rules::named(&subject_name, name::dns1123_subdomain, errors);
    }
    if namespace.is_empty() {
        errors.push(namespace.required("must specify namespace for service account"));
    } else {
        rules::named(&namespace, name::dns1123_label, errors);
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

fn validate_resources(rule: &Field<'_>, errors: &mut Vec<Error>) {
    validate_verbs(&rule.field("verbs"), errors);
    for (field, what, one) in [("apiGroups", "api groups", "api group"), ("resources", "resources", "resource")] {
        let list = rule.field(field);
        if list.is_empty() {
            errors.push(list.required(&format!("resource rules must supply at least one {one}")));
        }
        is_wildcard_alone(&list, what, errors);
    }
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

fn validate_paths(rule: &Field<'_>, errors: &mut Vec<Error>) {
    validate_verbs(&rule.field("verbs"), errors);
    let urls = rule.field("nonResourceURLs");
    if urls.is_empty() {
        errors.push(urls.required("nonResourceURLs must contain at least one value"));
    } else if has_wildcard(&urls) {
        is_wildcard_alone(&urls, "non-resource URLs", errors);
    } else {
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
