//! The Network operator: `Network` objects of `samplecrd.k8s.io/v1` made real in OpenStack Neutron.
//!
//! One Neutron network and one subnet for each object, found again by a marker that is written in the same request as the
//! create, so that a lost answer never makes a second one. A reconcile looks at what is there, asks [`plan`] for the next
//! step, takes it, and looks again until nothing is left to do; `plan` is pure.
//!
//! Nothing here knows a server or a store: everything goes through a `kube::Client` and a [`Cloud`], and it uses nothing
//! of the controller library that a user's controller could not. It installs no CRD: until one exists it waits.

pub mod api;
pub mod desired;
pub mod plan;

mod deletion;
mod event;
mod execute;
mod observe;
mod outcome;
mod pending;
mod reconcile;
mod status;

pub use crate::api::Network;

use crate::pending::Pending;
use crate::reconcile::Context;
use kube::Client;
use std::sync::Arc;
use std::time::Duration;
use steersman::{Controller, EventRecorder, Manager, ManagerError, Scope};
use steersman_neutron::Cloud;

/// The name under which the operator appears in Events, in finalizers and in the marker of what it makes.
pub const NAME: &str = "network-controller";
/// Keeps an object until its network is gone from Neutron.
pub const FINALIZER: &str = "samplecrd.k8s.io/neutron-network";

/// Objects reconciled at a time.
const WORKERS: usize = 4;
/// How long one reconcile may take: a dozen calls to a slow Neutron.
const RECONCILE_TIMEOUT: Duration = Duration::from_secs(180);
/// How long the last Events may take to be written: the API server may be gone, and then nobody takes them.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs the operator until `shutdown` resolves; reconciles under way end first.
///
/// # Errors
/// When the controllers cannot be run, or were cut off at the end.
pub async fn run(
    client: Client,
    cloud: Arc<dyn Cloud>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ManagerError> {
    run_with(Manager::new(client), cloud, shutdown).await
}

/// As [`run`], in a manager that is already set up: with metrics and a port, with an election.
///
/// # Errors
/// As [`run`].
pub async fn run_with(
    manager: Manager,
    cloud: Arc<dyn Cloud>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ManagerError> {
    let client = manager.informers().client().clone();
    let networks = manager.informers().informer::<Network>(Scope::All).lister();
    let events = EventRecorder::new(client.clone(), NAME);
    let context = Context {
        networks,
        status: steersman::status::Writer::new(client.clone()),
        events: events.clone(),
        pending: Pending::default(),
        client,
        cloud,
    };
    let controller = Controller::<Network>::new(reconcile::reconcile, context)
        .name(NAME)
        .workers(WORKERS)
        .timeout(RECONCILE_TIMEOUT);
    let outcome = manager.controller(controller).run(shutdown).await;
    if tokio::time::timeout(FLUSH_TIMEOUT, events.flush()).await.is_err() {
        tracing::warn!(seconds = FLUSH_TIMEOUT.as_secs(), "some Events could not be written before the end");
    }
    outcome
}
