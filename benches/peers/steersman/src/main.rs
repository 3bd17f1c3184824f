//! The measured program on `steersman`: an informer with its defaults.

use std::hint::black_box;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bench_common::{Error, Heard, Indexed, Options, Reference, Subject, Workload, measure};
use clap::Parser;
use k8s_openapi::api::core::v1::Pod;
use steersman::cache::{
    Arrival, CachedResource, Event, EventHandler, Found, Index, Informer, Previous, Registration, Running,
};
use steersman::{InformerFactory, ObjectKey, Scope};

const SYNC_MAX: Duration = Duration::from_secs(300);

/// Measures steersman.
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    options: Options,
    /// The form in which objects are kept
    #[arg(long, default_value = "auto")]
    cache: Cache,
    /// Use a handler that decodes every object, as functions of decoded objects do
    #[arg(long)]
    decode: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Cache {
    /// The default
    Auto,
    /// As bytes
    Compact,
    /// Decoded
    Typed,
}

/// A handler that needs no decoded object, like one that only maps objects to keys.
struct Handler {
    heard: Arc<Heard>,
}

/// A handler that needs decoded objects.
struct DecodingHandler {
    heard: Arc<Heard>,
}

struct Steersman<K> {
    informer: Informer<K>,
    index: OnceLock<Index<K, String>>,
    registration: Registration<K>,
    _running: Running,
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
    K: CachedResource + Indexed,
    K::DynamicType: Default,
{
    measure(&cli.options, |client, heard| {
        let factory = InformerFactory::new(client);
        let factory = match cli.cache {
            Cache::Auto => factory,
            Cache::Compact => factory.compact(),
            Cache::Typed => factory.typed(),
        };
        let informer = factory.informer::<K>(Scope::All);
        let registration = match cli.decode {
            true => informer.add_handler(DecodingHandler { heard }),
            false => informer.add_handler(Handler { heard }),
        };
        Ok(Steersman { informer, index: OnceLock::new(), registration, _running: factory.start() })
    })
    .await
}

impl<K: CachedResource> EventHandler<K> for Handler {
    fn on_event(&mut self, event: &Event<'_, K>) {
        if let Some(object) = event.object() {
            self.heard.tell(object.resource_version());
        }
    }
}

impl<K: CachedResource> EventHandler<K> for DecodingHandler {
    fn on_add(&mut self, object: &Arc<K>, _: Arrival) {
        self.heard.tell(object.meta().resource_version.as_deref().unwrap_or_default());
    }

    fn on_update(&mut self, _: &Previous<'_, K>, new: &Arc<K>) {
        self.heard.tell(new.meta().resource_version.as_deref().unwrap_or_default());
    }
}

impl<K> Subject<K> for Steersman<K>
where
    K: CachedResource + Indexed,
{
    async fn synced(&self) -> Result<(), Error> {
        Ok(self.informer.wait_synced(SYNC_MAX).await?)
    }

    fn get(&self, reference: &Reference) -> Option<Arc<K>> {
        match self.informer.indexer().get(&ObjectKey::namespaced(&reference.namespace, &reference.name)) {
            Found::Object(object) => Some(object),
            Found::Absent | Found::Undecodable(_) => None,
        }
    }

    fn count(&self) -> usize {
        self.informer.lister().len().unwrap_or_default()
    }

    fn list(&self) -> Vec<Arc<K>> {
        self.informer.lister().list().unwrap_or_default()
    }

    fn has_told_all(&self) -> bool {
        self.registration.pending() == 0
    }

    fn add_index(&self) -> Result<(), Error> {
        self.index.get_or_init(|| self.informer.add_index(|object| object.index_value().map(str::to_owned)));
        Ok(())
    }

    fn lookup(&self, value: &str) -> Vec<Arc<K>> {
        self.index.get().and_then(|index| index.get(value).ok()).unwrap_or_default()
    }

    fn lookup_keys(&self, value: &str) -> usize {
        black_box(self.index.get().and_then(|index| index.keys(value).ok())).map_or(0, |keys| keys.len())
    }
}
