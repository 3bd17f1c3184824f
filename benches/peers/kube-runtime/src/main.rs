//! The measured program on `kube-runtime`: a watcher reflected into a store, as in its documentation.

use std::fmt::Debug;
use std::hint::black_box;
use std::sync::Arc;

use bench_common::{Error, Heard, Indexed, Options, Reference, Subject, Workload, measure};
use clap::Parser;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Resource};
use kube_runtime::reflector::{ObjectRef, Store};
use kube_runtime::{WatchStreamExt, reflector, watcher};
use serde::de::DeserializeOwned;

/// Measures kube-runtime.
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    options: Options,
    /// The way to get the initial state
    #[arg(long)]
    initial: Initial,
    /// Drop managedFields before anything is stored
    #[arg(long)]
    strip: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Initial {
    /// LIST in pages, then WATCH: the default
    List,
    /// A watch that begins with the initial state
    Stream,
}

struct KubeRuntime<K: reflector::Lookup + 'static>
where
    K::DynamicType: Eq + std::hash::Hash,
{
    store: Store<K>,
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let cli = Cli::parse();
    match cli.options.workload {
        Workload::Custom => run::<bench_common::Database>(&cli).await,
        Workload::Pods => run::<Pod>(&cli).await,
    }
}

async fn run<K>(cli: &Cli) -> Result<(), Error>
where
    K: Clone + Debug + DeserializeOwned + Indexed + Resource<DynamicType = ()> + Send + Sync + 'static,
{
    let config = match cli.initial {
        Initial::List => watcher::Config::default(),
        Initial::Stream => watcher::Config::default().streaming_lists(),
    };
    measure(&cli.options, |client, heard: Arc<Heard>| {
        let (store, writer) = reflector::store::<K>();
        let strip = cli.strip;
        let objects = watcher(Api::<K>::all(client), config)
            .modify(move |object| {
                if strip {
                    object.meta_mut().managed_fields = None;
                }
            })
            .reflect(writer)
            .default_backoff()
            .touched_objects();
        tokio::spawn(objects.into_stream().for_each(move |object| {
            // An error ends a watch; the watcher begins another.
            if let Ok(object) = object {
                heard.tell(object.meta().resource_version.as_deref().unwrap_or_default());
            }
            futures::future::ready(())
        }));
        Ok(KubeRuntime { store })
    })
    .await
}

impl<K> Subject<K> for KubeRuntime<K>
where
    K: Clone + Indexed + Resource<DynamicType = ()> + 'static,
{
    async fn synced(&self) -> Result<(), Error> {
        Ok(self.store.wait_until_ready().await?)
    }

    fn get(&self, reference: &Reference) -> Option<Arc<K>> {
        self.store.get(&ObjectRef::new(&reference.name).within(&reference.namespace))
    }

    fn count(&self) -> usize {
        self.store.len()
    }

    fn list(&self) -> Vec<Arc<K>> {
        self.store.state()
    }

    fn has_told_all(&self) -> bool {
        // The handler consumes the same stream that fills the store.
        true
    }

    fn add_index(&self) -> Result<(), Error> {
        Ok(())
    }

    fn lookup(&self, value: &str) -> Vec<Arc<K>> {
        // There are no indexes, so lookups scan the store.
        self.store.state_filter(|object| object.index_value() == Some(value))
    }

    fn lookup_keys(&self, value: &str) -> usize {
        let objects = self.lookup(value);
        let keys: Vec<ObjectRef<K>> = objects.iter().map(|object| ObjectRef::from_obj(&**object)).collect();
        black_box(keys).len()
    }
}
