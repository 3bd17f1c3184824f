//! InitializerConfiguration: selects the initializers of new objects. Only served by servers with initializers.
//!
//! The form of Kubernetes 1.7 to 1.13, where an initializer had no timeout and, since 1.8, no failure policy; with an
//! additional status that lists the awaited initializers.

use crate::builtin::cluster::admission_registration::{CATEGORIES, GROUP};
use crate::builtin::kind::{Column, Kind, Version};
use crate::builtin::rules::age;
use crate::builtin::rules::cells::{self, NONE};
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule};
use jiff::Timestamp;
use steersman_machinery::field::Error;
use steersman_machinery::value::{at, str_at};
use steersman_machinery::{Value, name};

/// The longest timeout of an initializer.
pub const TIMEOUT_SECONDS_MAX: i64 = 3600;

/// The maximum number of names in a cell.
const NAMES_SHOWN: usize = 3;

pub const KIND: Kind = Kind {
    group: GROUP,
    kind: "InitializerConfiguration",
    plural: "initializerconfigurations",
    singular: "initializerconfiguration",
    categories: CATEGORIES,
    versions: &[Version {
        name: "v1alpha1",
        definition: "io.k8s.api.admissionregistration.v1alpha1.InitializerConfiguration",
        has_status: true,
        columns: &[
            Column::NAME,
            Column::text("Initializers", "The initializers, in the order in which they run."),
            Column::integer("Waiting", "How many objects wait for one of them now."),
            Column::text("Blocked By", "The initializer that an object has waited longest for."),
            Column::text("Longest", "The object that has waited longest, and since when."),
            Column::AGE,
        ],
        cells,
        ..Version::V1
    }],
    generation: &[&["initializers"]],
    status_leaves: &[&["initializers"]],
    validate: &[Rule::new("initializers[]", Check::Rules(INITIALIZER))],
    ..Kind::CLUSTER
};

const INITIALIZER: &[Rule] = &[
    Rule::new("name", Check::Format(name_faults)).and_required(""),
    Rule::new("name", Check::Unique).unless_empty(),
    Rule::new("rules[]", Check::By(validate_rule)),
    Rule::new("timeoutSeconds", Check::Between(1, TIMEOUT_SECONDS_MAX, "must be between 1 and 3600 seconds")),
    Rule::new("failurePolicy", Check::OneOf(&["Fail", "Ignore"])).if_present(),
];

fn validate_rule(rule: &Field<'_>, errors: &mut Vec<Error>) {
    for (field, may_be_empty) in [("apiGroups", true), ("apiVersions", false), ("resources", false)] {
        let list = rule.field(field);
        if list.is_empty() {
            errors.push(list.required("must specify at least one"));
        }
        let n_items = list.items().count();
        for item in list.items() {
            match item.text() {
                "*" if n_items > 1 => {
                    errors.push(list.invalid("if '*' is present, must not specify others"));
                }
                "" if !may_be_empty => errors.push(item.required("")),
                text if field == "resources" && text.contains('/') => {
                    errors.push(item.invalid("must not specify subresources: they have no initializers"));
                }
                _ => {}
            }
        }
    }
}

fn cells(configuration: &Value, now: Timestamp) -> Vec<Value> {
    let list = |path: &[&str]| at(configuration, path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let names = list(&["initializers"]).iter().map(|one| str_at(one, &["name"]).unwrap_or_default().to_owned());
    let names: Vec<String> = names.collect();
    let waited_for = list(&["status", "initializers"]);
    let n_waiting: i64 = waited_for.iter().map(|one| cells::number(one, &["waiting"])).sum();
    let longest = waited_for.iter().min_by_key(|one| str_at(one, &["since"]).unwrap_or_default());
    let (blocked_by, object) = match longest {
        Some(one) => {
            let waits = age::since(at(one, &["since"]).unwrap_or(&Value::Null), now);
            let object = str_at(one, &["oldest"]).unwrap_or_default();
            (str_at(one, &["name"]).unwrap_or_default().to_owned(), format!("{object} ({waits})"))
        }
        None => (NONE.to_owned(), NONE.to_owned()),
    };
    vec![
        cells::name(configuration),
        Value::from(if names.is_empty() { NONE.to_owned() } else { cells::some_of(&names, NAMES_SHOWN) }),
        Value::from(n_waiting),
        Value::from(blocked_by),
        Value::from(object),
        cells::age(configuration, now),
    ]
}

/// The errors in the name of an initializer.
pub fn name_faults(given: &str) -> Vec<String> {
    let errors = name::dns1123_subdomain(given);
    if errors.is_empty() && given.split('.').count() < 3 {
        return vec!["should be a domain with at least three segments separated by dots".to_owned()];
    }
    errors
}
