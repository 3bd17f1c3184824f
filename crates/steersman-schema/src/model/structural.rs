//! Checks that an `openAPIV3Schema` is valid for a custom resource.
//!
//! It must be structural: the types of values are specified once, outside `allOf`, `anyOf`, `oneOf` and `not`, which
//! may only restrict them. Paths and texts follow apiextensions as recorded from a real server. [`check`] validates
//! definitions that clients write; [`compile`] turns a checked one into a [`Schema`].

mod defaults;
mod invariants;
mod keywords;
mod merging;
mod node;
mod patterns;
mod rules;
mod unsupported;

use crate::model::schema::Schema;
use crate::model::structural::invariants::{Level, complete, invariants};
use crate::model::structural::node::Node;
use crate::values::validate;
use std::sync::Arc;
use steersman_machinery::Value;
use steersman_machinery::budget::{Budget, cost};
use steersman_machinery::field::{Error, Path};

/// The steps that all walks take for a value of a schema together.
const LOOKS: usize = 50;

/// Compiles a checked definition.
pub fn compile(open_api_v3_schema: &Value) -> Arc<Schema> {
    Arc::new(Schema::from_json(open_api_v3_schema))
}

/// Validates a default by the parts of a schema other than its structure. The arguments are the schema, the default,
/// its path, and the value that it is set for.
pub type JudgeDefault<'j> = dyn FnMut(&Schema, &Value, &Path, DefaultOf) -> Vec<Error> + 'j;

/// The value that a default is set for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DefaultOf {
    /// A value in a resource.
    Field,
    /// A whole resource, embedded or not.
    Resource,
}

/// The errors of a definition.
#[derive(Debug, Default)]
pub struct Findings {
    /// Errors of the root: keywords that only parts may have. Reported first.
    pub root: Vec<Error>,
    /// The schema is not structural, or a default is invalid; the rules cannot be checked.
    pub structure: Vec<Error>,
    /// Errors of single keywords.
    pub keywords: Vec<Error>,
    /// A keyword keeps the definition from being read as a structural schema, whose structure is unknown then. Most such keywords have an error
    /// of their own, so that this one is reported only where there is no other.
    pub unreadable: Option<Error>,
}

impl Findings {
    /// Whether the definition is a structural schema with valid defaults, so that its rules can be checked.
    pub fn is_structural(&self) -> bool {
        self.structure.is_empty() && self.unreadable.is_none()
    }

    pub fn into_errors(self) -> Vec<Error> {
        let mut errors = self.root;
        errors.extend(self.structure);
        errors.extend(self.keywords);
        if errors.is_empty() {
            errors.extend(self.unreadable);
        }
        errors
    }
}

/// The errors of a definition; `path` is its field path (`spec.validation.openAPIV3Schema`).
pub fn check(open_api_v3_schema: &Value, path: &Path) -> Vec<Error> {
    examine(open_api_v3_schema, path, &Budget::unlimited(), &mut |_, _, _, _| Vec::new()).into_errors()
}

/// The same, with faults told apart. Defaults that fit their schema are shown to `judge`.
///
/// It ends early, with the faults found so far, when the budget is exceeded: then [`Budget::check`] fails.
pub fn examine(open_api_v3_schema: &Value, path: &Path, budget: &Budget, judge: &mut JudgeDefault<'_>) -> Findings {
    let root = Node(open_api_v3_schema);
    let mut found = Findings::default();
    let (n_values, _) = cost::of(open_api_v3_schema);
    if budget.work(n_values.saturating_mul(LOOKS)).is_err() {
        return found;
    }
    found.unreadable = unsupported::fault(root).map(|fault| Error::invalid(path, "", fault));
    if found.unreadable.is_none() {
        invariants(root, Level::Root, path, &mut found.structure);
        complete(root, Some(root), path, path, &mut found.structure);
        patterns::check(root, path, budget, &mut found.structure);
        validate::sort(&mut found.structure);
    }
    if found.is_structural() {
        let judging = defaults::Judging { budget, judge };
        defaults::check(&Schema::from_json(open_api_v3_schema), path, judging, &mut found.structure);
    }
    if root.flag("nullable") {
        found.root.push(Error::forbidden(&path.child("nullable"), "nullable cannot be true at the root"));
    }
    keywords::check(root, path, &mut found.keywords);
    found
}

/// The errors of keywords that a definition with a status subresource may not have at its root.
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
    // Upstream tells an empty list or text from an absent one here.
    const POINTERS: [&str; 3] = ["$ref", "x-kubernetes-list-type", "x-kubernetes-map-type"];
    let is_given = |key: &str| {
        let is_present = |value: &Value| value.is_array() || (value.is_string() && POINTERS.contains(&key));
        root.has(key) || fields.get(key).is_some_and(is_present)
    };
    if fields.keys().all(|key| !is_given(key) || ALLOWED.iter().any(|(name, _)| name == key)) {
        return Vec::new();
    }
    let names: Vec<&str> = ALLOWED.iter().map(|(_, name)| *name).collect();
    let names = names.join(" ");
    let detail =
        format!("only [{names}] fields are allowed at the root of the schema if the status subresource is enabled");
    vec![Error::invalid(path, open_api_v3_schema.clone(), detail)]
}
