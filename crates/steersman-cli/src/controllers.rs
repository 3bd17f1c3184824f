//! The controllers that `steersman up` and `steersman server` run beside the control plane.

use crate::Failure;
use crate::plane::Plane;
use anyhow::Context as _;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use steersman::health::{Endpoints, Health};
use steersman::metrics::Metrics;
use steersman::{Manager, ManagerError};
use steersman_controllers::certificates::Authority;
use steersman_neutron::Cloud;
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

/// Which controllers are wanted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Controllers {
    pub(crate) certificates: bool,
    pub(crate) namespace: bool,
    pub(crate) network: bool,
    pub(crate) service_cidr: bool,
    /// Fills Secrets with tokens. Runs in the server, which has the keys.
    pub(crate) service_account_token: bool,
    /// Keeps the status of ValidatingAdmissionPolicies. Runs in the server, which has the schemas.
    pub(crate) policy_status: bool,
}

/// Which command asks: not every controller is offered by each.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Role {
    Server,
    Up,
}

const CERTIFICATES: &str = "certificates";
const NAMESPACE: &str = "namespace";
const NETWORK: &str = "network";
const SERVICE_CIDR: &str = "service-cidr";
const SERVICE_ACCOUNT_TOKEN: &str = "serviceaccount-token";
const POLICY_STATUS: &str = "validatingadmissionpolicy-status";

/// The port where the controllers' metrics and health are served.
#[derive(Debug)]
pub(crate) struct Monitoring {
    endpoints: Endpoints,
    health: Health,
    metrics: Metrics,
}

/// The controllers that run.
#[derive(Debug)]
pub(crate) struct Running {
    tasks: JoinSet<Result<(), ManagerError>>,
    names: HashMap<Id, &'static str>,
    stop: CancellationToken,
    /// Serves metrics and health until the controllers have stopped.
    monitoring: JoinSet<()>,
    stop_monitoring: CancellationToken,
}

impl Controllers {
    /// Reads `a,b,-c`; `*` is all that the role offers, and the last word on a controller counts.
    pub(crate) fn parse(words: &[String], role: Role) -> Result<Controllers, Failure> {
        let all = Controllers {
            certificates: true,
            namespace: true,
            network: role == Role::Up,
            service_cidr: true,
            service_account_token: true,
            policy_status: true,
        };
        // If the list only excludes controllers, all others are wanted.
        let is_rest = !words.is_empty() && words.iter().all(|word| word.trim().starts_with('-'));
        let mut controllers = if is_rest { all } else { Controllers::default() };
        for word in words.iter().map(|word| word.trim()).filter(|word| !word.is_empty()) {
            let (name, is_wanted) = word.strip_prefix('-').map_or((word, true), |name| (name, false));
            match (name, role) {
                ("*", _) => controllers = if is_wanted { all } else { Controllers::default() },
                (CERTIFICATES, _) => controllers.certificates = is_wanted,
                (NAMESPACE, _) => controllers.namespace = is_wanted,
                (NETWORK, Role::Up) => controllers.network = is_wanted,
                (SERVICE_CIDR, _) => controllers.service_cidr = is_wanted,
                (SERVICE_ACCOUNT_TOKEN, _) => controllers.service_account_token = is_wanted,
                (POLICY_STATUS, _) => controllers.policy_status = is_wanted,
                (NETWORK, Role::Server) => {
                    return Err(Failure::Refused(format!(
                        "the controller {NETWORK} needs a cloud: use steersman up, or steersman network beside this server"
                    )));
                }
                _ => {
                    return Err(Failure::Refused(format!(
                        "there is no controller {name:?}: --controllers takes {}, * for all, and -NAME for all but one",
                        all.names().join(", ")
                    )));
                }
            }
        }
        Ok(controllers)
    }

    /// The names of those that are wanted.
    pub(crate) fn names(self) -> Vec<&'static str> {
        let wanted = [
            (CERTIFICATES, self.certificates),
            (NAMESPACE, self.namespace),
            (NETWORK, self.network),
            (SERVICE_CIDR, self.service_cidr),
            (SERVICE_ACCOUNT_TOKEN, self.service_account_token),
            (POLICY_STATUS, self.policy_status),
        ];
        wanted.into_iter().filter_map(|(name, is_wanted)| is_wanted.then_some(name)).collect()
    }
}

impl Monitoring {
    /// Listens on the address, so that one that is taken is an error before anything has begun.
    pub(crate) fn bind(address: SocketAddr) -> Result<Monitoring, Failure> {
        let (metrics, health) = (Metrics::new(), Health::new());
        let endpoints = Endpoints::bind(address, health.clone()).map_err(|error| {
            Failure::Refused(format!("{}; choose another with --metrics-address", crate::chain(&error)))
        })?;
        Ok(Monitoring { endpoints: endpoints.with_metrics(metrics.clone()), health, metrics })
    }

    /// Where it listens, with the real port.
    pub(crate) fn address(&self) -> SocketAddr {
        self.endpoints.address()
    }

    /// Connects a controller's manager to these metrics and health checks.
    fn watch(&self, name: &'static str, manager: Manager) -> Manager {
        let manager = manager.name(name).with_metrics(self.metrics.clone());
        let (live, ready) = (manager.health().clone(), manager.health().clone());
        let verdict = |is_well: bool| if is_well { Ok(()) } else { Err("it says no") };
        self.health.live(name, move || verdict(live.is_live()));
        self.health.ready(name, move || verdict(ready.is_ready()));
        manager
    }
}

impl Running {
    /// Starts the controllers that are wanted; the Network controller needs a cloud, and who signs certificates an authority.
    pub(crate) fn start(
        wanted: Controllers,
        plane: &Plane,
        authority: Option<Authority>,
        cloud: Option<Arc<dyn Cloud>>,
        monitoring: Option<Monitoring>,
    ) -> Running {
        let mut running = Running {
            tasks: JoinSet::new(),
            names: HashMap::new(),
            stop: CancellationToken::new(),
            monitoring: JoinSet::new(),
            stop_monitoring: CancellationToken::new(),
        };
        let manager = |name: &'static str| {
            let manager = Manager::new(plane.client(&format!("system:steersman:{name}-controller")));
            match &monitoring {
                Some(monitoring) => monitoring.watch(name, manager),
                None => manager,
            }
        };
        if let Some(authority) = authority {
            let stopped = running.stop.clone().cancelled_owned();
            let signing = steersman_controllers::certificates::run_with(manager(CERTIFICATES), authority, stopped);
            running.spawn(CERTIFICATES, signing);
        }
        if wanted.namespace {
            let stopped = running.stop.clone().cancelled_owned();
            running.spawn(NAMESPACE, steersman_controllers::namespace::run_with(manager(NAMESPACE), stopped));
        }
        if wanted.service_cidr {
            let stopped = running.stop.clone().cancelled_owned();
            running.spawn(SERVICE_CIDR, steersman_controllers::service_cidr::run_with(manager(SERVICE_CIDR), stopped));
        }
        if let Some(cloud) = cloud {
            let stopped = running.stop.clone().cancelled_owned();
            let options = steersman_network::Options::default();
            running.spawn(NETWORK, steersman_network::run_with(manager(NETWORK), cloud, options, stopped));
        }
        if let Some(monitoring) = monitoring {
            running.monitoring.spawn(monitoring.endpoints.serve(running.stop_monitoring.clone().cancelled_owned()));
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
    /// A controller that has ended is returned by the next call.
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
                tracing::error!(controller, error = crate::chain(&*error), "a controller ended with an error");
            }
        }
        self.stop_monitoring.cancel();
        self.monitoring.join_all().await;
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

    /// All that need no other service.
    const LOOPS: &[&str] =
        &["certificates", "namespace", "service-cidr", "serviceaccount-token", "validatingadmissionpolicy-status"];

    #[track_caller]
    fn check(role: Role, words: &[&str], want: Option<&[&str]>) {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        assert_eq!(Controllers::parse(&words, role).ok().map(Controllers::names).as_deref(), want);
    }

    #[test]
    fn the_last_word_on_a_controller_counts() {
        check(
            Role::Up,
            &["*"],
            Some(&[
                "certificates",
                "namespace",
                "network",
                "service-cidr",
                "serviceaccount-token",
                "validatingadmissionpolicy-status",
            ]),
        );
        check(Role::Up, &[], Some(&[]));
        check(Role::Up, &["network"], Some(&["network"]));
        check(Role::Up, &["-network"], Some(LOOPS));
        check(Role::Up, &["-*"], Some(&[]));
        check(Role::Up, &["*", "-network"], Some(LOOPS));
        check(Role::Up, &["-network", "network"], Some(&["network"]));
        check(Role::Up, &["nework"], None);
        check(Role::Server, &["*"], Some(LOOPS));
        check(
            Role::Server,
            &["-namespace"],
            Some(&["certificates", "service-cidr", "serviceaccount-token", "validatingadmissionpolicy-status"]),
        );
        check(Role::Server, &["-*"], Some(&[]));
        check(Role::Server, &["network"], None);
    }
}
