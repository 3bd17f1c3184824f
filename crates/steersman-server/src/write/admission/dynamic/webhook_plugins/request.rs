//! The AdmissionReview that a webhook is sent.

use crate::write::admission::admitted_write::{AdmittedWrite, Objects};
use crate::write::admission::dynamic::webhooks::hook::ReviewVersion;
use bytes::Bytes;
use serde::Serialize;
use steersman_kinds::catalog::Served;
use steersman_machinery::Value;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    kind: &'static str,
    api_version: &'static str,
    request: Request<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    uid: &'a str,
    #[serde(flatten)]
    about: &'a Value,
    object: Option<&'a Value>,
    old_object: Option<&'a Value>,
}

/// The JSON of a review of a write, with the objects in the version that the webhook expects.
pub(super) fn encode(
    version: ReviewVersion,
    uid: &str,
    write: &AdmittedWrite<'_>,
    target: &Served,
    objects: &Objects<'_>,
) -> Result<Bytes, serde_json::Error> {
    let about = write.request(target);
    let (object, old_object) = (objects.new.as_deref(), objects.old.as_deref());
    let request = Request { uid, about: &about, object, old_object };
    let review = Review { kind: "AdmissionReview", api_version: version.api_version(), request };
    serde_json::to_vec(&review).map(Bytes::from)
}
