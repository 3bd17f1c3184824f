//! `CertificateApproval`, `CertificateSigning` and `CertificateSubjectRestriction`: who may approve and sign the
//! certificate requests of a signer, and which groups may not be requested from the signer of API clients.

use crate::access::authz::{self, Attributes, ResourceAttributes};
use crate::shared::status::Failure;
use crate::write::admission::plugin::{Action, Phase, Plugin, Review};
use futures::future::BoxFuture;
use steersman_kinds::builtin::access::certificate_signing_request::{self as requests, GROUP, PLURAL};
use steersman_kinds::user::MASTERS;
use steersman_machinery::Value;
use steersman_machinery::value::{at, str_at};

const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// Approving or denying a request requires the verb `approve` on its signer.
#[derive(Debug)]
pub(crate) struct Approval;

/// Writing the certificate or the conditions of a request requires the verb `sign` on its signer.
#[derive(Debug)]
pub(crate) struct Signing;

/// Refuses requests to the signer of API clients for the group of administrators.
#[derive(Debug)]
pub(crate) struct SubjectRestriction;

impl Plugin for Approval {
    fn handles(&self, phase: Phase, action: Action, attributes: &ResourceAttributes<'_>) -> bool {
        is_update_of(phase, action, attributes, "approval")
    }

    fn validate<'a>(
        &'a self,
        review: &'a mut Review<'_, '_>,
        _new: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(check_signer(review, "approve"))
    }
}

impl Plugin for Signing {
    fn handles(&self, phase: Phase, action: Action, attributes: &ResourceAttributes<'_>) -> bool {
        is_update_of(phase, action, attributes, "status")
    }

    fn validate<'a>(
        &'a self,
        review: &'a mut Review<'_, '_>,
        new: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let of = |object: Option<&Value>, field| object.and_then(|object| at(object, &["status", field])).cloned();
            let is_same = |field| of(new, field) == of(review.old, field);
            if is_same("certificate") && is_same("conditions") {
                return Ok(());
            }
            check_signer(review, "sign").await
        })
    }
}

impl Plugin for SubjectRestriction {
    fn handles(&self, phase: Phase, action: Action, attributes: &ResourceAttributes<'_>) -> bool {
        let is_creation = phase == Phase::Validate && action == Action::Create;
        is_creation && attributes.is_about(GROUP, PLURAL) && attributes.subresource.is_none()
    }

    fn validate<'a>(
        &'a self,
        review: &'a mut Review<'_, '_>,
        new: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let Some(request) = new.filter(|one| str_at(one, &["spec", "signerName"]) == Some(CLIENT_SIGNER)) else {
                return Ok(());
            };
            let groups = requests::with_request(request, |request| {
                let groups = request.certification_request_info.subject.iter_organization();
                // A group in an encoding that is not decoded here is refused: the signer or a server might decode it to
                // any name.
                groups.map(|group| group.as_str().map(str::to_owned).ok()).collect::<Option<Vec<String>>>()
            });
            let why = match groups {
                Ok(Some(groups)) if groups.iter().any(|group| group == MASTERS) => {
                    format!("use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed")
                }
                Ok(Some(_)) => return Ok(()),
                Ok(None) => {
                    "failed to parse CSR: an organization of its subject is in an encoding other than UTF-8 and \
                             ASCII: send it as UTF8String"
                        .to_owned()
                }
                Err(error) => format!("failed to parse CSR: {error}"),
            };
            Err(refused(review, str_at(request, &["metadata", "name"]).unwrap_or_default(), &why))
        })
    }
}

fn is_update_of(phase: Phase, action: Action, attributes: &ResourceAttributes<'_>, subresource: &str) -> bool {
    let is_update = phase == Phase::Validate && action == Action::Update;
    is_update && attributes.is_about(GROUP, PLURAL) && attributes.subresource == Some(subresource)
}

/// Refuses a user who does not have the verb on the signer of a request or on its domain.
async fn check_signer(review: &Review<'_, '_>, verb: &str) -> Result<(), Failure> {
    let signer = review.old.and_then(|old| str_at(old, &["spec", "signerName"])).unwrap_or_default();
    let domain = format!("{}/*", signer.split('/').next().unwrap_or_default());
    for name in [signer, &domain] {
        let attributes = ResourceAttributes {
            verb,
            group: GROUP,
            version: "*",
            resource: "signers",
            name: Some(name),
            ..ResourceAttributes::default()
        };
        let attributes = Attributes::Resource(attributes);
        let verdict = authz::verdict(&*review.state.authorizer, review.operation.user, &attributes).await;
        if verdict.is_allowed() {
            return Ok(());
        }
    }
    let why = format!("user not permitted to {verb} requests with signerName {signer:?}");
    Err(refused(review, review.operation.name(), &why))
}

fn refused(review: &Review<'_, '_>, name: &str, why: &str) -> Failure {
    Failure::forbidden(&review.operation.group_resource(), name, why)
}
