//! Sharding over Leases: the replicas of one operator divide its keys among themselves.
//!
//! # Guarantees
//!
//! **A key moves only after its old owner has released it.** Work on a key begins in one replica, and ends there before
//! it begins in another, whichever replicas are slow, cut off, come or go, however far their clocks are apart, and
//! however wall clocks are set. Once nothing changes, every key is owned by exactly one live replica. When one of n
//! replicas comes or goes, about one in n of the keys move, and the other keys stay.
//!
//! The library stops work by dropping its future at an await point, so the guarantee ends where that does:
//!
//! - Code that does not return to the runtime cannot be stopped, nor can a request that was already sent.
//! - A process that was stopped, or whose host was suspended, for longer than its lease begins nothing when it goes on.
//!   Work that was under way then is cut off within a second, in which its new owner may be at work too.
//! - A virtual machine that is paused from outside, without notice to its system, has no clock that shows it: it goes
//!   on as if nothing had happened, until the group has divided its slots again, which takes some periods.
//!
//! A write that must not happen even then needs a precondition on the server, such as a resource version.
//!
//! # The protocol
//!
//! Keys hash to 1,024 slots. A member is one run of a replica. It has a Lease of its own, `<group>-<128 random bits>`,
//! labeled with the group, whose annotations name the run that wrote it, and the slots that the member *claims*. If
//! another run has written a Lease of its name, the member stops, and goes on under another name. In every period each
//! member *writes* its Lease and then *lists* those of the group; it sends no other requests. The rules:
//!
//! 1. A member lives until its Lease has not changed for its duration, by the clock of the observer, counted from the
//!    answer that first showed this version to the sending of a later list that still shows it. No two hosts' clocks
//!    are compared.
//! 2. A member's share is computed by rendezvous hashing among the members that it sees alive. It claims its share at
//!    once, even while others still claim parts of it.
//! 3. A member *holds* a slot, and works on its keys, once its claim has been written, and a list that was sent after
//!    the answer to that write shows no other living member (nor one that vanished within its duration) claiming the
//!    slot.
//! 4. A slot that is no longer in its share is released in two steps: nothing new begins; then, when the work that had
//!    begun has ended, or was cut off at the end of the handover time, the Lease is written without the claim. From the
//!    sending of that write on the slot is not worked on, whether the write succeeds or its outcome is unknown.
//! 5. A member that could not renew for the renew deadline, counted from the *sending* of the last successful write,
//!    stops all work. To go on it must write and list like a new member. The deadline is shorter than the lease. Its
//!    clock counts the time in which the host was suspended, and is read before each work begins.
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
//! The simulation in `member/simulation.rs` tests this with random schedules of slow and lost requests, late writes,
//! freezes, deaths, joins and clocks that run a tenth fast or slow.
//!
//! # Cost and limits
//!
//! - One write and one list for each member and period (2 s): half a write per member and second. A change adds one to
//!   three of each. The list grows with the group, so all lists together grow with its square: 10 members cause 5 lists of
//!   10 Leases a second, 100 members 50 of 100. More than 128 get no share.
//! - A newcomer works on free slots after three requests, and on slots of others once they release them, within about
//!   two periods, or when their work ends. A member that leaves in order is replaced within a period; one that dies,
//!   when its lease has run out.
//! - The clocks of two members may run at different speeds up to the ratio of lease and renew deadline.
//! - If the Lease of a working member is deleted, members that never listed it do not notice, until the member itself
//!   does.
//! - A gained key runs because its object is in the cache, or an object that maps to it. If no such object is left, it
//!   does not run, as at a restart: cleanup needs a finalizer. Code that adds keys to a queue by itself must do so on
//!   every replica; the replicas that do not own the key drop it.
//! - All members must divide alike. A claim in a format that a member does not know counts as a claim to everything.

mod agent;
mod feed;
mod gate;
mod member;
mod membership;
mod options;
mod shards;
mod slots;
pub(crate) mod stats;

pub use crate::leadership::shard::gate::Permit;
pub use crate::leadership::shard::membership::{Membership, ShardMember};
pub use crate::leadership::shard::options::{ShardError, ShardOptions};
pub use crate::leadership::shard::shards::Shards;
