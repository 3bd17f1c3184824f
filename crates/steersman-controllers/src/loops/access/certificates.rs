//! Signs the certificates of approved CertificateSigningRequests, for the built-in signers.
//!
//! Follows kube-controller-manager's signing controllers for `kubernetes.io/kube-apiserver-client`,
//! `kubernetes.io/kube-apiserver-client-kubelet` and `kubernetes.io/kubelet-serving`. A request that breaks the rules
//! of its signer gets the condition `Failed`. `kubernetes.io/legacy-unknown` is not signed. The loops beside it approve
//! the requests of kubelets (`approver` for client certificates, `serving_approver`) and delete obsolete requests
//! (`cleaner`).

pub(crate) mod approver;
mod authority;
pub(crate) mod cleaner;
mod der;
pub(crate) mod serving_approver;
mod signer;

pub use crate::loops::access::certificates::authority::{Authority, AuthorityError};

use crate::loops::access::certificates::authority::SignError;
use crate::loops::access::certificates::signer::Signer;
use crate::settings::Parts;
use crate::shared::refusal::{self, Refused};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Api, Client};
use std::sync::Arc;
use steersman::{Action, Controller, Lister, LookupError, Manager, ObjectKey, ReconcileError, Scope};

/// The name of the loop in logs.
const NAME: &str = "certificates-controller";

const APPROVED: &str = "Approved";
const DENIED: &str = "Denied";
const FAILED: &str = "Failed";

struct Context {
    authority: Arc<Authority>,
    client: Client,
    clock: fn() -> Timestamp,
    requests: Lister<CertificateSigningRequest>,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("cannot read the request")]
    Read(#[from] LookupError),
    #[error("cannot sign the certificate")]
    Sign(#[source] SignError),
    #[error(transparent)]
    Refused(#[from] Refused),
}

impl ReconcileError for Error {}

/// Adds the loop to a manager.
pub(crate) fn add(manager: Manager, Parts { client, settings }: Parts<'_>) -> Manager {
    let Some(authority) = settings.authority.clone() else { return manager };
    let requests = manager.informers().informer::<CertificateSigningRequest>(Scope::All).lister();
    let context = Context { authority, client, clock: settings.clock, requests };
    manager.controller(Controller::<CertificateSigningRequest>::new(reconcile, context).name(NAME))
}

async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, Error> {
    let Some(request) = cx.requests.find(&key)? else { return Ok(Action::AwaitChange) };
    let Some(signer) = Signer::of(&request.spec.signer_name).filter(|_| is_to_be_signed(&request)) else {
        return Ok(Action::AwaitChange);
    };
    let now = (cx.clock)();
    let mut status = request.status.clone().unwrap_or_default();
    match cx.authority.sign(signer, &request.spec, now) {
        Ok(certificate) => status.certificate = Some(ByteString(certificate.into_bytes())),
        Err(SignError::Refused(why)) => {
            let failed = CertificateSigningRequestCondition {
                type_: FAILED.to_owned(),
                status: "True".to_owned(),
                reason: Some("SignerValidationFailure".to_owned()),
                message: Some(why),
                last_update_time: Some(Time(now)),
                last_transition_time: None,
            };
            status.conditions.get_or_insert_default().push(failed);
        }
        Err(error) => return Err(Error::Sign(error)),
    }
    // If the request has changed since it was read, the next pass signs it, if it is still approved.
    let request = CertificateSigningRequest { status: Some(status), ..(*request).clone() };
    let api = Api::<CertificateSigningRequest>::all(cx.client.clone());
    if refusal::replace_status(&api, &request).await?.is_some() {
        tracing::info!(request = key.name(), signer = request.spec.signer_name, "the request has been answered");
    }
    Ok(Action::AwaitChange)
}

/// Whether a request is approved and has neither a certificate nor a failure.
fn is_to_be_signed(request: &CertificateSigningRequest) -> bool {
    let Some(status) = &request.status else { return false };
    let has = |kind: &str| {
        let mut all = status.conditions.iter().flatten();
        all.any(|condition| condition.type_ == kind && condition.status == "True")
    };
    let is_answered = status.certificate.as_ref().is_some_and(|certificate| !certificate.0.is_empty());
    has(APPROVED) && !has(DENIED) && !has(FAILED) && !is_answered
}
