//! A Kubernetes-compatible API server: bytes in, bytes out.
//!
//! [`Server`] holds the store and the served catalog; [`Server::service`] is a `tower::Service`, the same for a TLS
//! socket, a test in the same process and the built-in controllers. There is no other way in.
//!
//! ```text
//! http        the chain of a request (who asks, may they, how many at a time), routes, endpoints, answers, documents
//! background  tasks beside the requests: bootstrap, definitions, objects that the server keeps
//! write       admission, and the one loop that changes what is stored, for all kinds
//! access      authentication, authorization, audit
//! shared      the parts of a request, the operation under way, failures, heavy computing, calls to webhooks
//! ```
//!
//! A directory uses those below it; `http` and `background` do not use each other. The kinds themselves, as data and pure functions, are in
//! `steersman-kinds`. [`Server`] puts the layers together over `State`.
//!
//! Deliberately not here: sockets, command lines, process state (`steersman-cli`), and the control loops
//! (`steersman-controllers`), which are clients like any other.

mod access;
mod background;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod http;
mod metrics;
mod server;
mod shared;
mod state;
mod write;

pub use crate::access::{audit, authn, authz};
pub use crate::background::expiry::EVENT_TTL;
pub use crate::http::documents::backup::BACKUP_PATH;
pub use crate::http::documents::{discovery, openapi, version};
pub use crate::http::limits::Concurrency;
pub use crate::http::passing::join;
pub use crate::http::service::Service;
pub use crate::http::timeouts::Timeouts;
pub use crate::http::web::{Web, WebError};
pub use crate::metrics::encryption::{Reloads, StorageEncryption};
pub use crate::metrics::{ProcessUsage, ReadProcess};
pub use crate::server::{Options, Server, StartError};
pub use crate::shared::compute::Compute;
pub use crate::shared::follower::in_force::DefinitionWork;
pub use crate::shared::nodes::agents::Agents;
pub use crate::shared::nodes::connections::KubeletClient;
pub use crate::shared::nodes::resource_metrics::{NodeUsage, PodUsage, ResourceMetrics, Usage};
pub use crate::shared::request::body::{Body, Error as BodyError};
pub use crate::shared::request::memory::OUTGOING_STREAMS_MAX;
pub use crate::shared::request::{negotiate, query, request_info};
pub use crate::shared::{status, webhook};
pub use crate::write::admission;
pub use crate::write::registry::service_addresses::allocator::Ranges;
pub use crate::write::writes::Writes;
pub use steersman_kinds::runtime_config::{Error as RuntimeConfigError, RuntimeConfig};
pub use steersman_kinds::user::AuthenticatedUser;
pub use steersman_kinds::{builtin, catalog, crd, projection, strategy, user};
