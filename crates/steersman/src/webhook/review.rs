//! `AdmissionReview` and `ConversionReview`, in both versions that API servers send: the answer has the version of the
//! request.

use bytes::Bytes;
use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::webhook::admission::{Notes, Request, Verdict};
use crate::webhook::denial::{Named, Status};

const ADMISSION_VERSIONS: [&str; 2] = ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"];
const CONVERSION_VERSIONS: [&str; 2] = ["apiextensions.k8s.io/v1", "apiextensions.k8s.io/v1beta1"];

/// A body that is not a review of the expected kind.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReviewError {
    #[error("this is no {kind}")]
    Json {
        kind: &'static str,
        #[source]
        source: serde_json::Error,
    },
    #[error("the {kind} has no request")]
    NoRequest { kind: &'static str },
    #[error("want kind {kind} of {} or {}, got {got}", .versions[0], .versions[1])]
    Other { kind: &'static str, versions: [&'static str; 2], got: String },
}

/// The outcome of a function for admission.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Outcome {
    Allowed,
    Denied,
    Mutated,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "R: Deserialize<'de>"))]
struct Question<R> {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    request: Option<R>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a, R> {
    api_version: &'a str,
    kind: &'static str,
    response: R,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AdmissionResponse<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<ByteString>,
    #[serde(flatten)]
    notes: NotesOf<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NotesOf<'a> {
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    warnings: &'a [String],
    #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    audit_annotations: &'a std::collections::BTreeMap<String, String>,
}

/// A request to convert objects to another version.
#[derive(Deserialize)]
pub(crate) struct ConversionRequest<'a> {
    pub(crate) uid: String,
    #[serde(rename = "desiredAPIVersion")]
    pub(crate) desired: String,
    #[serde(borrow, default)]
    pub(crate) objects: Vec<&'a RawValue>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ConversionResponse<'a> {
    uid: &'a str,
    converted_objects: &'a [Box<RawValue>],
    result: ConversionResult<'a>,
}

#[derive(Serialize)]
struct ConversionResult<'a> {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
}

/// Parses a review: its version and its request.
fn read<'a, R: Deserialize<'a>>(
    body: &'a [u8],
    kind: &'static str,
    versions: [&'static str; 2],
) -> Result<(&'static str, R), ReviewError> {
    let question: Question<R> = serde_json::from_slice(body).map_err(|source| ReviewError::Json { kind, source })?;
    let version = versions.into_iter().find(|version| *version == question.api_version);
    match (version, question.kind == kind) {
        (Some(version), true) => Ok((version, question.request.ok_or(ReviewError::NoRequest { kind })?)),
        _ => {
            let got = format!("{} of {}", question.kind, question.api_version);
            Err(ReviewError::Other { kind, versions, got })
        }
    }
}

pub(crate) fn read_admission(body: &[u8]) -> Result<(&'static str, Request), ReviewError> {
    read(body, "AdmissionReview", ADMISSION_VERSIONS)
}

pub(crate) fn read_conversion(body: &[u8]) -> Result<(&'static str, ConversionRequest<'_>), ReviewError> {
    read(body, "ConversionReview", CONVERSION_VERSIONS)
}

/// The review with the verdict of a function, or the reason why it has none.
pub(crate) fn write_admission(
    version: &str,
    uid: &str,
    object: &Named<'_>,
    verdict: Verdict,
) -> Result<(Outcome, Bytes), String> {
    let (outcome, status, patch) = match verdict.changes {
        Ok(changes) if changes.is_empty() => (Outcome::Allowed, None, None),
        Ok(changes) => {
            let patch = serde_json::to_vec(&changes).map_err(|error| error.to_string())?;
            (Outcome::Mutated, None, Some(ByteString(patch)))
        }
        Err(denial) => (Outcome::Denied, Some(denial.into_status(object)?), None),
    };
    let Notes { warnings, audit_annotations } = &verdict.notes;
    let response = AdmissionResponse {
        uid,
        allowed: outcome != Outcome::Denied,
        status,
        patch_type: patch.is_some().then_some("JSONPatch"),
        patch,
        notes: NotesOf { warnings, audit_annotations },
    };
    Ok((outcome, write(version, "AdmissionReview", response)?))
}

/// The review with the converted objects, in the order of the request, or with the reason of the failure.
pub(crate) fn write_conversion(
    version: &str,
    uid: &str,
    converted: &Result<Vec<Box<RawValue>>, String>,
) -> Result<Bytes, String> {
    let (objects, status, message) = match converted {
        Ok(objects) => (&**objects, "Success", None),
        Err(message) => (&[][..], "Failure", Some(&**message)),
    };
    let result = ConversionResult { status, message };
    write(version, "ConversionReview", ConversionResponse { uid, converted_objects: objects, result })
}

fn write<R: Serialize>(version: &str, kind: &'static str, response: R) -> Result<Bytes, String> {
    let answer = Answer { api_version: version, kind, response };
    serde_json::to_vec(&answer).map(Bytes::from).map_err(|error| error.to_string())
}
