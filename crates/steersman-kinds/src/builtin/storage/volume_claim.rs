//! PersistentVolumeClaim: a user's request for storage.

use crate::builtin::kind::{Column, Kind, RULES, Version};
use crate::builtin::pods::pod::warnings;
use crate::builtin::rules::cells;
use crate::builtin::rules::change::Change;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::quantity::round_up;
use crate::builtin::rules::rule::{Check, Rule};
use crate::builtin::rules::selector;
use crate::builtin::storage::persistent_volume::{self, ACCESS_MODES, ONE_POD_ALONE, access_modes};
use crate::strategy::Rules;
use jiff::Timestamp;
use serde_json::json;
use steersman_machinery::field::Error;
use steersman_machinery::quantity::Quantity;
use steersman_machinery::value::{at, object_at, remove_at, set_at, str_at, unless_set};
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
        default,
        ..Version::V1
    }],
    prepare_create: |claim| {
        set_at(claim, &["status", "phase"], json!("Pending"));
        join_sources(claim, &Value::Null);
    },
    prepare_update: join_sources,
    validate: &[
        Rule::new("spec", Check::Rules(SPEC)),
        Rule::new("", Check::Change(update)).on_update(),
        // Upstream omits `spec` from this path.
        Rule::new("spec.volumeMode", Check::Immutable).blaming("volumeMode"),
    ],
    warnings: |claim, _| warnings::of_claim(&Field::root(claim).field("spec")),
    validate_status: &[
        Rule::new("status.capacity.*", Check::By(persistent_volume::countable)),
        Rule::new("status.allocatedResourceStatuses", Check::By(resize_states)),
        Rule::new("status.allocatedResources", Check::By(allocated)),
    ],
    rules: Rules { returns_deleted: true, ..RULES },
    ..Kind::NAMESPACED
};

/// Sets the defaults of a claim, also of one in a template.
pub fn default(claim: &mut Value) {
    if let Some(spec) = object_at(claim, &["spec"]) {
        for amounts in [&["resources", "limits"], &["resources", "requests"]] {
            round_up(spec, amounts);
        }
        unless_set(spec, "volumeMode", "Filesystem");
    }
    if let Some(status) = object_at(claim, &["status"]) {
        for amounts in ["capacity", "allocatedResources"] {
            round_up(status, &[amounts]);
        }
        unless_set(status, "phase", "Pending");
    }
}

/// The rules of the spec of a claim, also in a template.
pub const SPEC: &[Rule] = &[
    Rule::required("accessModes", "at least 1 access mode is required"),
    ACCESS_MODES,
    ONE_POD_ALONE,
    Rule::new("selector", Check::By(selector::validate)),
    Rule::new("resources", Check::By(storage)),
    Rule::new("storageClassName", Check::Format(name::dns1123_subdomain)).unless_empty(),
    Rule::new("volumeAttributesClassName", Check::Format(name::dns1123_subdomain)).unless_empty(),
    Rule::new("volumeMode", Check::OneOf(&["Block", "Filesystem"])).if_present(),
    Rule::new("dataSource", Check::Rules(DATA_SOURCE)).if_present(),
    Rule::new("dataSourceRef", Check::Rules(DATA_SOURCE)).if_present(),
    Rule::new("dataSourceRef.namespace", Check::Format(name::dns1123_label)).unless_empty(),
    Rule::new("", Check::By(sources)),
];

/// Upstream omits `requests` from the path.
fn storage(resources: &Field<'_>, errors: &mut Vec<Error>) {
    let room = Field { path: resources.path.key("storage"), ..resources.field("requests").key("storage") };
    if room.is_absent() {
        errors.push(room.required(""));
    } else if Quantity::parse(room.text()).is_ok_and(|amount| amount <= Quantity::ZERO) {
        errors.push(room.invalid("must be greater than zero"));
    }
}

/// The rules of a reference to what fills the volume of a claim.
const DATA_SOURCE: &[Rule] = &[
    Rule::required("name", ""),
    Rule::required("kind", ""),
    Rule::new("apiGroup", Check::Format(name::dns1123_subdomain)).unless_empty(),
    Rule::new("", Check::By(kind_of_core)),
];

fn kind_of_core(source: &Field<'_>, errors: &mut Vec<Error>) {
    let kind = source.field("kind");
    if source.field("apiGroup").is_empty() && kind.text() != "PersistentVolumeClaim" {
        let why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.push(Error::invalid(&source.path, kind.text(), why));
    }
}

fn sources(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let (source, reference) = (spec.field("dataSource"), spec.field("dataSourceRef"));
    if source.is_absent() || reference.is_absent() {
        return;
    }
    let is_same =
        ["apiGroup", "kind", "name"].iter().all(|field| source.value.get(field) == reference.value.get(field));
    if !reference.field("namespace").is_empty() {
        errors.push(spec.invalid("may not be specified when dataSourceRef.namespace is specified"));
    } else if !is_same {
        errors.push(spec.invalid("must match dataSourceRef"));
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

fn update(change: &Change<'_>, errors: &mut Vec<Error>) {
    let (before, Change { new: spec, old }) = (change.old.value, change.field("spec"));
    let is_bound = str_at(before, &["status", "phase"]) == Some("Bound");
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
    let (room, room_before) = (spec.at(&path).key("storage"), old.at(&path).key("storage"));
    // The request may be smaller than before, but not smaller than the volume's capacity.
    let floor = str_at(before, &["status", "capacity", "storage"]).unwrap_or("0");
    // A removed request counts as zero.
    let wanted = if room.is_absent() { "0" } else { room.text() };
    let amounts = [wanted, room_before.text(), floor].map(Quantity::parse);
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
        && at(before, &["status", current]).is_some_and(|name| !name.is_null())
    {
        let what = if class.is_absent() { "nil" } else { "empty string" };
        errors.push(class.forbidden(format!("update to {what} is forbidden when status.{current} is not nil")));
    }
}

/// The states of the resize of a claim.
pub(in crate::builtin) const RESIZE_STATES: &[&str] = &[
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];

fn resize_states(states: &Field<'_>, errors: &mut Vec<Error>) {
    for (resource, state) in states.entries() {
        resource_key(resource, states, errors);
        if !RESIZE_STATES.contains(&state.text()) {
            errors.push(Error::not_supported(&states.path, resource, RESIZE_STATES));
        }
    }
}

fn allocated(amounts: &Field<'_>, errors: &mut Vec<Error>) {
    for (resource, amount) in amounts.entries() {
        let n_errors = errors.len();
        resource_key(resource, amounts, errors);
        if errors.len() == n_errors {
            persistent_volume::countable(&amount, errors);
        }
    }
}

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
        let storage = str_at(claim, &["status", "capacity", "storage"]);
        (Value::from(storage.unwrap_or("0")), access_modes(claim, "status"))
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
