//! The state of a proxy's configuration: in force, wanted, rejected.

use crate::kind::Kind;
use crate::resource::{Resource, Version};
use crate::subscriber::Subscriber;
use crate::view::View;
use std::sync::Arc;
use std::time::SystemTime;

/// The number of a stream, unique in a process.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct StreamId(pub u64);

/// The state of a proxy's stream, in short. [`crate::ResourceReport`] has the names.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProxyReport {
    pub subscriber: Arc<Subscriber>,
    pub variant: Variant,
    pub connected: SystemTime,
    /// The newest view that the stream works towards.
    pub wanted: Option<Arc<View>>,
    /// The newest view of which the proxy has acknowledged or rejected everything that it asked for, so that it has in force all of
    /// the view but `rejections`. The same as `wanted` (`Arc::ptr_eq`) when nothing is under way.
    pub settled: Option<Arc<View>>,
    /// Resources that the proxy refuses to take over, in the version that is wanted now. A next version, or the one before it, ends a rejection.
    pub rejections: Arc<[Rejection]>,
    /// Resources that were sent although clusters that they refer to did not become ready in time.
    /// An entry ends when its clusters are ready.
    pub hurried: Arc<[Hurried]>,
    /// When this state was reached.
    pub changed: SystemTime,
}

/// The variant of the protocol that a stream speaks.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Variant {
    /// `DeltaAggregatedResources`
    Delta,
    /// `StreamAggregatedResources`
    StateOfTheWorld,
}

/// A resource that a proxy has not taken over. What it had before stays in force.
#[derive(Clone, Debug)]
pub struct Rejection {
    /// The resource as it was sent.
    pub resource: Arc<Resource>,
    /// The proxy's words.
    pub error: Arc<str>,
    /// Whether the proxy's words name the resource. If they name none, every resource that may be meant is here.
    pub certainty: Certainty,
    pub at: SystemTime,
}

/// Whether a resource is known to be the cause of a rejection.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Certainty {
    /// Sent alone, or named by the proxy.
    Named,
    /// One of several resources that were sent together.
    Suspected,
}

/// A route or listener that was sent before its clusters were ready.
#[derive(Clone, Debug)]
pub struct Hurried {
    pub resource: Arc<Resource>,
    /// The clusters that it waited for.
    pub clusters: Arc<[Arc<str>]>,
    pub at: SystemTime,
}

/// The state of one resource at a proxy.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ResourceReport {
    pub kind: Kind,
    pub name: Arc<str>,
    /// The version that should be there.
    pub wanted: Option<Version>,
    /// The version that is on the way.
    pub sent: Option<Version>,
    /// The version that the proxy has acknowledged, or said that it has. The text is not ours if another control plane sent it.
    pub in_force: Option<String>,
    /// The version that the proxy rejected last.
    pub rejected: Option<Version>,
}
