//! `NamespaceLifecycle`: refuses creations in a namespace that does not exist or is being deleted, and the deletion of
//! the namespaces that the system needs.

use crate::shared::operation::ResourceAttributes;
use crate::shared::status::Failure;
use crate::write::admission::plugin::{Action, Phase, Plugin, Review, Unfinished};
use futures::future::BoxFuture;
use steersman_machinery::status::Cause;
use steersman_machinery::{GroupResource, ObjectKey, Value, value};
use steersman_storage::{Guard, GuardChange};

/// The namespaces that the system needs.
const UNDELETABLE: [&str; 3] = ["default", "kube-public", "kube-system"];

#[derive(Debug)]
pub(crate) struct NamespaceLifecycle;

impl Plugin for NamespaceLifecycle {
    fn unfinished(&self) -> Unfinished {
        Unfinished::Update
    }

    fn handles(&self, phase: Phase, action: Action, attributes: &ResourceAttributes<'_>) -> bool {
        let is_namespace = attributes.is_about("", "namespaces");
        // Access can be reviewed for any namespace, even one that does not exist.
        let is_review = attributes.is_about("authorization.k8s.io", "localsubjectaccessreviews");
        match (phase, action) {
            (Phase::Mutate, Action::Create) => !is_namespace && !is_review && attributes.namespace.is_some(),
            (Phase::Mutate, Action::Delete) => {
                is_namespace && attributes.name.is_some_and(|name| UNDELETABLE.contains(&name))
            }
            (Phase::Mutate, Action::Connect | Action::Update) | (Phase::Validate, _) => false,
        }
    }

    fn mutate<'a>(
        &'a self,
        review: &'a mut Review<'_, '_>,
        new: Option<&'a mut Value>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            if review.action == Action::Delete {
                let operation = &review.operation;
                let why = "this namespace may not be deleted";
                return Err(Failure::forbidden(&operation.group_resource(), operation.name(), why));
            }
            let name = new.as_deref().and_then(|new| value::str_at(new, &["metadata", "name"])).unwrap_or("");
            check_namespace(review, name).await
        })
    }
}

/// Refuses a creation in a namespace that does not exist or is being deleted.
async fn check_namespace(review: &mut Review<'_, '_>, name: &str) -> Result<(), Failure> {
    let Some(namespace) = review.operation.namespace() else { return Ok(()) };
    let namespaces = GroupResource::new("", "namespaces");
    let key = ObjectKey::cluster(namespace);
    let Some(found) = review.state.find(&namespaces, &key).await? else {
        return Err(Failure::not_found(&namespaces, namespace));
    };
    if !found.meta().is_deleting() {
        // The namespace's deletion may begin before the object is stored. The guard then fails the write, and this
        // check runs again.
        let (expected, change) = (Some(found.revision), GuardChange::Nothing);
        review.operation.guards.push(Guard { resource: namespaces, key, expected, change });
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let mut failure = Failure::forbidden(&review.operation.group_resource(), name, &why);
    if let Some(details) = &mut failure.status.details {
        details.causes.push(Cause {
            reason: "NamespaceTerminating".to_owned(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".to_owned(),
        });
    }
    Err(failure)
}
