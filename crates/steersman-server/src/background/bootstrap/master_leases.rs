//! The entries by which kube-apiservers on one etcd know each other, beside their Leases: the address of each, which it writes again
//! every ten seconds and which goes away 15 seconds after that. Follows kubernetes' `pkg/controlplane/reconcilers/lease.go`.
//!
//! Each of them writes the addresses that it finds here into the endpoints of the Service `kubernetes`, so a server that shares their
//! etcd must be among them, and must find theirs.

use crate::background::bootstrap::{own_service, remove_entry};
use crate::shared::conversion;
use crate::shared::status::Failure;
use crate::state::State;
use serde_json::json;
use std::net::{IpAddr, SocketAddr};
use steersman_machinery::value::str_at;
use steersman_machinery::{GroupResource, Object, ObjectKey, Value};
use steersman_storage::{At, Page, Scope, WriteError};

fn resource() -> GroupResource {
    GroupResource::new("", "masterleases")
}

fn key(address: IpAddr) -> ObjectKey {
    ObjectKey::cluster(address.to_string())
}

/// Writes the entry of this server again, so that it stays.
///
/// # Errors
/// When the store refuses the write.
pub(super) async fn keep(state: &State, address: IpAddr) -> Result<(), Failure> {
    let (resource, key) = (resource(), key(address));
    let refused = |error: WriteError| Failure::of_write(&error, &resource, &key.name);
    match state.store.create(&resource, &key, entry(address, 1)).await {
        Err(WriteError::AlreadyExists { current }) => {
            // Only a write that changes something counts, so upstream raises the generation.
            let generation = conversion::parse(&current)?["metadata"]["generation"].as_i64().unwrap_or_default() + 1;
            match state.store.update(&resource, &key, current.revision, entry(address, generation)).await {
                // It has just gone away, or another server with this address has written it: the next turn is soon.
                Ok(_) | Err(WriteError::Conflict { .. }) => Ok(()),
                Err(error) => Err(refused(error)),
            }
        }
        written => written.map(|_| ()).map_err(refused),
    }
}

/// Removes the entry of this server.
///
/// # Errors
/// When the store refuses the write.
pub(super) async fn remove(state: &State, address: IpAddr) -> Result<(), Failure> {
    let (resource, key) = (resource(), key(address));
    remove_entry(state, &resource, &key).await
}

/// The addresses of the entries that are none of `known`. They name no ports: all servers are expected to have the same.
///
/// # Errors
/// When the store cannot be read.
pub(super) fn others(state: &State, known: &[SocketAddr], port: u16) -> Result<Vec<SocketAddr>, Failure> {
    let found = state.store.list(&resource(), &Scope::All, At::Latest, Page::ALL);
    let found = found.map_err(|error| Failure::of_read(&error))?.objects;
    let addresses = found.iter().filter_map(|entry| address(entry));
    let is_new = |address: &IpAddr| !known.iter().any(|known| known.ip() == *address);
    Ok(addresses.filter(is_new).map(|address| SocketAddr::new(address, port)).collect())
}

fn address(entry: &Object) -> Option<IpAddr> {
    let entry = conversion::parse(entry).ok()?;
    let first = entry["subsets"].get(0)?["addresses"].get(0)?;
    str_at(first, &["ip"])?.parse().ok().filter(own_service::is_reachable)
}

fn entry(address: IpAddr, generation: i64) -> bytes::Bytes {
    let entry: Value = json!({
        "kind": "Endpoints", "apiVersion": "v1", "metadata": {"name": &*key(address).name, "generation": generation},
        "subsets": [{"addresses": [{"ip": address.to_string()}]}],
    });
    entry.to_string().into()
}
