//! Why a function does not admit a write.

use std::error::Error;
use std::fmt;

use serde::Serialize;
use serde_json::{Value, json};

use crate::shared::chain::Chain;

/// The error of a function: a refusal with the status that the API server sends to its client, or a failure.
///
/// `?` turns every other error into a failure, which is no verdict. The call is answered with status 500, and the
/// `failurePolicy` of the configuration decides.
///
/// ```
/// use steersman::webhook::{Denial, FieldError};
///
/// fn check(cidr: &str) -> Result<(), Denial> {
///     let prefix = cidr.split_once('/').ok_or_else(|| FieldError::invalid("spec.cidr", cidr, "must have a prefix"))?;
///     match prefix.1 {
///         "0" => Err(Denial::forbidden("the whole internet is nobody's network")),
///         _ => Ok(()),
///     }
/// }
/// # assert!(check("a").is_err() && check("0.0.0.0/0").is_err() && check("10.0.0.0/8").is_ok());
/// ```
#[derive(Debug)]
pub struct Denial {
    cause: Cause,
}

#[derive(Debug)]
enum Cause {
    /// No verdict: the text is for the log and for the client.
    Failed(String),
    /// `Invalid`; the message is made when the object is known.
    Fields(Vec<FieldError>),
    Refused {
        code: u16,
        reason: String,
        message: String,
    },
}

/// A validation error of one field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// The field path, for instance `spec.ports[0].name`.
    pub field: String,
    /// The type of the error.
    pub kind: FieldErrorKind,
    /// The value, where it is worth repeating.
    pub value: Option<Value>,
    /// The values that are wanted.
    pub detail: String,
}

/// The type of a validation error; the causes of Kubernetes' own validation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum FieldErrorKind {
    /// The value occurs twice.
    Duplicate,
    /// The value may be right, but not here, or not for this user.
    Forbidden,
    /// The value is wrong.
    Invalid,
    /// The object that the value refers to does not exist.
    NotFound,
    /// The value is not one of those allowed.
    NotSupported,
    /// The value is absent.
    Required,
    /// The list has too many elements.
    TooMany,
    /// The text is too long.
    TooLong,
}

/// A refusal in the form that the API server expects.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status {
    api_version: &'static str,
    kind: &'static str,
    status: &'static str,
    pub(crate) message: String,
    pub(crate) reason: String,
    pub(crate) code: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Value>,
}

/// The names of the object in messages.
#[derive(Clone, Debug)]
pub(crate) struct Named<'a> {
    pub(crate) group: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) name: &'a str,
}

// === impl Denial ===

impl Denial {
    /// Refused with 403 `Forbidden`.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(403, "Forbidden", message)
    }

    /// Refused with 422 `Invalid`, and one cause for each field. The message names the object and lists the errors, as
    /// the API server's own validation does.
    pub fn invalid(errors: impl IntoIterator<Item = FieldError>) -> Self {
        Self { cause: Cause::Fields(errors.into_iter().collect()) }
    }

    /// Refused with this HTTP status and this reason, a word such as `Conflict`. A status below 400 is sent as 400.
    pub fn new(code: u16, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { cause: Cause::Refused { code: code.max(400), reason: reason.into(), message: message.into() } }
    }

    /// No verdict: the function could not decide. The `failurePolicy` of the configuration does.
    pub fn failed(message: impl Into<String>) -> Self {
        Self { cause: Cause::Failed(message.into()) }
    }

    /// The status of a refusal, or why no verdict exists.
    pub(crate) fn into_status(self, object: &Named<'_>) -> Result<Status, String> {
        let status = |code, reason: String, message, details| Status {
            api_version: "v1",
            kind: "Status",
            status: "Failure",
            message,
            reason,
            code,
            details,
        };
        match self.cause {
            Cause::Failed(message) => Err(message),
            Cause::Refused { code, reason, message } => Ok(status(code, reason, message, None)),
            Cause::Fields(errors) => {
                let Named { group, kind, name } = object;
                let resource = if group.is_empty() { (*kind).to_owned() } else { format!("{kind}.{group}") };
                let list: Vec<String> = errors.iter().map(ToString::to_string).collect();
                let list = if list.len() == 1 { list.concat() } else { format!("[{}]", list.join(", ")) };
                let causes: Vec<Value> = errors.iter().map(FieldError::cause).collect();
                let details = json!({"group": group, "kind": kind, "name": name, "causes": causes});
                let message = format!("{resource} {name:?} is invalid: {list}");
                Ok(status(422, "Invalid".to_owned(), message, Some(details)))
            }
        }
    }
}

impl<E: Error> From<E> for Denial {
    fn from(error: E) -> Self {
        Self::failed(Chain(&error).to_string())
    }
}

impl From<FieldError> for Denial {
    fn from(error: FieldError) -> Self {
        Self::invalid([error])
    }
}

// === impl FieldError ===

impl FieldError {
    /// The value is wrong; `detail` says which values are wanted.
    pub fn invalid(field: impl Into<String>, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Invalid, field, Some(value.into()), detail)
    }

    /// The value is absent.
    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Required, field, None, detail)
    }

    /// The value is not allowed here, or not for this user.
    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Forbidden, field, None, detail)
    }

    /// An error of any kind.
    pub fn new(
        kind: FieldErrorKind,
        field: impl Into<String>,
        value: Option<Value>,
        detail: impl Into<String>,
    ) -> Self {
        Self { field: field.into(), kind, value, detail: detail.into() }
    }

    fn cause(&self) -> Value {
        let text = self.to_string();
        // The message of a cause does not repeat the field.
        let message = text.strip_prefix(&format!("{}: ", self.field)).unwrap_or(&text);
        json!({"reason": self.kind.reason(), "message": message, "field": self.field})
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.kind.text())?;
        if let Some(value) = &self.value {
            write!(f, ": {value}")?;
        }
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        Ok(())
    }
}

// === impl FieldErrorKind ===

impl FieldErrorKind {
    fn reason(self) -> &'static str {
        match self {
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::Invalid => "FieldValueInvalid",
            Self::NotFound => "FieldValueNotFound",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Required => "FieldValueRequired",
            Self::TooMany => "FieldValueTooMany",
            Self::TooLong => "FieldValueTooLong",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Duplicate => "Duplicate value",
            Self::Forbidden => "Forbidden",
            Self::Invalid => "Invalid value",
            Self::NotFound => "Not found",
            Self::NotSupported => "Unsupported value",
            Self::Required => "Required value",
            Self::TooMany => "Too many",
            Self::TooLong => "Too long",
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    const NETWORK: Named<'_> = Named { group: "samplecrd.k8s.io", kind: "Network", name: "a" };

    #[track_caller]
    fn check(denial: Denial, expected: Expect) {
        let status = denial.into_status(&NETWORK).unwrap();
        expected.assert_eq(&serde_json::to_string(&status).unwrap());
    }

    #[test]
    fn errors_of_fields_read_as_those_of_the_api_server() {
        check(
            Denial::invalid([
                FieldError::invalid("spec.cidr", "10.0.0.0", "must have a prefix"),
                FieldError::required("spec.name", ""),
            ]),
            expect![[
                r#"{"apiVersion":"v1","kind":"Status","status":"Failure","message":"Network.samplecrd.k8s.io \"a\" is invalid: [spec.cidr: Invalid value: \"10.0.0.0\": must have a prefix, spec.name: Required value]","reason":"Invalid","code":422,"details":{"causes":[{"field":"spec.cidr","message":"Invalid value: \"10.0.0.0\": must have a prefix","reason":"FieldValueInvalid"},{"field":"spec.name","message":"Required value","reason":"FieldValueRequired"}],"group":"samplecrd.k8s.io","kind":"Network","name":"a"}}"#
            ]],
        );
    }

    #[test]
    fn a_refusal_is_never_sent_with_a_status_of_success() {
        check(
            Denial::new(200, "Odd", "no"),
            expect![[
                r#"{"apiVersion":"v1","kind":"Status","status":"Failure","message":"no","reason":"Odd","code":400}"#
            ]],
        );
    }

    #[test]
    fn an_error_on_the_way_is_no_verdict() {
        let failed = || -> Result<(), Denial> {
            "x".parse::<u8>()?;
            Ok(())
        };
        assert_eq!(failed().unwrap_err().into_status(&NETWORK).unwrap_err(), "invalid digit found in string");
    }
}
