//! The state of the task: the simulated nodes and Pods, pending timers, and requests that wait to be sent.

use crate::kubelet::Simulation;
use crate::kubelet::node::addresses::{Addresses, PodAddresses};
use crate::kubelet::node::images::Images;
use crate::kubelet::node::resources::{Amounts, Used};
use crate::kubelet::outbox::Outbox;
use crate::kubelet::pod::PodState;
use crate::kubelet::pod::references::Found;
use crate::kubelet::requests::Outcome;
use crate::kubelet::stage::seed::seed;
use crate::kubelet::stage::{Observed, Stages};
use crate::kubelet::unmanaged_pods::UnmanagedPods;
use crate::kubelet::written::Written;
use hashbrown::{HashMap, HashSet};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::Client;
use serde::Serialize;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use steersman::ObjectKey;
use steersman::cache::Informer;
use steersman::events::EventRecorder;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// The informers, and the writes that they have not delivered yet.
pub(crate) struct Informers {
    pub(super) namespaces: Informer<Namespace>,
    pub(super) nodes: Informer<Node>,
    pub(super) pods: Informer<Pod>,
    pub(super) stages: watch::Receiver<Option<Arc<Stages>>>,
    pub(super) written: Written,
}

/// An action that waits for a point in time.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) enum Timer {
    Lease(Arc<str>),
    LookUp(ObjectKey),
    NodeStatus(Arc<str>),
    Pod(ObjectKey),
    Register(usize),
    Untaint(Arc<str>),
    Write(ObjectKey),
}

/// Writes to nodes, besides Leases.
#[derive(Debug)]
pub(super) enum NodeWork {
    Post(Arc<str>),
    Register(usize),
    Untaint(Arc<str>),
}

/// The subject of a request and its outcome.
pub(super) enum Answer {
    Lease(Arc<str>, Outcome),
    LookedUp(ObjectKey, String, Result<Found, kube::Error>),
    NodeStatus(Arc<str>, Outcome),
    /// The last field is a hash of the node's own fields of the status, as the server has them after the write.
    Pod(ObjectKey, String, Outcome, Option<u64>),
    Registered(usize, Outcome),
    Untainted(Arc<str>, Outcome),
}

/// A simulated node.
pub(super) struct NodeEntry {
    pub(super) name: Arc<str>,
    pub(super) uid: String,
    pub(super) client: Client,
    pub(super) events: EventRecorder,
    pub(super) host: IpAddr,
    pub(super) addresses: PodAddresses,
    pub(super) images: Images,
    pub(super) used: Used,
    pub(super) pods: HashSet<ObjectKey>,
    /// The Pods of `pods` whose resize is deferred because the node has no room for it.
    pub(super) deferred: HashSet<ObjectKey>,
    /// A hash of the labels, by which Stages may select the node.
    pub(super) labels: u64,
    pub(super) is_away: bool,
    /// Whether the server has the node's capacity in its status.
    pub(super) is_able: bool,
    pub(super) is_posting: bool,
    pub(super) is_renewing: bool,
    pub(super) is_untainting: bool,
    pub(super) has_begun: bool,
    /// When the Lease is renewed next, and when the status is posted next.
    pub(super) lease_at: Option<Instant>,
    pub(super) status_at: Option<Instant>,
}

/// A Pod on a simulated node.
pub(super) struct PodEntry {
    pub(super) state: PodState,
    pub(super) node: Arc<str>,
    /// The resources that the Pod takes of the node; `None` once it takes none.
    pub(super) requests: Option<Amounts>,
    /// When the Pod is woken next.
    pub(super) wakes: Option<Instant>,
    /// Whether the status is to be written, and whether the Pod is to be removed after that.
    pub(super) is_dirty: bool,
    pub(super) is_to_be_removed: bool,
    pub(super) write: Write,
    /// Consecutive failures of writes, and of lookups of ConfigMaps and Secrets.
    pub(super) n_failures: u32,
    pub(super) n_look_up_failures: u32,
    /// A hash of the status that was written last, and its resourceVersion.
    pub(super) written: Option<u64>,
    pub(super) version: u64,
    /// A hash of the node's own fields of the status, as the server had them at `version`.
    pub(super) stored: Option<u64>,
}

/// The state of the request that writes the status of a Pod or removes it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Write {
    Idle,
    Queued,
    UnderWay,
}

pub(super) struct Run {
    pub(super) simulation: Simulation,
    pub(super) informers: Informers,
    /// The Stages and other observations that decide how Pods behave and which nodes are away.
    pub(super) observed: Observed,
    /// The client of the controller that manages nodes.
    pub(super) controller: Client,
    /// The addresses of simulated and other Pods, with the number of Pods that have each.
    pub(super) addresses: Addresses,
    pub(super) nodes: HashMap<Arc<str>, NodeEntry>,
    pub(super) pods: HashMap<ObjectKey, PodEntry>,
    pub(super) unmanaged_pods: UnmanagedPods,
    pub(super) timers: BTreeSet<(Instant, Timer)>,
    /// Nodes that have room again for deferred resizes.
    pub(super) with_room: Vec<Arc<str>>,
    pub(super) leases: Outbox<Arc<str>>,
    pub(super) look_ups: Outbox<ObjectKey>,
    pub(super) node_work: Outbox<NodeWork>,
    pub(super) writes: Outbox<ObjectKey>,
    pub(super) requests: JoinSet<Answer>,
}

/// A resourceVersion as a number: the later of two versions is the greater.
pub(super) fn version(text: Option<&str>) -> Option<u64> {
    text?.parse().ok()
}

/// A hash by which statuses are compared.
pub(super) fn hash(status: &impl Serialize) -> u64 {
    seed(serde_json::to_string(status).unwrap_or_default())
}
