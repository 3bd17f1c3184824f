//! The names that a definition claims in its group.

use crate::crd::{text, texts};
use serde_json::{Map, json};
use steersman_machinery::Value;

/// The names of a definition: those it asks for, or those it has been given.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Names {
    /// The group in which they are unique.
    pub group: String,
    /// As it stands in the path.
    pub plural: String,
    /// For people.
    pub singular: String,
    /// Other names for the plural.
    pub short_names: Vec<String>,
    /// The kind of one object.
    pub kind: String,
    /// The kind of a list.
    pub list_kind: String,
    /// The groups of resources it belongs to.
    pub categories: Vec<String>,
}

impl Names {
    /// The names a definition (in the internal form) asks for.
    pub fn requested(definition: &Value) -> Names {
        Names::at(definition, &["spec", "names"])
    }

    /// The names a definition has been given; others cannot have them.
    pub fn accepted(definition: &Value) -> Names {
        Names::at(definition, &["status", "acceptedNames"])
    }

    fn at(definition: &Value, path: &[&str]) -> Names {
        let names = steersman_machinery::value::at(definition, path).unwrap_or(&Value::Null);
        let one = |key: &str| text(names, &[key]).to_owned();
        let many = |key: &str| texts(names, &[key]).into_iter().map(str::to_owned).collect();
        Names {
            group: text(definition, &["spec", "group"]).to_owned(),
            plural: one("plural"),
            singular: one("singular"),
            short_names: many("shortNames"),
            kind: one("kind"),
            list_kind: one("listKind"),
            categories: many("categories"),
        }
    }

    pub(super) fn to_value(&self) -> Value {
        let mut names = Map::new();
        names.insert("plural".to_owned(), json!(self.plural));
        names.insert("kind".to_owned(), json!(self.kind));
        for (key, name) in [("singular", &self.singular), ("listKind", &self.list_kind)] {
            if !name.is_empty() {
                names.insert(key.to_owned(), json!(name));
            }
        }
        for (key, more) in [("shortNames", &self.short_names), ("categories", &self.categories)] {
            if !more.is_empty() {
                names.insert(key.to_owned(), json!(more));
            }
        }
        Value::Object(names)
    }

    /// Whether a resource of these names answers to the name.
    pub(super) fn has_resource(&self, name: &str) -> bool {
        self.plural == name || self.singular == name || self.short_names.iter().any(|short| short == name)
    }

    /// Whether the name is one of its kinds.
    pub(super) fn has_kind(&self, name: &str) -> bool {
        self.kind == name || self.list_kind == name
    }
}
