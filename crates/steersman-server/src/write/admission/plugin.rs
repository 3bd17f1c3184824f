//! The trait of admission plugins, and the write that they are called with.

pub(crate) use crate::write::admission::action::{Action, Phase};

use crate::shared::compute::text_bytes;
use crate::shared::conversion;
use crate::shared::operation::{Operation, ResourceAttributes};
use crate::shared::request::options::Delete;
use crate::shared::status::Failure;
use crate::state::State;
use crate::write::admission::admitted_write::{AdmittedWrite, Surroundings};
use crate::write::admission::dynamic::reinvocation::Reinvocation;
use futures::future::{self, BoxFuture};
use std::fmt;
use std::sync::Arc;
use steersman_machinery::budget;
use steersman_machinery::value::str_at;
use steersman_machinery::{GroupResource, Object, ObjectKey, Value};
use steersman_storage::{At, Page, Scope};

/// A write to be admitted.
///
/// Options, user and attributes are in the operation; warnings and audit annotations are added to it.
#[derive(Debug)]
pub(crate) struct Review<'r, 'o> {
    pub(crate) action: Action,
    pub(crate) state: &'r State,
    pub(crate) operation: &'r mut Operation<'o>,
    /// The current object; `None` for a creation.
    pub(crate) old: Option<&'r Value>,
    pub(crate) deletion: Option<&'r Delete>,
    /// The rounds of mutation.
    pub(crate) reinvocation: Reinvocation,
}

impl<'r, 'o> Review<'r, 'o> {
    pub(crate) fn new(
        action: Action,
        state: &'r State,
        operation: &'r mut Operation<'o>,
        old: Option<&'r Value>,
    ) -> Review<'r, 'o> {
        Review { action, state, operation, old, deletion: None, reinvocation: Reinvocation::default() }
    }

    /// The write as webhooks and policies see it.
    ///
    /// # Errors
    /// When its namespace cannot be read.
    pub(crate) async fn admitted_write<'a>(
        &'a self,
        phase: Phase,
        new: Option<&'a Value>,
    ) -> Result<AdmittedWrite<'a>, Failure> {
        let operation: &'a Operation<'a> = &*self.operation;
        let namespace = match operation.attributes.namespace {
            Some(name) => self.state.find(&GroupResource::new("", "namespaces"), &ObjectKey::cluster(name)).await?,
            None => None,
        };
        let (old, deletion) = (self.old, self.deletion);
        Ok(AdmittedWrite::new(
            self.action,
            phase,
            operation,
            new,
            old,
            Surroundings { deletion, namespace, catalog: self.state.catalog() },
        ))
    }

    /// The review of a deletion, with its options.
    #[must_use]
    pub(crate) fn with_deletion(self, options: &'r Delete) -> Review<'r, 'o> {
        Review { deletion: Some(options), ..self }
    }
}

/// How a plugin sees an update of an object that is still being created, because it waits for initializers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Unfinished {
    /// As a creation of the new state: an initializer may add whatever the creator could have set.
    Creation,
    /// As a creation with the old object: the plugin acts on the difference.
    Growth,
    /// As an update.
    Update,
}

impl Unfinished {
    /// The action, and the old object.
    pub(super) fn shown(self, old: Option<&Value>) -> (Action, Option<&Value>) {
        match self {
            Unfinished::Creation => (Action::Create, None),
            Unfinished::Growth => (Action::Create, old),
            Unfinished::Update => (Action::Update, old),
        }
    }
}

/// One admission plugin.
pub(crate) trait Plugin: fmt::Debug + Send + Sync {
    /// Whether the plugin handles such writes. Must be cheap.
    fn handles(&self, phase: Phase, action: Action, attributes: &ResourceAttributes<'_>) -> bool;

    /// Whether anything that is registered with the server may make the plugin act on such writes; only for plugins
    /// that act for others. Called after [`Plugin::handles`]; must be as cheap.
    fn has_registered(&self, state: &State, action: Action, attributes: &ResourceAttributes<'_>) -> bool {
        let _ = (state, action, attributes);
        true
    }

    /// How the plugin sees an update of an object that waits for initializers. Most rules are about creations and about
    /// fields that an update may not change, so as an update they would not check what an initializer adds.
    fn unfinished(&self) -> Unfinished {
        Unfinished::Creation
    }

    /// Changes or refuses the new object. A deletion has no new object.
    ///
    /// # Errors
    /// With the answer for the client.
    fn mutate<'a>(
        &'a self,
        review: &'a mut Review<'_, '_>,
        new: Option<&'a mut Value>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        let _ = (review, new);
        Box::pin(future::ready(Ok(())))
    }

    /// Refuses a write that is not allowed.
    ///
    /// # Errors
    /// With the answer for the client.
    fn validate<'a>(
        &'a self,
        review: &'a mut Review<'_, '_>,
        new: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        let _ = (review, new);
        Box::pin(future::ready(Ok(())))
    }
}

/// Whether a write is about a pod itself, not about one of its subresources.
pub(super) fn is_about_pod(attributes: &ResourceAttributes<'_>) -> bool {
    attributes.is_about("", "pods") && attributes.subresource.is_none()
}

/// The cached objects of a resource in the namespace of a write. They are charged to the request before they are parsed.
///
/// # Errors
/// When they cannot be read, or need more than the request may.
pub(super) async fn objects_of(review: &Review<'_, '_>, resource: &GroupResource) -> Result<Vec<Value>, Failure> {
    let operation = &*review.operation;
    let Some(namespace) = operation.namespace() else { return Ok(Vec::new()) };
    let too_many = |error: budget::Error| {
        let what = format!("the {} of the namespace {namespace:?}", resource.resource);
        Failure::of_reading(&what, "delete some of them, or make them smaller", &error)
    };
    // The new object of the request is another tree.
    let trees = operation.budget.renewed();
    let mut parsed = Vec::new();
    for object in announced_in(review, namespace, resource, Page::ALL).await? {
        conversion::charge_reading(&object, &operation.budget).map_err(too_many)?;
        let tree = conversion::parse(&object)?;
        trees.copy(&tree).map_err(too_many)?;
        parsed.push(tree);
    }
    Ok(parsed)
}

/// The cached objects of a resource in a namespace. The request continues on another thread if parsing them takes long.
///
/// # Errors
/// When the store cannot be read.
pub(super) async fn announced_in(
    review: &Review<'_, '_>,
    namespace: &str,
    resource: &GroupResource,
    page: Page<'_>,
) -> Result<Vec<Arc<Object>>, Failure> {
    let store = &review.state.store;
    if store.count(resource) == 0 {
        return Ok(Vec::new());
    }
    let found = store.list(resource, &Scope::Namespace(namespace.into()), At::Latest, page);
    let found = found.map_err(|error| Failure::of_read(&error))?.objects;
    review.operation.load.expect(found.iter().map(|object| text_bytes(object.json())).sum()).await;
    Ok(found)
}

/// The current state of an object.
///
/// # Errors
/// When the store cannot be read.
pub(super) async fn find(state: &State, resource: &GroupResource, key: &ObjectKey) -> Result<Option<Value>, Failure> {
    let found = state.find(resource, key).await?;
    found.map(|object| conversion::parse(&object)).transpose()
}

/// The name of the object in the denials of policies and webhooks.
pub(crate) fn refused_name<'a>(review: &'a Review<'_, '_>, new: Option<&'a Value>) -> &'a str {
    let name = written_name(review, new);
    if name.is_empty() || review.operation.is_of_collection { "Unknown" } else { name }
}

/// The refusal of a write, which names its object.
pub(super) fn forbidden(review: &Review<'_, '_>, new: Option<&Value>, why: &str) -> Failure {
    Failure::forbidden(&review.operation.group_resource(), written_name(review, new), why)
}

/// The name in the path, or else that of the new object.
fn written_name<'a>(review: &'a Review<'_, '_>, new: Option<&'a Value>) -> &'a str {
    match review.operation.name() {
        "" => new.map(name_of).unwrap_or_default(),
        name => name,
    }
}

/// The name of an object in denials: its name, or else its `generateName`.
pub(super) fn name_of(object: &Value) -> &str {
    let text = |key| str_at(object, &["metadata", key]).filter(|text| !text.is_empty());
    text("name").or(text("generateName")).unwrap_or_default()
}
