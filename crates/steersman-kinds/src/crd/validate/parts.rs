//! Validation of single parts of a definition: names, columns, subresources, selectable fields.

use crate::crd::{flag, text, texts};
use std::collections::BTreeSet;
use steersman_machinery::value::at;
use steersman_machinery::{Value, field, name};
use steersman_schema::Schema;
use steersman_schema::json_path::{JsonPath, ParseError};
use steersman_schema::schema::Type;

const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
const SELECTABLE_FIELDS_MAX: usize = 8;
const DEPRECATION_BYTES_MAX: usize = 256;

pub(super) fn names(names: &Value, path: &field::Path) -> Vec<field::Error> {
    let mut errors = Vec::new();
    for key in ["plural", "singular"] {
        let name = text(names, &[key]);
        let wrong = name::dns1035_label(name);
        if !name.is_empty() && !wrong.is_empty() {
            errors.push(field::Error::invalid(&path.child(key), name, wrong.join(",")));
        }
    }
    for key in ["kind", "listKind"] {
        let name = text(names, &[key]);
        let wrong = name::dns1035_label(&name.to_lowercase());
        if !name.is_empty() && !wrong.is_empty() {
            let detail = format!("may have mixed case, but should otherwise match: {}", wrong.join(","));
            errors.push(field::Error::invalid(&path.child(key), name, detail));
        }
    }
    for key in ["shortNames", "categories"] {
        for (index, name) in texts(names, &[key]).into_iter().enumerate() {
            let wrong = name::dns1035_label(name);
            if !wrong.is_empty() {
                errors.push(field::Error::invalid(&path.child(key).index(index), name, wrong.join(",")));
            }
        }
    }
    let (kind, list_kind) = (text(names, &["kind"]), text(names, &["listKind"]));
    if !kind.is_empty() && kind == list_kind {
        let detail = "kind and listKind may not be the same";
        errors.push(field::Error::invalid(&path.child("listKind"), list_kind, detail));
    }
    errors
}

pub(super) fn deprecation(version: &Value, path: &field::Path) -> Vec<field::Error> {
    let Some(warning) = version.get("deprecationWarning").and_then(Value::as_str) else { return Vec::new() };
    let error = |detail: &str| field::Error::invalid(path, warning, detail);
    if !flag(version, &["deprecated"]) {
        return vec![error("can only be set for deprecated versions")];
    }
    let mut errors = Vec::new();
    if warning.len() > DEPRECATION_BYTES_MAX {
        errors.push(error("must be <= 256 characters long"));
    }
    if warning.is_empty() {
        errors.push(error("must not be an empty string"));
    }
    if let Some((at, _)) = warning.char_indices().find(|(_, char)| char.is_control()) {
        let detail =
            format!("must only contain printable UTF-8 characters; non-printable character found at index {at}");
        errors.push(error(&detail));
    }
    errors
}

pub(super) fn column(column: &Value, path: &field::Path) -> Vec<field::Error> {
    let mut errors = Vec::new();
    if text(column, &["name"]).is_empty() {
        errors.push(field::Error::required(&path.child("name"), ""));
    }
    let (kind, kinds) = (text(column, &["type"]), format!("must be one of {}", COLUMN_TYPES.join(",")));
    if kind.is_empty() {
        errors.push(field::Error::required(&path.child("type"), kinds));
    } else if !COLUMN_TYPES.contains(&kind) {
        errors.push(field::Error::invalid(&path.child("type"), kind, kinds));
    }
    let format = text(column, &["format"]);
    if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
        let detail = format!("must be one of {}", COLUMN_FORMATS.join(","));
        errors.push(field::Error::invalid(&path.child("format"), format, detail));
    }
    let json_path = text(column, &["jsonPath"]);
    errors.extend(match json_path {
        "" => Some(field::Error::required(&path.child("JSONPath"), "")),
        _ => simple_path(json_path, &path.child("JSONPath")),
    });
    errors
}

pub(super) fn subresources(subresources: &Value, path: &field::Path) -> Vec<field::Error> {
    let Some(scale) = subresources.get("scale").filter(|scale| !scale.is_null()) else { return Vec::new() };
    let mut errors = Vec::new();
    for (key, root) in [("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")] {
        let (place, json_path) = (path.child("scale").child(key), text(scale, &[key]));
        if json_path.is_empty() {
            errors.push(field::Error::required(&place, ""));
            continue;
        }
        let outside = || {
            let is_inside = json_path.strip_prefix(root).is_some_and(|rest| rest.starts_with('.'));
            (!is_inside)
                .then(|| field::Error::invalid(&place, json_path, format!("should be a json path under {root}")))
        };
        errors.extend(simple_path(json_path, &place).or_else(outside));
    }
    let (place, json_path) = (path.child("scale").child("labelSelectorPath"), text(scale, &["labelSelectorPath"]));
    if !json_path.is_empty() {
        let outside = || {
            let is_inside = json_path.starts_with(".spec.") || json_path.starts_with(".status.");
            let detail = "should be a json path under either .spec or .status";
            (!is_inside).then(|| field::Error::invalid(&place, json_path, detail))
        };
        errors.extend(simple_path(json_path, &place).or_else(outside));
    }
    errors
}

pub(super) fn selectable_fields(fields: &Value, schema: Option<&Value>, path: &field::Path) -> Vec<field::Error> {
    let Some(schema) = schema else {
        return vec![field::Error::invalid(path, "", "may only be set when validations.schema is included")];
    };
    let schema = Schema::from_json(schema);
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    for (index, selectable) in fields.as_array().into_iter().flatten().enumerate() {
        let (place, json_path) = (path.index(index).child("jsonPath"), text(selectable, &["jsonPath"]));
        if json_path.is_empty() {
            errors.push(field::Error::required(&place, ""));
            continue;
        }
        let steps: Option<Vec<&str>> = json_path.strip_prefix('.').map(|rest| rest.split('.').collect());
        let target =
            steps.as_ref().and_then(|steps| steps.iter().try_fold(&schema, |schema, step| schema.property(step)));
        if target.is_none() || JsonPath::parse(json_path).is_err() {
            let detail = "is an invalid path: does not refer to a valid field";
            errors.push(field::Error::invalid(&place, json_path, detail));
            continue;
        }
        if steps.is_some_and(|steps| steps.first() == Some(&"metadata")) {
            errors.push(field::Error::invalid(&place, json_path, "must not point to fields in metadata"));
        }
        let is_scalar =
            target.is_some_and(|target| matches!(target.value_type(), Type::String | Type::Boolean | Type::Integer));
        if !is_scalar {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            errors.push(field::Error::invalid(&place, json_path, detail));
        }
        if !seen.insert(json_path) {
            errors.push(field::Error::duplicate(&place, Value::from(json_path)));
        }
    }
    if seen.len() > SELECTABLE_FIELDS_MAX {
        errors.push(field::Error::too_many(path, seen.len(), SELECTABLE_FIELDS_MAX));
    }
    errors
}

/// A path must start with a dot and must not be too long; other errors only leave the cells of its column empty.
fn simple_path(json_path: &str, path: &field::Path) -> Option<field::Error> {
    match JsonPath::parse(json_path) {
        Err(error @ (ParseError::NoDot | ParseError::TooLong { .. } | ParseError::TooManySteps)) => {
            Some(field::Error::invalid(path, json_path, error.to_string()))
        }
        // Inside filters a path may begin with a bracket; here it may not.
        Ok(_) | Err(ParseError::BadStep { .. } | ParseError::Empty) => {
            (!json_path.starts_with('.')).then(|| field::Error::invalid(path, json_path, ParseError::NoDot.to_string()))
        }
    }
}

/// Whether a version has a subresource.
pub(crate) fn has_subresource(version: &Value, name: &str) -> bool {
    at(version, &["subresources", name]).is_some_and(|subresource| !subresource.is_null())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_of_columns_are_measured() {
        let errors = |path: &str| {
            let written = json!({"name": "A", "type": "string", "jsonPath": path});
            column(&written, &field::Path::new("c")).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(errors("..a"), [""; 0]);
        assert_eq!(errors("[0]"), ["c.JSONPath: Invalid value: \"[0]\": must be a simple json path starting with ."]);
        assert!(errors(&".a".repeat(65))[0].ends_with("must have at most 64 steps"));
        assert!(errors(&".".repeat(1025))[0].contains("must have at most 1024 bytes, not 1025"));
    }
}
