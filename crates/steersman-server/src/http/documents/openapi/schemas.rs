//! The definitions that a document needs: those of its kinds, and all that they refer to.

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use steersman_kinds::catalog::Served;
use steersman_machinery::GroupVersionKind;
use steersman_schema::openapi::{self, Version};
use steersman_schema::{Definitions, Edition};

/// The name of the definition of a resource's objects.
pub(super) fn object_name(served: &Served) -> String {
    served.version().definition.to_string()
}

/// The name of the definition of a resource's lists.
pub(super) fn list_name(served: &Served) -> String {
    let kind = GroupVersionKind { kind: served.resource.list_kind.to_string(), ..served.kind() };
    match served.resource.is_custom() {
        true => openapi::custom_definition_name(&kind),
        false => known_name(&kind).unwrap_or_else(|| format!("{}List", served.version().definition)),
    }
}

/// The name of the definition of a kind of subresource.
pub(super) fn kind_name(kind: &GroupVersionKind) -> String {
    known_name(kind).unwrap_or_else(|| openapi::custom_definition_name(kind))
}

fn known_name(kind: &GroupVersionKind) -> Option<String> {
    Definitions::builtin().definition_of(kind).map(|definition| definition.name().to_owned())
}

/// The edition of the definitions of some resources: the edition of any of them, since resources of definitions have
/// none of their own.
pub(super) fn edition(served: &[Served]) -> Edition {
    served.iter().map(|served| served.version().schema.edition()).max().unwrap_or_default()
}

/// The named definitions and those that they refer to. Definitions of the given resources are taken from these.
pub(super) fn collect(wanted: BTreeSet<String>, served: &[Served], version: Version) -> BTreeMap<String, Value> {
    let (mut definitions, names) = own(wanted, served, version);
    let edition = edition(served);
    for name in missing(edition, &names, |name| definitions.contains_key(name)) {
        let definition = built_in(edition, &name, version);
        definitions.insert(name, definition);
    }
    definitions
}

/// The definitions of resources that are not in the table of built-in definitions, and the names that these and the
/// given ones refer to.
pub(super) fn own(
    wanted: BTreeSet<String>,
    served: &[Served],
    version: Version,
) -> (BTreeMap<String, Value>, BTreeSet<String>) {
    let mut definitions = BTreeMap::new();
    served.iter().for_each(|served| own_definitions(served, version, &mut definitions));
    let mut names = wanted;
    definitions.values().for_each(|definition| references(definition, version, &mut names));
    (definitions, names)
}

/// The given names, and all that built-in definitions among them refer to, except those already known.
pub(super) fn missing(edition: Edition, names: &BTreeSet<String>, is_known: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let referred = openapi::closure(edition, names.iter().map(String::as_str));
    let all = referred.into_iter().chain(names.iter().map(String::as_str));
    all.filter(|name| !is_known(name)).map(str::to_owned).collect()
}

/// The definition of a built-in name.
///
/// Unknown names get an object without fields, so that every reference can be resolved.
pub(super) fn built_in(edition: Edition, name: &str, version: Version) -> Value {
    openapi::definition_json(edition, name, version).unwrap_or_else(|| json!({"type": "object"}))
}

/// Adds the definitions of a resource that is not in the table of built-in definitions.
fn own_definitions(served: &Served, version: Version, definitions: &mut BTreeMap<String, Value>) {
    let (name, list_name) = (object_name(served), list_name(served));
    if Definitions::of(served.version().schema.edition()).definition(&name).is_some() {
        return;
    }
    let (kind, schema) = (served.kind(), &served.version().schema);
    let object = match served.resource.is_custom() {
        true => {
            let selectable = served.version().selectable_fields.iter().map(|field| &*field.name);
            openapi::custom_resource(schema, &kind, &selectable.collect::<Vec<_>>(), version)
        }
        false => {
            let known = steersman_kinds::crd::definition_json(&name, prefix(version));
            let mut object = known.unwrap_or_else(|| openapi::schema_json(schema, version));
            object["x-kubernetes-group-version-kind"] = json!([kind_json(&kind)]);
            object
        }
    };
    let list_kind = GroupVersionKind { kind: served.resource.list_kind.to_string(), ..kind };
    let list = openapi::custom_resource_list(&list_kind, &name, version);
    definitions.insert(name, object);
    definitions.insert(list_name, list);
}

/// The prefix of a reference before the name.
pub(super) fn prefix(version: Version) -> &'static str {
    match version {
        Version::V2 => "#/definitions/",
        Version::V3 => "#/components/schemas/",
    }
}

pub(super) fn kind_json(kind: &GroupVersionKind) -> Value {
    json!({"group": kind.group, "version": kind.version, "kind": kind.kind})
}

/// The names that a definition refers to.
fn references(value: &Value, version: Version, names: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| references(item, version, names)),
        Value::Object(fields) => {
            let reference = fields.get("$ref").and_then(Value::as_str);
            names.extend(reference.and_then(|name| name.strip_prefix(prefix(version))).map(str::to_owned));
            fields.values().for_each(|field| references(field, version, names));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
