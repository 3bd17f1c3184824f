//! Simulated nodes: Nodes that report ready, and Pods on them that report running, although no program runs.
//!
//! This is not a loop of kube-controller-manager. It does what the kubelets of a cluster do towards the API server, for
//! any number of nodes: each node registers, renews its Lease and posts its status as the user `system:node:NAME`, and
//! the Pods bound to it start, become ready, end, fail and restart, with a kubelet's conditions, reasons and Events.
//! Besides the nodes that it creates, it simulates every Node with the label `simulate.steersman.dev/node: "true"`. The
//! behavior of containers is set by the annotations of a Pod (`behavior`), and by objects of the kind `Stage`
//! (`stage`), which is defined when the simulation starts. A Node with the annotation
//! `simulate.steersman.dev/goes-away: "true"` sends no heartbeats until the annotation is removed.
//!
//! One task simulates all nodes (`run`); a Pod is a state machine (`pod`) that is woken by its changes and by timers,
//! so that an idle cluster causes no writes but Leases. Programs that embed a control plane call
//! [`Simulation::add_to`]. Follows kubernetes' `pkg/kubelet`.

mod agent;
mod node;
mod outbox;
pub(crate) mod pod;
mod requests;
mod run;
mod stage;
mod unmanaged_pods;
mod written;

pub use crate::kubelet::agent::Agent;

use crate::identity::Identity;
use crate::loops::storage::volumes::provisioner;
use jiff::Timestamp;
use kube::Client;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use steersman::Manager;
use tokio::sync::watch;

/// The names of the simulation and of its reader of Stages in logs and metrics.
const NAME: &str = "simulated-nodes";
const STAGES: &str = "simulated-stages";

/// Returns a client for a user of the cluster.
pub type ClientOf = Arc<dyn Fn(Identity) -> Client + Send + Sync>;

/// A set of simulated nodes.
#[derive(Clone)]
pub struct Simulation {
    n_nodes: usize,
    client_of: ClientOf,
    clock: fn() -> Timestamp,
    agent: Agent,
}

// === impl Identity ===

impl Identity {
    fn node(name: &str) -> Identity {
        Identity {
            groups: vec!["system:nodes".to_owned()],
            ..Identity::user(&format!("system:node:{name}"), "kubelet")
        }
    }

    /// The user that provisions volumes for the simulated nodes' storage class, and defines the class. The bootstrap
    /// roles include one for it.
    fn provisioner() -> Identity {
        Identity::user("system:steersman:simulated-provisioner", "simulated-provisioner")
    }

    /// The user that defines the kind `Stage` and reads Stages. The bootstrap roles include one for it.
    fn stages() -> Identity {
        Identity::user("system:steersman:simulated-stages", "simulated-stages")
    }

    /// The node controller's user, which removes the taint from a node that is ready.
    fn node_controller() -> Identity {
        Identity::controller("node-controller")
    }
}

// === impl Simulation ===

impl Simulation {
    /// Creates the nodes `node-1` to `node-N`, unless they exist, and simulates them and all nodes with the label.
    pub fn new(n_nodes: usize, client_of: ClientOf) -> Simulation {
        Simulation { n_nodes, client_of, clock: Timestamp::now, agent: Agent::default() }
    }

    /// Takes the time from another clock.
    pub fn clock(mut self, clock: fn() -> Timestamp) -> Simulation {
        self.clock = clock;
        self
    }

    /// Lets `agent` answer for the nodes.
    pub fn agent(mut self, agent: Agent) -> Simulation {
        self.agent = agent;
        self
    }

    /// Adds the nodes to a manager, whose informers watch all Pods, Nodes and Namespaces. Also adds the provisioner of
    /// the class `simulated`. The loop `scheduler` binds Pods to the nodes.
    pub fn add_to(self, manager: Manager) -> Manager {
        let manager = provisioner::add(manager, (self.client_of)(Identity::provisioner()));
        let (stages, observed) = watch::channel(None);
        let informers = run::Informers::of(manager.informers(), observed);
        informers.connect(&self.agent);
        let client = (self.client_of)(Identity::stages());
        let manager = manager.run_always(STAGES, move |stop| async move {
            stage::watch::watch(client, stages, stop).await;
            Ok::<(), Infallible>(())
        });
        manager.run_always(NAME, move |stop| run::run(self, informers, stop))
    }

    /// The names of the nodes that a simulation creates.
    pub fn names(n_nodes: usize) -> impl Iterator<Item = String> {
        (0..n_nodes).map(Simulation::name)
    }

    fn name(index: usize) -> String {
        format!("node-{}", index.saturating_add(1))
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation").field("n_nodes", &self.n_nodes).finish_non_exhaustive()
    }
}
