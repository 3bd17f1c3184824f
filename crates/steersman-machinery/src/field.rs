//! Validation errors of single fields: the path, the kind, and Kubernetes' wording.
//!
//! The wording follows apimachinery's `util/validation/field` as recorded from a real server: clients and scripts match
//! on it.

use crate::status::Cause;
use crate::value::Value;
use std::collections::HashSet;
use std::fmt::{self, Write as _};

/// The most bytes of a value that a message repeats.
const VALUE_BYTES_MAX: usize = 16 << 10;

/// A field path: `spec.containers[0].env[2].name`, `data[some key]`.
#[derive(Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Path(String);

/// One validation error. [`fmt::Display`] gives `field: message`.
#[derive(Clone, Debug, PartialEq)]
pub struct Error {
    /// The kind of error.
    pub kind: Kind,
    /// The field path.
    pub field: String,
    /// The invalid value, for the kinds that print it.
    pub value: Option<Value>,
    /// The description of a valid value.
    pub detail: String,
}

/// The kind of a validation error; each has a machine-readable reason and a prefix of the message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(missing_docs, reason = "the variants are the reasons' own words")]
pub enum Kind {
    Duplicate,
    Forbidden,
    Internal,
    Invalid,
    NotFound,
    NotSupported,
    Required,
    TooLong,
    TooMany,
    TypeInvalid,
}

// === impl Path ===

impl Path {
    /// The path of the object itself.
    pub fn root() -> Path {
        Path::default()
    }

    /// A path given as text, unchanged.
    pub fn new(text: impl Into<String>) -> Path {
        Path(text.into())
    }

    /// The path of a field of this object.
    #[must_use]
    pub fn child(&self, name: &str) -> Path {
        if self.0.is_empty() {
            return Path(name.to_owned());
        }
        Path(format!("{}.{name}", self.0))
    }

    /// The path of an item of this list.
    #[must_use]
    pub fn index(&self, index: usize) -> Path {
        Path(format!("{}[{index}]", self.0))
    }

    /// The path of an entry of this map.
    #[must_use]
    pub fn key(&self, key: &str) -> Path {
        Path(format!("{}[{key}]", self.0))
    }

    /// The printed form.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl Error ===

impl Error {
    fn new(kind: Kind, path: &Path, value: Option<Value>, detail: impl Into<String>) -> Error {
        Error { kind, field: path.0.clone(), value, detail: detail.into() }
    }

    /// `Duplicate value: "a"`.
    pub fn duplicate(path: &Path, value: Value) -> Error {
        Error::new(Kind::Duplicate, path, Some(value), "")
    }

    /// `Forbidden: detail`.
    pub fn forbidden(path: &Path, detail: impl Into<String>) -> Error {
        Error::new(Kind::Forbidden, path, None, detail)
    }

    /// `Internal error: detail`.
    pub fn internal(path: &Path, detail: impl Into<String>) -> Error {
        Error::new(Kind::Internal, path, None, detail)
    }

    /// `Invalid value: "a": detail`.
    pub fn invalid(path: &Path, value: impl Into<Value>, detail: impl Into<String>) -> Error {
        Error::new(Kind::Invalid, path, Some(value.into()), detail)
    }

    /// `Invalid value: detail`, where printing the value would not help.
    pub fn invalid_without_value(path: &Path, detail: impl Into<String>) -> Error {
        Error::new(Kind::Invalid, path, None, detail)
    }

    /// `Not found: "a"`.
    pub fn not_found(path: &Path, value: impl Into<Value>) -> Error {
        Error::new(Kind::NotFound, path, Some(value.into()), "")
    }

    /// `Unsupported value: "a": supported values: "b", "c"`.
    pub fn not_supported(path: &Path, value: impl Into<Value>, supported: &[&str]) -> Error {
        let quoted: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
        let detail = if quoted.is_empty() { String::new() } else { format!("supported values: {}", quoted.join(", ")) };
        Error::new(Kind::NotSupported, path, Some(value.into()), detail)
    }

    /// `Required value`, with `: detail` where there is one.
    pub fn required(path: &Path, detail: impl Into<String>) -> Error {
        Error::new(Kind::Required, path, None, detail)
    }

    /// `Too long: may not be more than N bytes`.
    pub fn too_long(path: &Path, bytes_max: usize) -> Error {
        Error::new(Kind::TooLong, path, None, format!("may not be more than {bytes_max} bytes"))
    }

    /// `Too many: 5: must have at most 3 items`.
    pub fn too_many(path: &Path, actual: usize, items_max: usize) -> Error {
        let items = if items_max == 1 { "item" } else { "items" };
        Error::new(Kind::TooMany, path, Some(Value::from(actual)), format!("must have at most {items_max} {items}"))
    }

    /// `Invalid value: "string": detail`, for a value of the wrong type.
    pub fn type_invalid(path: &Path, value: impl Into<Value>, detail: impl Into<String>) -> Error {
        Error::new(Kind::TypeInvalid, path, Some(value.into()), detail)
    }

    /// The machine-readable reason.
    pub fn reason(&self) -> &'static str {
        match self.kind {
            Kind::Duplicate => "FieldValueDuplicate",
            Kind::Forbidden => "FieldValueForbidden",
            Kind::Internal => "InternalError",
            Kind::Invalid => "FieldValueInvalid",
            Kind::NotFound => "FieldValueNotFound",
            Kind::NotSupported => "FieldValueNotSupported",
            Kind::Required => "FieldValueRequired",
            Kind::TooLong => "FieldValueTooLong",
            Kind::TooMany => "FieldValueTooMany",
            Kind::TypeInvalid => "FieldValueTypeInvalid",
        }
    }

    /// The message without the field path.
    pub fn message(&self) -> String {
        let lead = match self.kind {
            Kind::Duplicate => "Duplicate value",
            Kind::Forbidden => "Forbidden",
            Kind::Internal => "Internal error",
            Kind::Invalid | Kind::TypeInvalid => "Invalid value",
            Kind::NotFound => "Not found",
            Kind::NotSupported => "Unsupported value",
            Kind::Required => "Required value",
            Kind::TooLong => "Too long",
            Kind::TooMany => "Too many",
        };
        let mut message = lead.to_owned();
        if let Some(value) = &self.value {
            message.push_str(": ");
            message.push_str(&shown(value));
        }
        if !self.detail.is_empty() {
            message.push_str(": ");
            message.push_str(&self.detail);
        }
        message
    }

    /// The error as a cause of a `Status`.
    pub fn to_cause(&self) -> Cause {
        Cause { reason: self.reason().to_owned(), message: self.message(), field: self.field.clone() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message())
    }
}

/// A value as a text that is not long.
fn shown(value: &Value) -> String {
    let mut cut = Cut::default();
    // `Cut` takes every text.
    let _ = write!(cut, "{value}");
    let Cut { mut text, n_cut } = cut;
    if n_cut > 0 {
        text.push_str(&format!("... ({n_cut} more bytes)"));
    }
    text
}

/// The beginning of a text, and the number of bytes after it.
#[derive(Default)]
struct Cut {
    text: String,
    n_cut: usize,
}

impl fmt::Write for Cut {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let room = if self.n_cut > 0 { 0 } else { VALUE_BYTES_MAX.saturating_sub(self.text.len()) };
        let (kept, cut) = more.split_at(more.floor_char_boundary(room));
        self.text.push_str(kept);
        self.n_cut += cut.len();
        Ok(())
    }
}

/// Several errors in one sentence: a single one unchanged, more as `[a, b]`, without duplicates.
pub fn join(errors: &[Error]) -> String {
    let mut seen = HashSet::with_capacity(errors.len());
    let said: Vec<String> = errors.iter().map(Error::to_string).filter(|text| seen.insert(text.clone())).collect();
    match said.as_slice() {
        [one] => one.clone(),
        _ => format!("[{}]", said.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_message_of_a_long_value_has_its_beginning_and_its_length() {
        let said = |value: Value| Error::invalid(&Path::new("a"), value, "no").to_string();
        let short = "ä".repeat(1_000);
        assert_eq!(said(json!(short)), format!("a: Invalid value: \"{short}\": no"));
        for long in [json!("ä".repeat(1_000_000)), json!(vec!["ä"; 100_000])] {
            let (whole, text) = (long.to_string().len(), said(long));
            assert!(text.len() < VALUE_BYTES_MAX + 100, "{}", text.len());
            let kept = text.find("... (").unwrap() - "a: Invalid value: ".len();
            assert!(text.ends_with(&format!("... ({} more bytes): no", whole - kept)), "{}", &text[text.len() - 60..]);
        }
    }

    #[test]
    fn messages_read_as_kubernetes_writes_them() {
        let path = Path::new("spec").child("tags").index(1);
        for (error, want) in [
            (Error::duplicate(&path, json!("a")), r#"spec.tags[1]: Duplicate value: "a""#),
            (Error::required(&path, ""), "spec.tags[1]: Required value"),
            (Error::required(&path, "must be set"), "spec.tags[1]: Required value: must be set"),
            (Error::invalid(&path, 11, "too big"), "spec.tags[1]: Invalid value: 11: too big"),
            (
                Error::not_supported(&path, "x", &["a", "b"]),
                r#"spec.tags[1]: Unsupported value: "x": supported values: "a", "b""#,
            ),
            (Error::too_long(&path, 5), "spec.tags[1]: Too long: may not be more than 5 bytes"),
            (Error::too_many(&path, 5, 3), "spec.tags[1]: Too many: 5: must have at most 3 items"),
        ] {
            assert_eq!(error.to_string(), want);
        }
    }

    #[test]
    fn a_fault_said_twice_is_said_once() {
        let fault = Error::required(&Path::new("a"), "");
        assert_eq!(join(&[fault.clone(), fault.clone()]), "a: Required value");
        assert_eq!(join(&[fault, Error::required(&Path::new("b"), "")]), "[a: Required value, b: Required value]");
    }
}
