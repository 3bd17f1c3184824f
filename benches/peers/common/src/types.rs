//! The types in the form in which an author of a controller would write them, and the indexed field.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// The wanted state of a database.
#[derive(Clone, CustomResource, Debug, Deserialize, Serialize)]
#[kube(group = "example.com", version = "v1", kind = "Database", plural = "databases", namespaced)]
#[kube(schema = "disabled", status = "DatabaseStatus")]
#[serde(rename_all = "camelCase")]
pub struct DatabaseSpec {
    /// The cluster in which it runs; the indexed field.
    pub cluster: String,
    pub engine: String,
    pub engine_version: String,
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
    pub replicas: i32,
    pub storage_class: String,
    pub storage_gigabytes: i64,
}

/// The observed state.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct DatabaseStatus {
    #[serde(default)]
    pub conditions: Vec<Condition>,
    pub endpoint: Option<String>,
    pub phase: Option<String>,
}

/// An object with an indexed field in its spec.
pub trait Indexed {
    fn index_value(&self) -> Option<&str>;
}

impl Indexed for Database {
    fn index_value(&self) -> Option<&str> {
        Some(&self.spec.cluster)
    }
}

impl Indexed for Pod {
    fn index_value(&self) -> Option<&str> {
        self.spec.as_ref()?.node_name.as_deref()
    }
}
