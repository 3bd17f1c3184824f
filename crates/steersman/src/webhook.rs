//! Admission and conversion webhooks: functions that the API server calls before it stores an object, and to convert
//! objects.
//!
//! [`Webhooks`] are functions by path: [mutating](Webhooks::mutate), [validating](Webhooks::validate),
//! [converting](Webhooks::convert). A [`Server`] serves them over TLS with [`Certificates`] from files, which it reads
//! again when they change, or with [`SelfSigned`] ones, which it makes, renews and writes into the `caBundle` of the
//! configurations. [`Manager::webhooks`](crate::Manager::webhooks) runs a server beside controllers, and it runs
//! [alone](Server::run).
//!
//! ```no_run
//! # use std::net::SocketAddr;
//! use k8s_openapi::api::core::v1::Pod;
//! use steersman::Manager;
//! use steersman::webhook::{Admission, Denial, SelfSigned, Webhooks};
//!
//! async fn default_priority(mut pod: Pod, request: &Admission<Pod>, class: &String) -> Result<Pod, Denial> {
//!     let spec = pod.spec.get_or_insert_default();
//!     if spec.priority_class_name.is_none() {
//!         spec.priority_class_name = Some(class.clone());
//!         request.warn(format!("spec.priorityClassName was not set and is {class}"));
//!     }
//!     Ok(pod)
//! }
//!
//! async fn forbid_host_network(request: &Admission<Pod>, _: &()) -> Result<(), Denial> {
//!     let pod = request.object.as_ref().and_then(|pod| pod.spec.as_ref());
//!     match pod.and_then(|spec| spec.host_network) {
//!         Some(true) => Err(Denial::forbidden("pods of this cluster have a network of their own")),
//!         _ => Ok(()),
//!     }
//! }
//!
//! # async fn run(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let certificates = SelfSigned::new(client.clone(), "operators", "pod-rules-webhook")
//!     .service("operators", "pod-rules")
//!     .mutating("pod-rules")
//!     .validating("pod-rules");
//! let server = Webhooks::new()
//!     .mutate("/mutate", default_priority, "standard".to_owned())
//!     .validate("/validate", forbid_host_network, ())
//!     .bind(SocketAddr::from(([0, 0, 0, 0], 9443)), certificates)?;
//! Manager::new(client).webhooks(server).run(steersman::shutdown_signal()).await?;
//! # Ok(()) }
//! ```
//!
//! # Limits of a call
//!
//! [`Limits`] bounds how many calls run at a time, their bodies, and how long each may take; the API server says in the
//! request how long it waits (`?timeout=10s`), and a function is dropped at an await point when that time is over. A
//! function that panics fails its own call only. None of these is a verdict: the `failurePolicy` of the configuration
//! decides.

mod admission;
mod answer;
mod certificates;
mod conversion;
mod denial;
mod patch;
mod review;
mod server;
mod stats;

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kube::Resource;
use serde::Serialize;
use tokio::sync::Semaphore;

use crate::webhook::admission::{Checking, Defaulting, Function, Mutating, Validating};
use crate::webhook::conversion::Convert;

pub(crate) use crate::webhook::stats::Stats;
#[cfg(feature = "metrics")]
pub(crate) use crate::webhook::stats::Totals;

pub use crate::webhook::admission::{Admissible, Admission, MutateFn, Operation, ValidateFn, Write};
pub use crate::webhook::certificates::{CertificateError, Certificates, SelfSigned, SelfSignedError};
pub use crate::webhook::conversion::{Conversion, HubConversion};
pub use crate::webhook::denial::{Denial, FieldError, FieldErrorKind};
pub use crate::webhook::server::{BindError, ServeError, Server};

/// Functions for webhooks, by path.
///
/// Configurations name the paths. Each function is called for all objects that a configuration sends to its path; one
/// path has one function, or the conversions of any number of kinds.
#[must_use = "webhooks do nothing until they are served"]
pub struct Webhooks {
    routes: BTreeMap<String, Route>,
    limits: Limits,
    /// Permits of calls that run at a time.
    calls: Arc<Semaphore>,
    stats: Arc<Stats>,
}

/// Limits of calls.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The largest body of an admission request, in bytes. It has the object twice where it is updated. Default: 7 MiB,
    /// which is what controller-runtime reads; the API server accepts objects of 3 MiB.
    pub admission_body_max: usize,
    /// The largest body of a conversion request, which has all objects of a list. Default: 128 MiB.
    pub conversion_body_max: usize,
    /// How many calls run at a time; further ones wait as long as their timeout allows. Default: 256.
    pub calls_max: usize,
    /// How many connections are open at a time; further ones wait. Default: 1,024.
    pub connections_max: usize,
    /// The timeout of a call that names none, and the longest. Default: 30 s, the most that a configuration can ask
    /// for.
    pub timeout_max: Duration,
}

enum Route {
    Admission(Box<dyn Function>),
    /// By group and kind.
    Conversion(BTreeMap<(String, String), Box<dyn Convert>>),
}

// === impl Webhooks ===

impl Webhooks {
    /// A set without functions.
    pub fn new() -> Self {
        let limits = Limits::default();
        let calls = Arc::new(Semaphore::new(limits.calls_max));
        Self { routes: BTreeMap::new(), limits, calls, stats: Arc::default() }
    }

    /// Sets the limits of calls.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.calls = Arc::new(Semaphore::new(limits.calls_max.clamp(1, Semaphore::MAX_PERMITS)));
        self.limits = limits;
        self
    }

    /// Calls `function` to change objects that are created or updated at `path`; other requests are admitted.
    ///
    /// `K` is any type that can be decoded and encoded, `serde_json::Value` among them. The answer is the difference
    /// between the argument and the result of `function`, so that fields that `K` does not know stay unchanged.
    ///
    /// # Panics
    /// When `path` does not begin with a slash or has a function already.
    pub fn mutate<K, C, F>(self, path: &str, function: F, context: C) -> Self
    where
        K: Admissible + Serialize,
        C: Send + Sync + 'static,
        F: for<'a> MutateFn<'a, K, C> + 'static,
    {
        self.function(path, Mutating::<K, C, F>::new(function, context))
    }

    /// Calls `function` to judge the requests that are sent to `path`.
    ///
    /// # Panics
    /// When `path` does not begin with a slash or has a function already.
    pub fn validate<K, C, F>(self, path: &str, function: F, context: C) -> Self
    where
        K: Admissible,
        C: Send + Sync + 'static,
        F: for<'a> ValidateFn<'a, K, C> + 'static,
    {
        self.function(path, Validating::<K, C, F>::new(function, context))
    }

    /// Sets defaults in objects of a kind, at [`mutate_path`].
    ///
    /// ```
    /// # use k8s_openapi::api::apps::v1::Deployment;
    /// # use steersman::webhook::Webhooks;
    /// // At /mutate-apps-v1-deployment.
    /// let webhooks = Webhooks::new().defaulter(|deployment: &mut Deployment| {
    ///     deployment.spec.revision_history_limit.get_or_insert(3);
    /// });
    /// ```
    ///
    /// # Panics
    /// When the path has a function already.
    pub fn defaulter<K>(self, function: impl Fn(&mut K) + Send + Sync + 'static) -> Self
    where
        K: Admissible + Resource<DynamicType = ()> + Serialize,
    {
        self.function(&mutate_path::<K>(), Defaulting { function, kind: PhantomData::<fn(K)> })
    }

    /// Judges objects of a kind by rules that need only the existing and the new object, at [`validate_path`].
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::Service;
    /// # use steersman::webhook::{Denial, Webhooks, Write};
    /// // At /validate--v1-service: the core group has no name.
    /// let webhooks = Webhooks::new().validator(|write: Write<'_, Service>| match write {
    ///     Write::Delete(service) if service.metadata.name.as_deref() == Some("kubernetes") => {
    ///         Err(Denial::forbidden("everything needs this one"))
    ///     }
    ///     _ => Ok(()),
    /// });
    /// ```
    ///
    /// # Panics
    /// When the path has a function already.
    pub fn validator<K>(self, function: impl Fn(Write<'_, K>) -> Result<(), Denial> + Send + Sync + 'static) -> Self
    where
        K: Admissible + Resource<DynamicType = ()>,
    {
        self.function(&validate_path::<K>(), Checking { function, kind: PhantomData::<fn(K)> })
    }

    /// Converts the objects of a kind at `path`. Several kinds may share it.
    ///
    /// # Panics
    /// When `path` does not begin with a slash, has a function, or has a conversion of this kind already.
    pub fn convert(mut self, path: &str, conversion: impl Into<Conversion>) -> Self {
        assert_path(path);
        let Conversion { group, kind, convert } = conversion.into();
        let route = self.routes.entry(path.to_owned()).or_insert_with(|| Route::Conversion(BTreeMap::new()));
        match route {
            Route::Admission(_) => panic!("the path {path} has a function already"),
            Route::Conversion(kinds) => {
                assert!(
                    !kinds.contains_key(&(group.clone(), kind.clone())),
                    "the path {path} converts {kind}.{group} already"
                );
                kinds.insert((group, kind), convert);
            }
        }
        self
    }

    /// Listens on `address`; port 0 takes any free port. Connections wait until the server runs.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn bind(self, address: SocketAddr, certificates: impl Into<Certificates>) -> Result<Server, BindError> {
        Server::bind(address, self, certificates.into())
    }

    fn function(mut self, path: &str, function: impl Function + 'static) -> Self {
        assert_path(path);
        let earlier = self.routes.insert(path.to_owned(), Route::Admission(Box::new(function)));
        assert!(earlier.is_none(), "the path {path} has a function already");
        self
    }
}

fn assert_path(path: &str) {
    assert!(path.starts_with('/'), "the path {path:?} does not begin with a slash");
}

/// The path of [`Webhooks::defaulter`], as controller-runtime names it: `/mutate-apps-v1-deployment`, with dashes for
/// the dots of the group.
pub fn mutate_path<K: Resource<DynamicType = ()>>() -> String {
    path_of::<K>("mutate")
}

/// The path of [`Webhooks::validator`], as controller-runtime names it: `/validate-apps-v1-deployment`.
pub fn validate_path<K: Resource<DynamicType = ()>>() -> String {
    path_of::<K>("validate")
}

fn path_of<K: Resource<DynamicType = ()>>(verb: &str) -> String {
    let (group, version, kind) = (K::group(&()), K::version(&()), K::kind(&()));
    format!("/{verb}-{}-{version}-{}", group.replace('.', "-"), kind.to_lowercase())
}

impl Default for Webhooks {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths: Vec<&String> = self.routes.keys().collect();
        f.debug_struct("Webhooks").field("paths", &paths).field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            admission_body_max: 7 << 20,
            conversion_body_max: 128 << 20,
            calls_max: 256,
            connections_max: 1_024,
            timeout_max: Duration::from_secs(30),
        }
    }
}
