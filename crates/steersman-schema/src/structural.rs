//! Is an `openAPIV3Schema` one that a custom resource may have?
//!
//! It must be structural: what a value is made of is said once, outside `allOf`, `anyOf`, `oneOf` and `not`, which may only
//! restrict it. Paths and texts follow apiextensions as recorded from a real server. [`check`] is for definitions that
//! clients write; [`compile`] makes a checked one into a [`Schema`].

mod defaults;
mod invariants;
mod keywords;
mod merging;
mod node;
mod patterns;
mod rules;

use crate::schema::Schema;
use crate::structural::invariants::{Level, complete, invariants};
use crate::structural::node::Node;
use crate::validate;
use std::sync::Arc;
use steersman_machinery::Value;
use steersman_machinery::field::{Error, Path};

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
    patterns::check(root, path, &mut faults);
    validate::sort(&mut faults);
    if faults.is_empty() {
        defaults::check(&Schema::from_json(open_api_v3_schema), path, &mut faults);
    }
    errors.extend(faults);
    keywords::check(root, path, &mut errors);
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
