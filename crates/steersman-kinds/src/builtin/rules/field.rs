//! A value with its path in the object, so that a rule can read nearby values and report errors.

use steersman_machinery::Value;
use steersman_machinery::field::{Error, Path};

/// A value in an object; null where there is none.
#[derive(Clone, Debug)]
pub struct Field<'a> {
    pub path: Path,
    pub value: &'a Value,
}

/// Whether a value is absent, or an empty string, list or object.
pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

impl<'a> Field<'a> {
    /// The whole object.
    pub fn root(value: &'a Value) -> Field<'a> {
        Field { path: Path::root(), value }
    }

    /// A field of this object.
    pub fn field(&self, name: &str) -> Field<'a> {
        Field { path: self.path.child(name), value: self.value.get(name).unwrap_or(&Value::Null) }
    }

    /// The value at a path of fields.
    pub fn at(&self, names: &[&str]) -> Field<'a> {
        names.iter().fold(self.clone(), |field, name| field.field(name))
    }

    /// The value of a key of this map.
    pub fn key(&self, key: &str) -> Field<'a> {
        Field { path: self.path.key(key), value: self.value.get(key).unwrap_or(&Value::Null) }
    }

    /// The items of this list.
    pub fn items(&self) -> impl Iterator<Item = Field<'a>> + use<'a> {
        let path = self.path.clone();
        let items = self.value.as_array().map(Vec::as_slice).unwrap_or_default();
        items.iter().enumerate().map(move |(index, value)| Field { path: path.index(index), value })
    }

    /// The keys of this object, each with its value.
    pub fn entries(&self) -> impl Iterator<Item = (&'a str, Field<'a>)> + use<'a> {
        let path = self.path.clone();
        let entries = self.value.as_object().into_iter().flatten();
        entries.map(move |(key, value)| (key.as_str(), Field { path: path.key(key), value }))
    }

    /// Whether the value is absent.
    pub fn is_absent(&self) -> bool {
        self.value.is_null()
    }

    /// Whether the value is present, even if it is empty.
    pub fn is_present(&self) -> bool {
        !self.value.is_null()
    }

    /// Whether the value is absent, or an empty string, list or object.
    pub fn is_empty(&self) -> bool {
        is_empty(self.value)
    }

    /// The string, empty if there is none.
    pub fn text(&self) -> &'a str {
        self.value.as_str().unwrap_or_default()
    }

    /// The integer, if it is one.
    pub fn number(&self) -> Option<i64> {
        self.value.as_i64()
    }

    /// The boolean; false if there is none.
    pub fn flag(&self) -> bool {
        self.value.as_bool().unwrap_or(false)
    }

    /// `Required value`.
    pub fn required(&self, detail: &str) -> Error {
        Error::required(&self.path, detail)
    }

    /// `Invalid value`.
    pub fn invalid(&self, detail: impl Into<String>) -> Error {
        Error::invalid(&self.path, self.value.clone(), detail)
    }

    /// `Forbidden`.
    pub fn forbidden(&self, detail: impl Into<String>) -> Error {
        Error::forbidden(&self.path, detail)
    }

    /// `Duplicate value`.
    pub fn duplicate(&self) -> Error {
        Error::duplicate(&self.path, self.value.clone())
    }

    /// `Unsupported value`.
    pub fn not_supported(&self, supported: &[&str]) -> Error {
        Error::not_supported(&self.path, self.value.clone(), supported)
    }
}
