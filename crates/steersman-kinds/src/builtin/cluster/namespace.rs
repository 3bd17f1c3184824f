//! Namespace: a scope for names. It is deleted when the finalizers of its spec are gone, which only `/finalize`
//! removes.

use crate::builtin::built_in::carry;
use crate::builtin::kind::{Column, Kind, RULES, SelectableField, Subresource, Version};
use crate::builtin::rules;
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule};
use crate::catalog::{Handling, Verb};
use crate::strategy::{Grace, Rules};
use jiff::Timestamp;
use serde_json::json;
use steersman_machinery::field::{Error, Path};
use steersman_machinery::value::{object_at, set_at, str_at, unless_set};
use steersman_machinery::{Value, name};

/// The finalizer for all content of the namespace.
const FINALIZER: &str = "kubernetes";
/// The label with the name of the namespace, for selectors.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

pub const KIND: Kind = Kind {
    kind: "Namespace",
    plural: "namespaces",
    singular: "namespace",
    short_names: &["ns"],
    verbs: &[Verb::Create, Verb::Delete, Verb::Get, Verb::List, Verb::Patch, Verb::Update, Verb::Watch],
    versions: &[Version {
        definition: "io.k8s.api.core.v1.Namespace",
        has_status: true,
        subresources: &[Subresource {
            name: "finalize",
            group: "",
            version: "v1",
            kind: "Namespace",
            verbs: &[Verb::Update],
            handling: Handling::Stored,
        }],
        columns: &[Column::NAME, Column::text("Status", "Whether it is in use or on its way out."), Column::AGE],
        cells,
        fields: &[SelectableField::new("status.phase", ".status.phase")],
        default: |namespace| {
            label(namespace);
            if let Some(status) = object_at(namespace, &["status"]) {
                unless_set(status, "phase", "Active");
            }
        },
        ..Version::V1
    }],
    rules: Rules { grace: Grace::SpecFinalizers, ..RULES },
    name_faults: name::dns1123_label,
    prepare_create,
    prepare_update: |new, old| carry(new, old, &["spec", "finalizers"]),
    // `/finalize` does not change the status: kube-controller-manager sends none.
    other_leaves: &[&["status"]],
    prepare_delete: |object| {
        set_at(object, &["status", "phase"], json!("Terminating"));
    },
    validate: &[Rule::new("spec.finalizers[]", Check::By(finalizer))],
    validate_status: &[Rule::new("", Check::By(phase))],
    ..Kind::CLUSTER
};

/// Sets the label with the namespace's name, whatever the client sends. Without a name yet, the label is set later.
fn label(object: &mut Value) {
    let Some(name) = str_at(object, &["metadata", "name"]).filter(|name| !name.is_empty()).map(Value::from) else {
        return;
    };
    if let Some(labels) = object_at(object, &["metadata", "labels"]) {
        labels.insert(NAME_LABEL.to_owned(), name);
    }
}

fn prepare_create(object: &mut Value) {
    label(object);
    set_at(object, &["status", "phase"], json!("Active"));
    if let Some(spec) = object_at(object, &["spec"]) {
        let finalizers = spec.entry("finalizers").or_insert_with(|| json!([]));
        if let Some(finalizers) = finalizers.as_array_mut()
            && !finalizers.iter().any(|one| one == FINALIZER)
        {
            finalizers.push(json!(FINALIZER));
        }
    }
}

fn finalizer(finalizer: &Field<'_>, errors: &mut Vec<Error>) {
    let text = finalizer.text();
    // Upstream blames the list.
    let list = Field { path: Path::new("spec.finalizers"), ..finalizer.clone() };
    rules::named(&list, name::qualified, errors);
    if !text.contains('/') && text != FINALIZER && name::qualified(text).is_empty() {
        errors.push(list.invalid("name is neither a standard finalizer name nor is it fully qualified"));
    }
}

fn phase(object: &Field<'_>, errors: &mut Vec<Error>) {
    // Upstream blames it by the name of its field in Go.
    let phase = Field { path: Path::new("status.Phase"), ..object.at(&["status", "phase"]) };
    let is_deleting = object.at(&["metadata", "deletionTimestamp"]).is_present();
    if is_deleting && phase.text() != "Terminating" {
        errors.push(phase.invalid("may only be 'Terminating' if `deletionTimestamp` is not empty"));
    }
    if !is_deleting && phase.text() != "Active" {
        errors.push(phase.invalid("may only be 'Active' if `deletionTimestamp` is empty"));
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![cells::name(object), cells::text(object, &["status", "phase"]), cells::age(object, now)]
}
