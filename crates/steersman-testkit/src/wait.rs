//! Waits for a state of an object, by a watch: no polling, no sleeping.

use crate::plane::{ControlPlane, chain};
use futures::TryStreamExt as _;
use kube::api::{ListParams, ObjectList, WatchEvent, WatchParams};
use kube::core::{Request, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::pin::pin;
use std::time::Duration;
use steersman::ObjectKey;

/// How long to wait for a state, unless the test sets another time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

// === impl ControlPlane: waiting ===

impl ControlPlane {
    /// Waits until the object exists and meets a condition; returns it.
    ///
    /// # Panics
    /// When it does not within [`Options::patience`](crate::Options::patience); the message has the object's last
    /// state. Where time is paused, it panics at once when nothing else can happen.
    pub async fn until<K>(&self, key: &ObjectKey, condition: impl Fn(&K) -> bool) -> K
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Serialize,
    {
        let found = self.wait(key, |object: Option<&K>| object.is_some_and(&condition)).await;
        found.expect("invariant: the condition holds for no absent object")
    }

    /// Waits until no such object exists.
    ///
    /// # Panics
    /// As [`ControlPlane::until`].
    pub async fn until_gone<K>(&self, key: &ObjectKey)
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Serialize,
    {
        drop(self.wait(key, |object: Option<&K>| object.is_none()).await);
    }

    async fn wait<K>(&self, key: &ObjectKey, condition: impl Fn(Option<&K>) -> bool) -> Option<K>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Serialize,
    {
        let patience = self.patience();
        let mut last = None;
        let waited = tokio::time::timeout(patience, self.follow(key, &mut last, condition)).await;
        let kind = K::kind(&());
        match waited {
            Ok(Ok(())) => last,
            Ok(Err(error)) => panic!("{kind} {key} cannot be watched: {}", chain(&error)),
            Err(_) => {
                let state = last
                    .map_or_else(|| "absent".to_owned(), |object| serde_json::to_string(&object).unwrap_or_default());
                panic!("{kind} {key} did not become what the test waits for within {patience:?}; it is {state}")
            }
        }
    }

    /// Keeps the current state of the object in `last`, until it meets the condition.
    async fn follow<K>(
        &self,
        key: &ObjectKey,
        last: &mut Option<K>,
        condition: impl Fn(Option<&K>) -> bool,
    ) -> Result<(), kube::Error>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Serialize,
    {
        let client = self.own_client();
        let request = Request::new(K::url_path(&(), key.namespace()));
        let selector = format!("metadata.name={}", key.name());
        loop {
            let list = request.list(&ListParams::default().fields(&selector)).map_err(kube::Error::BuildRequest)?;
            let list: ObjectList<K> = client.request(list).await?;
            let version = list.metadata.resource_version.unwrap_or_default();
            *last = list.items.into_iter().next();
            if condition(last.as_ref()) {
                return Ok(());
            }
            let watch = request
                .watch(&WatchParams::default().fields(&selector), &version)
                .map_err(kube::Error::BuildRequest)?;
            let mut events = pin!(client.request_events::<K>(watch).await?);
            // After the end of a watch, everything begins again with a list.
            while let Ok(Some(event)) = events.try_next().await {
                match event {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) => *last = Some(object),
                    WatchEvent::Deleted(_) => *last = None,
                    WatchEvent::Bookmark(_) => continue,
                    WatchEvent::Error(_) => break,
                }
                if condition(last.as_ref()) {
                    return Ok(());
                }
            }
        }
    }
}
