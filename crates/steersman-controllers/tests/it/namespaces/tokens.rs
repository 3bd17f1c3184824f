//! Bootstrap tokens, and the requests of kubelets for certificates.

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use steersman::ObjectKey;
use steersman_testkit::{ControlPlane, Loops, User};

const INFO: &str = "{kind: ConfigMap, apiVersion: v1, metadata: {name: cluster-info, namespace: kube-public}, data: {kubeconfig: payload}}";

fn token(id: &str, expiration: &str) -> String {
    format!(
        "{{kind: Secret, apiVersion: v1, type: bootstrap.kubernetes.io/token, metadata: {{name: bootstrap-token-{id}, namespace: kube-system}}, \
         stringData: {{token-id: {id}, token-secret: tokenSecret, usage-bootstrap-signing: 'true', expiration: '{expiration}'}}}}"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_signs_what_nodes_read_of_the_cluster_until_it_is_gone() {
    let plane = ControlPlane::start_with(Loops::only(["bootstrapsigner", "tokencleaner"])).await;
    plane.apply(&token("abc123", "")).await;
    plane.apply(INFO).await;
    let key = ObjectKey::namespaced("kube-public", "cluster-info");
    let signature = |config: &ConfigMap| config.data.as_ref()?.get("jws-kubeconfig-abc123").cloned();
    let signed = plane.until(&key, |config: &ConfigMap| signature(config).is_some()).await;
    let want = "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiYzEyMyJ9..QSxpUG7Q542CirTI2ECPSZjvBOJURUW5a7XqFpNI958";
    assert_eq!(signature(&signed).unwrap(), want);
    plane.apply(&token("abc123", "2020-01-01T00:00:00Z")).await;
    plane.until_gone::<Secret>(&ObjectKey::namespaced("kube-system", "bootstrap-token-abc123")).await;
    plane.until(&key, |config: &ConfigMap| signature(config).is_none()).await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubelets_request_is_approved_if_its_requestor_may_make_nodes() {
    let plane = ControlPlane::start_with(Loops::only(["csrapproving", "csrcleaner"])).await;
    let request = |name: &str| {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:nodes");
        params.distinguished_name.push(rcgen::DnType::CommonName, "system:node:a");
        let pem = params.serialize_request(&rcgen::KeyPair::generate().unwrap()).unwrap().pem().unwrap();
        let mut request = CertificateSigningRequest::default();
        request.metadata.name = Some(name.to_owned());
        request.spec = CertificateSigningRequestSpec {
            request: ByteString(pem.into_bytes()),
            signer_name: "kubernetes.io/kube-apiserver-client-kubelet".to_owned(),
            usages: Some(vec!["client auth".to_owned(), "digital signature".to_owned()]),
            ..CertificateSigningRequestSpec::default()
        };
        request
    };
    let as_admin = Api::<CertificateSigningRequest>::all(plane.client());
    as_admin.create(&PostParams::default(), &request("admin")).await.unwrap();
    let conditions =
        |request: &CertificateSigningRequest| request.status.clone().unwrap_or_default().conditions.unwrap_or_default();
    let approved = plane
        .until(&ObjectKey::cluster("admin"), |request: &CertificateSigningRequest| !conditions(request).is_empty())
        .await;
    let condition = &conditions(&approved)[0];
    assert_eq!((condition.type_.as_str(), condition.reason.as_deref()), ("Approved", Some("AutoApproved")));
    let message = "Auto approving kubelet client certificate after SubjectAccessReview.";
    assert_eq!(condition.message.as_deref(), Some(message));

    // Another user's request is not approved, until a role allows it.
    let binding = |name: &str, role: &str| {
        format!(
            "{{kind: ClusterRoleBinding, apiVersion: rbac.authorization.k8s.io/v1, metadata: {{name: {name}}}, \
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: '{role}'}}, \
         subjects: [{{kind: User, apiGroup: rbac.authorization.k8s.io, name: jane}}]}}"
        )
    };
    plane.apply("{kind: ClusterRole, apiVersion: rbac.authorization.k8s.io/v1, metadata: {name: asks}, rules: [{apiGroups: [certificates.k8s.io], resources: [certificatesigningrequests], verbs: [create]}]}").await;
    plane.apply(&binding("asks", "asks")).await;
    let jane = User::authenticated("jane", []);
    let as_jane = Api::<CertificateSigningRequest>::all(plane.client_as(jane));
    as_jane.create(&PostParams::default(), &request("janes")).await.unwrap();
    let waiting = as_admin.get("janes").await.unwrap();
    assert!(conditions(&waiting).is_empty());
    plane.apply(&binding("nodes", "system:certificates.k8s.io:certificatesigningrequests:nodeclient")).await;
    plane
        .until(&ObjectKey::cluster("janes"), |request: &CertificateSigningRequest| !conditions(request).is_empty())
        .await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubelet_gets_a_serving_certificate_for_its_own_addresses_only() {
    let plane = ControlPlane::start_with(Loops::only(["kubelet-serving-approver"])).await;
    plane.apply("{kind: Node, apiVersion: v1, metadata: {name: a}}").await;
    plane.apply("{kind: Node, apiVersion: v1, metadata: {name: b}}").await;
    let report = async |node: &str, addresses: &[&str]| {
        let addresses: Vec<_> =
            addresses.iter().map(|address| json!({"type": "InternalIP", "address": address})).collect();
        let status = Patch::Merge(json!({"status": {"addresses": addresses}}));
        Api::<Node>::all(plane.client()).patch_status(node, &PatchParams::default(), &status).await.unwrap();
    };
    report("b", &["10.0.0.2"]).await;
    let as_node = plane.client_as(User::authenticated("system:node:a", ["system:nodes".to_owned()]));
    let as_node = Api::<CertificateSigningRequest>::all(as_node);
    let ask = async |name: &str, address: &str| {
        let mut params = rcgen::CertificateParams::new([address.to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:nodes");
        params.distinguished_name.push(rcgen::DnType::CommonName, "system:node:a");
        let pem = params.serialize_request(&rcgen::KeyPair::generate().unwrap()).unwrap().pem().unwrap();
        let mut request = CertificateSigningRequest::default();
        request.metadata.name = Some(name.to_owned());
        request.spec = CertificateSigningRequestSpec {
            request: ByteString(pem.into_bytes()),
            signer_name: "kubernetes.io/kubelet-serving".to_owned(),
            usages: Some(vec!["server auth".to_owned(), "digital signature".to_owned()]),
            ..CertificateSigningRequestSpec::default()
        };
        as_node.create(&PostParams::default(), &request).await.unwrap();
    };
    report("a", &["10.0.0.1", "10.0.0.2", "10.96.0.1"]).await;
    let is_approved = |request: &CertificateSigningRequest| {
        let conditions = request.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.is_some_and(|all| all.iter().any(|condition| condition.type_ == "Approved"))
    };
    ask("own", "10.0.0.1").await;
    plane.until(&ObjectKey::cluster("own"), is_approved).await;
    // The loop knows both Nodes now, and looks at requests in the order of their creation.
    ask("of-another-node", "10.0.0.2").await;
    ask("of-a-service", "10.96.0.1").await;
    ask("own-again", "10.0.0.1").await;
    plane.until(&ObjectKey::cluster("own-again"), is_approved).await;
    for refused in ["of-another-node", "of-a-service"] {
        let request = Api::<CertificateSigningRequest>::all(plane.client()).get(refused).await.unwrap();
        assert!(!is_approved(&request), "{refused}: whoever trusts the CA would take the node for somebody else");
    }
    // When the other node has another address, the same loop approves what it did not before.
    report("b", &["10.0.0.3"]).await;
    plane.until(&ObjectKey::cluster("of-another-node"), is_approved).await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_told_for_how_long_its_kubelet_may_keep_what_it_has_read() {
    let plane = ControlPlane::start_with(Loops::only(["ttl"])).await;
    plane.apply("{kind: Node, apiVersion: v1, metadata: {name: a}}").await;
    let is_annotated =
        |node: &Node| node.annotations().get("node.alpha.kubernetes.io/ttl").is_some_and(|ttl| ttl == "0");
    plane.until(&ObjectKey::cluster("a"), is_annotated).await;
    plane.stop().await;
}
