//! Admission: what is changed in, or said against, an object beyond its kind's own rules.
//!
//! The plugins that upstream has on by default and that need no configuration objects. Mutation works on the requested
//! form after the owners of the fields are recorded, so nobody comes to own what is set here.

use crate::builtin;
use crate::builtin::admission::PriorityClass;
use crate::registry::context::{Context, tree};
use crate::status::Failure;
use steersman_machinery::{GroupResource, ObjectKey, Value, value};
use steersman_storage::{At, Page, Scope};

/// Namespaces that the system needs.
const UNDELETABLE: [&str; 3] = ["default", "kube-public", "kube-system"];

/// Fills in what is not the kind's to default. `old` is the object as it is, of a change.
///
/// # Errors
/// 403 if the object contradicts what it is given.
pub(crate) fn mutate(cx: &Context<'_>, old: Option<&Value>, object: &mut Value) -> Result<(), Failure> {
    let is_pod = cx.resource().group.is_empty() && &*cx.resource().plural == "pods";
    if !is_pod || cx.target.subresource.is_some() {
        return Ok(());
    }
    let refused = builtin::admission::mutate_pod(object, old, |name| priority_class(cx, name));
    refused.map_err(|refusal| Failure::forbidden(&cx.group_resource(), name_of(object), &refusal.to_string()))
}

/// The PriorityClass of a name, or the one for pods that name none.
fn priority_class(cx: &Context<'_>, name: Option<&str>) -> Option<PriorityClass> {
    let classes = GroupResource::new("scheduling.k8s.io", "priorityclasses");
    let store = &cx.server.store;
    match name {
        Some(name) => {
            let found = store.get_cached(&classes, &ObjectKey::cluster(name))?;
            tree(&found).ok().map(|class| PriorityClass::read(&class))
        }
        None => {
            let all = store.list(&classes, &Scope::All, At::Latest, Page::ALL).ok()?;
            let trees: Vec<Value> = all.objects.iter().filter_map(|class| tree(class).ok()).collect();
            PriorityClass::global_default(&trees)
        }
    }
}

/// Refuses to create in a namespace that is absent or on its way out.
///
/// # Errors
/// 404 or 403.
pub(crate) async fn namespace_lifecycle(cx: &Context<'_>, name: &str) -> Result<(), Failure> {
    let Some(namespace) = cx.namespace() else { return Ok(()) };
    let namespaces = GroupResource::new("", "namespaces");
    let key = ObjectKey::cluster(namespace);
    let found = match cx.server.store.get_cached(&namespaces, &key) {
        Some(found) => Some(found),
        // The cache may be a moment behind a creation that was answered already.
        None => cx
            .server
            .store
            .get(&namespaces, &key)
            .await
            .map_err(|error| crate::registry::context::read_failure(&error))?,
    };
    let Some(found) = found else {
        return Err(Failure::not_found(&namespaces, namespace));
    };
    if !found.meta().is_deleting() {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let mut failure = Failure::forbidden(&cx.group_resource(), name, &why);
    if let Some(details) = &mut failure.status.details {
        details.causes.push(steersman_machinery::status::Cause {
            reason: "NamespaceTerminating".to_owned(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".to_owned(),
        });
    }
    Err(failure)
}

/// Refuses to delete what the system needs.
///
/// # Errors
/// 403.
pub(crate) fn deletion(resource: &GroupResource, name: &str) -> Result<(), Failure> {
    let is_namespace = resource.group.is_empty() && resource.resource == "namespaces";
    if is_namespace && UNDELETABLE.contains(&name) {
        return Err(Failure::forbidden(resource, name, "this namespace may not be deleted"));
    }
    Ok(())
}

/// The name that a new object is to have, for messages.
pub(crate) fn name_of(object: &Value) -> &str {
    value::str_at(object, &["metadata", "name"]).unwrap_or("")
}
