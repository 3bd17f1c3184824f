//! The status of a definition: its accepted names, whether it is established, and further conditions.

pub(in crate::crd) mod approval;
pub(in crate::crd) mod condition;
pub(in crate::crd) mod stored;

use crate::crd::ca_bundle;
use crate::crd::custom::InvalidDefinition;
use crate::crd::names::{NameChecker, NameIndex, Names};
use crate::crd::status::approval::Approval;
use crate::crd::status::condition::{Condition, ConditionStatus};
use crate::crd::{flag, text, versions};
use jiff::Timestamp;
use serde_json::json;
use steersman_machinery::{Value, field};
use steersman_schema::structural;

/// The new status of a definition (in the internal form), if it differs from the current one.
///
/// `names` are the accepted names of all definitions. When a definition changes its accepted names or is deleted, the
/// definitions of its group that lack a name must be reconciled again: the name may be free now.
pub fn reconcile(definition: &Value, names: &NameIndex, now: Timestamp) -> Option<Value> {
    let before = definition.get("status").cloned().unwrap_or_else(|| json!({}));
    let mut status = if before.is_object() { before.clone() } else { json!({}) };
    match non_structural(definition) {
        Some(condition) => condition::set(&mut status, &condition, now),
        None => condition::remove(&mut status, "NonStructuralSchema"),
    }
    if let Some(condition) = approval_condition(definition) {
        condition::set(&mut status, &condition, now);
    }
    let checker = names.checker(text(definition, &["spec", "group"]), text(definition, &["metadata", "name"]));
    let (names, conflict) = accept(definition, &checker);
    let are_accepted = conflict.is_none();
    let named = conflict
        .unwrap_or_else(|| Condition::new("NamesAccepted", ConditionStatus::True, "NoConflicts", "no conflicts found"));
    condition::set(&mut status, &named, now);
    // Once established a definition stays so, because it may have objects, whatever happens to its other names. A
    // definition with the plural of a built-in resource was never in effect.
    let is_built_in = checker.is_built_in(text(definition, &["spec", "names", "plural"]));
    if is_built_in || !condition::is_true(definition, "Established") {
        let established = match are_accepted {
            // As upstream: controllers that inject CA bundles into definitions do so before the objects are served.
            true if has_bad_bundle(definition) => {
                let why = "The conversion webhook CABundle is invalid";
                Condition::new("Established", ConditionStatus::False, "InvalidCABundle", why)
            }
            true => Condition::new(
                "Established",
                ConditionStatus::True,
                "InitialNamesAccepted",
                "the initial names have been accepted",
            ),
            false => Condition::new("Established", ConditionStatus::False, "NotAccepted", "not all names are accepted"),
        };
        condition::set(&mut status, &established, now);
    }
    status["acceptedNames"] = names.to_value();
    (status != before).then_some(status)
}

/// The status of a definition that cannot be served although its names are accepted.
pub fn not_servable(mut status: Value, why: &InvalidDefinition, now: Timestamp) -> Value {
    condition::set(
        &mut status,
        &Condition::new("Established", ConditionStatus::False, "NotServable", why.to_string()),
        now,
    );
    status
}

/// Whether the CA bundle of a conversion webhook is invalid.
pub(super) fn has_bad_bundle(definition: &Value) -> bool {
    let config = steersman_machinery::value::at(definition, &["spec", "conversion", "webhook", "clientConfig"]);
    config.is_some_and(|config| ca_bundle::fault(config).is_some())
}

/// Whether a definition has not got all names that it asks for.
pub fn lacks_names(status: &Value) -> bool {
    condition::is_false(status, "NamesAccepted")
}

/// Whether a definition has the name of a built-in resource, whose objects do not belong to it.
pub fn is_of_built_in(definition: &Value, names: &NameIndex) -> bool {
    let checker = names.checker(text(definition, &["spec", "group"]), text(definition, &["metadata", "name"]));
    checker.is_built_in(text(definition, &["spec", "names", "plural"]))
}

/// The accepted names of the definition, and the last conflict that prevented others.
fn accept(definition: &Value, checker: &NameChecker<'_>) -> (Names, Option<Condition>) {
    let (requested, accepted) = (Names::requested(definition), Names::accepted(definition));
    let mut names = accepted.clone();
    let mut conflict = None;
    let in_use = |name: &str| format!("{name:?} is already in use");
    let refuse =
        |reason, message: String| Some(Condition::new("NamesAccepted", ConditionStatus::False, reason, message));

    if checker.is_resource_free(&requested.plural, &[&accepted.plural]) {
        names.plural.clone_from(&requested.plural);
    } else {
        conflict = refuse("PluralConflict", in_use(&requested.plural));
    }
    if checker.is_resource_free(&requested.singular, &[&accepted.singular]) {
        names.singular.clone_from(&requested.singular);
    } else {
        conflict = refuse("SingularConflict", in_use(&requested.singular));
    }
    let given: Vec<&str> = accepted.short_names.iter().map(String::as_str).collect();
    let taken: Vec<String> = requested
        .short_names
        .iter()
        .filter(|short| !checker.is_resource_free(short, &given))
        .map(|short| in_use(short))
        .collect();
    match taken.as_slice() {
        [] => names.short_names.clone_from(&requested.short_names),
        [one] => conflict = refuse("ShortNamesConflict", one.clone()),
        several => conflict = refuse("ShortNamesConflict", format!("[{}]", several.join(", "))),
    }
    if checker.is_kind_free(&requested.kind, &[&accepted.kind]) {
        names.kind.clone_from(&requested.kind);
    } else {
        conflict = refuse("KindConflict", in_use(&requested.kind));
    }
    if checker.is_kind_free(&requested.list_kind, &[&accepted.list_kind]) {
        names.list_kind.clone_from(&requested.list_kind);
    } else {
        conflict = refuse("ListKindConflict", in_use(&requested.list_kind));
    }
    names.categories = requested.categories;
    if checker.is_built_in(&requested.plural) {
        // An earlier release may have accepted such names; they are removed.
        names = Names { group: names.group, ..Names::default() };
    }
    (names, conflict)
}

/// The schema errors that prevent objects from being pruned and defaulted, and the schema from being published. Only
/// definitions written as `v1beta1` can have them.
fn non_structural(definition: &Value) -> Option<Condition> {
    // Without `preserveUnknownFields`, validation refuses schemas that are not structural: they are not checked again.
    if !flag(definition, &["spec", "preserveUnknownFields"]) {
        return None;
    }
    let spec = field::Path::new("spec");
    let mut errors = vec![field::Error::invalid(&spec.child("preserveUnknownFields"), true, "must be false")];
    for (index, version) in versions(definition).iter().enumerate() {
        let path = spec.child("versions").index(index).child("schema").child("openAPIV3Schema");
        if let Some(schema) = steersman_machinery::value::at(version, &["schema", "openAPIV3Schema"]) {
            errors.extend(structural::check(schema, &path));
        }
    }
    Some(Condition::new("NonStructuralSchema", ConditionStatus::True, "Violations", field::join(&errors)))
}

fn approval_condition(definition: &Value) -> Option<Condition> {
    let (state, reason) = approval::of(definition)?;
    let (status, word) = match state {
        Approval::Approved => (ConditionStatus::True, "ApprovedAnnotation"),
        Approval::Bypassed => (ConditionStatus::False, "UnapprovedAnnotation"),
        Approval::Invalid => (ConditionStatus::False, "InvalidAnnotation"),
        Approval::Missing => (ConditionStatus::False, "MissingAnnotation"),
    };
    Some(Condition::new("KubernetesAPIApprovalPolicyConformant", status, word, reason))
}
