//! `PersistentVolumeClaimResize`: a claim can request more storage only if it is bound and its class allows expansion.
//! Follows kubernetes' `plugin/pkg/admission/storage/persistentvolume/resize`.

use crate::shared::operation::ResourceAttributes;
use crate::shared::status::Failure;
use crate::write::admission::plugin::{Action, Phase, Plugin, Review, find, forbidden};
use futures::future::BoxFuture;
use steersman_machinery::quantity::Quantity;
use steersman_machinery::value::{at, str_at};
use steersman_machinery::{GroupResource, ObjectKey, Value};

#[derive(Debug)]
pub(crate) struct ClaimResize;

impl Plugin for ClaimResize {
    fn handles(&self, phase: Phase, action: Action, attributes: &ResourceAttributes<'_>) -> bool {
        let is_change = phase == Phase::Validate && action == Action::Update && attributes.subresource.is_none();
        is_change && attributes.is_about("", "persistentvolumeclaims")
    }

    fn validate<'a>(
        &'a self,
        review: &'a mut Review<'_, '_>,
        new: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let (Some(claim), Some(old)) = (new, review.old) else { return Ok(()) };
            if size(claim) <= size(old) {
                return Ok(());
            }
            if str_at(old, &["status", "phase"]) != Some("Bound") {
                return Err(forbidden(review, Some(claim), "Only bound persistent volume claims can be expanded"));
            }
            let name = class(claim).filter(|name| !name.is_empty() && class(old) == Some(name));
            let classes = GroupResource::new("storage.k8s.io", "storageclasses");
            let class = match name {
                Some(name) => find(review.state, &classes, &ObjectKey::cluster(name)).await?,
                None => None,
            };
            if class.is_some_and(|class| at(&class, &["allowVolumeExpansion"]) == Some(&Value::Bool(true))) {
                return Ok(());
            }
            let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize";
            Err(forbidden(review, Some(claim), why))
        })
    }
}

fn size(claim: &Value) -> Quantity {
    let text = str_at(claim, &["spec", "resources", "requests", "storage"]);
    text.and_then(|text| Quantity::parse(text).ok()).unwrap_or(Quantity::ZERO)
}

fn class(claim: &Value) -> Option<&str> {
    let annotated = str_at(claim, &["metadata", "annotations", "volume.beta.kubernetes.io/storage-class"]);
    annotated.or(str_at(claim, &["spec", "storageClassName"]))
}
