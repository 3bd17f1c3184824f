//! Strategic merge patches, for Kubernetes' built-in kinds: lists whose items have names are merged item by item.

use kube::Client;
use kube::api::{Patch, PatchParams};
use kube::core::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use steersman_machinery::GroupVersion;
use steersman_schema::definitions::Definitions;
use steersman_schema::strategic::create_two_way;

use crate::shared::key::ObjectKey;
use crate::writing::patch::{Lock, failed, hold, merge_from_with, send, states};
use crate::writing::write::WriteError;

/// Why no strategic merge patch can be made from two objects.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StrategicError {
    /// The kind is not built into Kubernetes, so the merge rules of its lists are unknown. Use a JSON merge patch.
    #[error("{api_version} {kind} is no kind of Kubernetes' own: it takes JSON merge patches only")]
    NotBuiltIn {
        /// `group/version`.
        api_version: String,
        /// The kind.
        kind: String,
    },
    /// An object cannot be written as JSON.
    #[error("an object cannot be written as JSON")]
    NotJson(#[source] serde_json::Error),
    /// An item of a list lacks the field that identifies it.
    #[error("the objects cannot be compared")]
    Malformed(#[source] steersman_schema::strategic::Error),
}

/// The strategic merge patch that turns the object `old` into `new`, two states of one object; `None` when they are equal.
/// apimachinery's `CreateTwoWayMergePatch`, with its `$patch`, `$deleteFromPrimitiveList`, `$retainKeys` and
/// `$setElementOrder`.
///
/// It has the kinds of one version of Kubernetes, whatever server the patch is for.
///
/// # Errors
/// [`StrategicError`].
pub fn strategic_two_way<K>(old: &K, new: &K) -> Result<Option<Value>, StrategicError>
where
    K: Resource + Serialize,
    K::DynamicType: Default,
{
    strategic_two_way_with(&K::DynamicType::default(), old, new)
}

/// As [`strategic_two_way`], for a type that is known at run time.
///
/// # Errors
/// [`StrategicError`].
pub fn strategic_two_way_with<K>(dynamic: &K::DynamicType, old: &K, new: &K) -> Result<Option<Value>, StrategicError>
where
    K: Resource + Serialize,
{
    let (api_version, kind) = (K::api_version(dynamic), K::kind(dynamic));
    let schema = GroupVersion::parse(&api_version)
        .and_then(|version| Definitions::builtin().schema_of(&version.kind(&*kind)))
        .ok_or_else(|| StrategicError::NotBuiltIn { api_version: api_version.to_string(), kind: kind.to_string() })?;
    let (old, new) = states(old, new).map_err(StrategicError::NotJson)?;
    let patch = create_two_way(schema, &old, &new).map_err(StrategicError::Malformed)?;
    let is_empty = patch.as_object().is_some_and(serde_json::Map::is_empty);
    Ok((!is_empty).then_some(patch))
}

/// As [`merge_from`](crate::writing::patch::merge_from), with a strategic merge patch for built-in kinds: changes by others to
/// other containers, ports or finalizers since `old` was read are kept. Other kinds get a JSON merge patch.
/// controller-runtime's `client.StrategicMergeFrom`.
///
/// # Errors
/// [`WriteError`].
pub async fn strategic_from<K>(client: &Client, old: &K, new: &K, lock: Lock) -> Result<Option<K>, WriteError>
where
    K: Resource + DeserializeOwned + Serialize,
    K::DynamicType: Default,
{
    strategic_from_with(client, &K::DynamicType::default(), old, new, lock).await
}

/// As [`strategic_from`], for a type that is known at run time.
///
/// # Errors
/// [`WriteError`].
pub async fn strategic_from_with<K>(
    client: &Client,
    dynamic: &K::DynamicType,
    old: &K,
    new: &K,
    lock: Lock,
) -> Result<Option<K>, WriteError>
where
    K: Resource + DeserializeOwned + Serialize,
{
    let key = ObjectKey::of(old);
    let mut patch = match strategic_two_way_with(dynamic, old, new) {
        Ok(Some(patch)) => patch,
        Ok(None) => return Ok(None),
        // Lists of custom kinds, and lists that break the rules, are replaced whole.
        Err(StrategicError::NotBuiltIn { .. } | StrategicError::Malformed(_)) => {
            return merge_from_with(client, dynamic, old, new, lock).await;
        }
        Err(StrategicError::NotJson(error)) => {
            return Err(failed::<K>(dynamic, "patch", &key, kube::Error::SerdeError(error)));
        }
    };
    hold(&mut patch, old, lock);
    let patch = Patch::Strategic(patch);
    send::<K, _>(client, dynamic, &key, None, &PatchParams::default(), &patch, "patch").await.map(Some)
}
