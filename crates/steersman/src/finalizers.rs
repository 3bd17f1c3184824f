//! Finalizers: a promise that an object does not vanish before its outside has been cleaned up.
//!
//! Both changes are merge patches on one version of the object; when somebody was faster, they look again and repeat.

use kube::Client;
use kube::core::Resource;
use serde::de::DeserializeOwned;

use crate::key::ObjectKey;
use crate::patch;
use crate::write::WriteError;

/// How often a change is repeated when somebody else is faster each time.
const CONFLICTS_MAX: u32 = 5;

/// Whether `object` has the finalizer `name`.
pub fn contains<K: Resource>(object: &K, name: &str) -> bool {
    object.meta().finalizers.iter().flatten().any(|finalizer| finalizer == name)
}

/// Whether `object` is being deleted and waits for its finalizers.
pub fn is_deleting<K: Resource>(object: &K) -> bool {
    object.meta().deletion_timestamp.is_some()
}

/// Adds the finalizer `name` unless it is there, and returns the object as it is then. Create nothing outside before
/// this has succeeded.
///
/// # Errors
/// [`WriteError`]; not found also when the name now belongs to another object than `object`, invalid (422) when it is
/// being deleted.
pub async fn add<K>(client: &Client, object: &K, name: &str) -> Result<K, WriteError>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone,
{
    let changed = change(client, object, |finalizers| {
        let is_missing = !finalizers.iter().any(|finalizer| finalizer == name);
        if is_missing {
            finalizers.push(name.to_owned());
        }
        is_missing
    });
    changed.await
}

/// Removes the finalizer `name` and returns the object as it is then. `None`: the object is gone, which is what
/// removing the last finalizer of an object that is being deleted does.
///
/// # Errors
/// [`WriteError`]; an object that does not exist is not an error here.
pub async fn remove<K>(client: &Client, object: &K, name: &str) -> Result<Option<K>, WriteError>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone,
{
    let changed = change(client, object, |finalizers| {
        let before = finalizers.len();
        finalizers.retain(|finalizer| finalizer != name);
        finalizers.len() < before
    });
    match changed.await {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

async fn change<K>(client: &Client, object: &K, edit: impl Fn(&mut Vec<String>) -> bool) -> Result<K, WriteError>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone,
{
    let key = ObjectKey::of(object);
    let uid = object.meta().uid.clone();
    let mut current = object.clone();
    let mut n_conflicts = 0;
    loop {
        let mut finalizers = current.meta().finalizers.clone().unwrap_or_default();
        if !edit(&mut finalizers) {
            return Ok(current);
        }
        let meta = current.meta();
        let mut patch = patch::on_object(uid.as_deref(), meta.resource_version.as_deref());
        patch["metadata"]["finalizers"] = finalizers.into();
        match patch::merge::<K>(client, &key, &patch).await {
            Err(error) if error.is_conflict() && n_conflicts < CONFLICTS_MAX => n_conflicts += 1,
            result => return result,
        }
        current = patch::get::<K>(client, &key).await?;
        if uid.is_some() && current.meta().uid != uid {
            // The object is gone; another one has taken its name.
            let status = kube::core::Status::failure("the object was replaced by another of its name", "NotFound");
            return Err(patch::failed::<K>("patch", &key, kube::Error::Api(status.with_code(404).boxed())));
        }
    }
}
