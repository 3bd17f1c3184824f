//! Code generation for Kubernetes APIs.
//!
//! - [`crd`] reads CustomResourceDefinitions, from manifests or from the answer of a server. They are the input of all
//!   generators.
//! - [`types`] generates Rust types for them.
//! - [`manifest`] writes definitions that come from Rust types, and other objects, as a person would.
//! - [`clients`] generates clients, informers, listers and apply configurations for the kinds of API groups.
//! - [`rbac`] generates roles for a set of requests.
//! - [`project`] generates a project for an operator.
//! - [`output`] is a set of generated files, to be written to a directory or compared with it.
//! - [`Builder`] reads definitions and writes their types, for a `build.rs` or for checked-in code.
//!
//! Nothing here talks to a server, or runs a compiler or a formatter: a function gets text and returns text.

mod builder;
pub mod clients;
pub mod crd;
mod docs;
pub mod manifest;
pub mod output;
pub mod project;
pub mod rbac;
pub mod types;
mod words;

pub use crate::builder::{Builder, Error};
