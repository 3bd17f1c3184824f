//! Validation of definitions, in the internal form. Paths and messages are those of kube-apiserver.
//!
//! Fields on which the versions agree are checked once and reported at the top (see [`crate::crd::shared`]).

mod conversion;
mod parts;

pub(super) use crate::crd::validate::parts::has_subresource;

use crate::crd::rules;
use crate::crd::status::{approval, condition, has_bad_bundle};
use crate::crd::{flag, list, shared, text, texts, v1beta1, versions};
use serde_json::json;
use std::collections::BTreeSet;
use steersman_cel::OBJECT_BUDGET;
use steersman_machinery::budget::Budget;
use steersman_machinery::value::at;
use steersman_machinery::{Value, field, name};
use steersman_schema::{Schema, structural};

/// The requirements for a definition, which depend on the version in which it is written and on the stored definition.
struct Demands<'d> {
    /// Whether every version must have a schema, and none may preserve unknown fields as a whole.
    schemas: bool,
    /// Whether schemas must be structural even if no keyword needs it.
    structure: bool,
    /// Whether a protected group needs the approval annotation.
    approval: bool,
    /// Whether `preserveUnknownFields` is forbidden.
    pruning: bool,
    /// The versions before the change.
    old_versions: &'d [Value],
}

/// The errors of a new definition that was written in this version. It ends early when the budget is exceeded, which [`Budget::check`]
/// tells.
pub(super) fn create(definition: &Value, version: &str, budget: &Budget) -> Vec<field::Error> {
    let is_current = version != v1beta1::NAME;
    let demands = Demands {
        schemas: is_current,
        structure: is_current,
        approval: is_current,
        pruning: is_current,
        old_versions: &[],
    };
    let plural_group =
        format!("{}.{}", text(definition, &["spec", "names", "plural"]), text(definition, &["spec", "group"]));
    let mut errors = Vec::new();
    if text(definition, &["metadata", "name"]) != plural_group {
        let path = field::Path::new("metadata.name");
        let name = text(definition, &["metadata", "name"]);
        errors.push(field::Error::invalid(&path, name, r#"must be spec.names.plural+"."+spec.group"#));
    }
    errors.extend(spec(definition, &demands, budget));
    errors.extend(status(definition));
    errors.extend(stored_versions(definition));
    if demands.approval {
        errors.extend(approval::fault(definition, None));
    }
    errors
}

/// The errors of a change that was written in this version. What was wrong before may stay wrong.
pub(super) fn update(new: &Value, old: &Value, version: &str, budget: &Budget) -> Vec<field::Error> {
    let is_current = version != v1beta1::NAME;
    let demands = Demands {
        schemas: is_current && versions(old).iter().all(|version| schema(version).is_some()),
        // Without preserving, the old schemas are structural already, and need no check although they may be large.
        structure: is_current
            && flag(new, &["spec", "preserveUnknownFields"])
            && !versions(old).iter().filter_map(schema).any(is_unstructured),
        approval: is_current,
        pruning: is_current && !flag(old, &["spec", "preserveUnknownFields"]),
        old_versions: versions(old),
    };
    let mut errors = spec(new, &demands, budget);
    let mut immutable = |path: &[&str]| {
        if at(new, path) != at(old, path) {
            let value = at(new, path).cloned().unwrap_or_default();
            errors.push(field::Error::invalid(&field::Path::new(path.join(".")), value, "field is immutable"));
        }
    };
    if condition::is_true(old, "Established") {
        immutable(&["spec", "scope"]);
        immutable(&["spec", "names", "kind"]);
    }
    immutable(&["spec", "group"]);
    immutable(&["spec", "names", "plural"]);
    // Before a definition is established, its CA bundle may not have been written yet.
    let may_have_bad_bundle = !condition::is_true(old, "Established") || has_bad_bundle(old);
    if !may_have_bad_bundle {
        errors.extend(conversion::bundle_error(new));
    }
    errors.extend(status(new));
    errors.extend(stored_versions(new));
    if demands.approval {
        errors.extend(approval::fault(new, Some(old)));
    }
    errors
}

/// The errors of a status.
pub(super) fn status(definition: &Value) -> Vec<field::Error> {
    let names = at(definition, &["status", "acceptedNames"]).unwrap_or(&Value::Null);
    parts::names(names, &field::Path::new("status.acceptedNames"))
}

fn spec(definition: &Value, demands: &Demands<'_>, budget: &Budget) -> Vec<field::Error> {
    let (path, spec) = (field::Path::new("spec"), definition.get("spec").unwrap_or(&Value::Null));
    let mut errors = Vec::new();
    errors.extend(group(text(spec, &["group"]), &path.child("group")));
    match text(spec, &["scope"]) {
        "" => errors.push(field::Error::required(&path.child("scope"), "")),
        "Cluster" | "Namespaced" => {}
        other => errors.push(field::Error::not_supported(&path.child("scope"), other, &["Cluster", "Namespaced"])),
    }
    if flag(spec, &["preserveUnknownFields"]) && demands.pruning {
        let detail =
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.push(field::Error::invalid(&path.child("preserveUnknownFields"), true, detail));
    }
    errors.extend(version_list(spec, &path.child("versions")));
    errors.extend(schemas(spec, demands, budget));
    for (_, place, subresources) in shared::places(list(spec, &["versions"]), "subresources") {
        errors.extend(parts::subresources(subresources, &place));
    }
    for (_, place, columns) in shared::places(list(spec, &["versions"]), "additionalPrinterColumns") {
        for (index, column) in columns.as_array().into_iter().flatten().enumerate() {
            errors.extend(parts::column(column, &place.index(index)));
        }
    }
    for (index, place, fields) in shared::places(list(spec, &["versions"]), "selectableFields") {
        errors.extend(parts::selectable_fields(fields, schema(&list(spec, &["versions"])[index]), &place));
    }
    let names_path = path.child("names");
    for key in ["plural", "singular", "kind", "listKind"] {
        if text(spec, &["names", key]).is_empty() {
            errors.push(field::Error::required(&names_path.child(key), ""));
        }
    }
    errors.extend(parts::names(spec.get("names").unwrap_or(&Value::Null), &names_path));
    errors.extend(conversion::errors(spec, &path.child("conversion")));
    errors
}

fn group(group: &str, path: &field::Path) -> Option<field::Error> {
    if group.is_empty() {
        return Some(field::Error::required(path, ""));
    }
    let wrong = name::dns1123_subdomain(group);
    if !wrong.is_empty() {
        return Some(field::Error::invalid(path, group, wrong.join(",")));
    }
    let detail = "should be a domain with at least one dot";
    (!group.contains('.')).then(|| field::Error::invalid(path, group, detail))
}

/// The errors of the list of versions, and of each version.
fn version_list(spec: &Value, path: &field::Path) -> Vec<field::Error> {
    let versions = list(spec, &["versions"]);
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    for (index, version) in versions.iter().enumerate() {
        let (place, name) = (path.index(index), text(version, &["name"]));
        seen.insert(name);
        let wrong = name::dns1035_label(name);
        if !wrong.is_empty() {
            errors.push(field::Error::invalid(&place.child("name"), name, wrong.join(",")));
        }
        // Upstream's internal form has the name of the first version once more.
        if index == 0 && !wrong.is_empty() && !name.is_empty() {
            errors.push(field::Error::invalid(&field::Path::new("spec.version"), name, wrong.join(",")));
        }
        errors.extend(parts::deprecation(version, &place.child("deprecationWarning")));
    }
    let whole = |detail: &str| {
        let mut error = field::Error::invalid(path, Value::Null, format!("{}: {detail}", dump(versions)));
        // The dump replaces the value, whose keys would be printed sorted.
        error.value = None;
        error
    };
    if seen.len() != versions.len() {
        errors.push(whole("must contain unique version names"));
    }
    if versions.iter().filter(|version| flag(version, &["storage"])).count() != 1 {
        errors.push(whole("must have exactly one version marked as storage version"));
    }
    errors
}

/// The errors of the schemas, and of versions without one.
fn schemas(spec: &Value, demands: &Demands<'_>, budget: &Budget) -> Vec<field::Error> {
    let (path, versions) = (field::Path::new("spec"), list(spec, &["versions"]));
    let preserves = flag(spec, &["preserveUnknownFields"]);
    let mut errors = Vec::new();
    for (index, version) in versions.iter().enumerate().filter(|(_, version)| schema(version).is_none()) {
        let place = path.child("versions").index(index).child("schema").child("openAPIV3Schema");
        if demands.schemas {
            errors.push(field::Error::required(&place, ""));
        } else if !preserves && flag(version, &["served"]) {
            errors.push(field::Error::required(&place, "because otherwise all fields are pruned"));
        }
    }
    let all = || versions.iter().filter_map(schema);
    let has_defaults = all().any(|schema| holds(schema, &|schema| schema.contains_key("default")));
    if has_defaults && preserves {
        let detail = "must be false in order to use defaults in the schema";
        errors.push(field::Error::invalid(&path.child("preserveUnknownFields"), true, detail));
    }
    let extensions = |schema: &serde_json::Map<String, Value>| {
        schema.keys().any(|key| key.starts_with("x-kubernetes-") && key != "x-kubernetes-map-type")
    };
    let needs_structure = has_defaults || all().any(|schema| holds(schema, &extensions));
    let is_structural = demands.structure || !preserves || needs_structure;
    let has_status = |version: &Value| has_subresource(version, "status");
    for (index, place, validation) in shared::places(versions, "schema") {
        let Some(written) = validation.get("openAPIV3Schema") else { continue };
        let place = place.child("openAPIV3Schema");
        let is_watched = match shared::is_shared(versions, "schema") {
            true => versions.iter().any(has_status),
            false => has_status(&versions[index]),
        };
        let root = match is_watched {
            true => structural::check_root_with_status(written, &place),
            false => Vec::new(),
        };
        if is_structural {
            let name = text(&versions[index], &["name"]);
            let old = demands.old_versions.iter().find(|version| text(version, &["name"]) == name);
            let is_unchanged = old.and_then(schema) == Some(written);
            errors.extend(schema_errors(written, &place, is_unchanged, root, budget));
        } else {
            errors.extend(root);
        }
    }
    errors
}

/// The errors of one schema that has to be structural, and of its rules, behind those of its root with a status.
fn schema_errors(
    written: &Value,
    path: &field::Path,
    is_unchanged: bool,
    root: Vec<field::Error>,
    budget: &Budget,
) -> Vec<field::Error> {
    let mut cost = Some(OBJECT_BUDGET);
    let mut judge = |schema: &Schema, default: &Value, path: &field::Path, default_of| {
        rules::judge_default(schema, default, path, default_of, &mut cost, budget)
    };
    let mut found = structural::examine(written, path, budget, &mut judge);
    found.root.splice(0..0, root);
    let has_rules = holds(written, &|schema| schema.contains_key("x-kubernetes-validations"));
    let rules = match has_rules && found.is_structural() {
        true => {
            let place = rules::SchemaContext { path, keywords: &found.keywords, is_unchanged, budget };
            rules::errors(&Schema::from_json(written), &place)
        }
        false => Vec::new(),
    };
    let mut errors = found.into_errors();
    errors.extend(rules);
    errors
}

fn stored_versions(definition: &Value) -> Vec<field::Error> {
    let path = field::Path::new("status.storedVersions");
    let stored = texts(definition, &["status", "storedVersions"]);
    if stored.is_empty() {
        return vec![field::Error::invalid(&path, Value::Null, "must have at least one stored version")];
    }
    let mut errors = Vec::new();
    let names: Vec<&str> = versions(definition).iter().map(|version| text(version, &["name"])).collect();
    // A second version of the same name is not looked for any more.
    let mut left: BTreeSet<&str> = stored.iter().map(|name| &**name).collect();
    for (version, name) in versions(definition).iter().zip(&names) {
        if !left.remove(name) && flag(version, &["storage"]) {
            errors.push(field::Error::invalid(&path, json!(stored), format!("must have the storage version {name}")));
        }
    }
    for (index, name) in stored.iter().enumerate().filter(|(_, name)| !names.contains(name)) {
        let detail = format!(
            "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
        );
        errors.push(field::Error::invalid(&path.index(index), *name, detail));
    }
    errors
}

fn schema(version: &Value) -> Option<&Value> {
    at(version, &["schema", "openAPIV3Schema"]).filter(|schema| !schema.is_null())
}

fn is_unstructured(schema: &Value) -> bool {
    !structural::check(schema, &field::Path::root()).is_empty()
}

/// Whether a predicate is true for any part of a schema.
fn holds(schema: &Value, is_so: &dyn Fn(&serde_json::Map<String, Value>) -> bool) -> bool {
    let Some(object) = schema.as_object() else { return false };
    if is_so(object) {
        return true;
    }
    let in_map = |key: &str| {
        object.get(key).and_then(Value::as_object).is_some_and(|map| map.values().any(|schema| holds(schema, is_so)))
    };
    let in_list = |key: &str| {
        object.get(key).and_then(Value::as_array).is_some_and(|list| list.iter().any(|schema| holds(schema, is_so)))
    };
    let in_one = |key: &str| object.get(key).is_some_and(|schema| holds(schema, is_so));
    in_map("properties")
        || ["allOf", "anyOf", "oneOf"].into_iter().any(in_list)
        || ["items", "additionalProperties", "not"].into_iter().any(in_one)
}

/// The versions as the message prints them: every field, in the order of upstream's type.
fn dump(versions: &[Value]) -> String {
    let own = |version: &Value, key: &str| match shared::is_shared(versions, key) {
        true => Value::Null,
        false => shared::said(version, key).cloned().unwrap_or_default(),
    };
    let one = |version: &Value| {
        let fields = [
            ("Name", json!(text(version, &["name"]))),
            ("Served", json!(flag(version, &["served"]))),
            ("Storage", json!(flag(version, &["storage"]))),
            ("Deprecated", json!(flag(version, &["deprecated"]))),
            ("DeprecationWarning", version.get("deprecationWarning").cloned().unwrap_or_default()),
            ("Schema", own(version, "schema")),
            ("Subresources", own(version, "subresources")),
            ("AdditionalPrinterColumns", own(version, "additionalPrinterColumns")),
            ("SelectableFields", own(version, "selectableFields")),
        ];
        format!("{{{}}}", fields.map(|(key, value)| format!("{key:?}:{value}")).join(","))
    };
    format!("[{}]", versions.iter().map(one).collect::<Vec<_>>().join(","))
}
