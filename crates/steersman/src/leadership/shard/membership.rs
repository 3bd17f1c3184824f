//! A replica's membership in a group: the type that users start and stop, and the state of the other members.

use std::fmt;

use kube::Client;

use crate::leadership::shard::agent::Agent;
use crate::leadership::shard::options::{ShardError, ShardOptions};
use crate::leadership::shard::shards::Shards;

/// A group as one member last listed it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Membership {
    /// The name of our Lease; empty before we take part.
    pub member: String,
    /// The names of the Leases of all living members, in alphabetical order.
    pub members: Vec<String>,
    /// The number of slots whose keys we work on, of 1,024.
    pub slots: usize,
}

/// One replica's membership in a group: renews its Lease, lists those of the others, and updates [`Shards`].
///
/// ```no_run
/// # use steersman::shard::{ShardError, ShardMember, ShardOptions, Shards};
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

// === impl ShardMember ===

impl ShardMember {
    /// A member of the group of `options`, which the others have not listed yet.
    ///
    /// # Errors
    /// [`ShardError`].
    pub fn new(client: Client, options: ShardOptions) -> Result<Self, ShardError> {
        let shards = Shards::new(&options.group);
        Self::with_shards(client, options, shards)
    }

    pub(crate) fn with_shards(client: Client, options: ShardOptions, shards: Shards) -> Result<Self, ShardError> {
        let times = options.check()?;
        Ok(Self { agent: Agent::new(client, options, times, shards) })
    }

    /// The keys that this member may work on.
    pub fn shards(&self) -> Shards {
        self.agent.shards()
    }

    /// Takes part until `stop`; then it begins nothing new, waits for work that was begun (at most the handover time),
    /// and leaves, so that others need not wait for its lease to expire.
    ///
    /// If the future is dropped before it is done, all work ends at once, and the others wait for the lease.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        self.agent.run(stop).await;
    }
}

impl fmt::Debug for ShardMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardMember").field("shards", &self.agent.shards()).finish_non_exhaustive()
    }
}
