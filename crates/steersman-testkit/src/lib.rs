//! A control plane in the test's own process: the real API server, without a port, a file or a wait.
//!
//! [`ControlPlane::start`] takes milliseconds, and a process may have as many as it has tests. Behind
//! [`ControlPlane::client`] is the server that `steersman up` runs, over the engine that `steersman up --in-memory`
//! uses: defaults, validation, admission, server-side apply, definitions, watches. Controllers run against it as they
//! run against any Kubernetes.
//!
//! # A test
//!
//! Apply the objects that the test needs, start the controller under test, and wait for the state that it should bring
//! about:
//!
//! ```
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use serde_json::json;
//! use steersman::{Action, Controller, Manager, ObjectKey, WriteError, patch};
//! use steersman_testkit::ControlPlane;
//!
//! #[derive(Debug, thiserror::Error)]
//! #[error("cannot write the greeting")]
//! struct Error(#[from] WriteError);
//! impl steersman::ReconcileError for Error {}
//!
//! async fn greet(key: ObjectKey, client: &kube::Client) -> Result<Action, Error> {
//!     patch::apply::<ConfigMap>(client, &key, "greeter", patch::Force::Yes, &json!({"data": {"hello": "world"}})).await?;
//!     Ok(Action::AwaitChange)
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let plane = ControlPlane::start().await;
//! plane.apply("{kind: ConfigMap, apiVersion: v1, metadata: {name: c, namespace: default}}").await;
//!
//! let controller = Controller::<ConfigMap>::new(greet, plane.client());
//! let end = async {
//!     let key = ObjectKey::namespaced("default", "c");
//!     plane.until(&key, |config: &ConfigMap| config.data.is_some()).await;
//! };
//! Manager::new(plane.client()).controller(controller).run(end).await?;
//! plane.stop().await;
//! # Ok(()) }
//! ```
//!
//! `examples/controller.rs` is the controller of `steersman`'s front page, run in the same way.
//!
//! # Limits
//!
//! [`ControlPlane::start`] starts the server alone. No garbage collector deletes the dependents of a deleted object; a
//! namespace that is deleted stays `Terminating`; no controller creates the Pods of a Deployment or updates its status;
//! no scheduler and no kubelet runs. A test plays their part: it patches the status, and checks owner references
//! instead of waiting for dependents to disappear. Or it starts the control loops as well, all or some, with
//! [`ControlPlane::start_with`], and simulated nodes with [`Loops::nodes`], whose Pods run no program: there a
//! Deployment becomes ready in milliseconds.
//!
//! # Permissions
//!
//! A controller that runs as a [user of its own](ControlPlane::client_as) may do what the roles allow that the test has
//! applied. [`ControlPlane::permissions_of`] returns the permissions for its requests so far, as roles.
//!
//! # Faults
//!
//! The server can be [restarted](ControlPlane::restart) under its clients, its history
//! [compacted](ControlPlane::compact), its [watches cut](ControlPlane::cut_watches), and requests made to
//! [fail](ControlPlane::fail_next) in various ways. Time is tokio's: under `#[tokio::test(start_paused = true)]`, which
//! needs tokio's feature `test-util`, backoffs and resyncs pass at once.
#![deny(missing_docs)]

mod fault;
mod loops;
mod manifest;
mod plane;
mod requests;
mod service;
mod simulated;
mod wait;

pub use crate::fault::Fault;
pub use crate::loops::Loops;
pub use crate::manifest::ApplyError;
pub use crate::plane::{ControlPlane, Options, StartError};
pub use crate::service::{ApiService, Body, Broken};
pub use steersman_server::user::User;

/// Compiles the code of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
