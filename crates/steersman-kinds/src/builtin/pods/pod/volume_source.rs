//! Validation of volume sources.

use crate::builtin::pods::pod::environment::{FILE_FIELDS, field_reference, resource_reference};
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
    errors.extend(sources.map(|name| volume.field(name).forbidden("may not specify more than 1 volume type")));
    let source = volume.field(first);
    for (_, required) in REQUIRED.iter().filter(|(name, _)| *name == first) {
        required.iter().for_each(|field| rules::required(&source.field(field), errors));
    }
    match first {
        "configMap" | "secret" => check_field(FILES, &source, errors),
        "downwardAPI" => check_field(DOWNWARD, &source, errors),
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

pub(in crate::builtin) const DOWNWARD: &[Rule] =
    &[Rule::new("defaultMode", MODE), Rule::new("items[]", Check::Rules(DOWNWARD_ITEM))];

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

/// The rules of the parts of a projected volume, by the field of the part.
pub(in crate::builtin) const PARTS: &[(&str, &[Rule])] = &[
    ("configMap", &[Rule::required("name", ""), Rule::new("items[]", Check::Rules(KEY_PATH))]),
    ("secret", &[Rule::required("name", ""), Rule::new("items[]", Check::Rules(KEY_PATH))]),
    ("downwardAPI", &[Rule::new("items[]", Check::Rules(DOWNWARD_ITEM))]),
    (
        "serviceAccountToken",
        &[
            Rule::new("expirationSeconds", Check::AtLeast(600, "may not specify a duration less than 10 minutes")),
            Rule::new("path", Check::By(file_path)),
        ],
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
        let mut kinds = in_order(&part, &PROJECTED).into_iter();
        let Some(first) = kinds.next() else {
            errors.push(part.required("must specify a source"));
            continue;
        };
        errors.extend(kinds.map(|name| part.field(name).forbidden("may not specify more than 1 volume type")));
        for (_, rules) in PARTS.iter().filter(|(name, _)| *name == first) {
            check_field(rules, &part.field(first), errors);
        }
    }
}

pub(in crate::builtin) const PROJECTED_MODE: &[Rule] = &[Rule::new("defaultMode", MODE)];
