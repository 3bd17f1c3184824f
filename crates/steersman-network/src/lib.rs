//! The Network operator: `Network` objects of `samplecrd.k8s.io/v1` made real in OpenStack Neutron.
//!
//! Each object gets one Neutron network and one subnet, found again by the id in the object's status and by a marker
//! that is written in the same request as the create, so that after a lost answer a duplicate is found and removed. A
//! reconcile observes the resources, asks [`plan`] for the next step, takes it, and goes on until nothing is left to
//! do; `plan` is pure. Once per interval a survey lists everything in Neutron, finds changes made there, and removes
//! networks that have no object any more.
//!
//! The operator depends on neither a server nor a store: everything goes through a `kube::Client` and a [`Cloud`], and
//! it uses only what the controller library offers to every user. It installs no CRD: it waits until one exists.
//! `client.rs` and the files below it are generated from `manifests/crd/network-v1.yaml`: `cargo xtask codegen` has the
//! command, and CI checks that they are up to date.

pub use crate::reconcile::{desired, plan};
pub mod api;
#[rustfmt::skip]
pub mod client;
pub mod identity;
pub mod permissions;

mod cluster;
mod event;
mod metrics;
mod read_access;
mod reconcile;
mod status;

pub use crate::api::Network;
pub use crate::identity::{ClusterId, InvalidClusterId};

use crate::client::Informers as _;
use crate::cluster::Cluster;
use crate::metrics::Counts;
use crate::read_access::ReadAccess;
use crate::reconcile::Context;
use crate::reconcile::pending::Pending;
use crate::reconcile::snapshot::Snapshots;
use crate::reconcile::survey::Survey;
use kube::Client;
use std::sync::Arc;
use std::time::Duration;
use steersman::events::EventRecorder;
use steersman::{Controller, Manager, ManagerError};
use steersman_neutron::Cloud;

/// The name of the operator in Events, in finalizers and in the markers of its networks.
pub const NAME: &str = "network-controller";
/// Keeps an object until its network is gone from Neutron.
pub const FINALIZER: &str = "samplecrd.k8s.io/neutron-network";
/// The default interval between two listings of everything in Neutron.
pub const DRIFT_INTERVAL: Duration = Duration::from_secs(60);
/// The default time for which a network without an object is kept.
pub const ORPHAN_GRACE: Duration = Duration::from_secs(600);

/// Objects reconciled at a time.
const WORKERS: usize = 4;
/// How long one reconcile may take: a dozen calls to a slow Neutron.
const RECONCILE_TIMEOUT: Duration = Duration::from_secs(180);
/// How long reconciles may go on after the shutdown began: shorter than the grace period of a Pod, and enough for calls
/// that Neutron answers. A network whose create is cut off after that has its marker already, and the next operator
/// finishes it.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(30);
/// How long the last Events may take to be written, since the API server may be gone.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Options of the operator.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Options {
    /// The cluster whose networks belong to the operator; by default the uid of the namespace `kube-system`.
    pub cluster: Option<ClusterId>,
    /// The interval between two listings of everything in Neutron, to find changes made there.
    pub drift_interval: Duration,
    /// How long a network with the cluster's marker is kept after its object is gone.
    pub orphan_grace: Duration,
    /// The namespace of the Lease [`NAME`], if the manager uses it for its election: the operator then needs the
    /// permissions for it.
    pub lease_namespace: Option<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options { cluster: None, drift_interval: DRIFT_INTERVAL, orphan_grace: ORPHAN_GRACE, lease_namespace: None }
    }
}

/// Runs the operator until `shutdown` resolves; reconciles under way end first, or are cut off after [`SHUTDOWN_GRACE`].
///
/// # Errors
/// When the controllers cannot be run, or reconciles were cut off at the end: the next operator finds their networks,
/// and finishes them.
pub async fn run(
    client: Client,
    cloud: Arc<dyn Cloud>,
    options: Options,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ManagerError> {
    run_with(Manager::new(client), cloud, options, shutdown).await
}

/// As [`run`], in a manager that is already set up: with metrics and a port, with an election.
///
/// # Errors
/// As [`run`].
pub async fn run_with(
    manager: Manager,
    cloud: Arc<dyn Cloud>,
    options: Options,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ManagerError> {
    let client = manager.informers().client().clone();
    let networks = manager.informers().samplecrd_v1().networks().lister();
    let events = EventRecorder::new(client.clone(), NAME);
    let rules = permissions::rules(&options);
    let counts = Counts::default();
    counts.register(manager.metrics());
    let cloud = counts.measure(cloud);
    let cluster = Arc::new(Cluster::new(options.cluster));
    let (read_access, possible_duplicates) = (Arc::<ReadAccess>::default(), Arc::default());
    // Two intervals: one listing may fail.
    let snapshots = Arc::new(Snapshots::new(2 * options.drift_interval));
    let context = Context {
        client: client.clone(),
        networks: networks.clone(),
        status: steersman::status::Writer::new(client.clone()),
        events: events.clone(),
        cloud: Arc::clone(&cloud),
        cluster: Arc::clone(&cluster),
        pending: Pending::default(),
        read_access: Arc::clone(&read_access),
        snapshots: Arc::clone(&snapshots),
        possible_duplicates: Arc::clone(&possible_duplicates),
    };
    let controller = Controller::<Network>::new(reconcile::reconcile, context)
        .name(NAME)
        .workers(WORKERS)
        .timeout(RECONCILE_TIMEOUT)
        .grace(SHUTDOWN_GRACE)
        .rate_limiter(reconcile::outcome::limiter())
        .when(reconcile::is_relevant);
    let survey = Survey {
        client: client.clone(),
        cloud,
        cluster,
        networks,
        queue: controller.queue(),
        snapshots,
        read_access,
        possible_duplicates,
        counts: counts.clone(),
        interval: options.drift_interval,
        orphan_grace: options.orphan_grace,
    };
    let manager = manager
        .run_always("permissions", move |stop| permissions::watch(client, rules, counts, stop))
        .run_leading("survey", move |stop| survey.run(stop))
        .controller(controller);
    let outcome = manager.run(shutdown).await;
    if tokio::time::timeout(FLUSH_TIMEOUT, events.flush()).await.is_err() {
        tracing::warn!(seconds = FLUSH_TIMEOUT.as_secs(), "some Events could not be written before the end");
    }
    outcome
}
