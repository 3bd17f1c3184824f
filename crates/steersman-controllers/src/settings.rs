//! The input of loops: the [`Settings`] of their cluster, and a client of their own.

use crate::loops::access::certificates::Authority;
use crate::scheduler;
use jiff::Timestamp;
use kube::Client;
use std::fmt;
use std::sync::Arc;

/// The settings of the loops of a cluster.
#[derive(Clone)]
#[non_exhaustive]
pub struct Settings {
    /// Signs certificates. Without it, the loop `certificates` does nothing.
    pub authority: Option<Arc<Authority>>,
    /// The clock that times in objects are compared with.
    pub clock: fn() -> Timestamp,
    /// The CA bundle, in PEM, by which Pods verify the API server. Without it, none is published.
    pub root_ca: Option<Arc<str>>,
    /// The profiles and extenders of the scheduler.
    pub scheduler: scheduler::Configuration,
}

/// The parts that a loop is built from.
pub struct Parts<'a> {
    /// A client that acts as the loop's user, for everything but informers.
    pub client: Client,
    /// The settings of the cluster.
    pub settings: &'a Settings,
}

// === impl Settings ===

impl Settings {
    /// Settings with the system clock, no authority, no bundle, and kube-scheduler's default profile.
    pub fn new() -> Settings {
        Settings {
            authority: None,
            clock: Timestamp::now,
            root_ca: None,
            scheduler: scheduler::Configuration::default(),
        }
    }

    /// Signs certificates with `authority`.
    pub fn authority(mut self, authority: impl Into<Option<Authority>>) -> Settings {
        self.authority = authority.into().map(Arc::new);
        self
    }

    /// Compares times in objects with the time of `clock`.
    pub fn clock(mut self, clock: fn() -> Timestamp) -> Settings {
        self.clock = clock;
        self
    }

    /// Publishes `bundle` to all namespaces.
    pub fn root_ca(mut self, bundle: impl Into<Option<String>>) -> Settings {
        self.root_ca = bundle.into().map(Arc::from);
        self
    }

    /// Schedules with the profiles of `configuration`.
    pub fn scheduler(mut self, configuration: scheduler::Configuration) -> Settings {
        self.scheduler = configuration;
        self
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings::new()
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").finish_non_exhaustive()
    }
}
