//! The audiences of tokens that a node may request for its pods: those in the pod's volumes, and those that a role
//! allows.

use crate::access::authz::{self, Attributes, ResourceAttributes};
use crate::access::pod_references::{self, items};
use crate::shared::status::Failure;
use crate::write::admission::plugin::{Review, find};
use crate::write::admission::plugins::limits::node_restriction::Refusal;
use steersman_machinery::value::{at, str_at};
use steersman_machinery::{GroupResource, ObjectKey, Value};

/// The verb on an audience that allows a node to request tokens for it.
const VERB: &str = "request-serviceaccounts-token-audience";

pub(super) async fn check(review: &Review<'_, '_>, pod: &Value, asked: &[&str]) -> Result<(), Refusal> {
    let audience = match asked {
        [] => "",
        [one] => one,
        _ => return Err("node may only request 0 or 1 audiences".into()),
    };
    for volume in items(pod, &["spec", "volumes"]) {
        if is_named(review, pod, volume, audience).await? {
            return Ok(());
        }
    }
    let operation = &review.operation;
    let attributes = ResourceAttributes {
        verb: VERB,
        version: "v1",
        resource: audience,
        namespace: operation.namespace(),
        name: Some(operation.name()).filter(|name| !name.is_empty()),
        ..ResourceAttributes::default()
    };
    let verdict = authz::verdict(&*review.state.authorizer, operation.user, &Attributes::Resource(attributes)).await;
    if verdict.is_allowed() {
        return Ok(());
    }
    let user = &operation.user.name;
    let why = format!("audience {audience:?} not found in pod spec volume, ");
    Err(Refusal::Forbidden(match verdict.error {
        Some(error) => format!("{why}error authorizing {user} to request tokens for this audience: {error}"),
        None => format!("{why}{user} is not authorized to request tokens for this audience"),
    }))
}

/// Whether a volume of a pod needs tokens for an audience.
async fn is_named(review: &Review<'_, '_>, pod: &Value, volume: &Value, audience: &str) -> Result<bool, Failure> {
    let is_it = |token: &Value| str_at(token, &["audience"]).unwrap_or_default() == audience;
    let projected = items(volume, &["projected", "sources"]);
    let mut tokens =
        projected.filter_map(|source| at(source, &["serviceAccountToken"]).filter(|token| !token.is_null()));
    if tokens.any(is_it) {
        return Ok(true);
    }
    let driver = match pod_references::claim_of(pod, volume) {
        Some(claim) => driver_of_claim(review, &claim).await?,
        None => str_at(volume, &["csi", "driver"]).map(str::to_owned),
    };
    let Some(driver) = driver.filter(|driver| !driver.is_empty()) else { return Ok(false) };
    let drivers = GroupResource::new("storage.k8s.io", "csidrivers");
    let found = find(review.state, &drivers, &ObjectKey::cluster(driver)).await?;
    Ok(found.is_some_and(|driver| items(&driver, &["spec", "tokenRequests"]).any(is_it)))
}

/// The driver of the volume that a claim is bound to.
async fn driver_of_claim(review: &Review<'_, '_>, claim: &str) -> Result<Option<String>, Failure> {
    let namespace = review.operation.namespace().unwrap_or_default();
    let claims = GroupResource::new("", "persistentvolumeclaims");
    let Some(claim) = find(review.state, &claims, &ObjectKey::namespaced(namespace, claim)).await? else {
        return Ok(None);
    };
    let Some(volume) = str_at(&claim, &["spec", "volumeName"]).filter(|name| !name.is_empty()) else { return Ok(None) };
    let volumes = GroupResource::new("", "persistentvolumes");
    let found = find(review.state, &volumes, &ObjectKey::cluster(volume)).await?;
    Ok(found.and_then(|volume| str_at(&volume, &["spec", "csi", "driver"]).map(str::to_owned)))
}
