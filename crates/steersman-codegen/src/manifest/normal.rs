//! The normal form of a definition: without empty values, and with formats that an API server knows.

use std::cmp::Ordering;

use serde_json::{Map, Value, json};

/// The metadata fields that a server sets on every object.
const METADATA_OF_SERVER: [&str; 6] =
    ["creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"];

/// Brings a CustomResourceDefinition into its normal form.
pub(super) fn definition(definition: &mut Value) {
    remove_nulls_of_definition(definition);
    if let Some(object) = definition.as_object_mut() {
        object.remove("status");
    }
    if let Some(metadata) = definition["metadata"].as_object_mut() {
        for field in METADATA_OF_SERVER {
            metadata.remove(field);
        }
        remove_empty(metadata, &["annotations", "labels"]);
    }
    let Some(spec) = definition["spec"].as_object_mut() else { return };
    if spec.get("conversion").is_some_and(|conversion| *conversion == json!({"strategy": "None"})) {
        spec.remove("conversion");
    }
    let kind = spec.get("names").and_then(|names| names.get("kind")).cloned();
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        remove_empty(names, &["categories", "shortNames"]);
        if let Some(kind) = names.get("kind").and_then(Value::as_str).map(str::to_owned) {
            names.entry("listKind").or_insert_with(|| format!("{kind}List").into());
            names.entry("singular").or_insert_with(|| kind.to_lowercase().into());
        }
    }
    let Some(versions) = spec.get_mut("versions").and_then(Value::as_array_mut) else { return };
    versions.sort_by(|a, b| newest_first(text(a, "name"), text(b, "name")));
    for version in versions.iter_mut().filter_map(Value::as_object_mut) {
        remove_empty(version, &["additionalPrinterColumns", "selectableFields", "subresources"]);
        if let Some(whole) = version.get_mut("schema").and_then(|schema| schema.get_mut("openAPIV3Schema")) {
            // The derive's title is the kind, which is redundant.
            if let Some(map) = whole.as_object_mut()
                && map.get("title") == kind.as_ref()
            {
                map.remove("title");
            }
            schema(whole);
        }
    }
}

/// Removes nulls from a definition, but keeps values that its schemas quote as they are.
fn remove_nulls_of_definition(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            for (key, below) in map {
                match key.as_str() {
                    "openAPIV3Schema" => remove_nulls_of_schema(below),
                    _ => remove_nulls_of_definition(below),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls_of_definition),
        _ => {}
    }
}

fn remove_nulls_of_schema(schema: &mut Value) {
    let Some(map) = schema.as_object_mut() else { return };
    // A default that is null is removed too: the API server treats it as no default, and the derive writes it for every
    // `Option`.
    map.retain(|_, value| !value.is_null());
    for (key, below) in map {
        match key.as_str() {
            // A null inside a default is stored, and one among the valid values is compared.
            "default" | "enum" | "example" => {}
            "properties" => {
                below.as_object_mut().into_iter().flat_map(Map::values_mut).for_each(remove_nulls_of_schema);
            }
            "items" | "additionalProperties" | "not" => remove_nulls_of_schema(below),
            "allOf" | "anyOf" | "oneOf" => {
                below.as_array_mut().into_iter().flatten().for_each(remove_nulls_of_schema);
            }
            _ => remove_nulls(below),
        }
    }
}

/// Removes nulls from maps.
pub(super) fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(remove_nulls);
        }
        // A null in a list has a meaning: among the values of an enumeration, for example.
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

fn remove_empty(map: &mut Map<String, Value>, keys: &[&str]) {
    for key in keys {
        let is_empty = match map.get(*key) {
            Some(Value::Array(items)) => items.is_empty(),
            Some(Value::Object(fields)) => fields.is_empty(),
            _ => false,
        };
        if is_empty {
            map.remove(*key);
        }
    }
}

fn schema(schema: &mut Value) {
    let Some(map) = schema.as_object_mut() else { return };
    remove_empty(map, &["required", "properties"]);
    integer_format(map);
    for bound in ["minimum", "maximum", "multipleOf"] {
        // The derive writes bounds as floating-point numbers; nobody writes 0.0 for a count.
        let whole =
            map.get(bound).and_then(Value::as_f64).filter(|number| number.fract() == 0.0 && number.abs() < 1e15);
        if let Some(number) = whole {
            #[expect(clippy::cast_possible_truncation, reason = "a whole number below 10^15 fits")]
            map.insert(bound.to_owned(), Value::from(number as i64));
        }
    }
    for (key, below) in map.iter_mut() {
        match key.as_str() {
            "properties" => below.as_object_mut().into_iter().flat_map(Map::values_mut).for_each(self::schema),
            "items" | "additionalProperties" | "not" => self::schema(below),
            "allOf" | "anyOf" | "oneOf" => below.as_array_mut().into_iter().flatten().for_each(self::schema),
            _ => {}
        }
    }
}

/// Replaces the formats of unsigned and short integers: OpenAPI has only `int32` and `int64`, and servers warn of
/// others.
fn integer_format(schema: &mut Map<String, Value>) {
    let Some(format) = schema.get("format").and_then(Value::as_str) else { return };
    let (format, minimum, maximum) = match format {
        "int8" => ("int32", Some(i64::from(i8::MIN)), Some(i64::from(i8::MAX))),
        "int16" => ("int32", Some(i64::from(i16::MIN)), Some(i64::from(i16::MAX))),
        "int" => ("int64", None, None),
        "uint8" => ("int32", Some(0), Some(i64::from(u8::MAX))),
        "uint16" => ("int32", Some(0), Some(i64::from(u16::MAX))),
        "uint32" => ("int64", Some(0), Some(i64::from(u32::MAX))),
        "uint64" | "uint" => ("int64", Some(0), None),
        _ => return,
    };
    schema.insert("format".to_owned(), format.into());
    for (bound, value) in [("minimum", minimum), ("maximum", maximum)] {
        if let Some(value) = value {
            schema.entry(bound).or_insert_with(|| value.into());
        }
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// Kubernetes' order of versions: `v2`, `v1`, `v1beta2`, `v1beta1`, `v1alpha1`, then others in alphabetical order.
fn newest_first(a: &str, b: &str) -> Ordering {
    match (rank(a), rank(b)) {
        (Some(a), Some(b)) => b.cmp(&a),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// The stability, the major and the minor number.
fn rank(version: &str) -> Option<(u8, u32, u32)> {
    let rest = version.strip_prefix('v')?;
    let n_digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (major, rest) = rest.split_at(n_digits);
    let major = major.parse().ok()?;
    if rest.is_empty() {
        return Some((2, major, 0));
    }
    let (stability, minor) = match (rest.strip_prefix("beta"), rest.strip_prefix("alpha")) {
        (Some(minor), _) => (1, minor),
        (None, Some(minor)) => (0, minor),
        (None, None) => return None,
    };
    Some((stability, major, minor.parse().ok()?))
}
