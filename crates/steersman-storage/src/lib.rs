//! Durable, revisioned key-value storage, the objects over it, and the watch cache.
//!
//! Two layers. [`kv::Kv`] is bytes: keys, values, one revision per transaction, committed events in order; [`Memory`]
//! and [`Disk`] implement it, and [`conformance`] is the suite that every engine runs. [`Store`] is objects: optimistic
//! writes that go to the engine, and a cache, written from the engine's log alone, that answers reads, lists (at a past
//! revision too) and watches. A [`Watcher`] is a cursor into a ring of recent events: no channel, no task.
//!
//! ```text
//! create/update/delete -> Kv::txn -> queue -> one writer: assign revisions, write, fsync -> publish -> acknowledge
//!                                                                                              |
//!     get/list <- objects (per resource) <- feeder, in revision order <- Kv::watch <-----------+
//!     Watcher  <- ring of events         <-
//! ```
//!
//! Nothing here depends on HTTP, schemas or the meaning of a kind.

pub mod backup;
mod cache;
pub mod conformance;
pub mod disk;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod key;
pub mod kv;
pub mod memory;
mod parallel;
mod store;

pub use crate::cache::event::{Event, Kind};
pub use crate::cache::interest::Interest;
pub use crate::cache::resource::{At, List, Newest, Page, Scope, Visibility};
pub use crate::cache::ring::Limits;
pub use crate::cache::watcher::{WatchError, Watcher};
pub use crate::disk::Disk;
pub use crate::key::{KeyError, encode as encode_key};
pub use crate::memory::Memory;
pub use crate::store::check::{Check, Unreadable, check, locate};
pub use crate::store::{
    Compactor, Deleted, Guard, GuardChange, HistorySize, OpenError, Options, ReadError, Stats, Store, WaitError,
    WriteError,
};
