//! The control loops that run beside a control plane: which, and from start to end.

use crate::plane::Options;
use kube::Client;
use std::collections::BTreeSet;
use std::sync::Arc;
use steersman::{InformerFactory, Manager, ManagerError};
use steersman_controllers::{ControlLoop, Parts, Settings};
use steersman_server::user::User;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Where the accounts of the loops are.
const NAMESPACE: &str = "kube-system";
/// A certificate that stands for the cluster's authority: nobody connects to a control plane without a socket.
const ROOT_CA: &str = include_str!("root_ca.pem");

/// Which control loops run, of those that `steersman up` has.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Loops {
    names: BTreeSet<&'static str>,
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
        Loops { names: BTreeSet::new() }
    }

    /// All that `steersman up` runs by default.
    pub fn all() -> Loops {
        Loops { names: ControlLoop::ALL.iter().filter(|one| one.is_default).map(|one| one.name).collect() }
    }

    /// Those of these names, which are those of `steersman up --controllers`.
    ///
    /// # Panics
    /// When there is no loop of a name.
    pub fn only<'a>(names: impl IntoIterator<Item = &'a str>) -> Loops {
        Loops { names: names.into_iter().map(known).collect() }
    }

    /// These but one.
    ///
    /// # Panics
    /// When there is no loop of this name.
    pub fn without(mut self, name: &str) -> Loops {
        self.names.remove(known(name));
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

    pub(crate) fn start(options: &Options, client_of: impl Fn(User) -> Client) -> Running {
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
