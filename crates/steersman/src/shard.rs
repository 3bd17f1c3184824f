//! Sharding over Leases: the replicas of one operator divide its keys among themselves.
//!
//! # What is promised
//!
//! **A key moves only after its old owner let go.** No key is processed by two replicas at once, whichever replicas are
//! slow, frozen, cut off, come or go, however far their clocks are apart. Once nothing changes, every key is owned by
//! exactly one live replica. When one of n replicas comes or goes, about one in n of the keys move, and those of the
//! others stay where they are.
//!
//! # The protocol
//!
//! Keys hash to 1,024 slots. A member is one run of a replica. It has a Lease of its own, `<group>-<random>`, labelled with
//! the group, whose annotation says which slots the member *claims*. In every period each member *writes* its Lease and
//! then *lists* those of the group; there is nothing else. The rules:
//!
//! 1. A member lives until its Lease has not changed for its duration, by the clock of who looks, counted from the answer
//!    that first showed it so to the sending of a later list that still shows it so. No two hosts' clocks are compared.
//! 2. A member's share is what rendezvous hashing gives it among those it sees alive. It claims its share at once, also
//!    while others still claim parts of it.
//! 3. A member *holds* a slot, and works on its keys, once a list sent after the write that claimed it was answered shows
//!    the slot claimed by nobody else that lives (or vanished within its duration).
//! 4. A slot that is no longer in its share is let go in two steps: nothing new begins; then, when what had begun has
//!    ended, or was cut off at the end of the handover time, the claim is written away. From the sending of that write on
//!    the slot is not worked on, whether the write succeeds or its fate is unknown.
//! 5. A member that could not renew for the renew deadline, counted from the *sending* of the last write that succeeded,
//!    stops everything where it is. To go on it must write and list as if new. The deadline is shorter than the lease.
//!
//! # Why no key is in two replicas
//!
//! Suppose members A and B work on one slot at the same time. Each holds it by a list that followed its claim; say A's
//! list was served first. Then A's claim was in the store when B's list was served, and still is, because A works on it
//! (4). So B saw the claim, and can hold the slot only if it took A for dead (3): the version of A's Lease that B's list
//! showed had been known to B for a whole lease when that list was sent (1). The write that made this version was sent
//! before B first saw it, so at the time of B's list A's renew deadline had passed, without a successful write of A's in
//! the store that B's list did not show. A had stopped, and holds the slot by a list that followed a later write (5):
//! later than B's list, and so is A's list. But A's list was first. A write that was sent, timed out and is done much later
//! changes nothing: it only ever claims what A takes for claimed already or in doubt, and a Lease is replaced only in the
//! version that the writer knows, so of several such writes one at most is done.
//!
//! The test `member/simulation.rs` tries this with random schedules of slow and lost requests, late writes, freezes, deaths, joins
//! and clocks that run a tenth fast or slow.
//!
//! # What it costs, and its limits
//!
//! - One write and one list for each member and period (2 s): half a write per member and second. A change adds one to
//!   three of each. The list grows with the group, so all lists together grow with its square: 10 members cause 5 lists of
//!   10 Leases a second, 100 members 50 of 100. More than 128 get no share.
//! - A newcomer works after three requests on what is free, and on what others let go within about two periods, or when
//!   their work ends. Who leaves in order is replaced within a period; who dies, when its lease has run out.
//! - The clocks of two members may run at different speeds up to the ratio of lease and renew deadline.
//! - Work is cut off where it waits: code that does not return to the runtime cannot be stopped, nor can a request that was
//!   already sent, nor anything in a process that was frozen, in the moment in which it thaws. What must not happen even
//!   then needs a precondition on the server, such as a resource version.
//! - Deleting the Lease of a member that works is not noticed by members that never saw it, until it notices itself.
//! - A key that is gained runs because its object is in the cache, or an object that maps to it. If nothing about a key is
//!   left, it does not run, as at a restart: what must be cleaned up needs a finalizer. What adds keys to a queue by itself
//!   must do so on every replica; those that do not own the key drop it.
//! - All members must divide alike. A claim in a format that a member does not know counts as a claim to everything.

mod agent;
mod gate;
mod member;
mod slots;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::clock;
use crate::election::LEASE_MAX;
use crate::key::ObjectKey;
use crate::queue::{Priority, WorkQueue};
use crate::shard::agent::Agent;
use crate::shard::gate::{Gate, Moved};
use crate::shard::member::Times;

pub use crate::shard::gate::Permit;

/// A group of replicas, its durations, and the identity of this replica.
#[derive(Clone, Debug)]
pub struct ShardOptions {
    /// Name of the group: a label's value, and what the names of the members' Leases begin with.
    pub group: String,
    /// Namespace of the Leases.
    pub namespace: String,
    /// The identity of this replica, for people to read. Need not differ between replicas. Default: the host's name.
    pub identity: String,
    /// How long others wait for a member that does not renew. Default 15 s.
    pub lease: Duration,
    /// How long a member works without having renewed. Shorter than the lease. Default 10 s.
    pub renew_deadline: Duration,
    /// The time between renewals, and between looks at the others. Default 2 s.
    pub period: Duration,
    /// How long a reconcile may go on after its key was given to another replica, before it is cut off. Default 30 s.
    pub handover: Duration,
}

/// The group cannot be formed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShardError {
    /// The name of the group cannot be part of the names of Leases and the value of a label.
    #[error(
        "group {group:?}: use at most 54 lower case letters, digits and dashes, with a letter or digit at both ends"
    )]
    Group {
        /// The name as given.
        group: String,
    },
    /// A key could be in two replicas.
    #[error(
        "group {group:?}: the lease ({lease:?}) must be longer than the renew deadline ({renew_deadline:?}), and that \
         longer than twice the period ({period:?}), which must not be zero; the lease must be shorter than 68 years"
    )]
    Times {
        /// The group.
        group: String,
        /// The lease as given.
        lease: Duration,
        /// The renew deadline as given.
        renew_deadline: Duration,
        /// The period as given.
        period: Duration,
    },
}

/// Which keys are this replica's, now. Clones are the same thing.
///
/// The controllers of a sharded [`Manager`](crate::Manager) ask by themselves. Loops of one's own ask before they work on a
/// key, and hold the permit as long as they do:
///
/// ```
/// # use steersman::{ObjectKey, Shards};
/// # async fn work(_: &ObjectKey) {}
/// async fn work_if_ours(key: &ObjectKey, shards: &Shards) {
///     let Some(permit) = shards.begin(key) else { return };
///     tokio::select! {
///         () = permit.revoked() => {} // Dropped where it waited.
///         () = work(key) => {}
///     }
/// }
/// ```
#[derive(Clone)]
pub struct Shards {
    shared: Arc<Shared>,
}

/// A group as one member sees it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Membership {
    /// Our Lease; empty before we take part.
    pub member: String,
    /// The Leases of all that live, in alphabetical order.
    pub members: Vec<String>,
    /// On the keys of how many slots we work, of 1,024.
    pub slots: usize,
}

/// One replica's membership in a group: renews its Lease, lists those of the others, and updates [`Shards`].
///
/// ```no_run
/// # use steersman::{ShardError, ShardMember, ShardOptions, Shards};
/// # async fn work(shards: Shards) {}
/// # async fn run(client: kube::Client) -> Result<(), ShardError> {
/// let member = ShardMember::new(client, ShardOptions::new("my-operator", "operators"))?;
/// let work = tokio::spawn(work(member.shards()));
/// member.run(steersman::shutdown_signal()).await;
/// work.abort();
/// # Ok(()) }
/// ```
#[must_use = "a member does nothing until it runs"]
pub struct ShardMember {
    agent: Agent,
}

struct Shared {
    gate: Arc<Gate>,
    membership: watch::Sender<Membership>,
    listeners: Mutex<Vec<Arc<Listener>>>,
}

type Listener = dyn Fn(&Moved) + Send + Sync;

// === impl ShardOptions ===

impl ShardOptions {
    /// The default times.
    pub fn new(group: &str, namespace: &str) -> Self {
        Self {
            group: group.to_owned(),
            namespace: namespace.to_owned(),
            identity: std::env::var("HOSTNAME").unwrap_or_else(|_| "steersman".to_owned()),
            lease: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            period: Duration::from_secs(2),
            handover: Duration::from_secs(30),
        }
    }

    fn check(&self) -> Result<Times, ShardError> {
        let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let name = self.group.as_bytes();
        let is_name = name.iter().all(|&byte| is_inner(byte) || byte == b'-')
            && name.first().is_some_and(|&byte| is_inner(byte))
            && name.last().is_some_and(|&byte| is_inner(byte))
            && name.len() <= 54;
        if !is_name {
            return Err(ShardError::Group { group: self.group.clone() });
        }
        let Self { lease, renew_deadline, period, handover, .. } = *self;
        let is_sound = renew_deadline < lease && lease <= LEASE_MAX && period < renew_deadline && !period.is_zero();
        if !is_sound || renew_deadline <= period * 2 {
            return Err(ShardError::Times { group: self.group.clone(), lease, renew_deadline, period });
        }
        Ok(Times { lease, renew_deadline, period, handover: handover.min(clock::FAR) })
    }
}

// === impl Shards ===

impl Shards {
    pub(crate) fn new() -> Self {
        let shared = Shared { gate: Arc::default(), membership: watch::Sender::default(), listeners: Mutex::default() };
        Self { shared: Arc::new(shared) }
    }

    /// Whether work on `key` may begin here, now.
    pub fn owns(&self, key: &ObjectKey) -> bool {
        self.shared.gate.holds(key)
    }

    /// Begins work on `key`; `None` if it is not ours now. Its owner has the same event.
    pub fn begin(&self, key: &ObjectKey) -> Option<Permit> {
        self.shared.gate.begin(key)
    }

    /// The group as last seen, and every change of it.
    pub fn membership(&self) -> watch::Receiver<Membership> {
        self.shared.membership.subscribe()
    }

    /// Lets only our keys into `queue` from now on: those that come are added as at a start, those that go are dropped.
    /// `keys` gives all that are known.
    pub(crate) fn feed(&self, queue: &WorkQueue<ObjectKey>, keys: impl Fn() -> Vec<ObjectKey> + Send + Sync + 'static) {
        let gate = Arc::clone(&self.shared.gate);
        queue.admit_only(move |key| gate.holds(key));
        let queue = queue.clone();
        self.shared.listeners.lock().push(Arc::new(move |moved: &Moved| {
            queue.retain(|key| !moved.is_lost(key));
            if moved.has_gained() {
                for key in keys().into_iter().filter(|key| moved.is_gained(key)) {
                    queue.add_with(key, Priority::Low);
                }
            }
        }));
    }

    fn tell(&self, moved: &Moved) {
        // A listener may take its time; no lock meanwhile.
        let listeners = self.shared.listeners.lock().clone();
        for listener in listeners {
            listener(moved);
        }
    }
}

impl fmt::Debug for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shards").field("membership", &*self.shared.membership.borrow()).finish_non_exhaustive()
    }
}

// === impl ShardMember ===

impl ShardMember {
    /// A member of the group of `options`, not yet known to the others.
    ///
    /// # Errors
    /// [`ShardError`].
    pub fn new(client: Client, options: ShardOptions) -> Result<Self, ShardError> {
        Self::with_shards(client, options, Shards::new())
    }

    pub(crate) fn with_shards(client: Client, options: ShardOptions, shards: Shards) -> Result<Self, ShardError> {
        let times = options.check()?;
        Ok(Self { agent: Agent::new(client, options, times, shards) })
    }

    /// What this member may work on.
    pub fn shards(&self) -> Shards {
        self.agent.shards()
    }

    /// Takes part until `stop`; then it begins nothing new, waits for what was begun (at most the handover time), and
    /// leaves, so that others need not wait for its lease to expire.
    ///
    /// Dropped before it is done, it lets all work end at once, and the others wait for its lease.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        self.agent.run(stop).await;
    }
}

impl fmt::Debug for ShardMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardMember").field("shards", &self.agent.shards()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(edit: impl Fn(&mut ShardOptions), is_sound: bool) {
        let mut options = ShardOptions::new("test", "kube-system");
        edit(&mut options);
        assert_eq!(options.check().is_ok(), is_sound, "{options:?}");
    }

    #[test]
    fn times_that_allow_two_owners_or_cannot_be_kept_are_refused() {
        check(|_| {}, true);
        check(|options| options.handover = Duration::MAX, true);
        check(|options| options.renew_deadline = options.lease, false);
        check(|options| options.period = Duration::ZERO, false);
        check(|options| options.period = Duration::from_secs(5), false);
        check(|options| options.period = Duration::MAX, false);
        check(|options| options.lease = Duration::MAX, false);
    }
}
