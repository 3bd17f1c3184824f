//! The parameters that a binding selects for a policy.

use crate::shared::conversion;
use crate::state::State;
use crate::write::admission::dynamic::policy::definition::{Binding, Definition, ParamKind, ParamRef, Which};
use std::sync::Arc;
use steersman_kinds::catalog::{ResourceScope, Served};
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

/// The parameters that a binding gives to a policy for a write in a namespace; null if the policy has none.
///
/// They are read from the store, because a cache may lag behind writes that were made before the request.
///
/// # Errors
/// With upstream's message.
pub(in crate::write::admission) async fn collect(
    state: &State,
    definition: &Definition,
    served: Option<&Served>,
    binding: &Binding,
    namespace: Option<&str>,
) -> Result<Vec<Value>, String> {
    let (Some(_), Some(served), Some(reference)) = (&definition.param_kind, served, &binding.params) else {
        return Ok(vec![Value::Null]);
    };
    let is_namespaced = served.resource.scope == ResourceScope::Namespaced;
    let namespace = match (is_namespaced, &reference.namespace) {
        (false, Some(_)) => {
            return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned());
        }
        (false, None) => None,
        (true, Some(given)) => Some(&**given),
        (true, None) => Some(
            namespace
                .ok_or("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")?,
        ),
    };
    let objects = find(state, served, reference, namespace).await?;
    if objects.is_empty() && reference.must_exist {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    let parsed: Result<Vec<Value>, _> = objects.iter().map(|object| conversion::parse(object)).collect();
    let stored = parsed.map_err(|failure| failure.status.message.clone())?;
    conversion::to_requested(served, stored).await.map_err(|failure| failure.status.message.clone())
}

async fn find(
    state: &State,
    served: &Served,
    reference: &ParamRef,
    namespace: Option<&str>,
) -> Result<Vec<Arc<Object>>, String> {
    let storage = &served.resource.storage;
    let message = |failure: crate::shared::status::Failure| failure.status.message.clone();
    match &reference.which {
        Which::Named(name) => {
            let key = match namespace {
                Some(namespace) => ObjectKey::namespaced(namespace, &**name),
                None => ObjectKey::cluster(&**name),
            };
            Ok(state.get(storage, &key).await.map_err(message)?.into_iter().collect())
        }
        Which::Selected(labels) => {
            let labels = labels.as_ref().ok_or("paramRef.selector cannot be read")?;
            state.sync().await.map_err(message)?;
            let scope = namespace.map_or(Scope::All, |namespace| Scope::Namespace(namespace.into()));
            let found = state.store.list(storage, &scope, At::Latest, Page::ALL).map_err(|error| error.to_string())?;
            let selected = found.objects.iter().filter(|object| labels.matches(|key| object.label(key)));
            Ok(selected.cloned().collect())
        }
    }
}
