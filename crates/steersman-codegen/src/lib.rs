//! Code generation for Kubernetes APIs.
//!
//! - [`crd`] reads CustomResourceDefinitions, from manifests or as a server lists them. It is the input of all that generates.
//! - [`types`] makes Rust types of them.
//! - [`manifest`] writes definitions that come from Rust types, and other objects, as a person writes them.
//! - [`clients`] makes clients, informers, listers and apply configurations for the kinds of API groups.
//! - [`rbac`] makes the roles that some requests need.
//! - [`project`] makes a project for an operator.
//! - [`output`] is a set of generated files: written to a directory, or compared with what is there.
//! - [`Builder`] reads definitions and writes their types, for a `build.rs` or for code that is checked in.
//!
//! Nothing here talks to a server, and nothing runs a compiler or a formatter: a function gets text and returns text.

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
