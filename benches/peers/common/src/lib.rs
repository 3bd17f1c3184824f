//! What the measured programs in Rust have in common: the types, the steps of a measurement, what the kernel counts.
//!
//! A program brings a [`Subject`], its cache under load, and [`measure`] leads it through the same steps as every other:
//! fill, settle, relist, updates, lookups. The program in Go takes the same steps on its own.

mod process;
mod server;
mod steps;
mod types;

pub use crate::server::Reference;
pub use crate::steps::{Heard, Options, Subject, Workload, measure};
pub use crate::types::{Database, DatabaseSpec, DatabaseStatus, Indexed};

/// What a measured program ends with if it cannot measure: there is nobody to tell the kinds apart.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
