//! Deletes obsolete CertificateSigningRequests: those that were signed, denied or failed an hour ago, those that were
//! not answered or signed for a day, and those whose certificate has expired.
//!
//! Follows kube-controller-manager's csrcleaner controller, which runs once an hour; here each request has a timer.

use crate::loops::access::certificates::{APPROVED, DENIED, FAILED};
use crate::settings::Parts;
use crate::shared::refusal::{self, Refused};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Client};
use std::time::Duration;
use steersman::{Action, BoxError, Controller, Lister, Manager, ObjectKey, Scope};
use x509_parser::pem::Pem;

/// The name of the loop in logs.
const NAME: &str = "certificatesigningrequest-cleaner-controller";
/// How long an answered request is kept.
const ANSWERED: SignedDuration = SignedDuration::from_hours(1);
/// How long a request is kept that waits for an answer, or for its certificate.
const PENDING: SignedDuration = SignedDuration::from_hours(24);
/// The longest pause before a request is checked again, because the clock may be set meanwhile.
const LOOK_MAX: Duration = Duration::from_secs(3_600);

struct Context {
    client: Client,
    clock: fn() -> Timestamp,
    requests: Lister<CertificateSigningRequest>,
}

/// Adds the loop to a manager.
pub(crate) fn add(manager: Manager, Parts { client, settings }: Parts<'_>) -> Manager {
    let requests = manager.informers().informer::<CertificateSigningRequest>(Scope::All);
    let context = Context { client, clock: settings.clock, requests: requests.lister() };
    manager.controller(Controller::<CertificateSigningRequest>::of(&requests, reconcile, context).name(NAME))
}

async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, BoxError> {
    let request = cx.requests.get(&key)?;
    let Some(end) = end(&request) else { return Ok(Action::AwaitChange) };
    let left = end.duration_since((cx.clock)());
    // At exactly the end, the request is still kept.
    if left >= SignedDuration::ZERO {
        let left = Duration::try_from(left).unwrap_or_default().saturating_add(Duration::from_millis(1));
        return Ok(Action::RequeueAfter(left.min(LOOK_MAX)));
    }
    let preconditions = Preconditions { uid: request.metadata.uid.clone(), resource_version: None };
    let params = DeleteParams::default().preconditions(preconditions);
    match Api::<CertificateSigningRequest>::all(cx.client.clone()).delete(key.name(), &params).await {
        Ok(_) => {
            tracing::info!(request = key.name(), "the request is done with: it goes");
            Ok(Action::AwaitChange)
        }
        Err(error) if refusal::is_outdated(&error) => Ok(Action::AwaitChange),
        Err(error) => Err(Refused::to("delete the request")(error).into()),
    }
}

/// The time after which a request is deleted.
fn end(request: &CertificateSigningRequest) -> Option<Timestamp> {
    let status = request.status.as_ref();
    let certificate = status.and_then(|status| status.certificate.as_ref()).map(|certificate| &certificate.0[..]);
    let certificate = certificate.filter(|certificate| !certificate.is_empty());
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    if conditions.is_empty() {
        return request.metadata.creation_timestamp.as_ref().and_then(|time| time.0.checked_add(PENDING).ok());
    }
    let mut ends = Vec::new();
    for condition in conditions {
        let stays = match condition.type_.as_str() {
            APPROVED if certificate.is_none() => PENDING,
            APPROVED => {
                ends.extend(certificate.and_then(not_after));
                ANSWERED
            }
            DENIED | FAILED => ANSWERED,
            _ => continue,
        };
        // A condition without a time has no start to count from.
        ends.extend(condition.last_update_time.as_ref().and_then(|time| time.0.checked_add(stays).ok()));
    }
    ends.into_iter().min()
}

/// When a certificate expires; `None` if it cannot be read.
fn not_after(certificate: &[u8]) -> Option<Timestamp> {
    let block = Pem::iter_from_buffer(certificate).next()?.ok()?;
    let certificate = block.parse_x509().ok()?;
    Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;
    use k8s_openapi::api::certificates::v1::CertificateSigningRequestCondition;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    const CREATED: i64 = 1_000_000;
    const UPDATED: i64 = 1_000_100;

    /// Checks after how many seconds since 1970 a request with these conditions is deleted.
    #[track_caller]
    fn check(conditions: &[&str], certificate: &str, want: Option<i64>) {
        let mut request = CertificateSigningRequest::default();
        request.metadata.creation_timestamp = Some(Time(Timestamp::from_second(CREATED).unwrap()));
        let status = request.status.get_or_insert_default();
        status.certificate = Some(ByteString(certificate.as_bytes().to_vec()));
        let conditions = conditions.iter().map(|type_| CertificateSigningRequestCondition {
            type_: (*type_).to_owned(),
            status: "True".to_owned(),
            last_update_time: Some(Time(Timestamp::from_second(UPDATED).unwrap())),
            ..CertificateSigningRequestCondition::default()
        });
        status.conditions = Some(conditions.collect());
        assert_eq!(end(&request).map(Timestamp::as_second), want);
    }

    #[test]
    fn an_answered_request_stays_an_hour_and_an_open_one_a_day() {
        check(&[], "", Some(CREATED + 86_400));
        check(&[APPROVED], "", Some(UPDATED + 86_400));
        check(&[APPROVED], "not a certificate", Some(UPDATED + 3_600));
        check(&[DENIED], "", Some(UPDATED + 3_600));
        check(&[APPROVED, FAILED], "", Some(UPDATED + 3_600));
        check(&["example.com/Seen"], "", None);
    }

    #[test]
    fn an_expired_certificate_ends_its_request_earlier() {
        let mut params = rcgen::CertificateParams::default();
        params.not_after = rcgen::date_time_ymd(1970, 1, 2);
        let certificate = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        check(&[APPROVED], &certificate.pem(), Some(86_400));
    }
}
