//! Write, run and test Kubernetes controllers: client-go's machinery for Rust.
//!
//! One arrow, one owner, one bound. Data from the API server travels down this line, and the reconciler at its end
//! compares the desired state with the observed one:
//!
//! ```text
//!  watch        one per type, scope and selector; resumed, relisted, backed off     [Reflector]
//!    v delta
//!  queue        every event in order; full = the watch is not read                  [DeltaFifo]
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
//! For users of other libraries: [coming from client-go or controller-runtime](guide::coming_from_client_go), [coming
//! from kube-runtime](guide::coming_from_kube_runtime).
//!
//! It builds on `kube` and works with every type that implements `kube::Resource`, against any Kubernetes.
//!
//! # Starting a project
//!
//! Objects are types of `kube` and `k8s-openapi`, so a program needs the same versions of them as this crate. The
//! program chooses the Kubernetes version of the `k8s-openapi` types with one of its features, from `v1_33` on; the
//! server may be of another version.
//!
//! ```toml
//! [dependencies]
//! steersman = { path = "../steersman/crates/steersman" }
//! k8s-openapi = { version = "0.29", features = ["schemars", "v1_37"] }
//! kube = { version = "5", features = ["derive"] }         # `derive` for kinds of one's own
//! schemars = "1"
//! serde = { version = "1", features = ["derive"] }
//! serde_json = "1"
//! thiserror = "2"
//! tokio = { version = "1", features = ["macros", "rt-multi-thread"] }
//!
//! [dev-dependencies]
//! steersman-testkit = { path = "../steersman/crates/steersman-testkit" }
//! ```
//!
//! | feature | brings |
//! |---|---|
//! | `election`, `events`, `metrics` (default) | [`Manager::elect`], [`EventRecorder`](events::EventRecorder), [`Metrics`](metrics::Metrics) |
//! | `rustls-tls` with `ring` (default) or `aws-lc-rs`; `openssl-tls` | how the client speaks TLS |
//! | `shard` | [`Manager::shard`]: replicas share the work |
//! | `anyhow` | `anyhow::Error` as the error of a reconciler |
//! | `strategic` | strategic merge patches: `patch::strategic_from` |
//! | `webhook` | a server for webhooks |
//!
//! # A controller
//!
//! This controller keeps a ConfigMap with a count of pods in every namespace that has a certain label.
//!
//! ```no_run
#![doc = include_str!("../examples/pod_count.rs")]
//! ```
//!
//! # The same by hand
//!
//! The work of [`Controller`], spelled out:
//!
//! ```no_run
//! # use std::time::Duration;
//! # use k8s_openapi::api::core::v1::ConfigMap;
//! # use steersman::queue::{RateLimiter, WorkQueue};
//! # use steersman::{InformerFactory, Scope, Lister, ObjectKey, LookupError};
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
//!
//! # Metrics and health
//!
//! Every [`Manager`] counts the work of its queues, controllers, informers and election, under the names that
//! dashboards for controller-runtime and client-go use; the table is at [`Metrics`](metrics::Metrics). It serves the
//! metrics, with the probes of the kubelet, on a port:
//!
//! ```no_run
//! # use std::net::SocketAddr;
//! use steersman::metrics::Metrics;
//! use steersman::{ClientOptions, Manager};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let metrics = Metrics::new();
//! // With this, requests to the API server count too.
//! let client = steersman::client(&ClientOptions::default().metrics(metrics.clone())).await?;
//! let manager = Manager::new(client).with_metrics(metrics).serve(SocketAddr::from(([0, 0, 0, 0], 8080)))?;
//! manager.health().ready("backend", || if true { Ok(()) } else { Err("no connection") });
//! manager.elect("my-operator", "operators").run_until_signal().await?;
//! # Ok(()) }
//! ```
//!
//! | path | says |
//! |---|---|
//! | `/healthz` | `ok`, or 500 when the process should be restarted; `?verbose` lists the checks, `?exclude=NAME` leaves one out |
//! | `/readyz` | the same for whether it should get work: not before its caches are filled, nor once it is asked to end |
//! | `/healthz/NAME`, `/readyz/NAME` | one check, with its reason |
//! | `/metrics` | OpenMetrics or the older text of Prometheus, as the scraper likes |
//!
//! # Permissions
//!
//! The permissions that the service account of a controller needs:
//!
//! | for | on | verbs |
//! |---|---|---|
//! | an informer, so also [`Controller`], its `owns` and `watches` | the type | `list`, `watch` |
//! | [`finalizers`] | the type | `get`, `patch` |
//! | [`status::Writer`] | `<plural>/status`; the type itself where that is no subresource | `patch` |
//! | [`patch::apply`] | the type | `patch`; `create` where it may not exist yet |
//! | [`create_or_update`](write::create_or_update) and its kin | the type | `get`, `create`, `patch` |
//! | [`owners::set_controller`] | `<plural>/finalizers` of the owner, where the server enforces permissions on owner references | `update` |
//! | [`EventRecorder::new`](events::EventRecorder::new) | `events` | `create`, `patch` |
//! | [`EventRecorder::with_series`](events::EventRecorder::with_series) | `events.events.k8s.io` | `create`, `patch` |
//! | [`Manager::elect`] | `leases.coordination.k8s.io` in the namespace of the lease | `get`, `create`, `update` |
//! | [`Manager::shard`] | the same | `list`, `create`, `update`, `delete` |
//!
//! # Examples
//!
//! In `examples/`, each run by a test against a real API server:
//!
//! | | shows |
//! |---|---|
//! | `minimal` | a controller in thirty lines |
//! | `pod_count` | the controller above |
//! | `informer_index` | a cache with an index, without a controller |
//! | `work_queue` | an informer, a work queue and workers by hand |
//! | `owned_objects` | an object that belongs to another, kept as it should be |
//! | `finalizer` | something outside the cluster, removed before the object goes |
//! | `events_conditions` | a kind of one's own with conditions and Events |
//! | `election_metrics` | replicas, health and metrics |
//! | `dynamic_types` | a kind that is known at run time only |
//! | `opentelemetry` | reconciles as spans |
//! | `sharding`, `webhook_mutating`, `webhook_validating`, `webhook_converting` (in `steersman-testkit`) | replicas that share the work; webhooks |
//!
//! # Modules
//!
//! The names at the root are those of almost every program. The rest is one level down, by purpose:
//!
//! | module | has |
//! |---|---|
//! | [`cache`], [`index_by`], [`predicates`] | informers, handlers, indexes, listers; which changes count |
//! | [`reflector`] | below a cache: the watch, and the queue of its events |
//! | [`queue`], [`controller`], [`reconcile`] | work queues; sources, workers; what a reconciler returns |
//! | [`manager`], [`health`], `metrics` | the life of a process of controllers, and what it says of itself |
//! | `election`, `shard` | replicas: one works, or all share the work |
//! | [`write`](mod@write), [`patch`], [`status`], [`conditions`], [`finalizers`], [`owners`], `events` | writing |
//! | [`consistency`] | seeing one's own writes |
//! | [`wait`] | waiting until an object is as one wants it |
//! | [`typed`] | clients for generated code |
//! | `webhook` | webhooks |
//!
//! # Where to look
//!
//! | for | see |
//! |---|---|
//! | a client from a kubeconfig, a master URL or the pod's service account | [`client`](client()) |
//! | what a cache costs, and caches of bytes at a third of it and less | [`CacheMode`](cache::CacheMode), [`InformerFactory::compact`], [`InformerFactory::typed`] |
//! | lookups by owner, label or anything else | [`Informer::add_index`](cache::Informer::add_index), [`Index`](cache::Index), [`index_by`] |
//! | code that was written against `kube::Api` | [`Reader`](cache::Reader) |
//! | some namespaces only | [`Scope::namespaces`] |
//! | less memory: what nobody reads is not held | [`InformerFactory::transform`], [`ReflectorOptions::prune`](reflector::ReflectorOptions::prune) |
//! | types known only at run time, or metadata alone | [`InformerFactory::informer_with`], [`Controller::new_with`], [`Watch`](controller::Watch) |
//! | which changes count | [`predicates`], [`Controller::when`] |
//! | retries, giving up | [`RateLimiter`](queue::RateLimiter), [`ReconcileError`], [`Controller::give_up_after`] |
//! | what runs first; not all at the same time | [`Priority`](queue::Priority), [`Controller::priority`], [`Action::with_priority`]; [`Action::jittered`] |
//! | seeing one's own writes | in a reconciler [`ConsistencyStore`](consistency::ConsistencyStore): the key comes back when the caches have them; elsewhere [`Lister::wait_for`]: it waits for one |
//! | clients, informers and listers by name, as client-go generates them | [`typed`] |
//! | changes as a `Stream`, without another watch | [`Informer::changes`](cache::Informer::changes), [`Informer::watch_object`](cache::Informer::watch_object) |
//! | waiting for an object to be established, running, gone | [`wait::await_condition`], [`Informer::await_condition`](cache::Informer::await_condition) |
//! | writing | [`create_or_update`](write::create_or_update), [`patch`], [`status`], [`conditions`], [`finalizers`], [`owners`] |
//! | telling people | [`EventRecorder`](events::EventRecorder); what it has not sent when the process ends is lost without [`EventRecorder::flush`](events::EventRecorder::flush) |
//! | objects of several clusters | [`Cluster`](manager::Cluster), [`Manager::controller_in`] |
//! | one replica works, others wait | [`Manager::elect`], [`Election`](election::Election) |
//! | several replicas share the work | [`Manager::shard`], [`ShardMember`](shard::ShardMember) |
//! | some controllers share the work, others run in one replica only | [two managers](Manager::shard), one within the other |
//! | tests against a real API server in the test's own process | the crate `steersman-testkit` |
//! | webhooks: mutating, validating, converting | `webhook`, with the feature of that name |
//! | metrics, health, readiness | [`Manager::serve`], [`Metrics`](metrics::Metrics), [`Health`](health::Health) |
//! | what is served while the server is away | [`Lister`]; [`Informer::staleness`](cache::Informer::staleness) says for how long |
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(all(feature = "election", feature = "metrics", feature = "shard")),
    allow(dead_code, reason = "queues and controllers count and divide for features that are off")
)]

#[cfg(all(feature = "webhook", not(any(feature = "ring", feature = "aws-lc-rs"))))]
compile_error!("the feature `webhook` needs cryptography: switch on `ring` or `aws-lc-rs` as well");

/// Caches of the server's objects: informers fill them and call handlers for changes, indexes and listers read them.
pub mod cache {
    pub(crate) mod cached;
    pub(crate) mod factory;
    pub(crate) mod handler;
    pub(crate) mod index;
    pub mod index_by;
    pub(crate) mod indexer;
    pub(crate) mod informer;
    pub(crate) mod lister;
    pub(crate) mod outcome;
    pub(crate) mod reader;

    pub use crate::cache::cached::{CacheMode, Cached};
    pub use crate::cache::factory::{InformerFactory, Running};
    pub use crate::cache::handler::{Change, Deleted, Event, EventHandler, EventKind, HandlerFn, Previous, handler_fn};
    pub use crate::cache::index::Index;
    pub use crate::cache::indexer::{Found, Indexer};
    pub use crate::cache::informer::{
        Changes, HandlerOptions, Informer, MAILBOX_MAX, NotSynced, ObjectStates, OwnedEvent, Registration,
    };
    pub use crate::cache::lister::{Lister, LookupError, WaitError};
    pub use crate::cache::outcome::{Arrival, Finality, Outcome};
    pub use crate::cache::reader::{ReadError, Reader, SelectorError};
    pub use crate::shared::selection::{CachedResource, Scope, Selection};
}
pub mod client;
/// Controllers, and the process that they live in.
mod control {
    pub mod consistency;
    pub mod controller;
    pub(crate) mod fence;
    pub mod health;
    pub mod manager;
    #[cfg(feature = "metrics")]
    pub mod metrics;
    #[cfg(not(feature = "metrics"))]
    #[path = "metrics/absent.rs"]
    pub(crate) mod metrics;
    pub mod predicates;
    pub mod queue;
    pub mod reconcile;
}
/// Guides for users of other libraries.
pub mod guide {
    #[doc = include_str!("../docs/coming-from-client-go.md")]
    pub mod coming_from_client_go {}
    #[doc = include_str!("../docs/coming-from-kube-runtime.md")]
    pub mod coming_from_kube_runtime {}
}
/// Replicas: one works, or all share the work.
mod leadership {
    #[cfg(feature = "election")]
    pub mod election;
    #[cfg(not(feature = "election"))]
    #[path = "election/absent.rs"]
    pub(crate) mod election;
    #[cfg(feature = "shard")]
    pub mod shard;
    #[cfg(not(feature = "shard"))]
    #[path = "shard/absent.rs"]
    pub(crate) mod shard;
}
/// Lists and watches, and the queue of their events.
mod list_watch {
    pub(crate) mod delta;
    pub mod reflector;
    pub(crate) mod transform;
    pub(crate) mod wire;
}
/// Keys, clocks, delays and what else all parts use.
mod shared {
    pub(crate) mod accept;
    pub(crate) mod backoff;
    pub(crate) mod chain;
    pub(crate) mod clock;
    pub(crate) mod decode_error;
    pub(crate) mod histogram;
    #[cfg(any(feature = "election", feature = "events", feature = "shard"))]
    pub(crate) mod host;
    pub mod key;
    pub(crate) mod selection;
    pub(crate) mod sparse;
}
pub mod typed;
pub mod wait;
#[cfg(feature = "webhook")]
pub mod webhook;
/// Writes to the API server.
mod writing {
    pub mod conditions;
    pub(crate) mod create_or_update;
    #[cfg(feature = "events")]
    pub mod events;
    pub mod finalizers;
    pub mod owners;
    pub mod patch;
    pub(crate) mod slow_start;
    pub mod status;
    pub mod write;
}

pub use crate::cache::index_by;
#[cfg(feature = "metrics")]
pub use crate::control::metrics;
pub use crate::control::{consistency, controller, health, manager, predicates, queue, reconcile};
#[cfg(feature = "election")]
pub use crate::leadership::election;
#[cfg(feature = "shard")]
pub use crate::leadership::shard;
pub use crate::list_watch::reflector;
pub use crate::shared::key;
#[cfg(feature = "events")]
pub use crate::writing::events;
pub use crate::writing::{conditions, finalizers, owners, patch, status, write};

pub use crate::cache::factory::InformerFactory;
pub use crate::cache::lister::{Lister, LookupError};
pub use crate::client::{ClientOptions, client};
pub use crate::control::controller::Controller;
pub use crate::control::manager::{Manager, ManagerError, shutdown_signal};
pub use crate::control::reconcile::{Action, BoxError, ReconcileError};
pub use crate::shared::key::ObjectKey;
pub use crate::shared::selection::Scope;
pub use crate::writing::write::WriteError;

/// Compiles the code of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
