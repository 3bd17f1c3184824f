//! The common parts of the measured programs in Rust: the types, the steps of a measurement, the kernel's figures.
//!
//! A program implements [`Subject`] with its cache, and [`measure`] runs the same steps with each: fill, settle,
//! relist, updates, lookups. The program in Go has the same steps of its own.

mod process;
mod server;
mod steps;
mod types;

pub use crate::server::Reference;
pub use crate::steps::{Heard, Options, Subject, Workload, measure};
pub use crate::types::{Database, DatabaseSpec, DatabaseStatus, Indexed};

/// The error with which a measured program ends if it cannot measure. No caller distinguishes kinds of errors.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
