//! The fragment: the containers, volumes and so on that are added to Pods, as a ConfigMap has them in YAML.
//!
//! A fragment is checked as a whole when it is read, so that what is wrong with it is said once, at the ConfigMap, and
//! not at each Pod; and so that a Pod never gets a part of it. Whether a Pod that got it is valid is up to the API
//! server.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use steersman_machinery::name;
use steersman_schema::decode::{self, Body};
use steersman_schema::{Budget, Definitions, Schema};

use crate::inject::{OWN_PREFIX, merge};

/// The longest text of a fragment.
pub const BYTES_MAX: usize = 64 * 1024;
/// The most containers of a fragment, init containers included.
pub const CONTAINERS_MAX: usize = 16;
/// The most volumes, readiness gates, pull secrets, labels and annotations of a fragment, of each.
pub const ITEMS_MAX: usize = 64;

/// The fields of a fragment. All but `metadata` are fields of a PodSpec.
const FIELDS: [&str; 7] = [
    "containers",
    "imagePullSecrets",
    "initContainers",
    "metadata",
    "readinessGates",
    "terminationGracePeriodSeconds",
    "volumes",
];
/// The first digits of a hash that tell fragments apart.
const HASH_BYTES: usize = 8;

pub(crate) static POD: LazyLock<&'static Schema> = LazyLock::new(|| {
    Definitions::builtin().schema("io.k8s.api.core.v1.Pod").expect("invariant: Pods are among the built-in definitions")
});

/// The parts that are added to Pods, at least one container among them.
#[derive(Clone, Debug, PartialEq)]
pub struct Fragment {
    hash: String,
    pub(crate) containers: Vec<Value>,
    pub(crate) init_containers: Vec<Value>,
    pub(crate) volumes: Vec<Value>,
    pub(crate) image_pull_secrets: Vec<Value>,
    pub(crate) readiness_gates: Vec<Value>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) grace_seconds: Option<i64>,
}

/// Why a text is not a fragment.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum FragmentError {
    /// A field or value that a fragment cannot have.
    #[error("{path}: {detail}")]
    Field {
        /// The path of the field.
        path: String,
        /// The values that are wanted.
        detail: String,
    },
    /// The text is too long.
    #[error("it has {n_bytes} bytes, and may have {BYTES_MAX}")]
    TooLong {
        /// The length of the text.
        n_bytes: usize,
    },
    /// A value has a wrong type or an unknown field.
    #[error("{0}")]
    Type(String),
    /// The text is not YAML.
    #[error("it is not YAML: {0}")]
    Yaml(String),
}

// === impl Fragment ===

impl Fragment {
    /// Reads and checks a fragment.
    ///
    /// # Errors
    /// [`FragmentError`], of which the first is named.
    pub fn parse(yaml: &str) -> Result<Fragment, FragmentError> {
        if BYTES_MAX < yaml.len() {
            return Err(FragmentError::TooLong { n_bytes: yaml.len() });
        }
        let options = serde_saphyr::options! { with_snippet: false };
        let read: Value = serde_saphyr::from_str_with_options(yaml, options).map_err(|error| {
            let error = error.to_string();
            let line = error.lines().next().unwrap_or("not readable");
            FragmentError::Yaml(line.strip_prefix("error: ").unwrap_or(line).to_owned())
        })?;
        Self::of(read)
    }

    /// The hash of the content, however it was written: what Pods are marked with.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// The names of the containers that run beside those of the Pod, init containers included.
    pub(crate) fn container_names(&self) -> impl Iterator<Item = &str> {
        self.init_containers.iter().chain(&self.containers).filter_map(merge::name)
    }

    fn of(mut read: Value) -> Result<Fragment, FragmentError> {
        clean(&mut read, "")?;
        let Value::Object(mut fields) = read else {
            return Err(FragmentError::Type(format!("it must be a map of {}", FIELDS.join(", "))));
        };
        if let Some(unknown) = fields.keys().find(|field| !FIELDS.contains(&field.as_str())) {
            return Err(field(unknown, format!("a fragment has no such field: want one of {}", FIELDS.join(", "))));
        }
        let metadata = fields.remove("metadata").unwrap_or_else(|| json!({}));
        let known = metadata.as_object().into_iter().flat_map(Map::keys);
        if let Some(other) = known.clone().find(|name| !["labels", "annotations"].contains(&name.as_str())) {
            return Err(field(&format!("metadata.{other}"), "a fragment may have labels and annotations"));
        }
        let (metadata, mut spec) = decoded(metadata, fields)?;
        let mut list = |name: &str| match spec.remove(name) {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        };
        let fragment = Fragment {
            hash: String::new(),
            containers: list("containers"),
            init_containers: list("initContainers"),
            volumes: list("volumes"),
            image_pull_secrets: list("imagePullSecrets"),
            readiness_gates: list("readinessGates"),
            labels: texts(&metadata, "labels"),
            annotations: texts(&metadata, "annotations"),
            grace_seconds: spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64),
        };
        fragment.check()?;
        Ok(Fragment { hash: fragment.digest(), ..fragment })
    }

    fn digest(&self) -> String {
        let content = json!([
            self.containers,
            self.init_containers,
            self.volumes,
            self.image_pull_secrets,
            self.readiness_gates,
            self.labels,
            self.annotations,
            self.grace_seconds,
        ]);
        Sha256::digest(content.to_string()).iter().take(HASH_BYTES).fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    fn check(&self) -> Result<(), FragmentError> {
        let lists = [("containers", &self.containers), ("initContainers", &self.init_containers)];
        let n_containers: usize = lists.iter().map(|(_, list)| list.len()).sum();
        if n_containers == 0 {
            return Err(field("containers", "a fragment has at least one container, here or in initContainers"));
        }
        if CONTAINERS_MAX < n_containers {
            return Err(field("containers", format!("{n_containers} containers are more than {CONTAINERS_MAX}")));
        }
        for (name, n_items) in [
            ("volumes", self.volumes.len()),
            ("imagePullSecrets", self.image_pull_secrets.len()),
            ("readinessGates", self.readiness_gates.len()),
            ("metadata.labels", self.labels.len()),
            ("metadata.annotations", self.annotations.len()),
        ] {
            if ITEMS_MAX < n_items {
                return Err(field(name, format!("{n_items} items are more than {ITEMS_MAX}")));
            }
        }
        let volumes = self.check_volumes()?;
        let (mut names, mut ports) = (BTreeSet::new(), HashMap::new());
        for (list, containers) in lists {
            for (at, container) in containers.iter().enumerate() {
                let path = format!("{list}[{at}]");
                check_name(container, &path, &mut names)?;
                check_container(container, &path, &volumes)?;
                // Init containers that end do not listen beside others.
                if list == "containers" || merge::is_native(container) {
                    for port in merge::ports(container) {
                        if let Some(other) = ports.insert(port.clone(), path.clone()) {
                            return Err(field(&path, format!("has the same port {port} as {other}")));
                        }
                    }
                }
            }
        }
        self.check_others()
    }

    fn check_volumes(&self) -> Result<BTreeSet<&str>, FragmentError> {
        let mut names = BTreeSet::new();
        for (at, volume) in self.volumes.iter().enumerate() {
            let path = format!("volumes[{at}]");
            check_name(volume, &path, &mut names)?;
            let n_sources = volume.as_object().map_or(0, |fields| fields.len() - 1);
            if n_sources != 1 {
                return Err(field(
                    &path,
                    format!("a volume has one source, such as configMap, and this has {n_sources}"),
                ));
            }
        }
        Ok(names)
    }

    fn check_others(&self) -> Result<(), FragmentError> {
        let mut secrets = BTreeSet::new();
        for (at, secret) in self.image_pull_secrets.iter().enumerate() {
            check_name(secret, &format!("imagePullSecrets[{at}]"), &mut secrets)?;
        }
        let mut conditions = BTreeSet::new();
        for (at, gate) in self.readiness_gates.iter().enumerate() {
            let path = format!("readinessGates[{at}].conditionType");
            match gate.get("conditionType").and_then(Value::as_str).unwrap_or_default() {
                "" => return Err(field(&path, "a gate names a condition")),
                condition if !conditions.insert(condition) => {
                    return Err(field(&path, format!("{condition:?} occurs twice")));
                }
                condition => check_text(condition, &path, name::qualified)?,
            }
        }
        for (part, map) in [("labels", &self.labels), ("annotations", &self.annotations)] {
            if let Some(key) = map.keys().find(|key| key.starts_with(OWN_PREFIX)) {
                return Err(field(&format!("metadata.{part}"), format!("{key} is the injector's own")));
            }
        }
        for (key, value) in &self.labels {
            check_text(key, "metadata.labels", name::qualified)?;
            check_text(value, &format!("metadata.labels.{key}"), name::label_value)?;
        }
        for key in self.annotations.keys() {
            // The server compares them in lower case.
            check_text(key, "metadata.annotations", |key| name::qualified(&key.to_ascii_lowercase()))?;
        }
        if self.grace_seconds.is_some_and(|seconds| seconds < 0) {
            return Err(field("terminationGracePeriodSeconds", "want 0 or more"));
        }
        Ok(())
    }
}

/// Removes nulls, which YAML has where nothing stands behind a key, and refuses directives of strategic merge patches:
/// a fragment only adds.
fn clean(value: &mut Value, path: &str) -> Result<(), FragmentError> {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            for (key, value) in fields {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                if key.starts_with('$') {
                    return Err(field(&path, "a fragment has no directives of patches"));
                }
                clean(value, &path)?;
            }
            Ok(())
        }
        Value::Array(items) => {
            items.iter_mut().enumerate().try_for_each(|(at, item)| clean(item, &format!("{path}[{at}]")))
        }
        _ => Ok(()),
    }
}

/// Decodes the parts as those of a Pod. Returns its metadata and its spec.
fn decoded(metadata: Value, spec: Map<String, Value>) -> Result<(Value, Map<String, Value>), FragmentError> {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
    // Paths are those of the fragment. Most messages begin with theirs.
    let plain = |path: &str| path.strip_prefix("spec.").unwrap_or(path).to_owned();
    let read = decode::built_in(&POD, Body::Tree(pod), &Budget::unlimited()).map_err(|error| match &error {
        // The texts of these are about the value alone.
        decode::Error::Base64 { path, .. } | decode::Error::Quantity { path, .. } => {
            field(&plain(path), error.to_string())
        }
        _ => FragmentError::Type(plain(&error.to_string())),
    })?;
    if let Some(fault) = read.faults.first() {
        let fault = match fault {
            decode::Fault::Duplicate(path) => decode::Fault::Duplicate(plain(path)),
            decode::Fault::Unknown(path) => decode::Fault::Unknown(plain(path)),
        };
        return Err(FragmentError::Type(fault.to_string()));
    }
    let mut pod = read.value;
    clean(&mut pod, "")?;
    let metadata = pod.get_mut("metadata").map(Value::take).unwrap_or_default();
    match pod.get_mut("spec").map(Value::take) {
        Some(Value::Object(spec)) => Ok((metadata, spec)),
        _ => Ok((metadata, Map::new())),
    }
}

fn texts(metadata: &Value, name: &str) -> BTreeMap<String, String> {
    let map = metadata.get(name).and_then(Value::as_object).into_iter().flatten();
    map.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// Checks that the name of an item is a DNS label, and new.
fn check_name<'a>(item: &'a Value, path: &str, names: &mut BTreeSet<&'a str>) -> Result<(), FragmentError> {
    let name = merge::name(item).unwrap_or_default();
    if name.is_empty() {
        return Err(field(&format!("{path}.name"), "a name is missing"));
    }
    // Names of Secrets have parts, between dots.
    let is_name = match path.starts_with("imagePullSecrets") {
        true => name.len() <= 253 && name.split('.').all(is_label),
        false => is_label(name),
    };
    if !is_name {
        return Err(field(
            &format!("{path}.name"),
            format!("{name:?} is no name: want at most 63 of a-z, 0-9 and -, and a letter or digit at both ends"),
        ));
    }
    match names.insert(name) {
        true => Ok(()),
        false => Err(field(&format!("{path}.name"), format!("{name:?} occurs twice"))),
    }
}

fn check_text(text: &str, path: &str, faults: impl Fn(&str) -> Vec<String>) -> Result<(), FragmentError> {
    match faults(text).first() {
        None => Ok(()),
        Some(fault) => Err(field(path, format!("{text:?} is not possible: {fault}"))),
    }
}

/// Whether a text is a DNS label (RFC 1123).
fn is_label(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = text.bytes().next().into_iter().chain(text.bytes().last());
    let is_in_bounds = (1..=63).contains(&text.len());
    is_in_bounds && text.bytes().all(|byte| is_inner(byte) || byte == b'-') && ends.into_iter().all(is_inner)
}

fn check_container(container: &Value, path: &str, volumes: &BTreeSet<&str>) -> Result<(), FragmentError> {
    if container.get("image").and_then(Value::as_str).is_none_or(str::is_empty) {
        return Err(field(&format!("{path}.image"), "an image is missing"));
    }
    for list in ["volumeMounts", "volumeDevices"] {
        let mounts = container.get(list).and_then(Value::as_array).into_iter().flatten();
        for (at, mount) in mounts.enumerate() {
            let name = merge::name(mount).unwrap_or_default();
            if !volumes.contains(name) {
                return Err(field(
                    &format!("{path}.{list}[{at}].name"),
                    format!("{name:?} is no volume of the fragment"),
                ));
            }
        }
    }
    Ok(())
}

fn field(path: &str, detail: impl Into<String>) -> FragmentError {
    FragmentError::Field { path: path.to_owned(), detail: detail.into() }
}

#[cfg(test)]
mod tests;
