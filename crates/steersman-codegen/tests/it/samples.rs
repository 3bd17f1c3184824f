//! Sample objects in the YAML files of a module, in the form that an API server would store.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Number, Value};
use steersman_schema::schema::Schema;

/// Larger files are generated data and not samples.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// More samples of one version of one kind add nothing, and YAML takes long to read in a debug build.
const SAMPLES_PER_KIND_MAX: usize = 30;

/// The schema of a version, as the API server has it.
pub(crate) struct Served {
    schema: Arc<Schema>,
    preserves_unknown: bool,
}

/// Schemas by API version and kind.
pub(crate) type Kinds = BTreeMap<(String, String), Served>;

/// An object that the API server would accept.
pub(crate) struct Sample {
    pub(crate) file: PathBuf,
    /// The object as it would be stored: without fields that the schema does not know, and without nulls that have no
    /// meaning.
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

/// The readable documents of a text: a template is not valid YAML, but other documents beside it may be.
pub(crate) fn documents(text: &str) -> Vec<Value> {
    let options = || serde_saphyr::options! { budget: None, with_snippet: false, legacy_octal_numbers: true };
    if let Ok(documents) = serde_saphyr::from_multiple_with_options(text, options()) {
        return documents;
    }
    text.split("\n---").filter_map(|document| serde_saphyr::from_str_with_options(document, options()).ok()).collect()
}

impl Served {
    /// The object as the API server would store it, if it accepts it.
    fn store(&self, mut object: Value) -> Option<Value> {
        if !object["metadata"].is_object() {
            return None;
        }
        if !self.preserves_unknown {
            steersman_schema::prune::prune(&self.schema, &mut object);
        }
        let metadata = object["metadata"].clone();
        object["metadata"] = Value::Object(Map::new());
        if !steersman_schema::validate::validate(&self.schema, &object, &steersman_schema::Budget::unlimited())
            .is_empty()
        {
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

/// The difference between an object and the result of decoding and encoding it. An empty spec is equal to an absent
/// one, if both are allowed.
pub(crate) fn change(object: &Value, there: &Value) -> Option<String> {
    let mut there = there.clone();
    if object["spec"].is_null()
        && there["spec"] == Value::Object(Map::new())
        && let Some(there) = there.as_object_mut()
    {
        there.remove("spec");
    }
    difference(object, &there)
}

/// The first place at which two values differ, if any. Numbers and times may be written differently, and a null field
/// may become absent; no field may become null.
fn difference(left: &Value, right: &Value) -> Option<String> {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            let names: BTreeSet<_> = left.keys().chain(right.keys()).collect();
            names.into_iter().find_map(|name| match (left.get(name), right.get(name)) {
                (Some(left), Some(right)) => difference(left, right).map(|place| format!(".{name}{place}")),
                (Some(Value::Null), None) => None,
                (Some(left), None) => Some(format!(".{name}: {left} became absent")),
                (None, right) => Some(format!(".{name}: absent became {}", right.unwrap_or(&Value::Null))),
            })
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            let pairs = left.iter().zip(right).enumerate();
            pairs
                .into_iter()
                .find_map(|(index, (left, right))| difference(left, right).map(|place| format!("[{index}]{place}")))
        }
        (Value::Number(left), Value::Number(right)) if is_same_number(left, right) => None,
        (Value::String(left), Value::String(right)) if is_same_time(left, right) => None,
        (left, right) if left == right => None,
        (left, right) => Some(format!(": {left} became {right}")),
    }
}

/// Whether two numbers are equal, as `1` and `1.0` are. Integers that only a floating-point number cannot distinguish
/// are not.
fn is_same_number(left: &Number, right: &Number) -> bool {
    match (integer(left), integer(right)) {
        (Some(left), Some(right)) => left == right,
        (None, None) => left.as_f64() == right.as_f64(),
        _ => false,
    }
}

/// The integer value of a number, however it is written.
fn integer(number: &Number) -> Option<i128> {
    if let Some(integer) = number.as_i128() {
        return Some(integer);
    }
    let float = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 1e30)?;
    #[expect(clippy::cast_possible_truncation, reason = "a whole number below 10^30 fits")]
    Some(float as i128)
}

/// Whether two times are equal to the second: times in Kubernetes have no fractions of a second.
fn is_same_time(left: &str, right: &str) -> bool {
    let time = |text: &str| text.parse::<jiff::Timestamp>().ok().map(|time| time.as_second());
    time(left).is_some_and(|left| Some(left) == time(right))
}

#[test]
fn a_change_is_found_where_values_say_something_else() {
    let found = |left: &str, right: &str| {
        let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        change(&value(left), &value(right))
    };
    for (left, right) in [
        (r#"{"a": 1, "b": null}"#, r#"{"a": 1.0}"#),
        (r#"{"a": 0.5}"#, r#"{"a": 5e-1}"#),
        (r#"{"a": "2024-01-01T00:00:00.5Z"}"#, r#"{"a": "2024-01-01T00:00:00Z"}"#),
        (r#"{}"#, r#"{"spec": {}}"#),
    ] {
        assert_eq!(found(left, right), None, "{left} {right}");
    }
    for (left, right, place) in [
        (r#"{"a": 9007199254740993}"#, r#"{"a": 9007199254740992}"#, ".a: 9007199254740993 became 9007199254740992"),
        (
            r#"{"a": 18446744073709551615}"#,
            r#"{"a": 18446744073709551614}"#,
            ".a: 18446744073709551615 became 18446744073709551614",
        ),
        (
            r#"{"a": 9007199254740993}"#,
            r#"{"a": 9007199254740992.0}"#,
            ".a: 9007199254740993 became 9007199254740992.0",
        ),
        (r#"{"a": {}}"#, r#"{"a": {"b": null}}"#, ".a.b: absent became null"),
        (r#"{"a": [null]}"#, r#"{"a": []}"#, ".a: [null] became []"),
        (r#"{"a": 0}"#, r#"{}"#, ".a: 0 became absent"),
    ] {
        assert_eq!(found(left, right).as_deref(), Some(place), "{left} {right}");
    }
}
