//! PersistentVolumeClaim: a user's request for storage.

use crate::builtin::kind::{Column, Kind, RULES, Request, Version};
use crate::builtin::pods::pod::defaults::unless_set;
use crate::builtin::rules;
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::selector;
use crate::builtin::storage::persistent_volume::access_modes;
use crate::strategy::Rules;
use jiff::Timestamp;
use serde_json::json;
use steersman_machinery::field::Error;
use steersman_machinery::quantity::Quantity;
use steersman_machinery::value::{at, object_at, remove_at, set_at, str_at};
use steersman_machinery::{Value, name};

pub const KIND: Kind = Kind {
    kind: "PersistentVolumeClaim",
    plural: "persistentvolumeclaims",
    singular: "persistentvolumeclaim",
    short_names: &["pvc"],
    versions: &[Version {
        definition: "io.k8s.api.core.v1.PersistentVolumeClaim",
        has_status: true,
        columns: &[
            Column::NAME,
            Column::text("Status", "Whether it has a volume."),
            Column::text("Volume", "The volume it has."),
            Column::text("Capacity", "How much room the volume has."),
            Column::text("Access Modes", "How the volume can be used."),
            Column::text("StorageClass", "The sort of volume it asks for."),
            Column::text("VolumeAttributesClass", "The attributes it asks for."),
            Column::AGE,
            Column::text("VolumeMode", "Whether it is a file system or a bare device.").wide(),
        ],
        cells,
        default: |claim| {
            if let Some(spec) = object_at(claim, &["spec"]) {
                unless_set(spec, "volumeMode", "Filesystem");
            }
            if let Some(status) = object_at(claim, &["status"]) {
                unless_set(status, "phase", "Pending");
            }
        },
        ..Version::V1
    }],
    prepare_create: |claim| {
        set_at(claim, &["status", "phase"], json!("Pending"));
        join_sources(claim, &Value::Null);
    },
    prepare_update: join_sources,
    validate_create: |request, errors| validate(&Field::root(request.new).field("spec"), errors),
    validate_update,
    validate_status,
    rules: Rules { returns_deleted: true, ..RULES },
    ..Kind::NAMESPACED
};

/// Validates the spec of a claim, also in a template.
pub fn validate(spec: &Field<'_>, errors: &mut Vec<Error>) {
    const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    let modes = spec.field("accessModes");
    if modes.is_empty() {
        errors.push(modes.required("at least 1 access mode is required"));
    }
    modes.items().for_each(|mode| rules::one_of(&Field { path: modes.path.clone(), ..mode }, &MODES, errors));
    let is_for_one_pod = modes.items().any(|mode| mode.text() == "ReadWriteOncePod");
    if is_for_one_pod && modes.items().any(|mode| mode.text() != "ReadWriteOncePod") {
        errors.push(modes.forbidden("may not use ReadWriteOncePod with other access modes"));
    }
    selector::validate(&spec.field("selector"), errors);
    let room = spec.at(&["resources", "requests"]).key("storage");
    match Quantity::parse(room.text()) {
        // Upstream omits `requests` from this path.
        Err(_) if room.is_absent() => errors.push(Error::required(&spec.field("resources").path.key("storage"), "")),
        Err(_) => {}
        Ok(amount) if Quantity::parse("0").is_ok_and(|zero| amount <= zero) => {
            let room = Field { path: spec.field("resources").path.key("storage"), ..room };
            errors.push(room.invalid("must be greater than zero"));
        }
        Ok(_) => {}
    }
    for name in ["storageClassName", "volumeAttributesClassName"] {
        let field = spec.field(name);
        if !field.is_empty() {
            rules::named(&field, name::dns1123_subdomain, errors);
        }
    }
    rules::one_of_if_present(&spec.field("volumeMode"), &["Block", "Filesystem"], errors);
    let (source, reference) = (spec.field("dataSource"), spec.field("dataSourceRef"));
    for source in [&source, &reference].into_iter().filter(|source| source.is_present()) {
        data_source(source, errors);
    }
    let namespace = reference.field("namespace");
    if !namespace.is_empty() {
        rules::named(&namespace, name::dns1123_label, errors);
    }
    if source.is_absent() || reference.is_absent() {
        return;
    }
    let is_same =
        ["apiGroup", "kind", "name"].iter().all(|field| source.value.get(field) == reference.value.get(field));
    match namespace.is_empty() {
        false => errors.push(spec.invalid("may not be specified when dataSourceRef.namespace is specified")),
        true if !is_same => errors.push(spec.invalid("must match dataSourceRef")),
        true => {}
    }
}

/// The rules of a reference to what fills the volume of a claim.
fn data_source(source: &Field<'_>, errors: &mut Vec<Error>) {
    let (group, kind) = (source.field("apiGroup"), source.field("kind"));
    rules::required(&source.field("name"), errors);
    rules::required(&kind, errors);
    if !group.is_empty() {
        rules::named(&group, name::dns1123_subdomain, errors);
    } else if kind.text() != "PersistentVolumeClaim" {
        let why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.push(Error::invalid(&source.path, kind.text(), why));
    }
}

/// Keeps `dataSource` and its successor `dataSourceRef` alike. Alone, `dataSource` may refer to another claim or to a snapshot;
/// upstream drops other references, unless the old claim has one.
fn join_sources(new: &mut Value, old: &Value) {
    let is_used = ["dataSource", "dataSourceRef"].iter().any(|field| at(old, &["spec", field]).is_some());
    let Some(spec) = object_at(new, &["spec"]) else { return };
    // References to other namespaces need a feature that is not enabled.
    let is_foreign = spec
        .get("dataSourceRef")
        .and_then(|source| str_at(source, &["namespace"]))
        .is_some_and(|name| !name.is_empty());
    if is_foreign && at(old, &["spec", "dataSourceRef"]).is_none() {
        spec.remove("dataSourceRef");
    }
    let is_kept = |source: &Value| {
        let text = |field: &str| str_at(source, &[field]).unwrap_or_default();
        let pairs = [("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot")];
        pairs.contains(&(text("apiGroup"), text("kind")))
    };
    if !is_used && !spec.contains_key("dataSourceRef") && !spec.get("dataSource").is_some_and(is_kept) {
        spec.remove("dataSource");
    }
    match (spec.get("dataSource").cloned(), spec.get("dataSourceRef").cloned()) {
        (Some(source), None) => {
            spec.insert("dataSourceRef".to_owned(), source);
        }
        (None, Some(reference)) if str_at(&reference, &["namespace"]).unwrap_or_default().is_empty() => {
            let mut source = reference;
            remove_at(&mut source, &["namespace"]);
            spec.insert("dataSource".to_owned(), source);
        }
        _ => {}
    }
}

fn validate_update(request: &Request<'_>, errors: &mut Vec<Error>) {
    let (spec, old) = (Field::root(request.new).field("spec"), Field::root(request.old).field("spec"));
    validate(&spec, errors);
    let is_bound = str_at(request.old, &["status", "phase"]) == Some("Bound");
    let mut allowed = spec.value.clone();
    // A claim that is bound may request more storage; an unbound one may be given a volume.
    if is_bound {
        restore(&mut allowed, old.value, &["resources", "requests"]);
        restore(&mut allowed, old.value, &["volumeAttributesClassName"]);
    }
    if old.field("volumeName").is_empty() {
        restore(&mut allowed, old.value, &["volumeName"]);
    }
    // A claim without a class may be given the default one later.
    if old.value.get("storageClassName").is_none() {
        restore(&mut allowed, old.value, &["storageClassName"]);
    }
    if &allowed != old.value {
        errors.push(spec.forbidden(
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
        ));
    }
    let path = ["resources", "requests"];
    let (room, before) = (spec.at(&path).key("storage"), old.at(&path).key("storage"));
    // The request may be smaller than before, but not smaller than the volume's capacity.
    let floor = str_at(request.old, &["status", "capacity", "storage"]).unwrap_or("0");
    // A removed request counts as zero.
    let wanted = if room.is_absent() { "0" } else { room.text() };
    let amounts = [wanted, before.text(), floor].map(Quantity::parse);
    if let [Ok(room_now), Ok(room_before), Ok(floor)] = amounts
        && room_now < room_before
        && room_now <= floor
    {
        let storage = spec.at(&path).field("storage");
        errors.push(storage.forbidden("field can not be less than status.capacity"));
    }
    // A class that is in effect can be changed, but not removed.
    let (class, current) = (spec.field("volumeAttributesClassName"), "currentVolumeAttributesClassName");
    if class.is_empty()
        && class.value != old.field("volumeAttributesClassName").value
        && at(request.old, &["status", current]).is_some_and(|name| !name.is_null())
    {
        let what = if class.is_absent() { "nil" } else { "empty string" };
        errors.push(class.forbidden(format!("update to {what} is forbidden when status.{current} is not nil")));
    }
}

fn validate_status(request: &Request<'_>, errors: &mut Vec<Error>) {
    let status = Field::root(request.new).field("status");
    status.field("capacity").entries().for_each(|(_, amount)| rules::not_negative_quantity(&amount, errors));
    let (states, amounts) = (status.field("allocatedResourceStatuses"), status.field("allocatedResources"));
    for (resource, state) in states.entries() {
        resource_key(resource, &states, errors);
        if !RESIZE_STATES.contains(&state.text()) {
            errors.push(Error::not_supported(&states.path, resource, &RESIZE_STATES));
        }
    }
    for (resource, amount) in amounts.entries() {
        let n_errors = errors.len();
        resource_key(resource, &amounts, errors);
        if errors.len() == n_errors {
            rules::not_negative_quantity(&amount, errors);
        }
    }
}

const RESIZE_STATES: [&str; 5] = [
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];

/// The name of what a claim may be given more of: `storage`, or a resource with a domain that is not Kubernetes' own.
fn resource_key(resource: &str, map: &Field<'_>, errors: &mut Vec<Error>) {
    let wrong = name::qualified(resource);
    let is_own = !resource.contains('/') || resource.contains("kubernetes.io/");
    if !wrong.is_empty() {
        errors.extend(wrong.into_iter().map(|detail| Error::invalid(&map.path, resource, detail)));
    } else if resource != "storage" && is_own {
        errors.push(Error::not_supported(&map.path, resource, &["storage"]));
    }
}

fn restore(spec: &mut Value, old: &Value, path: &[&str]) {
    crate::builtin::built_in::carry(spec, old, path);
}

fn cells(claim: &Value, now: Timestamp) -> Vec<Value> {
    let is_deleting = at(claim, &["metadata", "deletionTimestamp"]).is_some();
    let phase = if is_deleting { Value::from("Terminating") } else { cells::text(claim, &["status", "phase"]) };
    let has_volume = str_at(claim, &["spec", "volumeName"]).is_some_and(|name| !name.is_empty());
    let (capacity, modes) = if has_volume {
        (cells::text(claim, &["status", "capacity", "storage"]), access_modes(claim, "status"))
    } else {
        (Value::from(""), String::new())
    };
    let attributes = str_at(claim, &["spec", "volumeAttributesClassName"]);
    vec![
        cells::name(claim),
        phase,
        cells::text(claim, &["spec", "volumeName"]),
        capacity,
        Value::from(modes),
        cells::text(claim, &["spec", "storageClassName"]),
        Value::from(attributes.unwrap_or("<unset>")),
        cells::age(claim, now),
        Value::from(str_at(claim, &["spec", "volumeMode"]).unwrap_or("<unset>")),
    ]
}
