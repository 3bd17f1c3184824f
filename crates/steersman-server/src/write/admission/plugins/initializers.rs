//! `Initializers`: sets the initializers of a new object in its metadata, and checks updates until they are done.
//! Follows apiserver's `admission/plugin/initialization` of Kubernetes 1.13.
//!
//! Some objects are never initialized: those that the server itself creates, since it would wait for itself; those that
//! decide about admission or define kinds, since they take effect when their write is answered; mirror pods, since
//! their containers run already; and Events, one of which reports that an object waits for an initializer.

use crate::access::authz::{self, Attributes};
use crate::access::pod_references;
use crate::shared::operation::{Operation, ResourceAttributes};
use crate::shared::status::Failure;
use crate::state::State;
use crate::write::admission::plugin::{Action, Phase, Plugin, Review, Unfinished, name_of};
use crate::write::initializers::{Configured, field};
use futures::future::BoxFuture;
use steersman_kinds::catalog::Handling;
use steersman_machinery::Value;
use steersman_machinery::field::{Error, Path};

/// The verb for creating objects with chosen initializers, or without any, and for changing objects that are not
/// initialized.
const INITIALIZE: &str = "initialize";
/// Groups and resources that are never initialized; an empty resource matches the whole group.
const EXEMPT: [(&str, &str); 5] = [
    ("", "events"),
    ("admissionregistration.k8s.io", ""),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("apiregistration.k8s.io", "apiservices"),
    ("events.k8s.io", "events"),
];

#[derive(Debug)]
pub(crate) struct Initializers;

impl Plugin for Initializers {
    fn unfinished(&self) -> Unfinished {
        Unfinished::Update
    }

    fn handles(&self, phase: Phase, action: Action, attributes: &ResourceAttributes<'_>) -> bool {
        let is_write = matches!(action, Action::Create | Action::Update);
        phase == Phase::Mutate && is_write && attributes.subresource.is_none()
    }

    fn mutate<'a>(
        &'a self,
        review: &'a mut Review<'_, '_>,
        new: Option<&'a mut Value>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let (Some(object), Some(configured)) = (new, &review.state.initializers) else { return Ok(()) };
            let is_second = review.reinvocation.is_second();
            let Review { state, operation, .. } = review;
            match review.old {
                // The initializers were set in the first round, not by the client.
                None if is_second => Ok(()),
                None => create(state, configured, operation, object).await,
                Some(old) => update(state, configured, operation, object, old).await,
            }
        })
    }
}

/// Sets the initializers of a new object.
async fn create(
    state: &State,
    configured: &Configured,
    operation: &mut Operation<'_>,
    object: &mut Value,
) -> Result<(), Failure> {
    let is_given = field::is_given(object);
    if is_exempt(operation) {
        let why = "objects of this kind are never initialized";
        let faults = is_given.then(|| Error::forbidden(&Path::new("metadata.initializers"), why));
        return operation.refuse(name_of(object), faults.as_slice());
    }
    if is_given {
        authorize(state, operation, object, "create with initializers denied").await?;
        operation.refuse(name_of(object), &field::validate_create(object))?;
        field::normalize(object);
    } else {
        let is_mirror = operation.attributes.is_about("", "pods") && pod_references::is_mirror(object);
        let asked = field::asked(object);
        let names = if is_mirror { Vec::new() } else { configured.names_for(&operation.attributes, &asked) };
        for name in asked.iter().filter(|name| !is_mirror && !names.iter().any(|one| **one == ***name)) {
            operation.warn(format!("metadata.annotations: no InitializerConfiguration names {name}: it does not run"));
        }
        if names.is_empty() {
            return Ok(());
        }
        field::set_pending(object, &names);
    }
    field::set_turn(object, None, configured, operation.now);
    Ok(())
}

/// Checks a change of an object that is or was not initialized.
async fn update(
    state: &State,
    configured: &Configured,
    operation: &mut Operation<'_>,
    new: &mut Value,
    old: &Value,
) -> Result<(), Failure> {
    // A manifest with an empty list can be applied again without a change.
    field::normalize(new);
    if !field::is_given(new) && !field::is_given(old) {
        return Ok(());
    }
    operation.refuse(operation.name(), &field::validate_update(new, old))?;
    authorize(state, operation, new, "update to uninitialized resource denied").await?;
    field::set_turn(new, Some(old), configured, operation.now);
    Ok(())
}

fn is_exempt(operation: &Operation<'_>) -> bool {
    let attributes = &operation.attributes;
    let is_exempt = |(group, resource): &(&str, &str)| {
        attributes.group == *group && (resource.is_empty() || attributes.resource == *resource)
    };
    operation.is_of_system() || operation.strategy().handling() != Handling::Stored || EXEMPT.iter().any(is_exempt)
}

/// Refuses users without the verb `initialize`.
async fn authorize(state: &State, operation: &Operation<'_>, object: &Value, what: &str) -> Result<(), Failure> {
    let name = Some(name_of(object)).filter(|name| !name.is_empty());
    let attributes = ResourceAttributes { verb: INITIALIZE, name, ..operation.attributes };
    let asked = authz::authorize(&*state.authorizer, operation.user, &Attributes::Resource(attributes)).await;
    asked.map_err(|failure| {
        if failure.code() != 403 {
            return failure;
        }
        let why = format!("{what}: {}", failure.status.message);
        Failure::forbidden(&operation.group_resource(), name.unwrap_or_default(), &why)
    })
}
