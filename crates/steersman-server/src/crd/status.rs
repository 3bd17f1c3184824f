//! The status of a definition: which of its names are accepted, whether it is established, what is to be said of it.

use crate::crd::approval::{self, Approval};
use crate::crd::condition::{self, Condition};
use crate::crd::names::Names;
use crate::crd::{flag, versions};
use jiff::Timestamp;
use serde_json::json;
use steersman_machinery::{Value, field};
use steersman_schema::structural;

/// The status that a definition (in the internal form) ought to have, if it is not the one it has.
///
/// `others` are the accepted names of all other definitions. When a definition changes its accepted names or goes, those
/// of its group are to be reconciled again: a name they lack may be free now.
pub fn reconcile(definition: &Value, others: &[Names], now: Timestamp) -> Option<Value> {
    let before = definition.get("status").cloned().unwrap_or_else(|| json!({}));
    let mut status = if before.is_object() { before.clone() } else { json!({}) };
    match non_structural(definition) {
        Some(condition) => condition::set(&mut status, &condition, now),
        None => condition::remove(&mut status, "NonStructuralSchema"),
    }
    if let Some(condition) = approval_condition(definition) {
        condition::set(&mut status, &condition, now);
    }
    let (names, conflict) = accept(definition, others);
    let are_accepted = conflict.is_none();
    let named = conflict.unwrap_or_else(|| Condition::new("NamesAccepted", true, "NoConflicts", "no conflicts found"));
    condition::set(&mut status, &named, now);
    // Once established a definition stays so: objects are there, whatever becomes of its other names.
    if !condition::is_true(definition, "Established") {
        let established = match are_accepted {
            true => Condition::new("Established", true, "InitialNamesAccepted", "the initial names have been accepted"),
            false => Condition::new("Established", false, "NotAccepted", "not all names are accepted"),
        };
        condition::set(&mut status, &established, now);
    }
    status["acceptedNames"] = names.to_value();
    (status != before).then_some(status)
}

/// The names that the definition gets, and the last of the conflicts that keep it from others.
fn accept(definition: &Value, others: &[Names]) -> (Names, Option<Condition>) {
    let (requested, accepted) = (Names::requested(definition), Names::accepted(definition));
    let rivals = || others.iter().filter(|other| other.group == requested.group);
    let mut names = accepted.clone();
    let mut conflict = None;
    let in_use = |name: &str| format!("{name:?} is already in use");
    let refuse = |reason, message: String| Some(Condition::new("NamesAccepted", false, reason, message));

    let is_free = |wanted: &str, have: &str| wanted == have || !rivals().any(|rival| rival.has_resource(wanted));
    if is_free(&requested.plural, &accepted.plural) {
        names.plural.clone_from(&requested.plural);
    } else {
        conflict = refuse("PluralConflict", in_use(&requested.plural));
    }
    if is_free(&requested.singular, &accepted.singular) {
        names.singular.clone_from(&requested.singular);
    } else {
        conflict = refuse("SingularConflict", in_use(&requested.singular));
    }
    let taken: Vec<String> = requested
        .short_names
        .iter()
        .filter(|short| !accepted.short_names.contains(short) && !is_free(short, ""))
        .map(|short| in_use(short))
        .collect();
    match taken.as_slice() {
        [] => names.short_names.clone_from(&requested.short_names),
        [one] => conflict = refuse("ShortNamesConflict", one.clone()),
        several => conflict = refuse("ShortNamesConflict", format!("[{}]", several.join(", "))),
    }
    let is_free = |wanted: &str, have: &str| wanted == have || !rivals().any(|rival| rival.has_kind(wanted));
    if is_free(&requested.kind, &accepted.kind) {
        names.kind.clone_from(&requested.kind);
    } else {
        conflict = refuse("KindConflict", in_use(&requested.kind));
    }
    if is_free(&requested.list_kind, &accepted.list_kind) {
        names.list_kind.clone_from(&requested.list_kind);
    } else {
        conflict = refuse("ListKindConflict", in_use(&requested.list_kind));
    }
    names.categories = requested.categories;
    (names, conflict)
}

/// What keeps the definition from being pruned, defaulted and published: only `v1beta1` ones get here with it.
fn non_structural(definition: &Value) -> Option<Condition> {
    let spec = field::Path::new("spec");
    let mut faults = Vec::new();
    if flag(definition, &["spec", "preserveUnknownFields"]) {
        faults.push(field::Error::invalid(&spec.child("preserveUnknownFields"), true, "must be false"));
    }
    for (index, version) in versions(definition).iter().enumerate() {
        let path = spec.child("versions").index(index).child("schema").child("openAPIV3Schema");
        if let Some(schema) = steersman_machinery::value::at(version, &["schema", "openAPIV3Schema"]) {
            faults.extend(structural::check(schema, &path));
        }
    }
    (!faults.is_empty()).then(|| Condition::new("NonStructuralSchema", true, "Violations", field::join(&faults)))
}

fn approval_condition(definition: &Value) -> Option<Condition> {
    let (state, reason) = approval::of(definition)?;
    let (holds, word) = match state {
        Approval::Approved => (true, "ApprovedAnnotation"),
        Approval::Bypassed => (false, "UnapprovedAnnotation"),
        Approval::Invalid => (false, "InvalidAnnotation"),
        Approval::Missing => (false, "MissingAnnotation"),
    };
    Some(Condition::new("KubernetesAPIApprovalPolicyConformant", holds, word, reason))
}
