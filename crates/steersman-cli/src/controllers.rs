//! The controllers that `steersman up` runs beside the control plane.

use crate::Failure;
use crate::plane::Plane;
use anyhow::Context as _;
use std::collections::HashMap;
use std::sync::Arc;
use steersman::ManagerError;
use steersman_neutron::Cloud;
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

/// Which controllers are wanted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Controllers {
    pub(crate) namespace: bool,
    pub(crate) network: bool,
}

const NAMESPACE: &str = "namespace";
const NETWORK: &str = "network";

/// The controllers that run.
#[derive(Debug)]
pub(crate) struct Running {
    tasks: JoinSet<Result<(), ManagerError>>,
    names: HashMap<Id, &'static str>,
    stop: CancellationToken,
}

impl Controllers {
    /// Reads `a,b,-c`; `*` is all of them, and the last word on a controller counts.
    pub(crate) fn parse(words: &[String]) -> Result<Controllers, Failure> {
        // Who only says what is not wanted wants the rest.
        let is_rest = !words.is_empty() && words.iter().all(|word| word.trim().starts_with('-'));
        let mut controllers = Controllers { namespace: is_rest, network: is_rest };
        for word in words.iter().map(|word| word.trim()).filter(|word| !word.is_empty()) {
            let (name, is_wanted) = word.strip_prefix('-').map_or((word, true), |name| (name, false));
            match name {
                "*" => controllers = Controllers { namespace: is_wanted, network: is_wanted },
                NAMESPACE => controllers.namespace = is_wanted,
                NETWORK => controllers.network = is_wanted,
                _ => {
                    return Err(Failure::Refused(format!(
                        "there is no controller {name:?}: --controllers takes {NAMESPACE}, {NETWORK}, * for all, and -NAME \
                         for all but one"
                    )));
                }
            }
        }
        Ok(controllers)
    }

    /// The names of those that are wanted.
    pub(crate) fn names(self) -> Vec<&'static str> {
        let wanted = [(NAMESPACE, self.namespace), (NETWORK, self.network)];
        wanted.into_iter().filter_map(|(name, is_wanted)| is_wanted.then_some(name)).collect()
    }
}

impl Running {
    /// Starts the controllers that are wanted; the Network controller needs a cloud.
    pub(crate) fn start(wanted: Controllers, plane: &Plane, cloud: Option<Arc<dyn Cloud>>) -> Running {
        let mut running = Running { tasks: JoinSet::new(), names: HashMap::new(), stop: CancellationToken::new() };
        if wanted.namespace {
            let client = plane.client("system:steersman:namespace-controller");
            let stopped = running.stop.clone().cancelled_owned();
            running.spawn(NAMESPACE, steersman_controllers::namespace::run(client, stopped));
        }
        if let Some(cloud) = cloud {
            let client = plane.client("system:steersman:network-controller");
            let stopped = running.stop.clone().cancelled_owned();
            running.spawn(NETWORK, steersman_network::run(client, cloud, stopped));
        }
        running
    }

    fn spawn(
        &mut self,
        name: &'static str,
        controller: impl Future<Output = Result<(), ManagerError>> + Send + 'static,
    ) {
        self.names.insert(self.tasks.spawn(controller).id(), name);
    }

    /// Resolves when a controller has ended by itself, with the reason. Never, if none runs.
    ///
    /// # Cancel safety
    /// A controller that has ended is told by the next call.
    pub(crate) async fn failed(&mut self) -> anyhow::Error {
        let Some(ended) = self.tasks.join_next_with_id().await else { return std::future::pending().await };
        let (name, outcome) = self.named(ended);
        match outcome {
            Ok(()) => anyhow::anyhow!("the {name} controller has ended by itself"),
            Err(error) => error.context(format!("the {name} controller has failed")),
        }
    }

    /// Stops them and waits until they have stopped.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next_with_id().await {
            let (controller, outcome) = self.named(ended);
            if let Err(error) = outcome {
                tracing::error!(controller, error = format!("{error:#}"), "a controller ended with an error");
            }
        }
    }

    fn named(&self, ended: Result<(Id, Result<(), ManagerError>), JoinError>) -> (&'static str, anyhow::Result<()>) {
        let (id, outcome) = match ended {
            Ok((id, outcome)) => (id, outcome.map_err(anyhow::Error::new)),
            Err(error) => (error.id(), Err(error).context("its task ended badly")),
        };
        (self.names.get(&id).copied().unwrap_or("unknown"), outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(words: &[&str], want: Option<&[&str]>) {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        assert_eq!(Controllers::parse(&words).ok().map(Controllers::names).as_deref(), want);
    }

    #[test]
    fn the_last_word_on_a_controller_counts() {
        check(&["*"], Some(&["namespace", "network"]));
        check(&[], Some(&[]));
        check(&["network"], Some(&["network"]));
        check(&["-network"], Some(&["namespace"]));
        check(&["-*"], Some(&[]));
        check(&["*", "-network"], Some(&["namespace"]));
        check(&["-network", "network"], Some(&["network"]));
        check(&["nework"], None);
    }
}
