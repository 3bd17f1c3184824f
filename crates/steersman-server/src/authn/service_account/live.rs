//! Whether the objects that a token is bound to are still there: the same ones, not others under their names.
//!
//! Looked up in the store's cache; the caller has waited until that is as new as the request.

use crate::authn::service_account::LEEWAY_SECONDS;
use crate::authn::service_account::claims::{self, Bound, Claims, LegacyClaims};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use steersman_machinery::time as times;
use steersman_machinery::value::str_at;
use steersman_machinery::{GroupResource, Object, ObjectKey, Value};
use steersman_storage::Store;

const INVALIDATED: &str = "service account token has been invalidated";

/// Checks the times of a token and what it is bound to.
///
/// # Errors
/// With the reason why it is not good.
pub(super) fn check(store: &Store, claims: &Claims, now: Timestamp) -> Result<(), String> {
    let second = now.as_second();
    if claims.exp.is_none_or(|end| end < second - LEEWAY_SECONDS) {
        return Err("service account token has expired".to_owned());
    }
    if claims.nbf.is_some_and(|begin| second + LEEWAY_SECONDS < begin) {
        return Err("service account token is not valid yet".to_owned());
    }
    if claims.iat.is_some_and(|issued| second + LEEWAY_SECONDS < issued) {
        return Err("service account token is issued in the future".to_owned());
    }
    let of = &claims.kubernetes;
    check_account(store, &of.namespace, &of.serviceaccount, now)?;
    let namespaced = |name: &str| ObjectKey::namespaced(&*of.namespace, name);
    if let Some(secret) = &of.secret {
        check_bound(
            find(store, "secrets", &namespaced(&secret.name)),
            "secret",
            "service account secret",
            secret,
            now,
        )?;
    }
    if let Some(pod) = &of.pod {
        check_bound(find(store, "pods", &namespaced(&pod.name)), "pod", "service account pod", pod, now)?;
    }
    // With a pod, the node is only mentioned: it is the pod that the token is bound to.
    if let (Some(node), None) = (&of.node, &of.pod) {
        check_bound(find(store, "nodes", &ObjectKey::cluster(&*node.name)), "node", "service account node", node, now)?;
    }
    Ok(())
}

/// Checks that a token from a Secret is still the one in it.
///
/// # Errors
/// With the reason why it is not good.
pub(super) fn check_legacy(
    store: &Store,
    claims: &LegacyClaims,
    token: &str,
    found_at: &AtomicU64,
    now: Timestamp,
) -> Result<(), String> {
    let account = Bound { name: claims.account.clone(), uid: claims.account_uid.clone() };
    check_account(store, &claims.namespace, &account, now)?;
    let secret = find(store, "secrets", &ObjectKey::namespaced(&*claims.namespace, &*claims.secret));
    let secret = secret.filter(|secret| !secret.meta().is_deleting()).ok_or(INVALIDATED)?;
    // A Secret is parsed once for each of its versions.
    if found_at.load(Ordering::Relaxed) == secret.revision.0 {
        return Ok(());
    }
    let value: Value = serde_json::from_slice(secret.json()).map_err(|error| error.to_string())?;
    let stored = str_at(&value, &["data", "token"]).and_then(|text| STANDARD.decode(text).ok()).unwrap_or_default();
    if stored != token.as_bytes() {
        return Err("service account token does not match server's copy".to_owned());
    }
    found_at.store(secret.revision.0, Ordering::Relaxed);
    Ok(())
}

/// Checks what a token from a Secret says.
///
/// # Errors
/// With what is missing or does not go together.
pub(super) fn check_form_of_legacy(claims: &LegacyClaims) -> Result<(), String> {
    let LegacyClaims { iss: _, namespace, secret, account, account_uid, sub } = claims;
    let parts = [
        ("namespace", namespace),
        ("secret name", secret),
        ("service account name", account),
        ("service account UID", account_uid),
    ];
    if let Some((missing, _)) = parts.into_iter().find(|(_, value)| value.is_empty()) {
        return Err(format!("its claim of the {missing} is missing"));
    }
    let name = claims::username(namespace, account);
    if *sub == name { Ok(()) } else { Err(format!("its subject {sub:?} is not its account {name:?}")) }
}

fn check_account(store: &Store, namespace: &str, account: &Bound, now: Timestamp) -> Result<(), String> {
    let Bound { name, uid } = account;
    let found = find(store, "serviceaccounts", &ObjectKey::namespaced(namespace, &**name));
    let found = found.ok_or_else(|| format!("serviceaccounts {name:?} not found"))?;
    if is_over(&found, now) {
        return Err(format!("service account {namespace}/{name} has been deleted"));
    }
    let live = found.meta().uid();
    if live == uid {
        return Ok(());
    }
    Err(format!("service account UID ({live}) does not match claim ({uid})"))
}

fn check_bound(
    found: Option<Arc<Object>>,
    kind: &str,
    claim: &str,
    bound: &Bound,
    now: Timestamp,
) -> Result<(), String> {
    let found = found.filter(|found| !is_over(found, now)).ok_or(INVALIDATED)?;
    let live = found.meta().uid();
    if live == bound.uid {
        return Ok(());
    }
    Err(format!("{kind} UID ({live}) does not match {claim} ref claim ({})", bound.uid))
}

/// Whether an object has been under deletion for longer than clocks differ. A pod that ends goes on using its token.
fn is_over(object: &Object, now: Timestamp) -> bool {
    let deletion = object.meta().deletion_timestamp();
    let since = deletion.and_then(times::parse);
    since.is_some_and(|since| since.as_second() < now.as_second() - LEEWAY_SECONDS)
}

fn find(store: &Store, resource: &str, key: &ObjectKey) -> Option<Arc<Object>> {
    store.get_cached(&GroupResource::new("", resource), key)
}
