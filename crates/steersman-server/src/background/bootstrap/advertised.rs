//! The addresses at which other machines reach the servers of one store: an entry for each server, beside its Lease, which the server writes
//! again as long as it is there.
//!
//! They are entries of the store and not objects of the API: whoever may write Leases must not say where clients find the API. Their
//! group has no dot, so that no definition can have it.

use crate::background::bootstrap::lease::micros;
use crate::background::bootstrap::{own_service, remove_entry};
use crate::shared::conversion;
use crate::shared::status::Failure;
use crate::state::State;
use serde_json::{Value, json};
use std::net::SocketAddr;
use steersman_machinery::value::str_at;
use steersman_machinery::{GroupResource, Object, ObjectKey};
use steersman_storage::WriteError;

pub(super) fn resource() -> GroupResource {
    GroupResource::new("steersman", "serveraddresses")
}

/// The key of the entry of the server that has a Lease.
pub(super) fn key(lease: &ObjectKey) -> ObjectKey {
    ObjectKey::cluster(&*lease.name)
}

/// The address in an entry, if it is one that others can reach.
pub(super) fn of(entry: &Object) -> Option<SocketAddr> {
    read(entry).filter(|address| own_service::is_reachable(&address.ip()))
}

fn read(entry: &Object) -> Option<SocketAddr> {
    str_at(&conversion::parse(entry).ok()?, &["address"])?.parse().ok()
}

/// Writes the address of the server that has a Lease, again if it is there already: others count a server as ended whose entry does not change.
/// Without an address there is no entry.
///
/// # Errors
/// When the store refuses a write.
pub(super) async fn keep(state: &State, lease: &ObjectKey, address: Option<SocketAddr>) -> Result<(), Failure> {
    let Some(address) = address else { return remove(state, lease).await };
    let (resource, key) = (resource(), key(lease));
    let entry: Value = json!({
        "kind": "ServerAddress", "apiVersion": "steersman/v1", "metadata": {"name": &*key.name},
        "address": address.to_string(), "renewTime": micros(state.now()),
    });
    let entry = entry.to_string().into();
    let written = match state.store.get_cached(&resource, &key) {
        Some(found) => state.store.update(&resource, &key, found.revision, entry).await,
        None => state.store.create(&resource, &key, entry).await,
    };
    match written {
        // The entry of an earlier start of this server was not known here yet: the next turn is soon.
        Ok(_) | Err(WriteError::AlreadyExists { .. } | WriteError::Conflict { .. }) => Ok(()),
        Err(error) => Err(Failure::of_write(&error, &resource, &key.name)),
    }
}

/// Removes the entry of a server.
///
/// # Errors
/// When the store refuses the write.
pub(super) async fn remove(state: &State, lease: &ObjectKey) -> Result<(), Failure> {
    let (resource, key) = (resource(), key(lease));
    remove_entry(state, &resource, &key).await
}
