//! `OwnerReferencesPermissionEnforcement`: changing the owners of an object requires permission to delete it, and
//! blocking the deletion of an owner requires permission to set its finalizers. Follows kubernetes'
//! `plugin/pkg/admission/gc`.

use crate::access::authz::{self, Attributes, ResourceAttributes, Verdict};
use crate::access::pod_references::items;
use crate::shared::status::Failure;
use crate::write::admission::plugin::{Action, Phase, Plugin, Review, Unfinished, forbidden};
use futures::future::BoxFuture;
use steersman_kinds::catalog::{ResourceScope, Served};
use steersman_machinery::Value;
use steersman_machinery::value::{at, str_at};

const OWNERS: [&str; 2] = ["metadata", "ownerReferences"];

#[derive(Debug)]
pub(crate) struct OwnerReferences;

impl Plugin for OwnerReferences {
    fn unfinished(&self) -> Unfinished {
        Unfinished::Update
    }

    fn handles(&self, phase: Phase, action: Action, attributes: &ResourceAttributes<'_>) -> bool {
        // A write of a pod's status does not change the owners.
        let is_pod_status = attributes.is_about("", "pods") && attributes.subresource == Some("status");
        phase == Phase::Validate && action != Action::Delete && !is_pod_status
    }

    fn validate<'a>(
        &'a self,
        review: &'a mut Review<'_, '_>,
        new: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let Some(object) = new.filter(|object| is_changed(object, review.old)) else { return Ok(()) };
            if review.action == Action::Update {
                check_deletion(review, object).await?;
            }
            check_blocked(review, object).await
        })
    }
}

/// Whether the owners have changed.
fn is_changed(object: &Value, old: Option<&Value>) -> bool {
    !items(object, &OWNERS).eq(old.into_iter().flat_map(|old| items(old, &OWNERS)))
}

/// Changing the owners requires permission to delete the object, because the deletion of a new owner would delete it.
async fn check_deletion(review: &Review<'_, '_>, object: &Value) -> Result<(), Failure> {
    let asked = ResourceAttributes {
        verb: "delete",
        field_selector: None,
        label_selector: None,
        ..review.operation.attributes
    };
    let verdict = ask(review, asked).await;
    if verdict.is_allowed() {
        return Ok(());
    }
    let why = format!("cannot set an ownerRef on a resource you can't delete: {}", because(&verdict));
    Err(forbidden(review, Some(object), &why))
}

/// Blocking the deletion of an owner requires permission to set finalizers on the owner.
async fn check_blocked(review: &Review<'_, '_>, object: &Value) -> Result<(), Failure> {
    let blocked = newly_blocked(object, review.old);
    if blocked.is_empty() {
        return Ok(());
    }
    let all = ResourceAttributes {
        verb: "update",
        group: "*",
        version: "*",
        resource: "*",
        subresource: Some("finalizers"),
        name: Some("*"),
        ..ResourceAttributes::default()
    };
    if ask(review, all).await.is_allowed() {
        return Ok(());
    }
    let catalog = review.state.catalog();
    for owner in blocked {
        let text = |key| str_at(owner, &[key]).unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let served = catalog.resources(group, version).iter();
        let found: Vec<&Served> = served.filter(|served| *served.resource.kind == *kind).collect();
        if found.is_empty() {
            let why = format!(
                "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {api_version} Kind {kind}: no matches for kind {kind:?} in version {api_version:?}"
            );
            return Err(forbidden(review, Some(object), &why));
        }
        for served in found {
            let is_namespaced = served.resource.scope == ResourceScope::Namespaced;
            let asked = ResourceAttributes {
                verb: "update",
                group,
                version,
                resource: &served.resource.plural,
                subresource: Some("finalizers"),
                // A namespaced owner is in the namespace of the object.
                namespace: review.operation.namespace().filter(|_| is_namespaced),
                name: Some(text("name")),
                ..ResourceAttributes::default()
            };
            let verdict = ask(review, asked).await;
            if !verdict.is_allowed() {
                let why = format!(
                    "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: {}",
                    because(&verdict)
                );
                return Err(forbidden(review, Some(object), &why));
            }
        }
    }
    Ok(())
}

/// The owners whose deletion the object blocks, and did not block before.
fn newly_blocked<'a>(object: &'a Value, old: Option<&Value>) -> Vec<&'a Value> {
    let is_blocking = |owner: &Value| at(owner, &["blockOwnerDeletion"]) == Some(&Value::Bool(true));
    let is_same = |owner: &Value, other: &Value| str_at(owner, &["uid"]) == str_at(other, &["uid"]);
    let was_blocking = |owner: &Value| {
        let mut before = old.into_iter().flat_map(|old| items(old, &OWNERS));
        before.any(|other| is_same(owner, other) && is_blocking(other))
    };
    items(object, &OWNERS).filter(|owner| is_blocking(owner) && !was_blocking(owner)).collect()
}

async fn ask(review: &Review<'_, '_>, asked: ResourceAttributes<'_>) -> Verdict {
    authz::verdict(&*review.state.authorizer, review.operation.user, &Attributes::Resource(asked)).await
}

/// The reason and the error, as upstream prints them.
fn because(verdict: &Verdict) -> String {
    format!("{}, {}", verdict.reason, verdict.error.as_deref().unwrap_or("<nil>"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn owned(owners: Value) -> Value {
        json!({"metadata": {"ownerReferences": owners}})
    }

    #[test]
    fn only_an_owner_that_was_not_blocked_before_counts() {
        let blocking = json!([{"uid": "a", "blockOwnerDeletion": true}]);
        let (new, free) = (owned(blocking.clone()), owned(json!([{"uid": "a"}])));
        assert_eq!(newly_blocked(&new, None).len(), 1);
        assert_eq!(newly_blocked(&new, Some(&free)).len(), 1);
        assert!(newly_blocked(&new, Some(&new)).is_empty());
        assert!(newly_blocked(&free, None).is_empty());
        assert!(is_changed(&new, Some(&free)) && !is_changed(&new, Some(&new)));
        assert!(!is_changed(&json!({"metadata": {}}), None));
    }
}
