//! `/resize`: changes the CPU and memory of a running pod's containers.

use crate::builtin::built_in::carry;
use crate::builtin::kind::Request;
use crate::builtin::pods::pod::ephemeral::METADATA;
use crate::builtin::pods::pod::spec;
use crate::builtin::rules::field::Field;
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::pod::qos;
use steersman_machinery::value::{at, remove_at, set_at, str_at};

const LISTS: [&str; 2] = ["containers", "initContainers"];
const RESIZED: [&str; 2] = ["resizePolicy", "resources"];
const ONLY_THESE: &str = "only cpu and memory resources are mutable";

/// Resets every change except to resources and resize policies. If the containers or their order differ, nothing is
/// reset: validation refuses that.
pub(super) fn prepare(new: &mut Value, old: &Value) {
    let names = |pod: &Value| LISTS.map(|list| names(pod, list));
    if names(new) != names(old) {
        return;
    }
    let sent = LISTS.map(|list| at(new, &["spec", list]).cloned());
    carry(new, old, &["spec"]);
    carry(new, old, &["status"]);
    METADATA.iter().for_each(|path| carry(new, old, path));
    for (list, sent) in LISTS.iter().zip(sent) {
        let containers = new.pointer_mut(&format!("/spec/{list}")).and_then(Value::as_array_mut).into_iter().flatten();
        let sent = sent.as_ref().and_then(Value::as_array).into_iter().flatten();
        for (container, sent) in containers.zip(sent) {
            RESIZED.iter().for_each(|field| carry(container, sent, &[field]));
        }
    }
}

/// Validates a change through `/resize`.
pub(super) fn validate(request: &Request<'_>, errors: &mut Vec<Error>) {
    let (pod, old) = (Field::root(request.new), Field::root(request.old));
    if at(request.old, &["metadata", "annotations", "kubernetes.io/config.mirror"]).is_some() {
        return errors.push(pod.forbidden("static pods cannot be resized"));
    }
    if str_at(request.old, &["spec", "os", "name"]) == Some("windows") {
        return errors.push(pod.forbidden("windows pods cannot be resized"));
    }
    let (new_spec, old_spec) = (pod.field("spec"), old.field("spec"));
    spec::validate(&new_spec, errors);
    if qos::class(request.new) != qos::class(request.old) {
        let class = qos::class(request.old);
        errors.push(Error::invalid(&new_spec.path, class, "Pod QOS Class may not change as a result of resizing"));
    }
    if [&new_spec, &old_spec].iter().any(|spec| !spec.field("resources").is_empty()) {
        let why = "resize of pods with pod-level resources is forbidden when InPlacePodLevelResourcesVerticalScalingEnabled feature gate is disabled";
        return errors.push(pod.forbidden(why));
    }
    let n_before = errors.len();
    LISTS.iter().for_each(|list| order(&new_spec.field(list), &old_spec.field(list), list, errors));
    if errors.len() > n_before {
        return;
    }
    for list in LISTS {
        for (new, old) in new_spec.field(list).items().zip(old_spec.field(list).items()) {
            container(&new, &old, list, &new_spec, errors);
        }
    }
}

fn names(pod: &Value, list: &str) -> Vec<String> {
    let containers = at(pod, &["spec", list]).and_then(Value::as_array).into_iter().flatten();
    containers.map(|container| str_at(container, &["name"]).unwrap_or_default().to_owned()).collect()
}

fn order(new: &Field<'_>, old: &Field<'_>, list: &str, errors: &mut Vec<Error>) {
    if new.items().count() != old.items().count() {
        errors.push(new.forbidden(format!("{list} may not be added or removed on resize")));
        return;
    }
    for (new, old) in new.items().zip(old.items()) {
        if new.field("name").value != old.field("name").value {
            errors.push(new.field("name").forbidden(format!("{list} may not be renamed or reordered on resize")));
        }
    }
}

fn container(new: &Field<'_>, old: &Field<'_>, list: &str, spec: &Field<'_>, errors: &mut Vec<Error>) {
    let is_init = list == "initContainers";
    let can_be_resized = !is_init || new.field("restartPolicy").text() == "Always";
    if !can_be_resized {
        if new.value != old.value {
            errors.push(spec.forbidden("resources for non-sidecar init containers are immutable"));
        }
        return;
    }
    for field in ["requests", "limits"] {
        let (amounts, before) = (new.at(&["resources", field]), old.at(&["resources", field]));
        if before.entries().any(|(resource, _)| amounts.key(resource).is_absent()) {
            errors.push(amounts.forbidden(format!("resource {field} cannot be removed")));
        }
    }
    let mut allowed = new.value.clone();
    for field in ["limits", "requests"] {
        for resource in ["cpu", "memory"] {
            let path = ["resources", field, resource];
            match at(old.value, &path) {
                Some(before) => set_at(&mut allowed, &path, before.clone()),
                None => remove_at(&mut allowed, &path).is_some(),
            };
        }
        drop_if_empty(&mut allowed, &["resources", field]);
    }
    if with_resources(&allowed) != with_resources(old.value) {
        errors.push(match is_init {
            true => new.forbidden("only cpu and memory resources for init or sidecar containers are mutable"),
            false => spec.forbidden(ONLY_THESE),
        });
    }
}

fn drop_if_empty(container: &mut Value, path: &[&str]) {
    if at(container, path).and_then(Value::as_object).is_some_and(|amounts| amounts.is_empty()) {
        remove_at(container, path);
    }
}

/// The container, without an empty `resources`.
fn with_resources(container: &Value) -> Value {
    let mut container = container.clone();
    drop_if_empty(&mut container, &["resources"]);
    container
}
