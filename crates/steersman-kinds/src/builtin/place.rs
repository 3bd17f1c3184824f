//! A value with its place in the object, so that a rule can look around and a fault can say where.

use steersman_machinery::Value;
use steersman_machinery::field::{Error, Path};

/// A value somewhere in an object; null where there is none.
#[derive(Clone, Debug)]
pub struct Place<'a> {
    pub path: Path,
    pub value: &'a Value,
}

impl<'a> Place<'a> {
    /// The whole object.
    pub fn root(value: &'a Value) -> Place<'a> {
        Place { path: Path::root(), value }
    }

    /// A field of the object here.
    pub fn field(&self, name: &str) -> Place<'a> {
        Place { path: self.path.child(name), value: self.value.get(name).unwrap_or(&Value::Null) }
    }

    /// A field of a field.
    pub fn at(&self, names: &[&str]) -> Place<'a> {
        names.iter().fold(self.clone(), |place, name| place.field(name))
    }

    /// The value of a key of the map here.
    pub fn key(&self, key: &str) -> Place<'a> {
        Place { path: self.path.key(key), value: self.value.get(key).unwrap_or(&Value::Null) }
    }

    /// The items of the list here.
    pub fn items(&self) -> impl Iterator<Item = Place<'a>> + use<'a> {
        let path = self.path.clone();
        let items = self.value.as_array().map(Vec::as_slice).unwrap_or_default();
        items.iter().enumerate().map(move |(index, value)| Place { path: path.index(index), value })
    }

    /// The keys of the object here, each with its value.
    pub fn entries(&self) -> impl Iterator<Item = (&'a str, Place<'a>)> + use<'a> {
        let path = self.path.clone();
        let entries = self.value.as_object().into_iter().flatten();
        entries.map(move |(key, value)| (key.as_str(), Place { path: path.key(key), value }))
    }

    /// Nothing is here.
    pub fn is_absent(&self) -> bool {
        self.value.is_null()
    }

    /// Something is here, be it empty.
    pub fn is_present(&self) -> bool {
        !self.value.is_null()
    }

    /// Nothing is here, or an empty text, list or object.
    pub fn is_empty(&self) -> bool {
        match self.value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            Value::Bool(_) | Value::Number(_) => false,
        }
    }

    /// The text here, empty where there is none.
    pub fn text(&self) -> &'a str {
        self.value.as_str().unwrap_or_default()
    }

    /// The whole number here.
    pub fn number(&self) -> Option<i64> {
        self.value.as_i64()
    }

    /// The boolean here; false if there is none.
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
