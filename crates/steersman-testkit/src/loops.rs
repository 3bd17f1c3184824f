//! The control loops that run beside a control plane: which, and from start to end.

use crate::plane::Options;
use kube::Client;
use std::collections::BTreeSet;
use std::sync::Arc;
use steersman::{InformerFactory, Manager, ManagerError};
use steersman_controllers::kubelet::{Agent, Identity, Simulation};
use steersman_controllers::{ControlLoop, Parts, Settings};
use steersman_server::user::User;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Where the accounts of the loops are.
const NAMESPACE: &str = "kube-system";
/// A certificate that stands for the cluster's authority: nobody connects to a control plane without a socket.
const ROOT_CA: &str = include_str!("root_ca.pem");

/// What the simulation is called where it fails.
const NODES: &str = "simulated nodes";

/// What runs beside the server: control loops, of those that `steersman up` has, and nodes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Loops {
    names: BTreeSet<&'static str>,
    n_nodes: usize,
}

/// Loops that run.
#[derive(Debug)]
pub(crate) struct Running {
    tasks: JoinSet<(&'static str, Result<(), ManagerError>)>,
    stop: CancellationToken,
}

// === impl Loops ===

impl Loops {
    /// No loop: the server is alone.
    pub fn none() -> Loops {
        Loops { names: BTreeSet::new(), n_nodes: 0 }
    }

    /// All that `steersman up` runs by default.
    pub fn all() -> Loops {
        let names = ControlLoop::ALL.iter().filter(|one| one.is_default).map(|one| one.name).collect();
        Loops { names, n_nodes: 0 }
    }

    /// Those of these names, which are those of `steersman up --controllers`.
    ///
    /// # Panics
    /// When there is no loop of a name.
    pub fn only<'a>(names: impl IntoIterator<Item = &'a str>) -> Loops {
        Loops { names: names.into_iter().map(known).collect(), n_nodes: 0 }
    }

    /// These but one.
    ///
    /// # Panics
    /// When there is no loop of this name.
    pub fn without(mut self, name: &str) -> Loops {
        self.names.remove(known(name));
        self
    }

    /// These, and so many simulated nodes with a scheduler: `node-1`, `node-2` and so on are there, ready, and Pods on them run and
    /// become ready, although no program does. The annotations `simulate.steersman.dev/...` of a Pod say what its containers do:
    /// `delay: 2s`, `never-ready: "true"`, `succeed-after: 5s`, `fail-after: 1s..3s`, `exit-code: "3"`, `crash-loop: "true"`. A Node with the annotation
    /// `simulate.steersman.dev/goes-away: "true"` is not heard of. Objects of the kind `Stage` say the same of all Pods, or Nodes, that they select.
    pub fn nodes(mut self, n_nodes: usize) -> Loops {
        self.n_nodes = n_nodes;
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
        client_of: impl Fn(User) -> Client + Clone + Send + Sync + 'static,
    ) -> Running {
        let mut running = Running::none();
        if options.loops == Loops::none() {
            return running;
        }
        let settings = Arc::new(Settings::new().clock(options.clock).root_ca(ROOT_CA.to_owned()));
        let informers = InformerFactory::new(client_of(User::authenticated(ControlLoop::READER, [])));
        for one in ControlLoop::ALL.iter().filter(|one| options.loops.names.contains(one.name)) {
            let manager = Manager::with_informers(informers.clone());
            let client = client_of(User::service_account(NAMESPACE, one.account));
            let (settings, stopped) = (Arc::clone(&settings), running.stop.clone().cancelled_owned());
            running.tasks.spawn(async move {
                (one.name, one.run(manager, Parts { client, settings: &settings }, stopped).await)
            });
        }
        if options.loops.n_nodes > 0 {
            let as_identity = move |Identity { user, groups }| client_of(User::authenticated(user, groups));
            let simulation = Simulation::new(options.loops.n_nodes, Arc::new(as_identity));
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

    /// Ends the loops; passes under way end first.
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
