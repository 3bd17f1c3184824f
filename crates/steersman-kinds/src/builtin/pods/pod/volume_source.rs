//! Validation of volume sources.

use crate::builtin::pods::pod::container::environment::{FILE_FIELDS, field_reference, resource_of_container};
use crate::builtin::rules;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule, check_field};
use crate::builtin::storage::volume_source::check_of_pod;
use std::collections::BTreeSet;
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::name;
use steersman_machinery::quantity::Quantity;

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
    check_of_pod(volume, first, errors);
    match first {
        "configMap" => check_field(CONFIG_MAP, &source, errors),
        "downwardAPI" => check_field(DOWNWARD, &source, errors),
        "emptyDir" => {
            let limit = source.field("sizeLimit");
            let zero = Quantity::parse("0").ok();
            if Quantity::parse(limit.text()).is_ok_and(|amount| Some(amount) < zero) {
                errors.push(Error::forbidden(&limit.path, "SizeLimit field must be a valid resource quantity"));
            }
        }
        "ephemeral" => check_field(EPHEMERAL, &source, errors),
        "gitRepo" => check_field(GIT_REPO, &source, errors),
        "iscsi" => portal(volume, errors),
        "persistentVolumeClaim" => check_field(CLAIM, &source, errors),
        "projected" => projected(&source, errors),
        "secret" => check_field(SECRET, &source, errors),
        _ => {}
    }
    Some(first)
}

const FILES: &[Rule] = &[Rule::new("defaultMode", MODE), Rule::new("items[]", Check::Rules(KEY_PATH))];
pub(in crate::builtin) const CONFIG_MAP: &[Rule] = &[Rule::required("name", ""), Rule::new("", Check::Rules(FILES))];
pub(in crate::builtin) const SECRET: &[Rule] = &[Rule::required("secretName", ""), Rule::new("", Check::Rules(FILES))];

pub(in crate::builtin) const CLAIM: &[Rule] = &[Rule::required("claimName", "")];
pub(in crate::builtin) const EPHEMERAL: &[Rule] = &[
    Rule::present("volumeClaimTemplate", ""),
    Rule::new("volumeClaimTemplate.metadata.labels", Check::By(rules::labels)),
    Rule::new("volumeClaimTemplate.metadata.annotations", Check::By(rules::annotations)),
];
pub(in crate::builtin) const GIT_REPO: &[Rule] =
    &[Rule::required("repository", ""), Rule::new("directory", Check::By(rules::local_path))];

/// Upstream puts the name of the volume before that of the portal.
fn portal(volume: &Field<'_>, errors: &mut Vec<Error>) {
    const LENGTH_MAX: usize = 63;
    let (name, source) = (volume.field("name"), volume.field("iscsi"));
    let is_long = name.text().len() + source.field("targetPortal").text().len() > LENGTH_MAX;
    if is_long && source.field("initiatorName").is_present() {
        let why = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";
        errors.push(name.invalid(why));
    }
}

pub(in crate::builtin) const DOWNWARD: &[Rule] = &[Rule::new("defaultMode", MODE), DOWNWARD_ITEMS];

/// Upstream blames the source for the errors of a file.
const DOWNWARD_ITEMS: Rule = Rule::new("items[]", Check::Rules(DOWNWARD_ITEM)).blaming("");

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
    Rule::new("", Check::By(resource_alone)),
];

/// Validates a reference to a resource, unless there is one to a field too.
fn resource_alone(item: &Field<'_>, errors: &mut Vec<Error>) {
    if item.field("fieldRef").is_absent() {
        resource_of_container(&item.field("resourceFieldRef"), errors);
    }
}

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
    let mut paths = BTreeSet::new();
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
            for (path, shown) in paths_of(&part.field(kind), kind) {
                // Upstream compares an empty path of a trust bundle too.
                if (*kind == "clusterTrustBundle" || !path.is_empty()) && !paths.insert(path) {
                    errors.push(Error::invalid(&source.path, shown, "conflicting duplicate paths"));
                }
            }
        }
        if 1 < kinds.len() {
            errors.push(part.forbidden("may not specify more than 1 volume type per source"));
        }
    }
}

/// The paths of the files that a part makes, each with the text that upstream shows when it is there already.
fn paths_of<'a>(part: &Field<'a>, kind: &str) -> Vec<(&'a str, &'a str)> {
    let path = |field: Field<'a>| (field.text(), field.text());
    match kind {
        "secret" | "configMap" => {
            let name = part.field("name").text();
            part.field("items").items().map(|item| (item.field("path").text(), name)).collect()
        }
        "downwardAPI" => part.field("items").items().map(|item| path(item.field("path"))).collect(),
        "podCertificate" => {
            ["credentialBundlePath", "keyPath", "certificateChainPath"].map(|name| path(part.field(name))).to_vec()
        }
        "clusterTrustBundle" => vec![path(part.field("path"))],
        // Upstream does not compare the path of a token.
        _ => Vec::new(),
    }
}

pub(in crate::builtin) const PROJECTED_MODE: &[Rule] = &[Rule::new("defaultMode", MODE)];
