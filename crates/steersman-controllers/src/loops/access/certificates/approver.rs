//! Approves requests for the client certificates of kubelets, if the requestor is allowed to ask for them.
//!
//! Follows kube-controller-manager's csrapproving controller: a SubjectAccessReview decides whether the requestor may
//! create `certificatesigningrequests/selfnodeclient` (a kubelet that renews its own certificate) or
//! `certificatesigningrequests/nodeclient` (somebody who adds nodes). A request that is recognized but not allowed is
//! checked again with a growing back-off: a role may be granted meanwhile.

use crate::loops::access::certificates::signer::{self, Signer};
use crate::loops::access::certificates::{APPROVED, DENIED};
use crate::settings::Parts;
use crate::shared::refusal::{self, Refused};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition, CertificateSigningRequestSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use std::time::Duration;
use steersman::queue::RateLimiter;
use steersman::{Action, BoxError, Controller, Lister, Manager, ObjectKey, Scope};

/// The name of the loop in logs.
const NAME: &str = "certificatesigningrequest-approving-controller";
/// The first and the longest pause before a request that is not allowed is checked again.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(1_000));

/// The subresource that the requestor must be allowed to create for an approval, and the message of the approval.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Rule {
    subresource: &'static str,
    message: &'static str,
}

const SELF: Rule = Rule {
    subresource: "selfnodeclient",
    message: "Auto approving self kubelet client certificate after SubjectAccessReview.",
};
const NODE: Rule =
    Rule { subresource: "nodeclient", message: "Auto approving kubelet client certificate after SubjectAccessReview." };

struct Context {
    client: Client,
    requests: Lister<CertificateSigningRequest>,
}

/// Adds the loop to a manager.
pub(crate) fn add(manager: Manager, Parts { client, .. }: Parts<'_>) -> Manager {
    let requests = manager.informers().informer::<CertificateSigningRequest>(Scope::All);
    let context = Context { client, requests: requests.lister() };
    let controller = Controller::<CertificateSigningRequest>::of(&requests, reconcile, context)
        .name(NAME)
        .rate_limiter(RateLimiter::exponential(BACKOFF.0, BACKOFF.1));
    manager.controller(controller)
}

async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, BoxError> {
    let request = cx.requests.get(&key)?;
    if !is_open(&request) {
        return Ok(Action::AwaitChange);
    }
    let rules = rules(&request.spec);
    for rule in rules {
        if !is_allowed(&cx.client, &request.spec, rule).await? {
            continue;
        }
        return Ok(approve(&cx.client, &request, rule.message).await?);
    }
    Ok(if rules.is_empty() { Action::AwaitChange } else { Action::Requeue })
}

/// Approves a request. If it has changed meanwhile, that change is reconciled.
pub(super) async fn approve(
    client: &Client,
    request: &CertificateSigningRequest,
    message: &str,
) -> Result<Action, Refused> {
    let api = Api::<CertificateSigningRequest>::all(client.clone());
    let name = request.metadata.name.as_deref().unwrap_or_default();
    match api.replace_subresource("approval", name, &PostParams::default(), &approved(request, message)).await {
        Ok(_) => Ok(Action::AwaitChange),
        Err(error) if refusal::is_outdated(&error) => Ok(Action::AwaitChange),
        Err(error) => Err(Refused::to("approve the request")(error)),
    }
}

/// Whether a request has neither been approved or denied nor issued.
pub(super) fn is_open(request: &CertificateSigningRequest) -> bool {
    let Some(status) = &request.status else { return true };
    let is_issued = status.certificate.as_ref().is_some_and(|certificate| !certificate.0.is_empty());
    let mut conditions = status.conditions.iter().flatten();
    !is_issued && !conditions.any(|condition| condition.type_ == APPROVED || condition.type_ == DENIED)
}

/// The rules by which a request may be approved, the narrower one first.
fn rules(spec: &CertificateSigningRequestSpec) -> &'static [Rule] {
    let requestor = spec.username.as_deref().unwrap_or_default();
    let is_own = Signer::KubeletClient.read(spec, |request| requestor == signer::common_name(request));
    match is_own {
        None => &[],
        Some(true) => &[SELF, NODE],
        Some(false) => &[NODE],
    }
}

async fn is_allowed(client: &Client, spec: &CertificateSigningRequestSpec, rule: &Rule) -> Result<bool, Refused> {
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            extra: spec.extra.clone(),
            groups: spec.groups.clone(),
            resource_attributes: Some(ResourceAttributes {
                group: Some("certificates.k8s.io".to_owned()),
                resource: Some("certificatesigningrequests".to_owned()),
                subresource: Some(rule.subresource.to_owned()),
                verb: Some("create".to_owned()),
                version: Some("*".to_owned()),
                ..ResourceAttributes::default()
            }),
            uid: spec.uid.clone(),
            user: spec.username.clone(),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let review = Api::<SubjectAccessReview>::all(client.clone()).create(&PostParams::default(), &review).await;
    let review = review.map_err(Refused::to("ask what the requestor may do"))?;
    Ok(review.status.is_some_and(|status| status.allowed))
}

fn approved(request: &CertificateSigningRequest, message: &str) -> CertificateSigningRequest {
    let mut request = request.clone();
    let condition = CertificateSigningRequestCondition {
        type_: APPROVED.to_owned(),
        status: "True".to_owned(),
        reason: Some("AutoApproved".to_owned()),
        message: Some(message.to_owned()),
        // The server sets the times.
        last_update_time: None,
        last_transition_time: None,
    };
    request.status.get_or_insert_default().conditions.get_or_insert_default().push(condition);
    request
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loops::access::certificates::signer::fixture;
    use k8s_openapi::ByteString;

    const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";

    fn spec(signer: &str, user: &str, organization: &str) -> CertificateSigningRequestSpec {
        fixture::spec(signer, "client auth", user, organization, &[])
    }

    #[test]
    fn a_node_may_renew_its_own_certificate_and_others_may_make_nodes() {
        assert_eq!(rules(&spec(SIGNER, "system:node:a", "system:nodes")), [SELF, NODE]);
        assert_eq!(rules(&spec(SIGNER, "admin", "system:nodes")), [NODE]);
    }

    #[test]
    fn nothing_else_is_recognized() {
        assert_eq!(rules(&spec(SIGNER, "admin", "system:masters")), []);
        assert_eq!(rules(&spec("kubernetes.io/kubelet-serving", "system:node:a", "system:nodes")), []);
        assert_eq!(rules(&spec("kubernetes.io/kube-apiserver-client", "system:node:a", "system:nodes")), []);
        let garbage = ByteString(b"-----BEGIN".to_vec());
        assert_eq!(rules(&CertificateSigningRequestSpec { request: garbage, ..spec(SIGNER, "a", "system:nodes") }), []);
    }
}
