//! Is an `openAPIV3Schema` one that a custom resource may have?
//!
//! It must be structural: what a value is made of is said once, outside `allOf`, `anyOf`, `oneOf` and `not`, which may only
//! restrict it. Paths and texts follow apiextensions as recorded from a real server. [`check`] is for definitions that
//! clients write; [`compile`] makes a checked one into a [`Schema`].

use crate::embedded;
use crate::json_path::{JsonPath, Step};
use crate::pattern::Pattern;
use crate::prune;
use crate::schema::Schema;
use crate::validate;
use std::sync::Arc;
use steersman_machinery::Value;
use steersman_machinery::field::{Error, Path};
use steersman_machinery::value::Map;

/// Compiles a checked definition.
pub fn compile(open_api_v3_schema: &Value) -> Arc<Schema> {
    Arc::new(Schema::from_json(open_api_v3_schema))
}

/// Finds what is wrong with a definition; `path` is where it is written (`spec.validation.openAPIV3Schema`).
pub fn check(open_api_v3_schema: &Value, path: &Path) -> Vec<Error> {
    let root = Node(open_api_v3_schema);
    let mut errors = Vec::new();
    if root.flag("nullable") {
        errors.push(Error::forbidden(&path.child("nullable"), "nullable cannot be true at the root"));
    }
    let mut faults = Vec::new();
    invariants(root, Level::Root, path, &mut faults);
    complete(root, Some(root), path, path, &mut faults);
    validate::sort(&mut faults);
    if faults.is_empty() {
        let schema = Schema::from_json(open_api_v3_schema);
        defaults(&schema, path, &mut Surroundings { resource_root: true, way: Vec::new(), meta: false }, &mut faults);
    }
    errors.extend(faults);
    open_api(root, path, Where { is_root: true, in_meta: false, no_defaults: None }, &mut errors);
    errors
}

/// What a definition with a status subresource may not say at its root.
pub fn check_root_with_status(open_api_v3_schema: &Value, path: &Path) -> Vec<Error> {
    const ALLOWED: [(&str, &str); 22] = [
        ("description", "Description"),
        ("type", "Type"),
        ("format", "Format"),
        ("title", "Title"),
        ("maximum", "Maximum"),
        ("exclusiveMaximum", "ExclusiveMaximum"),
        ("minimum", "Minimum"),
        ("exclusiveMinimum", "ExclusiveMinimum"),
        ("maxLength", "MaxLength"),
        ("minLength", "MinLength"),
        ("pattern", "Pattern"),
        ("maxItems", "MaxItems"),
        ("minItems", "MinItems"),
        ("uniqueItems", "UniqueItems"),
        ("multipleOf", "MultipleOf"),
        ("required", "Required"),
        ("items", "Items"),
        ("properties", "Properties"),
        ("externalDocs", "ExternalDocs"),
        ("example", "Example"),
        ("x-kubernetes-preserve-unknown-fields", "XPreserveUnknownFields"),
        ("x-kubernetes-validations", "XValidations"),
    ];
    let root = Node(open_api_v3_schema);
    let Some(fields) = open_api_v3_schema.as_object() else { return Vec::new() };
    if root.has("type") && root.text("type") != "object" {
        let detail =
            "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        return vec![Error::invalid(&path.child("type"), root.text("type"), detail)];
    }
    if fields.keys().all(|key| !root.has(key) || ALLOWED.iter().any(|(name, _)| name == key)) {
        return Vec::new();
    }
    let names: Vec<&str> = ALLOWED.iter().map(|(_, name)| *name).collect();
    let names = names.join(" ");
    let detail =
        format!("only [{names}] fields are allowed at the root of the schema if the status subresource is enabled");
    vec![Error::invalid(path, open_api_v3_schema.clone(), detail)]
}

// === reading ===

/// A schema as it is written. Empty values count as absent.
#[derive(Clone, Copy)]
struct Node<'v>(&'v Value);

impl<'v> Node<'v> {
    fn get(self, key: &str) -> Option<&'v Value> {
        self.0.get(key).filter(|value| match value {
            Value::Null | Value::Bool(false) => false,
            Value::String(text) => !text.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::Object(_) | Value::Bool(true) | Value::Number(_) => true,
        })
    }

    fn has(self, key: &str) -> bool {
        self.get(key).is_some()
    }

    fn text(self, key: &str) -> &'v str {
        self.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    fn flag(self, key: &str) -> bool {
        self.get(key).is_some()
    }

    fn node(self, key: &str) -> Option<Node<'v>> {
        self.get(key).filter(|value| value.is_object()).map(Node)
    }

    fn nodes(self, key: &str) -> impl Iterator<Item = (usize, Node<'v>)> {
        self.get(key).and_then(Value::as_array).into_iter().flatten().map(Node).enumerate()
    }

    fn properties(self) -> impl Iterator<Item = (&'v str, Node<'v>)> {
        self.named("properties")
    }

    fn named(self, key: &str) -> impl Iterator<Item = (&'v str, Node<'v>)> {
        let fields = self.get(key).and_then(Value::as_object).into_iter().flatten();
        fields.map(|(name, node)| (name.as_str(), Node(node)))
    }

    fn property(self, name: &str) -> Option<Node<'v>> {
        self.get("properties")?.get(name).map(Node)
    }

    fn texts(self, key: &str) -> Vec<&'v str> {
        self.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
    }

    fn is_embedded(self) -> bool {
        self.flag("x-kubernetes-embedded-resource")
    }
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Level {
    Field,
    Item,
    Root,
}

// === structure ===

fn invariants(node: Node<'_>, level: Level, path: &Path, errors: &mut Vec<Error>) {
    if node.text("type") == "array" && !node.has("items") {
        errors.push(Error::required(&path.child("items"), "must be specified"));
    }
    if let Some(items) = node.node("items") {
        invariants(items, Level::Item, &path.child("items"), errors);
    }
    for (name, property) in node.properties() {
        invariants(property, Level::Field, &path.child("properties").key(name), errors);
    }
    // `additionalProperties: false` is said, too.
    if let Some(additional) = node.0.get("additionalProperties").filter(|value| !value.is_null()) {
        let path = path.child("additionalProperties");
        if level == Level::Root {
            errors.push(Error::forbidden(&path, "must not be used at the root"));
        }
        if additional.is_object() {
            invariants(Node(additional), Level::Field, &path, errors);
        }
        if node.is_embedded() {
            errors.push(Error::forbidden(&path, "must not be used if x-kubernetes-embedded-resource is set"));
        }
    }
    extensions(node, path, errors);
    let any_of_is_type = is_int_or_string(node);
    let all_of_is_type = node.nodes("allOf").next().is_some_and(|(_, first)| is_int_or_string(first));
    restrictions(node, any_of_is_type, all_of_is_type, path, errors);
    value_type(node, level, path, errors);
    meta(node, level, path, errors);
}

fn extensions(node: Node<'_>, path: &Path, errors: &mut Vec<Error>) {
    for key in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
        if node.flag("x-kubernetes-int-or-string") && node.flag(key) {
            let detail = "must be false if x-kubernetes-int-or-string is true";
            errors.push(Error::invalid(&path.child(key), true, detail));
        }
    }
    if node.is_embedded() && !node.flag("x-kubernetes-preserve-unknown-fields") && node.properties().next().is_none() {
        let detail =
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.push(Error::required(&path.child("properties"), detail));
    }
}

fn value_type(node: Node<'_>, level: Level, path: &Path, errors: &mut Vec<Error>) {
    let (value_type, path) = (node.text("type"), path.child("type"));
    let is_free = node.flag("x-kubernetes-int-or-string") || node.flag("x-kubernetes-preserve-unknown-fields");
    if node.is_embedded() && value_type != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(match value_type {
            "" => Error::required(&path, detail),
            other => Error::invalid(&path, other, detail),
        });
    } else if value_type.is_empty() && !is_free {
        let detail = match level {
            Level::Field => "must not be empty for specified object fields",
            Level::Item => "must not be empty for specified array items",
            Level::Root => "must not be empty at the root",
        };
        errors.push(Error::required(&path, detail));
    }
    if level == Level::Root && !value_type.is_empty() && value_type != "object" {
        errors.push(Error::invalid(&path, value_type, "must be object at the root"));
    }
}

/// What a schema may say of `apiVersion`, `kind` and `metadata`.
fn meta(node: Node<'_>, level: Level, path: &Path, errors: &mut Vec<Error>) {
    let is_resource = level == Level::Root || node.is_embedded();
    let path = path.child("properties");
    for name in ["kind", "apiVersion"] {
        if let Some(property) = node.property(name).filter(|property| is_resource && property.text("type") != "string")
        {
            errors.push(Error::invalid(&path.key(name).child("type"), property.text("type"), "must be string"));
        }
    }
    let Some(metadata) = node.property("metadata") else { return };
    let path = path.key("metadata");
    if is_resource && metadata.text("type") != "object" {
        errors.push(Error::invalid(&path.child("type"), metadata.text("type"), "must be object"));
    }
    let only_names = metadata.properties().all(|(name, _)| matches!(name, "name" | "generateName"));
    let says_more = metadata
        .0
        .as_object()
        .into_iter()
        .flat_map(Map::keys)
        .any(|key| !matches!(key.as_str(), "default" | "properties" | "type") && metadata.has(key));
    if level == Level::Root && (!only_names || says_more) {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.push(Error::forbidden(&path, detail));
    }
}

/// The one way to say a type inside `anyOf`: integer or string, in this order.
fn is_int_or_string(node: Node<'_>) -> bool {
    let types: Vec<&Value> = node.nodes("anyOf").map(|(_, each)| each.0).collect();
    let is_only = |value: &Value, name: &str| {
        value.as_object().is_some_and(|fields| fields.len() == 1)
            && value.get("type").and_then(Value::as_str) == Some(name)
    };
    matches!(types.as_slice(), [first, second] if is_only(first, "integer") && is_only(second, "string"))
}

/// What restricts values: alternatives and patterns.
fn restrictions(node: Node<'_>, skip_any_of: bool, skip_in_all_of: bool, path: &Path, errors: &mut Vec<Error>) {
    if !skip_any_of {
        for (index, each) in node.nodes("anyOf") {
            nested(each, false, &path.child("anyOf").index(index), errors);
        }
    }
    for (index, each) in node.nodes("allOf") {
        nested(each, skip_in_all_of && index == 0, &path.child("allOf").index(index), errors);
    }
    for (index, each) in node.nodes("oneOf") {
        nested(each, false, &path.child("oneOf").index(index), errors);
    }
    if let Some(not) = node.node("not") {
        nested(not, false, &path.child("not"), errors);
    }
    if let Err(error) = Pattern::check(node.text("pattern")) {
        let detail = format!("must be a valid regular expression, but isn't: {error}");
        errors.push(Error::invalid(&path.child("pattern"), node.text("pattern"), detail));
    }
}

fn nested(node: Node<'_>, skip_any_of: bool, path: &Path, errors: &mut Vec<Error>) {
    const FORBIDDEN: [(&str, &str); 12] = [
        ("type", "must be empty to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("nullable", "must be false to be structural"),
        ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
        ("x-kubernetes-embedded-resource", "must be false to be structural"),
        ("x-kubernetes-int-or-string", "must be false to be structural"),
        ("x-kubernetes-list-map-keys", "must be empty to be structural"),
        ("x-kubernetes-list-type", "must be undefined to be structural"),
        ("x-kubernetes-map-type", "must be undefined to be structural"),
        ("x-kubernetes-validations", "must be empty to be structural"),
    ];
    restrictions(node, skip_any_of, false, path, errors);
    if let Some(items) = node.node("items") {
        nested(items, false, &path.child("items"), errors);
    }
    for (name, property) in node.properties() {
        nested(property, false, &path.child("properties").key(name), errors);
    }
    if node.node("additionalProperties").is_some() {
        errors.push(Error::forbidden(&path.child("additionalProperties"), "must be undefined to be structural"));
    }
    for (key, detail) in FORBIDDEN {
        // A default may be any value, an empty one too.
        if node.has(key) || (key == "default" && node.0.get(key).is_some_and(|default| !default.is_null())) {
            errors.push(Error::forbidden(&path.child(key), detail));
        }
    }
    if node.property("metadata").is_some() {
        let path = path.child("properties").key("metadata");
        errors.push(Error::forbidden(&path, "must not be specified in a nested context"));
    }
}

/// Whatever is restricted must be said to be there.
fn complete(node: Node<'_>, said: Option<Node<'_>>, said_path: &Path, path: &Path, errors: &mut Vec<Error>) {
    for key in ["allOf", "anyOf", "oneOf"] {
        for (index, each) in node.nodes(key) {
            complete_nested(each, said, said_path, &path.child(key).index(index), errors);
        }
    }
    if let Some(not) = node.node("not") {
        complete_nested(not, said, said_path, &path.child("not"), errors);
    }
}

fn complete_nested(node: Node<'_>, said: Option<Node<'_>>, said_path: &Path, path: &Path, errors: &mut Vec<Error>) {
    let Some(said) = said else {
        return errors.push(Error::required(said_path, format!("because it is defined in {path}")));
    };
    complete(node, Some(said), said_path, path, errors);
    if let Some(items) = node.node("items") {
        complete_nested(items, said.node("items"), &said_path.child("items"), &path.child("items"), errors);
    }
    for (name, property) in node.properties() {
        let said_path = said_path.child("properties").key(name);
        complete_nested(property, said.property(name), &said_path, &path.child("properties").key(name), errors);
    }
}

// === defaults ===

/// The resource around a default: what must hold of it once the default is in its place.
struct Surroundings {
    /// No embedded resource has been entered.
    resource_root: bool,
    way: Vec<Option<String>>,
    meta: bool,
}

impl Surroundings {
    /// A resource that holds nothing but this default.
    fn around(&self, default: &Value) -> Value {
        let wrapped = self.way.iter().rev().fold(default.clone(), |inner, step| match step {
            Some(name) => Value::Object(Map::from_iter([(name.clone(), inner)])),
            None => Value::Array(vec![inner]),
        });
        let mut resource = wrapped;
        if let Some(fields) = resource.as_object_mut() {
            fields.entry("kind").or_insert_with(|| Value::from("Validation"));
            fields.entry("apiVersion").or_insert_with(|| Value::from("validation/v1"));
        }
        resource
    }
}

fn defaults(schema: &Schema, path: &Path, around: &mut Surroundings, errors: &mut Vec<Error>) {
    let is_resource = schema.embedded_resource || (around.resource_root && around.way.is_empty());
    if let Some(default) = &schema.default {
        let path = path.child("default");
        let mut faults = Vec::new();
        if around.meta {
            let resource = around.around(default);
            if let Some(fields) = resource.as_object() {
                embedded::resource(fields, &Path::root(), &mut faults);
            }
            if !faults.is_empty() {
                let detail = format!("must result in valid metadata: {}", steersman_machinery::field::join(&faults));
                faults = vec![Error::invalid(&path, default.clone(), detail)];
            }
        } else {
            let mut pruned = default.clone();
            prune::prune_value(schema, &mut pruned);
            if pruned != *default {
                errors.push(Error::invalid(&path, default.clone(), "must not have unknown fields"));
            }
            embedded::validate(schema, default, &path, &mut faults);
        }
        if faults.is_empty() {
            faults = validate::validate_default(schema, default, &path);
        }
        errors.extend(faults);
    }
    if schema.embedded_resource {
        let mut inner = Surroundings { resource_root: false, way: Vec::new(), meta: false };
        return defaults_inside(schema, path, &mut inner, true, errors);
    }
    defaults_inside(schema, path, around, is_resource, errors);
}

/// Not inside `additionalProperties`, where upstream does not look either.
fn defaults_inside(
    schema: &Schema,
    path: &Path,
    around: &mut Surroundings,
    is_resource: bool,
    errors: &mut Vec<Error>,
) {
    if let Some(item) = schema.items.as_deref() {
        around.way.push(None);
        defaults(item, &path.child("items"), around, errors);
        around.way.pop();
    }
    let was_meta = around.meta;
    for (name, property) in schema.properties.iter() {
        around.meta = was_meta || (is_resource && matches!(name, "apiVersion" | "kind" | "metadata"));
        around.way.push(Some(name.to_owned()));
        defaults(property, &path.child("properties").key(name), around, errors);
        around.way.pop();
    }
    around.meta = was_meta;
}

// === OpenAPI as Kubernetes takes it ===

#[derive(Clone, Copy)]
struct Where {
    is_root: bool,
    in_meta: bool,
    /// Why there may be no default here.
    no_defaults: Option<&'static str>,
}

fn open_api(node: Node<'_>, path: &Path, place: Where, errors: &mut Vec<Error>) {
    keywords(node, path, place, errors);
    let inner = Where { is_root: false, ..place };
    // Both true and false are said; absent is not.
    if let Some(additional) = node.0.get("additionalProperties").filter(|value| !value.is_null()) {
        let path = path.child("additionalProperties");
        if node.properties().next().is_some() && *additional != Value::Bool(true) {
            errors.push(Error::forbidden(&path, "additionalProperties and properties are mutual exclusive"));
        }
        let no_defaults = match place.in_meta {
            true => Some("inside additionalProperties applying to object metadata"),
            false => place.no_defaults,
        };
        if additional.is_object() {
            open_api(Node(additional), &path, Where { no_defaults, ..inner }, errors);
        }
    }
    for (name, property) in node.properties() {
        let is_meta = (place.is_root || node.is_embedded()) && matches!(name, "apiVersion" | "kind" | "metadata");
        let no_defaults = match (is_meta && place.is_root, name) {
            (true, "apiVersion") => Some("in top-level apiVersion"),
            (true, "kind") => Some("in top-level kind"),
            (true, _) => Some("in top-level metadata"),
            (false, _) => place.no_defaults,
        };
        let place = Where { in_meta: place.in_meta || is_meta, no_defaults, ..inner };
        open_api(property, &path.child("properties").key(name), place, errors);
    }
    if let Some(not) = node.node("not") {
        open_api(not, &path.child("not"), inner, errors);
    }
    for key in ["allOf", "oneOf", "anyOf"] {
        for (index, each) in node.nodes(key) {
            open_api(each, &path.child(key).index(index), inner, errors);
        }
    }
    for (name, definition) in node.named("definitions") {
        open_api(definition, &path.child("definitions").key(name), inner, errors);
    }
    if let Some(items) = node.node("items") {
        open_api(items, &path.child("items"), inner, errors);
    }
    for (index, each) in node.nodes("items") {
        open_api(each, &path.child("items").index(index), inner, errors);
    }
    merging(node, path, errors);
    rules(node, path, errors);
}

fn keywords(node: Node<'_>, path: &Path, place: Where, errors: &mut Vec<Error>) {
    const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
    let mut forbid = |key: &str, detail: &str| errors.push(Error::forbidden(&path.child(key), detail));
    if node.0.get("default").is_some_and(|default| !default.is_null())
        && let Some(why) = place.no_defaults
    {
        forbid("default", &format!("must not be set {why}"));
    }
    for key in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
        // A map is said if there is something in it.
        let is_empty_map = matches!(key, "patternProperties" | "definitions")
            && node.get(key).and_then(Value::as_object).is_some_and(Map::is_empty);
        if node.has(key) && !is_empty_map {
            forbid(key, &format!("{key} is not supported"));
        }
    }
    if node.text("type") == "null" {
        forbid("type", "type cannot be set to null, use nullable as an alternative");
    }
    if node.nodes("items").next().is_some() {
        forbid("items", "items must be a schema object and not an array");
    }
    if place.in_meta && node.is_embedded() {
        forbid("x-kubernetes-embedded-resource", "must not be used inside of resource meta");
    }
    if node.flag("uniqueItems") {
        forbid("uniqueItems", "uniqueItems cannot be set to true since the runtime complexity becomes quadratic");
    }
    let value_type = node.text("type");
    if !value_type.is_empty() && !TYPES.contains(&value_type) {
        errors.push(Error::not_supported(&path.child("type"), value_type, &TYPES));
    }
    let preserve = "x-kubernetes-preserve-unknown-fields";
    if node.0.get(preserve) == Some(&Value::Bool(false)) {
        errors.push(Error::invalid(&path.child(preserve), false, "must be true or undefined"));
    }
}

/// How lists and maps merge.
fn merging(node: Node<'_>, path: &Path, errors: &mut Vec<Error>) {
    let (value_type, list, map) =
        (node.text("type"), node.text("x-kubernetes-list-type"), node.text("x-kubernetes-map-type"));
    let must_be = |wanted: &str, key: &str| {
        let detail = format!("must be {wanted} if {key} is specified");
        match value_type {
            "" => Error::required(&path.child("type"), detail),
            other => Error::invalid(&path.child("type"), other, detail),
        }
    };
    if !map.is_empty() && value_type != "object" {
        errors.push(must_be("object", "x-kubernetes-map-type"));
    }
    if !matches!(map, "" | "atomic" | "granular") {
        errors.push(Error::not_supported(&path.child("x-kubernetes-map-type"), map, &["atomic", "granular"]));
    }
    let items = node.node("items");
    if !list.is_empty() && value_type != "array" {
        errors.push(must_be("array", "x-kubernetes-list-type"));
    } else if let Some(items) = items.filter(|_| list == "set") {
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let key = match items.text("type") {
            "array" if !matches!(items.text("x-kubernetes-list-type"), "" | "atomic") => "x-kubernetes-list-type",
            "object" if items.text("x-kubernetes-map-type") != "atomic" => "x-kubernetes-map-type",
            _ => "",
        };
        if !key.is_empty() {
            let have = items.get("x-kubernetes-list-type").cloned().unwrap_or(Value::Null);
            errors.push(Error::invalid(&path.child("items").child(key), have, detail));
        }
    }
    let list_path = path.child("x-kubernetes-list-type");
    if !matches!(list, "" | "atomic" | "map" | "set") {
        errors.push(Error::not_supported(&list_path, list, &["atomic", "set", "map"]));
    }
    if node.has("x-kubernetes-list-map-keys") && list != "map" {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(match list {
            "" => Error::required(&list_path, detail),
            other => Error::invalid(&list_path, other, detail),
        });
    }
    if list == "map" {
        map_keys(node, path, errors);
    }
    if let Some(items) = items.filter(|_| matches!(list, "map" | "set")) {
        keys_are_there(node, items, list, path, errors);
    }
}

fn map_keys(node: Node<'_>, path: &Path, errors: &mut Vec<Error>) {
    let keys = node.texts("x-kubernetes-list-map-keys");
    let keys_path = path.child("x-kubernetes-list-map-keys");
    if keys.is_empty() {
        errors.push(Error::required(&keys_path, "must not be empty if x-kubernetes-list-type is map"));
    }
    let Some(items) = node.node("items") else {
        if !node.has("items") {
            errors.push(Error::required(&path.child("items"), "must have a schema if x-kubernetes-list-type is map"));
        }
        return;
    };
    let path = path.child("items");
    if items.text("type") != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        return errors.push(Error::invalid(&path.child("type"), items.text("type"), detail));
    }
    let all = || Value::from(keys.clone());
    for (index, key) in keys.iter().enumerate() {
        match items.property(key).map(|property| property.text("type")) {
            Some("array" | "object") => {
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                let path = path.child("properties").key(key).child("type");
                errors.push(Error::invalid(&path, items.text("type"), detail));
            }
            Some(_) => {}
            None => errors.push(Error::invalid(&keys_path, all(), "entries must all be names of item properties")),
        }
        if keys[..index].contains(key) {
            errors.push(Error::invalid(&keys_path, all(), "must not contain duplicate entries"));
        }
    }
}

/// Items of sets and maps are no nulls, and every key of a map's item has a value.
fn keys_are_there(node: Node<'_>, items: Node<'_>, list: &str, path: &Path, errors: &mut Vec<Error>) {
    let path = path.child("items");
    if items.flag("nullable") {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list}");
        errors.push(Error::forbidden(&path.child("nullable"), detail));
    }
    if list != "map" {
        return;
    }
    let required = items.texts("required");
    for key in node.texts("x-kubernetes-list-map-keys") {
        let Some(property) = items.property(key) else { continue };
        let path = path.child("properties").key(key);
        if !required.contains(&key) && property.0.get("default").is_none_or(Value::is_null) {
            let detail =
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.push(Error::required(&path.child("default"), detail));
        }
        if property.flag("nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(Error::forbidden(&path.child("nullable"), detail));
        }
    }
}

/// What can be told of rules without reading their expressions.
fn rules(node: Node<'_>, path: &Path, errors: &mut Vec<Error>) {
    const REASONS: [&str; 4] =
        ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
    let has_breaks = |text: &str| text.contains(['\n', '\r']);
    for (index, rule) in node.nodes("x-kubernetes-validations") {
        let path = path.child("x-kubernetes-validations").index(index);
        let (text, message) = (rule.text("rule").trim(), rule.text("message").trim());
        if text.is_empty() {
            errors.push(Error::required(&path.child("rule"), "rule is not specified"));
        } else if rule.has("message") && message.is_empty() {
            let detail = "must be non-empty if specified";
            errors.push(Error::invalid(&path.child("message"), rule.text("message"), detail));
        } else if has_breaks(message) {
            errors.push(Error::invalid(&path.child("message"), rule.text("message"), "must not contain line breaks"));
        } else if has_breaks(text) && message.is_empty() {
            let detail = "message must be specified if rule contains line breaks";
            errors.push(Error::required(&path.child("message"), detail));
        }
        if rule.has("messageExpression") && rule.text("messageExpression").trim().is_empty() {
            let detail = "messageExpression must be non-empty if specified";
            errors.push(Error::required(&path.child("messageExpression"), detail));
        }
        let reason = rule.text("reason");
        if !reason.is_empty() && !REASONS.contains(&reason) {
            errors.push(Error::not_supported(&path.child("reason"), reason, &REASONS));
        }
        field_path(node, rule.text("fieldPath"), &path.child("fieldPath"), errors);
    }
}

fn field_path(node: Node<'_>, text: &str, path: &Path, errors: &mut Vec<Error>) {
    if text.is_empty() {
        return;
    }
    if text.trim().is_empty() {
        errors.push(Error::invalid(path, text, "must be non-empty if specified"));
    }
    if text.contains(['\n', '\r']) {
        errors.push(Error::invalid(path, text, "must not contain line breaks"));
    }
    let leads_somewhere = JsonPath::parse(text).is_ok_and(|parsed| {
        let mut here = Some(node);
        for step in parsed.steps() {
            here = match (step, here) {
                (Step::Field(name), Some(node)) => node.property(name).or_else(|| node.node("additionalProperties")),
                (Step::Field(_) | Step::Index(_), _) => None,
            };
        }
        here.is_some() && !parsed.steps().is_empty()
    });
    if !leads_somewhere {
        errors.push(Error::invalid(path, text, "must be a valid path"));
    }
}
