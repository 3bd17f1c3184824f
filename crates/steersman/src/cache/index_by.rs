//! Functions for [`Indexer::add_metadata_index`](crate::cache::Indexer::add_metadata_index): the most common lookups
//! besides keys. None decodes more than the metadata.
//!
//! ```no_run
//! # use k8s_openapi::api::core::v1::Pod;
//! # use steersman::cache::Informer;
//! # use steersman::{LookupError, index_by};
//! # fn add(pods: &Informer<Pod>, owner_uid: &str) -> Result<(), LookupError> {
//! let by_owner = pods.add_metadata_index(index_by::owner_uid);
//! let by_app = pods.add_metadata_index(index_by::label("app"));
//! let of_owner = by_owner.get(owner_uid)?;
//! # Ok(()) }
//! ```

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// By the value of one label. Objects without it are not in the index.
pub fn label(name: &str) -> impl Fn(&ObjectMeta) -> Option<String> + Send + Sync + 'static {
    let name = name.to_owned();
    move |metadata| metadata.labels.as_ref()?.get(&name).cloned()
}

/// By the uid of every owner.
pub fn owner_uid(metadata: &ObjectMeta) -> Vec<String> {
    metadata.owner_references.iter().flatten().map(|owner| owner.uid.clone()).collect()
}

/// By the uid of the owner that is the controller.
pub fn controller_uid(metadata: &ObjectMeta) -> Option<String> {
    let mut owners = metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.clone())
}
