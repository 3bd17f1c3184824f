//! Schemas in OpenAPI documents: version 3, and version 2 without what it cannot express.
//!
//! The server builds whole documents, with their paths and parameters.

mod words;

use crate::model::definitions::{Definition, Definitions, Edition};
use crate::model::schema::{Additional, Bounds, List, MapType, Schema, Special, Type, Zero};
use serde_json::json;
use std::collections::BTreeSet;
use steersman_machinery::value::Map;
use steersman_machinery::{GroupVersionKind, Value};

/// The version of OpenAPI.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Version {
    V2,
    V3,
}

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";

/// A built-in definition with its kinds; the definitions that it refers to are in [`closure`].
pub fn definition_json(edition: Edition, name: &str, version: Version) -> Option<Value> {
    let definitions = Definitions::of(edition);
    let definition = definitions.definition(name)?;
    let mut out = builtin(definition.schema(), version);
    let kinds = definitions.kinds().filter(|(_, of)| *of == definition);
    let kinds: Vec<Value> = kinds.map(|(gvk, _)| kind_json(gvk)).collect();
    if let Value::Object(fields) = &mut out {
        words::describe(name, fields);
        if !kinds.is_empty() {
            fields.insert("x-kubernetes-group-version-kind".to_owned(), Value::from(kinds));
        }
    }
    Some(out)
}

/// The schema of a custom resource, with the fields of every resource. `selectable` are paths without their leading
/// dot.
pub fn custom_resource(schema: &Schema, gvk: &GroupVersionKind, selectable: &[&str], version: Version) -> Value {
    // A client that reads version 2 would reject all but the named fields.
    let mut fields = match version == Version::V2 && schema.preserve_unknown_fields {
        true => Map::from_iter([("type".to_owned(), Value::from("object"))]),
        false => {
            let mut fields = custom(schema, version);
            add_meta(&mut fields, version);
            fields
        }
    };
    fields.insert("x-kubernetes-group-version-kind".to_owned(), Value::from(vec![kind_json(gvk)]));
    if version == Version::V3 && !selectable.is_empty() {
        let paths: Vec<Value> = selectable.iter().map(|path| json!({"fieldPath": path})).collect();
        fields.insert("x-kubernetes-selectable-fields".to_owned(), Value::from(paths));
    }
    Value::Object(fields)
}

/// The schema of a list of custom resources; `gvk` is the list's, `item` the name of the items' definition.
pub fn custom_resource_list(gvk: &GroupVersionKind, item: &str, version: Version) -> Value {
    json!({
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": reference(LIST_META, version),
            "items": {"type": "array", "items": reference(item, version)},
        },
        "x-kubernetes-group-version-kind": [kind_json(gvk)],
    })
}

/// The name of a custom resource's definition: `com.example.stable.v1.Shirt`.
pub fn custom_definition_name(gvk: &GroupVersionKind) -> String {
    let mut words: Vec<&str> = gvk.group.rsplit('.').collect();
    words.extend([gvk.version.as_str(), gvk.kind.as_str()]);
    words.join(".")
}

/// A schema that is not a whole definition.
pub fn schema_json(schema: &Schema, version: Version) -> Value {
    Value::Object(custom(schema, version))
}

/// The names of built-in definitions and of all definitions that they refer to.
pub fn closure<'n>(edition: Edition, names: impl IntoIterator<Item = &'n str>) -> BTreeSet<&'static str> {
    let mut found = BTreeSet::new();
    let mut open: Vec<Definition> =
        names.into_iter().filter_map(|name| Definitions::of(edition).definition(name)).collect();
    while let Some(definition) = open.pop() {
        if found.insert(definition.name()) {
            references(definition.schema(), &mut open);
        }
    }
    found
}

fn references(schema: &Schema, found: &mut Vec<Definition>) {
    found.extend(schema.reference());
    let values = match &schema.additional {
        Additional::Of(values) => Some(&**values),
        Additional::Any | Additional::Never | Additional::Unsaid => None,
    };
    let properties = schema.properties.iter().map(|(_, property)| property);
    for inner in properties.chain(schema.items.as_deref()).chain(values) {
        references(inner, found);
    }
}

// === parts of a schema ===

fn kind_json(gvk: &GroupVersionKind) -> Value {
    json!({"group": gvk.group, "version": gvk.version, "kind": gvk.kind})
}

fn reference(name: &str, version: Version) -> Value {
    match version {
        Version::V2 => json!({"$ref": format!("#/definitions/{name}")}),
        Version::V3 => json!({"$ref": format!("#/components/schemas/{name}")}),
    }
}

/// Version 3 allows no keywords beside a reference, so a reference with others is wrapped.
fn wrapped_reference(name: &str, version: Version) -> Map {
    let reference = reference(name, version);
    match (version, reference) {
        (Version::V2, Value::Object(fields)) => fields,
        (_, reference) => Map::from_iter([("allOf".to_owned(), Value::from(vec![reference]))]),
    }
}

fn texts(texts: &[Box<str>]) -> Value {
    texts.iter().map(|text| Value::from(text.as_ref())).collect()
}

/// The keywords about merging lists and maps.
fn merging(schema: &Schema, out: &mut Map) {
    let mut put = |key: &str, value: Value| out.insert(key.to_owned(), value);
    match &schema.list {
        Some(List::Atomic) => {
            put("x-kubernetes-list-type", Value::from("atomic"));
        }
        Some(List::Map(keys)) => {
            put("x-kubernetes-list-type", Value::from("map"));
            put("x-kubernetes-list-map-keys", texts(keys));
        }
        Some(List::Set) => {
            put("x-kubernetes-list-type", Value::from("set"));
        }
        None => {}
    }
    match schema.map {
        Some(MapType::Atomic) => {
            put("x-kubernetes-map-type", Value::from("atomic"));
        }
        Some(MapType::Granular) => {
            put("x-kubernetes-map-type", Value::from("granular"));
        }
        None => {}
    }
    let Some(patch) = &schema.patch else { return };
    let words = [(patch.merge, "merge"), (patch.replace, "replace"), (patch.retain_keys, "retainKeys")];
    let strategy: Vec<&str> = words.iter().filter(|(said, _)| *said).map(|(_, word)| *word).collect();
    if !strategy.is_empty() {
        put("x-kubernetes-patch-strategy", Value::from(strategy.join(",")));
    }
    if let Some(key) = &patch.merge_key {
        put("x-kubernetes-patch-merge-key", Value::from(key.as_ref()));
    }
}

// === built-in definitions ===

fn builtin(schema: &Schema, version: Version) -> Value {
    if let Some(special) = schema.special {
        return match (special, version) {
            (Special::Bytes, _) => builtin_plain(schema, version),
            (Special::FieldsV1 | Special::RawExtension, _) => json!({"type": "object"}),
            (Special::IntOrString, Version::V2) => json!({"type": "string", "format": "int-or-string"}),
            (Special::IntOrString, Version::V3) => {
                json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
            }
            (Special::Json, _) => json!({}),
            (Special::MicroTime | Special::Time, _) => json!({"type": "string", "format": "date-time"}),
            (Special::Quantity, Version::V2) => json!({"type": "string"}),
            (Special::Quantity, Version::V3) => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
        };
    }
    builtin_plain(schema, version)
}

fn builtin_plain(schema: &Schema, version: Version) -> Value {
    let mut out = match schema.reference() {
        Some(definition) => wrapped_reference(definition.name(), version),
        None => Map::new(),
    };
    if schema.value_type != Type::Any {
        out.insert("type".to_owned(), Value::from(schema.value_type.name()));
    }
    if let Some(format) = &schema.format {
        out.insert("format".to_owned(), Value::from(format.as_ref()));
    }
    if !schema.properties.is_empty() {
        let properties = schema.properties.iter();
        let properties: Map =
            properties.map(|(name, property)| (name.to_owned(), builtin_field(property, version))).collect();
        out.insert("properties".to_owned(), Value::Object(properties));
    }
    if !schema.required.is_empty() {
        out.insert("required".to_owned(), texts(&schema.required));
    }
    if let Some(items) = &schema.items {
        out.insert("items".to_owned(), builtin_element(items, version));
    }
    if let Additional::Of(values) = &schema.additional {
        out.insert("additionalProperties".to_owned(), builtin_element(values, version));
    }
    merging(schema, &mut out);
    Value::Object(out)
}

fn builtin_field(schema: &Schema, version: Version) -> Value {
    let mut out = builtin(schema, version);
    let default = match &schema.default {
        Some(default) => Some(default.clone()),
        None if schema.zero == Zero::Write => empty(schema),
        None => None,
    };
    put_default(&mut out, default, version);
    out
}

/// The schema of a list item or map value: it is never a pointer, so it always has an empty value.
fn builtin_element(schema: &Schema, version: Version) -> Value {
    let default = empty(schema);
    if let (Some(definition), None) = (schema.reference(), &default) {
        return reference(definition.name(), version);
    }
    let mut out = builtin(schema, version);
    put_default(&mut out, default, version);
    out
}

/// Version 2 publishes no defaults of built-in kinds.
fn put_default(out: &mut Value, default: Option<Value>, version: Version) {
    if let (Version::V3, Some(default), Value::Object(fields)) = (version, default, out) {
        fields.insert("default".to_owned(), default);
    }
}

/// The empty value of a type that has one, as OpenAPI publishes it for fields that are always written.
pub(crate) fn empty(schema: &Schema) -> Option<Value> {
    match (schema.special(), schema.value_type()) {
        (Some(_), _) | (None, Type::Any | Type::Array | Type::IntOrString) => None,
        (None, Type::Boolean) => Some(Value::Bool(false)),
        (None, Type::Integer | Type::Number) => Some(Value::from(0)),
        (None, Type::Object) => schema.values().is_none().then(|| json!({})),
        (None, Type::String) => Some(Value::from("")),
    }
}

// === custom resources ===

fn custom(schema: &Schema, version: Version) -> Map {
    let is_v2 = version == Version::V2;
    let mut out = Map::new();
    let mut put = |key: &str, value: Value| {
        out.insert(key.to_owned(), value);
    };
    // Keywords that kubectl cannot handle in version 2 are left out: nullable values, unknown fields, alternatives.
    let is_loose = is_v2 && (schema.nullable || schema.preserve_unknown_fields);
    let items = schema.items.as_deref().filter(|_| !is_loose);
    let untyped = is_v2
        && (schema.nullable
            || (schema.value_type == Type::Array && items.is_none())
            || (schema.preserve_unknown_fields && schema.value_type == Type::Object));
    if !untyped && !matches!(schema.value_type, Type::Any | Type::IntOrString) {
        put("type", Value::from(schema.value_type.name()));
    }
    if schema.nullable && !is_v2 {
        put("nullable", Value::Bool(true));
    }
    if let Some(format) = &schema.format {
        put("format", Value::from(format.as_ref()));
    }
    if let Some(default) = &schema.default {
        put("default", default.clone());
    }
    if !schema.enumeration.is_empty() {
        put("enum", Value::from(schema.enumeration.to_vec()));
    }
    if !schema.properties.is_empty() && !is_loose {
        let properties = schema.properties.iter();
        put("properties", properties.map(|(name, each)| (name, Value::Object(custom(each, version)))).collect());
    }
    if let Some(items) = items {
        put("items", Value::Object(custom(items, version)));
    }
    let nullable_values = match &schema.additional {
        Additional::Any => {
            put("additionalProperties", Value::Bool(true));
            false
        }
        Additional::Never => {
            put("additionalProperties", Value::Bool(false));
            false
        }
        Additional::Of(values) => {
            put("additionalProperties", Value::Object(custom(values, version)));
            values.nullable
        }
        Additional::Unsaid => false,
    };
    let is_nullable = |name: &str| is_v2 && !is_loose && schema.property(name).is_some_and(|field| field.nullable);
    let required: Vec<&str> = schema.required.iter().map(AsRef::as_ref).filter(|name| !is_nullable(name)).collect();
    let drops_required = is_v2 && nullable_values;
    if !required.is_empty() && !drops_required {
        put("required", Value::from(required));
    }
    if let Some(docs) = &schema.docs {
        let texts = [("title", &docs.title), ("description", &docs.description)];
        for (key, text) in texts.into_iter().filter_map(|(key, text)| Some((key, text.as_ref()?))) {
            put(key, Value::from(text.as_ref()));
        }
        for (key, value) in [("example", &docs.example), ("externalDocs", &docs.external_docs)] {
            value.iter().for_each(|value| put(key, Value::clone(value)));
        }
    }
    if schema.preserve_unknown_fields {
        put("x-kubernetes-preserve-unknown-fields", Value::Bool(true));
    }
    if schema.embedded_resource {
        put("x-kubernetes-embedded-resource", Value::Bool(true));
    }
    if schema.value_type == Type::IntOrString {
        put("x-kubernetes-int-or-string", Value::Bool(true));
    }
    if !schema.rules.is_empty() {
        put("x-kubernetes-validations", Value::from(schema.rules.to_vec()));
    }
    if let Some(bounds) = &schema.bounds {
        bounds_json(bounds, &mut out);
    }
    merging(schema, &mut out);
    if !is_v2 {
        logic_json(schema, &mut out);
    }
    // If unknown fields are allowed, naming these would make clients of version 2 reject all others.
    if schema.embedded_resource && !(is_v2 && schema.preserve_unknown_fields) {
        add_meta(&mut out, version);
        add_required_type(&mut out);
    }
    out
}

fn bounds_json(bounds: &Bounds, out: &mut Map) {
    let numbers = [("minimum", &bounds.minimum), ("maximum", &bounds.maximum), ("multipleOf", &bounds.multiple_of)];
    for (key, number) in numbers.into_iter().filter_map(|(key, number)| Some((key, number.as_ref()?))) {
        out.insert(key.to_owned(), Value::Number(number.clone()));
    }
    let counts = [
        ("minLength", bounds.length_min),
        ("maxLength", bounds.length_max),
        ("minItems", bounds.items_min),
        ("maxItems", bounds.items_max),
        ("minProperties", bounds.properties_min),
        ("maxProperties", bounds.properties_max),
    ];
    for (key, count) in counts.into_iter().filter_map(|(key, count)| Some((key, count?))) {
        out.insert(key.to_owned(), Value::from(count));
    }
    let flags = [
        ("exclusiveMinimum", bounds.exclusive_minimum),
        ("exclusiveMaximum", bounds.exclusive_maximum),
        ("uniqueItems", bounds.unique_items),
    ];
    for (key, _) in flags.into_iter().filter(|(_, said)| *said) {
        out.insert(key.to_owned(), Value::Bool(true));
    }
    if let Some(pattern) = &bounds.pattern {
        out.insert("pattern".to_owned(), Value::from(pattern.as_str()));
    }
}

fn logic_json(schema: &Schema, out: &mut Map) {
    let list =
        |schemas: &[Schema]| schemas.iter().map(|each| Value::Object(custom(each, Version::V3))).collect::<Vec<_>>();
    let (mut all_of, mut any_of) = (Vec::new(), Vec::new());
    if let Some(logic) = &schema.logic {
        (all_of, any_of) = (list(&logic.all_of), list(&logic.any_of));
        if !logic.one_of.is_empty() {
            out.insert("oneOf".to_owned(), Value::from(list(&logic.one_of)));
        }
        if let Some(not) = &logic.not {
            out.insert("not".to_owned(), Value::Object(custom(not, Version::V3)));
        }
    }
    // An int-or-string lists its two types where no type is given.
    let two_types = json!([{"type": "integer"}, {"type": "string"}]);
    let says_types = |any_of: &[Value]| two_types.as_array().is_some_and(|two| two.as_slice() == any_of);
    if schema.value_type == Type::IntOrString && !says_types(&any_of) {
        let is_first =
            all_of.first().and_then(|first| first.get("anyOf")?.as_array()).is_some_and(|any| says_types(any));
        match (any_of.is_empty(), is_first) {
            (true, false) => any_of = two_types.as_array().cloned().unwrap_or_default(),
            (false, false) => all_of.insert(0, json!({"anyOf": two_types})),
            (_, true) => {}
        }
    }
    for (key, schemas) in [("allOf", all_of), ("anyOf", any_of)] {
        if !schemas.is_empty() {
            out.insert(key.to_owned(), Value::from(schemas));
        }
    }
}

/// Adds the fields that every resource has.
fn add_meta(fields: &mut Map, version: Version) {
    let properties = fields.entry("properties").or_insert_with(|| json!({}));
    let Value::Object(properties) = properties else { return };
    for name in ["apiVersion", "kind"] {
        properties.insert(name.to_owned(), json!({"type": "string"}));
    }
    properties.insert("metadata".to_owned(), Value::Object(wrapped_reference(OBJECT_META, version)));
    for name in ["apiVersion", "kind", "metadata"] {
        if let Some(Value::Object(property)) = properties.get_mut(name) {
            words::describe_common(name, property);
        }
    }
}

fn add_required_type(fields: &mut Map) {
    let required = fields.entry("required").or_insert_with(|| json!([]));
    let Value::Array(required) = required else { return };
    for name in ["kind", "apiVersion"] {
        if !required.iter().any(|have| have == name) {
            required.push(Value::from(name));
        }
    }
}
