//! The server's own Lease in `kube-system`, with its identity and expiry. Clients and tools count servers by these
//! Leases.
//!
//! Upstream renews it every ten seconds, and so does a server that shares its store, since others count it as ended
//! otherwise. A server that is alone renews it well within its duration of an hour, because every renewal is a write.

use crate::background::bootstrap::{assign, create};
use crate::shared::identity::uid;
use crate::shared::status::Failure;
use crate::state::State;
use jiff::Timestamp;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use steersman_machinery::time as times;
use steersman_machinery::value::{set_at, str_at};
use steersman_machinery::{GroupResource, ObjectKey, Value, name};
use tokio::task::JoinHandle;

/// The label of the Leases of servers, and its value.
pub(super) const IDENTITY_LABEL: &str = "apiserver.kubernetes.io/identity";
pub(super) const IDENTITY: &str = "kube-apiserver";
const SECONDS: u64 = 3600;
/// The number of digits of an address's digest in the identity.
const DIGITS: usize = 26;

/// The Lease of this server.
#[derive(Clone, Debug)]
pub(super) struct OwnLease {
    pub(super) key: ObjectKey,
    /// The value of the label with the name of the host.
    host: String,
    holder: String,
    /// The address at which other machines reach the server.
    pub(super) advertised: Option<SocketAddr>,
}

/// How often a Lease is renewed.
#[derive(Clone, Copy, Debug)]
struct Pace {
    interval: Duration,
    /// The least time between two renewals.
    recent_seconds: i64,
}

impl Pace {
    fn of(state: &State) -> Pace {
        match state.store.is_shared() {
            true => Pace { interval: Duration::from_secs(10), recent_seconds: 5 },
            false => Pace { interval: Duration::from_secs(600), recent_seconds: 300 },
        }
    }
}

impl OwnLease {
    pub(super) fn new(host: &str, address: &str, advertised: Option<SocketAddr>) -> OwnLease {
        let key = ObjectKey::namespaced("kube-system", &*identity(host, address));
        let holder = format!("{}_{}", key.name, uid::random());
        // The name of a host need not be a valid label value.
        let host = if name::label_value(host).is_empty() { host.to_owned() } else { String::new() };
        OwnLease { key, host, holder, advertised }
    }

    /// Writes the lease, and starts the task that renews it until the server stops.
    ///
    /// # Errors
    /// When the store refuses a write.
    pub(super) async fn start(&self, state: &Arc<State>) -> Result<JoinHandle<()>, Failure> {
        create(state, &leases(), &self.key, self.object(state.now())).await?;
        self.renew(state).await?;
        let (state, own, Pace { interval, .. }) = (state.clone(), self.clone(), Pace::of(state));
        Ok(tokio::spawn(async move {
            tokio::select! {
                () = state.stopping() => {}
                // Whoever withdraws deletes the Lease, where others look at it.
                () = state.withdrawn(), if state.store.is_shared() => {}
                () = own.renew_on(&state, interval) => {}
            }
        }))
    }

    /// Renews the Lease from time to time, and never ends.
    async fn renew_on(&self, state: &State, interval: Duration) {
        loop {
            tokio::time::sleep(interval).await;
            let renewed = match self.renew(state).await {
                Err(failure) if failure.code() == 404 => {
                    create(state, &leases(), &self.key, self.object(state.now())).await
                }
                renewed => renewed,
            };
            if let Err(failure) = renewed {
                let message = &failure.status.message;
                tracing::warn!(message, "the lease of the server could not be renewed; it is tried again later");
            }
        }
    }

    /// Renews the Lease, unless it was renewed so recently that it can wait for the next time: a start without changes
    /// writes nothing.
    async fn renew(&self, state: &State) -> Result<(), Failure> {
        let (now, Pace { recent_seconds, .. }) = (state.now(), Pace::of(state));
        assign(state, &leases(), &self.key, &|lease| {
            let renewed = str_at(lease, &["spec", "renewTime"]).and_then(times::parse);
            let age = renewed.map_or(i64::MAX, |renewed| now.as_second().saturating_sub(renewed.as_second()));
            if !(0..recent_seconds).contains(&age) {
                set_at(lease, &["spec", "holderIdentity"], self.holder.as_str().into());
                set_at(lease, &["spec", "renewTime"], micros(now).into());
                // Somebody else who may write Leases may have removed it.
                set_at(lease, &["metadata", "labels", IDENTITY_LABEL], IDENTITY.into());
            }
        })
        .await
    }

    fn object(&self, now: Timestamp) -> Value {
        lease(&self.key, &self.host, &self.holder, now)
    }
}

fn lease(key: &ObjectKey, host: &str, holder: &str, now: Timestamp) -> Value {
    let mut lease = json!({
        "kind": "Lease", "apiVersion": "coordination.k8s.io/v1",
        "metadata": {
            "name": &*key.name, "namespace": "kube-system",
            "labels": {IDENTITY_LABEL: IDENTITY},
        },
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": SECONDS, "renewTime": micros(now)},
    });
    set_at(&mut lease, &["metadata", "labels", "kubernetes.io/hostname"], host.into());
    lease
}

/// A name that stays the same as long as the server has the same address on the same host.
fn identity(host: &str, address: &str) -> String {
    let digest = Sha256::digest(format!("{host} {address}"));
    let mut identity = "apiserver-".to_owned();
    for byte in &digest[..DIGITS / 2] {
        // Writes to a string cannot fail.
        let _ = write!(identity, "{byte:02x}");
    }
    identity
}

/// A time in the format of Leases.
pub(super) fn micros(time: Timestamp) -> String {
    format!("{:.6}", time)
}

pub(super) fn leases() -> GroupResource {
    GroupResource::new("coordination.k8s.io", "leases")
}
