//! Validation of volume sources.

use crate::builtin::pods::pod::environment::{FILE_FIELDS, field_reference, resource_reference};
use crate::builtin::rules;
use crate::builtin::rules::field::Field;
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
        "configMap" | "secret" => {
            mode(&source.field("defaultMode"), errors);
            key_paths(&source.field("items"), errors);
        }
        "downwardAPI" => {
            mode(&source.field("defaultMode"), errors);
            downward_items(&source, errors);
        }
        "fc" => fibre_channel(&source, errors),
        "quobyte" => quobyte(&source, errors),
        "storageos" => storage_os(&source, errors),
        "emptyDir" => {
            let limit = source.field("sizeLimit");
            let zero = Quantity::parse("0").ok();
            if Quantity::parse(limit.text()).is_ok_and(|amount| Some(amount) < zero) {
                errors.push(Error::forbidden(&limit.path, "SizeLimit field must be a valid resource quantity"));
            }
        }
        "hostPath" => {
            rules::no_backsteps(&source.field("path"), errors);
            rules::one_of_if_present(&source.field("type"), &HOST_PATH_TYPES, errors);
        }
        "nfs" if !source.field("path").text().starts_with('/') => {
            errors.push(source.field("path").invalid("must be an absolute path"));
        }
        "projected" => projected(&source, errors),
        _ => {}
    }
    Some(first)
}

const HOST_PATH_TYPES: [&str; 8] =
    ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];

fn mode(mode: &Field<'_>, errors: &mut Vec<Error>) {
    if mode.number().is_some_and(|bits| !(0..=0o777).contains(&bits)) {
        errors.push(mode.invalid("must be a number between 0 and 0777 (octal), both inclusive"));
    }
}

fn key_paths(items: &Field<'_>, errors: &mut Vec<Error>) {
    for item in items.items() {
        rules::required(&item.field("key"), errors);
        file_path(&item.field("path"), errors);
        mode(&item.field("mode"), errors);
    }
}

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
        rules::within(&lun, 0, LUN_MAX, errors);
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

fn storage_os(source: &Field<'_>, errors: &mut Vec<Error>) {
    rules::required_name(&source.field("volumeName"), name::dns1123_label, errors);
    if !source.field("volumeNamespace").is_empty() {
        rules::named(&source.field("volumeNamespace"), name::dns1123_label, errors);
    }
    let secret = source.field("secretRef");
    if secret.is_present() {
        rules::required(&secret.field("name"), errors);
    }
}

/// The files of a source. Upstream blames the source for a file's faults.
fn downward_items(source: &Field<'_>, errors: &mut Vec<Error>) {
    for item in source.field("items").items() {
        let item = Field { path: source.path.clone(), ..item };
        let (field, resource) = (item.field("fieldRef"), item.field("resourceFieldRef"));
        file_path(&item.field("path"), errors);
        mode(&item.field("mode"), errors);
        match (field.is_present(), resource.is_present()) {
            (true, true) => {
                let why = "fieldRef and resourceFieldRef can not be specified simultaneously";
                errors.push(Error::invalid(&item.path, Value::from("resource"), why));
            }
            (false, false) => errors.push(item.required("one of fieldRef and resourceFieldRef is required")),
            _ => {}
        }
        field_reference(&field, FILE_FIELDS, errors);
        resource_reference(&resource, errors);
    }
}

fn projected(source: &Field<'_>, errors: &mut Vec<Error>) {
    mode(&source.field("defaultMode"), errors);
    for part in source.field("sources").items() {
        let kinds = in_order(&part, &PROJECTED);
        for kind in &kinds {
            projection(kind, &part.field(kind), source, errors);
        }
        if 1 < kinds.len() {
            errors.push(part.forbidden("may not specify more than 1 volume type per source"));
        }
    }
}

fn projection(kind: &str, inner: &Field<'_>, source: &Field<'_>, errors: &mut Vec<Error>) {
    match kind {
        "configMap" | "secret" => {
            rules::required(&inner.field("name"), errors);
            key_paths(&inner.field("items"), errors);
        }
        "downwardAPI" => downward_items(inner, errors),
        "serviceAccountToken" => {
            let expiration = inner.field("expirationSeconds");
            if expiration.number().is_some_and(|seconds| seconds < 600) {
                errors.push(expiration.invalid("may not specify a duration less than 10 minutes"));
            }
            // Upstream blames the volume.
            let path = Field { path: source.path.child("path"), ..inner.field("path") };
            file_path(&path, errors);
        }
        "clusterTrustBundle" => {
            let name = inner.field("name");
            if name.is_present() {
                rules::named(&name, name::dns1123_subdomain, errors);
            }
            file_path(&inner.field("path"), errors);
        }
        _ => {}
    }
}
