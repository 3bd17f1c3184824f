//! `CertificateApproval`, `CertificateSigning` and `CertificateSubjectRestriction`: who may approve and sign requests for
//! certificates of a signer, and what no request to the signer of API clients may ask for.

use crate::admission::plugin::{Action, Phase, Plugin, Review};
use crate::authz::{self, Attributes, ResourceAttributes};
use steersman_kinds::builtin::certificate_signing_request::{self as requests, GROUP, PLURAL};
use crate::status::Failure;
use steersman_kinds::user::MASTERS;
use futures::future::BoxFuture;
use steersman_machinery::Value;
use steersman_machinery::value::{at, str_at};

const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// Who approves or denies a request needs the verb `approve` on its signer.
#[derive(Debug)]
pub(super) struct Approval;

/// Who writes the certificate or the conditions of a request needs the verb `sign` on its signer.
#[derive(Debug)]
pub(super) struct Signing;

/// Nobody gets the group of administrators from the signer of API clients.
#[derive(Debug)]
pub(super) struct SubjectRestriction;

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
                // One in letters that are not read here may be any: whoever signs or takes the certificate might read it.
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

/// Refuses a user who may not do something with the signer of a request, by its name or as one of its domain's.
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
