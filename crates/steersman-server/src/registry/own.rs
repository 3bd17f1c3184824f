//! Requests of the server itself: they take the same way through the registry as everyone's.

use crate::catalog::{Scope, Served};
use crate::query::Query;
use crate::registry::context::Context;
use crate::request_info::Target;
use crate::server::Inner;
use crate::user::User;
use http::HeaderMap;
use std::sync::Arc;
use steersman_machinery::ObjectKey;

/// What a request of the server's own is made of.
#[derive(Debug)]
pub(crate) struct Own {
    target: Target,
    user: User,
    query: Query,
    headers: HeaderMap,
}

impl Own {
    /// A request about an object.
    pub(crate) fn object(served: &Served, key: &ObjectKey) -> Own {
        let mut own = Own::collection(served, key.namespace.as_deref());
        own.target.name = Some(key.name.to_string());
        own.target.has_name_in_path = true;
        own
    }

    /// A request about the objects of a namespace, or of all.
    pub(crate) fn collection(served: &Served, namespace: Option<&str>) -> Own {
        let is_namespaced = served.resource.scope == Scope::Namespaced;
        let target = Target {
            group: served.resource.group.to_string(),
            version: served.version().name.to_string(),
            resource: served.resource.plural.to_string(),
            namespace: namespace.filter(|_| is_namespaced).map(str::to_owned),
            ..Target::default()
        };
        let query = Query::parse("fieldManager=steersman");
        Own { target, user: User::master("system:apiserver"), query, headers: HeaderMap::new() }
    }

    /// The request as the registry takes it.
    pub(crate) fn context<'a>(&'a self, server: &'a Arc<Inner>, served: &'a Served, verb: &'static str) -> Context<'a> {
        Context {
            server,
            served,
            target: &self.target,
            verb,
            user: &self.user,
            query: &self.query,
            headers: &self.headers,
            now: server.now(),
            warnings: Vec::new(),
        }
    }
}
