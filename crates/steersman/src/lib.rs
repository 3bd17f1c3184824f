//! Write, run and test Kubernetes controllers: client-go's machinery for Rust.
//!
//! One arrow, one owner, one bound. What the API server says travels down this line, and a reconciler at its end
//! compares what should be with what is:
//!
//! ```text
//!  watch        one per type, scope and selector; resumed, relisted, backed off     [Reflector]
//!    v delta
//!  queue        every event in order; a relist is one delta; full = not reading     [DeltaFifo]
//!    v batch
//!  cache        by key and by any number of indexes; Arcs out                       [Indexer, Lister]
//!    v (old, new)
//!  handlers     each with its own queue and task; map an object to keys             [Informer, EventHandler]
//!    v key
//!  work queue   fair, deduplicating, delayed, rate-limited; the only home of retry  [WorkQueue]
//!    v guard
//!  workers      one key never in two; panics caught, counted, retried               [Controller, Manager]
//!    v
//!  reconciler   reads through a Lister, writes idempotently, says what to do next   [Action]
//! ```
//!
//! It stands on `kube` and works with every type that implements `kube::Resource`, against any Kubernetes.
//!
//! # A controller
//!
//! This one keeps a ConfigMap with a count of pods in every namespace that asks for one with a label.
//!
//! ```no_run
//! use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
//! use serde_json::json;
//! use steersman::{
//!     Action, ClientOptions, Controller, EventRecorder, EventType, Lister, LookupError, Manager, ObjectKey,
//!     ReconcileError, Scope, Selection, WriteError, patch, shutdown_signal,
//! };
//!
//! struct Context {
//!     client: kube::Client,
//!     namespaces: Lister<Namespace>,
//!     pods: Lister<Pod>,
//!     events: EventRecorder,
//! }
//!
//! #[derive(Debug, thiserror::Error)]
//! enum Error {
//!     #[error("cannot read the namespace")]
//!     Read(#[from] LookupError),
//!     #[error("cannot write the count")]
//!     Write(#[from] WriteError),
//! }
//!
//! impl ReconcileError for Error {}
//!
//! async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, Error> {
//!     let namespace = match cx.namespaces.get(&key) {
//!         Ok(namespace) => namespace,
//!         // Deleted, and its ConfigMap with it: nothing to do.
//!         Err(LookupError::NotFound { .. }) => return Ok(Action::AwaitChange),
//!         Err(error) => return Err(error.into()),
//!     };
//!     let n_pods = cx.pods.list_in(key.name()).len();
//!     let count = ObjectKey::namespaced(key.name(), "pod-count");
//!     let wanted = json!({"data": {"pods": n_pods.to_string()}});
//!     patch::apply::<ConfigMap>(&cx.client, &count, "pod-counter", patch::Force::Yes, &wanted).await?;
//!     cx.events.event(&*namespace, EventType::Normal, "Counted", "the pods of this namespace were counted");
//!     Ok(Action::AwaitChange)
//! }
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let client = steersman::client(&ClientOptions::default()).await?;
//! let counted = Selection::new(Scope::All).labels("count-pods=true");
//! let manager = Manager::new(client.clone());
//! let context = Context {
//!     namespaces: manager.informers().informer::<Namespace>(counted.clone()).lister(),
//!     pods: manager.informers().informer::<Pod>(Scope::All).lister(),
//!     events: EventRecorder::new(client.clone(), "pod-counter"),
//!     client,
//! };
//! let namespace_of = |pod: &Pod| pod.metadata.namespace.iter().map(|name| ObjectKey::cluster(name)).collect();
//! let controller = Controller::<Namespace>::new(reconcile, context)
//!     .selection(counted)
//!     .watches::<Pod>(Scope::All, namespace_of)
//!     .workers(2);
//! manager.elect("pod-counter", "default").controller(controller).run(shutdown_signal()).await?;
//! # Ok(()) }
//! ```
//!
//! # The same by hand
//!
//! What [`Controller`] takes care of, spelled out:
//!
//! ```no_run
//! # use std::time::Duration;
//! # use k8s_openapi::api::core::v1::ConfigMap;
//! # use steersman::{InformerFactory, RateLimiter, Scope, WorkQueue, Lister, ObjectKey, LookupError};
//! # async fn sync(key: &ObjectKey, configs: &Lister<ConfigMap>) -> Result<(), LookupError> { configs.get(key).map(drop) }
//! # async fn run(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let factory = InformerFactory::new(client).resync(Duration::from_secs(30));
//! let configs = factory.informer::<ConfigMap>(Scope::All);
//! let queue = WorkQueue::new("configs", RateLimiter::default());
//! configs.add_handler(queue.enqueuer());
//! let running = factory.start();
//! configs.wait_synced(Duration::from_secs(30)).await?;
//! while let Some(item) = queue.get().await {
//!     match sync(item.key(), &configs.lister()).await {
//!         Ok(()) => item.forget(),
//!         Err(error) => drop(item.retry(error)),
//!     }
//! }
//! running.shutdown().await;
//! # Ok(()) }
//! ```
#![deny(missing_docs)]

mod backoff;
mod chain;
mod client;
pub mod conditions;
mod controller;
mod delta;
mod election;
mod events;
mod factory;
pub mod finalizers;
mod handler;
mod indexer;
mod informer;
mod key;
mod lister;
mod manager;
pub mod patch;
mod queue;
mod reconcile;
mod reflector;
mod selection;
pub mod status;
mod wire;
mod write;

pub use crate::backoff::Limits as BackoffLimits;
pub use crate::client::{ClientError, ClientOptions, client};
pub use crate::controller::{Controller, ControllerError, ControllerStats, GRACE};
pub use crate::delta::{
    BATCH_MAX, Closed, DELTAS_MAX, DecodeError, Delta, DeltaFifo, DeltaSender, Entry, Replacement, delta_fifo,
};
pub use crate::election::{Election, ElectionError, ElectionOptions};
pub use crate::events::{EVENTS_MAX, EventRecorder, EventType};
pub use crate::factory::{InformerFactory, Running};
pub use crate::handler::{Arrival, Change, Deleted, EventHandler, HandlerFn, handler_fn};
pub use crate::indexer::{Found, IndexError, Indexer, NAMESPACE_INDEX, Outcome};
pub use crate::informer::{HandlerOptions, Informer, MAILBOX_MAX, NotSynced, Registration};
pub use crate::key::{ObjectKey, ParseKeyError};
pub use crate::lister::{Lister, LookupError, WaitError};
pub use crate::manager::{Manager, ManagerError, shutdown_signal};
pub use crate::queue::{Enqueuer, Item, Key, Priority, RateLimiter, Stats as QueueStats, WorkQueue};
pub use crate::reconcile::{Action, ReconcileError, ReconcileFn};
pub use crate::reflector::{InitialList, Reflector, ReflectorOptions};
pub use crate::selection::{CachedResource, Scope, Selection};
pub use crate::write::WriteError;
