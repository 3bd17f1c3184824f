//! An event of the audit log, and its line of JSON.
//!
//! An event keeps the bodies of its request as the bytes that were sent, so that creating it is cheap for the request.
//! They are converted to JSON when the line is written, outside of the request.

use crate::access::audit::{Level, Stage};
use crate::shared::request::codec;
use bytes::Bytes;
use jiff::Timestamp;
use jiff::tz::Offset;
use serde::Serialize;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use steersman_kinds::protobuf;
use steersman_kinds::user::User;
use steersman_machinery::Budget;
use steersman_machinery::status::{Details, Status};
use steersman_machinery::value;

/// The memory of an annotation besides its texts.
const ANNOTATION_BYTES: usize = 64;

/// The record of a request up to a stage.
#[derive(Clone, Debug)]
pub struct Event {
    pub(super) level: Level,
    pub(super) stage: Stage,
    pub(super) audit_id: String,
    pub(super) request_uri: String,
    pub(super) verb: &'static str,
    pub(super) user: Option<Arc<User>>,
    pub(super) impersonated_user: Option<Arc<User>>,
    pub(super) source_ips: Vec<IpAddr>,
    pub(super) user_agent: String,
    pub(super) object: Option<ObjectRef>,
    pub(super) status: Option<Outcome>,
    pub(super) request_body: Option<Document>,
    pub(super) response_body: Option<Document>,
    pub(super) omits_managed_fields: bool,
    pub(super) received_at: Timestamp,
    pub(super) stage_at: Timestamp,
    pub(super) annotations: BTreeMap<Cow<'static, str>, String>,
}

/// The object of a request.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ObjectRef {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) api_group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) resource_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) subresource: String,
}

/// A body, as sent.
#[derive(Clone, Debug)]
pub(super) struct Document {
    pub(super) bytes: Bytes,
    pub(super) media_type: String,
}

/// The outcome of a request.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) code: u16,
    pub(super) failure: Option<Box<Status>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    kind: &'static str,
    api_version: &'static str,
    level: Level,
    #[serde(rename = "auditID")]
    audit_id: &'a str,
    stage: Stage,
    #[serde(rename = "requestURI")]
    request_uri: &'a str,
    verb: &'a str,
    user: &'a User,
    #[serde(skip_serializing_if = "Option::is_none")]
    impersonated_user: Option<&'a User>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "<[_]>::is_empty")]
    source_ips: &'a [IpAddr],
    #[serde(skip_serializing_if = "str::is_empty")]
    user_agent: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    object_ref: Option<ObjectRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_status: Option<ResponseStatus<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_object: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_object: Option<Value>,
    request_received_timestamp: String,
    stage_timestamp: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: &'a BTreeMap<Cow<'static, str>, String>,
}

#[derive(Serialize)]
struct ResponseStatus<'a> {
    metadata: BTreeMap<(), ()>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a Details>,
    code: u16,
}

impl Event {
    /// The event as a line of JSON, with its line break.
    pub fn to_line(&self) -> Vec<u8> {
        let anyone = User::default();
        let request = self.request_body.as_ref().and_then(Document::to_value);
        let mut object = self.object.clone();
        if let (Some(object), Some(request)) = (&mut object, &request) {
            object.complete(request);
        }
        let shown = |body: Option<Value>, level| {
            let body = body.filter(|_| level <= self.level);
            body.map(|body| if self.omits_managed_fields { without_managed_fields(body) } else { body })
        };
        let line = Line {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: self.level,
            audit_id: &self.audit_id,
            stage: self.stage,
            request_uri: &self.request_uri,
            verb: self.verb,
            user: self.user.as_deref().unwrap_or(&anyone),
            impersonated_user: self.impersonated_user.as_deref(),
            source_ips: &self.source_ips,
            user_agent: &self.user_agent,
            object_ref: object,
            response_status: self.status.as_ref().map(Outcome::to_status),
            request_object: shown(request, Level::Request),
            response_object: shown(self.response_body.as_ref().and_then(Document::to_value), Level::RequestResponse),
            request_received_timestamp: micros(self.received_at),
            stage_timestamp: micros(self.stage_at),
            annotations: &self.annotations,
        };
        // Serialization cannot fail, because all map keys are strings.
        let mut text = serde_json::to_vec(&line).unwrap_or_default();
        text.push(b'\n');
        text
    }

    /// The approximate size in memory.
    pub fn size(&self) -> usize {
        let body = |body: &Option<Document>| body.as_ref().map_or(0, |body| body.bytes.len());
        let annotations = self.annotations.iter().map(|(key, value)| key.len() + value.len() + ANNOTATION_BYTES);
        let failure = self.status.as_ref().and_then(|status| status.failure.as_deref());
        size_of::<Event>()
            + self.request_uri.len()
            + self.user_agent.len()
            + failure.map_or(0, failure_size)
            + annotations.sum::<usize>()
            + body(&self.request_body)
            + body(&self.response_body)
    }

    /// The reported stage.
    pub fn stage(&self) -> Stage {
        self.stage
    }
}

impl ObjectRef {
    /// Fills in the fields that only the body of the request contains.
    fn complete(&mut self, request: &Value) {
        let said = |key: &str| value::str_at(request, &["metadata", key]).unwrap_or_default().to_owned();
        let fields = [
            ("name", &mut self.name),
            ("namespace", &mut self.namespace),
            ("resourceVersion", &mut self.resource_version),
            ("uid", &mut self.uid),
        ];
        for (key, field) in fields {
            if field.is_empty() {
                *field = said(key);
            }
        }
    }
}

impl Document {
    /// The body as JSON; none if it cannot be decoded.
    fn to_value(&self) -> Option<Value> {
        let media_type = self.media_type.split(';').next().unwrap_or_default().trim();
        match media_type.rsplit(['/', '+', '.']).next()? {
            "json" => codec::decode_json(&self.bytes, &Budget::default()).ok().map(|parsed| parsed.value),
            "protobuf" => protobuf::decode(&self.bytes, &Budget::default()).ok(),
            "yaml" => codec::decode_yaml(&self.bytes, &Budget::default()).ok().map(|parsed| parsed.value),
            _ => None,
        }
    }
}

impl Outcome {
    fn to_status(&self) -> ResponseStatus<'_> {
        let failure = self.failure.as_deref();
        ResponseStatus {
            metadata: BTreeMap::new(),
            status: failure.map(|status| status.status.as_str()),
            message: failure.map(|status| status.message.as_str()).filter(|message| !message.is_empty()),
            reason: failure.and_then(|status| status.reason.as_deref()).filter(|reason| !reason.is_empty()),
            details: failure.and_then(|status| status.details.as_ref()),
            code: self.code,
        }
    }
}

/// An object, or the items of a list, without `metadata.managedFields`.
fn without_managed_fields(mut body: Value) -> Value {
    value::remove_at(&mut body, &["metadata", "managedFields"]);
    if let Some(items) = body.get_mut("items").and_then(Value::as_array_mut) {
        for item in items {
            value::remove_at(item, &["metadata", "managedFields"]);
        }
    }
    body
}

/// About how many bytes the failure of a request takes.
fn failure_size(status: &Status) -> usize {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let causes = causes.map(|cause| cause.reason.len() + cause.message.len() + cause.field.len() + size_of_val(cause));
    size_of::<Status>() + status.message.len() + causes.sum::<usize>()
}

/// A time with six decimals, as `MicroTime` has it.
fn micros(time: Timestamp) -> String {
    let micros = time.subsec_nanosecond().rem_euclid(1_000_000_000) / 1000;
    let time = Offset::UTC.to_datetime(time);
    let (date, time) = (time.date(), time.time());
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{micros:06}Z",
        date.year(),
        date.month(),
        date.day(),
        time.hour(),
        time.minute(),
        time.second(),
    )
}
