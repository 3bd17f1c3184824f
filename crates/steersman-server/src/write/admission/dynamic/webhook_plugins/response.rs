//! Validates the AdmissionReview that a webhook answers, with upstream's checks and messages
//! (`admission/plugin/webhook/request`).

use crate::shared::status::Failure;
use crate::write::admission::dynamic::webhooks::hook::ReviewVersion;
use crate::write::admission::dynamic::webhooks::registered::Kind;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use std::collections::BTreeMap;
use steersman_machinery::status::{Details, Status};

/// The status codes that a refusal may have. Lower ones become 400, as upstream; higher ones are not HTTP codes.
const CODES: std::ops::RangeInclusive<i64> = 400..=599;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    api_version: String,
    response: Option<Answer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    allowed: bool,
    status: Option<Refusal>,
    patch: Option<String>,
    patch_type: Option<String>,
    #[serde(default)]
    audit_annotations: Option<BTreeMap<String, String>>,
    #[serde(default)]
    warnings: Option<Vec<String>>,
}

/// The Status of a refusal, in which every field is optional.
#[derive(Debug, Default, Deserialize)]
struct Refusal {
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    details: Option<Details>,
    #[serde(default)]
    code: Option<i64>,
}

/// The answer of a webhook.
#[derive(Debug)]
pub(super) struct Response {
    /// The error for the client if the webhook refuses the write.
    pub(super) refusal: Option<Failure>,
    /// A JSON patch.
    pub(super) patch: Option<Vec<u8>>,
    pub(super) audit_annotations: BTreeMap<String, String>,
    pub(super) warnings: Vec<String>,
}

/// Why an answer is invalid.
#[derive(Debug, thiserror::Error)]
pub(super) enum ResponseError {
    /// A field has an invalid value, or is missing.
    #[error("received invalid webhook response: {0}")]
    Invalid(String),
    /// The type of the patch is unknown.
    #[error("unsupported patch type {0:?}")]
    PatchType(String),
    /// The answer is not an AdmissionReview.
    #[error("failed to call webhook: the answer is no AdmissionReview: {0}")]
    Unreadable(String),
}

/// Parses the answer of a webhook to the review with this uid.
pub(super) fn read(
    kind: Kind,
    version: ReviewVersion,
    webhook: &str,
    uid: &str,
    json: &[u8],
) -> Result<Response, ResponseError> {
    let review: Review = serde_json::from_slice(json).map_err(|error| ResponseError::Unreadable(error.to_string()))?;
    let invalid = |why: String| Err(ResponseError::Invalid(why));
    let Some(answer) = review.response else { return invalid("webhook response was absent".to_owned()) };
    // The older version does not check these.
    if version == ReviewVersion::V1 {
        if answer.uid != uid {
            return invalid(format!("expected response.uid={uid:?}, got {:?}", answer.uid));
        }
        let api_version = version.api_version();
        if review.api_version != api_version || review.kind != "AdmissionReview" {
            let got = match (review.api_version.as_str(), review.kind.as_str()) {
                ("", kind) => format!("/, Kind={kind}"),
                (given, kind) => format!("{given}, Kind={kind}"),
            };
            return invalid(format!("expected webhook response of {api_version}, Kind=AdmissionReview, got {got}"));
        }
    }
    let patch = patch(kind, version, &answer)?;
    Ok(Response {
        refusal: (!answer.allowed).then(|| refusal(webhook, answer.status.unwrap_or_default())),
        patch,
        audit_annotations: answer.audit_annotations.unwrap_or_default(),
        warnings: answer.warnings.unwrap_or_default(),
    })
}

fn patch(kind: Kind, version: ReviewVersion, answer: &Answer) -> Result<Option<Vec<u8>>, ResponseError> {
    let invalid = |why: &str| Err(ResponseError::Invalid(why.to_owned()));
    let patch = answer.patch.as_deref().filter(|patch| !patch.is_empty());
    match (kind, version, patch, answer.patch_type.as_deref()) {
        (Kind::Validating, ReviewVersion::V1, Some(_), _) => {
            return invalid("validating webhook may not return response.patch");
        }
        (Kind::Validating, ReviewVersion::V1, None, Some(_)) => {
            return invalid("validating webhook may not return response.patchType");
        }
        (Kind::Validating, ..) => return Ok(None),
        (Kind::Mutating, ReviewVersion::V1, Some(_), None) => {
            return invalid("webhook returned response.patch but not response.patchType");
        }
        (Kind::Mutating, ReviewVersion::V1, None, Some(_)) => {
            return invalid("webhook returned response.patchType but not response.patch");
        }
        (Kind::Mutating, ReviewVersion::V1, Some(_), Some("")) => {
            return invalid("webhook returned invalid response.patchType of \"\"");
        }
        (Kind::Mutating, ReviewVersion::V1, Some(_), Some(other)) if answer.allowed && other != "JSONPatch" => {
            return Err(ResponseError::PatchType(other.to_owned()));
        }
        (Kind::Mutating, ..) => {}
    }
    let decode = |patch: &str| {
        let decoded = STANDARD.decode(patch);
        decoded.map_err(|error| ResponseError::Unreadable(format!("response.patch is no base64: {error}")))
    };
    patch.map(decode).transpose()
}

/// The error for a client whose write a webhook refuses (`admission/plugin/webhook/errors`).
fn refusal(webhook: &str, refusal: Refusal) -> Failure {
    let Refusal { message, reason, details, code } = refusal;
    let said = |text: Option<String>| text.filter(|text| !text.is_empty());
    let (message, reason) = (said(message), said(reason));
    let denied = format!("admission webhook {webhook:?} denied the request");
    let message = match message.as_ref().or(reason.as_ref()) {
        Some(why) => format!("{denied}: {why}"),
        None => format!("{denied} without explanation"),
    };
    let code = code.unwrap_or_default();
    let code = if code < *CODES.start() { 400 } else { u16::try_from(code).unwrap_or(500) };
    let code = if CODES.contains(&i64::from(code)) { code } else { 500 };
    let mut failure = Failure::new(code, "", message);
    *failure.status = Status { reason, details, ..*failure.status };
    failure
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn review(response: Value) -> Value {
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response})
    }

    fn read_as(kind: Kind, version: ReviewVersion, json: &Value) -> Result<Response, String> {
        read(kind, version, "a.b.c", "u", json.to_string().as_bytes()).map_err(|error| error.to_string())
    }

    #[track_caller]
    fn check_invalid(kind: Kind, json: &Value, want: &str) {
        let error = read_as(kind, ReviewVersion::V1, json).map(|_| ()).unwrap_err();
        assert_eq!(error, format!("received invalid webhook response: {want}"));
    }

    #[track_caller]
    fn check_refused(status: Value, code: u16, reason: Option<&str>, message: &str) {
        let json = review(json!({"uid": "u", "allowed": false, "status": status}));
        let status = read_as(Kind::Validating, ReviewVersion::V1, &json).unwrap().refusal.unwrap().status;
        assert_eq!((status.code, status.reason.as_deref()), (Some(code), reason));
        assert_eq!(status.message, message);
        assert_eq!(status.status, "Failure");
    }

    #[test]
    fn an_answer_must_be_to_the_review_and_of_its_version() {
        check_invalid(Kind::Validating, &json!({}), "webhook response was absent");
        let other = review(json!({"uid": "v", "allowed": true}));
        check_invalid(Kind::Validating, &other, "expected response.uid=\"u\", got \"v\"");
        let response = json!({"uid": "u", "allowed": true});
        let want = "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got";
        check_invalid(Kind::Validating, &json!({"response": response}), &format!("{want} /, Kind="));
        let older = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1", "response": response});
        check_invalid(Kind::Validating, &older, &format!("{want} admission.k8s.io/v1beta1, Kind=AdmissionReview"));
        assert!(read_as(Kind::Validating, ReviewVersion::V1Beta1, &json!({"response": {"allowed": true}})).is_ok());
        let error = read_as(Kind::Validating, ReviewVersion::V1, &json!("no")).unwrap_err();
        assert!(error.starts_with("failed to call webhook: the answer is no AdmissionReview: "), "{error}");
    }

    #[test]
    fn a_patch_has_a_type_and_only_mutating_webhooks_have_one() {
        let with = |response: Value| {
            let mut response = response;
            response["uid"] = "u".into();
            response["allowed"] = true.into();
            review(response)
        };
        let patch = || STANDARD.encode("[]");
        let both = with(json!({"patch": patch(), "patchType": "JSONPatch"}));
        assert_eq!(read_as(Kind::Mutating, ReviewVersion::V1, &both).unwrap().patch.unwrap(), b"[]");
        check_invalid(Kind::Validating, &both, "validating webhook may not return response.patch");
        let patch_alone = with(json!({"patch": patch()}));
        check_invalid(Kind::Mutating, &patch_alone, "webhook returned response.patch but not response.patchType");
        assert!(read_as(Kind::Mutating, ReviewVersion::V1Beta1, &patch_alone).unwrap().patch.is_some());
        let type_alone = with(json!({"patchType": "JSONPatch"}));
        check_invalid(Kind::Mutating, &type_alone, "webhook returned response.patchType but not response.patch");
        check_invalid(Kind::Validating, &type_alone, "validating webhook may not return response.patchType");
        let merge = with(json!({"patch": patch(), "patchType": "MergePatch"}));
        assert_eq!(
            read_as(Kind::Mutating, ReviewVersion::V1, &merge).unwrap_err(),
            "unsupported patch type \"MergePatch\""
        );
    }

    #[test]
    fn a_refusal_says_who_refused_and_is_an_error() {
        let denied = "admission webhook \"a.b.c\" denied the request";
        check_refused(Value::Null, 400, None, &format!("{denied} without explanation"));
        check_refused(json!({"reason": "Why"}), 400, Some("Why"), &format!("{denied}: Why"));
        let full = json!({"message": "no", "reason": "Forbidden", "code": 403, "status": "Success"});
        check_refused(full, 403, Some("Forbidden"), &format!("{denied}: no"));
        check_refused(json!({"code": 200, "message": "no"}), 400, None, &format!("{denied}: no"));
        for code in [600, 70_000, i64::MAX] {
            check_refused(json!({"code": code, "message": "no"}), 500, None, &format!("{denied}: no"));
        }
    }
}
