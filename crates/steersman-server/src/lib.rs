//! A Kubernetes-compatible API server: bytes in, bytes out.
//!
//! [`Server`] holds the store and the served catalog; [`Server::service`] is a `tower::Service`, the same for a TLS
//! socket, a test in the same process and the built-in controllers. There is no other way in.
//!
//! ```text
//! chain      -> authentication, authorization, limits of requests in flight, the body
//! route      -> discovery, OpenAPI, health, version | a resource of the catalog
//! endpoint   -> the request as an operation, and the outcome as an answer
//! registry   -> one loop for all writes of all kinds; the rules of a kind are in its strategy
//! ```
//!
//! Deliberately not here: sockets, command lines, process state (`steersman-cli`), and the control loops
//! (`steersman-controllers`), which are clients like any other.

pub mod admission;
mod agents;
mod aggregation;
mod answer;
pub mod audit;
pub mod authn;
pub mod authz;
mod body;
mod body_memory;
mod bootstrap;
mod chain;
mod codec;
mod compiled;
mod compute;
mod config_file;
mod conversion;
mod conversion_webhook;
mod definitions;
mod digest_cache;
pub mod discovery;
mod endpoint;
mod expiry;
mod flowcontrol;
mod follower;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod health;
mod in_force;
mod initializers;
mod key_rotation;
mod legacy_uses;
mod limits;
mod metrics;
pub mod negotiate;
pub mod openapi;
mod operation;
mod options;
mod payload;
mod pod_references;
mod policy_status;
mod published;
pub mod query;
mod registry;
mod representation;
pub mod request_info;
mod resource_metrics;
mod route;
mod server;
mod service;
mod state;
pub mod status;
mod timeouts;
mod token_secrets;
mod uid;
mod upkeep;
pub mod version;
mod web;
pub mod webhook;

pub use crate::agents::Agents;
pub use crate::body::{Body, Error as BodyError};
pub use crate::compute::Compute;
pub use crate::expiry::EVENT_TTL;
pub use crate::in_force::Work;
pub use crate::limits::Concurrency;
pub use crate::metrics::{ProcessUsage, ReadProcess};
pub use crate::registry::allocator::Ranges;
pub use crate::resource_metrics::{NodeUsage, PodUsage, ResourceMetrics, Usage};

pub use crate::server::{Options, Server, StartError};
pub use crate::service::Service;
pub use crate::timeouts::Timeouts;

pub use crate::web::{Web, WebError};
