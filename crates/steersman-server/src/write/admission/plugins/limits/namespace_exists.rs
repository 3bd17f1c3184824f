//! `NamespaceExists`: refuses every write in a namespace that does not exist, not only creations.

use crate::shared::operation::ResourceAttributes;
use crate::shared::status::Failure;
use crate::write::admission::plugin::{Action, Phase, Plugin, Review, Unfinished, find};
use futures::future::BoxFuture;
use steersman_machinery::{GroupResource, ObjectKey, Value};

#[derive(Debug)]
pub(crate) struct NamespaceExists;

impl Plugin for NamespaceExists {
    fn unfinished(&self) -> Unfinished {
        Unfinished::Update
    }

    fn handles(&self, phase: Phase, _action: Action, attributes: &ResourceAttributes<'_>) -> bool {
        phase == Phase::Mutate && attributes.namespace.is_some() && !attributes.is_about("", "namespaces")
    }

    fn mutate<'a>(
        &'a self,
        review: &'a mut Review<'_, '_>,
        _new: Option<&'a mut Value>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let Some(namespace) = review.operation.namespace() else { return Ok(()) };
            let namespaces = GroupResource::new("", "namespaces");
            match find(review.state, &namespaces, &ObjectKey::cluster(namespace)).await? {
                Some(_) => Ok(()),
                None => Err(Failure::not_found(&namespaces, namespace)),
            }
        })
    }
}
