//! Clusters besides a manager's own: each has a client and caches of its own, and the life of the manager.

use std::sync::Arc;

use kube::Client;

use crate::cache::factory::InformerFactory;

/// A cluster besides the manager's own: its name, its client and its caches. Clones share them.
///
/// The lease, the shards and the other parts of a [`Manager`](crate::Manager) are in the cluster that the manager was
/// made for. Each controller is added for one cluster, and its context should name it: a key does not.
///
/// ```no_run
/// # use steersman::manager::Cluster;
/// # use steersman::{Action, BoxError, Controller, Lister, Manager, ObjectKey, Scope};
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// struct Context {
///     cluster: Cluster,
///     configs: Lister<ConfigMap>,
/// }
///
/// async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, BoxError> {
///     let config = cx.configs.get(&key)?;
///     tracing::info!(cluster = cx.cluster.name(), entries = config.data.as_ref().map_or(0, |data| data.len()), "seen");
///     Ok(Action::AwaitChange)
/// }
///
/// # async fn run(home: kube::Client, others: Vec<(String, kube::Client)>) -> Result<(), steersman::ManagerError> {
/// let mut manager = Manager::new(home).elect("config-counter", "operators");
/// for (name, client) in others {
///     let cluster = Cluster::new(&name, client);
///     let configs = cluster.informers().informer::<ConfigMap>(Scope::All);
///     let context = Context { cluster: cluster.clone(), configs: configs.lister() };
///     manager = manager.controller_in(&cluster, Controller::of(&configs, reconcile, context));
/// }
/// manager.run_until_signal().await
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Cluster {
    name: Arc<str>,
    informers: InformerFactory,
}

// === impl Cluster ===

impl Cluster {
    /// A cluster with informers of its own.
    pub fn new(name: &str, client: Client) -> Self {
        Self::with_informers(name, InformerFactory::new(client))
    }

    /// A cluster that uses `informers`, whose resync and options are already set.
    pub fn with_informers(name: &str, informers: InformerFactory) -> Self {
        Self { name: name.into(), informers }
    }

    /// The name, as metrics and logs show it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The client that the informers use.
    pub fn client(&self) -> &Client {
        self.informers.client()
    }

    /// The informers of this cluster.
    pub fn informers(&self) -> &InformerFactory {
        &self.informers
    }
}
