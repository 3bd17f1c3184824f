//! Keeps a bucket outside the cluster for every ConfigMap with a label: created after the finalizer is set, and removed
//! before the object is gone.
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::ConfigMap;
use steersman::cache::Selection;
use steersman::{
    Action, BoxError, ClientOptions, Controller, Lister, Manager, ManagerError, ObjectKey, Scope, finalizers,
};

const FINALIZER: &str = "example.com/bucket";

/// A store of buckets, outside the cluster. Creating and removing are idempotent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buckets(Arc<Mutex<BTreeSet<String>>>);

impl Buckets {
    fn ensure(&self, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
    }

    fn remove(&self, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

struct Context {
    client: kube::Client,
    configs: Lister<ConfigMap>,
    buckets: Buckets,
}

async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, BoxError> {
    let config = cx.configs.get(&key)?;
    if !finalizers::is_deleting(&*config) {
        finalizers::add(&cx.client, &*config, FINALIZER).await?;
        cx.buckets.ensure(key.as_str());
    } else if finalizers::contains(&*config, FINALIZER) {
        cx.buckets.remove(key.as_str());
        finalizers::remove(&cx.client, &*config, FINALIZER).await?;
    }
    Ok(Action::AwaitChange)
}

pub(crate) async fn run(
    client: kube::Client,
    buckets: Buckets,
    end: impl Future<Output = ()>,
) -> Result<(), ManagerError> {
    let wanted = Selection::new(Scope::All).labels("bucket=wanted");
    let manager = Manager::new(client.clone());
    let configs = manager.informers().informer(wanted);
    let controller = Controller::of(&configs, reconcile, Context { client, configs: configs.lister(), buckets });
    manager.controller(controller).run(end).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = steersman::client(&ClientOptions::default()).await?;
    let buckets = Buckets::default();
    run(client, buckets.clone(), steersman::shutdown_signal()).await?;
    println!("buckets at the end: {:?}", buckets.names());
    Ok(())
}
