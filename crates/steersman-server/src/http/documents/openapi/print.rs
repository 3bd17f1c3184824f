//! Prints documents as JSON, piece by piece: a tree of a whole document would take ten times its size.

use crate::http::documents::openapi::operations::{Body, DocumentPath, Operation, PathItem};
use crate::http::documents::openapi::parameters::{Parameter, ParameterLocation};
use crate::http::documents::openapi::schemas;
use crate::http::documents::version::KUBERNETES_VERSION;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use steersman_schema::Edition;
use steersman_schema::openapi::Version;

/// A document of version 3.
pub(super) fn v3(path: &DocumentPath) -> Vec<u8> {
    let paths = path.paths();
    let wanted = referred(&paths);
    let definitions = schemas::collect(wanted, path.served(), Version::V3);
    let mut out = br#"{"openapi":"3.0.0","info":"#.to_vec();
    out.extend(info().to_string().bytes());
    out.extend(br#","paths":"#);
    write_object(&mut out, paths.iter().map(|item| (item.path.as_str(), path_item_v3(item))));
    out.extend(br#","components":{"schemas":"#);
    write_object(&mut out, definitions.iter().map(|(name, definition)| (name.as_str(), definition)));
    out.extend(br#","securitySchemes":{"BearerToken":"#);
    out.extend(bearer_token().to_string().bytes());
    out.extend(br"}}}");
    out
}

/// The rendered part of one path in the document of version 2.
#[derive(Debug)]
pub(super) struct Part {
    /// Paths with their operations.
    paths: Vec<(String, Bytes)>,
    /// The definitions of its own resources.
    definitions: Vec<(String, Bytes)>,
    /// The definitions that it refers to.
    names: BTreeSet<String>,
    /// The edition of the definitions.
    edition: Edition,
}

/// The part of a path.
pub(super) fn part(path: &DocumentPath) -> Part {
    let paths = path.paths();
    let (definitions, names) = schemas::own(referred(&paths), path.served(), Version::V2);
    Part {
        paths: paths.iter().map(|item| (item.path.clone(), path_item_v2(item).to_string().into())).collect(),
        definitions: definitions.into_iter().map(|(name, definition)| (name, definition.to_string().into())).collect(),
        names,
        edition: schemas::edition(path.served()),
    }
}

/// The paths and the definitions of the document of version 2, each rendered as JSON.
pub(super) struct Contents<'a> {
    pub(super) paths: Vec<(&'a str, Bytes)>,
    pub(super) definitions: BTreeMap<String, Bytes>,
}

/// The paths and definitions of all parts. `built_in` renders a definition of the table of built-in definitions.
pub(super) fn contents<'a>(parts: &[&'a Part], built_in: impl Fn(Edition, &str) -> Bytes) -> Contents<'a> {
    let edition = parts.iter().map(|part| part.edition).max().unwrap_or_default();
    let mut paths: Vec<(&str, Bytes)> = parts.iter().flat_map(|part| shared(&part.paths)).collect();
    paths.sort_by_key(|(path, _)| *path);
    let own = parts.iter().flat_map(|part| shared(&part.definitions));
    let mut definitions: BTreeMap<String, Bytes> = own.map(|(name, bytes)| (name.to_owned(), bytes)).collect();
    let mut names = BTreeSet::new();
    parts.iter().for_each(|part| names.extend(part.names.iter().cloned()));
    let missing = schemas::missing(edition, &names, |name| definitions.contains_key(name));
    definitions.extend(missing.into_iter().map(|name| {
        let definition = built_in(edition, &name);
        (name, definition)
    }));
    Contents { paths, definitions }
}

/// The document of version 2.
pub(super) fn v2(contents: &Contents<'_>) -> Vec<u8> {
    let mut out = br#"{"swagger":"2.0","info":"#.to_vec();
    out.extend(info().to_string().bytes());
    out.extend(br#","paths":"#);
    write_rendered(&mut out, contents.paths.iter().map(|(path, item)| (*path, item)));
    out.extend(br#","definitions":"#);
    write_rendered(&mut out, contents.definitions.iter().map(|(name, definition)| (name.as_str(), definition)));
    out.extend(br#","securityDefinitions":{"BearerToken":"#);
    out.extend(bearer_token().to_string().bytes());
    out.extend(br#"},"security":[{"BearerToken":[]}]}"#);
    out
}

/// A definition of the table of built-in definitions, rendered for version 2.
pub(super) fn built_in_v2(edition: Edition, name: &str) -> Bytes {
    schemas::built_in(edition, name, Version::V2).to_string().into()
}

fn shared(rendered: &[(String, Bytes)]) -> impl Iterator<Item = (&str, Bytes)> {
    rendered.iter().map(|(name, bytes)| (name.as_str(), bytes.clone()))
}

fn write_rendered<'a>(out: &mut Vec<u8>, entries: impl Iterator<Item = (&'a str, &'a Bytes)>) {
    out.push(b'{');
    for (index, (key, value)) in entries.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend(Value::from(key).to_string().bytes());
        out.push(b':');
        out.extend_from_slice(value);
    }
    out.push(b'}');
}

fn write_object(out: &mut Vec<u8>, entries: impl Iterator<Item = (impl AsRef<str>, impl std::borrow::Borrow<Value>)>) {
    out.push(b'{');
    for (index, (key, value)) in entries.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend(Value::from(key.as_ref()).to_string().bytes());
        out.push(b':');
        out.extend(value.borrow().to_string().bytes());
    }
    out.push(b'}');
}

pub(super) fn info() -> Value {
    json!({"title": "Kubernetes", "version": KUBERNETES_VERSION})
}

pub(super) fn bearer_token() -> Value {
    json!({"type": "apiKey", "in": "header", "name": "authorization", "description": "A bearer token."})
}

/// The definitions that operations refer to.
fn referred(paths: &[PathItem]) -> BTreeSet<String> {
    let operations = paths.iter().flat_map(|item| &item.operations);
    let names = operations.flat_map(|operation| {
        let body = operation.body.as_ref().map(|body| body.definition.clone());
        body.into_iter().chain(operation.answers.iter().filter_map(|(_, definition)| definition.clone()))
    });
    names.collect()
}

fn reference(definition: &str, version: Version) -> Value {
    json!({"$ref": format!("{}{definition}", schemas::prefix(version))})
}

fn described(code: u16) -> &'static str {
    match code {
        201 => "Created",
        202 => "Accepted",
        401 => "Unauthorized",
        _ => "OK",
    }
}

fn location(parameter: Parameter) -> &'static str {
    match parameter.location {
        ParameterLocation::Path => "path",
        ParameterLocation::Query => "query",
    }
}

/// The fields of an operation that are the same in both versions.
fn common(operation: &Operation) -> Map<String, Value> {
    let mut fields = Map::new();
    fields.insert("operationId".to_owned(), json!(operation.id));
    fields.insert("tags".to_owned(), json!([operation.tag]));
    if let Some(action) = operation.action {
        fields.insert("x-kubernetes-action".to_owned(), json!(action));
    }
    if let Some(kind) = &operation.kind {
        fields.insert("x-kubernetes-group-version-kind".to_owned(), schemas::kind_json(kind));
    }
    fields
}

// === version 3 ===

fn path_item_v3(item: &PathItem) -> Value {
    let mut fields = Map::new();
    if !item.parameters.is_empty() {
        let parameters: Vec<Value> = item.parameters.iter().map(|parameter| parameter_v3(*parameter)).collect();
        fields.insert("parameters".to_owned(), json!(parameters));
    }
    for operation in &item.operations {
        fields.insert(operation.method.to_owned(), operation_v3(operation));
    }
    Value::Object(fields)
}

fn operation_v3(operation: &Operation) -> Value {
    let mut fields = common(operation);
    if !operation.parameters.is_empty() {
        let parameters: Vec<Value> = operation.parameters.iter().map(|parameter| parameter_v3(*parameter)).collect();
        fields.insert("parameters".to_owned(), json!(parameters));
    }
    let content = |media_types: &[&str], definition: &str| {
        let schema = json!({"schema": reference(definition, Version::V3)});
        media_types.iter().map(|media_type| ((*media_type).to_owned(), schema.clone())).collect::<Map<_, _>>()
    };
    if let Some(body) = &operation.body {
        let mut request = json!({"content": content(&body.media_types, &body.definition)});
        if body.is_required {
            request["required"] = json!(true);
        }
        fields.insert("requestBody".to_owned(), request);
    }
    let answer = |(code, definition): &(u16, Option<String>)| {
        let mut answer = json!({"description": described(*code)});
        if let Some(definition) = definition {
            answer["content"] = Value::Object(content(&operation.produces, definition));
        } else if *code == 200 {
            let text = |media_type: &&str| ((*media_type).to_owned(), json!({"schema": {"type": "string"}}));
            answer["content"] = Value::Object(operation.produces.iter().map(text).collect());
        }
        (code.to_string(), answer)
    };
    fields.insert("responses".to_owned(), Value::Object(operation.answers.iter().map(answer).collect()));
    Value::Object(fields)
}

fn parameter_v3(parameter: Parameter) -> Value {
    let mut fields = json!({
        "name": parameter.name, "in": location(parameter), "schema": {"type": parameter.kind, "uniqueItems": true},
    });
    if parameter.location == ParameterLocation::Path {
        fields["required"] = json!(true);
    }
    fields
}

// === version 2 ===

fn path_item_v2(item: &PathItem) -> Value {
    let mut fields = Map::new();
    if !item.parameters.is_empty() {
        let parameters: Vec<Value> = item.parameters.iter().map(|parameter| parameter_v2(*parameter)).collect();
        fields.insert("parameters".to_owned(), json!(parameters));
    }
    for operation in &item.operations {
        fields.insert(operation.method.to_owned(), operation_v2(operation));
    }
    Value::Object(fields)
}

fn operation_v2(operation: &Operation) -> Value {
    let mut fields = common(operation);
    fields.insert("schemes".to_owned(), json!(["https"]));
    fields.insert("produces".to_owned(), json!(operation.produces));
    let consumes = operation.body.as_ref().map_or(vec!["*/*"], |body| body.media_types.clone());
    fields.insert("consumes".to_owned(), json!(consumes));
    let body = operation.body.as_ref().map(body_v2);
    let parameters: Vec<Value> =
        body.into_iter().chain(operation.parameters.iter().map(|parameter| parameter_v2(*parameter))).collect();
    if !parameters.is_empty() {
        fields.insert("parameters".to_owned(), json!(parameters));
    }
    let answer = |(code, definition): &(u16, Option<String>)| {
        let mut answer = json!({"description": described(*code)});
        if let Some(definition) = definition {
            answer["schema"] = reference(definition, Version::V2);
        } else if *code == 200 {
            answer["schema"] = json!({"type": "string"});
        }
        (code.to_string(), answer)
    };
    fields.insert("responses".to_owned(), Value::Object(operation.answers.iter().map(answer).collect()));
    Value::Object(fields)
}

fn body_v2(body: &Body) -> Value {
    let mut fields = json!({"name": "body", "in": "body", "schema": reference(&body.definition, Version::V2)});
    if body.is_required {
        fields["required"] = json!(true);
    }
    fields
}

fn parameter_v2(parameter: Parameter) -> Value {
    let mut fields =
        json!({"name": parameter.name, "in": location(parameter), "type": parameter.kind, "uniqueItems": true});
    if parameter.location == ParameterLocation::Path {
        fields["required"] = json!(true);
    }
    fields
}
