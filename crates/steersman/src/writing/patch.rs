//! Patches: the difference between two JSON trees, and the requests that carry one.
//!
//! The requests work for every type and need no `Api<K>`; the namespace is taken from the key. The functions that end
//! in `_with` are for types that are known at run time, such as `DynamicObject`: they also take the type's description.

#[cfg(feature = "strategic")]
mod strategic;

use std::fmt::Debug;

use kube::Client;
use kube::api::{GetParams, Patch, PatchParams};
use kube::core::{Request, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::shared::key::ObjectKey;
use crate::shared::selection::resource_name;
use crate::writing::write::WriteError;

#[cfg(feature = "strategic")]
pub use crate::writing::patch::strategic::{
    StrategicError, strategic_from, strategic_from_with, strategic_two_way, strategic_two_way_with,
};

/// Whether server-side apply may take fields from other managers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Force {
    /// A field that another manager owns is a conflict (409).
    No,
    /// Take the field. Controllers want this.
    Yes,
}

/// Whether a patch is for one version of an object only (`MergeFromWithOptimisticLock`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Lock {
    /// The difference is applied to the object in whatever version it is by then.
    No,
    /// Any other version is a conflict (409).
    Yes,
}

/// The JSON merge patch that turns `old` into `new`; `None` when they are equal. Lists are replaced whole.
///
/// A merge patch cannot set a field to null: a null in `new` counts as absent.
pub fn merge_diff(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(before), Value::Object(after)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let mut patch = Map::new();
    for (key, value) in before {
        if !value.is_null() && after.get(key).is_none_or(Value::is_null) {
            patch.insert(key.clone(), Value::Null);
        }
    }
    for (key, value) in after.iter().filter(|(_, value)| !value.is_null()) {
        match before.get(key) {
            // A patch merges into an existing value; a value that is absent is created without its nulls.
            None | Some(Value::Null) => drop(patch.insert(key.clone(), without_nulls(value))),
            Some(known) => {
                if let Some(difference) = merge_diff(known, value) {
                    patch.insert(key.clone(), difference);
                }
            }
        }
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// Sends a JSON merge patch. With `metadata.resourceVersion` in it, it fails with a conflict on any other version.
///
/// # Errors
/// [`WriteError`].
pub async fn merge<K>(client: &Client, key: &ObjectKey, patch: &Value) -> Result<K, WriteError>
where
    K: Resource + DeserializeOwned,
    K::DynamicType: Default,
{
    merge_with(client, &K::DynamicType::default(), key, patch).await
}

/// As [`merge`], for a type that is known at run time.
///
/// # Errors
/// [`WriteError`].
pub async fn merge_with<K>(
    client: &Client,
    dynamic: &K::DynamicType,
    key: &ObjectKey,
    patch: &Value,
) -> Result<K, WriteError>
where
    K: Resource + DeserializeOwned,
{
    send::<K, _>(client, dynamic, key, None, &PatchParams::default(), &Patch::Merge(patch), "patch").await
}

/// As [`merge`], on a subresource such as `status`.
///
/// # Errors
/// [`WriteError`].
pub async fn merge_subresource<K>(
    client: &Client,
    key: &ObjectKey,
    subresource: &str,
    patch: &Value,
) -> Result<K, WriteError>
where
    K: Resource + DeserializeOwned,
    K::DynamicType: Default,
{
    merge_subresource_with(client, &K::DynamicType::default(), key, subresource, patch).await
}

/// As [`merge_subresource`], for a type that is known at run time.
///
/// # Errors
/// [`WriteError`].
pub async fn merge_subresource_with<K>(
    client: &Client,
    dynamic: &K::DynamicType,
    key: &ObjectKey,
    subresource: &str,
    patch: &Value,
) -> Result<K, WriteError>
where
    K: Resource + DeserializeOwned,
{
    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
    send::<K, _>(client, dynamic, key, Some(subresource), &params, &patch, "patch").await
}

/// Server-side apply of `object`, which must have exactly the fields that `manager` wants. Creates the object where it
/// does not exist. `apiVersion`, `kind` and the name are filled in.
///
/// # Errors
/// [`WriteError`].
pub async fn apply<K>(
    client: &Client,
    key: &ObjectKey,
    manager: &str,
    force: Force,
    object: &(impl Serialize + Debug),
) -> Result<K, WriteError>
where
    K: Resource + DeserializeOwned,
    K::DynamicType: Default,
{
    apply_with(client, &K::DynamicType::default(), key, manager, force, object).await
}

/// As [`apply`], for a type that is known at run time.
///
/// # Errors
/// [`WriteError`].
pub async fn apply_with<K>(
    client: &Client,
    dynamic: &K::DynamicType,
    key: &ObjectKey,
    manager: &str,
    force: Force,
    object: &(impl Serialize + Debug),
) -> Result<K, WriteError>
where
    K: Resource + DeserializeOwned,
{
    let params = PatchParams { force: force == Force::Yes, ..PatchParams::apply(manager) };
    let tree = named::<K>(dynamic, key, object);
    let tree = tree.map_err(|error| failed::<K>(dynamic, "apply", key, kube::Error::SerdeError(error)))?;
    send::<K, _>(client, dynamic, key, None, &params, &Patch::Apply(tree), "apply").await
}

/// The JSON merge patch that turns the object `old` into `new`, two states of one object; `None` when they are equal.
///
/// Kind, apiVersion and resource version are not compared.
///
/// # Errors
/// When an object cannot be written as JSON.
pub fn two_way<K: Resource + Serialize>(old: &K, new: &K) -> Result<Option<Value>, serde_json::Error> {
    let (old, new) = states(old, new)?;
    Ok(merge_diff(&old, &new))
}

/// Sends the JSON merge patch that turns `old`, as it was read, into `new`, and returns the object after it; `None`,
/// and nothing is sent, when they are equal. controller-runtime's `client.MergeFrom`.
///
/// Only the object `old` can be changed, never a later one with its name: that is a conflict. Without a lock, other
/// changes since then stay; but lists are replaced whole.
///
/// # Errors
/// [`WriteError`].
pub async fn merge_from<K>(client: &Client, old: &K, new: &K, lock: Lock) -> Result<Option<K>, WriteError>
where
    K: Resource + DeserializeOwned + Serialize,
    K::DynamicType: Default,
{
    merge_from_with(client, &K::DynamicType::default(), old, new, lock).await
}

/// As [`merge_from`], for a type that is known at run time.
///
/// # Errors
/// [`WriteError`].
pub async fn merge_from_with<K>(
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
    let not_json = |error| failed::<K>(dynamic, "patch", &key, kube::Error::SerdeError(error));
    let Some(mut patch) = two_way(old, new).map_err(not_json)? else { return Ok(None) };
    hold(&mut patch, old, lock);
    merge_with(client, dynamic, &key, &patch).await.map(Some)
}

/// As [`merge_from`], for the difference of the statuses, on the subresource `status`. Where the status may not be a
/// subresource, or is computed as a whole, see [`crate::writing::status::Writer`].
///
/// # Errors
/// [`WriteError`].
pub async fn merge_status_from<K>(client: &Client, old: &K, new: &K, lock: Lock) -> Result<Option<K>, WriteError>
where
    K: Resource + DeserializeOwned + Serialize,
    K::DynamicType: Default,
{
    merge_status_from_with(client, &K::DynamicType::default(), old, new, lock).await
}

/// As [`merge_status_from`], for a type that is known at run time.
///
/// # Errors
/// [`WriteError`].
pub async fn merge_status_from_with<K>(
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
    let not_json = |error| failed::<K>(dynamic, "patch", &key, kube::Error::SerdeError(error));
    let patch = two_way(old, new).map_err(not_json)?;
    let Some(status) = patch.and_then(|mut patch| patch.as_object_mut()?.remove("status")) else { return Ok(None) };
    let mut patch = json!({ "status": status });
    hold(&mut patch, old, lock);
    merge_subresource_with(client, dynamic, &key, "status", &patch).await.map(Some)
}

/// Both objects as trees, without the fields that a patch must not contain.
pub(crate) fn states<K: Resource + Serialize>(old: &K, new: &K) -> Result<(Value, Value), serde_json::Error> {
    let (mut old, mut new) = (serde_json::to_value(old)?, serde_json::to_value(new)?);
    for tree in [&mut old, &mut new] {
        let Some(members) = tree.as_object_mut() else { continue };
        members.remove("apiVersion");
        members.remove("kind");
        if let Some(metadata) = members.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
            metadata.remove("resourceVersion");
        }
    }
    Ok((old, new))
}

/// Limits `patch` to the object `old`, and, with a lock, to its version.
pub(crate) fn hold<K: Resource>(patch: &mut Value, old: &K, lock: Lock) {
    let meta = old.meta();
    let version = meta.resource_version.as_deref().filter(|_| lock == Lock::Yes);
    for (name, value) in [("uid", meta.uid.as_deref()), ("resourceVersion", version)] {
        if let Some(value) = value {
            patch["metadata"][name] = value.into();
        }
    }
}

/// `object` as JSON, with its type, name and namespace.
pub(crate) fn named<K: Resource>(
    dynamic: &K::DynamicType,
    key: &ObjectKey,
    object: &impl Serialize,
) -> Result<Value, serde_json::Error> {
    let mut tree = serde_json::to_value(object)?;
    tree["apiVersion"] = K::api_version(dynamic).into();
    tree["kind"] = K::kind(dynamic).into();
    tree["metadata"]["name"] = key.name().into();
    if let Some(namespace) = key.namespace() {
        tree["metadata"]["namespace"] = namespace.into();
    }
    Ok(tree)
}

/// The beginning of a patch that is limited to the object with this uid, and, if one is given, to this version.
pub(crate) fn on_object(uid: Option<&str>, resource_version: Option<&str>) -> Value {
    let members = [("uid", uid), ("resourceVersion", resource_version)];
    // A null would ask the server to remove the field.
    let present = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), Value::from(value?))));
    json!({ "metadata": present.collect::<Map<String, Value>>() })
}

/// Reads one object from the server, not from a cache.
pub(crate) async fn get<K>(client: &Client, dynamic: &K::DynamicType, key: &ObjectKey) -> Result<K, WriteError>
where
    K: Resource + DeserializeOwned,
{
    let request = Request::new(K::url_path(dynamic, key.namespace())).get(key.name(), &GetParams::default());
    let request = request.map_err(|error| failed::<K>(dynamic, "get", key, kube::Error::BuildRequest(error)))?;
    client.request(request).await.map_err(|error| failed::<K>(dynamic, "get", key, error))
}

pub(crate) fn failed<K: Resource>(
    dynamic: &K::DynamicType,
    verb: &'static str,
    key: &ObjectKey,
    source: kube::Error,
) -> WriteError {
    WriteError { verb, resource: resource_name::<K>(dynamic), key: key.clone(), source }
}

async fn send<K, P>(
    client: &Client,
    dynamic: &K::DynamicType,
    key: &ObjectKey,
    subresource: Option<&str>,
    params: &PatchParams,
    patch: &Patch<P>,
    verb: &'static str,
) -> Result<K, WriteError>
where
    K: Resource + DeserializeOwned,
    P: Serialize + Debug,
{
    let request = Request::new(K::url_path(dynamic, key.namespace()));
    let request = match subresource {
        None => request.patch(key.name(), params, patch),
        Some(subresource) => request.patch_subresource(subresource, key.name(), params, patch),
    };
    let request = request.map_err(|error| failed::<K>(dynamic, verb, key, kube::Error::BuildRequest(error)))?;
    client.request(request).await.map_err(|error| failed::<K>(dynamic, verb, key, error))
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(key, value)| (key.clone(), without_nulls(value))).collect())
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};

    use super::*;

    /// RFC 7386.
    fn merge_into(target: &mut Value, patch: &Value) {
        let Value::Object(patch) = patch else {
            *target = patch.clone();
            return;
        };
        if !target.is_object() {
            *target = json!({});
        }
        let map = target.as_object_mut().unwrap();
        for (key, value) in patch {
            if value.is_null() {
                map.remove(key);
            } else {
                merge_into(map.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
    }

    #[test]
    fn the_difference_names_only_what_changed() {
        let old = json!({"a": 1, "b": {"c": 2, "d": 3}, "e": [1], "gone": 0});
        let new = json!({"a": 1, "b": {"c": 9, "d": 3}, "e": [1, 2], "new": {"x": null, "y": 1}});
        let expected = json!({"b": {"c": 9}, "e": [1, 2], "gone": null, "new": {"y": 1}});
        assert_eq!(merge_diff(&old, &new), Some(expected));
        assert_eq!(merge_diff(&old, &old), None);
    }

    fn tree() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![any::<u8>().prop_map(Value::from), Just(json!([])), Just(json!([1, {"a": 1}]))];
        leaf.prop_recursive(3, 12, 4, |inner| {
            proptest::collection::btree_map("[abc]", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect()))
        })
    }

    proptest! {
        #[test]
        fn applying_the_difference_gives_the_new_tree(old in tree(), new in tree()) {
            let mut merged = old.clone();
            match merge_diff(&old, &new) {
                None => assert_eq!(old, new),
                Some(patch) => {
                    merge_into(&mut merged, &patch);
                    // An object that loses all its members stays as an empty object.
                    assert_eq!(merged, new);
                }
            }
        }
    }
}
