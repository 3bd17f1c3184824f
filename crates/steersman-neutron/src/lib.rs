//! OpenStack Neutron and Keystone: requests, error classes, and a simulated cloud.
//!
//! Everything is reached through one object-safe trait, [`Cloud`]: networks and subnets are found, read, created,
//! updated and deleted. Two backends implement it: [`Client`] sends HTTP requests to a real Neutron (and signs in at
//! Keystone where configured), [`Simulated`] follows Neutron's rules inside the process and, if given a directory,
//! stores its state there. [`Faulty`] wraps either and loses answers on request.
//!
//! Three properties of Neutron shape the interface:
//!
//! - **Names are not unique, and a create carries no idempotency key.** A caller that creates writes a marker of its
//!   own into `description`, searches for the marker before it creates, and searches again when
//!   [`Error::is_uncertain`].
//! - **Updates can be conditional.** Pass the [`Revision`] that was read; a concurrent change is answered with
//!   [`Class::PreconditionFailed`].
//! - **Refusals differ in their remedy.** [`Error`] says whether a call was not sent, went unanswered or was refused,
//!   and a refusal has a [`Class`]. HTTP status codes and Neutron's error names stay inside this crate.
//!
//! ```
//! use steersman_neutron::{Cloud, NetworkCreate, NetworkFilter, RequestId, Simulated};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), steersman_neutron::Error> {
//! let cloud = Simulated::in_memory();
//! let request = RequestId::random();
//! let marker = "example:1f0c";
//! if cloud.find_networks(request, &NetworkFilter::description(marker)).await?.is_empty() {
//!     let wanted = NetworkCreate { description: Some(marker.to_owned()), ..NetworkCreate::default() };
//!     let network = cloud.create_network(request, &wanted).await?;
//!     assert_eq!(network.description, marker);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The facts about Neutron's behavior are those of release 29 (2026.2), observed on a running server; the suite in
//! [`conformance`] checks them on both backends.

#![deny(missing_docs)]

mod types;

mod answer;
mod client;
mod cloud;
pub mod config;
#[doc(hidden)]
pub mod conformance;
mod error;
mod faulty;
mod measured;
pub mod simulated;

pub use crate::answer::{Answer, Class};
pub use crate::client::Client;
pub use crate::cloud::{Cloud, Reply, RequestId};
pub use crate::config::Config;
pub use crate::error::{Call, Cause, Error, Operation};
pub use crate::faulty::{Fault, Faulty};
pub use crate::measured::{Measured, Observer};
pub use crate::simulated::Simulated;
pub use crate::types::address::{default_gateway, default_pools};
pub use crate::types::id::{InvalidId, NetworkId, Revision, SubnetId};
pub use crate::types::network::{Network, NetworkCreate, NetworkFilter, NetworkStatus, NetworkUpdate};
pub use crate::types::subnet::{AllocationPool, Gateway, HostRoute, Subnet, SubnetCreate, SubnetFilter, SubnetUpdate};
