//! Roles, ClusterRoles and their bindings: stored and validated here. Evaluating them is the authorizer's job.

use crate::builtin::kind::{Column, Kind, RULES, Version};
use crate::builtin::rules;
use crate::builtin::rules::cells;
use crate::builtin::rules::change::Change;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule};
use crate::builtin::rules::selector;
use crate::strategy::Rules;
use jiff::Timestamp;
use serde_json::json;
use steersman_machinery::field::Error;
use steersman_machinery::value::{Map, at, object_at, str_at, unless_set};
use steersman_machinery::{Value, name};

const GROUP: &str = "rbac.authorization.k8s.io";

pub const ROLE: Kind = Kind {
    kind: "Role",
    plural: "roles",
    singular: "role",
    versions: &[Version { definition: "io.k8s.api.rbac.v1.Role", ..ROLE_VERSION }],
    validate: &[Rule::new("rules[]", Check::By(|rule, errors| policy_rule(rule, Reach::Namespace, errors)))],
    ..NAMESPACED
};

pub const CLUSTER_ROLE: Kind = Kind {
    kind: "ClusterRole",
    plural: "clusterroles",
    singular: "clusterrole",
    versions: &[Version { definition: "io.k8s.api.rbac.v1.ClusterRole", ..ROLE_VERSION }],
    validate: &[
        Rule::new("rules[]", Check::By(|rule, errors| policy_rule(rule, Reach::Cluster, errors))),
        Rule::new("aggregationRule", Check::Rules(AGGREGATION)).if_present(),
    ],
    ..CLUSTER
};

pub const ROLE_BINDING: Kind = Kind {
    kind: "RoleBinding",
    plural: "rolebindings",
    singular: "rolebinding",
    versions: &[Version { definition: "io.k8s.api.rbac.v1.RoleBinding", ..BINDING_VERSION }],
    validate: &[
        Rule::new("roleRef.apiGroup", Check::OneOf(&[GROUP])),
        Rule::new("roleRef.kind", Check::OneOf(&["Role", "ClusterRole"])),
        Rule::new("roleRef.name", Check::Format(name::path_segment)).and_required(""),
        Rule::new("subjects[]", Check::By(|subject, errors| binding_subject(subject, Reach::Namespace, errors))),
        Rule::new("roleRef", Check::Change(role_ref)).on_update(),
    ],
    ..NAMESPACED
};

pub const CLUSTER_ROLE_BINDING: Kind = Kind {
    kind: "ClusterRoleBinding",
    plural: "clusterrolebindings",
    singular: "clusterrolebinding",
    versions: &[Version { definition: "io.k8s.api.rbac.v1.ClusterRoleBinding", ..BINDING_VERSION }],
    validate: &[
        Rule::new("roleRef.apiGroup", Check::OneOf(&[GROUP])),
        Rule::new("roleRef.kind", Check::OneOf(&["ClusterRole"])),
        Rule::new("roleRef.name", Check::Format(name::path_segment)).and_required(""),
        Rule::new("subjects[]", Check::By(|subject, errors| binding_subject(subject, Reach::Cluster, errors))),
        Rule::new("roleRef", Check::Change(role_ref)).on_update(),
    ],
    ..CLUSTER
};

const NAMESPACED: Kind = Kind {
    group: GROUP,
    rules: Rules { creates_on_update: true, validates_generate_name_on_update: false, ..RULES },
    name_faults: name::path_segment,
    ..Kind::NAMESPACED
};
const CLUSTER: Kind = Kind {
    group: GROUP,
    rules: Rules { creates_on_update: true, validates_generate_name_on_update: false, ..RULES },
    name_faults: name::path_segment,
    ..Kind::CLUSTER
};

const ROLE_VERSION: Version = Version {
    columns: &[Column::NAME, Column::date("Created At", "When it was created.")],
    cells: |role, _| vec![cells::name(role), cells::text(role, &["metadata", "creationTimestamp"])],
    ..Version::V1
};

const BINDING_VERSION: Version = Version {
    columns: &[
        Column::NAME,
        Column::text("Role", "What is granted."),
        Column::AGE,
        Column::text("Users", "The users it is granted to.").wide(),
        Column::text("Groups", "The groups it is granted to.").wide(),
        Column::text("ServiceAccounts", "The service accounts it is granted to.").wide(),
    ],
    cells: binding_cells,
    default: default_binding,
    ..Version::V1
};

/// The scope of the granted permissions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Reach {
    Cluster,
    Namespace,
}

fn default_binding(binding: &mut Value) {
    let set_group = |reference: &mut Map| unless_set(reference, "apiGroup", GROUP);
    if let Some(reference) = object_at(binding, &["roleRef"]) {
        if reference.get("apiGroup") == Some(&json!("")) {
            reference.remove("apiGroup");
        }
        set_group(reference);
    }
    let subjects = binding.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten();
    for subject in subjects.filter_map(Value::as_object_mut) {
        if matches!(subject.get("kind").and_then(Value::as_str), Some("Group" | "User")) {
            set_group(subject);
        }
    }
}

const AGGREGATION: &[Rule] = &[
    Rule::required("clusterRoleSelectors", "at least one clusterRoleSelector required if aggregationRule is non-nil"),
    Rule::new("clusterRoleSelectors[]", Check::By(role_selector)),
];

fn role_selector(selector: &Field<'_>, errors: &mut Vec<Error>) {
    selector::validate(selector, errors);
    if !selector::is_valid(selector) {
        errors.push(selector.invalid("invalid label selector."));
    }
}

fn policy_rule(rule: &Field<'_>, reach: Reach, errors: &mut Vec<Error>) {
    let [verbs, urls] = ["verbs", "nonResourceURLs"].map(|list| rule.field(list));
    let [groups, resources, names] = ["apiGroups", "resources", "resourceNames"].map(|list| rule.field(list));
    if verbs.is_empty() {
        errors.push(verbs.required("verbs must contain at least one value"));
    }
    if !urls.is_empty() {
        if reach == Reach::Namespace {
            errors.push(urls.invalid("namespaced rules cannot apply to non-resource URLs"));
        }
        if [groups, resources, names].iter().any(|list| !list.is_empty()) {
            errors.push(urls.invalid("rules cannot apply to both regular resources and non-resource URLs"));
        }
        return;
    }
    if groups.is_empty() {
        errors.push(groups.required("resource rules must supply at least one api group"));
    }
    if resources.is_empty() {
        errors.push(resources.required("resource rules must supply at least one resource"));
    }
}

fn binding_subject(subject: &Field<'_>, reach: Reach, errors: &mut Vec<Error>) {
    let (kind, group) = (subject.field("kind"), subject.field("apiGroup"));
    rules::required(&subject.field("name"), errors);
    match kind.text() {
        "ServiceAccount" => {
            if !subject.field("name").is_empty() {
                rules::named(&subject.field("name"), name::dns1123_subdomain, errors);
            }
            if !group.is_empty() {
                errors.push(group.not_supported(&[""]));
            }
            if reach == Reach::Cluster {
                rules::required(&subject.field("namespace"), errors);
            }
        }
        "Group" | "User" => rules::one_of(&group, &[GROUP], errors),
        _ => rules::one_of(&kind, &["ServiceAccount", "User", "Group"], errors),
    }
}

fn role_ref(change: &Change<'_>, errors: &mut Vec<Error>) {
    if change.is_changed() {
        let text = |field: &str| change.new.field(field).text();
        // The value as upstream prints it.
        let value = json!({"APIGroup": text("apiGroup"), "Kind": text("kind"), "Name": text("name")});
        errors.push(Error::invalid(&change.new.path, value, "cannot change roleRef"));
    }
}

fn binding_cells(binding: &Value, now: Timestamp) -> Vec<Value> {
    let text = |subject: &Value, field: &str| str_at(subject, &[field]).unwrap_or_default().to_owned();
    let subjects = || at(binding, &["subjects"]).and_then(Value::as_array).into_iter().flatten();
    let of = |kind: &str| {
        let names = subjects().filter(|subject| text(subject, "kind") == kind).map(|subject| match kind {
            "ServiceAccount" => format!("{}/{}", text(subject, "namespace"), text(subject, "name")),
            _ => text(subject, "name"),
        });
        Value::from(names.collect::<Vec<String>>().join(", "))
    };
    let role = |field: &str| str_at(binding, &["roleRef", field]).unwrap_or_default();
    vec![
        cells::name(binding),
        Value::from(format!("{}/{}", role("kind"), role("name"))),
        cells::age(binding, now),
        of("User"),
        of("Group"),
        of("ServiceAccount"),
    ]
}
