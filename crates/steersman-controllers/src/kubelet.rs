//! Simulated nodes: Nodes that are ready, and Pods on them that run, although no program does.
//!
//! Not a loop of kube-controller-manager, but what the kubelets of a cluster do towards its API server, for as many nodes as wanted: each registers,
//! renews its Lease and posts its status as the user `system:node:NAME`, and the Pods that are bound to it begin, become ready, end,
//! fail and are begun again, with a kubelet's conditions, reasons and Events. Besides the nodes that it makes it plays every Node with the label
//! `simulate.steersman.dev/node: "true"`. What a program would do, the annotations of a Pod say (`behavior`), and objects of the kind `Stage`
//! (`stage`), which is defined when the nodes begin; a Node with the annotation
//! `simulate.steersman.dev/goes-away: "true"` is not heard of until the annotation goes.
//!
//! One task plays all nodes (`run`); a Pod is a state machine (`pod`) that is woken by its changes and by timers, so that where nothing
//! happens nothing is written but Leases. Whoever embeds a control plane calls [`Simulation::add_to`]. Follows kubernetes' `pkg/kubelet`.

mod addresses;
mod agent;
pub(crate) mod behavior;
mod container;
mod duration;
mod images;
mod logs;
mod measurements;
mod node;
mod outbox;
pub(crate) mod pod;
mod requests;
mod resources;
mod run;
mod seed;
mod stage;
mod unplayed;
pub(crate) mod usage;
mod written;

pub use crate::kubelet::agent::Agent;

use crate::scheduler::Scheduler;
use crate::volumes::provisioner;
use jiff::Timestamp;
use kube::Client;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use steersman::Manager;
use tokio::sync::watch;

/// The names under which the simulation appears in logs and metrics, and what it reads Stages with.
const NAME: &str = "simulated-nodes";
const STAGES: &str = "simulated-stages";

/// As whom a client acts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Identity {
    /// The name of the user.
    pub user: String,
    /// Its groups, besides `system:authenticated`.
    pub groups: Vec<String>,
    /// The `User-Agent` of its requests, by which the fields that it writes are managed.
    pub agent: &'static str,
}

/// Gives a client for a user of the cluster.
pub type ClientOf = Arc<dyn Fn(Identity) -> Client + Send + Sync>;

/// Nodes that are simulated.
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
        Identity { user: format!("system:node:{name}"), groups: vec!["system:nodes".to_owned()], agent: "kubelet" }
    }

    fn scheduler() -> Identity {
        Identity { user: Scheduler::USER.to_owned(), groups: Vec::new(), agent: Scheduler::AGENT }
    }

    /// Of who makes volumes for the class of simulated nodes, and the class. The cluster comes with a role for it.
    fn provisioner() -> Identity {
        Identity {
            user: "system:steersman:simulated-provisioner".to_owned(),
            groups: Vec::new(),
            agent: "simulated-provisioner",
        }
    }

    /// Of who defines the kind `Stage` and reads what there is of it. The cluster comes with a role for it.
    fn stages() -> Identity {
        Identity { user: "system:steersman:simulated-stages".to_owned(), groups: Vec::new(), agent: "simulated-stages" }
    }

    /// Of the loop that takes the taint from a node that is ready.
    fn node_controller() -> Identity {
        let account = "system:serviceaccount:kube-system:node-controller".to_owned();
        let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system"];
        Identity { user: account, groups: groups.map(str::to_owned).to_vec(), agent: "kube-controller-manager" }
    }
}

// === impl Simulation ===

impl Simulation {
    /// Makes the nodes `node-1` to `node-N`, unless they are there, and plays them and all that are labelled so.
    pub fn new(n_nodes: usize, client_of: ClientOf) -> Simulation {
        Simulation { n_nodes, client_of, clock: Timestamp::now, agent: Agent::default() }
    }

    /// Writes the time of another clock.
    pub fn clock(mut self, clock: fn() -> Timestamp) -> Simulation {
        self.clock = clock;
        self
    }

    /// Lets `agent` answer for the nodes.
    pub fn agent(mut self, agent: Agent) -> Simulation {
        self.agent = agent;
        self
    }

    /// Puts the nodes into a manager, whose informers read all Pods, Nodes and Namespaces, and with them the scheduler, without which no Pod comes to a
    /// node by itself, and the provisioner of the class `simulated`.
    pub fn add_to(self, manager: Manager) -> Manager {
        let manager = Scheduler::add(manager, (self.client_of)(Identity::scheduler()), self.clock);
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

    /// The names of the nodes that it makes.
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
