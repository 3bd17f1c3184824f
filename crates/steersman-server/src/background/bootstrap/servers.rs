//! The servers that work on one store, by their Leases.
//!
//! A server is live while it renews its Lease. Its address is beside it ([`advertised`]). Whether it does is seen by a clock of our own: times that other hosts have
//! written are never compared with ours.

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

/// A server that has not renewed its Lease for so long has ended. It tries every ten seconds.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// The servers, as this one has seen them.
#[derive(Debug, Default)]
pub(super) struct Servers {
    seen: HashMap<ObjectKey, Seen>,
}

#[derive(Debug)]
struct Seen {
    lease: Arc<Object>,
    /// When this Lease was first seen in this state.
    since: Instant,
}

impl Servers {
    /// Looks at the Leases.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(super) fn look(&mut self, state: &State, now: Instant) -> Result<(), Failure> {
        let is_server = |object: &Object| object.label(lease::IDENTITY_LABEL) == Some(lease::IDENTITY);
        let scope = Scope::Namespace("kube-system".into());
        let listed = state.store.list_where(&lease::leases(), &scope, At::Latest, Page::ALL, is_server);
        let leases = listed.map_err(|error| Failure::of_read(&error))?.objects;
        let mut before = std::mem::take(&mut self.seen);
        self.seen.extend(leases.into_iter().map(|lease| {
            let known = before.remove(&lease.key).filter(|seen| seen.lease.revision == lease.revision);
            let since = known.map_or(now, |seen| seen.since);
            (lease.key.clone(), Seen { lease, since })
        }));
        Ok(())
    }

    /// The addresses of the live servers, in order. `own` is that of this server, whose own Lease is not asked.
    pub(super) fn addresses(
        &self,
        state: &State,
        key: &ObjectKey,
        own: Option<SocketAddr>,
        now: Instant,
    ) -> Vec<SocketAddr> {
        let live = self.seen.iter().filter(|(other, seen)| *other != key && now < seen.since + SILENCE_MAX);
        let addresses = live.filter_map(|(lease, _)| advertised::of(state, lease));
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
        for Seen { lease, since } in self.seen.values() {
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
