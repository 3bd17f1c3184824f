//! Shares informers: one watch per type, scope and selectors, however many users it has.

use std::any::TypeId;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use hashbrown::HashMap;
use kube::Client;
use parking_lot::Mutex;
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cache::cached::CacheMode;
use crate::cache::informer::{self, AnyInformer, Informer, Made, NotSynced, Shared};
use crate::list_watch::reflector::ReflectorOptions;
use crate::list_watch::transform::{Transform, Transforms};
use crate::shared::selection::{CachedResource, Selection, Target};

/// The time after which a wait for caches is first logged: it doubles each time, so that a type which is never served
/// does not fill the log.
const SYNC_LOG_PERIOD: Duration = Duration::from_secs(30);
const SYNC_LOG_PERIOD_MAX: Duration = Duration::from_secs(3_600);

/// Makes and starts informers. Clones share one factory.
#[derive(Clone)]
pub struct InformerFactory {
    client: Client,
    resync: Option<Duration>,
    options: ReflectorOptions,
    transforms: Transforms,
    state: Arc<Mutex<State>>,
}

/// Informers that run. Dropping the last clone stops them, without waiting.
#[derive(Clone, Debug)]
#[must_use = "dropping this stops the informers"]
pub struct Running {
    run: Arc<Run>,
}

/// Informers of any types, for health checks and metrics.
pub(crate) trait ObservedInformers: Send + Sync {
    /// The metrics of each informer.
    fn reports(&self) -> Vec<informer::Report>;
    /// The parts that are not synced, and why.
    fn unsynced(&self) -> Vec<String>;
}

#[derive(Default)]
struct State {
    informers: HashMap<(TypeId, Target), Arc<dyn AnyInformer>>,
    /// Set by the first start.
    run: Option<Weak<Run>>,
}

#[derive(Debug)]
struct Run {
    tasks: TaskTracker,
    stop: CancellationToken,
}

// === impl InformerFactory ===

impl InformerFactory {
    /// A factory without informers.
    pub fn new(client: Client) -> Self {
        let (options, transforms) = (ReflectorOptions::default(), Transforms::default());
        Self { client, resync: None, options, transforms, state: Arc::default() }
    }

    /// Delivers the whole cache to handlers again every `period`, unless they set another. Default: never.
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = Some(period);
        self
    }

    /// Holds the objects of the informers made from here on as bytes ([`CacheMode::COMPACT`]); by default only wide
    /// types such as Pods are held so ([`CacheMode::Auto`]). An informer that exists stays unchanged: its first user
    /// chooses. To choose for one type, make it through a clone:
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::{Node, Pod};
    /// # use steersman::{InformerFactory, Scope};
    /// # fn make(factory: InformerFactory) {
    /// let pods = factory.clone().compact().informer::<Pod>(Scope::All);
    /// let nodes = factory.informer::<Node>(Scope::All);
    /// # }
    /// ```
    pub fn compact(mut self) -> Self {
        self.options.cache = CacheMode::COMPACT;
        self
    }

    /// Holds the objects of the informers made from here on decoded ([`CacheMode::Typed`]), also those of wide types
    /// such as Pods: for programs that read all of them again and again and have the memory.
    pub fn typed(mut self) -> Self {
        self.options.cache = CacheMode::Typed;
        self
    }

    /// Changes each object of type `K` before the informers made from here on hold it, so that fields that nobody reads
    /// cost no memory: readers and handlers never see them. Works with decoded objects and with bytes, which are
    /// decoded for it once, when they arrive. If this is called again for the same type, the last call counts. As with
    /// [`InformerFactory::compact`], an informer that exists stays unchanged, and a clone of the factory serves to make
    /// one informer only.
    ///
    /// Name, namespace, uid and resourceVersion are kept, whatever `transform` does. An object for which it panics
    /// counts as undecodable. Do not write such an object back to the server, because fields are missing from it: patch
    /// or apply instead. To leave out whole members, [`ReflectorOptions::prune`] costs less, because nothing is
    /// decoded; by default it prunes `metadata.managedFields`.
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use steersman::{InformerFactory, Scope};
    /// # fn make(factory: InformerFactory) {
    /// let factory = factory.transform(|pod: &mut Pod| {
    ///     pod.metadata.annotations = None;
    ///     if let Some(spec) = &mut pod.spec {
    ///         spec.volumes = None;
    ///         spec.containers.iter_mut().for_each(|container| container.env = None);
    ///     }
    /// });
    /// let pods = factory.informer::<Pod>(Scope::All);
    /// # }
    /// ```
    pub fn transform<K>(mut self, transform: impl Fn(&mut K) + Send + Sync + 'static) -> Self
    where
        K: CachedResource + Serialize,
    {
        self.transforms.set(Transform::new(transform));
        self
    }

    /// How the informers made from here on list and watch.
    pub fn options(mut self, options: ReflectorOptions) -> Self {
        self.options = options;
        self
    }

    /// The client that the informers use.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The informer of `K` for `selection`: every call with the same type and selection gets the same one. Once the
    /// factory has been started, it runs.
    pub fn informer<K>(&self, selection: impl Into<Selection>) -> Informer<K>
    where
        K: CachedResource,
        K::DynamicType: Default,
    {
        self.informer_with(&K::DynamicType::default(), selection)
    }

    /// As [`InformerFactory::informer`], for types that are known only at run time, for instance `DynamicObject` with
    /// its `ApiResource`, or `PartialObjectMeta<DynamicObject>`.
    pub fn informer_with<K: CachedResource>(
        &self,
        dynamic: &K::DynamicType,
        selection: impl Into<Selection>,
    ) -> Informer<K> {
        self.at(dynamic, Target::of::<K>(dynamic, selection.into()))
    }

    fn at<K: CachedResource>(&self, dynamic: &K::DynamicType, target: Target) -> Informer<K> {
        let mut state = self.state.lock();
        let key = (TypeId::of::<K>(), target);
        if let Some(known) = state.informers.get(&key)
            && let Ok(shared) = Arc::clone(known).into_any().downcast::<Shared<K>>()
        {
            return Informer::from_shared(shared);
        }
        let made = Made { options: self.options.clone(), transform: self.transforms.of::<K>(), resync: self.resync };
        let informer = Informer::new(self.client.clone(), dynamic, key.1.clone(), made);
        if let Some(run) = state.run.as_ref().and_then(Weak::upgrade) {
            informer.shared().start(&run.tasks, &run.stop);
        }
        state.informers.insert(key, informer.shared());
        informer
    }

    /// Whether both are clones of one factory.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }

    /// Starts every informer made so far, and from now on every new one at once. A further call does nothing and
    /// returns the same handle. Informers that were stopped stay stopped and keep their last state; to watch again,
    /// make a new factory.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(&self) -> Running {
        let mut state = self.state.lock();
        let run = state
            .run
            .as_ref()
            .and_then(Weak::upgrade)
            .unwrap_or_else(|| Arc::new(Run { tasks: TaskTracker::new(), stop: CancellationToken::new() }));
        state.run = Some(Arc::downgrade(&run));
        for informer in state.informers.values() {
            Arc::clone(informer).start(&run.tasks, &run.stop);
        }
        Running { run }
    }

    /// Waits until every cache is filled, including caches made meanwhile.
    pub(crate) async fn filled(&self) {
        loop {
            let informers: Vec<_> = self.state.lock().informers.values().cloned().collect();
            if informers.iter().all(|informer| informer.unfilled().is_none()) {
                return;
            }
            futures::future::join_all(informers.into_iter().map(AnyInformer::filled)).await;
        }
    }

    /// The caches that are not filled, and why.
    pub(crate) fn unfilled(&self) -> Vec<String> {
        let informers: Vec<_> = self.state.lock().informers.values().cloned().collect();
        informers.iter().filter_map(|informer| informer.unfilled()).collect()
    }

    /// The informers, for health checks and metrics.
    pub(crate) fn observed(&self) -> Weak<dyn ObservedInformers> {
        let state: Arc<dyn ObservedInformers> = Arc::<Mutex<State>>::clone(&self.state);
        Arc::downgrade(&state)
    }

    /// Waits until every informer made so far is synced, and its handlers with it.
    ///
    /// # Errors
    /// [`NotSynced`] when `deadline` has passed; it names every informer that is not synced.
    pub async fn wait_synced(&self, deadline: Duration) -> Result<(), NotSynced> {
        let informers: Vec<_> = self.state.lock().informers.values().cloned().collect();
        let all = futures::future::join_all(informers.iter().map(|informer| Arc::clone(informer).synced()));
        if tokio::time::timeout(deadline, all).await.is_ok() {
            return Ok(());
        }
        Err(NotSynced { what: unsynced(&informers), waited: deadline })
    }
}

/// Waits for `synced`. Logs after [`SYNC_LOG_PERIOD`] that `name` waits, and for what, and then ever more rarely.
///
/// # Cancel safety
/// Cancel safe if `synced` is.
pub(crate) async fn reporting(name: &str, unsynced: impl Fn() -> Vec<String>, synced: impl Future<Output = ()>) {
    let mut synced = pin!(synced);
    let mut period = SYNC_LOG_PERIOD;
    while tokio::time::timeout(period, &mut synced).await.is_err() {
        period = (period * 2).min(SYNC_LOG_PERIOD_MAX);
        tracing::warn!(waiting = name, caches = unsynced().join("; "), "caches are not filled yet, still waiting");
    }
}

impl fmt::Debug for InformerFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let informers = self.state.lock().informers.len();
        f.debug_struct("InformerFactory").field("informers", &informers).finish_non_exhaustive()
    }
}

fn unsynced(informers: &[Arc<dyn AnyInformer>]) -> Vec<String> {
    let mut what: Vec<String> = informers.iter().flat_map(|informer| informer.unsynced()).collect();
    what.sort();
    what
}

impl ObservedInformers for Mutex<State> {
    fn reports(&self) -> Vec<informer::Report> {
        let informers: Vec<_> = self.lock().informers.values().cloned().collect();
        informers.iter().map(|informer| informer.report()).collect()
    }

    fn unsynced(&self) -> Vec<String> {
        let informers: Vec<_> = self.lock().informers.values().cloned().collect();
        unsynced(&informers)
    }
}

// === impl Running ===

impl Running {
    /// Stops in order: the watches, then the caches once they have the events that were read, then the handlers once
    /// they have received them. Returns when all is done. Other users of the informers keep their last state.
    pub async fn shutdown(self) {
        self.run.shutdown().await;
    }

    /// As [`Running::shutdown`], unless another clone exists: then the informers go on.
    pub(crate) async fn leave(self) {
        if let Some(run) = Arc::into_inner(self.run) {
            run.shutdown().await;
        }
    }
}

impl Run {
    async fn shutdown(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
