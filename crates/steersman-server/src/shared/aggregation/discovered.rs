//! The versions that the servers behind APIServices serve, for the documents about the API.

use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The versions of groups that other servers serve, by the name of their APIServices.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Discovered {
    pub(crate) versions: Vec<Arc<RemoteVersion>>,
}

/// A version of a group that another server serves.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct RemoteVersion {
    pub(crate) group: String,
    pub(crate) version: String,
    /// The priority of the group, and that of the version.
    pub(crate) priority: (i64, i64),
    /// Its entry in the aggregated document, with the resources and their freshness.
    pub(crate) entry: Value,
    /// The documents of OpenAPI version 3 that the server lists of the group and the version, by their paths.
    pub(crate) openapi: BTreeMap<String, Value>,
}

impl RemoteVersion {
    /// Whether the server lists a document of OpenAPI about the group itself.
    pub(crate) fn lists_openapi_of_group(&self, group: &str) -> bool {
        self.group == group && self.openapi.contains_key(&format!("apis/{group}"))
    }
}
