//! PersistentVolume: provisioned storage.

use crate::builtin::kind::{Column, Kind, RULES, Request, Version};
use crate::builtin::pods::pod::defaults::unless_set;
use crate::builtin::pods::pod::scheduling;
use crate::builtin::rules;
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
use crate::builtin::storage::csi::driver_name;
use crate::strategy::Rules;
use jiff::Timestamp;
use steersman_machinery::field::{Error, Path};
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
    validate_create: |request, errors| validate(&Field::root(request.new).field("spec"), errors),
    validate_update,
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

fn validate(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let capacity = spec.field("capacity");
    access_modes_of(&spec.field("accessModes"), errors);
    if capacity.is_empty() {
        errors.push(capacity.required(""));
    } else if capacity.key("storage").is_absent() || capacity.entries().count() > 1 {
        errors.push(capacity.not_supported(&["storage"]));
    }
    for (_, amount) in capacity.entries() {
        let Ok(quantity) = Quantity::parse(amount.text()) else { continue };
        if quantity.to_whole() < 0 {
            let why = "must be a valid resource quantity";
            errors.push(Error::invalid(&amount.path, quantity.to_whole(), why));
        }
        if quantity.is_negative() || quantity.is_zero() {
            errors.push(amount.invalid("must be greater than zero"));
        }
    }
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
    let policies = ["Delete", "Recycle", "Retain"];
    rules::one_of(&spec.field("persistentVolumeReclaimPolicy"), &policies, errors);
    let class = spec.field("storageClassName");
    if !class.is_empty() {
        rules::named(&class, name::dns1123_subdomain, errors);
    }
    rules::one_of_if_present(&spec.field("volumeMode"), &["Block", "Filesystem"], errors);
    attributes(spec, errors);
    let affinity = spec.field("nodeAffinity");
    let required = affinity.field("required");
    if required.is_present() {
        scheduling::node_selector(&required, errors);
    } else if affinity.is_present() {
        errors.push(required.required("must specify required node constraints"));
    }
}

/// Validates the volume attributes class, which only CSI volumes have.
fn attributes(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let (class, csi) = (spec.field("volumeAttributesClassName"), spec.field("csi"));
    if class.is_absent() {
        return;
    }
    if class.is_empty() {
        errors.push(class.required("an empty string is disallowed"));
    } else {
        rules::named(&class, name::dns1123_subdomain, errors);
    }
    if csi.is_absent() {
        errors.push(csi.required("has to be specified when using volumeAttributesClassName"));
    }
}

/// Validates an inline spec in another object: it must be a CSI volume, and must not be claimed.
pub fn validate_inline(spec: &Field<'_>, errors: &mut Vec<Error>) {
    const INLINE: &str = "in the context of inline volumes";
    for name in ["capacity", "claimRef", "nodeAffinity", "storageClassName"] {
        let field = spec.field(name);
        if !field.is_empty() {
            errors.push(field.forbidden(format!("may not be specified {INLINE}")));
        }
    }
    let (csi, modes) = (spec.field("csi"), spec.field("accessModes"));
    if csi.is_absent() {
        errors.push(csi.required(&format!("has to be specified {INLINE}")));
        errors.push(spec.required("must specify a volume type"));
    } else {
        driver_name(&csi.field("driver"), errors);
        rules::required(&csi.field("volumeHandle"), errors);
    }
    access_modes_of(&modes, errors);
    attributes(spec, errors);
    let policy = spec.field("persistentVolumeReclaimPolicy");
    if !matches!(policy.text(), "" | "Retain") {
        errors.push(policy.forbidden(format!("may only be Retain {INLINE}")));
    }
    let mode = spec.field("volumeMode");
    if !matches!(mode.text(), "" | "Filesystem") {
        errors.push(mode.forbidden(format!("may not specify volumeMode other than Filesystem {INLINE}")));
    }
}

fn access_modes_of(modes: &Field<'_>, errors: &mut Vec<Error>) {
    const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    rules::required(modes, errors);
    modes.items().for_each(|mode| rules::one_of(&Field { path: modes.path.clone(), ..mode }, &MODES, errors));
    let is_for_one_pod = modes.items().any(|mode| mode.text() == "ReadWriteOncePod");
    if is_for_one_pod && modes.items().any(|mode| mode.text() != "ReadWriteOncePod") {
        errors.push(modes.forbidden("may not use ReadWriteOncePod with other access modes"));
    }
}

fn validate_update(request: &Request<'_>, errors: &mut Vec<Error>) {
    let (spec, old) = (Field::root(request.new).field("spec"), Field::root(request.old).field("spec"));
    validate(&spec, errors);
    let source = |spec: &Value| {
        let mut source = spec.clone();
        if let Some(fields) = source.as_object_mut() {
            fields.retain(|name, _| !PLAIN.contains(&name.as_str()));
        }
        source
    };
    if source(spec.value) != source(old.value) {
        let path = spec.field("persistentvolumesource");
        errors.push(path.forbidden("spec.persistentvolumesource is immutable after creation"));
    }
    // Upstream omits `spec` from this path, and from the next but one.
    let mode = Field { path: Path::new("volumeMode"), ..spec.field("volumeMode") };
    rules::immutable(&mode, &old.field("volumeMode"), errors);
    let class = spec.field("volumeAttributesClassName");
    if class.is_absent() && old.field("volumeAttributesClassName").is_present() {
        errors.push(class.forbidden("update from non-nil value to nil is forbidden"));
    }
    if old.field("nodeAffinity").is_present() {
        let affinity = Field { path: Path::new("nodeAffinity"), ..spec.field("nodeAffinity") };
        rules::immutable(&affinity, &old.field("nodeAffinity"), errors);
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
