//! CertificateSigningRequest: a user requests a certificate, another approves, and a signer issues it. The admission
//! plugins decide who may approve and sign (`crate::admission::certificates`); signers are control loops.

use crate::builtin::kind::{Column, Kind, RULES, SelectableField, Subresource, Version};
use crate::builtin::rules;
use crate::builtin::rules::age;
use crate::builtin::rules::cells::{self, NONE};
use crate::builtin::rules::change::Change;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule};
use crate::catalog::{Handling, Verb};
use crate::strategy;
use crate::user::User;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::json;
use std::collections::BTreeSet;
use steersman_machinery::field::Error;
use steersman_machinery::value::{at, object_at, set_at};
use steersman_machinery::{Value, name};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::nom::Parser as _;
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer as _;

pub const GROUP: &str = "certificates.k8s.io";
pub const PLURAL: &str = "certificatesigningrequests";

const DOMAIN_LENGTH_MAX: usize = 253;
const SIGNER_LENGTH_MAX: usize = 571;
/// The signer of requests that name none, in versions before v1.
const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
const APPROVED: &str = "Approved";
const DENIED: &str = "Denied";
const FAILED: &str = "Failed";
const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

pub const KIND: Kind = Kind {
    group: GROUP,
    kind: "CertificateSigningRequest",
    plural: PLURAL,
    singular: "certificatesigningrequest",
    short_names: &["csr"],
    versions: &[Version {
        definition: "io.k8s.api.certificates.v1.CertificateSigningRequest",
        has_status: true,
        subresources: &[Subresource {
            name: "approval",
            group: GROUP,
            version: "v1",
            kind: "CertificateSigningRequest",
            verbs: &[Verb::Get, Verb::Patch, Verb::Update],
            handling: Handling::Stored,
        }],
        columns: &[
            Column::NAME,
            Column::AGE,
            Column::text("SignerName", "The signer that is to make the certificate."),
            Column::text("Requestor", "The user who asks for it."),
            Column::text("RequestedDuration", "For how long the certificate is to be good."),
            Column::text("Condition", "Whether it is approved, and issued."),
        ],
        cells,
        fields: &[SelectableField::new("spec.signerName", ".spec.signerName")],
        ..Version::V1
    }],
    name_faults: |_| Vec::new(),
    set_creator,
    set_times,
    prepare_update: |new, old| carry_spec(new, old),
    prepare_status: |new, old| carry_decisions(new, old),
    prepare_other: |new, old| {
        let conditions = at(new, &["status", "conditions"]).cloned();
        carry_spec(new, old);
        let mut status = at(old, &["status"]).cloned().unwrap_or_default();
        set_at(&mut status, &["conditions"], conditions.unwrap_or_default());
        set_at(new, &["status"], status);
    },
    main_leaves: &[&["spec"], &["status"]],
    rules: strategy::Rules { validates_generate_name_on_update: false, ..RULES },
    status_leaves: &[&["spec"]],
    other_leaves: &[&["spec"], &["status", "certificate"]],
    validate: &[Rule::new("", Check::Rules(REQUEST)), Rule::new("", Check::Change(main_update)).on_update()],
    status_rules: &[Rule::new("", Check::Rules(REQUEST)), Rule::new("", Check::Change(status_update))],
    other_rules: Some(&[Rule::new("", Check::Rules(REQUEST)), Rule::new("", Check::Change(approval_update))]),
    ..Kind::CLUSTER
};

/// Why a text is not a certificate request.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RequestError {
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    Block,
    #[error("the request is malformed: {0}")]
    Malformed(String),
    #[error("the signature of the request cannot be verified with its key")]
    Signature,
}

/// The endpoint of a change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Endpoint {
    Approval,
    Main,
    Status,
}

/// The rules of a request, whatever the endpoint. What the stored object has already may stay.
const REQUEST: &[Rule] = &[
    Rule::new("", Check::By(request)),
    Rule::new("spec.usages", Check::Change(usages)),
    Rule::new("spec.signerName", Check::Change(signer)),
    Rule::new(
        "spec.expirationSeconds",
        Check::AtLeast(600, "may not specify a duration less than 600 seconds (10 minutes)"),
    ),
    Rule::new("status.conditions", Check::Change(validate_conditions)),
    Rule::new("status.certificate", Check::Change(certificate)),
];

// === reading ===

/// Calls `read` with the certificate request in an object, after verifying its signature.
///
/// # Errors
/// When there is no valid request.
pub fn with_request<T>(
    object: &Value,
    read: impl FnOnce(&X509CertificationRequest<'_>) -> T,
) -> Result<T, RequestError> {
    let text = at(object, &["spec", "request"]).and_then(Value::as_str).unwrap_or_default();
    let pem = STANDARD.decode(text).map_err(|_| RequestError::Block)?;
    let block = Pem::iter_from_buffer(&pem).next().and_then(Result::ok).ok_or(RequestError::Block)?;
    if block.label != "CERTIFICATE REQUEST" {
        return Err(RequestError::Block);
    }
    let (_, request) = X509CertificationRequest::from_der(&block.contents)
        .map_err(|error| RequestError::Malformed(error.to_string()))?;
    request.verify_signature().map_err(|_| RequestError::Signature)?;
    Ok(read(&request))
}

/// The error of a text that is not a list of certificates; an empty text is valid.
fn certificate_error(text: &str) -> Option<String> {
    let pem = match STANDARD.decode(text) {
        Ok(pem) if pem.is_empty() => return None,
        Ok(pem) => pem,
        Err(error) => return Some(error.to_string()),
    };
    let mut blocks = 0;
    for block in Pem::iter_from_buffer(&pem) {
        let Ok(block) = block else { break };
        if block.label != "CERTIFICATE" {
            return Some(format!("only CERTIFICATE PEM blocks are allowed, found {:?}", block.label));
        }
        if let Err(error) = x509_parser::certificate::X509CertificateParser::new().parse(&block.contents) {
            return Some(format!("the certificate is malformed: {error}"));
        }
        blocks += 1;
    }
    (blocks == 0).then(|| "must contain at least one CERTIFICATE PEM block".to_owned())
}

fn conditions(object: &Value) -> impl Iterator<Item = &Value> {
    at(object, &["status", "conditions"]).and_then(Value::as_array).into_iter().flatten()
}

fn conditions_of<'a>(object: &'a Value, kind: &str) -> Vec<&'a Value> {
    conditions(object).filter(|condition| condition["type"] == kind).collect()
}

// === preparing ===

fn set_creator(object: &mut Value, user: &User) {
    let Some(spec) = object_at(object, &["spec"]) else { return };
    for field in ["extra", "groups", "uid", "username"] {
        spec.remove(field);
    }
    let of_user = serde_json::to_value(user).unwrap_or_default();
    for (field, value) in of_user.as_object().into_iter().flatten() {
        spec.insert(field.clone(), value.clone());
    }
}

/// The spec is immutable.
fn carry_spec(new: &mut Value, old: &Value) {
    set_at(new, &["spec"], at(old, &["spec"]).cloned().unwrap_or_default());
}

/// Decisions are made through `/approval`. Validation reports a different number of them.
fn carry_decisions(new: &mut Value, old: &Value) {
    for kind in [APPROVED, DENIED] {
        let before: Vec<Value> = conditions_of(old, kind).into_iter().cloned().collect();
        if before.len() != conditions_of(new, kind).len() {
            continue;
        }
        let all = new.pointer_mut("/status/conditions").and_then(Value::as_array_mut).into_iter().flatten();
        for (condition, before) in all.filter(|condition| condition["type"] == kind).zip(before) {
            *condition = before;
        }
    }
}

fn set_times(new: &mut Value, old: &Value, now: &str) {
    let all = new.pointer_mut("/status/conditions").and_then(Value::as_array_mut).into_iter().flatten();
    for condition in all {
        if condition["lastUpdateTime"].is_null() {
            condition["lastUpdateTime"] = json!(now);
        }
        if condition["lastTransitionTime"].is_null() {
            let is_same =
                |before: &&Value| before["type"] == condition["type"] && before["status"] == condition["status"];
            let before = conditions(old).find(is_same).map(|before| before["lastTransitionTime"].clone());
            condition["lastTransitionTime"] = before.filter(|time| !time.is_null()).unwrap_or_else(|| json!(now));
        }
    }
}

// === validating ===

fn request(object: &Field<'_>, errors: &mut Vec<Error>) {
    if let Err(error) = with_request(object.value, |_| ()) {
        errors.push(object.at(&["spec", "request"]).invalid(error.to_string()));
    }
}

fn has_duplicates<'v>(mut texts: impl Iterator<Item = &'v str>) -> bool {
    let mut seen = BTreeSet::new();
    !texts.all(|text| seen.insert(text))
}

fn usages(Change { new, old }: &Change<'_>, errors: &mut Vec<Error>) {
    let is_unknown = |usage: &Field<'_>| !USAGES.contains(&usage.text());
    let had_unknown = old.items().any(|usage| is_unknown(&usage));
    let had_duplicates = has_duplicates(old.items().map(|usage| usage.text()));
    rules::required(new, errors);
    let mut seen = BTreeSet::new();
    for usage in new.items() {
        if !had_unknown && is_unknown(&usage) {
            errors.push(usage.not_supported(&USAGES));
        }
        if !seen.insert(usage.text()) && !had_duplicates {
            errors.push(usage.duplicate());
        }
    }
}

fn signer(Change { new, old }: &Change<'_>, errors: &mut Vec<Error>) {
    if new.text() == LEGACY_SIGNER && old.text() != LEGACY_SIGNER {
        errors.push(new.invalid("the legacy signerName is not allowed via this API version"));
    } else {
        validate_signer(new, errors);
    }
}

fn certificate(change: &Change<'_>, errors: &mut Vec<Error>) {
    if change.is_changed()
        && let Some(detail) = certificate_error(change.new.text())
    {
        errors.push(Error::invalid(&change.new.path, "<certificate data>", detail));
    }
}

/// The string must be a domain and a path below it.
pub fn validate_signer(signer: &Field<'_>, errors: &mut Vec<Error>) {
    if signer.is_empty() {
        return errors.push(signer.required(""));
    }
    let Some((domain, path)) = signer.text().split_once('/').filter(|(_, path)| !path.contains('/')) else {
        let why = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return errors.push(signer.invalid(why));
    };
    if domain.len() > DOMAIN_LENGTH_MAX {
        errors.push(Error::too_long(&signer.path, DOMAIN_LENGTH_MAX));
    }
    validate_labels(signer, domain, name::dns1123_label, errors);
    if !domain.contains('.') {
        let why = "should be a domain with at least two segments separated by dots";
        errors.push(Error::invalid(&signer.path, domain, why));
    }
    validate_labels(signer, path, name::dns1123_subdomain, errors);
    if signer.text().len() > SIGNER_LENGTH_MAX {
        errors.push(Error::too_long(&signer.path, SIGNER_LENGTH_MAX));
    }
}

/// Validates a part of a signer's name, and reports its first invalid label.
fn validate_labels(signer: &Field<'_>, part: &str, check: fn(&str) -> Vec<String>, errors: &mut Vec<Error>) {
    let wrong = part.split('.').map(|label| (label, check(label))).find(|(_, found)| !found.is_empty());
    for detail in wrong.iter().flat_map(|(_, found)| found) {
        let label = wrong.as_ref().map_or("", |(label, _)| label);
        errors.push(Error::invalid(&signer.path, part, format!("validating label {label:?}: {detail}")));
    }
}

fn validate_conditions(Change { new, old }: &Change<'_>, errors: &mut Vec<Error>) {
    let types_before = || old.items().map(|condition| condition.field("type").text());
    let had = |kind: &str| types_before().any(|before| before == kind);
    let had_duplicates = has_duplicates(types_before());
    let mut seen = BTreeSet::new();
    for condition in new.items() {
        let (kind, status) = (condition.field("type"), condition.field("status"));
        if kind.is_empty() && !had("") {
            errors.push(kind.required(""));
        }
        let allowed: &[&str] = match kind.text() {
            APPROVED | DENIED | FAILED => &["True"],
            _ => &["False", "True", "Unknown"],
        };
        rules::required_one_of(&status, allowed, errors);
        let opposite = if kind.text() == APPROVED { DENIED } else { APPROVED };
        let had_both = had(APPROVED) && had(DENIED);
        if matches!(kind.text(), APPROVED | DENIED) && seen.contains(opposite) && !had_both {
            let why = "Approved and Denied conditions are mutually exclusive";
            errors.push(Error::invalid(&new.path, kind.text(), why));
        }
        if !seen.insert(kind.text()) && !had_duplicates {
            errors.push(kind.duplicate());
        }
    }
}

fn main_update(change: &Change<'_>, errors: &mut Vec<Error>) {
    validate_update(change, Endpoint::Main, errors);
}

fn status_update(change: &Change<'_>, errors: &mut Vec<Error>) {
    validate_update(change, Endpoint::Status, errors);
}

fn approval_update(change: &Change<'_>, errors: &mut Vec<Error>) {
    validate_update(change, Endpoint::Approval, errors);
}

fn validate_update(change: &Change<'_>, endpoint: Endpoint, errors: &mut Vec<Error>) {
    let conditions = change.new.at(&["status", "conditions"]);
    for kind in [APPROVED, DENIED, FAILED] {
        let (before, after) = (conditions_of(change.old.value, kind), conditions_of(change.new.value, kind));
        let is_decision = kind != FAILED && endpoint != Endpoint::Approval;
        if after.len() < before.len() {
            errors.push(conditions.forbidden(format!("updates may not remove a condition of type {kind:?}")));
        } else if is_decision && after.len() > before.len() {
            errors.push(conditions.forbidden(format!("updates may not add a condition of type {kind:?}")));
        } else if is_decision && after != before {
            errors.push(conditions.forbidden(format!("updates may not modify a condition of type {kind:?}")));
        }
    }
    let Change { new: certificate, old: before } = change.at(&["status", "certificate"]);
    if certificate.text() != before.text() {
        if endpoint != Endpoint::Status {
            errors.push(certificate.forbidden("updates may not set certificate content"));
        } else if !before.is_empty() {
            errors.push(certificate.forbidden("updates may not modify existing certificate content"));
        }
    }
}

// === printing ===

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let has = |kind| !conditions_of(object, kind).is_empty();
    let mut condition = match (has(DENIED), has(APPROVED)) {
        (true, _) => DENIED,
        (false, true) => APPROVED,
        (false, false) => "Pending",
    }
    .to_owned();
    if has(FAILED) {
        condition.push_str(",Failed");
    }
    let spec = Field::root(object).field("spec");
    if !Field::root(object).at(&["status", "certificate"]).is_empty() {
        condition.push_str(",Issued");
    }
    let signer = spec.field("signerName").text();
    let duration = spec.field("expirationSeconds").number().map(age::human);
    vec![
        cells::name(object),
        cells::age(object, now),
        Value::from(if signer.is_empty() { NONE } else { signer }),
        cells::text(object, &["spec", "username"]),
        Value::from(duration.unwrap_or_else(|| NONE.to_owned())),
        Value::from(condition),
    ]
}
