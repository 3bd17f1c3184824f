//! Tests of certificate signing requests.

use super::*;
use crate::user::User;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

fn request() -> Value {
    let key = rcgen::KeyPair::generate().unwrap();
    let pem = rcgen::CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
    json!({"metadata": {"name": "r"}, "spec": {
        "request": STANDARD.encode(pem), "signerName": "example.com/s", "usages": ["client auth"], "username": "forged",
        "extra": {"a": ["b"]},
    }})
}

fn approved(object: &mut Value) {
    object["status"] = json!({"conditions": [{"type": "Approved", "status": "True"}]});
}

#[test]
fn who_asks_is_the_servers_to_say() {
    let requests = Subject::of("certificates.k8s.io", "CertificateSigningRequest");
    let mut made = requests.created(request());
    requests.strategy().set_creator(&mut made, &User::authenticated("carol", ["g".to_owned()]));
    assert_eq!(
        (&made["spec"]["username"], &made["spec"]["groups"], made["spec"].get("extra")),
        (&json!("carol"), &json!(["g", "system:authenticated"]), None)
    );
}

#[test]
fn a_request_must_be_signed_by_its_own_key() {
    let requests = Subject::of("certificates.k8s.io", "CertificateSigningRequest");
    let mut forged = request();
    let pem = String::from_utf8(STANDARD.decode(forged["spec"]["request"].as_str().unwrap()).unwrap()).unwrap();
    let block = x509_parser::pem::Pem::iter_from_buffer(pem.as_bytes()).next().unwrap().unwrap();
    let mut der = block.contents;
    // Changes a byte of the public key.
    let middle = der.len() / 2;
    der[middle] ^= 1;
    let text =
        format!("-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n", STANDARD.encode(der));
    forged["spec"]["request"] = json!(STANDARD.encode(text));
    assert_eq!(fields(&requests.create(forged).1), ["spec.request"]);
}

#[test]
fn decisions_are_made_through_approval_and_certificates_through_status() {
    let requests = Subject::of("certificates.k8s.io", "CertificateSigningRequest");
    let made = requests.created(request());
    let (same, errors) = requests.update(Endpoint::Main, &made, approved);
    assert_eq!((errors, &same["status"]), (Vec::new(), &json!({})));
    let (mut decided, errors) = requests.update(Endpoint::Other, &made, approved);
    assert_errors(errors, &[]);
    requests.strategy().set_times(&mut decided, &made, "2026-01-01T00:00:00Z");
    assert_eq!(decided["status"]["conditions"][0]["lastTransitionTime"], "2026-01-01T00:00:00Z");
    let (_, errors) = requests.update(Endpoint::Other, &decided, |object| object["status"]["conditions"] = json!([]));
    assert_errors(errors, &[r#"status.conditions: Forbidden: updates may not remove a condition of type "Approved""#]);
    let (_, errors) = requests.update(Endpoint::Status, &made, approved);
    assert_errors(errors, &[r#"status.conditions: Forbidden: updates may not add a condition of type "Approved""#]);
    let certificate = |object: &mut Value| object["status"]["certificate"] = json!(STANDARD.encode("none"));
    let (unchanged, errors) = requests.update(Endpoint::Other, &decided, certificate);
    assert_eq!((errors, unchanged["status"].get("certificate")), (Vec::new(), None));
    let (_, errors) = requests.update(Endpoint::Status, &decided, certificate);
    assert_eq!(fields(&errors), ["status.certificate"]);
}

#[test]
fn a_signer_is_a_domain_and_a_path() {
    let requests = Subject::of("certificates.k8s.io", "CertificateSigningRequest");
    let detail = |signer: &str| {
        let mut object = request();
        object["spec"]["signerName"] = json!(signer);
        requests.create(object).1.into_iter().map(|error| error.detail).collect::<Vec<_>>()
    };
    assert_eq!(detail("a.b/c.d"), [""; 0]);
    assert_eq!(detail("a/b"), ["should be a domain with at least two segments separated by dots"]);
    assert!(detail("a.B/c")[0].starts_with("validating label \"B\": a lowercase RFC 1123 label"));
    assert_eq!(detail("kubernetes.io/legacy-unknown"), ["the legacy signerName is not allowed via this API version"]);
}
