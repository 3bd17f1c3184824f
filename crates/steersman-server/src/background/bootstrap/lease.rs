//! The server's own Lease in `kube-system`, with its identity and expiry. Clients and tools count servers by these
//! Leases.
//!
//! Upstream renews it every ten seconds; here it is renewed well within its duration of an hour, because every renewal
//! is a write.

use crate::background::bootstrap::{assign, create};
use crate::shared::status::Failure;
use crate::shared::uid;
use crate::state::State;
use jiff::Timestamp;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use steersman_machinery::time as times;
use steersman_machinery::value::{set_at, str_at};
use steersman_machinery::{GroupResource, ObjectKey, Value, name};
use tokio::task::JoinHandle;

const SECONDS: u64 = 3600;
const INTERVAL: Duration = Duration::from_secs(600);
/// The least time between two renewals.
const RECENT_SECONDS: i64 = 300;
/// The number of digits of an address's digest in the identity.
const DIGITS: usize = 26;

/// Writes the lease, and starts the task that renews it until the server stops.
///
/// # Errors
/// When the store refuses a write.
pub(crate) async fn start(state: &Arc<State>, address: &str) -> Result<JoinHandle<()>, Failure> {
    let key = ObjectKey::namespaced("kube-system", &*identity(address));
    let holder = format!("{}_{}", key.name, uid::random());
    create(state, &leases(), &key, lease(&key, address, &holder, state.now())).await?;
    renew(state, &key, &holder).await?;
    let state = state.clone();
    Ok(tokio::spawn(async move {
        loop {
            // Both arms are cancel-safe: they have no state.
            tokio::select! {
                () = state.stopping() => return,
                () = tokio::time::sleep(INTERVAL) => {}
            }
            if let Err(failure) = renew(&state, &key, &holder).await {
                let message = &failure.status.message;
                tracing::warn!(message, "the lease of the server could not be renewed; it is tried again later");
            }
        }
    }))
}

/// Renews the Lease, unless it was renewed so recently that it can wait for the next time: a start without changes
/// writes nothing.
async fn renew(state: &State, key: &ObjectKey, holder: &str) -> Result<(), Failure> {
    let now = state.now();
    assign(state, &leases(), key, &|lease| {
        let renewed = str_at(lease, &["spec", "renewTime"]).and_then(times::parse);
        let age = renewed.map_or(i64::MAX, |renewed| now.as_second().saturating_sub(renewed.as_second()));
        if !(0..RECENT_SECONDS).contains(&age) {
            set_at(lease, &["spec", "holderIdentity"], holder.into());
            set_at(lease, &["spec", "renewTime"], micros(now).into());
        }
    })
    .await
}

fn lease(key: &ObjectKey, address: &str, holder: &str, now: Timestamp) -> Value {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let mut lease = json!({
        "kind": "Lease", "apiVersion": "coordination.k8s.io/v1",
        "metadata": {
            "name": &*key.name, "namespace": "kube-system",
            "labels": {"apiserver.kubernetes.io/identity": "kube-apiserver"},
        },
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": SECONDS, "renewTime": micros(now)},
    });
    // An IPv6 address is not a valid label value.
    let host = if name::label_value(host).is_empty() { host } else { "" };
    set_at(&mut lease, &["metadata", "labels", "kubernetes.io/hostname"], host.into());
    lease
}

/// A name that stays the same as long as the server has the same address.
fn identity(address: &str) -> String {
    let digest = Sha256::digest(address);
    let mut identity = "apiserver-".to_owned();
    for byte in &digest[..DIGITS / 2] {
        // Writes to a string cannot fail.
        let _ = write!(identity, "{byte:02x}");
    }
    identity
}

/// A time in the format of Leases.
fn micros(time: Timestamp) -> String {
    format!("{:.6}", time)
}

fn leases() -> GroupResource {
    GroupResource::new("coordination.k8s.io", "leases")
}
