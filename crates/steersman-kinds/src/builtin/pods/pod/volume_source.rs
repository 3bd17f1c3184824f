//! Validation of volume sources.

use crate::builtin::pods::pod::container::environment::{FILE_FIELDS, field_reference, resource_reference};
use crate::builtin::rules;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule, check_field};
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::name;
use steersman_machinery::quantity::Quantity;

/// The required fields of each kind of source; sources with more rules are below.
const REQUIRED: [(&str, &[&str]); 19] = [
    ("awsElasticBlockStore", &["volumeID"]),
    ("azureDisk", &["diskName", "diskURI"]),
    ("azureFile", &["secretName", "shareName"]),
    ("cephfs", &["monitors"]),
    ("cinder", &["volumeID"]),
    ("configMap", &["name"]),
    ("csi", &["driver"]),
    ("ephemeral", &["volumeClaimTemplate"]),
    ("flexVolume", &["driver"]),
    ("gcePersistentDisk", &["pdName"]),
    ("gitRepo", &["repository"]),
    ("glusterfs", &["endpoints", "path"]),
    ("hostPath", &["path"]),
    ("nfs", &["server", "path"]),
    ("persistentVolumeClaim", &["claimName"]),
    ("portworxVolume", &["volumeID"]),
    ("rbd", &["monitors", "image"]),
    ("secret", &["secretName"]),
    ("vsphereVolume", &["volumePath"]),
];

/// The kinds of sources in order of precedence: the first one is used.
const SOURCES: [&str; 30] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];
/// The sources of a projected volume, in order of precedence.
const PROJECTED: [&str; 6] =
    ["secret", "configMap", "downwardAPI", "serviceAccountToken", "clusterTrustBundle", "podCertificate"];

/// The names of the fields, the known ones first and in order.
fn in_order<'a>(field: &Field<'a>, order: &[&str]) -> Vec<&'a str> {
    let fields = field.value.as_object().into_iter().flatten();
    let mut names: Vec<&str> = fields.map(|(name, _)| name.as_str()).collect();
    names.sort_by_key(|name| order.iter().position(|known| known == name).unwrap_or(order.len()));
    names
}

/// Validates the source of a volume, and returns its name.
pub(super) fn validate<'a>(volume: &Field<'a>, errors: &mut Vec<Error>) -> Option<&'a str> {
    let mut sources = in_order(volume, &SOURCES).into_iter().filter(|name| *name != "name");
    let Some(first) = sources.next() else {
        errors.push(volume.required("must specify a volume type"));
        return None;
    };
    errors.extend(sources.map(|name| {
        // Upstream misspells two fields.
        let field = match name {
            "cephfs" => volume.field("cephFS"),
            "downwardAPI" => volume.field("downwarAPI"),
            name => volume.field(name),
        };
        field.forbidden("may not specify more than 1 volume type")
    }));
    let source = volume.field(first);
    for (_, required) in REQUIRED.iter().filter(|(name, _)| *name == first) {
        required.iter().for_each(|field| rules::required(&source.field(field), errors));
    }
    match first {
        "configMap" | "secret" => check_field(FILES, &source, errors),
        "downwardAPI" => check_field(DOWNWARD, &source, errors),
        "fc" => fibre_channel(&source, errors),
        "quobyte" => quobyte(&source, errors),
        "storageos" => check_field(STORAGE_OS, &source, errors),
        "emptyDir" => {
            let limit = source.field("sizeLimit");
            let zero = Quantity::parse("0").ok();
            if Quantity::parse(limit.text()).is_ok_and(|amount| Some(amount) < zero) {
                errors.push(Error::forbidden(&limit.path, "SizeLimit field must be a valid resource quantity"));
            }
        }
        "hostPath" => check_field(HOST_PATH, &source, errors),
        "nfs" if !source.field("path").text().starts_with('/') => {
            errors.push(source.field("path").invalid("must be an absolute path"));
        }
        "projected" => projected(&source, errors),
        _ => {}
    }
    Some(first)
}

/// The rules of a ConfigMap or a Secret as files.
pub(in crate::builtin) const FILES: &[Rule] =
    &[Rule::new("defaultMode", MODE), Rule::new("items[]", Check::Rules(KEY_PATH))];

pub(in crate::builtin) const DOWNWARD: &[Rule] = &[Rule::new("defaultMode", MODE), DOWNWARD_ITEMS];

/// Upstream blames the source for the errors of a file.
const DOWNWARD_ITEMS: Rule = Rule::new("items[]", Check::Rules(DOWNWARD_ITEM)).blaming("");

pub(in crate::builtin) const HOST_PATH: &[Rule] = &[
    Rule::new("path", Check::By(rules::no_backsteps)),
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

pub(in crate::builtin) const STORAGE_OS: &[Rule] = &[
    Rule::new("volumeName", Check::Format(name::dns1123_label)).and_required(""),
    Rule::new("volumeNamespace", Check::Format(name::dns1123_label)).unless_empty(),
    Rule::new("secretRef", Check::Rules(&[Rule::required("name", "")])).if_present(),
];

/// The rules of the parts of a projected volume, by the field of the part.
pub(in crate::builtin) const PARTS: &[(&str, &[Rule])] = &[
    ("configMap", &[Rule::required("name", ""), Rule::new("items[]", Check::Rules(KEY_PATH))]),
    ("secret", &[Rule::required("name", ""), Rule::new("items[]", Check::Rules(KEY_PATH))]),
    ("downwardAPI", &[DOWNWARD_ITEMS]),
    (
        "serviceAccountToken",
        &[Rule::new("expirationSeconds", Check::AtLeast(600, "may not specify a duration less than 10 minutes"))],
    ),
    (
        "clusterTrustBundle",
        &[
            Rule::new("name", Check::Format(name::dns1123_subdomain)).if_present(),
            Rule::new("path", Check::By(file_path)),
        ],
    ),
];

const MODE: Check = Check::Between(0, 0o777, "must be a number between 0 and 0777 (octal), both inclusive");

const KEY_PATH: &[Rule] =
    &[Rule::required("key", ""), Rule::new("path", Check::By(file_path)), Rule::new("mode", MODE)];

const DOWNWARD_ITEM: &[Rule] = &[
    Rule::new("path", Check::By(file_path)),
    Rule::new("mode", MODE),
    Rule::new("", Check::By(one_reference)),
    Rule::new("fieldRef", Check::By(|reference, errors| field_reference(reference, FILE_FIELDS, errors))),
    Rule::new("resourceFieldRef", Check::By(resource_reference)),
];

fn file_path(path: &Field<'_>, errors: &mut Vec<Error>) {
    rules::required(path, errors);
    rules::local_path(path, errors);
}

fn fibre_channel(source: &Field<'_>, errors: &mut Vec<Error>) {
    const LUN_MAX: i64 = 255;
    let (names, lun) = (source.field("targetWWNs"), source.field("lun"));
    match (names.is_empty(), source.field("wwids").is_empty()) {
        (true, true) => errors.push(names.required("must specify either targetWWNs or wwids, but not both")),
        (false, false) => errors.push(names.invalid("targetWWNs and wwids can not be specified simultaneously")),
        _ => {}
    }
    if !names.is_empty() && lun.is_absent() {
        errors.push(lun.required("lun is required if targetWWNs is specified"));
    } else if !names.is_empty() {
        Check::Within(0, LUN_MAX).of(&lun, errors);
    }
}

fn quobyte(source: &Field<'_>, errors: &mut Vec<Error>) {
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
    rules::required(&source.field("volume"), errors);
}

/// Whether Go's `net.SplitHostPort` splits a text: an IPv6 address is in brackets.
fn is_host_and_port(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| {
        let is_bracketed = host.starts_with('[') && host.ends_with(']');
        !port.contains(['[', ']']) && (is_bracketed || !host.contains([':', '[', ']']))
    })
}

fn one_reference(item: &Field<'_>, errors: &mut Vec<Error>) {
    match (item.field("fieldRef").is_present(), item.field("resourceFieldRef").is_present()) {
        (true, true) => {
            let why = "fieldRef and resourceFieldRef can not be specified simultaneously";
            errors.push(Error::invalid(&item.path, Value::from("resource"), why));
        }
        (false, false) => errors.push(item.required("one of fieldRef and resourceFieldRef is required")),
        _ => {}
    }
}

fn projected(source: &Field<'_>, errors: &mut Vec<Error>) {
    check_field(PROJECTED_MODE, source, errors);
    for part in source.field("sources").items() {
        let kinds = in_order(&part, &PROJECTED);
        for kind in &kinds {
            for (_, rules) in PARTS.iter().filter(|(name, _)| name == kind) {
                check_field(rules, &part.field(kind), errors);
            }
            if *kind == "serviceAccountToken" {
                // Upstream blames the volume.
                let path = Field { path: source.path.child("path"), ..part.field(kind).field("path") };
                file_path(&path, errors);
            }
        }
        if 1 < kinds.len() {
            errors.push(part.forbidden("may not specify more than 1 volume type per source"));
        }
    }
}

pub(in crate::builtin) const PROJECTED_MODE: &[Rule] = &[Rule::new("defaultMode", MODE)];
