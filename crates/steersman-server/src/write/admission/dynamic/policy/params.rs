//! The parameters that a binding selects for a policy.

use crate::shared::compute::{REQUIREMENT_BYTES, text_bytes};
use crate::shared::conversion;
use crate::shared::operation::Operation;
use crate::shared::status::Failure;
use crate::state::State;
use crate::write::admission::dynamic::policy::definition::{Binding, Definition, ParamKind, ParamRef, Which};
use std::sync::Arc;
use steersman_kinds::catalog::{ResourceScope, Served};
use steersman_machinery::budget::{self, Budget};
use steersman_machinery::{Object, ObjectKey, Value};
use steersman_storage::{At, Page, Scope};

/// The resource of the parameters' kind.
///
/// # Errors
/// When no resource of that kind is served.
pub(in crate::write::admission) fn resource(state: &State, kind: &ParamKind) -> Result<Served, String> {
    let catalog = state.catalog();
    let served = catalog.resources(&kind.version.group, &kind.version.version);
    let found = served.iter().find(|served| *served.resource.kind == *kind.kind);
    found.cloned().ok_or_else(|| format!("failed to find resource referenced by paramKind: '{kind}'"))
}

/// Why there are no parameters.
#[derive(Debug)]
pub(in crate::write::admission) enum Error {
    /// The request needs too much for them, or was canceled. No policy can ignore that.
    Budget(budget::Error),
    /// The policy cannot be used with this binding: upstream's message.
    Unusable(String),
}

/// The parameters that a binding gives to a policy for a write; null if the policy has none. Their trees are charged to
/// `trees`, and everything else to the budget of the request.
///
/// They are read from the store, because a cache may lag behind writes that were made before the request.
///
/// # Errors
/// When they cannot be read, or need more than the request may.
pub(in crate::write::admission) async fn collect(
    state: &State,
    definition: &Definition,
    served: Option<&Served>,
    binding: &Binding,
    operation: &Operation<'_>,
    trees: &Budget,
) -> Result<Vec<Value>, Error> {
    let (Some(_), Some(served), Some(reference)) = (&definition.param_kind, served, &binding.params) else {
        return Ok(vec![Value::Null]);
    };
    let unusable = |why: &str| Error::Unusable(why.to_owned());
    let is_namespaced = served.resource.scope == ResourceScope::Namespaced;
    let namespace = match (is_namespaced, &reference.namespace) {
        (false, Some(_)) => {
            return Err(unusable("paramRef.namespace must not be provided for a cluster-scoped `paramKind`"));
        }
        (false, None) => None,
        (true, Some(given)) => Some(&**given),
        (true, None) => Some(operation.attributes.namespace.ok_or_else(|| {
            unusable("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
        })?),
    };
    let objects = find(state, served, reference, namespace, operation).await?;
    if objects.is_empty() && reference.must_exist {
        return Err(unusable("no params found for policy binding with `Deny` parameterNotFoundAction"));
    }
    operation.load.expect(objects.iter().map(|object| text_bytes(object.json())).sum()).await;
    conversion::read_within(served, &objects, &operation.budget, trees).await.map_err(|error| match error {
        conversion::ReadError::Budget(error) => Error::Budget(error),
        conversion::ReadError::Failed(failure) => Error::of(&failure),
    })
}

async fn find(
    state: &State,
    served: &Served,
    reference: &ParamRef,
    namespace: Option<&str>,
    operation: &Operation<'_>,
) -> Result<Vec<Arc<Object>>, Error> {
    let storage = &served.resource.storage;
    match &reference.which {
        Which::Named(name) => {
            let key = match namespace {
                Some(namespace) => ObjectKey::namespaced(namespace, &**name),
                None => ObjectKey::cluster(&**name),
            };
            let found = state.get(storage, &key).await.map_err(|failure| Error::of(&failure))?;
            Ok(found.into_iter().collect())
        }
        Which::Selected(labels) => {
            let labels =
                labels.as_ref().ok_or_else(|| Error::Unusable("paramRef.selector cannot be read".to_owned()))?;
            state.sync().await.map_err(|failure| Error::of(&failure))?;
            let scope = namespace.map_or(Scope::All, |namespace| Scope::Namespace(namespace.into()));
            let found = state.store.list(storage, &scope, At::Latest, Page::ALL);
            let mut objects = found.map_err(|error| Error::Unusable(error.to_string()))?.objects;
            operation.load.expect_work(objects.len().saturating_mul(REQUIREMENT_BYTES)).await;
            let passed = |object: &Object| 1 + labels.requirements().len() + object.meta().n_labels();
            operation.budget.work(objects.iter().map(|object| passed(object)).sum()).map_err(Error::Budget)?;
            objects.retain(|object| labels.matches_sorted(object.meta().labels()));
            Ok(objects)
        }
    }
}

impl Error {
    fn of(failure: &Failure) -> Error {
        Error::Unusable(failure.status.message.clone())
    }
}
