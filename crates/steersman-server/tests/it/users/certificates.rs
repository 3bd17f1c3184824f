//! Certificate signing requests: who may approve and sign them.

use crate::support::{TestServer, text};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::future::BoxFuture;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{Value, json};
use std::sync::Arc;
use steersman_server::authz::{Attributes, Authorization, Authorizer, Rules, Verdict};
use steersman_server::user::User;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

fn request(name: &str, signer: &str, organization: &str) -> Value {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, organization);
    let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    json!({"metadata": {"name": name}, "spec": {
        "request": STANDARD.encode(pem), "signerName": signer, "usages": ["client auth"],
    }})
}

/// Allows everything to everybody, except that only `approver` may approve, and only for one signer of a domain.
#[derive(Debug)]
struct OneApprover;

impl Authorizer for OneApprover {
    fn authorize<'a>(&'a self, user: &'a User, attributes: &'a Attributes<'a>) -> BoxFuture<'a, Verdict> {
        let is_allowed = match attributes {
            Attributes::Resource(of) if of.resource == "signers" => {
                user.name == "approver" && of.verb == "approve" && of.name == Some("example.com/*")
            }
            _ => true,
        };
        Box::pin(async move { if is_allowed { Verdict::ALLOW } else { Verdict::NO_OPINION } })
    }

    fn rules_for<'a>(&'a self, _user: &'a User, _namespace: &'a str) -> BoxFuture<'a, Rules> {
        Box::pin(async { Rules::default() })
    }
}

#[tokio::test]
async fn who_approves_or_signs_needs_the_verb_on_the_signer() {
    let test = TestServer::with(Default::default(), Authorization::Custom(Arc::new(OneApprover))).await;
    let made = test.http_as("carol").post(REQUESTS, &request("a", "example.com/s", "devs")).await.ok();
    assert_eq!(text(&made, "/spec/username"), "carol");
    let approval = json!({"status": {"conditions": [{"type": "Approved", "status": "True"}]}});
    let path = format!("{REQUESTS}/a/approval");
    let refused = test.http_as("other").merge(&path, &approval).await;
    let why = |verb: &str| {
        format!(
            "certificatesigningrequests.certificates.k8s.io \"a\" is forbidden: user not permitted to {verb} requests with signerName \"example.com/s\""
        )
    };
    assert_eq!((refused.code, text(&refused.json(), "/message")), (403, &*why("approve")));
    let approved = test.http_as("approver").merge(&path, &approval).await.ok();
    assert!(approved.pointer("/status/conditions/0/lastUpdateTime").is_some());
    let failed = json!({"status": {"conditions": [
        approved["status"]["conditions"][0], {"type": "Failed", "status": "True"},
    ]}});
    let refused = test.http_as("approver").merge(&format!("{REQUESTS}/a/status"), &failed).await;
    assert_eq!((refused.code, text(&refused.json(), "/message")), (403, &*why("sign")));
}

#[tokio::test]
async fn nobody_gets_the_administrators_group_from_the_clients_signer() {
    let test = TestServer::new().await;
    let signer = "kubernetes.io/kube-apiserver-client";
    let refused = test.http().post(REQUESTS, &request("a", signer, "system:masters")).await;
    assert_eq!(refused.code, 403);
    assert!(text(&refused.json(), "/message").ends_with("signer with system:masters group is not allowed"));
    test.http().post(REQUESTS, &request("b", signer, "developers")).await.ok();
}
