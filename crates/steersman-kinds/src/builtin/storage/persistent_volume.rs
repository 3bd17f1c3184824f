//! PersistentVolume: provisioned storage.

use crate::builtin::kind::{Column, Kind, RULES, Version};
use crate::builtin::pods::pod::defaults::unless_set;
use crate::builtin::pods::pod::scheduling;
use crate::builtin::rules;
use crate::builtin::rules::cells;
use crate::builtin::rules::change::Change;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule};
use crate::builtin::storage::csi::driver_name;
use crate::strategy::Rules;
use jiff::Timestamp;
use steersman_machinery::field::Error;
use steersman_machinery::quantity::Quantity;
use steersman_machinery::value::{at, object_at, set_at, str_at};
use steersman_machinery::{Value, name};

pub const KIND: Kind = Kind {
    kind: "PersistentVolume",
    plural: "persistentvolumes",
    singular: "persistentvolume",
    short_names: &["pv"],
    versions: &[Version {
        definition: "io.k8s.api.core.v1.PersistentVolume",
        has_status: true,
        columns: &[
            Column::NAME,
            Column::text("Capacity", "How much room it has."),
            Column::text("Access Modes", "How it can be used."),
            Column::text("Reclaim Policy", "What becomes of it when its claim goes."),
            Column::text("Status", "Whether it has a claim."),
            Column::text("Claim", "The claim it has."),
            Column::text("StorageClass", "The sort of volume it is."),
            Column::text("VolumeAttributesClass", "The attributes it has."),
            Column::text("Reason", "Why it failed."),
            Column::AGE,
            Column::text("VolumeMode", "Whether it is a file system or a bare device.").wide(),
        ],
        cells,
        default,
        ..Version::V1
    }],
    prepare_create: |volume| {
        set_at(volume, &["status", "phase"], Value::from("Pending"));
        // The first phase begins at the creation.
        let created = at(volume, &["metadata", "creationTimestamp"]).cloned();
        if let Some(created) = created {
            set_at(volume, &["status", "lastPhaseTransitionTime"], created);
        }
    },
    validate: &[
        Rule::new("spec", Check::Rules(SPEC)),
        Rule::new("spec", Check::Change(source_unchanged)).on_update(),
        // Upstream omits `spec` from this path, and from that of the affinity.
        Rule::new("spec.volumeMode", Check::Immutable).blaming("volumeMode"),
        Rule::new("spec.volumeAttributesClassName", Check::Change(class_kept)).on_update(),
        Rule::new("spec.nodeAffinity", Check::Change(affinity_unchanged)).on_update().blaming("nodeAffinity"),
    ],
    rules: Rules { returns_deleted: true, ..RULES },
    ..Kind::CLUSTER
};

fn default(volume: &mut Value) {
    if let Some(status) = object_at(volume, &["status"]) {
        unless_set(status, "phase", "Pending");
    }
    let Some(spec) = object_at(volume, &["spec"]) else { return };
    unless_set(spec, "persistentVolumeReclaimPolicy", "Retain");
    unless_set(spec, "volumeMode", "Filesystem");
    if let Some(path) = spec.get_mut("hostPath").and_then(Value::as_object_mut) {
        unless_set(path, "type", "");
    }
}

/// The fields of the spec that are not a volume source.
const PLAIN: [&str; 10] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
    "volumeName",
];

/// The volume sources in the order in which they are checked, each with the name in upstream's errors. `flexVolume`
/// never counts as one too many.
const SOURCES: [(&str, &str); 22] = [
    ("hostPath", "hostPath"),
    ("gcePersistentDisk", "gcePersistentDisk"),
    ("awsElasticBlockStore", "awsElasticBlockStore"),
    ("glusterfs", "glusterfs"),
    ("flocker", "flocker"),
    ("nfs", "nfs"),
    ("rbd", "rbd"),
    ("quobyte", "quobyte"),
    ("cephfs", "cephFS"),
    ("iscsi", "iscsi"),
    ("cinder", "cinder"),
    ("fc", "fc"),
    ("azureFile", "azureFile"),
    ("vsphereVolume", "vsphereVolume"),
    ("photonPersistentDisk", "photonPersistentDisk"),
    ("portworxVolume", "portworxVolume"),
    ("azureDisk", "azureDisk"),
    ("scaleIO", "scaleIO"),
    ("local", "local"),
    ("storageos", "storageos"),
    ("csi", "csi"),
    ("flexVolume", "flexVolume"),
];

const SPEC: &[Rule] = &[
    Rule::required("accessModes", ""),
    ACCESS_MODES,
    ONE_POD_ALONE,
    Rule::new("capacity", Check::By(only_storage)).and_required(""),
    Rule::new("capacity.*", Check::By(amount)),
    Rule::new("", Check::By(sources)),
    Rule::new("persistentVolumeReclaimPolicy", Check::OneOf(&["Delete", "Recycle", "Retain"])),
    Rule::new("storageClassName", Check::Format(name::dns1123_subdomain)).unless_empty(),
    Rule::new("volumeMode", Check::OneOf(&["Block", "Filesystem"])).if_present(),
    Rule::new("volumeAttributesClassName", Check::Rules(ATTRIBUTES_CLASS)).if_present(),
    Rule::new("", Check::By(attributes)),
    Rule::new("nodeAffinity", Check::Rules(AFFINITY)).if_present(),
];

const ATTRIBUTES_CLASS: &[Rule] =
    &[Rule::new("", Check::Format(name::dns1123_subdomain)).and_required("an empty string is disallowed")];

const AFFINITY: &[Rule] =
    &[Rule::new("required", Check::By(scheduling::node_selector))
        .and_present("must specify required node constraints")];

/// The modes of a volume or a claim; upstream's errors are about the list.
pub const ACCESS_MODES: Rule =
    Rule::new("accessModes[]", Check::OneOf(&["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"]))
        .blaming("accessModes");
pub const ONE_POD_ALONE: Rule = Rule::new("accessModes", Check::By(one_pod_alone));

fn one_pod_alone(modes: &Field<'_>, errors: &mut Vec<Error>) {
    let is_for_one_pod = |mode: Field<'_>| mode.text() == "ReadWriteOncePod";
    if modes.items().any(is_for_one_pod) && !modes.items().all(is_for_one_pod) {
        errors.push(modes.forbidden("may not use ReadWriteOncePod with other access modes"));
    }
}

fn only_storage(capacity: &Field<'_>, errors: &mut Vec<Error>) {
    if capacity.key("storage").is_absent() || capacity.entries().count() > 1 {
        errors.push(capacity.not_supported(&["storage"]));
    }
}

fn amount(amount: &Field<'_>, errors: &mut Vec<Error>) {
    let Ok(quantity) = Quantity::parse(amount.text()) else { return };
    if quantity.to_whole() < 0 {
        let why = "must be a valid resource quantity";
        errors.push(Error::invalid(&amount.path, quantity.to_whole(), why));
    }
    if quantity.is_negative() || quantity.is_zero() {
        errors.push(amount.invalid("must be greater than zero"));
    }
}

fn sources(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let mut sources = SOURCES.iter().filter(|(name, _)| spec.field(name).is_present());
    match sources.next() {
        None => errors.push(spec.required("must specify a volume type")),
        Some(("hostPath", _)) => {
            let path = spec.at(&["hostPath", "path"]);
            rules::required(&path, errors);
            rules::no_backsteps(&path, errors);
        }
        Some(_) => {}
    }
    for (_, blamed) in sources {
        errors.push(Error::forbidden(&spec.path.child(blamed), "may not specify more than 1 volume type"));
    }
}

/// Validates the volume attributes class, which only CSI volumes have.
fn attributes(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let csi = spec.field("csi");
    if spec.field("volumeAttributesClassName").is_present() && csi.is_absent() {
        errors.push(csi.required("has to be specified when using volumeAttributesClassName"));
    }
}

/// The rules of an inline spec in another object: it must be a CSI volume, and must not be claimed.
pub const INLINE: &[Rule] = &[
    Rule::new("capacity", Check::Forbidden(NOT_INLINE)).unless_empty(),
    Rule::new("claimRef", Check::Forbidden(NOT_INLINE)).unless_empty(),
    Rule::new("nodeAffinity", Check::Forbidden(NOT_INLINE)).unless_empty(),
    Rule::new("storageClassName", Check::Forbidden(NOT_INLINE)).unless_empty(),
    Rule::new("csi", Check::Rules(&[Rule::new("driver", Check::By(driver_name)), Rule::required("volumeHandle", "")]))
        .and_present("has to be specified in the context of inline volumes"),
    Rule::new("", Check::By(csi_or_nothing)),
    Rule::required("accessModes", ""),
    ACCESS_MODES,
    ONE_POD_ALONE,
    Rule::new("volumeAttributesClassName", Check::Rules(ATTRIBUTES_CLASS)).if_present(),
    Rule::new("", Check::By(attributes)),
    Rule::new("", Check::By(inline_options)),
];
const NOT_INLINE: &str = "may not be specified in the context of inline volumes";

fn csi_or_nothing(spec: &Field<'_>, errors: &mut Vec<Error>) {
    if spec.field("csi").is_absent() {
        errors.push(spec.required("must specify a volume type"));
    }
}

fn inline_options(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let (policy, mode) = (spec.field("persistentVolumeReclaimPolicy"), spec.field("volumeMode"));
    if !matches!(policy.text(), "" | "Retain") {
        errors.push(policy.forbidden("may only be Retain in the context of inline volumes"));
    }
    if !matches!(mode.text(), "" | "Filesystem") {
        let why = "may not specify volumeMode other than Filesystem in the context of inline volumes";
        errors.push(mode.forbidden(why));
    }
}

fn source_unchanged(Change { new, old }: &Change<'_>, errors: &mut Vec<Error>) {
    let source = |spec: &Field<'_>| {
        let mut source = spec.value.clone();
        if let Some(fields) = source.as_object_mut() {
            fields.retain(|name, _| !PLAIN.contains(&name.as_str()));
        }
        source
    };
    if source(new) != source(old) {
        let path = new.field("persistentvolumesource");
        errors.push(path.forbidden("spec.persistentvolumesource is immutable after creation"));
    }
}

fn class_kept(Change { new, old }: &Change<'_>, errors: &mut Vec<Error>) {
    if new.is_absent() && old.is_present() {
        errors.push(new.forbidden("update from non-nil value to nil is forbidden"));
    }
}

/// An affinity may be added, not changed.
fn affinity_unchanged(change: &Change<'_>, errors: &mut Vec<Error>) {
    if change.old.is_present() {
        rules::immutable(&change.new, &change.old, errors);
    }
}

/// `RWO,RWX`: the access modes of the spec or the status.
pub fn access_modes(object: &Value, part: &str) -> String {
    let modes = at(object, &[part, "accessModes"]).and_then(Value::as_array).into_iter().flatten();
    let has: Vec<&str> = modes.filter_map(Value::as_str).collect();
    let short =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let short: Vec<&str> = short.into_iter().filter(|(mode, _)| has.contains(mode)).map(|(_, short)| short).collect();
    short.join(",")
}

fn cells(volume: &Value, now: Timestamp) -> Vec<Value> {
    let is_deleting = at(volume, &["metadata", "deletionTimestamp"]).is_some();
    let phase = if is_deleting { Value::from("Terminating") } else { cells::text(volume, &["status", "phase"]) };
    let claim = |field: &str| str_at(volume, &["spec", "claimRef", field]).unwrap_or_default();
    let claim = if at(volume, &["spec", "claimRef"]).is_some() {
        format!("{}/{}", claim("namespace"), claim("name"))
    } else {
        String::new()
    };
    vec![
        cells::name(volume),
        cells::text(volume, &["spec", "capacity", "storage"]),
        Value::from(access_modes(volume, "spec")),
        cells::text(volume, &["spec", "persistentVolumeReclaimPolicy"]),
        phase,
        Value::from(claim),
        cells::text(volume, &["spec", "storageClassName"]),
        Value::from(str_at(volume, &["spec", "volumeAttributesClassName"]).unwrap_or("<unset>")),
        cells::text(volume, &["status", "reason"]),
        cells::age(volume, now),
        Value::from(str_at(volume, &["spec", "volumeMode"]).unwrap_or("<unset>")),
    ]
}
