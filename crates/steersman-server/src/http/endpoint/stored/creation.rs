//! The rest of a creation whose object has initializers: it is answered when the object is initialized.
//!
//! The wait is no part of carrying out the request: it holds no seat, no place among the requests in flight, and no
//! task. It is a future that the connection polls, with a cursor into the events of the object. It ends with the
//! object's initialization or deletion, with the request's timeout, when its client disconnects, and when the server
//! stops; in the last three cases the object is not changed.

use crate::http::answer::Answer;
use crate::http::representation::Representation;
use crate::shared::conversion;
use crate::shared::request::payload::Payload;
use crate::shared::status::Failure;
use crate::state::State;
use crate::write::initializers::field;
use crate::write::initializers::figures::Waiting;
use std::sync::Arc;
use steersman_machinery::status::Status;
use steersman_machinery::value::{at, str_at};
use steersman_machinery::{GroupResource, Object, Revision};
use steersman_storage::{Interest, Kind, Scope, WatchError, Watcher};

/// The most events taken at a time. Initializers are few.
const BATCH_MAX: usize = 16;

/// A waiting creation.
pub(super) struct Creation {
    pub(super) state: Arc<State>,
    /// Counts the creation until it is answered or abandoned.
    pub(super) _counted: Waiting,
    /// The resource under which the object is stored.
    pub(super) storage: GroupResource,
    /// The resource in the form in which errors name it.
    pub(super) resource: GroupResource,
    pub(super) created: Arc<Object>,
    pub(super) representation: Representation,
}

impl Creation {
    /// The answer, after the initialization.
    ///
    /// # Errors
    /// With the result of a failed initialization; 500 when the object was deleted; 503 when the server stops.
    pub(super) async fn finish(self) -> Result<Answer, Failure> {
        let object = self.initialized().await?;
        Answer::object(201, Payload::Stored(object), &self.representation).await
    }

    async fn initialized(&self) -> Result<Arc<Object>, Failure> {
        let mut after = self.created.revision;
        loop {
            if let Some(mut watcher) = self.watcher(after) {
                loop {
                    // Both arms are cancel-safe: a batch that is not returned is not consumed.
                    let batch = tokio::select! {
                        () = self.state.stopping() => return Err(self.stopping()),
                        batch = watcher.next_batch(BATCH_MAX) => batch,
                    };
                    match batch {
                        Ok(events) => {
                            let own = events.iter().filter(|event| event.object.key == self.created.key);
                            for event in own {
                                if let Some(outcome) = self.outcome(&event.object, event.kind == Kind::Deleted)? {
                                    return Ok(outcome);
                                }
                            }
                        }
                        Err(WatchError::Closed) => return Err(self.stopping()),
                        Err(WatchError::Lagged { .. }) => break,
                    }
                }
            }
            // The history since then is gone: continue from the current object and the events after it.
            let now = self.state.store.revision();
            let Some(object) = self.state.get(&self.storage, &self.created.key).await? else {
                return Err(self.deleted());
            };
            if let Some(outcome) = self.outcome(&object, false)? {
                return Ok(outcome);
            }
            after = now;
        }
    }

    fn watcher(&self, after: Revision) -> Option<Watcher> {
        let key = &self.created.key;
        let scope = key.namespace.as_ref().map_or(Scope::All, |namespace| Scope::Namespace(namespace.clone()));
        let interest = Interest { name: Some((*key.name).into()), ..Interest::ALL };
        self.state.store.watch_for(&self.storage, scope, &interest, after).ok()
    }

    /// The object if it is initialized; `None` while it waits.
    fn outcome(&self, object: &Arc<Object>, is_deleted: bool) -> Result<Option<Arc<Object>>, Failure> {
        if object.meta().uid() != self.created.meta().uid() {
            return Err(self.deleted());
        }
        match (is_deleted, object.meta().is_uninitialized()) {
            (false, true) => Ok(None),
            (false, false) => Ok(Some(object.clone())),
            (true, _) => Err(failure(object).unwrap_or_else(|| self.deleted())),
        }
    }

    fn deleted(&self) -> Failure {
        let Creation { resource, created, .. } = self;
        Failure::internal(format!("{resource} {:?}: object deleted while waiting for creation", created.key.name))
    }

    fn stopping(&self) -> Failure {
        let Creation { resource, created, .. } = self;
        Failure::unavailable(format!(
            "the server is shutting down while {resource} {:?} waits for its initializers: it was stored, and goes on waiting",
            created.key.name
        ))
    }
}

/// The failure of an object's initialization, as its initializer or the server has recorded it.
fn failure(object: &Object) -> Option<Failure> {
    let object = conversion::parse(object).ok()?;
    let result = field::result(&object)?;
    let code = at(result, &["code"]).and_then(serde_json::Value::as_u64).and_then(|code| u16::try_from(code).ok());
    let code = code.filter(|code| (400..600).contains(code)).unwrap_or(500);
    let message = str_at(result, &["message"]).unwrap_or("the object could not be initialized");
    let mut status = Status::failure(code, str_at(result, &["reason"]), message);
    status.details = at(result, &["details"]).and_then(|details| serde_json::from_value(details.clone()).ok());
    Some(Failure::of_status(status))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::authn;
    use crate::access::authz::Authorization;
    use crate::http::representation::AnswerOptions;
    use crate::shared::request::negotiate::{Encoding, Form, Layout, Negotiated};
    use crate::write::admission::Plugins;
    use crate::write::initializers::Configured;
    use futures::FutureExt as _;
    use jiff::Timestamp;
    use serde_json::{Value, json};
    use steersman_kinds::runtime_config::RuntimeConfig;
    use steersman_machinery::ObjectKey;
    use steersman_storage::{Memory, Options, Store};

    fn config(initializers: Value) -> bytes::Bytes {
        let metadata = json!({"name": "a", "namespace": "default", "uid": "u", "initializers": initializers});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}).to_string().into()
    }

    #[tokio::test]
    async fn a_creation_waits_on_when_the_history_since_it_is_gone() {
        let store = Store::open(Arc::new(Memory::new()), Options::default()).await.unwrap();
        let catalog = crate::background::definitions::configured(&RuntimeConfig::default());
        let (authentication, authorization) = (authn::Options::default(), Authorization::default());
        let plugins = Plugins::default().asked();
        let now = Timestamp::UNIX_EPOCH;
        let state =
            State::new(store.clone(), authentication, authorization, plugins, catalog, || Timestamp::UNIX_EPOCH);
        let (storage, key) = (GroupResource::new("", "configmaps"), ObjectKey::namespaced("default", "a"));
        let pending = config(json!({"pending": [{"name": "a.b.c"}]}));
        let created = store.create(&storage, &key, pending).await.unwrap();
        let other = ObjectKey::namespaced("default", "b");
        let last = store.create(&storage, &other, config(Value::Null)).await.unwrap();
        store.sync().await.unwrap();
        store.compact(last.revision).await.unwrap();
        let catalog = state.catalog();
        let negotiated = Negotiated::new(Encoding::Json, Form::Object);
        let answer_options = AnswerOptions { negotiated, layout: Layout::Compact, include_object: None, now };
        let creation = Creation {
            state: Arc::new(state),
            _counted: Waiting::begin(Arc::new(Configured::default())),
            storage: storage.clone(),
            resource: storage.clone(),
            representation: Representation::new(catalog.find("", "v1", "configmaps").unwrap(), answer_options).unwrap(),
            created: created.clone(),
        };
        let mut wait = std::pin::pin!(creation.initialized());
        assert!((&mut wait).now_or_never().is_none(), "it waits");
        store.update(&storage, &key, created.revision, config(Value::Null)).await.unwrap();
        assert!(!wait.await.unwrap().meta().is_uninitialized());
    }
}
