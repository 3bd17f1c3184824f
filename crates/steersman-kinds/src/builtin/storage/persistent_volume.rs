//! PersistentVolume: provisioned storage.

use crate::builtin::kind::{Column, Kind, RULES, Version};
use crate::builtin::pods::pod::scheduling;
use crate::builtin::rules;
use crate::builtin::rules::cells;
use crate::builtin::rules::change::Change;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::quantity::round_up;
use crate::builtin::rules::rule::{Check, Rule};
use crate::builtin::storage::volume_source::{self, check_of_volume};
use crate::strategy::Rules;
use jiff::Timestamp;
use steersman_machinery::field::Error;
use steersman_machinery::quantity::Quantity;
use steersman_machinery::value::{at, object_at, set_at, str_at, unless_set};
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
    set_times: |new, old, now| {
        let phase = |volume| str_at(volume, &["status", "phase"]);
        let since = &["status", "lastPhaseTransitionTime"];
        if old.is_null() || at(new, since).is_some() {
            return;
        }
        let time = if phase(new) == phase(old) { at(old, since).cloned() } else { Some(Value::from(now)) };
        time.into_iter().for_each(|time| {
            set_at(new, since, time);
        });
    },
    validate: &[
        Rule::new("spec", Check::Rules(SPEC)),
        Rule::new("spec", Check::Change(source_unchanged)).on_update(),
        // Upstream omits `spec` from this path, and from that of the affinity.
        Rule::new("spec.volumeMode", Check::Immutable).blaming("volumeMode"),
        Rule::new("spec.volumeAttributesClassName", Check::Change(class_kept)).on_update(),
        Rule::new("spec.nodeAffinity", Check::Change(affinity_unchanged)).on_update().blaming("nodeAffinity"),
    ],
    warnings: |volume, _| {
        let is_recycled = str_at(volume, &["spec", "persistentVolumeReclaimPolicy"]) == Some("Recycle");
        let why = "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.";
        is_recycled.then(|| why.to_owned()).into_iter().collect()
    },
    rules: Rules { returns_deleted: true, ..RULES },
    ..Kind::CLUSTER
};

fn default(volume: &mut Value) {
    if let Some(status) = object_at(volume, &["status"]) {
        unless_set(status, "phase", "Pending");
    }
    let Some(spec) = object_at(volume, &["spec"]) else { return };
    round_up(spec, &["capacity"]);
    unless_set(spec, "persistentVolumeReclaimPolicy", "Retain");
    unless_set(spec, "volumeMode", "Filesystem");
    volume_source::default(spec);
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

/// The volume sources in the order in which they are checked, each with the name in upstream's errors.
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
    ("flexVolume", "flexVolume"),
    ("azureFile", "azureFile"),
    ("vsphereVolume", "vsphereVolume"),
    ("photonPersistentDisk", "photonPersistentDisk"),
    ("portworxVolume", "portworxVolume"),
    ("azureDisk", "azureDisk"),
    ("scaleIO", "scaleIO"),
    ("local", "local"),
    ("storageos", "storageos"),
    ("csi", "csi"),
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

/// An amount must not be negative. Upstream counts in 64 bits, so a larger number wraps around and becomes negative.
pub fn countable(amount: &Field<'_>, errors: &mut Vec<Error>) {
    let Ok(quantity) = Quantity::parse(amount.text()) else { return };
    let wrapped = amount.text().parse::<u64>().ok().map(u64::cast_signed);
    let whole = wrapped.unwrap_or_else(|| quantity.to_whole());
    if whole < 0 {
        errors.push(Error::invalid(&amount.path, whole, "must be a valid resource quantity"));
    }
}

fn amount(amount: &Field<'_>, errors: &mut Vec<Error>) {
    countable(amount, errors);
    let Ok(quantity) = Quantity::parse(amount.text()) else { return };
    if quantity.is_negative() || quantity.is_zero() {
        errors.push(amount.invalid("must be greater than zero"));
    }
}

fn sources(spec: &Field<'_>, errors: &mut Vec<Error>) {
    check_sources(spec, spec.field("nodeAffinity").is_present(), errors);
}

/// Upstream does not look at the nodes of an inline volume, which must not name any.
fn inline_sources(spec: &Field<'_>, errors: &mut Vec<Error>) {
    check_sources(spec, false, errors);
}

/// Checks that there is one source, and checks it. A local volume must say on which nodes it is.
fn check_sources(spec: &Field<'_>, has_nodes: bool, errors: &mut Vec<Error>) {
    let sources: Vec<_> = SOURCES.iter().filter(|(name, _)| spec.field(name).is_present()).collect();
    if sources.is_empty() {
        errors.push(spec.required("must specify a volume type"));
    }
    for (index, (source, blamed)) in sources.iter().enumerate() {
        // Upstream counts a flex volume, but never as one too many.
        if index == 0 || *source == "flexVolume" {
            check_of_volume(spec, source, errors);
        } else {
            errors.push(Error::forbidden(&spec.path.child(blamed), "may not specify more than 1 volume type"));
        }
    }
    if sources.first().is_some_and(|(source, _)| *source == "local") && !has_nodes {
        errors.push(spec.field("nodeAffinity").required("Local volume requires node affinity"));
    }
    let policy = spec.field("persistentVolumeReclaimPolicy");
    if policy.text() == "Recycle" && is_root(spec.at(&["hostPath", "path"]).text()) {
        errors.push(policy.forbidden("may not be 'recycle' for a hostPath mount of '/'"));
    }
}

/// Whether a path leads to the root of a file system.
fn is_root(path: &str) -> bool {
    path.starts_with('/') && path.split('/').all(|part| matches!(part, "" | "." | ".."))
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
    Rule::new("claimRef", Check::Forbidden(NOT_INLINE)).if_present(),
    Rule::new("nodeAffinity", Check::Forbidden(NOT_INLINE)).if_present(),
    Rule::new("storageClassName", Check::Forbidden(NOT_INLINE)).unless_empty(),
    Rule::present("csi", "has to be specified in the context of inline volumes"),
    Rule::new("", Check::By(inline_sources)),
    Rule::required("accessModes", ""),
    ACCESS_MODES,
    ONE_POD_ALONE,
    Rule::new("", Check::By(inline_options)),
];
const NOT_INLINE: &str = "may not be specified in the context of inline volumes";

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
        let mut old = change.old.value.clone();
        rename_keys(&mut old, change.new.value);
        rules::immutable(&change.new, &Field { value: &old, ..change.old.clone() }, errors);
    }
}

/// The keys of labels of nodes that have newer names.
const RENAMED: [(&str, &str); 5] = [
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
];

/// Gives the requirements of an affinity their newer keys where another one has them. An affinity may change so. Upstream takes an empty key,
/// which is an error of its own, for the newer name of all other keys.
fn rename_keys(old: &mut Value, new: &Value) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            if let (Some(Value::String(key)), Some(other)) =
                (old.get_mut("key"), new.get("key").and_then(Value::as_str))
            {
                let newer = RENAMED.iter().find(|(older, _)| *older == key).map_or("", |(_, newer)| newer);
                if newer == other {
                    newer.clone_into(key);
                }
            }
            for (name, old) in old.iter_mut() {
                rename_keys(old, new.get(name).unwrap_or(&Value::Null));
            }
        }
        (Value::Array(old), Value::Array(new)) => old.iter_mut().zip(new).for_each(|(old, new)| rename_keys(old, new)),
        _ => {}
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
