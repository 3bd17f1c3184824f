//! Bootstrap tokens for nodes that join: Secrets of the type `bootstrap.kubernetes.io/token` in `kube-system`.
//!
//! [`signer`] signs the ConfigMap that nodes read before they trust the cluster, and [`cleaner`] deletes expired
//! tokens. Both are off by default, as upstream. Follows `pkg/controller/bootstrap`; this file reads the Secrets.

pub(crate) mod cleaner;
pub(crate) mod signer;

use k8s_openapi::api::core::v1::Secret;
use steersman::Scope;
use steersman::cache::Selection;
use steersman_machinery::bootstrap_token::Expiration;

const NAMESPACE: &str = "kube-system";
const NAME_PREFIX: &str = "bootstrap-token-";
const ID_BYTES: usize = 6;

/// Selects the Secrets that are bootstrap tokens.
fn selection() -> Selection {
    Selection::new(Scope::Namespace(NAMESPACE.to_owned())).fields("type=bootstrap.kubernetes.io/token")
}

fn text<'a>(secret: &'a Secret, key: &str) -> &'a str {
    let value = secret.data.as_ref().and_then(|data| data.get(key));
    value.and_then(|value| std::str::from_utf8(&value.0).ok()).unwrap_or_default()
}

fn expiration(secret: &Secret) -> Expiration {
    Expiration::parse(text(secret, "expiration"))
}
