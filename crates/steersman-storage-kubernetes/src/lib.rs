//! The form in which kube-apiserver stores objects, beside that of Steersman.
//!
//! ```text
//! Steersman        a header with labels and fields for selectors, then JSON        (steersman_kinds::at_rest)
//! kube-apiserver   k8s\0 and a runtime.Unknown with the message of a built-in kind
//!                  JSON of custom resources, of definitions and of APIServices
//! ```
//!
//! [`Values`] is a [`Transformer`](steersman_storage::kv::transformed::Transformer): above it every value has Steersman's form,
//! below it the form that the layout asks for. It reads both forms whatever the layout is, so that objects can be moved from one to
//! the other. As kube-apiserver does, it drops unknown fields of built-in kinds and sets their defaults when it reads. An object that is in another
//! form than a write would give it is written again with the next update, whether that changes it or not.
//!
//! [`keys`] are kube-apiserver's keys. Encryption is below this: it sees kube-apiserver's form.

mod definitions;
mod keys;
mod values;

pub use crate::keys::RegistryKeys;
pub use crate::values::{ValueError, Values};

use std::sync::Arc;
use steersman_kinds::builtin;
use steersman_kinds::catalog::{Handling, Resource};
use steersman_kinds::crd;
use steersman_kinds::runtime_config::RuntimeConfig;

/// The form of stored objects.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Layout {
    /// The form of kube-apiserver, which every Kubernetes API server can read.
    Kubernetes,
    /// The form of Steersman, which is read without parsing.
    Steersman,
}

/// The keys that kube-apiserver gives to the objects of all kinds.
pub fn keys() -> RegistryKeys {
    let config = RuntimeConfig::default().with_initializers();
    RegistryKeys::new(stored_kinds(&config).map(|kind| kind.group_resource()))
}

/// The built-in kinds whose objects are stored, each under its own name.
fn stored_kinds(config: &RuntimeConfig) -> impl Iterator<Item = Arc<Resource>> {
    let kinds = builtin::resources(config).into_iter().chain([crd::resource()]);
    kinds.filter(|kind| kind.handling() == Handling::Stored && kind.storage == kind.group_resource())
}
