//! Brings one object into a desired state, in one call: create it, change it, or leave it.
//!
//! The function that changes the object gets its current state and may run several times: once for each conflict with
//! another writer. Nothing is sent when it changes nothing. For an object that exists, only the difference is sent, so
//! fields that the type does not know stay unchanged; the verb needed is `patch`. The status is left alone wherever it
//! is a subresource: see [`crate::writing::status`]. Follows controllerutil's `CreateOrUpdate` and `CreateOrPatch`; where the
//! caller knows all fields that it wants, server-side apply ([`crate::writing::patch::apply`]) needs neither the current state
//! nor a retry.

use kube::Client;
use kube::api::PostParams;
use kube::core::{Request, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::shared::key::ObjectKey;
use crate::writing::patch::{self, Lock};
use crate::writing::write::WriteError;

/// How many times a change is repeated after conflicts.
const CONFLICTS_MAX: u32 = 5;

/// The operation that was needed, with the object after it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum OperationResult<K> {
    /// The object did not exist.
    Created(K),
    /// The object was in the desired state already, or the server turned the change back into the existing state.
    Unchanged(K),
    /// The object was changed.
    Updated(K),
}

impl<K> OperationResult<K> {
    /// The object after the operation.
    pub fn object(&self) -> &K {
        match self {
            Self::Created(object) | Self::Unchanged(object) | Self::Updated(object) => object,
        }
    }

    /// As [`OperationResult::object`], owned.
    pub fn into_object(self) -> K {
        match self {
            Self::Created(object) | Self::Unchanged(object) | Self::Updated(object) => object,
        }
    }

    /// Whether the operation changed the object.
    pub fn is_changed(&self) -> bool {
        !matches!(self, Self::Unchanged(_))
    }
}

/// Creates `object`, changed by `mutate`, or applies `mutate` to the existing object of that name and sends the
/// difference, if any.
///
/// The change is made to exactly the version that `mutate` saw; after a conflict, it begins again with the new version,
/// five times. `object` must have a name, and every field that `mutate` does not set.
///
/// ```no_run
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use steersman::write::create_or_update;
/// # use steersman::WriteError;
/// # async fn ensure(client: &kube::Client, config: ConfigMap) -> Result<(), WriteError> {
/// let result = create_or_update(client, config, |config| {
///     config.data.get_or_insert_default().insert("colour".to_owned(), "green".to_owned());
/// })
/// .await?;
/// println!("{}", if result.is_changed() { "painted" } else { "it was green already" });
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`WriteError`]; a conflict after that many in a row, invalid (422) when `mutate` changes the name or the namespace.
pub async fn create_or_update<K>(
    client: &Client,
    object: K,
    mutate: impl FnMut(&mut K),
) -> Result<OperationResult<K>, WriteError>
where
    K: Resource + Clone + DeserializeOwned + Serialize,
    K::DynamicType: Default,
{
    create_or_update_with(client, &K::DynamicType::default(), object, mutate).await
}

/// As [`create_or_update`], for a type that is known at run time, such as `DynamicObject` with its `ApiResource`.
///
/// # Errors
/// As for [`create_or_update`].
pub async fn create_or_update_with<K>(
    client: &Client,
    dynamic: &K::DynamicType,
    object: K,
    mut mutate: impl FnMut(&mut K),
) -> Result<OperationResult<K>, WriteError>
where
    K: Resource + Clone + DeserializeOwned + Serialize,
{
    create_or(client, dynamic, object, Lock::Yes, |object| {
        mutate(object);
        Ok(())
    })
    .await
}

/// As [`create_or_update`], with a change that may fail, for instance [`set_controller`](crate::writing::owners::set_controller).
///
/// # Errors
/// The error of `mutate`, and as for [`create_or_update`].
pub async fn try_create_or_update<K, E>(
    client: &Client,
    object: K,
    mutate: impl FnMut(&mut K) -> Result<(), E>,
) -> Result<OperationResult<K>, E>
where
    K: Resource + Clone + DeserializeOwned + Serialize,
    K::DynamicType: Default,
    E: From<WriteError>,
{
    try_create_or_update_with(client, &K::DynamicType::default(), object, mutate).await
}

/// As [`try_create_or_update`], for a type that is known at run time, such as `DynamicObject` with its `ApiResource`.
///
/// # Errors
/// As for [`try_create_or_update`].
pub async fn try_create_or_update_with<K, E>(
    client: &Client,
    dynamic: &K::DynamicType,
    object: K,
    mutate: impl FnMut(&mut K) -> Result<(), E>,
) -> Result<OperationResult<K>, E>
where
    K: Resource + Clone + DeserializeOwned + Serialize,
    E: From<WriteError>,
{
    create_or(client, dynamic, object, Lock::Yes, mutate).await
}

/// As [`create_or_update`], but the difference is merged into the object in whatever state it is by then: other fields
/// may have changed since `mutate` saw it. Lists are replaced whole, so use it only for lists of which the caller owns
/// every item.
///
/// # Errors
/// As for [`create_or_update`].
pub async fn create_or_patch<K>(
    client: &Client,
    object: K,
    mutate: impl FnMut(&mut K),
) -> Result<OperationResult<K>, WriteError>
where
    K: Resource + Clone + DeserializeOwned + Serialize,
    K::DynamicType: Default,
{
    create_or_patch_with(client, &K::DynamicType::default(), object, mutate).await
}

/// As [`create_or_patch`], for a type that is known at run time, such as `DynamicObject` with its `ApiResource`.
///
/// # Errors
/// As for [`create_or_patch`].
pub async fn create_or_patch_with<K>(
    client: &Client,
    dynamic: &K::DynamicType,
    object: K,
    mut mutate: impl FnMut(&mut K),
) -> Result<OperationResult<K>, WriteError>
where
    K: Resource + Clone + DeserializeOwned + Serialize,
{
    create_or(client, dynamic, object, Lock::No, |object| {
        mutate(object);
        Ok(())
    })
    .await
}

/// Applies `mutate` to `current` and sends the difference, if any; after a conflict, applies it to the new state.
/// `current` may come from a cache. client-go's `retry.RetryOnConflict`, without the loop.
///
/// # Errors
/// [`WriteError`]; not found also when the name now belongs to another object than `current`.
pub async fn update<K>(
    client: &Client,
    current: &K,
    mutate: impl FnMut(&mut K),
) -> Result<OperationResult<K>, WriteError>
where
    K: Resource + Clone + DeserializeOwned + Serialize,
    K::DynamicType: Default,
{
    update_with(client, &K::DynamicType::default(), current, mutate).await
}

/// As [`update`], for a type that is known at run time, such as `DynamicObject` with its `ApiResource`.
///
/// # Errors
/// As for [`update`].
pub async fn update_with<K>(
    client: &Client,
    dynamic: &K::DynamicType,
    current: &K,
    mut mutate: impl FnMut(&mut K),
) -> Result<OperationResult<K>, WriteError>
where
    K: Resource + Clone + DeserializeOwned + Serialize,
{
    let (key, uid) = (ObjectKey::of(current), current.meta().uid.clone());
    let mut n_conflicts = 0;
    let mut current = current.clone();
    loop {
        let mut wanted = current.clone();
        mutate(&mut wanted);
        match send_change(client, dynamic, &key, &current, &wanted, Lock::Yes).await {
            Err(error) if error.is_conflict() && n_conflicts < CONFLICTS_MAX => n_conflicts += 1,
            result => return result,
        }
        current = patch::get::<K>(client, dynamic, &key).await?;
        if uid.is_some() && current.meta().uid != uid {
            return Err(refused::<K>(dynamic, &key, 404, "NotFound", "the object was replaced by another of its name"));
        }
    }
}

async fn create_or<K, E>(
    client: &Client,
    dynamic: &K::DynamicType,
    object: K,
    lock: Lock,
    mut mutate: impl FnMut(&mut K) -> Result<(), E>,
) -> Result<OperationResult<K>, E>
where
    K: Resource + Clone + DeserializeOwned + Serialize,
    E: From<WriteError>,
{
    let key = ObjectKey::of(&object);
    if key.name().is_empty() {
        return Err(refused::<K>(dynamic, &key, 422, "Invalid", "an object is needed that has a name").into());
    }
    let mut n_tries = 0;
    loop {
        n_tries += 1;
        // Somebody else created, changed or deleted it since it was read.
        let is_outrun = |error: &WriteError, was_there: bool| {
            n_tries <= CONFLICTS_MAX && (error.is_conflict() || (was_there && error.is_not_found()))
        };
        match patch::get::<K>(client, dynamic, &key).await {
            Ok(current) => {
                let mut wanted = current.clone();
                mutate(&mut wanted)?;
                match send_change(client, dynamic, &key, &current, &wanted, lock).await {
                    Err(error) if is_outrun(&error, true) => {}
                    result => return Ok(result?),
                }
            }
            Err(error) if error.is_not_found() => {
                let mut wanted = object.clone();
                mutate(&mut wanted)?;
                match create(client, dynamic, &key, &wanted).await {
                    Err(error) if is_outrun(&error, false) => {}
                    result => return Ok(OperationResult::Created(result?)),
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}

async fn send_change<K>(
    client: &Client,
    dynamic: &K::DynamicType,
    key: &ObjectKey,
    current: &K,
    wanted: &K,
    lock: Lock,
) -> Result<OperationResult<K>, WriteError>
where
    K: Resource + Clone + DeserializeOwned + Serialize,
{
    check_name(dynamic, key, wanted)?;
    let Some(changed) = patch::merge_from_with(client, dynamic, current, wanted, lock).await? else {
        return Ok(OperationResult::Unchanged(current.clone()));
    };
    // The server may fill in defaults or drop the status, and find then that nothing differs.
    let version = &changed.meta().resource_version;
    if version.is_some() && *version == current.meta().resource_version {
        return Ok(OperationResult::Unchanged(changed));
    }
    Ok(OperationResult::Updated(changed))
}

async fn create<K>(client: &Client, dynamic: &K::DynamicType, key: &ObjectKey, wanted: &K) -> Result<K, WriteError>
where
    K: Resource + DeserializeOwned + Serialize,
{
    check_name(dynamic, key, wanted)?;
    let failed = |error| patch::failed::<K>(dynamic, "create", key, error);
    let tree = patch::named::<K>(dynamic, key, wanted).map_err(|error| failed(kube::Error::SerdeError(error)))?;
    let body = serde_json::to_vec(&tree).map_err(|error| failed(kube::Error::SerdeError(error)))?;
    let request = Request::new(K::url_path(dynamic, key.namespace())).create(&PostParams::default(), body);
    let request = request.map_err(|error| failed(kube::Error::BuildRequest(error)))?;
    client.request(request).await.map_err(failed)
}

fn check_name<K: Resource>(dynamic: &K::DynamicType, key: &ObjectKey, wanted: &K) -> Result<(), WriteError> {
    if ObjectKey::of(wanted) == *key {
        return Ok(());
    }
    Err(refused::<K>(dynamic, key, 422, "Invalid", "the change would give the object another name or namespace"))
}

fn refused<K: Resource>(
    dynamic: &K::DynamicType,
    key: &ObjectKey,
    code: u16,
    reason: &str,
    message: &str,
) -> WriteError {
    let status = kube::core::Status::failure(message, reason).with_code(code);
    patch::failed::<K>(dynamic, "update", key, kube::Error::Api(status.boxed()))
}
