//! A control plane with the definition of Networks, a cloud, and an operator between them.

use k8s_openapi::api::core::v1::Event;
use kube::api::Patch;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use steersman::metrics::Metrics;
use steersman::{Manager, ManagerError, ObjectKey, typed};
use steersman_network::client::Clientset as _;
use steersman_network::{Network, Options, run_with};
use steersman_neutron::{
    Cloud, Faulty, Network as Made, NetworkFilter, NetworkId, RequestId, Simulated, Subnet, SubnetFilter,
};
use steersman_testkit::ControlPlane;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) const INTERVAL: Duration = Duration::from_secs(60);
pub(crate) const GRACE: Duration = Duration::from_secs(600);

/// Everything but the operator.
pub(crate) struct Environment {
    pub(crate) plane: ControlPlane,
    pub(crate) cloud: Faulty,
}

/// A running operator.
pub(crate) struct Operator {
    stop: CancellationToken,
    task: JoinHandle<Result<(), ManagerError>>,
    pub(crate) metrics: Metrics,
}

/// The condition `Ready` in short.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Ready {
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl Environment {
    /// A environment with the simulated cloud.
    pub(crate) async fn simulated() -> Environment {
        Environment::with(Arc::new(Simulated::in_memory())).await
    }

    pub(crate) async fn with(cloud: Arc<dyn Cloud>) -> Environment {
        Environment::defined(cloud, include_str!("../../../../manifests/crd/network-v1.yaml")).await
    }

    /// A environment with a definition of its own.
    pub(crate) async fn defined(cloud: Arc<dyn Cloud>, definition: &str) -> Environment {
        // Paused time passes at once, and a real Neutron may be slow.
        let options = steersman_testkit::Options { patience: Duration::from_secs(1200), ..Default::default() };
        let plane = ControlPlane::try_start(options).await.unwrap();
        plane.apply(definition).await;
        Environment { plane, cloud: Faulty::new(cloud) }
    }

    /// Replaces the cloud for operators that start from now on; returns the previous one.
    pub(crate) fn replace_cloud(&mut self, cloud: Arc<dyn Cloud>) -> Arc<dyn Cloud> {
        Arc::new(std::mem::replace(&mut self.cloud, Faulty::new(cloud)))
    }

    pub(crate) fn options() -> Options {
        Options { cluster: "c".parse().ok(), drift_interval: INTERVAL, orphan_grace: GRACE, lease_namespace: None }
    }

    /// Starts the operator.
    pub(crate) fn operate(&self) -> Operator {
        self.operate_with(Environment::options())
    }

    pub(crate) fn operate_with(&self, options: Options) -> Operator {
        let (stop, metrics) = (CancellationToken::new(), Metrics::new());
        let manager = Manager::new(self.plane.client()).with_metrics(metrics.clone());
        let (cloud, stopped) = (Arc::new(self.cloud.clone()), stop.clone().cancelled_owned());
        let task = tokio::spawn(run_with(manager, cloud, options, stopped));
        Operator { stop, task, metrics }
    }

    /// The Networks of the namespace `default`.
    pub(crate) fn api(&self) -> typed::Client<Network, typed::Status> {
        self.client().samplecrd_v1().networks("default")
    }

    pub(crate) fn client(&self) -> Client {
        self.plane.client()
    }

    /// Writes an object with a spec.
    pub(crate) async fn create(&self, name: &str, spec: Value) -> Network {
        let object = json!({
            "apiVersion": "samplecrd.k8s.io/v1", "kind": "Network", "metadata": {"name": name, "namespace": "default"}, "spec": spec
        });
        self.api().create(&serde_json::from_value(object).unwrap()).await.unwrap()
    }

    /// Replaces the spec of an object.
    pub(crate) async fn respec(&self, name: &str, spec: Value) -> Network {
        let patch = json!([{"op": "replace", "path": "/spec", "value": spec}]);
        let patch = Patch::Json::<()>(serde_json::from_value(patch).unwrap());
        self.api().patch(name, &patch).await.unwrap()
    }

    /// The condition of an object once the operator has reconciled its current spec and `condition` holds.
    pub(crate) async fn until(&self, name: &str, condition: impl Fn(&Ready) -> bool) -> (Network, Ready) {
        let key = ObjectKey::namespaced("default", name);
        let object = self.plane.until(&key, |object: &Network| ready(object).is_some_and(|it| condition(&it))).await;
        let ready = ready(&object).unwrap();
        (object, ready)
    }

    pub(crate) async fn until_ready(&self, name: &str) -> Network {
        self.until(name, |ready| ready.status == "True").await.0
    }

    pub(crate) async fn until_reason(&self, name: &str, reason: &str) -> Ready {
        self.until(name, |ready| ready.reason == reason).await.1
    }

    /// The reasons of an object's Events, in alphabetical order.
    pub(crate) async fn events(&self, name: &str) -> Vec<String> {
        let events = Api::<Event>::namespaced(self.client(), "default").list(&Default::default()).await.unwrap();
        let of_object = events.items.into_iter().filter(|event| event.involved_object.name.as_deref() == Some(name));
        let mut reasons: Vec<String> = of_object.filter_map(|event| event.reason).collect();
        reasons.sort_unstable();
        reasons
    }

    pub(crate) async fn networks(&self) -> Vec<Made> {
        let request = RequestId::random();
        // An administrator sees the networks of all projects.
        let project_ids = self.cloud.project_id(request).await.unwrap().map(|project| vec![project]);
        self.cloud.find_networks(request, &NetworkFilter { project_ids, ..NetworkFilter::all() }).await.unwrap()
    }

    pub(crate) async fn network(&self, id: NetworkId) -> Option<Made> {
        self.cloud.find_networks(RequestId::random(), &NetworkFilter::id(id)).await.unwrap().pop()
    }

    pub(crate) async fn subnets(&self, id: NetworkId) -> Vec<Subnet> {
        self.cloud.find_subnets(RequestId::random(), &SubnetFilter::network(id)).await.unwrap()
    }

    /// Waits until a condition on the cloud holds, of which no event comes. For tests with `start_paused = true`, whose
    /// clock passes at once.
    pub(crate) async fn eventually(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        let limit = tokio::time::Instant::now() + Duration::from_secs(3600);
        while !holds().await {
            assert!(tokio::time::Instant::now() < limit, "not so after an hour: {what}");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

impl Operator {
    pub(crate) async fn stop(self) {
        self.end().await.unwrap();
    }

    /// As [`Operator::stop`], which may fail.
    pub(crate) async fn end(self) -> Result<(), ManagerError> {
        self.stop.cancel();
        self.task.await.unwrap()
    }

    /// Ends the operator like a killed process: work under way is dropped at its await points.
    pub(crate) async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

/// The condition `Ready`, if it is about the current spec.
pub(crate) fn ready(object: &Network) -> Option<Ready> {
    let status = object.status.as_ref()?;
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready")?;
    let is_current = ready.observed_generation == object.metadata.generation;
    is_current.then(|| Ready {
        status: ready.status.clone(),
        reason: ready.reason.clone(),
        message: ready.message.clone(),
    })
}

/// The network that an object's status names.
pub(crate) fn id_of(object: &Network) -> NetworkId {
    let status = object.status.as_ref().unwrap_or_else(|| panic!("{} has no status", object.name_any()));
    status.network_id.as_deref().unwrap().parse().unwrap()
}

pub(crate) fn plain() -> Value {
    json!({"cidr": "10.0.0.0/24", "gateway": "10.0.0.1"})
}
