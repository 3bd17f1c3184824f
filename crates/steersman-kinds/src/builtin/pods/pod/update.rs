//! Validation of updates of a pod. Few fields may change, since the pod may be running already.

use crate::builtin::pods::pod::container;
use crate::builtin::rules::change::Change;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, check_field};
use std::collections::HashSet;
use steersman_machinery::Value;
use steersman_machinery::field::{Error, Path};
use steersman_machinery::value::{at, set_at};

const ONLY_THESE: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Validates a change of the spec through the main endpoint, besides the rules of all specs.
pub(super) fn validate(Change { new, old }: &Change<'_>, errors: &mut Vec<Error>) {
    for list in ["containers", "initContainers"] {
        if new.field(list).items().count() != old.field(list).items().count() {
            errors.push(new.field(list).forbidden("pod updates may not add or remove containers"));
            return;
        }
    }
    check_field(container::IMAGES, new, errors);
    deadline(&new.field("activeDeadlineSeconds"), &old.field("activeDeadlineSeconds"), errors);
    gates(&new.field("schedulingGates"), &old.field("schedulingGates"), errors);
    tolerations(&new.field("tolerations"), &old.field("tolerations"), errors);
    rest(new, old, errors);
}

/// A deadline can be set and shortened.
fn deadline(new: &Field<'_>, old: &Field<'_>, errors: &mut Vec<Error>) {
    match (new.number(), old.number()) {
        (None, Some(_)) => errors.push(new.invalid("must not update from a positive integer to nil value")),
        (Some(new_seconds), Some(old_seconds)) if new_seconds > old_seconds => {
            errors.push(new.invalid("must be less than or equal to previous value"));
        }
        _ => Check::Within(0, i64::from(i32::MAX)).of(new, errors),
    }
}

/// Scheduling gates can be removed, not added.
fn gates(new: &Field<'_>, old: &Field<'_>, errors: &mut Vec<Error>) {
    let known: HashSet<&str> = old.items().map(|gate| gate.field("name").text()).collect();
    for gate in new.items().filter(|gate| !known.contains(gate.field("name").text())) {
        let name = gate.field("name").text();
        let path = gate.path.child("name");
        errors
            .push(Error::forbidden(&path, format!("only deletion is allowed, but found new scheduling gate '{name}'")));
    }
}

/// Tolerations can be added, and their seconds changed; none can be removed.
fn tolerations(new: &Field<'_>, old: &Field<'_>, errors: &mut Vec<Error>) {
    let kept: HashSet<String> = new.items().map(|toleration| timeless(toleration.value)).collect();
    if !old.items().all(|toleration| kept.contains(&timeless(toleration.value))) {
        errors.push(new.forbidden("existing toleration can not be modified except its tolerationSeconds"));
    }
}

/// A toleration without its seconds, as JSON.
fn timeless(toleration: &Value) -> String {
    let mut toleration = toleration.clone();
    if let Some(fields) = toleration.as_object_mut() {
        fields.remove("tolerationSeconds");
    }
    toleration.to_string()
}

/// No other field may change.
fn rest(new: &Field<'_>, old: &Field<'_>, errors: &mut Vec<Error>) {
    let mut allowed = new.value.clone();
    for (list, images) in [("containers", images(old, "containers")), ("initContainers", images(old, "initContainers"))]
    {
        let containers = allowed.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for (container, image) in containers.zip(images) {
            put(container, "image", image);
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        put(&mut allowed, field, at(old.value, &[field]));
    }
    let grace = "terminationGracePeriodSeconds";
    let was_negative = old.field(grace).number().is_some_and(|seconds| seconds < 0);
    if was_negative && new.field(grace).number() == Some(1) {
        put(&mut allowed, grace, at(old.value, &[grace]));
    }
    if &allowed == old.value {
        return;
    }
    let mut changed = Vec::new();
    differences(&Path::root(), &allowed, old.value, &mut changed);
    errors.push(new.forbidden(format!("{ONLY_THESE}\nchanged: {}", changed.join(", "))));
}

fn images<'a>(spec: &Field<'a>, list: &str) -> Vec<Option<&'a Value>> {
    spec.field(list).items().map(|container| at(container.value, &["image"])).collect()
}

fn put(object: &mut Value, field: &str, value: Option<&Value>) {
    match value {
        Some(value) => {
            set_at(object, &[field], value.clone());
        }
        None => {
            object.as_object_mut().map(|fields| fields.remove(field));
        }
    }
}

/// The maximum number of changed fields that are named.
const NAMED_MAX: usize = 10;

/// The paths at which two values differ.
fn differences(path: &Path, new: &Value, old: &Value, changed: &mut Vec<String>) {
    if changed.len() >= NAMED_MAX || new == old {
        return;
    }
    match (new, old) {
        (Value::Object(new_fields), Value::Object(old_fields)) => {
            let added = old_fields.keys().filter(|name| !new_fields.contains_key(*name));
            for name in new_fields.keys().chain(added) {
                let field = |fields: &steersman_machinery::value::Map| fields.get(name).cloned().unwrap_or(Value::Null);
                differences(&path.child(name), &field(new_fields), &field(old_fields), changed);
            }
        }
        (Value::Array(new_items), Value::Array(old_items)) if new_items.len() == old_items.len() => {
            for (index, (new, old)) in new_items.iter().zip(old_items).enumerate() {
                differences(&path.index(index), new, old, changed);
            }
        }
        _ => changed.push(path.to_string()),
    }
}
