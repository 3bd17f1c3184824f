//! Finalizers: the server keeps an object while it has one, so that a controller can clean up outside the cluster
//! first.
//!
//! A reconciler whose objects own something outside the cluster handles three states:
//!
//! 1. The object is not being deleted: [`add`] the finalizer, and only then create anything outside.
//! 2. The object [is being deleted](is_deleting) and [has the finalizer](contains): delete what is outside, check that
//!    it is gone, and then [`remove`] the finalizer. The server removes the object with its last finalizer.
//! 3. The object is gone, or is being deleted without the finalizer: nothing is left to do.
//!
//! ```no_run
//! # use k8s_openapi::api::core::v1::ConfigMap;
//! # use steersman::{Action, BoxError, ObjectKey, Lister, finalizers};
//! # async fn create_outside(_: &ConfigMap) -> Result<(), std::convert::Infallible> { Ok(()) }
//! # async fn delete_outside(_: &ConfigMap) -> Result<(), std::convert::Infallible> { Ok(()) }
//! const FINALIZER: &str = "example.com/bucket";
//!
//! struct Context {
//!     client: kube::Client,
//!     configs: Lister<ConfigMap>,
//! }
//!
//! async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, BoxError> {
//!     let config = cx.configs.get(&key)?;
//!     if !finalizers::is_deleting(&*config) {
//!         finalizers::add(&cx.client, &*config, FINALIZER).await?;
//!         create_outside(&config).await?;
//!     } else if finalizers::contains(&*config, FINALIZER) {
//!         delete_outside(&config).await?;
//!         finalizers::remove(&cx.client, &*config, FINALIZER).await?;
//!     }
//!     Ok(Action::AwaitChange)
//! }
//! ```
//!
//! Both changes are merge patches on one version of the object; after a conflict they read it again and repeat.

use kube::Client;
use kube::core::Resource;
use serde::de::DeserializeOwned;

use crate::shared::key::ObjectKey;
use crate::writing::patch;
use crate::writing::write::WriteError;

/// How many times a change is repeated after conflicts.
const CONFLICTS_MAX: u32 = 5;

/// Whether `object` has the finalizer `name`.
pub fn contains<K: Resource>(object: &K, name: &str) -> bool {
    object.meta().finalizers.iter().flatten().any(|finalizer| finalizer == name)
}

/// Whether `object` is being deleted and waits for its finalizers.
pub fn is_deleting<K: Resource>(object: &K) -> bool {
    object.meta().deletion_timestamp.is_some()
}

/// Adds the finalizer `name` unless it is present, and returns the object after that. Create nothing outside the
/// cluster before this has succeeded.
///
/// # Errors
/// [`WriteError`]; not found also when the name now belongs to another object than `object`, invalid (422) when it is
/// being deleted.
pub async fn add<K>(client: &Client, object: &K, name: &str) -> Result<K, WriteError>
where
    K: Resource + DeserializeOwned + Clone,
    K::DynamicType: Default,
{
    add_with(client, &K::DynamicType::default(), object, name).await
}

/// As [`add`], for a type that is known at run time, such as `DynamicObject` with its `ApiResource`.
///
/// # Errors
/// As for [`add`].
pub async fn add_with<K>(client: &Client, dynamic: &K::DynamicType, object: &K, name: &str) -> Result<K, WriteError>
where
    K: Resource + DeserializeOwned + Clone,
{
    let changed = change(client, dynamic, object, |finalizers| {
        let is_missing = !finalizers.iter().any(|finalizer| finalizer == name);
        if is_missing {
            finalizers.push(name.to_owned());
        }
        is_missing
    });
    changed.await
}

/// Removes the finalizer `name` and returns the object after that. `None`: the object is gone, which is the effect of
/// removing the last finalizer of an object that is being deleted.
///
/// # Errors
/// [`WriteError`]; an object that does not exist is not an error here.
pub async fn remove<K>(client: &Client, object: &K, name: &str) -> Result<Option<K>, WriteError>
where
    K: Resource + DeserializeOwned + Clone,
    K::DynamicType: Default,
{
    remove_with(client, &K::DynamicType::default(), object, name).await
}

/// As [`remove`], for a type that is known at run time, such as `DynamicObject` with its `ApiResource`.
///
/// # Errors
/// As for [`remove`].
pub async fn remove_with<K>(
    client: &Client,
    dynamic: &K::DynamicType,
    object: &K,
    name: &str,
) -> Result<Option<K>, WriteError>
where
    K: Resource + DeserializeOwned + Clone,
{
    let changed = change(client, dynamic, object, |finalizers| {
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

async fn change<K>(
    client: &Client,
    dynamic: &K::DynamicType,
    object: &K,
    edit: impl Fn(&mut Vec<String>) -> bool,
) -> Result<K, WriteError>
where
    K: Resource + DeserializeOwned + Clone,
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
        match patch::merge_with::<K>(client, dynamic, &key, &patch).await {
            Err(error) if error.is_conflict() && n_conflicts < CONFLICTS_MAX => n_conflicts += 1,
            result => return result,
        }
        current = patch::get::<K>(client, dynamic, &key).await?;
        if uid.is_some() && current.meta().uid != uid {
            // The object is gone, and another one has its name.
            let status = kube::core::Status::failure("the object was replaced by another of its name", "NotFound");
            return Err(patch::failed::<K>(dynamic, "patch", &key, kube::Error::Api(status.with_code(404).boxed())));
        }
    }
}
