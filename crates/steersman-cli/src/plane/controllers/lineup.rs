//! The controllers that run together, and what they are started with.

use crate::plane::controllers::tasks::Tasks;
use crate::plane::controllers::{Controllers, Monitored, NETWORK};
use crate::plane::nodes::Nodes;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use steersman::election::Leadership;
use steersman::wait::{await_condition, conditions::is_crd_established};
use steersman::{InformerFactory, Manager, ObjectKey};
use steersman_controllers::kubelet::Simulation;
use steersman_controllers::{ControlLoop, Identity, Parts, Settings};
use steersman_neutron::Cloud;
use steersman_server::user::User;
use tokio_util::sync::CancellationToken;

/// The definition of Networks. The Network controller begins when it is established.
const NETWORKS: &str = "networks.samplecrd.k8s.io";
/// How long one wait for the definition lasts. After each, a line is logged at the level debug.
const DEFINITION_WAIT: Duration = Duration::from_secs(600);
/// The name of the simulation of nodes.
const NODES: &str = "simulated-nodes";

/// The requested controllers with all that they need, to be started as often as this server is elected.
pub(super) struct Lineup {
    pub(super) wanted: Controllers,
    pub(super) settings: Arc<Settings>,
    /// For the Network controller.
    pub(super) cloud: Option<Arc<dyn Cloud>>,
    pub(super) nodes: Nodes,
    pub(super) client_of: Arc<dyn Fn(User, &'static str) -> kube::Client + Send + Sync>,
    pub(super) monitored: Option<Monitored>,
}

impl Lineup {
    /// A client of the user whose caches all loops share.
    pub(super) fn reader(&self) -> kube::Client {
        self.client_as()(ControlLoop::reader())
    }

    /// A function that makes the client of a user.
    fn client_as(&self) -> impl Fn(Identity) -> kube::Client + Send + Sync + 'static {
        let client_of = Arc::clone(&self.client_of);
        move |Identity { user, groups, agent }| client_of(User::authenticated(user, groups), agent)
    }

    /// Whether nothing is to be run.
    pub(super) fn is_empty(&self) -> bool {
        let has_loops = ControlLoop::ALL.iter().any(|one| self.wanted.has(one.name));
        !has_loops && self.nodes.count == 0 && self.cloud.is_none()
    }

    /// Starts the controllers. They end when `stop` is cancelled, and work only while `leadership` is held, if there is one.
    pub(super) fn start(&self, stop: &CancellationToken, leadership: Option<&Arc<Leadership>>) -> Tasks {
        let mut tasks = Tasks::default();
        let (monitored, leadership) = (self.monitored.clone(), leadership.cloned());
        let prepared = move |name: &'static str, manager: Manager| {
            let manager = match &leadership {
                Some(leadership) => manager.under(leadership),
                None => manager,
            };
            match &monitored {
                Some(monitored) => monitored.add(name, manager),
                None => manager,
            }
        };
        let client_as = self.client_as();
        // All loops share one watch of each kind.
        let informers = InformerFactory::new(self.reader());
        for one in ControlLoop::ALL.iter().filter(|one| self.wanted.has(one.name)) {
            let manager = prepared(one.name, Manager::with_informers(informers.clone()));
            let client = client_as(one.identity());
            let (settings, stopped) = (Arc::clone(&self.settings), stop.clone().cancelled_owned());
            tasks.spawn(one.name, async move {
                Ok(one.run(manager, Parts { client, settings: &settings }, stopped).await?)
            });
        }
        if self.nodes.count > 0 {
            let simulation = Simulation::new(self.nodes.count, Arc::new(client_as)).agent(self.nodes.agent.clone());
            let manager = simulation.add_to(prepared(NODES, Manager::with_informers(informers)));
            let stopped = stop.clone().cancelled_owned();
            tasks.spawn(NODES, async move { Ok(manager.run(stopped).await?) });
        }
        if let Some(cloud) = self.cloud.clone() {
            let client = (self.client_of)(User::master("system:steersman:network-controller"), "network-controller");
            let stop = stop.clone();
            tasks.spawn(NETWORK, async move {
                // Whoever does not use Networks need not read that their definition is missing.
                if stop.run_until_cancelled(definition_of_networks(&client)).await.is_none() {
                    return Ok(());
                }
                let manager = prepared(NETWORK, Manager::new(client));
                let options = steersman_network::Options::default();
                Ok(steersman_network::run_with(manager, cloud, options, stop.cancelled_owned()).await?)
            });
        }
        tasks
    }
}

/// Waits until the Network definition is established.
async fn definition_of_networks(client: &kube::Client) {
    let key = ObjectKey::cluster(NETWORKS);
    while let Err(error) = await_condition(client, &key, is_crd_established(), DEFINITION_WAIT).await {
        tracing::debug!("the Network controller waits for its definition: {error}");
    }
}

impl fmt::Debug for Lineup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lineup").field("wanted", &self.wanted).finish_non_exhaustive()
    }
}
