//! StorageClass: the provisioner of the volumes of a class, and its parameters.

use crate::builtin::kind::{Column, Kind, RULES, Version};
use crate::builtin::rules;
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule};
use crate::strategy::Rules;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use steersman_machinery::field::Error;
use steersman_machinery::value::{at, str_at, unless_set};
use steersman_machinery::{Value, name};

const PARAMETERS_MAX: usize = 512;
const PARAMETERS_BYTES_MAX: usize = 256 * 1024;

pub const KIND: Kind = Kind {
    group: "storage.k8s.io",
    kind: "StorageClass",
    plural: "storageclasses",
    rules: Rules { returns_deleted: true, ..RULES },
    singular: "storageclass",
    short_names: &["sc"],
    versions: &[Version {
        definition: "io.k8s.api.storage.v1.StorageClass",
        columns: &[
            Column::NAME,
            Column::text("Provisioner", "Who makes the volumes."),
            Column::text("ReclaimPolicy", "What becomes of a volume whose claim goes."),
            Column::text("VolumeBindingMode", "When a volume is made for a claim."),
            Column::text("AllowVolumeExpansion", "Whether volumes can grow."),
            Column::AGE,
        ],
        cells,
        default,
        ..Version::V1
    }],
    validate: &[
        Rule::new("allowedTopologies", Check::By(topologies)),
        Rule::new("provisioner", Check::By(provisioner)).and_required(""),
        Rule::new("parameters", Check::By(parameters)),
        Rule::new("reclaimPolicy", Check::OneOf(&["Delete", "Retain"])).unless_empty(),
        Rule::new("volumeBindingMode", Check::OneOf(&["Immediate", "WaitForFirstConsumer"])),
        Rule::new("parameters", Check::Immutable),
        Rule::new("provisioner", Check::Immutable),
        Rule::new("reclaimPolicy", Check::Immutable),
        Rule::new("volumeBindingMode", Check::Immutable),
    ],
    ..Kind::CLUSTER
};

fn default(class: &mut Value) {
    let Some(fields) = class.as_object_mut() else { return };
    unless_set(fields, "reclaimPolicy", "Delete");
    unless_set(fields, "volumeBindingMode", "Immediate");
}

/// Terms must differ, and each key of a term needs values.
fn topologies(terms: &Field<'_>, errors: &mut Vec<Error>) {
    // Upstream's set of seen terms begins with the empty one, so it reports a term without keys as a duplicate.
    let mut seen = BTreeSet::from([BTreeMap::new()]);
    for term in terms.items() {
        let mut keys = BTreeMap::new();
        let expressions = term.field("matchLabelExpressions");
        for expression in expressions.items() {
            let (key, values) = (expression.field("key"), expression.field("values"));
            if values.is_empty() {
                errors.push(values.required(""));
            }
            let mut unique = BTreeSet::new();
            for value in values.items().filter(|value| !unique.insert(value.text())) {
                errors.push(value.duplicate());
            }
            rules::named(&key, name::qualified, errors);
            if keys.contains_key(key.text()) {
                errors.push(key.duplicate());
            }
            keys.insert(key.text(), unique);
        }
        if !seen.insert(keys) {
            errors.push(Error::duplicate(&expressions.path, Value::from("")));
        }
    }
}

/// The string must be the name of a provisioner.
pub fn provisioner(provisioner: &Field<'_>, errors: &mut Vec<Error>) {
    let lower = provisioner.text().to_lowercase();
    errors.extend(name::qualified(&lower).into_iter().map(|detail| Error::invalid(&provisioner.path, &*lower, detail)));
}

/// The parameters must not be too large.
pub fn parameters(parameters: &Field<'_>, errors: &mut Vec<Error>) {
    if parameters.entries().count() > PARAMETERS_MAX {
        return errors.push(Error::too_long(&parameters.path, PARAMETERS_MAX));
    }
    for (key, _) in parameters.entries().filter(|(key, _)| key.is_empty()) {
        errors.push(Error::invalid(&parameters.path, key, "field can not be empty."));
    }
    let bytes: usize = parameters.entries().map(|(key, value)| key.len() + value.text().len()).sum();
    if bytes > PARAMETERS_BYTES_MAX {
        errors.push(Error::too_long(&parameters.path, PARAMETERS_BYTES_MAX));
    }
}

fn cells(class: &Value, now: Timestamp) -> Vec<Value> {
    let name = str_at(class, &["metadata", "name"]).unwrap_or_default();
    let mark = ["metadata", "annotations", "storageclass.kubernetes.io/is-default-class"];
    let is_default = str_at(class, &mark) == Some("true");
    vec![
        Value::from(if is_default { format!("{name} (default)") } else { name.to_owned() }),
        cells::text(class, &["provisioner"]),
        cells::text(class, &["reclaimPolicy"]),
        cells::text(class, &["volumeBindingMode"]),
        at(class, &["allowVolumeExpansion"]).cloned().unwrap_or(Value::Bool(false)),
        cells::age(class, now),
    ]
}
