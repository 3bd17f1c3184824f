//! The rules of volume sources, those of Pods and those of PersistentVolumes. Sources that only Pods have, and that have rules of their own, are
//! in `builtin::pods::pod::volume_source`.

use crate::builtin::rules;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule, check_field};
use crate::builtin::storage::csi::driver_name;
use regex::Regex;
use std::sync::LazyLock;
use steersman_machinery::field::Error;
use steersman_machinery::value::{Map, unless_set};
use steersman_machinery::{Value, name};

/// The source of a volume: its field, the field that errors blame, and its rules.
struct Source {
    field: &'static str,
    blamed: &'static str,
    rules: &'static [Rule],
}

const fn source(field: &'static str, rules: &'static [Rule]) -> Source {
    Source { field, blamed: field, rules }
}

/// The sources that Pods and PersistentVolumes have in common.
const COMMON: [Source; 17] = [
    source("awsElasticBlockStore", BLOCK_STORE),
    source("azureDisk", AZURE_DISK),
    source("azureFile", AZURE_FILE),
    source("cephfs", CEPH_FS),
    source("fc", FIBRE_CHANNEL),
    source("flexVolume", FLEX),
    source("flocker", FLOCKER),
    // Upstream's field has another name.
    Source { field: "gcePersistentDisk", blamed: "persistentDisk", rules: PERSISTENT_DISK },
    source("glusterfs", GLUSTER_FS),
    source("hostPath", HOST_PATH),
    source("nfs", NFS),
    source("photonPersistentDisk", PHOTON),
    source("portworxVolume", PORTWORX),
    source("quobyte", QUOBYTE),
    source("rbd", RBD),
    source("scaleIO", SCALE_IO),
    source("vsphereVolume", VSPHERE),
];

/// The sources whose rules in a Pod differ from those in a PersistentVolume.
const OF_POD: [Source; 4] = [
    source("cinder", CINDER_OF_POD),
    source("csi", CSI_OF_POD),
    source("iscsi", ISCSI_OF_POD),
    source("storageos", STORAGE_OS_OF_POD),
];

const OF_VOLUME: [Source; 7] = [
    source("azureFile", AZURE_FILE_OF_VOLUME),
    source("cinder", CINDER_OF_VOLUME),
    source("csi", CSI_OF_VOLUME),
    source("glusterfs", GLUSTER_FS_OF_VOLUME),
    source("iscsi", ISCSI_OF_VOLUME),
    source("local", LOCAL),
    source("storageos", STORAGE_OS_OF_VOLUME),
];

/// Sets the defaults of the sources of `holder`: a volume of a Pod, or the spec of a PersistentVolume.
pub fn default(holder: &mut Map) {
    for (source, fields) in holder.iter_mut().filter_map(|(name, value)| Some((name, value.as_object_mut()?))) {
        match source.as_str() {
            "azureDisk" => {
                unless_set(fields, "cachingMode", "ReadWrite");
                unless_set(fields, "fsType", "ext4");
                unless_set(fields, "kind", "Shared");
                unless_set(fields, "readOnly", false);
            }
            "hostPath" => unless_set(fields, "type", ""),
            "iscsi" => unless_set(fields, "iscsiInterface", "default"),
            "rbd" => {
                unless_set(fields, "keyring", "/etc/ceph/keyring");
                unless_set(fields, "pool", "rbd");
                unless_set(fields, "user", "admin");
            }
            "scaleIO" => {
                unless_set(fields, "fsType", "xfs");
                unless_set(fields, "storageMode", "ThinProvisioned");
            }
            _ => {}
        }
    }
}

/// Checks a source of a Pod.
pub fn check_of_pod(volume: &Field<'_>, source: &str, errors: &mut Vec<Error>) {
    check(&COMMON, volume, source, errors);
    check(&OF_POD, volume, source, errors);
}

/// Checks a source of a PersistentVolume.
pub fn check_of_volume(spec: &Field<'_>, source: &str, errors: &mut Vec<Error>) {
    check(&COMMON, spec, source, errors);
    check(&OF_VOLUME, spec, source, errors);
}

fn check(sources: &[Source], holder: &Field<'_>, name: &str, errors: &mut Vec<Error>) {
    for source in sources.iter().filter(|source| source.field == name) {
        let field = Field { path: holder.path.child(source.blamed), ..holder.field(source.field) };
        check_field(source.rules, &field, errors);
    }
}

const SECRET: &[Rule] = &[Rule::required("name", "")];
const SECRET_OF_VOLUME: &[Rule] = &[Rule::required("name", ""), Rule::required("namespace", "")];
/// The reference of a PersistentVolume to a Secret for its driver.
const SECRET_OF_DRIVER: &[Rule] = &[
    Rule::new("name", Check::Format(name::dns1123_subdomain)).and_required(""),
    Rule::new("namespace", Check::Format(name::dns1123_label)).and_required(""),
];

const PARTITION: Check = Check::Between(0, 255, "must be between 1 and 255, inclusive");
const LUN: Check = Check::Within(0, 255);

pub(in crate::builtin) const BLOCK_STORE: &[Rule] =
    &[Rule::required("volumeID", ""), Rule::new("partition", PARTITION)];

pub(in crate::builtin) const PERSISTENT_DISK: &[Rule] =
    &[Rule::required("pdName", ""), Rule::new("partition", PARTITION)];

pub(in crate::builtin) const AZURE_DISK: &[Rule] = &[
    Rule::required("diskName", ""),
    Rule::required("diskURI", ""),
    Rule::new("cachingMode", Check::OneOf(&["None", "ReadOnly", "ReadWrite"])).if_present(),
    Rule::new("kind", Check::OneOf(&["Dedicated", "Managed", "Shared"])).if_present(),
    Rule::new("", Check::By(disk_uri)),
];

fn disk_uri(disk: &Field<'_>, errors: &mut Vec<Error>) {
    const MANAGED: &str =
        "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
    const BLOB: &str = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
    let (kind, uri) = (disk.field("kind"), disk.field("diskURI"));
    let (prefix, form) = if kind.text() == "Managed" { ("/subscriptions/", MANAGED) } else { ("https://", BLOB) };
    if kind.is_present() && !uri.text().starts_with(prefix) {
        errors.push(Error::not_supported(&uri.path, uri.text(), &[form]));
    }
}

pub(in crate::builtin) const AZURE_FILE: &[Rule] = &[Rule::required("secretName", ""), Rule::required("shareName", "")];
pub(in crate::builtin) const AZURE_FILE_OF_VOLUME: &[Rule] = &[Rule::new("secretNamespace", Check::By(not_empty))];

/// The text may be absent, not empty.
fn not_empty(field: &Field<'_>, errors: &mut Vec<Error>) {
    if field.is_present() {
        rules::required(field, errors);
    }
}

pub(in crate::builtin) const CEPH_FS: &[Rule] = &[Rule::required("monitors", "")];

pub(in crate::builtin) const CINDER_OF_POD: &[Rule] =
    &[Rule::required("volumeID", ""), Rule::new("secretRef", Check::Rules(SECRET)).if_present()];
pub(in crate::builtin) const CINDER_OF_VOLUME: &[Rule] =
    &[Rule::required("volumeID", ""), Rule::new("secretRef", Check::Rules(SECRET_OF_VOLUME)).if_present()];

pub(in crate::builtin) const CSI_OF_POD: &[Rule] = &[
    Rule::new("driver", Check::By(driver_name)),
    Rule::new("nodePublishSecretRef", Check::Rules(SECRET)).if_present(),
    // Upstream omits the reference from this path.
    Rule::new("nodePublishSecretRef.name", Check::Format(name::dns1123_subdomain)).unless_empty().blaming("name"),
];
pub(in crate::builtin) const CSI_OF_VOLUME: &[Rule] = &[
    Rule::new("driver", Check::By(driver_name)),
    Rule::required("volumeHandle", ""),
    Rule::new("controllerPublishSecretRef", Check::Rules(SECRET_OF_DRIVER)).if_present(),
    Rule::new("controllerExpandSecretRef", Check::Rules(SECRET_OF_DRIVER)).if_present(),
    Rule::new("nodePublishSecretRef", Check::Rules(SECRET_OF_DRIVER)).if_present(),
    Rule::new("nodeExpandSecretRef", Check::Rules(SECRET_OF_DRIVER)).if_present(),
];

pub(in crate::builtin) const FIBRE_CHANNEL: &[Rule] = &[Rule::new("", Check::By(fibre_channel))];

fn fibre_channel(source: &Field<'_>, errors: &mut Vec<Error>) {
    let (names, lun) = (source.field("targetWWNs"), source.field("lun"));
    match (names.is_empty(), source.field("wwids").is_empty()) {
        (true, true) => errors.push(names.required("must specify either targetWWNs or wwids, but not both")),
        (false, false) => errors.push(names.invalid("targetWWNs and wwids can not be specified simultaneously")),
        _ => {}
    }
    if !names.is_empty() && lun.is_absent() {
        errors.push(lun.required("lun is required if targetWWNs is specified"));
    } else if !names.is_empty() {
        LUN.of(&lun, errors);
    }
}

pub(in crate::builtin) const FLEX: &[Rule] =
    &[Rule::required("driver", ""), Rule::new("options", Check::By(flex_options))];

fn flex_options(options: &Field<'_>, errors: &mut Vec<Error>) {
    for (key, option) in options.entries() {
        let domain = format!(".{}", key.split('/').next().unwrap_or_default().to_lowercase());
        if [".kubernetes.io", ".k8s.io"].iter().any(|reserved| domain.ends_with(reserved)) {
            errors.push(Error::invalid(&option.path, key, "kubernetes.io and k8s.io namespaces are reserved"));
        }
    }
}

pub(in crate::builtin) const FLOCKER: &[Rule] = &[
    Rule::new("", Check::By(data_set)),
    Rule::new("datasetName", Check::Text(|name| !name.contains('/'), "must not contain '/'")),
];

fn data_set(source: &Field<'_>, errors: &mut Vec<Error>) {
    match (source.field("datasetName").is_empty(), source.field("datasetUUID").is_empty()) {
        (true, true) => errors.push(source.required("one of datasetName and datasetUUID is required")),
        (false, false) => {
            let why = "datasetName and datasetUUID can not be specified simultaneously";
            errors.push(Error::invalid(&source.path, Value::from("resource"), why));
        }
        _ => {}
    }
}

pub(in crate::builtin) const GLUSTER_FS: &[Rule] = &[Rule::required("endpoints", ""), Rule::required("path", "")];
pub(in crate::builtin) const GLUSTER_FS_OF_VOLUME: &[Rule] = &[
    Rule::new(
        "endpointsNamespace",
        Check::Text(|name| !name.is_empty(), "if the endpointnamespace is set, it must be a valid namespace name"),
    )
    .if_present(),
    Rule::new("endpointsNamespace", Check::Format(name::dns1123_label)).unless_empty(),
];

pub(in crate::builtin) const HOST_PATH: &[Rule] = &[
    Rule::new("path", Check::By(rules::no_backsteps)).and_required(""),
    Rule::new(
        "type",
        Check::OneOf(&[
            "",
            "BlockDevice",
            "CharDevice",
            "Directory",
            "DirectoryOrCreate",
            "File",
            "FileOrCreate",
            "Socket",
        ]),
    )
    .if_present(),
];

pub(in crate::builtin) const ISCSI_OF_POD: &[Rule] = &[
    Rule::required("targetPortal", ""),
    Rule::new("iqn", Check::By(initiator)).and_required(""),
    Rule::new("lun", LUN),
    Rule::new("", Check::By(chap_secret)),
    Rule::new("initiatorName", Check::By(initiator)).if_present().blaming("initiatorname"),
];
pub(in crate::builtin) const ISCSI_OF_VOLUME: &[Rule] = &[
    Rule::required("targetPortal", ""),
    Rule::new("iqn", Check::By(initiator)).and_required(""),
    Rule::new("lun", LUN),
    Rule::new("", Check::By(chap_secret)),
    Rule::new("secretRef", Check::Rules(SECRET)).if_present(),
    Rule::new("initiatorName", Check::By(initiator)).if_present().blaming("initiatorname"),
];

/// The forms of an iSCSI name, by its first letters.
static INITIATORS: LazyLock<[(&str, Regex); 3]> = LazyLock::new(|| {
    let form = |text: &str| Regex::new(text).expect("invariant: the pattern is valid");
    [
        ("iqn", form(r"iqn\.[0-9]{4}-[0-9]{2}\.([[:alnum:]\-.]+)(:[^,;*&$|\t\n\f\r ]+)$")),
        ("eui", form(r"^eui.[[:alnum:]]{16}$")),
        ("naa", form(r"^naa.[[:alnum:]]{32}$")),
    ]
});

fn initiator(name: &Field<'_>, errors: &mut Vec<Error>) {
    match INITIATORS.iter().find(|(prefix, _)| name.text().starts_with(prefix)) {
        None => errors.push(name.invalid("must be valid format starting with iqn, eui, or naa")),
        Some((_, form)) if !form.is_match(name.text()) => errors.push(name.invalid("must be valid format")),
        Some(_) => {}
    }
}

fn chap_secret(source: &Field<'_>, errors: &mut Vec<Error>) {
    let secret = source.field("secretRef");
    if (source.field("chapAuthDiscovery").flag() || source.field("chapAuthSession").flag()) && secret.is_absent() {
        errors.push(secret.required(""));
    }
}

pub(in crate::builtin) const LOCAL: &[Rule] = &[Rule::new("path", Check::By(rules::no_backsteps)).and_required("")];

pub(in crate::builtin) const NFS: &[Rule] = &[
    Rule::required("server", ""),
    Rule::required("path", ""),
    Rule::new("path", Check::Text(|path| path.starts_with('/'), "must be an absolute path")),
];

pub(in crate::builtin) const PHOTON: &[Rule] = &[Rule::required("pdID", "")];
pub(in crate::builtin) const PORTWORX: &[Rule] = &[Rule::required("volumeID", "")];

pub(in crate::builtin) const QUOBYTE: &[Rule] =
    &[Rule::new("", Check::By(quobyte_registry)), Rule::required("volume", "")];

fn quobyte_registry(source: &Field<'_>, errors: &mut Vec<Error>) {
    const TENANT_LENGTH_MAX: usize = 64;
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let (registry, tenant) = (source.field("registry"), source.field("tenant"));
    if registry.is_empty() {
        errors.push(registry.required(PAIRS));
    } else if TENANT_LENGTH_MAX < tenant.text().len() {
        errors.push(tenant.required("must be a UUID and may not exceed a length of 64 characters"));
    } else if !registry.text().split(',').all(is_host_and_port) {
        errors.push(registry.invalid(PAIRS));
    }
}

/// Whether Go's `net.SplitHostPort` splits a text: an IPv6 address is in brackets.
fn is_host_and_port(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| {
        let is_bracketed = host.starts_with('[') && host.ends_with(']');
        !port.contains(['[', ']']) && (is_bracketed || !host.contains([':', '[', ']']))
    })
}

pub(in crate::builtin) const RBD: &[Rule] = &[Rule::required("monitors", ""), Rule::required("image", "")];

pub(in crate::builtin) const SCALE_IO: &[Rule] =
    &[Rule::required("gateway", ""), Rule::required("system", ""), Rule::required("volumeName", "")];

const STORAGE_OS: &[Rule] = &[
    Rule::new("volumeName", Check::Format(name::dns1123_label)).and_required(""),
    Rule::new("volumeNamespace", Check::Format(name::dns1123_label)).unless_empty(),
];
pub(in crate::builtin) const STORAGE_OS_OF_POD: &[Rule] =
    &[Rule::new("", Check::Rules(STORAGE_OS)), Rule::new("secretRef", Check::Rules(SECRET)).if_present()];
pub(in crate::builtin) const STORAGE_OS_OF_VOLUME: &[Rule] =
    &[Rule::new("", Check::Rules(STORAGE_OS)), Rule::new("secretRef", Check::Rules(SECRET_OF_VOLUME)).if_present()];

pub(in crate::builtin) const VSPHERE: &[Rule] = &[Rule::required("volumePath", "")];
