//! Certificates that users request and administrators approve.

use crate::support::kubectl::{self, Kubectl};
use crate::support::plane::Plane;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{Value, json};
use std::fs;

/// A certificate signing request of `carol` and her group.
fn request(key: &KeyPair, name: &str, signer: &str, usage: &str) -> Value {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "carol");
    params.distinguished_name.push(DnType::OrganizationName, "developers");
    let pem = params.serialize_request(key).unwrap().pem().unwrap();
    json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
        "spec": {"request": STANDARD.encode(pem), "signerName": signer, "usages": [usage], "expirationSeconds": 3600},
    })
}

#[test]
fn an_approved_request_gives_a_certificate_that_logs_in() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    let plane = Plane::server(home.path(), &["--in-memory"]);
    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    let key = KeyPair::generate().unwrap();
    let signer = "kubernetes.io/kube-apiserver-client";
    kubectl.apply(&request(&key, "carol", signer, "client auth").to_string());
    kubectl.ok("certificate approve carol");
    kubectl.ok("wait csr/carol --for=jsonpath={.status.certificate} --timeout=60s");
    let certificate = kubectl.json("get csr carol")["status"]["certificate"].as_str().unwrap().to_owned();

    let file = |name: &str, content: &[u8]| {
        let path = home.path().join(name);
        fs::write(&path, content).unwrap();
        path.display().to_string()
    };
    let certificate = file("carol.crt", &STANDARD.decode(certificate).unwrap());
    let key = file("carol.key", key.serialize_pem().as_bytes());
    kubectl.ok(&format!("config set-credentials carol --client-certificate={certificate} --client-key={key}"));
    kubectl.ok("config set-context carol --cluster=steersman --user=carol");
    let who = kubectl.json("--context carol auth whoami")["status"]["userInfo"].clone();
    assert_eq!((&who["username"], &who["groups"]), (&json!("carol"), &json!(["developers", "system:authenticated"])));
    plane.stop();
}

#[test]
fn a_request_that_breaks_the_rules_of_its_signer_fails() {
    let Some(program) = kubectl::program() else { return };
    let home = tempfile::tempdir().unwrap();
    let plane = Plane::server(home.path(), &["--in-memory"]);
    let kubectl = Kubectl::new(program, &plane.kubeconfig());
    let key = KeyPair::generate().unwrap();
    let signer = "kubernetes.io/kube-apiserver-client";
    kubectl.apply(&request(&key, "server", signer, "server auth").to_string());
    kubectl.ok("certificate approve server");
    kubectl.ok("wait csr/server --for=condition=Failed --timeout=60s");
    let status = kubectl.json("get csr server")["status"].clone();
    let failed = status["conditions"].as_array().unwrap().iter().find(|one| one["type"] == "Failed").unwrap();
    assert_eq!(failed["message"], "invalid usage for client certificate: server auth");
    assert_eq!(status.get("certificate"), None);
    plane.stop();
}
