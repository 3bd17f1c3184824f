//! Checks that the objects that a token is bound to still exist, with the same uids.
//!
//! They are read from the store's cache; the caller has waited until that is as new as the request.

use crate::access::authn::service_account::LEEWAY_SECONDS;
use crate::access::authn::service_account::claims::{Bound, Claims};
use jiff::Timestamp;
use std::sync::Arc;
use steersman_machinery::time as times;
use steersman_machinery::{GroupResource, Object, ObjectKey};
use steersman_storage::Store;

pub(super) const INVALIDATED: &str = "service account token has been invalidated";

/// Checks the times of a token and the objects that it is bound to.
///
/// # Errors
/// With the reason why it is not valid.
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
    // With a pod, the node is only informational: the token is bound to the pod.
    if let (Some(node), None) = (&of.node, &of.pod) {
        check_bound(find(store, "nodes", &ObjectKey::cluster(&*node.name)), "node", "service account node", node, now)?;
    }
    Ok(())
}

/// The account of a token.
///
/// # Errors
/// When it is deleted, or has been replaced by another one.
pub(super) fn check_account(
    store: &Store,
    namespace: &str,
    account: &Bound,
    now: Timestamp,
) -> Result<Arc<Object>, String> {
    let Bound { name, uid } = account;
    let found = find(store, "serviceaccounts", &ObjectKey::namespaced(namespace, &**name));
    let found = found.ok_or_else(|| format!("serviceaccounts {name:?} not found"))?;
    if is_over(&found, now) {
        return Err(format!("service account {namespace}/{name} has been deleted"));
    }
    let live = found.meta().uid();
    if live == uid {
        return Ok(found);
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

/// Whether an object has been in deletion for longer than the allowed clock difference. A terminating pod still uses
/// its token.
fn is_over(object: &Object, now: Timestamp) -> bool {
    let deletion = object.meta().deletion_timestamp();
    let since = deletion.and_then(times::parse);
    since.is_some_and(|since| since.as_second() < now.as_second() - LEEWAY_SECONDS)
}

pub(super) fn find(store: &Store, resource: &str, key: &ObjectKey) -> Option<Arc<Object>> {
    store.get_cached(&GroupResource::new("", resource), key)
}
