//! The kubeconfig of the administrator.

use crate::pki::Pair;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

const NAME: &str = "steersman";

/// A kubeconfig for a server at `address` with everything in it. JSON, which is YAML too.
pub(crate) fn render(address: &str, ca: &str, admin: &Pair) -> String {
    let data = |pem: &str| STANDARD.encode(pem);
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NAME, "cluster": {"server": format!("https://{address}"), "certificate-authority-data": data(ca)}}],
        "users": [{"name": "admin", "user": {"client-certificate-data": data(&admin.certificate), "client-key-data": data(&admin.key)}}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": "admin", "namespace": "default"}}],
        "current-context": NAME,
        "preferences": {},
    });
    serde_json::to_string_pretty(&config).unwrap_or_default() + "\n"
}
