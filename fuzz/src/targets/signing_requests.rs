//! Certificate signing requests (PKCS #10): DER, or a PEM text. What somebody else's key signed is nobody's request.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use std::sync::LazyLock;
use steersman_machinery::Value;
use steersman_server::fuzzing::signing_request;

/// The one request that was signed, whose key is nowhere.
static SIGNED: LazyLock<Vec<u8>> =
    LazyLock::new(|| signing_request(&object(include_bytes!("../../seeds/request.pem"))).expect("the seed is signed"));

pub fn run(data: &[u8]) {
    let pem = format!("-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n", STANDARD.encode(data));
    for object in [object(data), object(pem.as_bytes())] {
        if let Some(signed) = signing_request(&object) {
            assert_eq!(signed, *SIGNED, "only that was signed");
        }
    }
}

fn object(pem: &[u8]) -> Value {
    json!({"spec": {"request": STANDARD.encode(pem)}})
}
