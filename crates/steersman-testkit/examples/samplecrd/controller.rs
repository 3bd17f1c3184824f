//! The controller that client-go's sample has, statement for statement: a queue filled by handlers, workers, and a sync that
//! reads from a lister. [`steersman::Controller`] does all of this in one line.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use steersman::cache::{Arrival, Deleted, EventHandler, Informer, NotSynced, Previous};
use steersman::queue::{RateLimiter, WorkQueue};
use steersman::typed::TypedInformer;
use steersman::{Lister, LookupError, ObjectKey};

use crate::api::Network;
use crate::client::samplecrd_v1::NetworkLister as _;

pub struct Controller {
    networks_lister: Lister<Network>,
    networks_informer: Informer<Network>,
    workqueue: WorkQueue<ObjectKey>,
    /// In place of Neutron: what was done to it.
    neutron: Arc<Mutex<Vec<String>>>,
}

/// Puts the keys of what changed into the queue.
struct Handler(WorkQueue<ObjectKey>);

impl EventHandler<Network> for Handler {
    fn on_add(&mut self, network: &Arc<Network>, _: Arrival) {
        self.0.add(ObjectKey::of(&**network));
    }

    fn on_update(&mut self, old: &Previous<'_, Network>, new: &Arc<Network>) {
        // The cache is delivered again from time to time: then nothing has changed.
        if Some(old.resource_version()) == new.metadata.resource_version.as_deref() {
            return;
        }
        self.0.add(ObjectKey::of(&**new));
    }

    fn on_delete(&mut self, deleted: &Deleted<Network>) {
        self.0.add(deleted.key());
    }
}

impl Controller {
    pub fn new(network_informer: &TypedInformer<Network>, neutron: Arc<Mutex<Vec<String>>>) -> Self {
        let controller = Self {
            networks_lister: network_informer.lister(),
            networks_informer: network_informer.informer(),
            workqueue: WorkQueue::new("Networks", RateLimiter::default()),
            neutron,
        };
        network_informer.informer().add_handler(Handler(controller.workqueue.clone()));
        controller
    }

    /// Works until `stop` completes.
    pub async fn run(self, threadiness: usize, stop: impl Future<Output = ()>) -> Result<(), NotSynced> {
        self.networks_informer.wait_synced(Duration::from_secs(30)).await?;
        let controller = Arc::new(self);
        let mut workers = tokio::task::JoinSet::new();
        for _ in 0..threadiness {
            let controller = Arc::clone(&controller);
            workers.spawn(async move { controller.run_worker().await });
        }
        stop.await;
        controller.workqueue.shutdown();
        workers.join_all().await;
        Ok(())
    }

    async fn run_worker(&self) {
        while let Some(item) = self.workqueue.get().await {
            match self.sync_handler(item.key()) {
                Ok(()) => item.forget(),
                Err(error) => {
                    eprintln!("error syncing {}: {error}", item.key());
                    item.retry(error);
                }
            }
        }
    }

    fn sync_handler(&self, key: &ObjectKey) -> Result<(), LookupError> {
        let (namespace, name) = (key.namespace().unwrap_or_default(), key.name());
        let network = match self.networks_lister.networks(namespace).get(name) {
            Ok(network) => network,
            // It is not in the cache any more, so it was deleted.
            Err(LookupError::NotFound { .. }) => {
                self.neutron.lock().push(format!("delete {key}"));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.neutron.lock().push(format!("process {key} {}", network.spec.cidr));
        Ok(())
    }
}
