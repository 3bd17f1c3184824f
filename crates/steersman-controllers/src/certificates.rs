//! Signs the certificates of approved CertificateSigningRequests, for the built-in signers.
//!
//! Follows kube-controller-manager's signing controllers for `kubernetes.io/kube-apiserver-client`,
//! `kubernetes.io/kube-apiserver-client-kubelet` and `kubernetes.io/kubelet-serving`. A request that breaks the rules of its signer
//! gets the condition `Failed`. Nobody is asked for approval here, and `kubernetes.io/legacy-unknown` is not signed.

mod authority;
mod der;
mod signer;

pub use crate::certificates::authority::{Authority, AuthorityError};

use crate::certificates::authority::SignError;
use crate::certificates::signer::Signer;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use std::sync::Arc;
use steersman::{Action, Controller, Lister, LookupError, Manager, ManagerError, ObjectKey, ReconcileError, Scope};

/// The name under which the loop appears in logs.
pub const NAME: &str = "certificates-controller";

const APPROVED: &str = "Approved";
const DENIED: &str = "Denied";
const FAILED: &str = "Failed";

struct Context {
    authority: Arc<Authority>,
    client: Client,
    requests: Lister<CertificateSigningRequest>,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("cannot read the request")]
    Read(#[from] LookupError),
    #[error("cannot sign the certificate")]
    Sign(#[source] SignError),
    #[error("cannot write the status of the request")]
    Write(#[source] kube::Error),
}

impl ReconcileError for Error {}

/// Runs the loop in a manager until `shutdown` resolves; passes under way end first.
///
/// # Errors
/// When the controller cannot be run, or was cut off at the end.
pub async fn run_with(
    manager: Manager,
    authority: Authority,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ManagerError> {
    let client = manager.informers().client().clone();
    let requests = manager.informers().informer::<CertificateSigningRequest>(Scope::All).lister();
    let context = Context { authority: Arc::new(authority), client, requests };
    let controller = Controller::<CertificateSigningRequest>::new(reconcile, context).name(NAME);
    manager.controller(controller).run(shutdown).await
}

async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, Error> {
    let request = match cx.requests.get(&key) {
        Ok(request) => request,
        Err(LookupError::NotFound { .. }) => return Ok(Action::AwaitChange),
        Err(error) => return Err(error.into()),
    };
    let Some(signer) = Signer::of(&request.spec.signer_name).filter(|_| is_to_be_signed(&request)) else {
        return Ok(Action::AwaitChange);
    };
    let now = jiff::Timestamp::now();
    let status = match cx.authority.sign(signer, &request.spec, now) {
        Ok(certificate) => json!({"certificate": k8s_openapi::ByteString(certificate.into_bytes())}),
        Err(SignError::Refused(why)) => {
            let failed = json!({
                "type": FAILED, "status": "True", "reason": "SignerValidationFailure", "message": why,
                "lastUpdateTime": k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now),
            });
            let known = request.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
            let mut conditions: Vec<serde_json::Value> = known.iter().map(|one| json!(one)).collect();
            conditions.push(failed);
            json!({ "conditions": conditions })
        }
        Err(error) => return Err(Error::Sign(error)),
    };
    // A request that has changed since it was read is signed by the next pass, if it still is to be signed.
    let patch = json!({
        "metadata": {"resourceVersion": request.metadata.resource_version, "uid": request.metadata.uid}, "status": status,
    });
    let api = Api::<CertificateSigningRequest>::all(cx.client.clone());
    match api.patch_status(key.name(), &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(_) => {
            tracing::info!(request = key.name(), signer = request.spec.signer_name, "the request has been answered");
            Ok(Action::AwaitChange)
        }
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(Action::AwaitChange),
        Err(error) => Err(Error::Write(error)),
    }
}

/// Whether a request is approved and has neither a certificate nor a reason why it gets none.
fn is_to_be_signed(request: &CertificateSigningRequest) -> bool {
    let Some(status) = &request.status else { return false };
    let has = |kind: &str| {
        let mut all = status.conditions.iter().flatten();
        all.any(|condition| condition.type_ == kind && condition.status == "True")
    };
    let is_answered = status.certificate.as_ref().is_some_and(|certificate| !certificate.0.is_empty());
    has(APPROVED) && !has(DENIED) && !has(FAILED) && !is_answered
}
