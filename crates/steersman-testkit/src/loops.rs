//! The control loops that run beside a control plane: their selection, start and end.

use crate::plane::Options;
use kube::Client;
use std::collections::BTreeSet;
use std::sync::Arc;
use steersman::{InformerFactory, Manager, ManagerError};
use steersman_controllers::kubelet::{Agent, Simulation};
use steersman_controllers::{Activation, ControlLoop, Identity, Parts, Settings};
use steersman_server::user::User;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// A certificate in place of the cluster's authority: nobody connects to a control plane without a socket.
const ROOT_CA: &str = include_str!("root_ca.pem");

/// The name of the simulation in errors.
const NODES: &str = "simulated nodes";

/// The tasks that run beside the server: some of the control loops of `steersman up`, and simulated nodes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Loops {
    names: BTreeSet<&'static str>,
    n_nodes: usize,
}

/// The loops that run.
#[derive(Debug)]
pub(crate) struct Running {
    tasks: JoinSet<(&'static str, Result<(), ManagerError>)>,
    stop: CancellationToken,
}

// === impl Loops ===

impl Loops {
    /// No control loops: the server is alone.
    pub fn none() -> Loops {
        Loops { names: BTreeSet::new(), n_nodes: 0 }
    }

    /// All loops that `steersman up` runs by default.
    pub fn all() -> Loops {
        let names =
            ControlLoop::ALL.iter().filter(|one| one.activation == Activation::Always).map(|one| one.name).collect();
        Loops { names, n_nodes: 0 }
    }

    /// The loops of these names, which are those of `steersman up --controllers`.
    ///
    /// # Panics
    /// When no loop has one of the names.
    pub fn only<'a>(names: impl IntoIterator<Item = &'a str>) -> Loops {
        Loops { names: names.into_iter().map(known).collect(), n_nodes: 0 }
    }

    /// The same loops without this one.
    ///
    /// # Panics
    /// When no loop has this name.
    pub fn without(mut self, name: &str) -> Loops {
        self.names.remove(known(name));
        self
    }

    pub(crate) fn has_nodes(&self) -> bool {
        self.n_nodes > 0
    }

    /// The same loops, this number of simulated nodes, and a scheduler: the nodes `node-1`, `node-2` and so on exist
    /// and are ready, and Pods on them run and become ready, although no program runs. The annotations
    /// `simulate.steersman.dev/...` of a Pod control its containers: `delay: 2s`, `never-ready: "true"`,
    /// `succeed-after: 5s`, `fail-after: 1s..3s`, `exit-code: "3"`, `crash-loop: "true"`. A Node with the annotation
    /// `simulate.steersman.dev/goes-away: "true"` renews no Lease and reports no status. Objects of the kind `Stage`
    /// set the same for all Pods, or Nodes, that they select.
    pub fn nodes(mut self, n_nodes: usize) -> Loops {
        self.n_nodes = n_nodes;
        if self.has_nodes() {
            self.names.insert(ControlLoop::SCHEDULER);
        }
        self
    }
}

impl Default for Loops {
    fn default() -> Loops {
        Loops::none()
    }
}

fn known(name: &str) -> &'static str {
    let Some(found) = ControlLoop::named(name) else {
        let all: Vec<&str> = ControlLoop::ALL.iter().map(|one| one.name).collect();
        panic!("there is no control loop {name:?}, but {}", all.join(", "));
    };
    found.name
}

// === impl Running ===

impl Running {
    pub(crate) fn none() -> Running {
        Running { tasks: JoinSet::new(), stop: CancellationToken::new() }
    }

    pub(crate) fn start(
        options: &Options,
        agent: &Agent,
        client_of: impl Fn(User, &'static str) -> Client + Clone + Send + Sync + 'static,
    ) -> Running {
        let mut running = Running::none();
        if options.loops == Loops::none() {
            return running;
        }
        let client_as = move |Identity { user, groups, agent }| client_of(User::authenticated(user, groups), agent);
        let settings = Arc::new(Settings::new().clock(options.clock).root_ca(ROOT_CA.to_owned()));
        let informers = InformerFactory::new(client_as(ControlLoop::reader()));
        for one in ControlLoop::ALL.iter().filter(|one| options.loops.names.contains(one.name)) {
            let manager = Manager::with_informers(informers.clone());
            let client = client_as(one.identity());
            let (settings, stopped) = (Arc::clone(&settings), running.stop.clone().cancelled_owned());
            running.tasks.spawn(async move {
                (one.name, one.run(manager, Parts { client, settings: &settings }, stopped).await)
            });
        }
        if options.loops.n_nodes > 0 {
            let simulation = Simulation::new(options.loops.n_nodes, Arc::new(client_as));
            let simulation = simulation.clock(options.clock).agent(agent.clone());
            let manager = simulation.add_to(Manager::with_informers(informers));
            let stopped = running.stop.clone().cancelled_owned();
            running.tasks.spawn(async move { (NODES, manager.run(stopped).await) });
        }
        running
    }

    pub(crate) fn begin_stop(&self) {
        self.stop.cancel();
    }

    /// Ends the loops after their passes under way.
    pub(crate) async fn stop(&mut self) {
        self.begin_stop();
        while let Some(ended) = self.tasks.join_next().await {
            match ended {
                Ok((_, Ok(()))) => {}
                Ok((name, Err(error))) => {
                    panic!("the control loop {name} ended badly: {}", crate::plane::chain(&error))
                }
                Err(error) => panic!("a control loop ended badly: {error}"),
            }
        }
    }
}
