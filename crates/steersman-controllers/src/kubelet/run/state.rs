//! What the task knows: the nodes and Pods that are played, what waits for its time, and what waits to be sent.

use crate::kubelet::Simulation;
use crate::kubelet::addresses::{Addresses, PodAddresses};
use crate::kubelet::images::Images;
use crate::kubelet::outbox::Outbox;
use crate::kubelet::pod::PodState;
use crate::kubelet::pod::references::Found;
use crate::kubelet::requests::Outcome;
use crate::kubelet::resources::{Amounts, Used};
use crate::kubelet::seed::seed;
use crate::kubelet::stage::{Observed, Stages};
use crate::kubelet::unplayed::Unplayed;
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

/// What is watched, and what has been written and not been seen yet.
pub(crate) struct Informers {
    pub(super) namespaces: Informer<Namespace>,
    pub(super) nodes: Informer<Node>,
    pub(super) pods: Informer<Pod>,
    pub(super) stages: watch::Receiver<Option<Arc<Stages>>>,
    pub(super) written: Written,
}

/// What waits for its time.
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

/// What is written about nodes, besides Leases.
#[derive(Debug)]
pub(super) enum NodeWork {
    Post(Arc<str>),
    Register(usize),
    Untaint(Arc<str>),
}

/// What a request was about, and what came of it.
pub(super) enum Answer {
    Lease(Arc<str>, Outcome),
    LookedUp(ObjectKey, String, Result<Found, kube::Error>),
    NodeStatus(Arc<str>, Outcome),
    /// With a hash of what the server has of the node then.
    Pod(ObjectKey, String, Outcome, Option<u64>),
    Registered(usize, Outcome),
    Untainted(Arc<str>, Outcome),
}

/// A node that is played.
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
    /// Those of them that ask for more than there is room for.
    pub(super) deferred: HashSet<ObjectKey>,
    /// A hash of its labels, by which Stages may select it.
    pub(super) labels: u64,
    pub(super) is_away: bool,
    /// Whether the cluster knows what the node has to give.
    pub(super) is_able: bool,
    pub(super) is_posting: bool,
    pub(super) is_renewing: bool,
    pub(super) is_untainting: bool,
    pub(super) has_begun: bool,
    /// When its Lease is renewed, and when its status is posted.
    pub(super) lease_at: Option<Instant>,
    pub(super) status_at: Option<Instant>,
}

/// A Pod on a node that is played.
pub(super) struct PodEntry {
    pub(super) state: PodState,
    pub(super) node: Arc<str>,
    /// What the Pod takes of the node, as long as it does.
    pub(super) requests: Option<Amounts>,
    /// When it is woken.
    pub(super) wakes: Option<Instant>,
    /// Whether the status is to be written, and whether the Pod is to be removed after that.
    pub(super) is_dirty: bool,
    pub(super) is_to_be_removed: bool,
    pub(super) write: Write,
    /// Of writes, and of looks at what it refers to, one after the other.
    pub(super) n_failures: u32,
    pub(super) n_look_up_failures: u32,
    /// What was written last, as a hash, and the version that it has.
    pub(super) written: Option<u64>,
    pub(super) version: u64,
    /// A hash of what the server had of the node's own fields in that version.
    pub(super) stored: Option<u64>,
}

/// Where the request is that writes the status of a Pod or removes it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Write {
    Idle,
    Queued,
    UnderWay,
}

pub(super) struct Run {
    pub(super) simulation: Simulation,
    pub(super) informers: Informers,
    /// What says how Pods behave, and which nodes are away.
    pub(super) observed: Observed,
    /// Of the loop that looks after nodes.
    pub(super) controller: Client,
    /// Of Pods that are played, and of those that are not, as often as they have them.
    pub(super) addresses: Addresses,
    pub(super) nodes: HashMap<Arc<str>, NodeEntry>,
    pub(super) pods: HashMap<ObjectKey, PodEntry>,
    pub(super) unplayed: Unplayed,
    pub(super) timers: BTreeSet<(Instant, Timer)>,
    /// Nodes on which there is room again for Pods that ask for more.
    pub(super) with_room: Vec<Arc<str>>,
    pub(super) leases: Outbox<Arc<str>>,
    pub(super) look_ups: Outbox<ObjectKey>,
    pub(super) node_work: Outbox<NodeWork>,
    pub(super) writes: Outbox<ObjectKey>,
    pub(super) requests: JoinSet<Answer>,
}

/// Of an object, as a number: of two the later is the greater.
pub(super) fn version(text: Option<&str>) -> Option<u64> {
    text?.parse().ok()
}

/// By which two statuses are told apart.
pub(super) fn hash(status: &impl Serialize) -> u64 {
    seed(serde_json::to_string(status).unwrap_or_default())
}
