//! Entries for the fuzz targets in `fuzz/`, which read clients' input through items that are otherwise private.
//!
//! Only with the feature `fuzzing`, and no part of the interface. Each function only calls the private one; the targets
//! assert its properties.

use crate::access::audit::{Level, Policy, Stage};
use crate::access::authn::jws::Jws;
use crate::access::authn::{self, Issuer, PublicKey, oidc};
use crate::access::authz::{self, Decision};
use crate::http::representation::encoding;
use crate::shared::conversion::webhook::review::{self, ReviewVersion};
use crate::shared::operation::Attributes;
use crate::shared::request::negotiate::{self, Encoding, Layout};
use crate::shared::request::query::Query;
use crate::shared::request::{codec, options};
use crate::shared::webhook;
use crate::write::admission;
use http::HeaderMap;
use std::cmp::Ordering;
use std::path::Path;
use steersman_kinds::builtin::access::certificate_signing_request;
use steersman_kinds::catalog::version_order;
use steersman_kinds::protobuf;
use steersman_kinds::user::User;
use steersman_machinery::budget::Budget;
use steersman_machinery::value::Map;
use steersman_machinery::{GroupVersionKind, Value};

/// Reads a YAML body: its tree, and the number of repeated keys.
pub fn decode_yaml(body: &[u8]) -> Result<(Value, usize), String> {
    codec::decode_yaml(body, &Budget::unlimited())
        .map(|parsed| (parsed.value, parsed.faults.warnings().len()))
        .map_err(|error| error.to_string())
}

/// Writes a tree as the body of an answer.
pub fn encode(value: &Value, as_what: Encoding) -> Vec<u8> {
    encoding::encode(value, as_what, Layout::Compact).0.into()
}

/// Writes a tree as JSON for people.
pub fn encode_pretty(value: &Value) -> Vec<u8> {
    encoding::encode(value, Encoding::Json, Layout::Indented).0.into()
}

/// Reads a protobuf body.
pub fn decode_protobuf(body: &[u8]) -> Result<Value, String> {
    protobuf::decode(body, &Budget::unlimited()).map_err(|error| error.to_string())
}

/// Writes a JSON document as protobuf; `None` if it is no JSON, or of a kind that has no protobuf form.
pub fn encode_protobuf(json: &[u8]) -> Option<Vec<u8>> {
    protobuf::document(json)
}

/// Whether a kind has a protobuf form.
pub fn has_protobuf(kind: &GroupVersionKind) -> bool {
    protobuf::has_form(kind)
}

/// Reads the options of a list, and returns its continue token in the server's form.
pub fn list_options(query: &Query) -> Option<Option<String>> {
    continue_token(options::List::parse(query, options::Purpose::List).ok()?)
}

/// Reads the options of a watch, and returns its continue token in the server's form.
pub fn watch_options(query: &Query) -> Option<Option<String>> {
    continue_token(options::List::parse(query, options::Purpose::Watch).ok()?)
}

fn continue_token(list: options::List) -> Option<Option<String>> {
    let _ = (list.revision(), list.takes_any());
    Some(list.token.map(|token| token.encode()))
}

/// Reads the options of a write, and those of a deletion with its body.
pub fn write_options(query: &Query, body: Option<Value>) -> [bool; 3] {
    [
        options::Write::parse(query, options::WriteKind::Update).is_ok(),
        options::Write::parse(query, options::WriteKind::Apply).is_ok(),
        options::Delete::parse(query, body).is_ok(),
    ]
}

/// Whether an answer may be compressed.
pub fn takes_gzip(headers: &HeaderMap) -> bool {
    negotiate::takes_gzip(headers)
}

/// Reads a signed token, and returns whether one of the keys signed it.
pub fn is_token_signed(token: &str, keys: &[PublicKey]) -> Option<bool> {
    let token = Jws::parse(token)?;
    let _ = (token.key_id(), token.algorithm());
    Some(token.is_signed_by(keys))
}

/// Reads a key of a JSON Web Key Set, and writes it again.
pub fn web_key(jwk: &Value) -> Option<Value> {
    PublicKey::from_jwk(jwk).map(|key| key.to_jwk())
}

/// The keys of a PEM text as JSON Web Keys.
pub fn web_keys(keys: &[PublicKey]) -> Vec<Value> {
    keys.iter().map(PublicKey::to_jwk).collect()
}

/// Compares versions as discovery orders them.
pub fn compare_versions(a: &str, b: &str) -> Ordering {
    version_order::compare(a, b)
}

/// Reads the answer of a webhook, and returns its patch.
pub fn webhook_answer(json: &[u8]) -> Option<Vec<u8>> {
    admission::patch_of_answer(json)
}

/// Whether a text is a kubeconfig with which a webhook can be called.
pub fn is_kubeconfig(text: &str) -> bool {
    webhook::parse_kubeconfig(text, Path::new("")).is_ok()
}

/// Applies an audit policy to a request: the level, whether managed fields are omitted, and whether each stage is.
pub fn audit_ruling(policy: &Policy, user: Option<&User>, attributes: &Attributes<'_>) -> (Level, bool, [bool; 4]) {
    let config = policy.evaluate(user, attributes);
    let stages = [Stage::RequestReceived, Stage::ResponseStarted, Stage::ResponseComplete, Stage::Panic];
    (config.level, config.omits_managed_fields, stages.map(|stage| config.omits(stage)))
}

/// Reads the answer of a webhook that authenticates, for one audience: the user and the audiences that it is good for.
pub fn token_review(json: &[u8], audience: &str) -> Option<(User, Vec<String>)> {
    let audiences = [audience.to_owned()];
    let identity = authn::webhook::read(json, &audiences, &audiences).ok()??;
    Some((User::clone(&identity.user), identity.audiences))
}

/// Reads the answer of a webhook that authorizes.
pub fn access_review(json: &[u8]) -> Option<Decision> {
    authz::webhook::read(json).ok().map(|status| status.verdict().decision)
}

/// Reads the answer of a conversion webhook that was sent an object under the uid `u`, in both versions.
pub fn conversion_review(json: &[u8], sent: &Value, api_version: &str) -> [Result<Vec<Value>, String>; 2] {
    [ReviewVersion::V1, ReviewVersion::V1Beta1].map(|version| review::answer(json, version, "u", &[sent], api_version))
}

/// The user that the claims of an issuer's token describe.
pub fn user_of_claims(issuer: &Issuer, claims: &Map) -> Result<User, String> {
    oidc::user(issuer, claims)
}

/// The bytes that are signed inside a CertificateSigningRequest, if the signature is good.
pub fn signing_request(object: &Value) -> Option<Vec<u8>> {
    certificate_signing_request::with_request(object, |request| request.certification_request_info.raw.to_vec()).ok()
}
