//! The servers that work on one store.
//!
//! A server is live while it writes its address ([`advertised`]) again. Whether it does is seen by a clock of our own: times that other hosts
//! have written are never compared with ours. Leases of servers, which others than servers may write too, are only removed when they
//! have expired.

use crate::background::bootstrap::{advertised, lease};
use crate::shared::conversion;
use crate::shared::status::Failure;
use crate::state::State;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use steersman_machinery::value::at;
use steersman_machinery::{Object, ObjectKey, Value};
use steersman_storage::{At, Page, Scope, WriteError};
use tokio::time::Instant;

/// A server that has not written its address for so long has ended. It tries every ten seconds.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// The servers, as this one has seen them.
#[derive(Debug, Default)]
pub(super) struct Servers {
    addresses: Sightings,
    leases: Sightings,
}

/// Entries, as this server has seen them.
#[derive(Debug, Default)]
struct Sightings(HashMap<ObjectKey, Seen>);

#[derive(Debug)]
struct Seen {
    entry: Arc<Object>,
    /// When the entry was first seen in this state.
    since: Instant,
}

impl Sightings {
    fn look(&mut self, entries: Vec<Arc<Object>>, now: Instant) {
        let mut before = std::mem::take(&mut self.0);
        self.0.extend(entries.into_iter().map(|entry| {
            let known = before.remove(&entry.key).filter(|seen| seen.entry.revision == entry.revision);
            let since = known.map_or(now, |seen| seen.since);
            (entry.key.clone(), Seen { entry, since })
        }));
    }
}

impl Servers {
    /// Looks at the addresses and the Leases.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(super) fn look(&mut self, state: &State, now: Instant) -> Result<(), Failure> {
        let is_server = |object: &Object| object.label(lease::IDENTITY_LABEL) == Some(lease::IDENTITY);
        let scope = Scope::Namespace("kube-system".into());
        let listed = state.store.list_where(&lease::leases(), &scope, At::Latest, Page::ALL, is_server);
        self.leases.look(listed.map_err(|error| Failure::of_read(&error))?.objects, now);
        let listed = state.store.list(&advertised::resource(), &Scope::All, At::Latest, Page::ALL);
        self.addresses.look(listed.map_err(|error| Failure::of_read(&error))?.objects, now);
        Ok(())
    }

    /// The addresses of the live servers, in order. `own` is that of the server that has this Lease, which need not have written it yet.
    pub(super) fn addresses(&self, lease: &ObjectKey, own: Option<SocketAddr>, now: Instant) -> Vec<SocketAddr> {
        let own_key = advertised::key(lease);
        let live = self.addresses.0.iter().filter(|(key, seen)| **key != own_key && now < seen.since + SILENCE_MAX);
        let addresses = live.filter_map(|(_, seen)| advertised::of(&seen.entry));
        let mut addresses: Vec<SocketAddr> = addresses.chain(own).collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }

    /// Deletes the Leases that have not been renewed for longer than they last.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub(super) async fn delete_expired(&self, state: &State, now: Instant) -> Result<(), Failure> {
        for Seen { entry: lease, since } in self.leases.0.values() {
            // One that lasts beyond all time never expires.
            if since.checked_add(lasts(&conversion::parse(lease)?)).is_none_or(|end| now < end) {
                continue;
            }
            advertised::remove(state, &lease.key).await?;
            match state.store.delete(&lease::leases(), &lease.key, lease.revision).await {
                Ok(_) | Err(WriteError::Conflict { .. }) => {}
                Err(error) => return Err(Failure::of_write(&error, &lease::leases(), &lease.key.name)),
            }
        }
        Ok(())
    }
}

fn lasts(lease: &Value) -> Duration {
    let seconds = at(lease, &["spec", "leaseDurationSeconds"]).and_then(Value::as_u64);
    seconds.map_or(SILENCE_MAX, |seconds| Duration::from_secs(seconds).max(SILENCE_MAX))
}
