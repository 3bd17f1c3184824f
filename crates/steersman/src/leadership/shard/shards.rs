//! The keys that belong to this replica: read by workers and by users' loops, written by the member's agent.

use std::fmt;
use std::sync::{Arc, Weak};

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::control::fence::{Fence, KeySource, Pass};
use crate::control::queue::WorkQueue;
use crate::leadership::shard::feed::Feed;
use crate::leadership::shard::gate::{Gate, Permit};
use crate::leadership::shard::member::Permission;
use crate::leadership::shard::membership::Membership;
use crate::leadership::shard::stats::{Measured, Report, Stats};
use crate::shared::key::ObjectKey;

/// The keys that belong to this replica now. Clones share one state.
///
/// The controllers of a sharded [`Manager`](crate::Manager) use it by themselves. Custom loops call it before they work
/// on a key, and hold the permit for as long as they work:
///
/// ```
/// # use steersman::shard::Shards;
/// # use steersman::ObjectKey;
/// # async fn work(_: &ObjectKey) {}
/// async fn work_if_ours(key: &ObjectKey, shards: &Shards) {
///     let Some(permit) = shards.begin(key) else { return };
///     tokio::select! {
///         () = permit.revoked() => {} // The work was dropped at an await point.
///         () = work(key) => {}
///     }
/// }
/// ```
#[derive(Clone)]
pub struct Shards {
    shared: Arc<Shared>,
}

/// The state that the agent, the workers and the users of one member share.
struct Shared {
    group: String,
    gate: Arc<Gate>,
    membership: watch::Sender<Membership>,
    feeds: Mutex<Vec<Arc<Feed>>>,
    stats: Stats,
}

// === impl Shards ===

impl Shards {
    /// The shards of a member of `group`, which holds no slot yet.
    pub(crate) fn new(group: &str) -> Self {
        let shared = Shared {
            group: group.to_owned(),
            gate: Arc::default(),
            membership: watch::Sender::default(),
            feeds: Mutex::default(),
            stats: Stats::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Whether work on `key` may begin in this replica now.
    pub fn owns(&self, key: &ObjectKey) -> bool {
        self.shared.gate.allows(key)
    }

    /// Begins work on `key`; `None` if it is not this replica's now. Its owner gets the same event.
    pub fn begin(&self, key: &ObjectKey) -> Option<Permit> {
        self.shared.gate.begin(key)
    }

    /// The group as last listed, and every change of it.
    pub fn membership(&self) -> watch::Receiver<Membership> {
        self.shared.membership.subscribe()
    }

    pub(crate) fn stats(&self) -> &Stats {
        &self.shared.stats
    }

    /// The metrics of the shards. They can be read for as long as the shards exist.
    pub(crate) fn measured(&self) -> Weak<dyn Measured> {
        let shared: Arc<dyn Measured> = Arc::<Shared>::clone(&self.shared);
        Arc::downgrade(&shared)
    }

    pub(crate) fn gate(&self) -> &Arc<Gate> {
        &self.shared.gate
    }

    /// The queues that get gained keys.
    pub(crate) fn feeds(&self) -> Vec<Arc<Feed>> {
        self.shared.feeds.lock().clone()
    }

    /// Puts `permission` in force, and records which slots have moved.
    pub(crate) fn apply(&self, permission: Permission) {
        let moved = self.shared.gate.apply(permission);
        self.shared.stats.count_moved(&moved);
        if !moved.is_nothing() {
            self.shared.feeds.lock().iter().for_each(|feed| feed.note(&moved));
        }
    }

    /// Sets the group as last listed. Returns whether it has changed.
    pub(crate) fn publish(&self, membership: Membership) -> bool {
        self.shared.membership.send_if_modified(|known| {
            let is_new = *known != membership;
            *known = membership;
            is_new
        })
    }
}

impl Measured for Shared {
    fn report(&self) -> Report {
        let n_members = self.membership.borrow().members.len();
        self.stats.report(&self.group, self.gate.n_held(), n_members)
    }
}

impl Fence for Shards {
    fn begin(&self, key: &ObjectKey) -> Option<Box<dyn Pass>> {
        let permit = self.shared.gate.begin(key)?;
        Some(Box::new(permit))
    }

    fn feed(&self, queue: &WorkQueue<ObjectKey>, source: KeySource) {
        let gate = Arc::clone(&self.shared.gate);
        queue.admit_only(move |key| gate.holds(key));
        let feed = Feed::new(Arc::clone(&self.shared.gate), queue.clone(), source);
        self.shared.feeds.lock().push(Arc::new(feed));
    }
}

impl Pass for Permit {
    fn revoked(&self) -> BoxFuture<'_, &'static str> {
        Self::revoked(self).map(|()| "the key goes to another replica").boxed()
    }
}

impl fmt::Debug for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shards").field("membership", &*self.shared.membership.borrow()).finish_non_exhaustive()
    }
}
