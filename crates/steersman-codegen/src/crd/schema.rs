//! The parts of a version's OpenAPI schema that determine types.
//!
//! Rules that only restrict the valid values of a type (patterns, lengths, `oneOf`, CEL) are not kept, except whether
//! one of them might reject an empty object.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::crd::parse::{Reader, Wrong};

/// The schema of one value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schema {
    pub description: Option<String>,
    /// `None` if the manifest has no type.
    pub schema_type: Option<SchemaType>,
    /// `int32`, `date-time` and so on.
    pub format: Option<String>,
    pub properties: BTreeMap<String, Schema>,
    /// The names of required properties.
    pub required: BTreeSet<String>,
    /// The rule for properties that are not in `properties`.
    pub additional: Option<Additional>,
    /// The schema of the items of an array.
    pub items: Option<Box<Schema>>,
    /// All valid values; empty if the schema does not list them.
    pub enumeration: Vec<Value>,
    pub default: Option<Value>,
    pub pattern: Option<String>,
    pub minimum: Option<f64>,
    /// Whether null is a valid value.
    pub is_nullable: bool,
    /// `x-kubernetes-int-or-string`, or an equivalent older form.
    pub is_int_or_string: bool,
    /// `x-kubernetes-preserve-unknown-fields`
    pub preserves_unknown: bool,
    /// `x-kubernetes-embedded-resource`
    pub is_embedded_resource: bool,
    /// `x-kubernetes-list-type`
    pub list_type: Option<ListType>,
    /// `x-kubernetes-list-map-keys`
    pub list_map_keys: Vec<String>,
    /// `x-kubernetes-map-type: atomic`: the map has a single owner.
    pub is_atomic_map: bool,
    /// Whether there is a rule that might reject an empty object: `minProperties`, `allOf`, `anyOf`, `oneOf`, `not`,
    /// `enum` or `x-kubernetes-validations`.
    pub has_rules_for_empty: bool,
}

/// The type that a schema names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SchemaType {
    Array,
    Boolean,
    Integer,
    Number,
    Object,
    String,
}

/// `additionalProperties`
#[derive(Clone, Debug, PartialEq)]
pub enum Additional {
    Allowed,
    Forbidden,
    Of(Box<Schema>),
}

/// How the items of a list relate, by `x-kubernetes-list-type`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ListType {
    Atomic,
    Map,
    Set,
}

/// Reads a schema, with all below it.
pub(crate) fn read(reader: &Reader<'_>) -> Result<Schema, Wrong> {
    let mut schema = Schema {
        description: reader.optional_text("description")?.filter(|text| !text.trim().is_empty()),
        schema_type: schema_type(reader)?,
        format: reader.optional_text("format")?,
        default: reader.value("default").cloned(),
        pattern: reader.optional_text("pattern")?,
        minimum: reader.value("minimum").and_then(Value::as_f64),
        is_nullable: reader.flag("nullable")?,
        is_int_or_string: reader.flag("x-kubernetes-int-or-string")?,
        preserves_unknown: reader.flag("x-kubernetes-preserve-unknown-fields")?,
        is_embedded_resource: reader.flag("x-kubernetes-embedded-resource")?,
        list_type: list_type(reader)?,
        list_map_keys: reader.texts("x-kubernetes-list-map-keys")?,
        is_atomic_map: reader.optional_text("x-kubernetes-map-type")?.as_deref() == Some("atomic"),
        has_rules_for_empty: has_rules_for_empty(reader),
        ..Schema::default()
    };
    if reader.value("$ref").is_some() {
        return Err(
            reader.wrong("$ref", "is a reference, which no CustomResourceDefinition may have: write the schema out")
        );
    }
    for (name, property) in reader.children("properties")? {
        schema.properties.insert(name, read(&property)?);
    }
    schema.required = reader.texts("required")?.into_iter().collect();
    schema.additional = match reader.value("additionalProperties") {
        None => None,
        Some(Value::Bool(true)) => Some(Additional::Allowed),
        Some(Value::Bool(false)) => Some(Additional::Forbidden),
        Some(_) => Some(Additional::Of(Box::new(read(&reader.child("additionalProperties")?)?))),
    };
    schema.items = match reader.value("items") {
        None => None,
        Some(_) => Some(Box::new(read(&reader.child("items")?)?)),
    };
    if let Some(values) = reader.value("enum") {
        let values = values.as_array().ok_or_else(|| reader.wrong("enum", "is not a list"))?;
        schema.enumeration = values.clone();
    }
    schema.is_int_or_string |= is_int_or_string(reader, &schema);
    infer_type(&mut schema);
    Ok(schema)
}

fn has_rules_for_empty(reader: &Reader<'_>) -> bool {
    let asks_for_properties =
        reader.value("minProperties").and_then(Value::as_f64).is_some_and(|minimum| minimum > 0.0);
    let rules = ["allOf", "anyOf", "oneOf", "not", "enum", "x-kubernetes-validations"];
    asks_for_properties || rules.iter().any(|rule| reader.value(rule).is_some_and(|rule| *rule != json!([])))
}

fn schema_type(reader: &Reader<'_>) -> Result<Option<SchemaType>, Wrong> {
    let Some(name) = reader.optional_text("type")? else { return Ok(None) };
    match name.as_str() {
        "" => Ok(None),
        "array" => Ok(Some(SchemaType::Array)),
        "boolean" => Ok(Some(SchemaType::Boolean)),
        "integer" => Ok(Some(SchemaType::Integer)),
        "number" => Ok(Some(SchemaType::Number)),
        "object" => Ok(Some(SchemaType::Object)),
        "string" => Ok(Some(SchemaType::String)),
        other => {
            let problem = format!("is {other:?}: want array, boolean, integer, number, object or string");
            Err(reader.wrong("type", &problem))
        }
    }
}

fn list_type(reader: &Reader<'_>) -> Result<Option<ListType>, Wrong> {
    let key = "x-kubernetes-list-type";
    let Some(name) = reader.optional_text(key)? else { return Ok(None) };
    match name.as_str() {
        "atomic" => Ok(Some(ListType::Atomic)),
        "map" => Ok(Some(ListType::Map)),
        "set" => Ok(Some(ListType::Set)),
        other => Err(reader.wrong(key, &format!("is {other:?}: want atomic, map or set"))),
    }
}

/// Whether the schema stands for an integer or a string in a form older than the extension: `anyOf` or `oneOf` of
/// exactly the two, or the format.
fn is_int_or_string(reader: &Reader<'_>, schema: &Schema) -> bool {
    if schema.format.as_deref() == Some("int-or-string") {
        return true;
    }
    if schema.schema_type.is_some() {
        return false;
    }
    let is_pair = |key: &str| {
        let Some(Value::Array(branches)) = reader.value(key) else { return false };
        let types: BTreeSet<_> = branches.iter().filter_map(|branch| branch.get("type")?.as_str()).collect();
        branches.len() == 2 && types == BTreeSet::from(["integer", "string"])
    };
    is_pair("anyOf") || is_pair("oneOf")
}

/// Sets the type of a v1beta1 schema that has properties or the like without naming its type.
fn infer_type(schema: &mut Schema) {
    if schema.schema_type.is_some() || schema.is_int_or_string {
        return;
    }
    let is_map = matches!(schema.additional, Some(Additional::Of(_)));
    if !schema.properties.is_empty() || is_map || schema.is_embedded_resource {
        schema.schema_type = Some(SchemaType::Object);
    } else if schema.items.is_some() {
        schema.schema_type = Some(SchemaType::Array);
    }
}
