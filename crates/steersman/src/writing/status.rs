//! Writes the status of objects, also of those whose CRD has no status subresource.
//!
//! Where the server serves `/status`, the status is patched there. Where it does not, the status is a field like any
//! other and is patched into the object itself. Discovery decides; when the answer changes under a running controller,
//! because a CRD was replaced, the writer notices and asks again.
//!
//! The object that a reconciler passes may be older than the writer's own last write, whose event has not come yet. The
//! writer remembers its writes until it gets an object that has them.

mod memory;

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::Client;
use kube::core::Resource;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::shared::key::ObjectKey;
use crate::writing::patch;
use crate::writing::status::memory::{Answered, LastRead, Memory};
use crate::writing::write::WriteError;

/// The path to which the status of a type is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Route {
    /// Into the object itself. Such a write makes a new generation: an `observedGeneration` in it is out of date at
    /// once, and writing it again would never end. Leave it out on this route.
    Object,
    /// Into the status subresource. A new generation means a new spec.
    Subresource,
}

/// The result of a write.
#[derive(Clone, Debug)]
pub enum Written<K> {
    /// The object after the write.
    Changed(K),
    /// The status was in this state already; nothing was sent.
    Unchanged,
}

/// Writes the status of objects of one type. Keep one for as long as the controller runs: it caches the route, and
/// remembers its writes.
pub struct Writer<K: Resource> {
    client: Client,
    dynamic: K::DynamicType,
    route: Mutex<Option<Route>>,
    memory: Memory,
}

impl<K> Writer<K>
where
    K: Resource + Serialize + DeserializeOwned,
    K::DynamicType: Default,
{
    /// A writer that has not asked for the route yet.
    pub fn new(client: Client) -> Self {
        Self::new_with(client, K::DynamicType::default())
    }
}

impl<K> Writer<K>
where
    K: Resource + Serialize + DeserializeOwned,
{
    /// As [`Writer::new`], for a type that is known at run time, such as `DynamicObject` with its `ApiResource`.
    pub fn new_with(client: Client, dynamic: K::DynamicType) -> Self {
        Self { client, dynamic, route: Mutex::new(None), memory: Memory::default() }
    }

    /// The route of the status, from discovery, cached.
    ///
    /// # Errors
    /// [`WriteError`]; not found when the type is not served.
    pub async fn route(&self) -> Result<Route, WriteError> {
        let known = *self.route.lock();
        match known {
            Some(route) => Ok(route),
            None => self.discover().await,
        }
    }

    /// Makes `status` the status of `current`, with a merge patch of the difference. Fields of the current status that
    /// `status` does not have are removed. The last writer wins: a status must have one writer, and is computed from
    /// the observed state.
    ///
    /// `current` may come from a cache without the last write of this writer: then `status` is compared with that
    /// write. If its answer was lost, or the call was cancelled, the status is sent in any case.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn write(&self, current: &K, status: &impl Serialize) -> Result<Written<K>, WriteError> {
        let key = ObjectKey::of(current);
        let not_json =
            |error| patch::failed::<K>(&self.dynamic, "write the status of", &key, kube::Error::SerdeError(error));
        let wanted = serde_json::to_value(status).map_err(not_json)?;
        let present = status_of(current).map_err(not_json)?;
        let uid = current.meta().uid.as_deref().unwrap_or_default();
        let version = current.meta().resource_version.as_deref().unwrap_or_default();
        let possible = self.memory.possible(&key, LastRead { uid, version, status: &present });
        let differences = possible.iter().filter_map(|possible| patch::merge_diff(possible, &wanted));
        // Each difference sets members to the wanted values or removes them, so all of them can be merged.
        let Some(difference) = differences.reduce(overlay) else { return Ok(Written::Unchanged) };
        let mut patch = patch::on_object(current.meta().uid.as_deref(), None);
        patch["status"] = difference.clone();
        let route = self.route().await?;
        self.memory.sending(&key, uid, wanted);
        let written = self.send_somewhere(&key, route, &difference, &patch).await;
        match &written {
            Ok(object) => {
                let version = object.meta().resource_version.clone().unwrap_or_default();
                let answered = status_of(object).map(|status| Answered { version, status });
                self.memory.done(&key, uid, answered.map_err(not_json)?);
            }
            Err(error) if error.is_refusal() => self.memory.refused(&key),
            // The write may have been done, or be done later.
            Err(_) => {}
        }
        written.map(Written::Changed)
    }

    /// Sends the patch to the current route, which may have changed.
    async fn send_somewhere(
        &self,
        key: &ObjectKey,
        route: Route,
        difference: &Value,
        patch: &Value,
    ) -> Result<K, WriteError> {
        let first = self.send(key, route, patch).await;
        let is_misrouted = match (&first, route) {
            // The subresource or the object no longer exists: ask for the route again.
            (Err(error), Route::Subresource) => error.is_not_found(),
            // The server drops the status from writes of an object that has a status subresource.
            (Ok(object), Route::Object) => !shows(object, difference),
            _ => false,
        };
        if !is_misrouted {
            return first;
        }
        let learned = self.discover().await?;
        if learned == route {
            return first;
        }
        self.send(key, learned, patch).await
    }

    async fn send(&self, key: &ObjectKey, route: Route, patch: &Value) -> Result<K, WriteError> {
        match route {
            Route::Object => patch::merge_with(&self.client, &self.dynamic, key, patch).await,
            Route::Subresource => {
                patch::merge_subresource_with(&self.client, &self.dynamic, key, "status", patch).await
            }
        }
    }

    async fn discover(&self) -> Result<Route, WriteError> {
        let (group, version) = (K::group(&self.dynamic), K::api_version(&self.dynamic));
        let prefix = if group.is_empty() { "/api" } else { "/apis" };
        let failed = |error| patch::failed::<K>(&self.dynamic, "discover", &ObjectKey::cluster(&version), error);
        let request = http::Request::get(format!("{prefix}/{version}"))
            .body(Vec::new())
            .map_err(|error| failed(kube::Error::HttpError(error)))?;
        let served: APIResourceList = self.client.request(request).await.map_err(failed)?;
        let name = format!("{}/status", K::plural(&self.dynamic));
        let has_status = served.resources.iter().any(|resource| resource.name == name);
        let route = if has_status { Route::Subresource } else { Route::Object };
        *self.route.lock() = Some(route);
        Ok(route)
    }
}

impl<K: Resource> fmt::Debug for Writer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("route", &*self.route.lock()).finish_non_exhaustive()
    }
}

/// The status of `object`; empty if it has none.
fn status_of<K: Serialize>(object: &K) -> Result<Value, serde_json::Error> {
    let mut tree = serde_json::to_value(object)?;
    Ok(tree.get_mut("status").map(Value::take).filter(|status| !status.is_null()).unwrap_or_else(|| json!({})))
}

/// Adds the members of `other` to those of `patch`.
fn overlay(mut patch: Value, other: Value) -> Value {
    match (&mut patch, other) {
        (Value::Object(members), Value::Object(others)) => {
            for (key, other) in others {
                let member = members.remove(&key);
                let member = match member {
                    None => other,
                    Some(member) => overlay(member, other),
                };
                members.insert(key, member);
            }
            patch
        }
        (_, other) => other,
    }
}

/// Whether the status of `object` already has the result of a patch: patching it again would change nothing.
fn shows<K: Serialize>(object: &K, difference: &Value) -> bool {
    let Ok(tree) = serde_json::to_value(object) else { return true };
    contains(tree.get("status").unwrap_or(&Value::Null), difference)
}

fn contains(tree: &Value, patch: &Value) -> bool {
    match patch {
        Value::Null => tree.is_null(),
        Value::Object(members) => {
            members.iter().all(|(key, member)| contains(tree.get(key).unwrap_or(&Value::Null), member))
        }
        other => tree == other,
    }
}
