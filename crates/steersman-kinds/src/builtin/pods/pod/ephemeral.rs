//! Ephemeral containers: added to a running pod through `/ephemeralcontainers` only, to inspect it. They cannot be
//! changed or removed.

use crate::builtin::built_in::carry;
use crate::builtin::pods::pod::spec::SPEC;
use crate::builtin::rules::change::Change;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::check_field;
use std::collections::{BTreeMap, BTreeSet};
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::value::{at, remove_at, set_at, str_at};

const LIST: &str = "ephemeralContainers";
/// The fields that ephemeral containers must not set.
const NOT_THEIRS: [&str; 9] = [
    "lifecycle",
    "livenessProbe",
    "ports",
    "readinessProbe",
    "resizePolicy",
    "resources",
    "restartPolicy",
    "restartPolicyRules",
    "startupProbe",
];

/// The metadata that a write through a subresource of a pod does not change.
pub(super) const METADATA: [&[&str]; 4] = [
    &["metadata", "annotations"],
    &["metadata", "finalizers"],
    &["metadata", "labels"],
    &["metadata", "ownerReferences"],
];

/// Resets every change except to the ephemeral containers.
pub(super) fn prepare(new: &mut Value, old: &Value) {
    let added = at(new, &["spec", LIST]).cloned();
    carry(new, old, &["spec"]);
    carry(new, old, &["status"]);
    METADATA.iter().for_each(|path| carry(new, old, path));
    match added {
        Some(added) => set_at(new, &["spec", LIST], added),
        None => remove_at(new, &["spec", LIST]).is_some(),
    };
}

/// Validates a change through `/ephemeralcontainers`.
pub(super) fn validate(change: &Change<'_>, errors: &mut Vec<Error>) {
    if at(change.old.value, &["metadata", "annotations", "kubernetes.io/config.mirror"]).is_some() {
        errors.push(change.old.forbidden("static pods do not support ephemeral containers"));
        return;
    }
    let Change { new, old } = change.field("spec");
    check_field(SPEC, &new, errors);
    let list = new.field(LIST);
    let mut after: BTreeMap<&str, &Value> = BTreeMap::new();
    for container in list.items() {
        after.entry(container.field("name").text()).or_insert(container.value);
    }
    for before in old.field(LIST).items() {
        let name = before.field("name");
        let why = match after.get(name.text()) {
            Some(after) if *after == before.value => continue,
            Some(_) => "may not be changed",
            None => "may not be removed",
        };
        errors.push(list.forbidden(format!("existing ephemeral containers {:?} {why}\n", name.text())));
    }
}

/// Validates the ephemeral containers of a pod spec, besides the rules of all containers.
pub(super) fn validate_all(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let names =
        |list: &str| spec.field(list).items().filter_map(|one| str_at(one.value, &["name"])).collect::<Vec<&str>>();
    let others: BTreeSet<&str> = names("containers").into_iter().chain(names("initContainers")).collect();
    let mut taken = others.clone();
    for container in spec.field(LIST).items() {
        let (name, target) = (container.field("name"), container.field("targetContainerName"));
        if !name.is_empty() && !taken.insert(name.text()) {
            errors.push(name.duplicate());
        }
        if !target.is_empty() && !others.contains(target.text()) {
            errors.push(Error::not_found(&target.path, target.text()));
        }
        const WHY: &str = "cannot be set for an Ephemeral Container";
        // `resources` is always there; of the others upstream refuses even empty ones.
        let is_set = |name: &&&str| match **name {
            "resources" => !container.field("resources").is_empty(),
            name => container.field(name).is_present(),
        };
        let unfit = NOT_THEIRS.iter().filter(is_set).map(|name| container.field(name));
        errors.extend(unfit.map(|field| field.forbidden(WHY)));
        for mount in container.field("volumeMounts").items() {
            let unfit = ["subPath", "subPathExpr"].map(|name| mount.field(name));
            errors.extend(unfit.iter().filter(|field| !field.is_empty()).map(|field| field.forbidden(WHY)));
        }
    }
}
