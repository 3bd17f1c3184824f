//! Sharding over Leases: the replicas of one operator divide its keys among themselves.
//!
//! # What is promised
//!
//! **A key moves only after its old owner let go.** Work on a key begins in one replica, and ends there before it begins in
//! another, whichever replicas are slow, cut off, come or go, however far their clocks are apart, and however wall clocks are
//! set. Once nothing changes, every key is owned by exactly one live replica. When one of n replicas comes or goes, about one
//! in n of the keys move, and those of the others stay where they are.
//!
//! The library stops work by dropping it where it waits, so the promise ends where that does:
//!
//! - Code that does not return to the runtime cannot be stopped, nor can a request that was already sent.
//! - A process that was stopped, or whose host was suspended, for longer than its lease begins nothing when it goes on. What was
//!   under way then is cut off within a second, in which its new owner may be at work too.
//! - A virtual machine that is paused from outside, without its system being told, has no clock that shows it: it goes on as
//!   if nothing had been, until the group has divided anew, which takes some periods.
//!
//! What must not happen even then needs a precondition on the server, such as a resource version.
//!
//! # The protocol
//!
//! Keys hash to 1,024 slots. A member is one run of a replica. It has a Lease of its own, `<group>-<128 random bits>`, labelled
//! with the group, whose annotations say which run wrote it, and which slots the member *claims*. A Lease of its name that
//! another run has written is not its own: it stops, and goes on under another name. In every period each member *writes* its Lease and
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
//!    stops everything where it is. To go on it must write and list as if new. The deadline is shorter than the lease. Its
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
//! The simulation in `member/simulation.rs` tries this with random schedules of slow and lost requests, late writes, freezes, deaths, joins
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
//! - Deleting the Lease of a member that works is not noticed by members that never saw it, until it notices itself.
//! - A key that is gained runs because its object is in the cache, or an object that maps to it. If nothing about a key is
//!   left, it does not run, as at a restart: what must be cleaned up needs a finalizer. What adds keys to a queue by itself
//!   must do so on every replica; those that do not own the key drop it.
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

pub use crate::shard::gate::Permit;
pub use crate::shard::membership::{Membership, ShardMember};
pub use crate::shard::options::{ShardError, ShardOptions};
pub use crate::shard::shards::Shards;
