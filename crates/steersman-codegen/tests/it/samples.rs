//! Objects in the YAML files of a module, and what an API server makes of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};
use steersman_schema::schema::Schema;

/// Larger files are generated data and no samples.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// More samples of one version of one kind say nothing new, and YAML takes long to read in a debug build.
const SAMPLES_PER_KIND_MAX: usize = 30;

/// The schema of a version, as the API server has it.
pub(crate) struct Served {
    schema: Arc<Schema>,
    preserves_unknown: bool,
}

/// By API version and kind.
pub(crate) type Kinds = BTreeMap<(String, String), Served>;

/// An object that the API server would take.
pub(crate) struct Sample {
    pub(crate) file: PathBuf,
    /// As it would be stored: without what the schema does not know, and without null where that says nothing.
    pub(crate) object: Value,
}

/// The schemas of definitions.
pub(crate) fn kinds(definitions: &[Value]) -> Kinds {
    let mut kinds = Kinds::new();
    for document in definitions {
        let spec = &document["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        for version in spec["versions"].as_array().into_iter().flatten() {
            if version["served"] == false {
                continue;
            }
            let schema = match &version["schema"]["openAPIV3Schema"] {
                Value::Null => &spec["validation"]["openAPIV3Schema"],
                schema => schema,
            };
            let served = Served {
                schema: steersman_schema::structural::compile(schema),
                preserves_unknown: spec["preserveUnknownFields"] == true || schema.is_null(),
            };
            let api_version = format!("{}/{}", text(&spec["group"]), text(&version["name"]));
            kinds.insert((api_version, text(&spec["names"]["kind"])), served);
        }
    }
    kinds
}

/// All samples of these kinds below `directory`, in the order of their files.
pub(crate) fn find(directory: &Path, kinds: &Kinds) -> Vec<Sample> {
    let mut files = Vec::new();
    walk(directory, &mut files);
    files.sort();
    let mut samples: Vec<Sample> = Vec::new();
    let mut n_found: BTreeMap<(String, String), usize> = BTreeMap::new();
    let is_full = |found: &BTreeMap<_, usize>, kind: &(String, String)| {
        found.get(kind).is_some_and(|n| *n >= SAMPLES_PER_KIND_MAX)
    };
    for file in files {
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        let versions: BTreeSet<&str> =
            text.lines().filter_map(|line| line.strip_prefix("apiVersion:")).map(str::trim).collect();
        let is_wanted = |kind: &(String, String)| versions.contains(kind.0.as_str()) && !is_full(&n_found, kind);
        if !kinds.keys().any(is_wanted) {
            continue;
        }
        for document in documents(&text) {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let kind = (text(&document["apiVersion"]), text(&document["kind"]));
            let Some(served) = kinds.get(&kind).filter(|_| !is_full(&n_found, &kind)) else { continue };
            if let Some(object) = served.store(document) {
                *n_found.entry(kind).or_default() += 1;
                samples.push(Sample { file: file.clone(), object });
            }
        }
    }
    samples
}

fn walk(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            walk(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
            && entry.metadata().unwrap().len() <= FILE_BYTES_MAX
        {
            files.push(path);
        }
    }
}

/// The documents of a text that can be read: a template is no YAML, and its neighbors may be.
pub(crate) fn documents(text: &str) -> Vec<Value> {
    let options = || serde_saphyr::options! { budget: None, with_snippet: false, legacy_octal_numbers: true };
    if let Ok(documents) = serde_saphyr::from_multiple_with_options(text, options()) {
        return documents;
    }
    text.split("\n---").filter_map(|document| serde_saphyr::from_str_with_options(document, options()).ok()).collect()
}

impl Served {
    /// The object as the API server stores it, if it takes it.
    fn store(&self, mut object: Value) -> Option<Value> {
        if !object["metadata"].is_object() {
            return None;
        }
        if !self.preserves_unknown {
            steersman_schema::prune::prune(&self.schema, &mut object);
        }
        let metadata = object["metadata"].clone();
        object["metadata"] = Value::Object(Map::new());
        if !steersman_schema::validate::validate(&self.schema, &object).is_empty() {
            return None;
        }
        for name in ["name", "namespace", "labels", "annotations"] {
            if let Some(value) = metadata.get(name).filter(|value| !value.is_null()) {
                object["metadata"][name] = value.clone();
            }
        }
        Some(object)
    }
}

/// Where an object differs from what came of it, if it does. A spec that is empty says as much as none, where both are allowed.
pub(crate) fn change(object: &Value, there: &Value) -> Option<String> {
    let mut there = there.clone();
    if object["spec"].is_null() && there["spec"] == Value::Object(Map::new()) {
        there["spec"] = Value::Null;
    }
    difference(object, &there)
}

/// The first place at which two values say something else, if there is one. Numbers and times may be written differently, and null
/// may stand for what is absent.
fn difference(left: &Value, right: &Value) -> Option<String> {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            let names: BTreeSet<_> = left.keys().chain(right.keys()).collect();
            names.into_iter().find_map(|name| {
                let of = |object: &Map<String, Value>| object.get(name).cloned().unwrap_or_default();
                difference(&of(left), &of(right)).map(|place| format!(".{name}{place}"))
            })
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            let pairs = left.iter().zip(right).enumerate();
            pairs
                .into_iter()
                .find_map(|(index, (left, right))| difference(left, right).map(|place| format!("[{index}]{place}")))
        }
        (Value::Number(left), Value::Number(right)) if left.as_f64() == right.as_f64() => None,
        (Value::String(left), Value::String(right)) if is_same_time(left, right) => None,
        (left, right) if left == right => None,
        (left, right) => Some(format!(": {left} became {right}")),
    }
}

/// Times have no fractions of a second in Kubernetes.
fn is_same_time(left: &str, right: &str) -> bool {
    let time = |text: &str| text.parse::<jiff::Timestamp>().ok().map(|time| time.as_second());
    time(left).is_some_and(|left| Some(left) == time(right))
}
