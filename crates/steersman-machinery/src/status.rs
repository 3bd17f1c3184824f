//! The `Status` object: the answer of a Kubernetes API where it is not an object.
//!
//! Only the shape is here. The server maps errors to statuses, in one place.

use serde::{Deserialize, Serialize};

/// `v1 Status`. Serializes with the keys in the order in which Kubernetes prints them.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Always `Status`.
    pub kind: String,
    /// Always `v1`.
    pub api_version: String,
    /// Empty, except for the resourceVersion of lists.
    #[serde(default)]
    pub metadata: serde_json::Map<String, serde_json::Value>,
    /// `Success` or `Failure`.
    pub status: String,
    /// The message for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The reason for programs; absent where there is no specific one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The object or field that the status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Details>,
    /// The HTTP status code; absent on success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
}

/// The object or fields that a [`Status`] is about.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Details {
    /// The object's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The group, absent for the core group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The resource, or for validation errors the kind.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The object's uid.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The single errors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// Seconds after which a retry may help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u32>,
}

/// One error among several.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Cause {
    /// The reason for programs, such as `FieldValueInvalid`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The message for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The field path, such as `spec.containers[0].name`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub field: String,
}

impl Status {
    /// A failure with its code.
    pub fn failure(code: u16, reason: Option<&str>, message: impl Into<String>) -> Status {
        Status {
            kind: "Status".to_owned(),
            api_version: "v1".to_owned(),
            metadata: serde_json::Map::new(),
            status: "Failure".to_owned(),
            message: message.into(),
            reason: reason.map(str::to_owned),
            details: None,
            code: Some(code),
        }
    }

    /// A success, without a code.
    pub fn success() -> Status {
        Status { status: "Success".to_owned(), code: None, ..Status::failure(200, None, "") }
    }

    /// The same with details.
    #[must_use]
    pub fn with_details(mut self, details: Details) -> Status {
        self.details = Some(details);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_prints_as_kubernetes_prints_it() {
        let status = Status::failure(404, Some("NotFound"), "pods \"x\" not found").with_details(Details {
            name: "x".into(),
            kind: "pods".into(),
            ..Details::default()
        });
        expect_test::expect![[r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"pods \"x\" not found","reason":"NotFound","details":{"name":"x","kind":"pods"},"code":404}"#]]
            .assert_eq(&serde_json::to_string(&status).unwrap());
    }
}
