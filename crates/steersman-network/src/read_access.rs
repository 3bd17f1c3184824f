//! Decides whether a "not found" of Neutron is true.
//!
//! Neutron answers "not found" for resources that the credentials may not see, and credentials that may create need not
//! be able to read. An operator that trusted every such answer would create the network again at each reconcile. So
//! before a known network counts as gone, the credentials must have read something; where nothing else proves that, a
//! network is created for the purpose, read, and deleted. Only one at a time, so that credentials that cannot read
//! leave at most one network behind.

use crate::identity::ClusterId;
use crate::reconcile::outcome::{NotReady, Retry, SLOW};
use parking_lot::Mutex;
use std::time::Duration;
use steersman_neutron::{Cloud, NetworkCreate, NetworkId, RequestId};
use tokio::time::Instant;

/// How long a successful read counts as proof.
const PROOF: Duration = Duration::from_secs(60);
/// In place of a uid in the marker of a network that was created as a probe: the sweep removes one that was left
/// behind.
const PROBE: &str = "probe";

/// Whether the credentials can read, as far as that is known.
#[derive(Debug, Default)]
pub(crate) struct ReadAccess {
    confirmed: Mutex<Option<Instant>>,
    /// A network that was created and could not be read.
    unseen: Mutex<Option<NetworkId>>,
    turn: tokio::sync::Mutex<()>,
}

impl ReadAccess {
    /// Records that a resource of the credentials' own project was read.
    pub(crate) fn confirm(&self) {
        *self.confirmed.lock() = Some(Instant::now());
        *self.unseen.lock() = None;
    }

    /// Whether something was read within [`PROOF`].
    pub(crate) fn is_confirmed(&self) -> bool {
        self.confirmed.lock().is_some_and(|since| since.elapsed() < PROOF)
    }

    /// Waits until no other create is under way that has yet to be read; `None` where reading is proven.
    pub(crate) async fn turn(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        if self.is_confirmed() {
            return None;
        }
        let turn = self.turn.lock().await;
        if self.is_confirmed() { None } else { Some(turn) }
    }

    /// Records that a network was created and cannot be read.
    pub(crate) fn refute(&self, id: NetworkId) {
        *self.confirmed.lock() = None;
        *self.unseen.lock() = Some(id);
    }

    /// Checks that the last network that could not be read can be read now; `Ok` if there was none.
    ///
    /// # Errors
    /// The network still cannot be read, or the cloud's error.
    pub(crate) async fn recheck(&self, cloud: &dyn Cloud, request: RequestId) -> Result<(), NotReady> {
        let unseen = *self.unseen.lock();
        let Some(id) = unseen else { return Ok(()) };
        match cloud.read_network(request, id).await {
            Ok(_) => {
                self.confirm();
                Ok(())
            }
            Err(error) if error.is_not_found() => Err(unreadable(id)),
            Err(error) => Err(error.into()),
        }
    }

    /// Checks that the credentials can read, with a probe network if nothing else proves it.
    ///
    /// # Errors
    /// The credentials cannot read, or the cloud's error.
    pub(crate) async fn check(
        &self,
        cloud: &dyn Cloud,
        request: RequestId,
        cluster: &ClusterId,
    ) -> Result<(), NotReady> {
        let Some(_turn) = self.turn().await else { return Ok(()) };
        self.recheck(cloud, request).await?;
        if self.is_confirmed() {
            return Ok(());
        }
        let create = NetworkCreate {
            name: Some("network-controller/probe".to_owned()),
            description: Some(cluster.marker(PROBE)),
            ..NetworkCreate::default()
        };
        let probe = cloud.create_network(request, &create).await?.id;
        match cloud.read_network(request, probe).await {
            Ok(_) => self.confirm(),
            Err(error) if error.is_not_found() => {
                self.refute(probe);
                return Err(unreadable(probe));
            }
            Err(error) => return Err(error.into()),
        }
        match cloud.delete_network(request, probe, None).await {
            Err(error) if !error.is_not_found() => {
                tracing::warn!(network = %probe, %error, "a network made to prove that networks can be read is left; the sweep removes it");
                Ok(())
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// The error where a network was created and cannot be read.
pub(crate) fn unreadable(id: NetworkId) -> NotReady {
    let message =
        format!("network {id} was created but cannot be read: the credentials need the role reader in their project");
    NotReady::new("NeutronForbidden", message, Retry::After(5 * SLOW))
}
