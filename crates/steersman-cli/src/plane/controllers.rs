//! The controllers that `steersman up` and `steersman server` run beside the control plane.

mod elected;
mod lineup;
pub(crate) mod scheduler;
mod tasks;

use crate::Failure;
use crate::plane::Plane;
use crate::plane::controllers::lineup::Lineup;
use crate::plane::controllers::tasks::Tasks;
use crate::plane::nodes::{Joining, Nodes};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use steersman::Manager;
use steersman::health::{Endpoints, Health};
use steersman::metrics::Metrics;
use steersman_controllers::{Activation, ControlLoop, Settings};
use steersman_neutron::Cloud;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The requested controllers, by name.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Controllers {
    wanted: BTreeSet<&'static str>,
}

/// The command that runs the controllers: not every command offers every controller.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Role {
    Server,
    Up,
}

/// The name of the Network controller, which needs a cloud.
pub(crate) const NETWORK: &str = "network";
/// The name of the loop that fills Secrets with tokens. It runs in the server, which has the keys.
pub(crate) const SERVICE_ACCOUNT_TOKEN: &str = "serviceaccount-token";
/// The name of the loop that maintains the status of ValidatingAdmissionPolicies. It runs in the server, which has the
/// schemas.
pub(crate) const POLICY_STATUS: &str = "validatingadmissionpolicy-status";

/// Controllers of kube-controller-manager that do not exist here, by their current and old names. A flag may exclude
/// them, because that changes nothing.
const ABSENT: &[&str] = &[
    "attachdetach",
    "cloud-node-lifecycle",
    "cloud-node-lifecycle-controller",
    "device-taint-eviction-controller",
    "kube-apiserver-serving-clustertrustbundle-publisher-controller",
    "node-route-controller",
    "nodeipam",
    "node-ipam-controller",
    "persistentvolume-attach-detach-controller",
    "persistentvolume-expander",
    "persistentvolume-expander-controller",
    "podcertificaterequest-cleaner-controller",
    "resourceclaim-controller",
    "route",
    "selinux-warning-controller",
    "service",
    "service-lb-controller",
    "storage-version-gc",
    "storage-version-migrator-controller",
    "storageversion-garbage-collector-controller",
    "volume-expand",
];

/// Admission plugins that get in the way without their controllers: no pod is created without its account, and
/// protected objects are not deleted until a controller removes the protection.
const RELYING: [(&str, &[&str]); 2] = [
    ("ServiceAccount", &["serviceaccount"]),
    ("StorageObjectInUseProtection", &["pv-protection", "pvc-protection", "volumeattributesclass-protection"]),
];

/// The port where the controllers' metrics and health are served.
#[derive(Debug)]
pub(crate) struct Monitoring {
    endpoints: Endpoints,
    monitored: Monitored,
}

/// The metrics and health checks of the controllers that have begun.
#[derive(Clone, Debug)]
struct Monitored {
    health: Health,
    metrics: Metrics,
}

/// The running controllers.
#[derive(Debug)]
pub(crate) struct Running {
    tasks: Tasks,
    stop: CancellationToken,
    /// Serves metrics and health until the controllers have stopped.
    monitoring: JoinSet<()>,
    stop_monitoring: CancellationToken,
}

impl Controllers {
    /// Parses `a,b,-c`; `*` stands for all that the role offers and that run by default where there may be such nodes,
    /// and the last word on a controller counts. Simulated nodes come with the scheduler unless it is excluded by name.
    ///
    /// # Errors
    /// When a name is not that of a controller, or the list is empty: a server without controllers is requested with
    /// `-*`.
    pub(crate) fn parse(words: &[String], role: Role, nodes: &Nodes) -> Result<Controllers, Failure> {
        if !words.is_empty() && words.iter().all(|word| word.trim().is_empty()) {
            return Err(Failure::Refused(
                "--controllers is empty: name the controllers to run, or say * for all of them or -* for none"
                    .to_owned(),
            ));
        }
        let is_default = |activation: &Activation| match activation {
            Activation::Always => true,
            Activation::WhereNodesJoin => nodes.joining == Joining::Allowed,
        };
        let defaults = offered(role).filter(|(_, activation)| is_default(activation));
        let all = Controllers { wanted: defaults.map(|(name, _)| name).collect() };
        // If the list only excludes controllers, all others are included.
        let is_rest = !words.is_empty() && words.iter().all(|word| word.trim().starts_with('-'));
        let mut controllers = if is_rest { all.clone() } else { Controllers::default() };
        for word in words.iter().map(|word| word.trim()).filter(|word| !word.is_empty()) {
            let (name, is_wanted) = word.strip_prefix('-').map_or((word, true), |name| (name, false));
            if name == "*" {
                controllers = if is_wanted { all.clone() } else { Controllers::default() };
                continue;
            }
            let name = our_name(name);
            match offered(role).find(|(offered, _)| *offered == name) {
                Some((name, _)) if is_wanted => controllers.wanted.insert(name),
                Some((name, _)) => controllers.wanted.remove(name),
                // It does not exist here, and is not requested either.
                None if !is_wanted && ABSENT.contains(&name) => false,
                None if name == NETWORK => {
                    return Err(Failure::Refused(format!(
                        "the controller {NETWORK} needs a cloud: use steersman up, or steersman network beside this server"
                    )));
                }
                None => {
                    let names: Vec<&str> = offered(role).map(|(name, _)| name).collect();
                    return Err(Failure::Refused(format!(
                        "there is no controller {name:?}: --controllers takes {}, * for all, and -NAME for all but one",
                        names.join(", ")
                    )));
                }
            };
        }
        let is_scheduler = |word: &String| our_name(word.trim().trim_start_matches('-')) == ControlLoop::SCHEDULER;
        if nodes.count > 0 && !words.iter().any(is_scheduler) {
            controllers.wanted.insert(ControlLoop::SCHEDULER);
        }
        Ok(controllers)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.wanted.contains(name)
    }

    /// The admission plugins that rely on requested controllers.
    pub(crate) fn plugins(&self) -> Vec<&'static str> {
        let relying = RELYING.iter().filter(|(_, names)| names.iter().all(|name| self.has(name)));
        relying.map(|(plugin, _)| *plugin).collect()
    }

    /// The names of the requested controllers.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.wanted.iter().copied().collect()
    }
}

/// Our name of a controller, which may be given by kube-controller-manager's name.
fn our_name(name: &str) -> &str {
    if let Some(found) = ControlLoop::named(name) {
        return found.name;
    }
    let short = name.strip_suffix("-controller");
    short.filter(|short| [SERVICE_ACCOUNT_TOKEN, POLICY_STATUS].contains(short)).unwrap_or(name)
}

/// The controllers that a role offers, and where they run by default.
fn offered(role: Role) -> impl Iterator<Item = (&'static str, Activation)> {
    let loops = ControlLoop::ALL.iter().map(|one| (one.name, one.activation));
    let network = (role == Role::Up).then_some(NETWORK);
    let others = network.into_iter().chain([SERVICE_ACCOUNT_TOKEN, POLICY_STATUS]);
    loops.chain(others.map(|name| (name, Activation::Always)))
}

impl Monitoring {
    /// Listens on the address, so that an address in use is an error before anything has begun.
    pub(crate) fn bind(address: SocketAddr) -> Result<Monitoring, Failure> {
        let (metrics, health) = (Metrics::new(), Health::new());
        let endpoints = Endpoints::bind(address, health.clone()).map_err(|error| {
            Failure::Refused(format!("{}; choose another with --metrics-address", crate::chain(&error)))
        })?;
        Ok(Monitoring { endpoints: endpoints.with_metrics(metrics.clone()), monitored: Monitored { health, metrics } })
    }

    /// The address of the listener, with the real port.
    pub(crate) fn address(&self) -> SocketAddr {
        self.endpoints.address()
    }
}

impl Monitored {
    /// Connects a controller's manager to these metrics and health checks.
    fn add(&self, name: &'static str, manager: Manager) -> Manager {
        let manager = manager.name(name).with_metrics(self.metrics.clone());
        let (live, ready) = (manager.health().clone(), manager.health().clone());
        let verdict = |is_well: bool| if is_well { Ok(()) } else { Err("it says no") };
        self.health.live(name, move || verdict(live.is_live()));
        self.health.ready(name, move || verdict(ready.is_ready()));
        manager
    }
}

impl Running {
    /// Starts the requested controllers and the nodes; the Network controller needs a cloud. Of several servers on one
    /// store, one runs them at a time.
    pub(crate) fn start(
        wanted: &Controllers,
        plane: &Plane,
        settings: &Arc<Settings>,
        cloud: Option<Arc<dyn Cloud>>,
        nodes: &Nodes,
        monitoring: Option<Monitoring>,
    ) -> Running {
        let (stop, stop_monitoring) = (CancellationToken::new(), CancellationToken::new());
        let lineup = Lineup {
            wanted: wanted.clone(),
            settings: Arc::clone(settings),
            cloud,
            nodes: nodes.clone(),
            client_of: Arc::new(plane.clients()),
            monitored: monitoring.as_ref().map(|monitoring| monitoring.monitored.clone()),
        };
        // A server that runs none must not hold the Lease, which others wait for.
        let tasks = match plane.is_shared() && !lineup.is_empty() {
            true => elected::start(lineup, stop.clone()),
            false => lineup.start(&stop, None),
        };
        let mut serving = JoinSet::new();
        if let Some(monitoring) = monitoring {
            serving.spawn(monitoring.endpoints.serve(stop_monitoring.clone().cancelled_owned()));
        }
        Running { tasks, stop, monitoring: serving, stop_monitoring }
    }

    /// Resolves when a controller has ended by itself, with the reason. Never resolves if none runs.
    ///
    /// # Cancel safety
    /// A controller that has ended is returned by the next call.
    pub(crate) async fn failed(&mut self) -> anyhow::Error {
        self.tasks.failed().await
    }

    /// Stops the controllers and waits until they have stopped.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        self.tasks.join().await;
        self.stop_monitoring.cancel();
        self.monitoring.join_all().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No nodes.
    fn alone() -> Nodes {
        Nodes::new(0, Joining::Refused)
    }

    /// Checks which of three known controllers `words` enable.
    #[track_caller]
    fn check(role: Role, words: &[&str], want: Option<&[&str]>) {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let names = Controllers::parse(&words, role, &alone()).ok().map(|controllers| controllers.names());
        let known = |names: Vec<&'static str>| -> Vec<&'static str> {
            names.into_iter().filter(|name| ["namespace", NETWORK, SERVICE_ACCOUNT_TOKEN].contains(name)).collect()
        };
        assert_eq!(names.map(known).as_deref(), want);
    }

    #[test]
    fn the_last_word_on_a_controller_counts() {
        check(Role::Up, &["*"], Some(&["namespace", "network", "serviceaccount-token"]));
        check(Role::Up, &[], Some(&[]));
        check(Role::Up, &["network"], Some(&["network"]));
        check(Role::Up, &["-network"], Some(&["namespace", "serviceaccount-token"]));
        check(Role::Up, &["-*"], Some(&[]));
        check(Role::Up, &["*", "-network"], Some(&["namespace", "serviceaccount-token"]));
        check(Role::Up, &["-network", "network"], Some(&["network"]));
        check(Role::Up, &["nework"], None);
        check(Role::Server, &["*"], Some(&["namespace", "serviceaccount-token"]));
        check(Role::Server, &["-namespace"], Some(&["serviceaccount-token"]));
        check(Role::Server, &["-*"], Some(&[]));
        check(Role::Server, &["network"], None);
        check(Role::Server, &["*", "-namespace-controller"], Some(&["serviceaccount-token"]));
        check(Role::Server, &["serviceaccount-token-controller"], Some(&["serviceaccount-token"]));
        check(Role::Up, &["network-controller"], None);
    }

    #[test]
    fn controllers_of_other_clusters_may_be_excluded_and_not_asked_for() {
        check(
            Role::Server,
            &["*", "-nodeipam", "-persistentvolume-expander"],
            Some(&["namespace", "serviceaccount-token"]),
        );
        check(Role::Server, &["*", "nodeipam"], None);
        check(Role::Server, &["*", "-nodeipan"], None);
    }

    #[test]
    fn an_empty_list_is_refused_in_words_that_say_what_to_write() {
        let refused = Controllers::parse(&[String::new()], Role::Server, &alone()).unwrap_err();
        assert!(matches!(&refused, Failure::Refused(sentence) if sentence.contains("-* for none")), "{refused:?}");
    }

    #[test]
    fn accounts_are_asked_for_where_they_are_made() {
        let plugins = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            Controllers::parse(&words, Role::Server, &alone()).unwrap().plugins()
        };
        assert!(plugins(&["*"]).contains(&"ServiceAccount"));
        assert_eq!(plugins(&["namespace"]), [""; 0]);
        assert_eq!(plugins(&["serviceaccount"]), ["ServiceAccount"]);
        let protections = ["pv-protection", "pvc-protection", "volumeattributesclass-protection"];
        assert_eq!(plugins(&protections), ["StorageObjectInUseProtection"]);
        assert_eq!(plugins(&protections[..2]), [""; 0]);
    }

    #[test]
    fn every_loop_is_offered_once_and_all_that_are_default_run_without_a_word() {
        for joining in [Joining::Refused, Joining::Allowed] {
            let all = Controllers::parse(&["*".to_owned()], Role::Server, &Nodes::new(0, joining)).unwrap();
            for one in ControlLoop::ALL {
                let is_default = one.activation == Activation::Always || joining == Joining::Allowed;
                assert_eq!(all.has(one.name), is_default, "{}, {joining:?}", one.name);
                assert_eq!(offered(Role::Up).filter(|(name, _)| *name == one.name).count(), 1, "{}", one.name);
            }
        }
    }

    #[test]
    fn simulated_nodes_come_with_the_scheduler_unless_it_is_excluded() {
        let has_scheduler = |words: &[&str], count| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            Controllers::parse(&words, Role::Up, &Nodes::new(count, Joining::Refused))
                .unwrap()
                .has(ControlLoop::SCHEDULER)
        };
        assert!(has_scheduler(&["*"], 1) && has_scheduler(&["deployment"], 1) && has_scheduler(&["-*"], 1));
        assert!(!has_scheduler(&["*", "-scheduler"], 1) && !has_scheduler(&["-kube-scheduler"], 1));
        assert!(!has_scheduler(&["*"], 0) && has_scheduler(&["*", "scheduler"], 0));
    }
}
