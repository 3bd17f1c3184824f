//! What every stage of a request needs to know of it.

use crate::authz::{self, Attributes};
use crate::catalog::{Resource, Scope, Served, Verb, Version};
use crate::chain::WARNINGS_BYTES_MAX;
use crate::query::Query;
use crate::request_info::Target;
use crate::server::Inner;
use crate::status::Failure;
use crate::strategy::{Endpoint, Strategy};
use crate::user::User;
use http::HeaderMap;
use jiff::Timestamp;
use std::sync::Arc;
use steersman_machinery::{GroupResource, Object, ObjectKey, Value};
use steersman_storage::{ReadError, WriteError};

/// A request on a resource.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) server: &'a Arc<Inner>,
    pub(crate) served: &'a Served,
    pub(crate) target: &'a Target,
    pub(crate) verb: &'static str,
    pub(crate) user: &'a User,
    pub(crate) query: &'a Query,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) now: Timestamp,
    /// What the client is told beside the answer; each text once.
    pub(crate) warnings: Vec<String>,
}

impl<'a> Context<'a> {
    pub(crate) fn resource(&self) -> &'a Resource {
        &self.served.resource
    }

    pub(crate) fn version(&self) -> &'a Version {
        self.served.version()
    }

    pub(crate) fn strategy(&self) -> &'a dyn Strategy {
        &*self.served.resource.strategy
    }

    /// The resource as errors name it.
    pub(crate) fn group_resource(&self) -> GroupResource {
        self.resource().group_resource()
    }

    /// Where its objects are stored.
    pub(crate) fn storage(&self) -> &'a GroupResource {
        &self.resource().storage
    }

    pub(crate) fn is_namespaced(&self) -> bool {
        self.resource().scope == Scope::Namespaced
    }

    pub(crate) fn allows(&self, verb: Verb) -> bool {
        self.resource().verbs.contains(&verb)
    }

    /// Where a write comes in.
    pub(crate) fn endpoint(&self) -> Endpoint {
        match self.target.subresource.as_deref() {
            // A scale is a change of the object itself.
            None | Some("scale") => Endpoint::Main,
            Some("status") => Endpoint::Status,
            Some(_) => Endpoint::Other,
        }
    }

    /// The name in the path; empty for a collection.
    pub(crate) fn name(&self) -> &'a str {
        self.target.name.as_deref().unwrap_or("")
    }

    /// The namespace in the path, where the resource has namespaces.
    pub(crate) fn namespace(&self) -> Option<&'a str> {
        self.target.namespace.as_deref().filter(|_| self.is_namespaced())
    }

    /// The key of an object of this resource in the namespace of the path.
    pub(crate) fn key(&self, name: &str) -> ObjectKey {
        match self.namespace() {
            Some(namespace) => ObjectKey::namespaced(namespace, name),
            None => ObjectKey::cluster(name),
        }
    }

    /// The scope of a list or watch.
    pub(crate) fn list_scope(&self) -> steersman_storage::Scope {
        self.namespace()
            .map_or(steersman_storage::Scope::All, |namespace| steersman_storage::Scope::Namespace(namespace.into()))
    }

    /// The object of the path, if it is there.
    pub(crate) async fn find(&self) -> Result<Option<Arc<Object>>, Failure> {
        let found = self.server.store.get(self.storage(), &self.key(self.name())).await;
        found.map_err(|error| read_failure(&error))
    }

    /// The object of the path.
    pub(crate) async fn current(&self) -> Result<Arc<Object>, Failure> {
        self.find().await?.ok_or_else(|| Failure::not_found(&self.group_resource(), self.name()))
    }

    /// The internal form of a stored object.
    pub(crate) fn internal(&self, object: &Object) -> Result<Value, Failure> {
        Ok(self.strategy().load(self.resource(), self.version(), tree(object)?))
    }

    /// The requested form of a stored object.
    pub(crate) fn requested(&self, object: &Object) -> Result<Value, Failure> {
        Ok(self.strategy().present(self.version(), self.internal(object)?))
    }

    /// The client's name for itself: `fieldManager`, else what stands before the slash of its `User-Agent`.
    pub(crate) fn manager(&self, field_manager: Option<&str>) -> String {
        const BYTES_MAX: usize = 128;
        if let Some(manager) = field_manager {
            return manager.to_owned();
        }
        let agent = self.headers.get(http::header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or("");
        let name = agent.split('/').next().unwrap_or("");
        let name: String = name.chars().filter(|char| !char.is_control()).take(BYTES_MAX).collect();
        if name.is_empty() { "unknown".to_owned() } else { name }
    }

    /// The time of the request as objects carry it: UTC, to the second.
    pub(crate) fn now_text(&self) -> String {
        seconds(self.now)
    }

    /// The same request, narrowed to one object.
    pub(crate) fn narrowed<'b>(&'b self, target: &'b Target) -> Context<'b> {
        Context {
            server: self.server,
            served: self.served,
            target,
            verb: self.verb,
            user: self.user,
            query: self.query,
            headers: self.headers,
            now: self.now,
            warnings: Vec::new(),
        }
    }

    /// Refuses a user who may not do another verb on what the request is about.
    pub(crate) fn authorize(&self, verb: &'static str) -> Result<(), Failure> {
        let attributes = Attributes::Resource {
            verb,
            group: &self.target.group,
            resource: &self.target.resource,
            subresource: self.target.subresource.as_deref(),
            namespace: self.target.namespace.as_deref(),
            name: self.target.name.as_deref(),
        };
        authz::authorize(&*self.server.authorizer, self.user, &attributes)
    }

    pub(crate) fn warn(&mut self, text: String) {
        // What is beyond would not be sent: with a body full of faults looking through them all takes for ever.
        let bytes: usize = self.warnings.iter().map(String::len).sum();
        if bytes <= WARNINGS_BYTES_MAX && !self.warnings.contains(&text) {
            self.warnings.push(text);
        }
    }

    /// The answer for a write that the store refused.
    pub(crate) fn write_failure(&self, error: &WriteError, name: &str) -> Failure {
        match error {
            WriteError::AlreadyExists { .. } => Failure::already_exists(&self.group_resource(), name),
            WriteError::Conflict { .. } => Failure::modified(&self.group_resource(), name),
            WriteError::Busy => Failure::too_many_requests("the store's write queue is full; try again", 1),
            WriteError::TooLarge { .. } => Failure::too_large(error.to_string()),
            WriteError::Closed => Failure::unavailable("the server is shutting down"),
            _ => {
                tracing::error!(error = %chain(error), "a write failed");
                Failure::internal(error.to_string())
            }
        }
    }
}

/// A time to the second, in the form that objects carry.
pub(crate) fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The tree of a stored object.
pub(crate) fn tree(object: &Object) -> Result<Value, Failure> {
    serde_json::from_slice(object.json()).map_err(|error| {
        tracing::error!(key = %object.key, %error, "a stored object is not readable");
        Failure::internal(format!("the stored object {} is not readable", object.key))
    })
}

/// The answer for a read that the store refused.
pub(crate) fn read_failure(error: &ReadError) -> Failure {
    match error {
        ReadError::Compacted { .. } => Failure::expired("The resourceVersion for the provided list is too old."),
        ReadError::TooLarge { requested, current } => Failure::version_too_large(requested, current),
        ReadError::Closed => Failure::unavailable("the server is shutting down"),
        ReadError::Kv(_) => {
            tracing::error!(error = %chain(error), "a read failed");
            Failure::internal(error.to_string())
        }
    }
}

/// An error with its sources, for the log.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
